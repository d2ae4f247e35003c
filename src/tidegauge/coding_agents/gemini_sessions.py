"""Sessions of Gemini CLI: ``~/.gemini/tmp/*/chats/session-*.jsonl``.

A message is written again, whole, when its calls are done. Results lose the ids of processes, and
what a hook has added to them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Final

from tidegauge.coding_agents.payload_fields import without_description, without_process_ids
from tidegauge.coding_agents.session_transcript import (
    CallingAnswer,
    Record,
    SessionTranscript,
    listed,
    mapping,
    parsed_time,
    text_in,
)
from tidegauge.events import Call, CallResult

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
        """Whether a record is one of Gemini CLI's."""
        return "projectHash" in record or (
            record.get("type") in ("gemini", "user") and "content" in record and "id" in record
        )

    def read(self, record: Record) -> None:
        """Read one line."""
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
        given = [mapping(call) for call in listed(record.get("toolCalls"))]
        message, total = str(record.get("id")), mapping(record.get("tokens")).get("total")
        tokens = total if isinstance(total, int) else None
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
                self.observe(one, _result(call), parsed_time(call.get("timestamp")))


def _folder(record: Record) -> str:
    """The folder of the session, which Gemini CLI names in its first message."""
    messages = [record, *map(mapping, listed(mapping(record.get("$set")).get("messages")))]
    for part in (mapping(part) for one in messages for part in listed(one.get("content"))):
        text = text_in(part, "text") or ""
        found = _FOLDER.search(text) if text.startswith(_NO_PROMPTS[0]) else None
        if found is not None:
            return found[1].strip()
    return ""


def _prompt(content: Any) -> str | None:
    """What the user asks; ``None``, the message has results, or what Gemini says of the session."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [text_in(mapping(part), "text") for part in parts]
    text = "\n".join(filter(None, texts))
    return text if text and not text.startswith(_NO_PROMPTS) else None


def _result(call: Record) -> CallResult:
    first = mapping(next(iter(listed(call.get("result"))), None))
    response = mapping(mapping(first.get("functionResponse")).get("response"))
    output = response.get("output", response.get("error"))
    if isinstance(output, str):
        output = _CONTEXT.sub("", output)
    result = without_process_ids(output)
    failed = call.get("status") == "error" or "error" in response
    return result._replace(error=True) if failed else result
