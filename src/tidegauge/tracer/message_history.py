"""What the model is shown, and what of it is new since the run's last model call.

A history grows by a few messages a step. If every model call carried all of it, a run's cost and
bytes would grow with the square of its length. So a model call's span carries the messages from the
first one on that was not in the history of the last call, in order, and the position of that
message. The answer to the last call is on that call's span: where the history continues with it,
it is not carried again. All spans of a run together have every message once, unless the history
was rewritten.

- *Trimmed*: messages are missing that were there before; the rest is known, and not carried again.
- *Summarised, or changed in the middle*: from the first changed message on, all is carried.
- *Branched*: from the first different message on, all is carried.

Two messages are the same if they are one object, as LangGraph keeps them, else if they say the
same. Only what the last call was shown is remembered. So that a step costs the same however long
its run is, a history counts as continued if it has all messages of before by their number, and the
last 32 of them are the same: a message further back that was changed in its place is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

from tidegauge.tracer import conventions as names
from tidegauge.tracer.model_calls import Attributes
from tidegauge.tracer.span_texts import Contents, Item
from tidegauge.values import canonical_digest

_MAX_COMPARED: Final = 10_000
_CHECKED: Final = 32
"""Messages at the end of what is known that are compared."""


class MessageFormat(NamedTuple):
    """How a framework's messages are read.

    Attributes:
        message: gives a message as the conventions write it.
        same: whether two messages say the same.
        tools: gives the definitions of tools as the conventions write them.
    """

    message: Callable[[Any], Item]
    same: Callable[[Any, Any], bool]
    tools: Callable[[Any], Sequence[Item]]


class Prompt(NamedTuple):
    """What a model is shown.

    Attributes:
        format: reads the rest.
        messages: the messages, but for the instructions.
        system: the texts of the instructions.
        tools: the tools that it may choose, in any form.
    """

    format: MessageFormat
    messages: Sequence[Any]
    system: tuple[str, ...] = ()
    tools: Any = None


class Reply(NamedTuple):
    """What a model answered.

    Attributes:
        choices: its answers as the conventions write them, nearly always one.
        messages: the messages with which the history continues, if it does.
    """

    choices: Sequence[Item]
    messages: Sequence[Any] = ()


class MessageHistory:
    """What the model calls of a run were shown."""

    __slots__ = ("_known", "_system", "_tools", "_tools_digest")

    def __init__(self) -> None:
        self._known: list[Any] = []
        self._system: tuple[str, ...] = ()
        self._tools: Any = None
        self._tools_digest: bytes | None = None

    def asked(self, found: Attributes, prompt: Prompt, contents: Contents) -> None:
        """A model is asked: add what is new in its prompt to the attributes of its span."""
        whole, messages = contents.whole_history, prompt.messages
        position = 0 if whole else self._position(messages, prompt.format.same)
        self._known = list(messages)
        new = [prompt.format.message(message) for message in messages[position:]]
        if new:
            text, left_out = contents.listed(new, last=True)
            position += left_out
            found[names.INPUT_MESSAGES] = text
        found[names.MESSAGES_POSITION] = position
        found[names.MESSAGES_COUNT] = len(messages)
        if prompt.system and (whole or prompt.system != self._system):
            texts: list[Item] = [{"type": "text", "content": text} for text in prompt.system]
            found[names.SYSTEM_INSTRUCTIONS] = contents.listed(texts)[0]
        self._system = prompt.system
        if prompt.tools and (self._has_new_tools(prompt.tools) or whole):
            found[names.TOOL_DEFINITIONS] = contents.listed(prompt.format.tools(prompt.tools))[0]

    def answered(self, answer: Reply) -> None:
        """A model has answered: the history may continue with that."""
        self._known.extend(answer.messages)

    def clear(self) -> None:
        """Release the messages."""
        self._known = []
        self._tools = None

    def _position(self, messages: Sequence[Any], same: Callable[[Any, Any], bool]) -> int:
        """The first message that is not among the known ones, in order."""
        known = self._known
        count = len(known)
        if count <= len(messages):
            end = known[-_CHECKED:]
            begun = messages[count - len(end) : count]
            if all(map(is_, end, begun)) or all(map(same, end, begun)):
                return count
        if max(count, len(messages)) > _MAX_COMPARED:
            return 0
        place = 0
        for position, message in enumerate(messages):
            while place < count and known[place] is not message and not same(known[place], message):
                place += 1
            if place == count:
                return position
            place += 1
        return len(messages)

    def _has_new_tools(self, tools: Any) -> bool:
        if tools is self._tools:
            return False
        self._tools = tools
        before = self._tools_digest
        digest = self._tools_digest = canonical_digest(tools)
        return digest is None or digest != before
