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
from tidegauge.events import (
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    RunSummary,
    Step,
    StepSink,
)
from tidegauge.safety.guard import guarded
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.tracer import send_evaluation

_MAX_RUNS: Final = 500


class JudgedRuns:
    """A step sink around another one that has runs judged when they end.

    While a run is active, only its transcript is written. The contents of a run stay in the
    process, except for what is sent to the model of the judges.

    Args:
        inner: measures and decides.
        judging: judges.
        logger: takes an event for each judgement.
        contents: whether the events include the judges' reasons, which quote contents of runs.
        max_groups: (agent, task group) pairs with separate metrics.
    """

    def __init__(
        self,
        inner: StepSink,
        judging: Judging,
        logger: Logger,
        *,
        contents: bool,
        max_groups: int,
    ) -> None:
        self._inner = inner
        self._judging = judging
        self._logger = logger
        self._contents = contents
        self._transcripts = Transcripts(judging.submit, wanted=judging.wants, max_runs=_MAX_RUNS)
        self._scores = JudgedScores(self._dropped, max_groups=max_groups)

    def listen(self) -> None:
        """Start to receive judgements."""
        self._judging.listen(self._judged)

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._inner.run_started(event)
        self._started(event)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        decision = self._inner.step_issued(event)
        if decision.signals is not None:  # else the run is not open
            self._issued(event, decision.signals.step, blocked=decision.block)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        decision = self._inner.step_observed(event)
        self._observed(event)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        try:
            return self._inner.run_ended(event)
        finally:
            self._ended(event)

    def run_restored(self, run: MeasuredRun) -> None:
        """A run that waited continues here: it is judged if no other process knows a part of it."""
        self._transcripts.resume(run.started.run, steps=run.steps, completed=run.completed_steps)

    def run_detached(self, run: str) -> None:
        """A run may continue elsewhere."""

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float | Buckets]]:
        """The scores, and counts of runs that were not judged."""
        return self._scores.metrics()

    def _dropped(self) -> Mapping[str, int]:
        return {**self._judging.dropped, "too_many_runs": self._transcripts.evicted}

    @guarded("judging", default=None)
    def _started(self, event: RunStarted) -> None:
        self._transcripts.run_started(event)

    @guarded("judging", default=None)
    def _issued(self, event: Step, index: int, *, blocked: bool) -> None:
        self._transcripts.step_issued(event, index)
        if blocked:
            self._transcripts.step_observed(Outcome(event.run, (), index, blocked=True))

    @guarded("judging", default=None)
    def _observed(self, event: Outcome) -> None:
        self._transcripts.step_observed(event)

    @guarded("judging", default=None)
    def _ended(self, event: RunEnded) -> None:
        self._transcripts.run_ended(event)

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
