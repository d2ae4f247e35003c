"""Holds the events of spans that came apart from them, as log records, until their spans are read.

Events and spans are exported apart, in any order. An event waits for its span, and a span is read
together with the events that came until then. What they say fills in what the span leaves out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from tidegauge.events import ABSENT, CallResult
from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.conventions.genai import ASSISTANT
from tidegauge.foreign_spans.json_values import error_type, failure_text
from tidegauge.foreign_spans.span import (
    AgentSpan,
    KnownSpan,
    ModelSpan,
    ReadSpan,
    SpanData,
)

_MAX_EVENTS: Final = 200_000
_MAX_BYTES: Final = 32 * 1024 * 1024


class WaitingEvents:
    """The events of a trace, by the ids of their spans."""

    __slots__ = ("by_span", "count", "last_seen", "size")

    def __init__(self) -> None:
        self.by_span: dict[int, list[SpanData]] = {}
        self.count = self.size = 0
        self.last_seen = 0.0


class SpanEvents:
    """The events of all traces that wait for their spans.

    Args:
        max_events: limit of their number.
        max_bytes: limit of their size; beyond a limit, the events of the traces that got none for
            longest are dropped.

    >>> from tidegauge.foreign_spans.conventions.genai import event_span
    >>> call = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
    >>> said = {"message": {"tool_calls": [call]}}
    >>> events = SpanEvents()
    >>> event = event_span("gen_ai.choice", (1, 2), said, scope="any", time=5, size=60)
    >>> list(events.add(event, now=0.0))
    []
    >>> span = SpanData(1, 2, None, "chat", "any", {"gen_ai.operation.name": "chat"}, 4, 6)
    >>> read_span(events.joined(span)).calls
    (ChosenCall(name='look', arguments={}, id='c1'),)
    """

    def __init__(self, max_events: int = _MAX_EVENTS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._traces: OrderedDict[int, WaitingEvents] = OrderedDict()  # least recently seen first
        self._count = self._size = 0

    def __len__(self) -> int:
        """The number of events that wait."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of memory that they take, about."""
        return self._size

    def __contains__(self, trace_id: int) -> bool:
        """Whether events of a trace wait."""
        return trace_id in self._traces

    def add(self, event: SpanData, *, now: float) -> Iterator[tuple[int, int]]:
        """Hold an event; yields the traces whose events made room for it, and their number."""
        trace = self._traces.setdefault(event.trace_id, WaitingEvents())
        trace.by_span.setdefault(event.span_id, []).append(event)
        trace.last_seen = now
        self._traces.move_to_end(event.trace_id)
        self._resize(trace, 1, event.size)
        while self._count > self._max_events or self._size > self._max_bytes:
            oldest = next(iter(self._traces))
            yield oldest, self.drop(oldest)

    def joined(self, span: SpanData) -> SpanData:
        """A span with what its events say that it leaves out; they stay held."""
        trace = self._traces.get(span.trace_id)
        events = None if trace is None else trace.by_span.get(span.span_id)
        reading = None if events is None else read_span(span)
        if events is None or not isinstance(reading, ModelSpan | AgentSpan):
            return span
        for each in _said(sorted(events, key=lambda event: event.end)):
            reading = _filled(reading, each)
        return span._replace(
            read=ReadSpan(reading, error_type(span), failure_text(span)),
            size=span.size + sum([event.size for event in events]),
        )

    def remove(self, trace_id: int, span_id: int) -> int:
        """Stop holding the events of a span, which was read; returns their number."""
        trace = self._traces.get(trace_id)
        events = () if trace is None else trace.by_span.pop(span_id, ())
        if trace is not None and events:
            self._resize(trace, -len(events), -sum([event.size for event in events]))
            if not trace.by_span:
                del self._traces[trace_id]
        return len(events)

    def drop(self, trace_id: int) -> int:
        """Stop holding the events of a trace; returns their number."""
        trace = self._traces.pop(trace_id, None)
        if trace is None:
            return 0
        self._count -= trace.count
        self._size -= trace.size
        return trace.count

    def expire(self, until: float) -> Iterator[tuple[int, int]]:
        """Drop the events of traces that got none since then; yields those, and their number."""
        while self._traces:
            trace_id, trace = next(iter(self._traces.items()))
            if trace.last_seen >= until:
                break
            yield trace_id, self.drop(trace_id)

    def saved(self, trace_id: int) -> WaitingEvents | None:
        """The events of a trace that wait, for :meth:`load`."""
        return self._traces.get(trace_id)

    def load(self, trace_id: int, saved: WaitingEvents | None) -> None:
        """Hold the events that another process has held of a trace."""
        if saved is not None:
            self._traces[trace_id] = saved
            self._count += saved.count
            self._size += saved.size

    def in_order(self) -> None:
        """After loads: the traces that got no event for longest come first."""
        self._traces = OrderedDict(sorted(self._traces.items(), key=_last_seen))

    def _resize(self, trace: WaitingEvents, count: int, size: int) -> None:
        trace.count += count
        trace.size += size
        self._count += count
        self._size += size


def _last_seen(item: tuple[int, WaitingEvents]) -> float:
    return item[1].last_seen


def _said(events: Iterable[SpanData]) -> Iterator[KnownSpan]:
    """What events say, in their order: of the messages of a model call together, of others each.

    An event that was sent again counts once.
    """
    seen: set[tuple[int, str, object]] = set()
    model: ModelSpan | None = None
    answers: list[tuple[str, CallResult]] = []
    for event in events:
        reading = read_span(event)
        key = event.end, event.name, _identity(reading)
        if key in seen or reading is None:
            continue
        seen.add(key)
        if not isinstance(reading, ModelSpan):
            yield reading
            continue
        if event.name == ASSISTANT:
            answers.clear()  # the model was shown them before it said this
        answers += reading.answers
        calls = reading.calls
        if model is None:
            model = reading
        elif calls is not None:
            model = _filled_model(model._replace(calls=(*(model.calls or ()), *calls)), reading)
        else:
            model = _filled_model(model, reading)
    if model is not None:
        yield model._replace(answers=tuple(answers))


def _identity(reading: KnownSpan | None) -> object:
    """Equal for equal readings."""
    try:
        return repr(reading)
    except RecursionError:  # too many levels: it counts as another one
        return id(reading)


def _filled(reading: KnownSpan, other: KnownSpan) -> KnownSpan:
    """A reading with what another one of the same kind says that it leaves out."""
    if isinstance(reading, ModelSpan) and isinstance(other, ModelSpan):
        return _filled_model(reading, other)
    if isinstance(reading, AgentSpan) and isinstance(other, AgentSpan):
        return reading._replace(
            info=reading.info.filled_from(other.info),
            asked=other.asked if reading.asked is ABSENT else reading.asked,
            answered=other.answered if reading.answered is ABSENT else reading.answered,
        )
    return reading


def _filled_model(reading: ModelSpan, other: ModelSpan) -> ModelSpan:
    return reading._replace(
        info=reading.info.filled_from(other.info),
        calls=other.calls if reading.calls is None else reading.calls,
        tokens=other.tokens if reading.tokens is None else reading.tokens,
        answers=reading.answers or other.answers,
        model=reading.model or other.model,
    )
