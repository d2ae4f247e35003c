"""Judges live runs when they end: their transcripts, and the scores as metrics and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry._logs import Logger

from tidegauge.catalog import MetricDefinition
from tidegauge.diagnose.judges import (
    LABELS,
    JudgedScores,
    Judgement,
    Judging,
    Transcript,
    Transcripts,
)
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.tracer import send_evaluation

_MAX_RUNS: Final = 500


class JudgedRuns(Transcripts):
    """Has runs judged when they end.

    While a run is active, only its transcript is written. The contents of a run stay in the
    process, except for what is sent to the model of the judges.

    Args:
        contents: whether the events include the judges' reasons, which quote contents of runs.
        max_groups: (agent, task group) pairs with separate metrics.
    """

    def __init__(
        self, judging: Judging, logger: Logger, *, contents: bool, max_groups: int
    ) -> None:
        super().__init__(judging.submit, wanted=judging.wants, max_runs=_MAX_RUNS)
        self._judging = judging
        self._logger = logger
        self._contents = contents
        self._scores = JudgedScores(self._dropped, max_groups=max_groups)

    def listen(self) -> None:
        """Start to receive judgements."""
        self._judging.listen(self._judged)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float | Buckets]]:
        """The scores, and counts of runs that were not judged."""
        return self._scores.metrics()

    def _dropped(self) -> Mapping[str, int]:
        return {**self._judging.dropped, "too_many_runs": self.evicted}

    def _judged(self, transcript: Transcript, judgement: Judgement) -> None:
        self._scores.count(transcript, judgement)
        score = judgement.score
        label = "not_applicable" if judgement.applicable is False else LABELS.get(score or 0)
        send_evaluation(
            self._logger,
            transcript.started,
            judgement.competency,
            score=None if score is None else float(score),
            label=label,
            explanation=judgement.reason or None if self._contents else None,
            error=judgement.error_kind,
            judge=judgement.judge,
            rubric_version=judgement.rubric_version,
            model=judgement.model,
        )
