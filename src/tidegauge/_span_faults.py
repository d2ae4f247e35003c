"""Counts faults in spans of other instrumentations, for the whole process.

A span that is not counted is *dropped*. A span that is measured despite a fault is *repaired*.
Every lost span of an agent's call increments one of these counters, or one of the receiver's.
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
    """Counts faults of spans. Without spans that are read, it has no metrics.

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
        """Spans are read in this process: its counters exist from now on."""
        self._reading = True

    def drop(self, reason: str, count: int = 1) -> None:
        """An agent's call is not counted."""
        with here.critical, self._lock:
            self._dropped[reason] += count

    def repair(self, fault: str, count: int = 1) -> None:
        """A span is measured despite a fault."""
        with here.critical, self._lock:
            self._repaired[fault] += count

    def skew(self, service: str) -> None:
        """The times of a span of this service contradict those of another host."""
        with here.critical, self._lock:
            if service not in self._skewed and len(self._skewed) >= _MAX_SERVICES:
                service = _OTHER
            self._skewed[service] += 1

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], int]]:
        """The counts, as metrics of the catalog."""
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
        """Discard the counts of the block, which were counted before."""
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
