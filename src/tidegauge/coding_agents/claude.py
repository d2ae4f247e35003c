"""Claude Code, by its documentation; its hooks were not run.

What a sub-agent does is a run by itself.
"""

from __future__ import annotations

from collections import OrderedDict
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
    read_event,
    specific_answer,
    without_description,
    without_saved_path,
)
from tidegauge.coding_agents.session_transcript import (
    CallingAnswer,
    Record,
    SessionTranscript,
    joined_texts,
    mapping,
    parsed_time,
    text_in,
    without_our_text,
)
from tidegauge.events import ABSENT, Call, CallResult

_HOME: Final = Folder(".claude", "CLAUDE_CONFIG_DIR")
_MAX_LINES: Final = 10_000
_OVER: Final = ("stop_hook_summary", "turn_duration")
"""What is written when the agent has answered, besides the answer."""

_INTERRUPTED: Final = "[Request interrupted by user"
_COMMAND: Final = ("<command-name>", "<command-message>")
"""How a slash command begins, which may be for the model, or not."""

_OF_THE_USER: Final = ("<local-command-", "<bash-input>", "<bash-stdout>")
"""How messages begin of commands that the user has run, and not the model."""

_ENDS: Final = ("end_turn", "stop_sequence", "refusal")
"""Why the model stopped, if it has said all."""

_TOKENS: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)


class ClaudeTranscript(SessionTranscript):
    """A session of Claude Code."""

    agent = "claude"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self._message = ""  # id of the last answer: its parts may stand in several lines
        self._inner: dict[str, ClaudeTranscript] = {}  # by the id of the sub-agent
        self._agents: OrderedDict[str, str] = OrderedDict()  # the sub-agent of a line, by its id

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return "sessionId" in record and "content" in mapping(record.get("message"))

    def read(self, record: Record) -> None:
        self.session = text_in(record, "sessionId") or self.session
        self.folder = self.folder or text_in(record, "cwd") or ""
        if record.get("isMeta") or record.get("isCompactSummary"):
            return
        if record.get("isSidechain"):
            self._sub_agent(record)
            return
        message, time = mapping(record.get("message")), parsed_time(record.get("timestamp"))
        content: Any = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        match record.get("type"):
            case "system" if record.get("subtype") in _OVER and not self.calls:
                self.end(time=time)
            case "user":
                self._user([mapping(part) for part in parts], time)
            case "assistant":
                self._answer(message, [mapping(part) for part in parts], time)

    def end(self, **ending: Any) -> None:
        """The run is over, and so is what a sub-agent did in it."""
        for inner in self._inner.values():
            self._lines += inner.close()
        super().end(**ending)

    def answer_with(self, call_id: str) -> CallingAnswer | None:
        """The last answer, also of a sub-agent, if it has chosen this call."""
        inner = (one.answer_with(call_id) for one in self._inner.values())
        return super().answer_with(call_id) or next(filter(None, inner), None)

    def _sub_agent(self, record: Record) -> None:
        """What a sub-agent does. One without an id begins with a line that follows none of its."""
        line, before = text_in(record, "uuid") or "", text_in(record, "parentUuid") or ""
        agent = text_in(record, "agentId") or self._agents.get(before, line)
        self._agents[line] = agent
        if len(self._agents) > _MAX_LINES:
            self._agents.popitem(last=False)
        session = f"{self.session}-{agent or 'sub'}"
        inner = self._inner.setdefault(agent, ClaudeTranscript(session))
        own = {key: value for key, value in record.items() if key != "isSidechain"}
        self._lines += inner.take({**own, "sessionId": session})

    def _user(self, parts: list[Record], time: float | None) -> None:
        results = [part for part in parts if part.get("type") == "tool_result"]
        for part in results:
            content = without_saved_path(without_our_text(part.get("content", ABSENT)))
            result = CallResult(content, part.get("is_error") is True or None)
            self.observe(text_in(part, "tool_use_id") or "", result, time)
        if results:
            return
        text = joined_texts(parts) or ""
        if text.startswith(_INTERRUPTED):
            self.end(reason="interrupted", time=time)
        elif not text.startswith(_OF_THE_USER):
            self.prompt(text, time, asks_model=not text.startswith(_COMMAND))

    def _answer(self, message: Record, parts: list[Record], time: float | None) -> None:
        self.model = text_in(message, "model") or self.model
        same = text_in(message, "id") == self._message and self._message != ""
        self._message = text_in(message, "id") or ""
        if not same:
            self.choose({}, time=time)
        for part in parts:
            if part.get("type") == "tool_use":
                call = Call(text_in(part, "name") or "tool", without_description(part.get("input")))
                self.choose_also(text_in(part, "id") or "", call, time)
        usage = mapping(message.get("usage"))
        spent = [usage[name] for name in _TOKENS if isinstance(usage.get(name), int)]
        self.spend(sum(spent) if spent else None)
        if message.get("stop_reason") in _ENDS and not self.calls:
            self.end(time=time)


def _read(payload: Payload) -> HookEvent | None:
    if payload.get("hook_event_name") == "PostToolUseFailure":
        result = CallResult(payload.get("error", ABSENT), True)
    else:
        result = CallResult(payload.get("tool_response", ABSENT))
    return read_event(payload, result=result)


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if answer.action == "stop":
        return {"continue": False, "stopReason": answer.text}
    return specific_answer(payload, answer)


CLAUDE: Final = KnownAgent(
    "claude",
    "Claude Code",
    hook=Hook(_read, _write, stops=True),
    settings=HookSettings(
        _HOME,
        "settings.json",
        ("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        ("UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd"),
        tools="*",
    ),
    sessions=Sessions(
        ClaudeTranscript,
        ("*.jsonl",),
        _HOME._replace(part="projects"),
        tokens=True,
        note="by its documentation; a sub-agent is a run by itself",
    ),
)
