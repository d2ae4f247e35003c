"""Counts what was decided about the spans of runs that waited, for the whole process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.safety.critical import here, reset_after_fork


class SamplingCounts:
    """Counts decisions and lost spans. Where no spans wait, it has no metrics.

    >>> counts = SamplingCounts()
    >>> counts.metrics()
    {}
    >>> counts.sampling()
    >>> counts.decide("loop")
    >>> counts.metrics()[catalog.SAMPLING_DECISIONS]["loop",]
    1
    """

    def __init__(self) -> None:
        self._sampling = False
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for readers
        self._decisions: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def sampling(self) -> None:
        """Spans wait in this process: its counters exist from now on."""
        self._sampling = True

    def decide(self, reason: str) -> None:
        """It was decided whether the spans of a run are exported."""
        with here.critical, self._lock:
            self._decisions[reason] += 1

    def drop(self, reason: str, count: int) -> None:
        """Spans are not exported."""
        with here.critical, self._lock:
            self._dropped[reason] += count

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], int]]:
        """The counts, as metrics of the catalog."""
        if not self._sampling:
            return {}
        with here.critical, self._lock:
            return {
                metric: {(reason,): counts[reason] for reason in metric.values}
                for metric, counts in (
                    (catalog.SAMPLING_DECISIONS, self._decisions),
                    (catalog.SAMPLING_DROPPED_SPANS, self._dropped),
                )
            }

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        self._sampling = False
        self._reset_after_fork()


sampling_counts = SamplingCounts()
"""The counts of this process."""
