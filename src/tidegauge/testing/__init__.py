"""The test kit of tidegauge, for your tests.

A clock that you move, ids that count, a capture of all spans and events in memory, and a switch
that makes internal errors fail the test.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from tidegauge.pipeline import Pipeline, configure
from tidegauge.safety.critical import run_deferred
from tidegauge.safety.guard import internal_errors

__all__ = ["Capture", "CountedIds", "SteppedClock", "capture", "raise_internal_errors"]


class SteppedClock:
    """A clock that stands still until you move it.

    >>> clock = SteppedClock(start=10.0)
    >>> clock.advance(2.5); clock()
    12.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds


class CountedIds:
    """Ids that count up: ``run-1``, ``run-2``, ...

    >>> ids = CountedIds("run"); ids(), ids()
    ('run-1', 'run-2')
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


class _Spans(SpanProcessor):
    """Collects ended spans: without a lock, which a fork would copy, and without a catch-all."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.ended.append(span)


class _Events(LogRecordProcessor):
    """Collects events."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def on_emit(self, log_record: Any) -> None:
        self.sent.append(log_record.log_record)

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Capture:
    """A configured pipeline whose spans and events stay in memory.

    Attributes:
        tracer_provider: for other spans that are captured, such as the application's.
    """

    pipeline: Pipeline
    tracer_provider: TracerProvider
    _spans: list[ReadableSpan]
    _events: list[Any]

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order in which they did."""
        run_deferred()
        return list(self._spans)

    @property
    def events(self) -> list[Any]:
        """The log records that were sent."""
        run_deferred()
        return list(self._events)

    def tree(self) -> list[str]:
        """One line per span, children indented below their parents, in order of their start.

        For tests that compare names and nesting, without ids and times.
        """
        spans = sorted(self.spans, key=lambda span: span.start_time or 0)
        known = {span.context.span_id for span in spans if span.context}
        children: dict[int | None, list[ReadableSpan]] = {}
        for span in spans:
            parent = span.parent.span_id if span.parent else None
            children.setdefault(parent if parent in known else None, []).append(span)

        def lines(parent: int | None, depth: int) -> Iterator[str]:
            for span in children.get(parent, ()):
                yield "  " * depth + span.name
                if span.context:
                    yield from lines(span.context.span_id, depth + 1)

        return list(lines(None, 0))


@contextlib.contextmanager
def capture(**settings: Any) -> Iterator[Capture]:
    """Configure tidegauge for a test, with spans and events in memory and without a server.

    Afterwards nothing is configured: the next run uses the defaults.

    Args:
        **settings: as for :func:`tidegauge.configure`.

    >>> import tidegauge
    >>> with capture() as seen:
    ...     with tidegauge.run(agent="a") as run:
    ...         _ = run.act("look")
    ...         _ = run.observe("nothing")
    >>> seen.tree()
    ['invoke_agent a', '  execute_tool look']
    """
    spans, events = _Spans(), _Events()
    tracer_provider = TracerProvider(shutdown_on_exit=False)
    tracer_provider.add_span_processor(spans)
    logger_provider = LoggerProvider(shutdown_on_exit=False)
    logger_provider.add_log_record_processor(events)
    settings.setdefault("serve_metrics", False)
    settings.setdefault("tracer_provider", tracer_provider)
    settings.setdefault("logger_provider", logger_provider)
    pipeline = configure(**settings)
    try:
        yield Capture(pipeline, settings["tracer_provider"], spans.ended, events.sent)
    finally:
        pipeline.shutdown()


@contextlib.contextmanager
def raise_internal_errors(enabled: bool = True) -> Iterator[None]:
    """Make internal errors fail the test instead of being logged and counted."""
    before = internal_errors.reraise
    internal_errors.reraise = enabled
    try:
        yield
    finally:
        internal_errors.reraise = before
