"""The contents on the spans of one run: what its models are shown and say, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.tracer import conventions as names
from tidegauge.tracer.failures import Failed, error_text
from tidegauge.tracer.message_history import MessageHistory, Prompt, Reply
from tidegauge.tracer.model_calls import Attributes
from tidegauge.tracer.span_texts import Contents, Item


class RunContents:
    """The contents of one run, as attributes.

    A model that a tool asks has a history by itself: what it was shown is no part of the agent's.

    Args:
        contents: how they are put on spans.
    """

    __slots__ = ("_contents", "_history", "_last_answer")

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._history = MessageHistory()
        self._last_answer: str | None = None

    def asked(self, attributes: Attributes, prompt: Prompt, *, by_agent: bool) -> None:
        """A model is asked: add what is new in its prompt."""
        history = self._history if by_agent else MessageHistory()
        history.asked(attributes, prompt, self._contents)

    def said(self, attributes: Attributes, reply: Reply, *, to_agent: bool) -> None:
        """A model has answered: add its answers."""
        text, _ = self._contents.listed(reply.choices)
        attributes[names.OUTPUT_MESSAGES] = text
        if to_agent:
            self._history.answered(reply)
            self._last_answer = text

    def answered(self, answer: object) -> None:
        """The run gave this answer."""
        parts = [{"type": "text", "content": answer}]
        choice = {"role": "assistant", "parts": parts, "finish_reason": "stop"}
        self._last_answer, _ = self._contents.listed([choice])

    def add(self, attributes: Attributes, name: str, value: object) -> None:
        """Add a content."""
        text = self._contents.text(value)
        if text is not None:
            attributes[name] = text

    def found(self, attributes: Attributes, documents: Sequence[Item]) -> None:
        """A retrieval has ended: add what it found."""
        attributes[names.RETRIEVAL_DOCUMENTS], _ = self._contents.listed(documents)

    def error_text(self, error: Failed) -> str | None:
        """What an error says."""
        return error_text(error, self._contents)

    def end(self, attributes: Attributes, error: Failed) -> None:
        """The run has ended: add its last answer, unless it failed."""
        if self._last_answer is not None and error is None:
            attributes[names.OUTPUT_MESSAGES] = self._last_answer

    def clear(self) -> None:
        """Release the messages."""
        self._history.clear()
