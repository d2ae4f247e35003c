"""Exports the runs that matter: those in trouble, and a random share of the others.

The spans of a run wait, in bounded memory and for a bounded time, until it is known how the run
went. Metrics do not depend on it: they see every run.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tidegauge._span_copy import SpanCopy
from tidegauge._span_counts import sampling_counts
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded
from tidegauge.settings import KINDS, checked
from tidegauge.tracer import conventions as names

DEFAULT_SAMPLE: Final = 0.01
"""Share of the runs without trouble that is exported."""

_REASONS: Final = (
    *("stopped", "error", "failure"),
    *("loop", "result_streak", "failed_rounds", "stale", "cost"),
)
"""Troubles; the first one is counted."""

_TRACE_ID_BITS: Final = 64
"""The lower bits of a trace id, by which OpenTelemetry's own sampler decides, too."""

_SPAN_BYTES: Final = 3_500
"""What a span takes without its texts."""

_MAX_LATE: Final = 10_000
"""Ids of spans of decided runs that are remembered, for spans that end or start later."""

_AT_ONCE: Final = 256
"""Spans that the batch processor gets before it must have sent them: its queue is limited."""

_TICK_SECONDS: Final = 5.0
_CLOSING_SECONDS: Final = 5.0


class TroubledSpanProcessor(SpanProcessor):
    """Exports the spans of troubled runs, and of a random share of the others, in batches.

    A run is *troubled* if it was stopped, failed, looped, was stale, or cost more tokens than
    p95 of the last runs of its agent and task group. All spans below the run's span wait with it,
    whatever instrumentation makes them; sub-agents are decided with the outermost run. Spans that
    are below no run are exported at once.

    No troubled run is missed: a run that cannot wait any longer is exported from then on, and so
    is one that must be decided before it has ended, by a flush or a shutdown. What the exporter
    loses is counted.

    The exported spans have the attribute ``tidegauge.sample.ratio``: the probability with which
    their run was exported, 1 for troubled ones. Weigh by its inverse.

    Args:
        exporter: gets the spans, from an OpenTelemetry ``BatchSpanProcessor`` with its usual
            settings.
        sample: share of the runs without trouble that is exported, from 0 to 1, decided by the
            trace id.
        max_spans: spans of one run that may wait.
        max_bytes: estimated bytes of all spans that wait; the run that has waited for longest is
            exported first. As much may wait for the exporter; more is dropped.
        max_seconds: how long a run may wait, also for a person.
        clock: gives seconds.

    Raises:
        ConfigurationError: a value is not valid.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    >>> provider = TracerProvider(shutdown_on_exit=False)
    >>> provider.add_span_processor(TroubledSpanProcessor(ConsoleSpanExporter(), sample=0.05))
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        sample: float = DEFAULT_SAMPLE,
        max_spans: int = 10_000,
        max_bytes: int = 128 * 1024 * 1024,
        max_seconds: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sample: float = checked("sample", sample, "Share", KINDS)
        self.max_spans = checked("max_spans", max_spans, "Count", KINDS)
        self.max_bytes = checked("max_bytes", max_bytes, "Count", KINDS)
        self.max_seconds = checked("max_seconds", max_seconds, "Seconds", KINDS)
        self._clock = clock
        self._batch = BatchSpanProcessor(_Counted(exporter))
        self._closed = False
        self._reset_after_fork()
        reset_after_fork(self)
        sampling_counts.sampling()

    def _reset_after_fork(self) -> None:
        # Re-entrant: the garbage collector may end a span of the application in the middle.
        self._lock = threading.RLock()
        self._of_span: dict[int, _Run] = {}
        self._waiting: OrderedDict[int, _Run] = OrderedDict()  # by identity, longest waiting first
        self._suspended: dict[str, _Run] = {}
        self._waiting_bytes = 0
        self._decided: deque[_Run] = deque()
        self._late_ids = 0
        self._queue: deque[tuple[Sequence[ReadableSpan], float, int]] = deque()
        self._queued_bytes = 0
        self._sending = threading.Lock()
        self._handed = 0
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def waiting_runs(self) -> int:
        """How many runs wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Estimated bytes of the spans that wait."""
        return self._waiting_bytes

    @guarded("sampling.on_start", default=None, interrupting="run")
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span has started: it belongs to the run of its parent, or begins one."""
        context, parent = span.context, span.parent
        if context is None or not context.trace_flags.sampled:
            return
        span_id = context.span_id
        with here.critical, self._lock:
            run = None if parent is None else self._of_span.get(parent.span_id)
            if run is not None:
                self._of_span[span_id] = run
                run.ids.append(span_id)
                self._late_ids += run.ratio is not None
                return
        name = (span.attributes or {}).get(names.RUN_ID)
        if type(name) is str and not self._closed:
            self._begin(name, context.trace_id, span_id)

    @guarded("sampling.on_end", default=None, interrupting="run")
    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended: it waits for the decision, or follows it."""
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        run = self._of_span.get(context.span_id)
        if run is None:
            self._batch.on_end(span)
            return
        attributes = _attributes(span)
        size = _size(span, attributes.values())
        with here.critical, self._lock:
            if run.ratio is not None:
                self._follow(run, (span,), size)
                return
            run.spans.append(span)
            run.bytes += size
            self._waiting_bytes += size
            if names.RUN_ID in attributes:
                self._run_ended(run, context.span_id, attributes)
            if run.ratio is None and len(run.spans) > self.max_spans:
                self._decide(run, "beyond_limit", 1.0)
            while self._waiting and self._waiting_bytes > self.max_bytes:
                self._decide(next(iter(self._waiting.values())), "beyond_limit", 1.0)

    @guarded("sampling.shutdown", default=None)
    def shutdown(self) -> None:
        """Export what waits, as of runs of which nothing more will be known."""
        self._decide_all()
        closed, self._closed = self._closed, True
        if closed:
            return
        self._wake.put(None)
        self._hand_over(_CLOSING_SECONDS)
        self._batch.shutdown()  # type: ignore[no-untyped-call]
        with here.critical, self._lock:
            left = sum(len(spans) for spans, *_ in self._queue)
            self._queue.clear()
        sampling_counts.drop("shutdown", left)

    @guarded("sampling.force_flush", default=False)
    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export all spans that have ended; runs that wait are exported from now on."""
        self._decide_all()
        return self.send_decided(timeout_millis)

    @guarded("sampling.send_decided", default=False)
    def send_decided(self, timeout_millis: int = 30_000) -> bool:
        """Send what was decided to be exported; runs that wait go on waiting."""
        self._expire()
        handed = self._hand_over(timeout_millis / 1_000)
        return bool(handed and self._batch.force_flush(timeout_millis))

    def _begin(self, name: str, trace_id: int, span_id: int) -> None:
        """A run that no other is around; or one that continues after it waited for a person."""
        self._expire()
        with here.critical, self._lock:
            run = self._suspended.pop(name, None)
            if run is None:
                run = _Run(name, trace_id, self._clock())
                self._waiting[id(run)] = run
            run.root = span_id
            run.ids.append(span_id)
            self._of_span[span_id] = run
            missing = self._thread is None
            if missing:
                self._thread = threading.Thread(
                    target=self._work, name="tidegauge-sampling", daemon=True
                )
            thread = self._thread
        if missing and thread is not None:
            with suppress(RuntimeError):  # the interpreter exits: the shutdown sends what waits
                thread.start()
        elif len(self._waiting) == 1:
            self._wake.put(None)

    def _run_ended(self, run: _Run, span_id: int, attributes: Any) -> None:
        """The span of a run has ended: the outermost one decides. Call it with the lock."""
        troubles = attributes.get(names.TROUBLES)
        if type(troubles) is tuple:
            run.troubles.update([one for one in troubles if type(one) is str and one in _REASONS])
        if span_id != run.root:
            return
        if names.TROUBLED not in attributes:
            if names.CHECKPOINT in attributes:
                self._suspended[run.name] = run
            else:
                self._decide(run, "unknown", 1.0)
            return
        reason = next((one for one in _REASONS if one in run.troubles), None)
        if reason is not None:
            self._decide(run, reason, 1.0)
        elif self._is_drawn(run.trace_id):
            self._decide(run, "sample", self.sample)
        else:
            self._decide(run, "not_troubled", 0.0)

    def _is_drawn(self, trace_id: int) -> bool:
        lower = trace_id & ((1 << _TRACE_ID_BITS) - 1)
        return lower < round(self.sample * (1 << _TRACE_ID_BITS))

    def _decide(self, run: _Run, reason: str, ratio: float) -> None:
        """Export a waiting run with this probability, or drop it for 0. Call it with the lock."""
        if self._waiting.pop(id(run), None) is None:
            return  # decided meanwhile: a span may be ended in the middle of this
        run.ratio = ratio
        self._suspended.pop(run.name, None)
        self._waiting_bytes -= run.bytes
        spans, run.spans = run.spans, []
        sampling_counts.decide(reason)
        self._follow(run, spans, run.bytes)
        self._decided.append(run)
        self._late_ids += len(run.ids)
        while self._late_ids > _MAX_LATE:
            oldest = self._decided.popleft()
            self._late_ids -= len(oldest.ids)
            for span_id in oldest.ids:
                self._of_span.pop(span_id, None)

    def _follow(self, run: _Run, spans: Sequence[ReadableSpan], size: int) -> None:
        """Treat spans of a decided run as it was decided. Call it with the lock."""
        if not run.ratio:
            sampling_counts.drop("not_troubled", len(spans))
        elif self._closed:
            sampling_counts.drop("shutdown", len(spans))
        elif self._queued_bytes and self._queued_bytes + size > self.max_bytes:
            sampling_counts.drop("queue_full", len(spans))
        else:
            self._queued_bytes += size
            self._queue.append((spans, run.ratio, size))
            self._wake.put(None)

    def _decide_all(self) -> None:
        with here.critical, self._lock:
            for run in list(self._waiting.values()):
                self._decide(run, "unknown", 1.0)

    def _expire(self) -> None:
        """Decide the runs that have waited for too long."""
        with here.critical, self._lock:
            limit = self._clock() - self.max_seconds
            while self._waiting:
                oldest = next(iter(self._waiting.values()))
                if oldest.since > limit:
                    return
                self._decide(oldest, "beyond_limit", 1.0)

    def _work(self) -> None:
        """Give the batch processor what is queued, as fast as the exporter takes it."""
        wake = self._wake
        while not self._closed:
            with suppress(Empty):
                wake.get(timeout=_TICK_SECONDS if self._waiting else None)
            self._expire()
            self._hand_over(None)

    @guarded("sampling.send", default=False)
    def _hand_over(self, seconds: float | None) -> bool:
        """Give the batch processor what is queued; ``False``, another thread still does."""
        if not self._sending.acquire(timeout=-1 if seconds is None else seconds):
            return False
        try:
            while self._queue:
                spans, ratio, size = self._queue.popleft()
                try:
                    self._give(spans, ratio)
                finally:
                    with here.critical, self._lock:
                        self._queued_bytes -= size
        finally:
            self._sending.release()
        return True

    def _give(self, spans: Sequence[ReadableSpan], ratio: float) -> None:
        for span in spans:
            weighted = {**_attributes(span), names.SAMPLE_RATIO: ratio}
            self._batch.on_end(SpanCopy(span, weighted))
            self._handed += 1
            if self._handed >= _AT_ONCE:
                self._handed = 0
                self._batch.force_flush()


