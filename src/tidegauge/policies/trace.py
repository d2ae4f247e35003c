"""The trace of a run: how its scores rose, and what the run had spent at these moments.

From it follows, for any threshold, whether and when the run would have exceeded it; no second
replay is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import orjson

from tidegauge.events import (
    ABSENT,
    Answer,
    Call,
    CallResult,
    Decision,
    Outcome,
    PolicyInForce,
    RunEnded,
    RunStarted,
    RunSummary,
    Signals,
    Step,
)
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS, ForeignGuard, GuardedCall
from tidegauge.policies.policy import Policy
from tidegauge.policies.thresholds import Score, score_named
from tidegauge.streaming_metrics.packed_runs import PackedEngine

RULES: Final = "rules"
"""The rules of a policy as a score of a trace: 1 from the first time that one held."""

_DIGEST: Final = "sha:"


class Crossing(NamedTuple):
    """A moment at which a run's score was higher than ever before in it.

    Attributes:
        steps: steps taken up to then, without a step that was issued and not observed.
        seconds: seconds that its steps took; ``None``, not reported.
    """

    value: float
    steps: int
    tokens: float | None
    seconds: float | None


class RunTrace:
    """How the scores of one run rose.

    Attributes:
        success: whether it succeeded; ``None``, not known or not ended.
        finished: whether its end was recorded.
        seconds: seconds that its steps took; ``None``, not reported.
        onset: steps taken at the onset of its first loop, streak or failed rounds; ``None``, none.
        policy: the calibrated thresholds that applied to it when it was recorded; ``None``, none.
        rises: the moments at which each score rose, by its name; under :data:`RULES`, the moment
            at which a rule first held; under the name of a guard of another project, its numbers.
    """

    __slots__ = (
        "agent",
        "finished",
        "model",
        "onset",
        "policy",
        "rises",
        "run",
        "seconds",
        "steps",
        "success",
        "task",
        "task_group",
        "tokens",
    )

    def __init__(
        self,
        run: str,
        agent: str = "",
        task_group: str = "",
        scores: Iterable[str] = (),
        *,
        task: str | None = None,
        model: str | None = None,
    ) -> None:
        self.run = run
        self.agent = agent
        self.task_group = task_group
        self.task = task
        self.model = model
        self.policy: PolicyInForce | None = None
        self.success: bool | None = None
        self.finished = False
        self.steps = 0
        self.tokens: float | None = None
        self.seconds: float | None = None
        self.onset: int | None = None
        self.rises: dict[str, list[Crossing]] = {name: [] for name in scores}

    @property
    def could_be_ended(self) -> bool:
        """Whether a calibrated threshold could nudge or stop it when it was recorded."""
        return self.policy is not None and self.policy.acts

    def highest(self, score: str) -> float:
        """The run's score; ``-inf`` if it was never measured."""
        rises = self.rises[score]
        return rises[-1].value if rises else -math.inf

    def crossing(self, score: str, above: float) -> Crossing | None:
        """The first moment at which the score was above this value; ``None``, never."""
        return next((rise for rise in self.rises[score] if rise.value > above), None)


class _GuardedRun:
    """The calls of an open run, and the moments at which they were issued and observed."""

    def __init__(self) -> None:
        self._calls: list[GuardedCall] = []
        self._issued: list[Crossing] = []
        self._observed: dict[int, Crossing] = {}
        self._of_step: dict[int, range] = {}

    def issued(self, step: int, calls: Sequence[Call], moment: Crossing) -> None:
        """Take the calls of a step."""
        begin = len(self._calls)
        self._calls += [GuardedCall(call.action, _text(call.arguments)) for call in calls]
        self._issued += [moment] * len(calls)
        self._of_step[step] = range(begin, len(self._calls))

    def observed(self, step: int, results: Sequence[CallResult], moment: Crossing) -> None:
        """Take their results."""
        for place, result in zip(self._of_step.get(step, ()), results, strict=False):
            self._calls[place] = self._calls[place]._replace(
                result=None if result.outcome is ABSENT else _text(result.outcome),
                error=result.error,
            )
            self._observed[place] = moment

    def rises(self, guard: ForeignGuard) -> list[Crossing]:
        """How the guard's number rose; nothing if the contents that it needs are digests."""
        texts = (text for call in self._calls for text in (call.arguments, call.result))
        if guard.reads_words and any(text and text.startswith(_DIGEST) for text in texts):
            return []
        places = range(len(self._calls)) if guard.at_issue else sorted(self._observed)
        moments = self._issued if guard.at_issue else self._observed
        found: list[Crossing] = []
        for place, value in zip(
            places, guard.read([self._calls[place] for place in places]), strict=True
        ):
            if not found or value > found[-1].value:
                found.append(moments[place]._replace(value=value))
        return found


