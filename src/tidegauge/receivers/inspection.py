"""Shows how the spans of traces are read: what each is, its run and step, or why it has none.

The spans go through the assembly one by one, in the order of their ends, and what the assembly
reports after each span is noted at that span. So runs and steps are those of the receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer

from tidegauge import catalog
from tidegauge._span_counts import span_faults
from tidegauge.events import GO_ON, Answer, Decision, Outcome, RunEnded, RunStarted, Step
from tidegauge.foreign_spans.convention_reader import (
    OUR_SCOPE,
    content_hint,
    convention_of,
    looks_like_agent,
    read_span,
)
from tidegauge.foreign_spans.span import (
    AgentSpan,
    Announcement,
    KnownSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
)
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly
from tidegauge.receivers.decoding import (
    READ_LIMITS,
    MalformedRequestError,
    ReadLimits,
    decode_protobuf,
)
from tidegauge.receivers.json_decoding import decode_json
from tidegauge.receivers.span_events import SpanEvents
from tidegauge.runs.recorder import Recorder
from tidegauge.tracer import SpanFactory
from tidegauge.values.exact_json import bounded_json

_NANOSECONDS: Final = 1e9
_DROPPED: Final[Mapping[str, str]] = {
    "no_agent": "no step (no_run): no agent, chain or workflow is around it",
    "run_ended": "no step (late): its run had ended",
    "no_start": "no step (no_start): its place in the trace is not known",
    "too_many": "no result (too_many): its run waits for too many calls",
}


Noise: TypeAlias = Callable[[Step | Outcome], Sequence[str]]


class InspectedRun(NamedTuple):
    """A run: its number, from 1; its agent, the number of the run around it, and its steps."""

    number: int
    agent: str
    parent: int | None
    steps: int


class InspectedSpan(NamedTuple):
    """A span as it was read.

    Args:
        depth: how many spans of the trace are around it.
        convention: name of the convention by which it is read; ``None``, by none.
        notes: what it is, its run and steps, or why it has none.
    """

    span: SpanData
    depth: int
    convention: str | None
    notes: tuple[str, ...]


class InspectedTrace(NamedTuple):
    """A trace: its runs, and its spans, each after the one around it."""

    trace_id: int
    runs: tuple[InspectedRun, ...]
    spans: tuple[InspectedSpan, ...]


class _Run:
    """A run while it is reported."""

    def __init__(self, number: int, event: RunStarted) -> None:
        self.number = number
        self.event = event
        self.agent = event.agent
        self.parent = event.parent
        self.steps = 0

    def __str__(self) -> str:
        return f"run {self.number} ({self.agent})" if self.agent else f"run {self.number}"


class _Sink:
    """Keeps what is reported since it was last taken; every run goes on."""

    def __init__(self) -> None:
        self.runs: dict[str, _Run] = {}
        self._events: list[RunStarted | Step | Outcome | RunEnded] = []

    def take(self) -> list[RunStarted | Step | Outcome | RunEnded]:
        """What was reported."""
        events, self._events = self._events, []
        return events

    def run_started(self, event: RunStarted) -> None:
        self.runs[event.run] = _Run(len(self.runs) + 1, event)
        self._events.append(event)

    def step_issued(self, event: Step) -> Decision:
        self._events.append(event)
        return GO_ON

    def step_observed(self, event: Outcome) -> Decision:
        self._events.append(event)
        return GO_ON

    def answered(self, event: Answer) -> Decision:
        return GO_ON

    def run_ended(self, event: RunEnded) -> None:
        for child in event.children:
            self.runs[child].parent = event.run
        self._events.append(event)


def inspect_spans(spans: Iterable[SpanData], noise: Noise | None = None) -> list[InspectedTrace]:
    """How these spans are read, as if they had arrived in the order of their ends.

    Args:
        noise: the kinds of known noise that are left out before a step is compared.

    >>> inspect_spans([SpanData(1, 2, None, "GET /", "web", {}, 0, 1)])[0].spans[0].notes
    ('not of an agent',)
    """
    given, events = list(spans), SpanEvents()
    for span in given:
        if span.event:
            list(events.add(span, now=0.0))
    known = [events.joined(span) for span in given if not span.event]
    ordered = sorted(known, key=lambda span: (span.end, -span.start))
    noted = _Notes(noise or (lambda event: ()))
    notes: dict[tuple[int, int], list[str]] = {}
    for span in ordered:
        notes.setdefault((span.trace_id, span.span_id), []).extend(noted.after(span))
    noted.close()
    traces: dict[int, list[SpanData]] = {}
    for span in ordered:
        traces.setdefault(span.trace_id, []).append(span)
    return [
        InspectedTrace(
            trace_id,
            tuple(noted.runs_of(trace_id)),
            tuple(
                InspectedSpan(
                    span,
                    depth,
                    _convention(span),
                    (*_what(span), *notes.pop((trace_id, span.span_id), ("arrived again",))),
                )
                for span, depth in _tree(inside)
            ),
        )
        for trace_id, inside in traces.items()
    ]


class _Notes:
    """Feeds spans to an assembly, and says what came of each."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._sink = _Sink()
        recorder = Recorder(self._sink, SpanFactory(NoOpTracer(), NoOpLogger(OUR_SCOPE)))
        limits = ASSEMBLY_LIMITS._replace(allowed_lateness=0.0)
        self._assembly = Assembly(limits=limits, recorder=lambda: recorder)
        self._first: int | None = None

    def after(self, span: SpanData) -> Iterator[str]:
        """What the assembly reports when it has got this span."""
        self._first = span.end if self._first is None else self._first
        late, duplicates, before = self._assembly.late, self._assembly.duplicates, _dropped()
        without_calls = _without_calls(span.scope)
        self._assembly.take([span], now=(span.end - self._first) / _NANOSECONDS)
        steps = False
        for event in self._sink.take():
            run = self._sink.runs[event.run]
            if isinstance(event, RunStarted):
                yield f"begins {run}"
            elif isinstance(event, Step):
                steps = True
                noise = _without(self._noise(event))
                yield f"step {run.steps} of {run}: {_names(event)}{noise}"
                run.steps += 1
            elif isinstance(event, Outcome):
                step = run.steps - 1 if event.step is None else event.step
                yield f"result of step {step} of {run}{_without(self._noise(event))}"
            else:
                yield from self._ended(event, run)
        if self._assembly.duplicates > duplicates:
            yield "arrived again"
        elif self._assembly.late > late:
            yield _DROPPED["run_ended"]
        for reason, count in _dropped().items():
            if count > before[reason] and reason in _DROPPED:
                yield _DROPPED[reason]
        if _without_calls(span.scope) > without_calls:
            yield "no step (no_calls): no model or tool call is inside it"
        reading = read_span(span)
        if isinstance(reading, ModelSpan) and reading.calls and not steps:
            yield "no step yet: its calls are known, or wait for the span around them"

    def close(self) -> None:
        """End the runs that are open."""
        self._assembly.close()
        for event in self._sink.take():
            if isinstance(event, Step):
                self._sink.runs[event.run].steps += 1

    def runs_of(self, trace_id: int) -> Iterator[InspectedRun]:
        """The runs of a trace, in the order of their starts."""
        for run in self._sink.runs.values():
            if run.event.trace_id == f"{trace_id:032x}":
                around = self._sink.runs.get(run.parent or "")
                parent = None if around is None else around.number
                yield InspectedRun(run.number, run.agent, parent, run.steps)

    def _ended(self, event: RunEnded, run: _Run) -> Iterator[str]:
        run.agent = event.agent_name or run.agent
        yield f"ends {run} after {run.steps} steps"


