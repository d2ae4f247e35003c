"""Counts for the whole process: faults in the spans of others, and what was decided on our own.

A span of others that is not counted is *dropped*. A span that is measured despite a fault is
*repaired*. Every lost span of an agent's call increments one of these counters, or one of the
receiver's. :data:`sampling_counts` has what sampling decided on the runs whose spans waited.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import log

UnreadReason: TypeAlias = Literal["unknown_convention", "no_contents", "no_calls", "no_run", "late"]
"""Why a span that looks like one of an agent made no step."""

_MAX_SERVICES: Final = 100
_MAX_SCOPES: Final = 100
_MAX_SCOPE: Final = 200
"""Characters of a scope's name that are kept."""

_WHY: Final[Mapping[UnreadReason, str]] = {
    "unknown_convention": "no convention that tidegauge reads has their attributes; see "
    "docs/external-spans.md for those that are read",
    "no_run": "no agent, chain or workflow is around them; open a span around the agent's loop "
    "with gen_ai.operation.name set to invoke_agent",
    "no_calls": "agents have no model or tool call inside them; trace the client of the model, "
    "too, such as with an instrumentation of OpenAI's",
    "late": "they arrived after their run had ended; see --allowed-lateness",
}
_NO_JOIN: Final[Mapping[str, str]] = {
    "late": "they arrived after their spans were read; set OTEL_BLRP_SCHEDULE_DELAY of the agents "
    "to less than --allowed-lateness, or raise that",
    "no_span": "their spans did not arrive",
    "too_many": "more waited for their spans than there is room for",
}
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
        self._unread: Counter[tuple[str, ...]] = Counter()
        self._contents: Counter[str] = Counter()
        self._scopes: set[str] = set()  # of which one was logged

    def reading(self) -> None:
        """Spans are read in this process: its counters exist from now on."""
        self._reading = True

    def drop(self, reason: str, count: int = 1) -> None:
        """An agent's call is not counted."""
        with here.critical, self._lock:
            self._dropped[reason] += count

    def drop_contents(self, reason: str, count: int = 1) -> None:
        """Events that came apart from their spans are not read.

        The first of each reason is logged, with what to do.
        """
        if not count:
            return
        with here.critical, self._lock:
            new = not self._contents[reason]
            self._contents[reason] += count
        if new:
            why = _NO_JOIN[reason]
            log(logging.WARNING, "Contents in log records are dropped: %s (%s)", why, reason)

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

    def unread(
        self, scope: str, reason: UnreadReason, hint: Callable[[str], str] | None = None
    ) -> None:
        """A span of this scope looks like one of an agent and made no step.

        The first of each scope is logged, with what to do; ``hint`` says more of the scope.
        """
        scope = scope[:_MAX_SCOPE] or "unknown"
        with here.critical, self._lock:
            new = scope not in self._scopes
            if new and len(self._scopes) >= _MAX_SCOPES:
                new, scope = False, _OTHER
            elif new:
                self._scopes.add(scope)
            self._unread[scope, reason] += 1
        if new:
            why = _WHY.get(reason) or "they do not show the tool calls that the model chose"
            if hint is not None:
                why = f"{why}; {hint(scope)}"
            log(
                logging.WARNING,
                "Spans of %r are not read, or not in full: %s (%s)",
                scope,
                why,
                reason,
            )

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
                catalog.UNREAD_SPANS: dict(self._unread),
                catalog.DROPPED_CONTENTS: {
                    (reason,): self._contents[reason] for reason in catalog.DROPPED_CONTENTS.values
                },
            }

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Discard the counts of the block, which were counted before."""
        with here.critical, self._lock:
            before = [count.copy() for count in self._all()]
            unread, contents = self._unread.copy(), self._contents.copy()
        try:
            yield
        finally:
            with here.critical, self._lock:
                (self._dropped, self._repaired, self._skewed), self._unread = before, unread
                self._contents = contents

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        with here.critical, self._lock:
            self._reading = False
            for count in self._all():
                count.clear()
            self._unread.clear()
            self._contents.clear()
            self._scopes.clear()

    def _all(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        return self._dropped, self._repaired, self._skewed


span_faults = SpanFaults()
"""The counts of this process."""


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