class _Run:
    """A run and all that is below it.

    Attributes:
        name: the id of the outermost run.
        trace_id: its trace.
        since: since when it waits.
        root: the id of its span.
        ids: the ids of its spans, ended or not.
        spans: those that wait.
        bytes: what these take.
        troubles: of all runs in it.
        ratio: with what probability it is exported; ``None``, it is not decided.
    """

    __slots__ = ("bytes", "ids", "name", "ratio", "root", "since", "spans", "trace_id", "troubles")

    def __init__(self, name: str, trace_id: int, since: float) -> None:
        self.name = name
        self.trace_id = trace_id
        self.since = since
        self.root = 0
        self.ids: list[int] = []
        self.spans: list[ReadableSpan] = []
        self.bytes = 0
        self.troubles: set[str] = set()
        self.ratio: float | None = None


class _Counted(SpanExporter):
    """Counts the spans that an exporter could not export."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except BaseException:
            sampling_counts.drop("export_failed", len(spans))
            raise
        if result is not SpanExportResult.SUCCESS:
            sampling_counts.drop("export_failed", len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes as a plain dict, which is read in a tenth of the instructions."""
    given: Any = span.attributes
    return given.copy() if given else {}


def _size(span: ReadableSpan, values: Any) -> int:
    """Estimated bytes of a span."""
    size = _SPAN_BYTES
    for value in values:
        if type(value) is str:
            size += len(value)
        elif type(value) is tuple:
            size += sum([len(one) if type(one) is str else 8 for one in value])
    for event in span.events or ():
        size += _size_of_event(event)
    return size


def _size_of_event(event: Any) -> int:
    values = (event.attributes or {}).values()
    return 500 + sum([len(value) for value in values if type(value) is str])
