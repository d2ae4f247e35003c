"""What an instrumented library does inside agents: it makes spans under the current one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from opentelemetry import trace
from opentelemetry.trace import Span, Tracer

from support.scripted_model import ScriptedChatModel
from tidegauge.runs.current import get_recorder
from tidegauge.testing import Capture

__all__ = ["ClientModel", "current_name", "parent_names", "tracer", "work"]


def tracer() -> Tracer:
    """The application's tracer: its spans are captured with ours."""
    return get_recorder().spans.tracer


def work(name: str) -> str:
    """Make a span; gives its name."""
    with tracer().start_as_current_span(name):
        return name


def current_name() -> str | None:
    """Name of the current span; ``None`` without one."""
    return name_of(trace.get_current_span())


def name_of(span: Span) -> str | None:
    """Name of a span; ``None`` if it is not recorded."""
    return getattr(span, "name", None)


def parent_names(seen: Capture) -> list[tuple[str, str | None]]:
    """(name, name of its parent) of every span, in order of their start."""
    spans = sorted(seen.spans, key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in spans if span.context}
    return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in spans]


class ClientModel(ScriptedChatModel):
    """Makes a span for each of its requests, as an instrumented HTTP client does."""

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        work("POST model")
        return super()._generate(messages, *args, **kwargs)

    def _stream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        work("POST model")
        yield from super()._stream(messages, *args, **kwargs)

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        work("POST model")
        async for chunk in super()._astream(messages, *args, **kwargs):
            yield chunk
