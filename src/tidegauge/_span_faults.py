"""Counts of what is wrong with spans of other instrumentations, for the whole process.

A span that counts nowhere is *dropped*. One that is measured although something is wrong with it
is *repaired*. No span of an agent's call is lost without one of these counters, or one of the
receiver's, moving.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidegauge import catalog
from tidegauge._critical import here, reset_after_fork
from tidegauge.catalog import MetricDefinition

__all__ = ["SpanFaults", "span_faults"]

_MAX_SERVICES: Final = 100
_OTHER: Final = "other"


class SpanFaults:
    """Counts faults of spans. Nothing is measured before spans are read.

    >>> faults = SpanFaults()
    >>> faults.metrics()
    {}
    >>> faults.reading()
    >>> faults.drop("no_agent")
    >>> faults.metrics()[catalog.DROPPED_SPANS]["no_agent",]
    1
    """

    def __init__(self) -> None:
        self._reading = False
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for readers
        self._dropped: Counter[str] = Counter()
        self._repaired: Counter[str] = Counter()
        self._skewed: Counter[str] = Counter()

    def reading(self) -> None:
        """Spans are read in this process: from now on its counters are there, and 0."""
        self._reading = True

    def drop(self, reason: str, count: int = 1) -> None:
        """A call of an agent counts nowhere."""
        with here.critical, self._lock:
            self._dropped[reason] += count

    def repair(self, fault: str, count: int = 1) -> None:
        """A span is measured although something is wrong with it."""
        with here.critical, self._lock:
            self._repaired[fault] += count

    def skew(self, service: str) -> None:
        """The times of a span of this service contradict those of another host."""
        with here.critical, self._lock:
            if service not in self._skewed and len(self._skewed) >= _MAX_SERVICES:
                service = _OTHER
            self._skewed[service] += 1

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], int]]:
        """The counts, as the catalogue's metrics."""
        if not self._reading:
            return {}
        with here.critical, self._lock:
            return {
                catalog.DROPPED_SPANS: {
                    (reason,): self._dropped[reason] for reason in catalog.DROPPED_SPANS.values
                },
                catalog.REPAIRED_SPANS: {
                    (fault,): self._repaired[fault] for fault in catalog.REPAIRED_SPANS.values
                },
                catalog.CLOCK_SKEW: {(service,): count for service, count in self._skewed.items()},
            }

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Forget what is counted meanwhile: it was counted before."""
        with here.critical, self._lock:
            before = [count.copy() for count in self._all()]
        try:
            yield
        finally:
            with here.critical, self._lock:
                self._dropped, self._repaired, self._skewed = before

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        with here.critical, self._lock:
            self._reading = False
            for count in self._all():
                count.clear()

    def _all(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        return self._dropped, self._repaired, self._skewed


span_faults = SpanFaults()
"""The counts of this process."""
