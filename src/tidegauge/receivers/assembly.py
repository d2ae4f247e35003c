"""Assembles runs from ended spans that arrive in any order, in interleaved batches, some twice.

A span is held for the allowed lateness after its arrival. Then it is emitted, in the order of ends,
and nothing that ended later is looked at. So the runs depend neither on how the spans were batched,
nor on the order of their arrival within that time.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.agent_names import AgentNames
from tidegauge.foreign_spans.convention_reader import MARKER_ATTRIBUTES, OUR_SCOPE, read_span
from tidegauge.foreign_spans.external_run import ExternalRun, RunDefaults
from tidegauge.foreign_spans.span import (
    CALLS,
    AgentSpan,
    Announcement,
    KnownSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.receivers.arrived_spans import ArrivedSpans
from tidegauge.receivers.causal_order import in_causal_order
from tidegauge.receivers.span_events import SpanEvents
from tidegauge.receivers.trace_state import (
    PLAIN_TRACES,
    HeldSpans,
    OpenTrace,
    PendingCall,
    SleepingTrace,
    SleepingTraces,
    order,
)
from tidegauge.runs.current import get_recorder
from tidegauge.runs.recorder import RecordedRun, Recorder
from tidegauge.safety.guard import guarded, log, passes

_MAX_FINISHED: Final = 50_000
_MAX_PENDING: Final = 1_000
"""Limit of the calls that wait for one span."""

# What these take, about: a trace, each of its spans, one that has ended.
_TRACE_BYTES: Final = 3_000
_SPAN_BYTES: Final = 200
_FINISHED_BYTES: Final = 150

_NO_ROOM: Final = (
    "tidegauge: the open traces and runs take more than %.0f MB, so those that are idle for "
    "longest are ended; raise --max-state-bytes, or end the runs of agents that are gone sooner "
    "with --idle-seconds"
)


class AssemblyLimits(NamedTuple):
    """How much is held, and for how long.

    Args:
        allowed_lateness: seconds that a span is held after its arrival, so that spans that ended
            earlier and arrive later can overtake it.
        idle_seconds: a trace or a run without a span for this long is ended.
        orphan_seconds: the same for a run whose outermost known span has ended, but not that
            span's parent, which never arrived.
        traces: limit of open traces; one more ends the trace that was idle for longest.
        runs: limit of open runs; one more ends the run that was idle for longest.
        spans: limit of the remembered span ids, which detect duplicates; beyond it, the traces
            that were idle for longest are ended.
        state_bytes: limit of the memory of all this, about; beyond it, the traces and runs that
            were idle for longest are ended.
        pending_bytes: limit of the memory of calls that wait for a parent; one more does not wait.
    """

    allowed_lateness: float = 0.5
    idle_seconds: float = 600.0
    orphan_seconds: float = 60.0
    traces: int = 10_000
    runs: int = 10_000
    spans: int = 500_000
    state_bytes: float = inf
    pending_bytes: int = 256 * 1024 * 1024


ASSEMBLY_LIMITS: Final = AssemblyLimits()


class Assembly:
    """The open traces. One thread at a time.

    Args:
        defaults: attributes of runs whose spans do not give them.
        across_traces: whether a call that is in two traces joins them to one run, and spans of one
            host are emitted in one order; without, no trace depends on another.
        on_forgotten: called with the id of each trace that is no longer held.
        recorder: gives the recorder that new runs are reported to; left out, the configured one.

    Attributes:
        duplicates: number of spans that arrived again.
        emit_until: emit no more spans after this moment of the monotonic clock; ``None``, all.
        not_emitted: how many were not, therefore.

    >>> assembly = Assembly()
    >>> assembly.take([SpanData(1, 2, None, "GET /", "web", {}, 0, 1)], now=0.0)
    >>> len(assembly)
    1
    """

    def __init__(
        self,
        defaults: RunDefaults | None = None,
        limits: AssemblyLimits = ASSEMBLY_LIMITS,
        *,
        across_traces: bool = True,
        on_forgotten: Callable[[int], None] | None = None,
        recorder: Callable[[], Recorder] = get_recorder,
    ) -> None:
        self._limits = limits
        self._on_forgotten = on_forgotten
        self._recorder = recorder
        self._now = 0.0
        self._spans = ArrivedSpans(
            recorder,
            defaults,
            max_runs=limits.runs,
            idle_seconds=limits.idle_seconds,
            orphan_seconds=limits.orphan_seconds,
            across_traces=across_traces,
            clock=partial(getattr, self, "_now"),
        )
        self.duplicates = 0
        self.emit_until: float | None = None
        self.not_emitted = 0
        self._late = 0
        self._traces: OrderedDict[int, OpenTrace] = OrderedDict()  # least recently seen first
        self._finished: OrderedDict[int, None] = OrderedDict()  # traces whose run has ended
        self._sleeping = SleepingTraces()
        self._held = HeldSpans(limits.allowed_lateness, across_traces=across_traces)
        self._events = SpanEvents()
        self._remembered = 0
        self._chosen_bytes = 0
        self._warned = False
        self._pending_bytes = 0

    def __len__(self) -> int:
        """The number of open traces."""
        return len(self._traces) + len(self._sleeping)

    @property
    def late(self) -> int:
        """The number of spans that arrived after their run or trace had ended."""
        return self._late + self._spans.late_calls

    @property
    def arrived_bytes(self) -> int:
        """Size of the spans that arrived and were not emitted yet."""
        return self._held.size

    @property
    def state_bytes(self) -> int:
        """Bytes of memory that the open traces and runs take, about, without the held spans."""
        of_traces = _TRACE_BYTES * len(self._traces) + _SPAN_BYTES * self._remembered
        of_traces += self._chosen_bytes + _FINISHED_BYTES * len(self._finished)
        return of_traces + self._spans.held_bytes + self._pending_bytes + self._events.size

    @property
    def names(self) -> AgentNames:
        """The agents that were seen."""
        return self._spans.names

    @property
    def open_runs(self) -> int:
        """The number of open runs."""
        return self._spans.open_runs + self._sleeping.runs

    @property
    def due(self) -> float | None:
        """When the next span must be emitted; ``None``: no span is held."""
        return self._held.due

    def holds(self, trace_id: int) -> bool:
        """Whether a trace is open, or events of it wait for their spans."""
        return trace_id in self._traces or trace_id in self._events or trace_id in self._sleeping

    def finish(self, trace_id: int) -> None:
        """End a trace: further spans of it are late."""
        self._finished[trace_id] = None
        if len(self._finished) > _MAX_FINISHED:
            self._finished.popitem(last=False)

    def unfinish(self, trace_id: int) -> None:
        """Forget that a trace has ended: further spans of it begin a new one."""
        self._finished.pop(trace_id, None)
        self._spans.unname(trace_id)

    def abort(self, trace_id: int) -> None:
        """Emit what is held of a trace, and forget it. Its runs stay open."""
        self._wake(trace_id)
        if trace_id in self._traces:
            self._drop(trace_id)
        span_faults.drop_contents("too_many", self._events.drop(trace_id))

    def saved(self, trace_id: int, run_ids: Collection[str]) -> Mapping[str, Any]:
        """What is held of a trace as plain data, for :meth:`load`; not across traces.

        Args:
            run_ids: the ids of its open runs.

        Raises:
            TypeError: something that is held has no plain form.
        """
        trace = self._traces.get(trace_id)
        span_ids: dict[int, None] = {}
        if trace is not None:
            span_ids = dict.fromkeys((*trace.parents, *sorted(trace.awaited)))
        spans = self._spans.saved(trace_id, span_ids, run_ids)
        held, events = self._held.saved(trace_id), self._events.saved(trace_id)
        seen = [one.last_seen for one in (trace, *spans["runs"]) if one is not None]
        return {
            "oldest": None if held or events else min(seen, default=None),
            "spans": len(span_ids),
            "runs": len(spans["runs"]),
            "orphaned": bool(spans["enclosed"]),
            "parts": PLAIN_TRACES.write(
                {
                    "trace": trace,
                    "held": held,
                    "events": events,
                    "pending": {
                        awaited: [call.span for call in calls]
                        for awaited, calls in (trace.pending if trace else {}).items()
                    },
                    "spans": spans,
                }
            ),
        }

    def load(
        self,
        trace_id: int,
        *,
        oldest: float | None,
        spans: int,
        runs: int,
        orphaned: bool,
        parts: Callable[[], Any],
    ) -> None:
        """Continue a trace that another process has held; call :meth:`in_order` after the last.

        What has only been quiet is read when it is needed, by :meth:`wake`, or before it would end.

        Args:
            oldest: when the part of it was seen that is idle for longest; ``None``: some of its
                spans wait for the allowed lateness.
            orphaned: whether the outermost known span of a run has ended, but not its parent.
            parts: gives the rest of what :meth:`saved` has returned.

        Raises:
            ValueError: the data have another version or form.
        """
        limits = self._limits
        patience = limits.orphan_seconds if orphaned else limits.idle_seconds
        ends = (oldest or 0.0) + min(patience, limits.idle_seconds)
        self._sleeping.add(trace_id, SleepingTrace(parts, spans, runs, ends))
        if oldest is None:
            self._wake(trace_id)

    def in_order(self) -> None:
        """After loads: what was idle for longest comes first."""
        self._sleeping.in_order()
        self._traces = OrderedDict(sorted(self._traces.items(), key=_last_seen))
        self._events.in_order()
        self._spans.in_order()

    def wake(self, until: float) -> None:
        """Read traces that were loaded, up to a time of ``time.perf_counter``."""
        if not self._sleeping:
            return
        while (first := self._sleeping.first()) is not None and time.perf_counter() < until:
            self._wake(first)
        if not self._sleeping:
            self.in_order()

    def _wake(self, trace_id: int) -> None:
        asleep = self._sleeping.pop(trace_id)
        if asleep is None:
            return
        recorder = self._recorder()
        counts = recorder.on_model_call is not None
        given = {RecordedRun: {"_recorder": recorder, "counts_usage": counts}}
        held = PLAIN_TRACES.read(asleep.parts(), given)
        trace = held["trace"]
        if trace is not None:
            self._traces[trace_id] = trace
            self._remembered += len(trace.parents)
            self._chosen_bytes += trace.chosen_bytes
            for awaited, spans in held["pending"].items():
                for span in spans:
                    reading = read_span(span)
                    if reading is not None:
                        self._let_wait(trace, awaited, PendingCall(span, reading))
        self._held.load(trace_id, held["held"])
        self._events.load(trace_id, held["events"])
        self._spans.load(trace_id, held["spans"])

    def _wake_idle(self, now: float) -> None:
        """Read the traces of which a part may end now, or all of them where there is no room."""
        limits, sleeping = self._limits, self._sleeping
        full = (
            len(self) >= limits.traces
            or self.open_runs >= limits.runs
            or self._remembered + sleeping.spans >= limits.spans
        )
        woken = sleeping.ending(inf if full else now)
        for trace_id in woken:
            self._wake(trace_id)
        if woken:
            self.in_order()

    def take(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Take spans that arrived together, in any order; ``now`` never goes back.

        Events of spans join their spans, which may have arrived before or arrive later.
        """
        events = [span for span in spans if span.event]
        if events:
            self._take_events(events, now)
            spans = [span for span in spans if not span.event]
        self._now = now
        if self._sleeping:
            for trace_id in {span.trace_id for span in spans}:
                self._wake(trace_id)
        new: dict[tuple[int, int], SpanData] = {}
        resource, clock = None, ""
        for span in spans:
            if span.resource is not resource:  # which the spans of a request share
                resource, clock = span.resource, clock_of(span.resource)
            trace_id, span_id = span.trace_id, span.span_id
            trace = self._traces.get(trace_id)
            if trace is None:
                if trace_id in self._finished:
                    self._late += 1
                    continue
                trace = self._traces[trace_id] = OpenTrace()
            parents = trace.parents
            if span_id in parents:
                self.duplicates += 1
                continue
            if not 0 < span.start <= span.end:
                span_faults.repair("no_time")
            new[trace_id, span_id] = span
            parents[span_id] = span.parent_id
            trace.waiting.add(span_id)
            if len(trace.clocks) < 2:
                trace.clocks.add(clock)
            if span.parent_id in parents:  # else it cannot be its own ancestor
                cut = trace.without_cycle(span, self._held.of(trace_id))
                if (trace_id, cut.span_id) in new:
                    new[trace_id, cut.span_id] = cut
                elif cut is not span:
                    self._held.replace(cut)
            self._remembered += 1
            trace.last_seen = now
            self._traces.move_to_end(trace_id)
        self._held.add(list(new.values()), now=now)
        self._make_room()
        self.expire(now)

    def expire(self, now: float) -> None:
        """Emit the spans that were held for long enough; end what was idle for too long."""
        if self._sleeping:
            self._wake_idle(now)
        for when, ended in self._held.take_due(now):
            self._now = when  # the result must not depend on when this is called
            self._emit_all(ended)
            self._make_room()
        self._now = now
        while self._traces:
            trace_id, trace = next(iter(self._traces.items()))
            if now - trace.last_seen <= self._limits.idle_seconds:
                break
            self._drop(trace_id)
        for trace_id, events in self._events.expire(now - self._limits.idle_seconds):
            self._lose(trace_id, "no_span", events)
        self._spans.expire(now)

    def close(self, until: float = inf) -> int:
        """Emit all spans, and end the open runs, with outcome unknown.

        Args:
            until: end no more runs after this moment of the monotonic clock.

        Returns:
            How many runs were not ended.
        """
        self.wake(inf)
        self._emit_all(self._held.take_all())
        for trace_id, trace in tuple(self._traces.items()):
            if self.emit_until is not None and time.monotonic() > self.emit_until:
                self.not_emitted += len(self._take_pending(trace, *trace.pending))
            self._drop(trace_id)
        for trace_id, events in self._events.expire(inf):
            self._lose(trace_id, "no_span", events)
        return self._spans.close(until)

    def _take_events(self, events: Sequence[SpanData], now: float) -> None:
        """Hold events until their spans are emitted; those of emitted ones are late."""
        for event in events:
            self._wake(event.trace_id)
        self.expire(now)
        for event in events:
            trace = self._traces.get(event.trace_id)
            read = trace is not None and (
                event.span_id in trace.parents and event.span_id not in trace.waiting
            )
            if read or event.trace_id in self._finished:
                span_faults.drop_contents("late")
                continue
            for trace_id, dropped in self._events.add(event, now=now):
                self._lose(trace_id, "too_many", dropped)

    def _lose(self, trace_id: int, reason: str, events: int) -> None:
        """Events of a trace are no longer held."""
        span_faults.drop_contents(reason, events)
        if trace_id not in self._traces and self._on_forgotten is not None:
            self._on_forgotten(trace_id)

    def _emit_all(self, spans: Sequence[SpanData]) -> None:
        """Emit these spans, which are in the order of their ends."""
        until = self.emit_until
        waited = bool(self._events)
        if waited:
            spans = [self._joined(span) or span for span in spans]
        trace_ids = {span.trace_id for span in spans}
        ordered = self._by_cause(spans, trace_ids)
        ordered = spans if ordered is None else ordered
        for emitted, span in enumerate(ordered):
            if until is not None and time.monotonic() > until:
                self.not_emitted += len(ordered) - emitted
                break
            trace_id, span_id = span.trace_id, span.span_id
            if waited:
                self._events.remove(trace_id, span_id)
            trace = self._traces.get(trace_id)
            if trace is None or trace_id in self._finished:
                self._late += 1
            else:
                trace.waiting.discard(span_id)
                if span_id in trace.awaited or not MARKER_ATTRIBUTES.isdisjoint(span.attributes):
                    try:
                        self._emit_known(trace, span)
                    except Exception as error:  # the next ones go on
                        if passes("otlp.assembly", error):
                            raise
        for trace_id in trace_ids:
            if trace_id in self._finished and trace_id in self._traces:
                self._forget(trace_id)

    @guarded("otlp.events", default=None)
    def _joined(self, span: SpanData) -> SpanData | None:
        """The span, with what its events say."""
        return self._events.joined(span)

    @guarded("otlp.order", default=None)
    def _by_cause(
        self, spans: Sequence[SpanData], trace_ids: Iterable[int]
    ) -> Sequence[SpanData] | None:
        """The spans of these traces in an order in which no result comes before its cause.

        See `causal_order`.
        """
        several = {
            trace_id
            for trace_id in trace_ids
            if trace_id in self._traces and len(self._traces[trace_id].clocks) > 1
        }
        if not several:
            return spans
        ordered = [(span.end, span) for span in spans if span.trace_id not in several]
        for trace_id in several:
            trace, held, until = self._traces[trace_id], self._held.of(trace_id), 0
            if trace_id in self._events:
                held = {span_id: self._events.joined(span) for span_id, span in held.items()}
            of_trace = [span for span in spans if span.trace_id == trace_id]
            for span in in_causal_order(of_trace, held, trace.chosen):
                if span.span_id in held:
                    self._held.take(span)
                until = max(until, span.end)
                ordered.append((until, span))
        return [span for _, span in sorted(ordered, key=itemgetter(0))]

    def _emit_known(self, trace: OpenTrace, span: SpanData) -> None:
        """Emit a span if it is a call, or one that is known to be around others."""
        reading = read_span(span)
        if isinstance(reading, CALLS):
            if isinstance(reading, ToolSpan):
                trace.tools.add(span.span_id)
            elif reading.calls:
                self._chosen_bytes += trace.choose(reading)
            if not trace.pending and self._spans.take(span, reading):
                trace.awaited.discard(span.span_id)
                return
        elif isinstance(reading, Announcement):
            self._announce(trace, span, reading)
            return
        elif self._spans.node(span.trace_id, span.span_id) is None:
            if isinstance(reading, AgentSpan) and not (trace.tools or trace.chosen or trace.roots):
                self._spans.end_alone(span, reading)
            return
        self._emit_now(trace, span, reading)

    def _announce(self, trace: OpenTrace, span: SpanData, announced: Announcement) -> None:
        """An agent's span is open: the calls that wait for it need not wait."""
        for span_id in (announced.span_id, announced.parent_id):
            if span_id in trace.parents and span_id not in trace.waiting:
                return  # it has ended
            if span_id is not None:
                trace.awaited.add(span_id)
        self._spans.announce(span, announced)
        for before in self._take_pending(trace, announced.span_id):
            self._emit(trace, *before)

    @guarded("otlp.assembly", default=None)
    def _emit(
        self, trace: OpenTrace, span: SpanData, reading: KnownSpan | None, *, final: bool = False
    ) -> int | None:
        """Emit a span that has waited; see `_emit_now`."""
        return self._emit_now(trace, span, reading, final=final)

    def _emit_now(
        self, trace: OpenTrace, span: SpanData, reading: KnownSpan | None, *, final: bool = False
    ) -> int | None:
        """Emit a span, unless it must wait for a span around it (never if ``final``).

        Without a reading, only its end matters, to the spans inside.

        Returns:
            Id of the span that it waits for, if it does.
        """
        trace.awaited.discard(span.span_id)
        node, run, awaited = self._spans.resolve(span, trace.parents, trace.waiting)
        if awaited is not None:
            trace.awaited.add(awaited)
        pending = self._take_pending(trace, span.span_id) if trace.pending else ()
        outer = None
        for before in pending:
            if outer is not None and isinstance(before.reading, AgentSpan):
                self._let_wait(trace, outer, before)  # it ends after its calls
            else:
                outer = self._emit(trace, *before) or outer
        if pending:  # which may have opened a run in this span
            run = node.run
            self._spans.resolve(span, trace.parents, trace.waiting)
        if run is not None and run.root is not None and run.root is not node:
            for before in self._take_pending(trace, run.root.span_id):
                self._emit(trace, *before)  # the span that they wait for is the root now
        if not final:
            if isinstance(reading, CALLS):
                around = node.parent
                if around is None or around.run is None or around.scope == OUR_SCOPE:
                    outer = self._waits(trace, span, reading)
                else:
                    outer = None  # nothing is between it and its run
            elif outer is not None and isinstance(reading, AgentSpan):
                self._let_wait(trace, outer, PendingCall(span, reading))
            if outer is not None:
                return outer
        shows = isinstance(reading, ModelSpan) and reading.calls is not None
        if shows and trace.pending:
            for awaited in tuple(trace.pending):
                if self._spans.is_over(span, awaited):
                    for before in self._take_pending(trace, awaited):
                        self._emit(trace, *before, final=True)
        run = node.run
        if run is not None and run.root is node:
            trace.roots.add(span.span_id)  # before the runs that end with it
        if run is not None and run.root is node and run.around is None:
            heir = self._spans.heir(run, span.trace_id)
            for before in self._take_pending(trace, heir.span_id) if heir else ():
                self._emit(trace, *before, final=True)
            self._emit_pending(span.trace_id, trace, run)
        if run is not None and run.root is node:
            trace.end_run(run, span, reading)
        self._spans.end(span, span.resource, reading=reading)
        if run is not None and run.recorded.ended and span.parent_id is None:
            self.finish(span.trace_id)
        return None

    def _waits(self, trace: OpenTrace, span: SpanData, reading: ModelSpan | ToolSpan) -> int | None:
        """Let a call wait for a span around it, if it must; else emit what need not wait for it.

        Returns:
            Id of the span that it waits for, if it does.
        """
        released: set[int] = set()
        while True:
            parent, waits = self._spans.pending_parent(span, reading)
            if parent is None or parent.span_id in released:
                return None
            if waits:
                break
            released.add(parent.span_id)
            for before in self._take_pending(trace, parent.span_id):
                self._emit(trace, *before, final=True)
        if self._pending_bytes + span.size <= self._limits.pending_bytes:
            self._let_wait(trace, parent.span_id, PendingCall(span, reading))
            calls = trace.pending[parent.span_id]
            if len(calls) > _MAX_PENDING:
                surplus = calls.pop(0)
                self._pending_bytes -= surplus.span.size
                span_faults.repair("pending_parent")
                self._emit(trace, *surplus, final=True)
            return parent.span_id
        span_faults.repair("pending_parent")
        self._emit_pending(span.trace_id, trace)  # no room: the calls before it cannot wait either
        return None

    def _emit_pending(
        self, trace_id: int, trace: OpenTrace, ending: ExternalRun | None = None
    ) -> None:
        """Emit the calls of a trace that wait; if a run ends, those that may be inside it."""
        if not trace.pending:
            return
        over = [
            awaited
            for awaited in trace.pending
            if ending is None or not self._spans.outlives(trace_id, awaited, ending)
        ]
        for call in sorted(self._take_pending(trace, *over), key=lambda each: order(each.span)):
            self._emit(trace, *call, final=True)

    def _let_wait(self, trace: OpenTrace, awaited: int, call: PendingCall) -> None:
        """Let a call wait for a span around it."""
        self._pending_bytes += call.span.size
        trace.pending.setdefault(awaited, []).append(call)

    def _take_pending(self, trace: OpenTrace, *awaited: int) -> Sequence[PendingCall]:
        """Take out the calls that wait for these spans, in order."""
        calls = [call for each in awaited for call in trace.pending.pop(each, ())]
        self._pending_bytes -= sum([call.span.size for call in calls])
        return calls

    def _make_room(self) -> None:
        limits = self._limits
        while len(self._traces) > limits.traces or (
            self._remembered > limits.spans and len(self._traces) > 1
        ):
            self._drop(next(iter(self._traces)))
        if limits.state_bytes == inf:
            return
        while self.state_bytes > limits.state_bytes and self._end_idlest():
            if not self._warned:
                self._warned = True
                log(logging.WARNING, _NO_ROOM, limits.state_bytes / 1e6)

    def _end_idlest(self) -> bool:
        """End what was idle for longest, a trace or a run; ``False``: there is none."""
        trace_id, trace = next(iter(self._traces.items()), (0, None))
        idle_since = self._spans.idle_since
        if trace is not None and (idle_since is None or trace.last_seen <= idle_since):
            self._drop(trace_id)
        elif idle_since is not None:
            self._spans.end_idlest()
        return trace is not None or idle_since is not None

    def _drop(self, trace_id: int) -> None:
        """Emit what is held of a trace, and forget it. Its runs end by their own limits."""
        trace = self._traces[trace_id]
        self._emit_all(self._held.take_trace(trace_id))
        if trace_id in self._traces:
            self._emit_pending(trace_id, trace)
            self._forget(trace_id)

    def _forget(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id)
        self._late += len(self._held.take_trace(trace_id))
        span_faults.drop_contents("no_span", self._events.drop(trace_id))
        self._remembered -= len(trace.parents)
        self._chosen_bytes -= trace.chosen_bytes
        self._take_pending(trace, *trace.pending)
        for span_id in trace.awaited:
            self._spans.forget(trace_id, span_id)
        self._spans.forget_trace(trace_id)
        if self._on_forgotten is not None:
            self._on_forgotten(trace_id)


def _last_seen(item: tuple[int, OpenTrace]) -> float:
    return item[1].last_seen
