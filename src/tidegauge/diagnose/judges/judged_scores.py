"""Judged scores as metrics: a histogram by competency, and what was not judged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from tidegauge._critical import here, reset_after_fork
from tidegauge.catalog import DROPPED_JUDGEMENTS, FAILED_JUDGEMENTS, JUDGED_SCORE, MetricDefinition
from tidegauge.diagnose.judges.judgement import Judgement
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.streaming_metrics.limits import OTHER, BoundedNames
from tidegauge.streaming_metrics.totals import Buckets

__all__ = ["JudgedScores"]

_BOUNDS: Final = (1.0, 2.0, 3.0, 4.0)
_MAX_KINDS: Final = 20
_KNOWN_KINDS: Final = ("time_out", "rate_limited", "model_error", "refused", "invalid_answer")


class JudgedScores:
    """Counts scores by agent, task group and competency, and what did not become one.

    Args:
        dropped: tells the runs that were not judged, by reason.
        max_groups: (agent, task group) pairs that are told apart; later ones are ``other``.
    """

    def __init__(self, dropped: Callable[[], Mapping[str, int]], *, max_groups: int = 200) -> None:
        self._dropped = dropped
        self._max_groups = max_groups
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._groups = BoundedNames(limit=self._max_groups, other=(OTHER, OTHER))
        self._kinds = BoundedNames(limit=_MAX_KINDS, other=OTHER)
        self._lock = threading.RLock()  # re-entrant for readers
        self._scores: dict[tuple[str, ...], Buckets] = {}
        self._failed: dict[tuple[str, ...], float] = {
            (self._kinds.admit(kind),): 0.0 for kind in _KNOWN_KINDS
        }

    def count(self, transcript: Transcript, judgement: Judgement) -> None:
        """Count what came of judging a run."""
        started = transcript.started
        group = self._groups.admit((started.agent, started.task_group))
        with here.critical, self._lock:
            if judgement.error_kind is not None:
                failed = (self._kinds.admit(judgement.error_kind),)
                self._failed[failed] = self._failed.get(failed, 0.0) + 1
            elif judgement.score is not None:
                key = (*group, judgement.competency)
                buckets = self._scores.get(key)
                if buckets is None:
                    buckets = self._scores[key] = Buckets(_BOUNDS)
                buckets.observe(judgement.score)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float | Buckets]]:
        """What is counted."""
        dropped: dict[tuple[str, ...], float] = {
            (reason,): float(runs) for reason, runs in self._dropped().items()
        }
        with here.critical, self._lock:
            failed = dict(self._failed)
            scores = {key: _copy(buckets) for key, buckets in self._scores.items()}
        return {JUDGED_SCORE: scores, FAILED_JUDGEMENTS: failed, DROPPED_JUDGEMENTS: dropped}


def _copy(buckets: Buckets) -> Buckets:
    copied = Buckets(_BOUNDS)
    copied.add(buckets)
    return copied
