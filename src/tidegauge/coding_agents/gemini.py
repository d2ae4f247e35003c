"""Gemini CLI.

Its calls have no ids: a result belongs to the call with the same tool and arguments. A hook can
refuse calls, add to a result, and end the run.

In sessions, a message is written again, whole, when its calls are done. Results lose the ids of
processes, and what a hook has added to them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.coding_agents.known_agent import (
    Folder,
    Hook,
    HookAnswer,
    HookEvent,
    HookSettings,
    KnownAgent,
    Payload,
    Sessions,
    without_description,
    without_saved_path,
)
from tidegauge.coding_agents.session_transcript import (
    CallingAnswer,
    Record,
    SessionTranscript,
    joined_texts,
    listed,
    mapping,
    mappings,
    parsed_time,
    text_in,
    total_of,
)
from tidegauge.events import Call, CallResult

_TRAILER: Final = re.compile(
    r"(?:^(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): [^\n]*(?:\n|\Z))+"
    r"(?:</untrusted_context>)?\s*\Z",
    re.M,
)
"""What the shell says after the output of a command."""

_MAX_TRAILER: Final = 2_000

_PROCESS_IDS: Final = re.compile(r"^(?:Process Group PGID|Background PIDs): .*(?:\n|\Z)", re.M)
_EXIT_CODE: Final = re.compile(r"^Exit Code: (\d+)$", re.M)

_MAX_SEEN: Final = 1_000
_CONTEXT: Final = re.compile(r"\n\n<hook_context>.*?</hook_context>\s*\Z", re.DOTALL)
_FOLDER: Final = re.compile(r"working in the directory: (\S[^\n]{0,400})")
_NO_PROMPTS: Final = ("<session_context>", "System: Potential loop detected")
"""How messages begin that Gemini CLI writes in the name of the user."""


class GeminiTranscript(SessionTranscript):
    """A session of Gemini CLI."""

    agent = "gemini"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self._seen: OrderedDict[str, None] = OrderedDict()  # ids of messages with calls
        self._open: CallingAnswer | None = None
        self._inner = False  # whether it is a sub-agent's

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return "projectHash" in record or (
            record.get("type") in ("gemini", "user") and "content" in record and "id" in record
        )

    def read(self, record: Record) -> None:
        self.session = text_in(record, "sessionId") or self.session
        self._inner = self._inner or record.get("kind") == "subagent"
        time = parsed_time(record.get("timestamp"))
        self.folder = self.folder or _folder(record)
        match record.get("type"):
            case "user":
                self._open = None
                task = _prompt(record.get("content"))
                # A sub-agent is asked once; what comes later, Gemini CLI adds.
                if task is not None and not (self._inner and self.run is not None):
                    self.prompt(task, time)
            case "gemini":
                self.model = text_in(record, "model") or self.model
                self._answer(record, time)

    def open_answer(self) -> CallingAnswer | None:
        """The last answer, as long as it is written without calls: they are not done yet."""
        return self._open

    def _answer(self, record: Record, time: float | None) -> None:
        given = mappings(record.get("toolCalls"))
        message, total = str(record.get("id")), mapping(record.get("tokens")).get("total")
        tokens = total_of(total)
        self._open = None if given else CallingAnswer((message,), tokens)
        if not given:
            return
        ids = [text_in(call, "id") or str(number) for number, call in enumerate(given)]
        if message not in self._seen:
            self._seen[message] = None
            if len(self._seen) > _MAX_SEEN:
                self._seen.popitem(last=False)
            chosen = {
                one: Call(text_in(call, "name") or "tool", without_description(call.get("args")))
                for one, call in zip(ids, given, strict=True)
            }
            self.choose(chosen, tokens=tokens, time=time)
        for one, call in zip(ids, given, strict=True):
            if call.get("result") or call.get("status") in ("error", "cancelled"):
                self.observe(one, _recorded_result(call), parsed_time(call.get("timestamp")))


def _folder(record: Record) -> str:
    """The folder of the session, which Gemini CLI names in its first message."""
    messages = [record, *mappings(mapping(record.get("$set")).get("messages"))]
    for part in (mapping(part) for one in messages for part in listed(one.get("content"))):
        text = text_in(part, "text") or ""
        found = _FOLDER.search(text) if text.startswith(_NO_PROMPTS[0]) else None
        if found is not None:
            return found[1].strip()
    return ""


def _prompt(content: Any) -> str | None:
    """What the user asks; ``None``, the message has results, or what Gemini says of the session."""
    text = joined_texts(content if isinstance(content, list) else [{"text": content}])
    return None if text is None or text.startswith(_NO_PROMPTS) else text


def _recorded_result(call: Record) -> CallResult:
    first = mapping(next(iter(listed(call.get("result"))), None))
    response = mapping(mapping(first.get("functionResponse")).get("response"))
    output = response.get("output", response.get("error"))
    if isinstance(output, str):
        output = _CONTEXT.sub("", output)
    result = without_process_ids(output)
    failed = call.get("status") == "error" or "error" in response
    return result._replace(error=True) if failed else result


def _read(payload: Payload) -> HookEvent | None:
    session = text_in(payload, "session_id")
    if session is None:
        return None
    tool = text_in(payload, "tool_name") or ""
    arguments = without_description(payload.get("tool_input"))
    match payload.get("hook_event_name"):
        case "BeforeAgent":
            return HookEvent("prompt", session, prompt=text_in(payload, "prompt"))
        case "BeforeTool":
            return HookEvent("call", session, tool, arguments)
        case "AfterTool":
            result = _result(payload.get("tool_response"))
            return HookEvent("result", session, tool, arguments, result=result)
        case "AfterAgent":
            return HookEvent("end", session)
        case "SessionEnd":
            return HookEvent("end", session, reason=text_in(payload, "reason"))
        case _:
            return None


def _result(response: object) -> CallResult:
    if not isinstance(response, Mapping):
        return CallResult(response)
    result = without_process_ids(response.get("llmContent"))
    return result._replace(error=True) if response.get("error") else result


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    event = payload.get("hook_event_name")
    match answer.action:
        case "stop" if event in ("BeforeTool", "AfterTool"):
            return {"continue": False, "stopReason": answer.text}
        case "refuse" if event == "BeforeTool":
            return {"decision": "deny", "reason": answer.text}
        case "nudge" if event == "AfterTool":
            context = {"hookEventName": event, "additionalContext": answer.text}
            return {"hookSpecificOutput": context}
        case _:
            return None


def without_process_ids(content: Any) -> CallResult:
    """The result of a tool of Gemini CLI or Qwen Code, whose shell reports the ids of processes.

    >>> without_process_ids("Output: none\\nExit Code: 1\\nProcess Group PGID: 1993\\n")
    CallResult(outcome='Output: none\\nExit Code: 1\\n', error=True)
    """
    content = without_saved_path(content)
    if not isinstance(content, str):
        return CallResult(content)
    trailer = _TRAILER.search(content, max(0, len(content) - _MAX_TRAILER))
    if trailer is None:
        return CallResult(content)
    codes = _EXIT_CODE.findall(trailer[0])
    text = content[: trailer.start()] + _PROCESS_IDS.sub("", trailer[0])
    return CallResult(text, codes[-1] != "0" if codes else None)


GEMINI: Final = KnownAgent(
    "gemini",
    "Gemini CLI",
    "0.61",
    hook=Hook(_read, _write, stops=True),
    settings=HookSettings(
        Folder(".gemini"),
        "settings.json",
        ("BeforeTool", "AfterTool"),
        ("BeforeAgent", "AfterAgent", "SessionEnd"),
        timeout=5_000,
    ),
    sessions=Sessions(
        GeminiTranscript,
        # The second is of sub-agents. Nothing in them shows when they are over, so they are read
        # afterwards only.
        ("session-*.jsonl", "chats/*/*.jsonl"),
        Folder(".gemini", part="tmp"),
        tokens=True,
        note="a sub-agent is a run by itself",
    ),
)