def _without(noise: Sequence[str]) -> str:
    """Which known noise is left out before it is compared."""
    return f" (not compared: {', '.join(dict.fromkeys(noise))})" if noise else ""


def _what(span: SpanData) -> Iterator[str]:
    """What a span is by itself."""
    reading = read_span(span)
    if reading is not None:
        yield _kind(reading)
        if isinstance(reading, ModelSpan) and reading.calls is None and not reading.failed:
            yield f"does not show its calls (no_contents): {content_hint(span.scope)}"
    elif span.scope == OUR_SCOPE:
        yield "made by tidegauge itself"
    elif convention_of(span.attributes, span.scope) is not None:
        yield "no agent, model or tool"
    elif looks_like_agent(span.attributes):
        yield "not read (unknown_convention): looks like an agent's, of no convention that is read"
    else:
        yield "not of an agent"


def _kind(reading: KnownSpan) -> str:
    if isinstance(reading, AgentSpan):
        kind = "agent" if reading.sure else "chain or workflow"
        return f"{kind} {reading.info.agent}" if reading.info.agent else kind
    if isinstance(reading, Announcement):
        return f"announces {reading.name or 'an agent'}"
    if isinstance(reading, ToolSpan):
        return f"tool {reading.name}"
    if reading.calls is None:
        return "model call"
    calls = ", ".join([call.name for call in reading.calls])
    return f"model call that chose {calls}" if calls else "model call that chose no tool"


