"""One run: its metrics, fed in the two moments of every step."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from tidegauge._guard import arrived_from_outside
from tidegauge.events import Outlook, RunEnded, RunOutcome, RunStarted, Signals
from tidegauge.streaming_metrics.amounts import added, all_failed, amount
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep, round_outcome
from tidegauge.streaming_metrics.entropy_split import EntropySplit
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.fingerprint import task_digest
from tidegauge.streaming_metrics.known_graph import Answer, Distance
from tidegauge.streaming_metrics.limits import BoundedNames
from tidegauge.streaming_metrics.loop_cost import LoopCost
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.moving import load_run, state_of_run
from tidegauge.streaming_metrics.navigation import Navigation
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.patience import Patience
from tidegauge.streaming_metrics.premature_halt import premature_halt
from tidegauge.streaming_metrics.progress_auv import ProgressAUV
from tidegauge.streaming_metrics.recall_lag import RecallLag
from tidegauge.streaming_metrics.records import (
    ChosenAction,
    FinishedRun,
    IssuedStep,
    ObservedStep,
    made,
)
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.repetition import Repetition
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run_report import (
    GroupKey,
    RunReport,
    displaced_leads,
    report_of,
)
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.totals import (
    LEAD_AGE_BOUNDS,
    RECALL_BOUNDS,
    Buckets,
    Exemplar,
    Totals,
    addable,
)
from tidegauge.streaming_metrics.trail import Trail

__all__ = ["RunState"]

_MAX_UNOBSERVED: Final = 1_000
_MAX_OUTLOOK: Final = 10


class Issued(NamedTuple):
    """What is kept of a step until its outcome is observed."""

    calls: list[bytes]
    action: bytes
    state: bytes | None
    tokens: float | None
    entropy: float | None
    time: float | None
    now: float | None
    loop_matched: int
    loop_settled: int
    loop_first_step: int
    alike: float
    name: str = ""


_NOT_ASKED: Final = Answer(None, None, -1, nearer=None)


class RunState:
    """The metrics of one active run. Every method is called with :attr:`lock` held."""

    __slots__ = (
        "_actions",
        "_directed",
        "_distance",
        "_onset_at",
        "_previous",
        "_saved_from",
        "_tells_entropy",
        "carried",
        "crossed",
        "entropy_split",
        "exploration",
        "failed_rounds",
        "faults",
        "finished",
        "first_would_stop",
        "group",
        "last_seen",
        "lock",
        "loop_cost",
        "loops",
        "lost",
        "navigation",
        "novelty",
        "nudged",
        "open_steps",
        "outcome",
        "patience",
        "premature_halt",
        "progress_auv",
        "recall_lag",
        "recurrence",
        "refused",
        "repetition",
        "result_streak",
        "signals",
        "stale_score",
        "started",
        "steps",
        "stopped",
        "success",
        "t_max",
        "tokens",
        "totals",
        "trail",
        "watch_only",
    )

    def __init__(
        self,
        started: RunStarted,
        *,
        group: GroupKey,
        t_max: int | None,
        actions: BoundedNames[str],
        onset_at: int,
        max_period: int,
        max_distinct: int,
        directed: bool,
        distance: Distance | None,
        task: bytes | None = None,
        trail: Trail | None = None,
        repetition: bool = False,
    ) -> None:
        # Re-entrant for readers: a signal handler may take a snapshot while a step is counted.
        self.lock = threading.RLock()
        self.started = started  # but the words of the task
        if started.task is not None:
            self.started = replace(started, task=task_digest(started.task))
        self.group = group
        self.trail = trail  # only where somebody may look on
        self.t_max = t_max
        self.last_seen = 0.0
        self.steps = 0
        self.tokens: float | None = None
        self.totals = Totals()
        self.carried: Totals | None = None  # what was counted of it before it came here
        self.loops = Loops(max_period=max_period)
        self.loop_cost = LoopCost()
        self.result_streak = ResultStreak()
        self.failed_rounds = FailedRounds()
        self.recurrence = Recurrence(max_pairs=max_distinct)
        self.novelty = Novelty(max_outcomes=max_distinct)
        self.progress_auv = ProgressAUV(t_max=t_max)
        self.recall_lag = RecallLag()
        self.entropy_split = EntropySplit()
        self._tells_entropy = False  # until then there is nothing to split
        self.stale_score = StaleScore(place=started.place)
        # Only for a run that tells where it is or what it has to do: most don't.
        self.exploration: Exploration | None = None
        self.navigation: Navigation | None = None
        self.signals: Signals | None = None
        self.stopped: tuple[int, str] | None = None
        self.watch_only = False  # after a fault of ours, nothing is decided any more
        self.lost: tuple[str, ...] = ()  # metrics that a fault left half done: absent
        self.faults: list[tuple[str, Exception]] = []  # to be recorded when no lock is held
        self.crossed: dict[str, int] = {}  # scores that crossed their line, and at which step
        self.nudged: dict[str, float] = {}  # at which value each rule's signal was nudged last
        self.repetition = Repetition() if repetition else None
        self.patience: Patience | None = None  # only for a run that calls a declared tool
        self.first_would_stop: tuple[int, str] | None = None
        self.refused: Issued | None = None  # the step before, if it was blocked
        self._saved_from: int | None = None  # the first step that a stop would have saved
        self._actions = actions
        self._onset_at = onset_at
        self._directed = directed
        self._distance = distance
        self.open_steps: OrderedDict[int, Issued] = OrderedDict()
        self._previous = task  # what the agent sees first
        self.finished = False
        self.success: bool | None = None
        self.outcome: RunOutcome = "unknown"
        self.premature_halt: bool | None = None
        if started.place is not None or started.tasks or started.exits:
            self.explore()

    def issue(self, step: DigestedStep, now: float | None) -> Signals:
        """Take an issued action: loops are known from here on, before it is run."""
        # Read at once: a field of a named tuple takes longer than a name.
        (_, calls, action, name, told, given, declared, tokens, entropy, uses, mentions,
         at, _, similarity, words, shown, not_comparable) = step  # fmt: skip
        t, loops, totals = self.steps, self.loops, self.totals
        seen = told if given else self._previous
        # What was not observed cannot be returned to: 16 bytes that equal no other state.
        state = seen or b"unknown %08d" % t
        issued = made(IssuedStep, (t, state, action, name, uses, mentions))
        refused = self.refused
        insists = (
            refused is not None
            and action == refused.action
            and (not given or seen == refused.state)
        )
        # Asking again for what was blocked is going on with the loop, whatever its period.
        expected = loops.expected if insists else None
        saved = self._saved_from is not None
        # From here on the step counts. Nothing can interrupt stores without a call between them;
        # the metrics that follow are each interrupted alone (see _lose).
        self.refused = None
        self._previous = None
        self.steps = t + 1
        totals.steps += 1
        if saved:
            totals.saved_steps += 1
        alike = 0.0
        arrived: BaseException | None = None
        try:
            if (declared or self.patience is not None) and "patience" not in self.lost:
                self._be_patient(step, now)
        except BaseException as error:
            arrived = self._lose("patience", error)
        try:
            if "loops" not in self.lost:
                before, onsets = loops.cycle_steps, loops.onsets
                loops.update(issued if expected is None else IssuedStep(t, *expected))
                totals.cycle_steps += loops.cycle_steps - before
                if loops.settled:
                    self._count_loop(onsets, t)
        except BaseException as error:
            arrived = self._lose("loops", error) or arrived
        try:
            if (uses or mentions) and "recall_lag" not in self.lost:
                self.recall_lag.update(issued)
                self._count_recall()
        except BaseException as error:
            arrived = self._lose("recall_lag", error) or arrived
        try:
            if self.repetition is not None and "repetition" not in self.lost:
                alike = self.repetition.issue(
                    ChosenAction(t, words, similarity),
                    excused=self.patience is not None and self.patience.excused > 0,
                )
        except BaseException as error:
            arrived = self._lose("repetition", error) or arrived
        try:
            # Spent when the action was chosen: also where it is never observed.
            if tokens is not None:
                self.tokens = added(self.tokens, tokens)
            loops, waiting = self.loops, self.open_steps
            kept = (
                calls,
                action,
                seen,
                tokens,
                entropy,
                at,
                now,
                max(loops.matched, 0),
                loops.settled,
                loops.first_step,
                alike,
                name,
            )
            waiting[t] = made(Issued, kept)
            if len(waiting) > _MAX_UNOBSERVED:
                waiting.popitem(last=False)
        except BaseException as error:
            arrived = self._lose("waiting", error) or arrived
        try:
            if self.trail is not None:
                self.trail.issued(t, action, name, loops.settled, shown)
            if not_comparable:
                self._count_not_comparable(name, not_comparable)
        except BaseException as error:
            arrived = self._lose("trail", error) or arrived
        self.signals = self._signals(t, action, state, name)
        if arrived is not None:
            raise arrived
        return self.signals

    def observe(self, outcome: DigestedOutcome, now: float | None) -> Signals | None:
        """Take an outcome; ``None`` when it belongs to no step that waits for one."""
        # Read at once: a field of a named tuple takes longer than a name.
        (_, results, step, place, exits, tasks, achieved,
         progress, tokens, seconds, at, blocked, shown, nearer) = outcome  # fmt: skip
        t = self.steps - 1 if step is None else step
        issued = self.open_steps.get(t)
        if issued is None or self.signals is None:
            return None
        (calls, action, state, spent, entropy, began, since,
         matched, settled, first, alike, name) = issued  # fmt: skip
        latest = t == self.steps - 1
        refused = self.refused
        if blocked:
            # The loop is taken to go on as it did: whoever insists on it climbs the ladder.
            expected = self.loops.expected if latest else None
            digest = expected[0] if expected is not None else None
            refused = issued if expected is not None else None
            results = ()
            seconds = None
        else:
            digest = round_outcome(calls, results)
            if seconds is not None:
                seconds = amount(seconds)
            # Times that were told and those of our own clock have nothing in common.
            elif began is None or at is None:
                seconds = _between(since, now)
            else:
                seconds = _between(began, at)
        size = len(calls)
        failed = all_failed(results, size)
        taken = (
            t,
            action,
            digest,
            size,
            failed,
            added(spent, tokens),
            seconds,
            progress,
            entropy,
            matched,
            settled,
            first,
            place,
            exits,
            tasks,
            achieved,
            state,
        )
        observed = made(ObservedStep, taken)
        if self._distance is not None and self.exploration is not None:
            self.exploration.distance = nearer or _NOT_ASKED  # asked before the lock
        # From here on the outcome counts; as in issue().
        del self.open_steps[t]
        self.refused = refused
        if latest:
            self._previous = digest
        totals, lost = self.totals, self.lost
        arrived: BaseException | None = None
        try:
            if tokens is not None:
                self.tokens = added(self.tokens, tokens)
            if "loop_cost" not in lost:
                cost = self.loop_cost
                cost.update(observed)
                if settled:
                    totals.loop_tokens = addable(cost.tokens or 0.0)
                    totals.loop_seconds = addable(cost.seconds or 0.0)
        except BaseException as error:
            arrived = self._lose("loop_cost", error)
        try:
            if seconds is not None:
                trace_id = self.started.trace_id
                seen = None if trace_id is None else Exemplar(trace_id, seconds, time.time())
                totals.step_seconds.observe(seconds, seen)
        except BaseException as error:
            arrived = self._lose("step_seconds", error) or arrived
        try:
            if "result_streak" not in lost:
                self.result_streak.update(observed)
        except BaseException as error:
            arrived = self._lose("result_streak", error) or arrived
        try:
            if "failed_rounds" not in lost:
                self.failed_rounds.update(observed)
        except BaseException as error:
            arrived = self._lose("failed_rounds", error) or arrived
        try:
            if "recurrence" not in lost:
                self.recurrence.update(observed)
        except BaseException as error:
            arrived = self._lose("recurrence", error) or arrived
        try:
            if self.patience is not None:
                new = self.recurrence.current == 0
                self.patience.observe(new=new, failed=failed)
        except BaseException as error:
            arrived = self._lose("patience", error) or arrived
        try:
            if "novelty" not in lost:
                self.novelty.update(observed)
        except BaseException as error:
            arrived = self._lose("novelty", error) or arrived
        try:
            if "progress_auv" not in lost:
                self.progress_auv.update(observed)
        except BaseException as error:
            arrived = self._lose("progress_auv", error) or arrived
        try:
            if (self._tells_entropy or entropy is not None) and "entropy_split" not in lost:
                self._tells_entropy = True
                self.entropy_split.update(observed)
        except BaseException as error:
            arrived = self._lose("entropy_split", error) or arrived
        try:
            if "stale_score" not in lost:
                if self.exploration is None and (place is not None or tasks or achieved):
                    self.explore()
                if self.exploration is None:
                    self.stale_score.update(observed)
                else:
                    self._follow(observed)
        except BaseException as error:
            arrived = self._lose("stale_score", error) or arrived
        try:
            if self.result_streak.current == self._onset_at or failed:
                self._count_onsets(observed)
        except BaseException as error:
            arrived = self._lose("onsets", error) or arrived
        try:
            repetition = self.repetition
            if repetition is not None and digest is not None and "repetition" not in lost:
                repetition.observe(alike, new=self.novelty.latest, latest=latest)
        except BaseException as error:
            arrived = self._lose("repetition", error) or arrived
        try:
            if self.trail is not None:
                self.trail.observed(observed, self.stale_score.current, shown)
            if self._saved_from is not None and t >= self._saved_from:
                self._save(observed, tokens)
            if digest is None and any(one[0] is None for one in results):
                self._count_not_comparable(name, ("result",))
        except BaseException as error:
            arrived = self._lose("trail", error) or arrived
        signals = self.signals
        self.signals = self._signals(
            signals.step, signals.action_digest, signals.state_digest, signals.tool
        )
        if arrived is not None:
            raise arrived
        return self.signals

    def _lose(self, part: str, error: BaseException) -> BaseException | None:
        """A part of an update failed: the metric that it left half done is absent from here on.

        The other metrics take the step all the same, so that all that is reported counts the same
        steps; nothing is decided in the run any more. Gives back an exception that is not ours.
        """
        self.watch_only = True
        made = _METRICS.get(part)
        if made is not None and part not in self.lost:
            self.lost = (*self.lost, part)
            setattr(self, part, made(self))
            if part == "stale_score":
                self.exploration = self.navigation = None
        if not isinstance(error, Exception) or arrived_from_outside(error):
            return error
        self.faults.append((f"metric.{part}", error))
        return None

    def intervened(self, action: str, reason: str, step: int) -> None:
        """Count an intervention, or one that would have been.

        A stop counts once a run for each reason, a nudge and a blocked call each time.
        """
        interventions = self.totals.interventions
        key = (action, reason)
        if action in ("stop", "would_stop") and key in interventions:
            return
        interventions[key] = interventions.get(key, 0) + 1
        self._exemplify("interventions", *key)
        if self.trail is not None:
            self.trail.intervened(action, reason, step)
        if action == "stop":
            self.stopped = self.stopped or (step, reason)
        elif action == "would_stop" and self.first_would_stop is None:
            self.first_would_stop = (step, reason)
            # A stop at the moment of issue saves the step itself.
            self._saved_from = step if step in self.open_steps else step + 1
            self.totals.saved_steps += max(self.steps - self._saved_from, 0)

    def outlook(self) -> Outlook:
        """What the run has before it, and what it repeats."""
        exploration = self.exploration
        repeated = tuple(self.loops.cycle_names[:_MAX_OUTLOOK]) if self.loops.period else ()
        if exploration is None:
            return Outlook(repeated=repeated)
        return Outlook(
            exploration.here,
            tuple(islice(exploration.unexplored, _MAX_OUTLOOK)),
            tuple(islice(exploration.ready, _MAX_OUTLOOK)),
            repeated,
        )

    def end(self, event: RunEnded) -> FinishedRun:
        """Close the run and tell what its group needs."""
        self.finished = True
        outcome = event.outcome or ("stopped" if self.stopped else None)
        success = event.success
        if success is None and outcome in ("stopped", "error"):
            success = False
        if outcome is None:
            outcome = "unknown" if success is None else "success" if success else "failure"
        self.success, self.outcome = success, outcome
        self.totals.displaced_leads = displaced_leads(self.exploration) or 0
        finished = self._so_far()
        self.premature_halt = premature_halt(finished)
        return finished

    def _so_far(self) -> FinishedRun:
        exploration = self.exploration
        return FinishedRun(
            success=self.success,
            steps=self.steps,
            outcome=self.outcome,
            task=self.started.task,
            t_max=self.t_max,
            loop_steps=self.loops.loop_steps,
            cycle_steps=self.loops.cycle_steps,
            progress_auv=self.progress_auv.value,
            operations=self.started.operations,
            height=self.started.height,
            memory=self.started.memory,
            frontier=exploration.frontier if exploration else None,
            pending=exploration.pending if exploration else None,
            displaced_leads=displaced_leads(exploration),
            loop_actions=tuple(self.totals.loop_steps.items()),
            entropy=self.entropy_split.sums,
            recall=self.recall_lag.recall,
            stale_score_max=self.stale_score.maximum,
            lost=self.lost,
            trace_id=self.started.trace_id,
            ended=time.time() if self.started.trace_id is not None else None,
        )

    def report(self) -> RunReport:
        """Everything that is known now."""
        return report_of(self)

    @property
    def counted(self) -> Totals:
        """What was counted of it here."""
        return self.totals if self.carried is None else self.totals.without(self.carried)

    def state(self) -> dict[str, Any]:
        """Everything that is kept, as plain data that JSON can carry."""
        return state_of_run(self)

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave; for a run that was opened as that one was.

        Raises:
            ValueError: the state is of another version, or not of that form.
        """
        load_run(self, state)
        self.carried = Totals()
        self.carried.add(self.totals)

    def _be_patient(self, step: DigestedStep, now: float | None) -> None:
        # Once one tool is declared the calls of others count, too: they end its waiting.
        if self.patience is None:
            self.patience = Patience()
        declared = step.declared or [None] * len(step.calls)
        self.patience.issue(declared, now if step.time is None else step.time)

    def _count_loop(self, onsets: int, t: int) -> None:
        """Steps became loop steps with step ``t``; there were so many onsets before it."""
        loops, totals = self.loops, self.totals
        if loops.onsets != onsets:
            self._onset("cycle", t, excused=self.excused)
        for looping in loops.cycle_names:
            label = self._actions.admit(looping)
            totals.loop_steps[label] = totals.loop_steps.get(label, 0) + 1

    def _count_onsets(self, step: ObservedStep) -> None:
        if self.result_streak.current == self._onset_at:
            patience = self.patience
            excused = patience is not None and patience.excused >= self._onset_at
            self._onset("result_streak", step.t, excused=excused)
        if step.failed and self.failed_rounds.current == self._onset_at:
            self._onset("failed_rounds", step.t)

    def _count_not_comparable(self, name: str, parts: Sequence[str]) -> None:
        counts = self.totals.not_comparable
        for part in parts:
            key = (self._actions.admit(name), part)
            counts[key] = counts.get(key, 0) + 1

    def _follow(self, step: ObservedStep) -> None:
        """Where a run stands that tells places and tasks."""
        exploration, navigation = self.exploration, self.navigation
        if exploration is None or navigation is None:
            return
        exploration.update(step)
        navigation.update(step)
        totals = self.totals
        totals.exploration_required = exploration.exploration_required
        totals.exploration_errors = exploration.exploration_errors
        totals.exploitation_required = exploration.exploitation_required
        totals.exploitation_errors = exploration.exploitation_errors
        totals.backtracks = navigation.backtracks
        if exploration.leads.visited_age is not None:
            if totals.lead_ages is None:
                totals.lead_ages = Buckets(LEAD_AGE_BOUNDS)
            totals.lead_ages.observe(exploration.leads.visited_age)

    def _onset(self, kind: str, t: int, *, excused: bool = False) -> None:
        onsets = self.totals.onsets
        onsets[kind] = onsets.get(kind, 0) + 1
        self._exemplify("loops", kind)
        if self.trail is not None and not excused:
            self.trail.happened(kind, t, "")

    def _exemplify(self, *counted: str) -> None:
        trace_id = self.started.trace_id
        if trace_id is not None:
            self.totals.exemplars[counted] = Exemplar(trace_id, 1.0, time.time())

    def _count_recall(self) -> None:
        recall = self.recall_lag.recall
        if recall is not None:
            lags = self.totals.recall_lags = Buckets(RECALL_BOUNDS)
            lags.counts, lags.total = list(recall.counts), float(recall.total)

    def explore(self) -> None:
        """From here on the run tells places or tasks."""
        started = self.started
        self.exploration = Exploration(
            place=started.place,
            exits=started.exits,
            tasks=started.tasks,
            goal=started.goal,
            reach=started.reach,
            directed=self._directed,
            distance=None if self._distance is None else _NOT_ASKED,
        )
        self.exploration.stale_score = self.stale_score  # goes on from the states so far
        self.navigation = Navigation(place=started.place)

    @property
    def excused(self) -> bool:
        """Whether the loop that the run is in proves no standstill."""
        patience, period = self.patience, self.loops.period
        return patience is not None and 0 < period <= patience.excused

    def _save(self, step: ObservedStep, beyond: float | None) -> None:
        """Count what a stop would have saved; what chose the stopped step was spent already."""
        totals, stopped = self.totals, self.first_would_stop
        at_issue = stopped is not None and step.t == stopped[0]
        tokens = beyond if at_issue else step.tokens
        totals.saved_tokens += addable(tokens or 0.0)
        totals.saved_seconds += addable(step.seconds or 0.0)

    def _signals(self, t: int, action: bytes, state: bytes, tool: str) -> Signals:
        loops, cost = self.loops, self.loop_cost
        exploration, patience, stale = self.exploration, self.patience, self.stale_score
        period, steps, repetition = loops.period, self.steps, self.repetition
        told = cost.first_step == loops.first_step  # else what it knows is of an earlier loop
        fields = (
            self.started.run,
            t,
            steps,
            action,
            state,
            period,
            loops.repeats,
            loops.first_step,
            steps + 1 - loops.first_step - period if period else 0,
            cost.onset_tokens if told else None,
            cost.onset_seconds if told else None,
            self.result_streak.current,
            self.failed_rounds.current,
            self.recurrence.current,
            self.novelty.current,
            self.started.agent,
            tool,
            patience.excused if patience is not None else 0,
            stale.current,
            stale.rises,
            exploration.frontier if exploration is not None else None,
            exploration.pending if exploration is not None else None,
            exploration.oldest_lead_age if exploration is not None else None,
            self.tokens,
            self.started.task_group,
            steps - len(self.open_steps),
            repetition.current if repetition is not None else None,
            repetition.total if repetition is not None else None,
        )
        return made(Signals, fields)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


_METRICS: Final[dict[str, Callable[[RunState], object]]] = {
    "patience": lambda run: None,
    "loops": lambda run: Loops(max_period=run.loops.max_period),
    "recall_lag": lambda run: RecallLag(),
    "repetition": lambda run: None,
    "loop_cost": lambda run: LoopCost(),
    "result_streak": lambda run: ResultStreak(),
    "failed_rounds": lambda run: FailedRounds(),
    "recurrence": lambda run: Recurrence(max_pairs=1),
    "novelty": lambda run: Novelty(max_outcomes=1),
    "progress_auv": lambda run: ProgressAUV(t_max=run.t_max),
    "entropy_split": lambda run: EntropySplit(),
    "stale_score": lambda run: StaleScore(),
}
"""What stands for a metric that was lost: one that has measured nothing."""