def _text(content: object) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else orjson.dumps(content, default=repr).decode()


class TraceSink:
    """A step sink that traces every run and never intervenes.

    Args:
        rules: a policy whose rules are traced as well, whatever their action.
        guards: names of guards of other projects to trace, see
            :data:`~tidegauge.policies.foreign_guards.FOREIGN_GUARDS`.

    Raises:
        ConfigurationError: there is no such score.
    """

    def __init__(
        self,
        scores: Iterable[str | Score],
        *,
        on_trace: Callable[[RunTrace], None],
        rules: Policy | None = None,
        guards: Iterable[str] = (),
        exact: bool = False,
        detect_polls: bool | None = None,
    ) -> None:
        self._rules = rules
        self._guards = [FOREIGN_GUARDS[name] for name in guards]
        self._guarded: dict[str, _GuardedRun] = {}
        self._scores: list[Score] = [
            score_named(score) if isinstance(score, str) else score
            for score in dict.fromkeys(scores)
        ]
        self._on_trace = on_trace
        self._open: dict[str, RunTrace] = {}
        self.engine = PackedEngine(
            normaliser=None if exact else "volatile",
            detect_polls=detect_polls,
            max_groups=1,  # groups are not read
            max_actions=1,
            repetition=any(score.reads_words for score in self._scores)
            or (rules is not None and rules.reads_words),
            features=any(score.learned is not None for score in self._scores),
        )

    def run_started(self, event: RunStarted) -> None:
        """A run began; an open run with the same id is reported as unfinished."""
        self._close(event.run)
        self.engine.run_started(event)
        names = [*(score.name for score in self._scores), *([RULES] if self._rules else [])]
        self._open[event.run] = RunTrace(
            event.run,
            event.agent,
            event.task_group,
            names,
            task=event.task,
            model=event.model,
        )
        if self._guards:
            self._guarded[event.run] = _GuardedRun()

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        signals = self.engine.step_issued(event)
        if signals is not None:
            moment = self._follow(signals, signals.steps - 1)
            if moment is not None and event.run in self._guarded:
                self._guarded[event.run].issued(signals.step, event.calls, moment)
        return Decision(signals=signals)

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        signals = self.engine.step_observed(event)
        if signals is not None:
            moment = self._follow(signals, signals.steps)
            if moment is not None and event.run in self._guarded:
                self._guarded[event.run].observed(signals.step, event.results, moment)
        return Decision(signals=signals)

    def answered(self, event: Answer) -> Decision:
        """The model answered without a call."""
        decision = self.engine.answered(self.engine.digester.answer(event), full=True)
        if isinstance(decision.signals, Signals):
            self._follow(decision.signals, decision.signals.steps)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        trace = self._open.get(event.run)
        report = self.engine.run_ended(event)
        if trace is not None and report is not None:
            trace.success, trace.finished = report.success, True
            trace.policy = event.policy
            self._close(event.run)
        return None

    def close(self) -> None:
        """Report the runs that have no end."""
        for run in list(self._open):
            self._close(run)

    def _follow(self, signals: Signals, steps: int) -> Crossing | None:
        """Record the scores of a moment; returns the moment."""
        trace, state = self._open.get(signals.run), self.engine.get(signals.run)
        if trace is None or state is None:
            return None
        timed = state.totals.step_seconds
        trace.steps, trace.tokens = signals.steps, signals.tokens
        trace.seconds = timed.total if sum(timed.counts) else None
        if trace.onset is None and state.totals.onsets:
            trace.onset = steps
        moment = Crossing(1.0, steps, signals.tokens, trace.seconds)
        for score in self._scores:
            value = score.read(signals)
            rises = trace.rises[score.name]
            if value is not None and (not rises or value > rises[-1].value):
                rises.append(moment._replace(value=value))
        if self._rules is not None and not trace.rises[RULES]:
            rules = self._rules.of_skipped if state.skipping else self._rules
            if _holds(rules, signals):
                trace.rises[RULES].append(moment)
        return moment

    def _close(self, run: str) -> None:
        trace, guarded = self._open.pop(run, None), self._guarded.pop(run, None)
        if trace is None:
            return
        if guarded is not None:
            trace.rises.update((guard.name, guarded.rises(guard)) for guard in self._guards)
        self._on_trace(trace)


def _holds(rules: Policy, signals: Signals) -> bool:
    decided = rules.decide(signals, blockable=True).action != "go_on"
    return decided or bool(rules.would_stop(signals))