def _names(step: Step) -> str:
    return ", ".join([call.action for call in step.calls])


def _convention(span: SpanData) -> str | None:
    convention = None if span.scope == OUR_SCOPE else convention_of(span.attributes, span.scope)
    return None if convention is None else convention.name


def _dropped() -> Mapping[str, int]:
    counts = span_faults.metrics().get(catalog.DROPPED_SPANS, {})
    return {reason: counts.get((reason,), 0) for reason in catalog.DROPPED_SPANS.values}


def _without_calls(scope: str) -> int:
    counts = span_faults.metrics().get(catalog.UNREAD_SPANS, {})
    return counts.get((scope, "no_calls"), 0)


def _tree(spans: Sequence[SpanData]) -> Iterator[tuple[SpanData, int]]:
    """The spans of a trace with their depths, each after the one around it, by their starts."""
    known = {span.span_id for span in spans}
    inside: dict[int | None, list[SpanData]] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.end), reverse=True):
        parent = span.parent_id if span.parent_id in known else None
        inside.setdefault(None if parent == span.span_id else parent, []).append(span)
    seen: set[int] = set()
    stack = [(span, 0) for span in inside.pop(None, [])]
    while stack or inside:
        if not stack:  # what is left are cycles
            stack = [(span, 0) for span in inside.pop(next(iter(inside)))]
        span, depth = stack.pop()
        yield span, depth
        if span.span_id not in seen:
            seen.add(span.span_id)
            stack += [(one, depth + 1) for one in inside.pop(span.span_id, [])]


_FIRST: Final = b"\n"
"""Tag of the only field of a trace request in protobuf; almost any text is some protobuf."""

_PREFIX: Final = 4
"""Bytes of the length before each message in a file of several."""


def decode_file(data: bytes, limits: ReadLimits = READ_LIMITS) -> list[SpanData]:
    """The spans of a file: one trace request, one in each line, or length-prefixed messages.

    Raises:
        MalformedRequestError: the file has none of these forms.

    >>> decode_file(b'{"resourceSpans": []}')
    []
    """
    if data.lstrip()[:1] != b"{":
        messages = list(_messages(data))
        if not all(one.startswith(_FIRST) for one in messages if one):
            raise MalformedRequestError("neither OTLP in JSON nor in protobuf")
        return [span for one in messages for span in decode_protobuf(one, limits).spans]
    try:
        bounded_json(data, limits.elements)
    except ValueError:
        found: list[SpanData] = []
        for number, line in enumerate(data.splitlines(), 1):
            if not line.strip():
                continue
            try:
                found += decode_json(line, limits).spans
            except MalformedRequestError as error:
                raise MalformedRequestError(f"line {number}: {error}") from error
        return found
    return decode_json(data, limits).spans


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages of a file; one without lengths is a single message."""
    lengths, at = [], 0
    while at + _PREFIX <= len(data):
        length = int.from_bytes(data[at : at + _PREFIX])
        at += _PREFIX + length
        lengths.append(length)
    if at != len(data):
        yield data
        return
    at = 0
    for length in lengths:
        yield data[at + _PREFIX : at + _PREFIX + length]
        at += _PREFIX + length
