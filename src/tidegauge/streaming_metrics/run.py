"""One run: its metrics, which take each step when it is issued and observed, and its decisions."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from operator import length_hint
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tidegauge.events import (
    ABSENT,
    Decision,
    RunEnded,
    RunOutcome,
    RunStarted,
    Signals,
    Situation,
    StepSignals,
    ToolDeclaration,
    made,
)
from tidegauge.safety.guard import arrived_from_outside
from tidegauge.streaming_metrics.answers import Answers, take_answer
from tidegauge.streaming_metrics.buckets import Exemplar, addable
from tidegauge.streaming_metrics.calls_per_step import counted_calls
from tidegauge.streaming_metrics.chanting_answers import ChantingAnswers
from tidegauge.streaming_metrics.declaration import Declaration, RunSettings
from tidegauge.streaming_metrics.digested import (
    DigestedAnswer,
    DigestedOutcome,
    DigestedStep,
    compared_calls,
    full_calls,
    round_outcome,
)
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.fingerprint import task_digest
from tidegauge.streaming_metrics.interventions import Interventions
from tidegauge.streaming_metrics.known_noise import united
from tidegauge.streaming_metrics.limits import BoundedNames
from tidegauge.streaming_metrics.live_signals import read_signals
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.polling_allowance import FOUND, PollingAllowance
from tidegauge.streaming_metrics.polls import Polling
from tidegauge.streaming_metrics.records import (
    Answered,
    FinishedRun,
    IssuedStep,
    ObservedStep,
    added,
    all_failed,
    amount,
)
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.registry import (
    ABSENT_FIELDS,
    ANSWERED,
    ISSUED,
    KEPT,
    NO_PLANS,
    OBSERVED,
    RUNS,
    Update,
    brought_metrics,
    is_there_from_start,
    planned_updates,
)
from tidegauge.streaming_metrics.repetition import Repetition
from tidegauge.streaming_metrics.snapshot import GroupKey, RunReport
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.step_history import StepHistory
from tidegauge.streaming_metrics.token_rate import TokenRate
from tidegauge.streaming_metrics.totals import Totals

M = TypeVar("M", bound=Stateful)
S = TypeVar("S", bound=Stateful)

_MAX_UNOBSERVED: Final = 1_000
_OVERLAPPING: Final = 16
"""Steps within which one without a result overlaps the next; later, its result may be lost."""
_MAX_SITUATION: Final = 10

# What a run takes, as `tests/unit/receivers/test_memory.py` measures it.
_NEW_BYTES: Final = 11_000
_ENTRY_BYTES: Final = 64
_OPEN_BYTES: Final = 400
_WINDOWS: Final = ((16, 2_200), (40, 450), (256, 200))
"""Of how many last steps something is kept, and how much of each."""
_COUNT_AFTER: Final = 32
"""Steps after which the entries of its metrics are counted again."""

_SKIPPING: Final = 2
"""What is added to a moment for a step that only waits or thinks: it has separate plans."""


class Decider(Protocol):
    """A policy, which a run asks at both moments of every step. It only computes."""

    def decide(self, run: MeasuredRun, moment: int, blockable: bool, /) -> Decision | None:
        """The decision on the run; ``None``, it continues.

        Args:
            run: the run.
            moment: 0, a step was issued; 1, its result was observed; 2, the model answered without
                a call.
            blockable: whether the issued call can still be answered without being run.
        """


class Issued(NamedTuple):
    """What is kept of a step until its result is observed.

    Runs hold it as a plain tuple, which is made and read at half the cost.
    """

    calls: list[bytes]
    action: bytes
    state: bytes | None
    tokens: float | None
    entropy: float | None
    time: float | None
    now: float | None
    looped: bool
    likeness: float
    name: str = ""
    mutates: bool = False
    reported: bool = False
    skipped: bool = False
    polls: bool = False
    found: bool = False


_Waiting: TypeAlias = tuple[
    list[bytes],
    bytes,
    bytes | None,
    float | None,
    float | None,
    float | None,
    float | None,
    bool,
    float,
    str,
    bool,
    bool,
    bool,
    bool,
    bool,
]
"""The fields of :class:`Issued`."""
_SKIPPED: Final = -3
"""Where :class:`Issued` says that the step is skipped."""


class MeasuredRun:
    """The metrics of one active run. Every method is called with :attr:`lock` held.

    Attributes:
        started: how it began, with a digest of its task.
        group: the group that it counts in.
        settings: the engine's settings for its runs.
        metrics: its metrics, by class.
        totals: the sums that it adds to its group.
        baseline: the part of the totals that was counted elsewhere; ``None``, nothing was.
        history: its last steps; ``None``, they are not kept.
        detects_polls: whether calls that wait are taken for polls.
        said: tokens of answers without calls since the last step; ``None``, not reported.
        lost: metrics that an internal error left incomplete: they are absent from then on.
        unguarded: whether an internal error has switched its policy off.
        policy: the policy's state for this run, opaque to the run.
        saved_policy: the policy's part of the state that the run was loaded from.
        previous: digest of the last result, which is the state before the next step.
        exact_previous: the same with its noise, of steps that wait or think, too.
        last_taken: the last step that does neither.
        skipping: whether the last moment was one of a step that does.
        faults: internal errors that occurred while the lock was held, not recorded yet.
        ended: the record that its group takes, once it has ended.
    """

    __slots__ = (
        "_absent",
        "_counted_at",
        "_entries",
        "_going_on",
        "_plans",
        "actions",
        "agent_name",
        "baseline",
        "detects_polls",
        "ended",
        "exact_previous",
        "faults",
        "finished",
        "group",
        "history",
        "last_seen",
        "last_taken",
        "latest",
        "lock",
        "lost",
        "metrics",
        "open_steps",
        "outcome",
        "policy",
        "previous",
        "refused",
        "said",
        "saved_policy",
        "settings",
        "skipping",
        "started",
        "steps",
        "success",
        "t_max",
        "tokens",
        "totals",
        "unguarded",
    )

    def __init__(
        self,
        started: RunStarted,
        *,
        group: GroupKey,
        settings: RunSettings,
        t_max: int | None,
        actions: BoundedNames[str],
        task: tuple[bytes | None, bytes | None] = (None, None),
        history: StepHistory | None = None,
    ) -> None:
        # Re-entrant for readers: a signal handler may take a snapshot while a step is counted.
        self.lock = threading.RLock()
        self.started = started
        self.agent_name: str | None = None
        self.group = group
        self.settings = settings
        detects = settings.detect_polls
        self.detects_polls = started.detect_polls if detects is None else detects
        self.t_max = t_max
        self.actions = actions
        self.history = history
        self.last_seen = 0.0
        self.steps = 0
        self.tokens: float | None = None
        self.said: float | None = None
        self.totals: Any = Totals()  # the attributes are those that metrics declare
        self.baseline: Totals | None = None
        self.metrics: dict[type[Stateful], Any] = {}
        self.lost: tuple[str, ...] = ()
        self.unguarded = False
        self.policy: Stateful | None = None
        self.saved_policy: Mapping[str, Any] | None = None
        self.faults: list[tuple[str, Exception]] = []
        self.open_steps: dict[int, _Waiting] = {}
        self.refused: Issued | None = None  # the step before, if it was blocked
        self.previous, self.exact_previous = task
        self.last_taken = -1
        self.skipping = False  # whether the last moment was one of a step that waits or thinks
        self.show(StepSignals(started.run, -1, b"", b""))
        self._entries = self._counted_at = 0
        self.finished = False
        self.success: bool | None = None
        self.outcome: RunOutcome = "unknown"
        self.ended: FinishedRun | None = None
        for metric in RUNS:
            if metric.kind is not None and is_there_from_start(metric, started, settings):
                self.metrics[metric.kind] = metric.made(self)
        if started.task is not None:  # its words are forgotten once the metrics are made
            self.started = dataclasses.replace(started, task=task_digest(started.task))
        self.plan()

    def show(self, latest: StepSignals) -> None:
        """What decisions say of the run from now on, if it goes on."""
        self.latest = latest
        self._going_on = Decision(signals=latest)

    def of(self, kind: type[S], /) -> S:
        """The run's metric of that class, which every run has."""
        found: S = self.metrics[kind]
        return found

    def find(self, kind: type[S], /) -> S | None:
        """The run's metric of that class; ``None`` if no step has needed it yet."""
        found: S | None = self.metrics.get(kind)
        return found

    def bring(self, kind: type[S], /) -> S | None:
        """The run's metric of that class, created if necessary; ``None``, it was lost."""
        found: S | None = self.metrics.get(kind)
        if found is None and (metric := _BY_KIND[kind]).name not in self.lost:
            found = self.metrics[kind] = metric.made(self)
            self.plan()
        return found

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that it takes, about."""
        steps = self.steps
        if steps - self._counted_at >= _COUNT_AFTER:
            self._entries = sum([metric.entries for metric in self.metrics.values()])
            self._counted_at = steps
        held = _NEW_BYTES + _ENTRY_BYTES * self._entries + _OPEN_BYTES * len(self.open_steps)
        for first, size in _WINDOWS:
            held += size * min(steps, first)
        return held

    @property
    def completed_steps(self) -> int:
        """How many steps have their result, without those that only wait or think."""
        allowance = self.find(PollingAllowance)
        if allowance is None:
            return self.steps - len(self.open_steps)
        waiting = [one for one in self.open_steps.values() if not one[_SKIPPED]]
        return self.steps - allowance.skipped - len(waiting)

    def issue(
        self,
        step: DigestedStep,
        now: float | None,
        decider: Decider | None = None,
        full: bool = False,
    ) -> Decision | None:
        """Take an issued action; ``None`` if the run has ended.

        Loops are detected here, before the action runs.

        Args:
            step: the action.
            now: seconds on the engine's clock.
            decider: the policy to ask.
            full: whether the decision has all signals even if the run continues.
        """
        if self.finished:  # another thread is ending it: it has its final numbers
            return None
        # Read at once: a field of a named tuple takes longer than a name.
        (_, calls, action, name, reported, given, declared, tokens, entropy, uses, mentions,
         at, blockable, similarity, words, shown, clues, not_comparable, exact_action,
         exact_state, _, noise, polled) = step  # fmt: skip
        t = self.steps
        own_tokens, said = tokens, self.said
        if said is not None:
            tokens = added(tokens, said)  # it costs what was said before it, too
        when = now if at is None else at
        if polled and not self.detects_polls:
            polled = ()
        skipped = mutates = polls = found = False
        if declared or polled or PollingAllowance in self.metrics:
            skipped, polls, found = self._skips(
                action, declared or [None] * len(calls), polled, when
            )
            if declared:
                of_round = [declared[place] for place in compared_calls(calls)]
                mutates = not [x for x in of_round if x is None or not x.mutates]
        seen = reported if given else self.previous
        if not given:
            exact_state = self.exact_previous
        elif exact_state is None:
            exact_state = reported
        # The agent cannot return to an unknown state: 16 bytes that equal no other state.
        unknown = b"unknown %08d" % t
        state = seen or unknown
        overlaps = bool(self.open_steps) and not (given or skipped) and self._overlaps(t)
        size, duplicates = (1, 0) if len(calls) == 1 else counted_calls(calls, declared)
        taken = (t, state, action, name, uses, mentions, size, declared, when, words,
                 similarity, tokens, at, clues, overlaps, mutates, exact_state or unknown,
                 exact_action, noise, duplicates)  # fmt: skip
        refused = self.refused
        if refused is not None and action == refused.action:
            expected = self.of(Loops).expected
            if expected is not None and (not given or seen == refused.state):
                # Asking again for what was blocked continues the loop, whatever its period.
                taken = (t, *expected, *taken[4:])
        record = made(IssuedStep, taken)
        if now is not None:
            self.last_seen = now
        # From here on the step counts. Nothing can interrupt stores without a call between them;
        # the metrics that follow are each interrupted alone (see _give).
        if not skipped:
            self.refused = None
            self.previous = None
            self.last_taken = t
        self.exact_previous = None
        self.said = None
        self.skipping = skipped
        self.steps = t + 1
        self.totals.steps += 1
        arrived = self._give(ISSUED, record)
        try:
            # Spent when the action was chosen, even if it is never observed.
            if own_tokens is not None:
                self.tokens = own_tokens if self.tokens is None else self.tokens + own_tokens
            metrics = self.metrics
            loops = metrics[Loops]
            settled = () if skipped else loops.settled
            repetition = metrics.get(Repetition)
            likeness = 0.0 if repetition is None else repetition.similarity or 0.0
            waiting = self.open_steps
            if settled and waiting:
                self._settle_open_steps(settled)
            waiting[t] = (calls, action, seen, tokens, entropy, at, now, t in settled, likeness,
                          name, mutates, given, skipped, polls, found)  # fmt: skip
            if len(waiting) > _MAX_UNOBSERVED:
                del waiting[next(iter(waiting))]
            self.latest = made(
                StepSignals,
                (self.started.run, t, action, state, loops.period, loops.repeats,
                 loops.first_step, name, None, None, skipped,
                 loops.repeats_step if settled else -1),
            )  # fmt: skip
            self._going_on = made(Decision, ("go_on", None, None, self.latest, None, None))
            if self.history is not None:
                self.history.issued(t, action, name, settled, shown)
            if not_comparable:
                self.count_not_comparable(name, not_comparable)
        except BaseException as error:
            arrived = self._lose("step", error) or arrived
        if arrived is not None:
            raise arrived
        decision = None
        if decider is not None and not self.unguarded:
            try:
                decision = decider.decide(self, ISSUED, blockable)
            except Exception as error:
                self._switch_off(error)
        if decision is None:
            return Decision(signals=self.signals()) if full else self._going_on
        if decision.action == "block":
            self.observe(DigestedOutcome(step.run, (), t, blocked=True), now)
        return decision

    def answer(
        self,
        answer: DigestedAnswer,
        now: float | None,
        decider: Decider | None = None,
        full: bool = False,
    ) -> Decision | None:
        """Take an answer of the model without a call; the arguments are those of :meth:`issue`."""
        if self.finished:
            return None
        if now is not None:
            self.last_seen = now
        _, digest, shown, messages, tokens, at = answer
        arrived: BaseException | None = None
        try:
            answers = self.bring(Answers)
            if answers is not None:
                self.skipping = False
                record = Answered(digest, shown, messages, time.time() if at is None else at)
                take_answer(self, answers, record)
        except BaseException as error:
            arrived = self._lose("answers", error)
        if tokens is not None:
            self.tokens = tokens if self.tokens is None else self.tokens + tokens
            self.said = added(self.said, tokens)
            rate = self.metrics.get(TokenRate)
            if rate is not None:
                rate.answer(now if at is None else at, tokens)
        if arrived is not None:
            raise arrived
        decision = None
        if decider is not None and not self.unguarded:
            try:
                decision = decider.decide(self, ANSWERED, False)
            except Exception as error:
                self._switch_off(error)
        if decision is None:
            return Decision(signals=self.signals()) if full else self._going_on
        return decision

    def _skips(
        self,
        action: bytes,
        declared: Sequence[ToolDeclaration | None],
        polled: Sequence[Polling | None],
        when: float | None,
    ) -> tuple[bool, bool, bool]:
        """Whether the step only waits or thinks, may poll, and polls without a declaration."""
        allowance = self.bring(PollingAllowance)
        if allowance is None:
            return False, False, False
        declared = allowance.resolved(action, declared, polled)
        polls = [one for one in declared if one is not None and one.poll]
        found = bool(polls) and not [one for one in polls if one is not FOUND]
        may_poll = bool(polls) or bool([x for x in polled if x is not None and x.starts is None])
        return allowance.skips(declared, when), may_poll, found

    def _overlaps(self, t: int) -> bool:
        """Whether one of the last steps has no result yet."""
        for earlier, waiting in reversed(self.open_steps.items()):
            if t - earlier > _OVERLAPPING:
                return False
            if not waiting[_SKIPPED]:
                return True
        return False

    def _settle_open_steps(self, settled: Sequence[int]) -> None:
        """Steps whose results are still to come turned out to be loop steps."""
        for earlier in settled:
            waiting = self.open_steps.get(earlier)
            if waiting is not None:
                self.open_steps[earlier] = Issued(*waiting)._replace(looped=True)

    def observe(
        self,
        outcome: DigestedOutcome,
        now: float | None,
        decider: Decider | None = None,
        full: bool = False,
    ) -> Decision | None:
        """Take a step's result; ``None`` if no open step has this index, or the run has ended.

        The arguments are those of :meth:`issue`.
        """
        if now is not None:
            self.last_seen = now
        step = outcome.step
        t = self.steps - 1 if step is None else step
        issued = self.open_steps.get(t)
        if issued is None or self.finished:
            return None
        # Read at once: a field of a named tuple takes longer than a name.
        (_, results, _, place, exits, tasks, achieved, progress, tokens, seconds, at, blocked,
         shown, nearer, clues, exact, empty, negative, noise, numbers) = outcome  # fmt: skip
        (calls, action, state, spent, entropy, began, since, looped, likeness, name, mutates,
         reported, skipped, polls, found) = issued  # fmt: skip
        # A log that is read while something runs is a place, too: that is no more than waiting.
        if skipped and not found and (place is not None or exits is not None or tasks or achieved):
            skipped = False  # it did more than wait
        latest = t == self.last_taken
        refused = self.refused
        compared, said = calls, (1 << len(calls)) - 1
        whole_round = None
        if exact is not None:
            whole_round = [(one, failed) for one, (_, failed) in zip(exact, results, strict=True)]
        if len(calls) > 1:
            places = compared_calls(calls)
            if len(places) < len(calls):  # its thoughts are left out
                whole_round = whole_round or [*results]
                compared = [calls[place] for place in places]
                said = sum([1 << place for place in places])
                places = [place for place in places if place < len(results)]
                results = [results[place] for place in places]
                noise = [noise[place] for place in places] if noise else noise
        if blocked:
            # The loop is taken to continue as it did, so that insisting on it escalates.
            expected = self.of(Loops).expected if latest else None
            digest = expected[0] if expected is not None else None
            refused = Issued(*issued) if expected is not None else None
            results = ()
            seconds = None
            whole = digest
        else:
            if len(compared) == 1 and results:  # as nearly always: a call less
                digest = None if results[0][0] is ABSENT else results[0][0]
            else:
                digest = round_outcome(compared, results)
            whole = digest
            if whole_round is not None:
                whole = round_outcome(full_calls(calls), whole_round)
            if seconds is not None:
                seconds = amount(seconds)
            else:
                # Reported times and those of our clock cannot be subtracted from one another.
                start, end = (since, now) if began is None or at is None else (began, at)
                if start is not None and end is not None and end >= start:
                    seconds = end - start
        says_no = said > 0 and negative & said == said
        size = len(compared)
        left_out: Sequence[str] = ()
        for kinds in noise[:size]:
            left_out = united(left_out, kinds)
        failed = results[0][1] if size == 1 and results else all_failed(results, size)
        recurrence = self.metrics[Recurrence]
        taken = (
            t,
            action,
            digest,
            size,
            failed,
            spent if tokens is None else added(spent, tokens),
            seconds,
            progress,
            entropy,
            looped,
            place,
            exits,
            tasks,
            achieved,
            state,
            likeness,
            latest,
            tokens,
            nearer,
            clues,
            mutates,
            mutates and not failed and not blocked,
            reported,
            said > 0 and empty & said == said,
            says_no,
            recurrence.count(action, digest),
            left_out,
            numbers if len(calls) == 1 and not blocked else None,
        )
        record = made(ObservedStep, taken)
        # From here on the result counts; as in issue().
        del self.open_steps[t]
        self.refused = refused
        if latest:
            self.previous = digest
        if t == self.steps - 1:
            self.exact_previous = whole
        self.skipping = skipped
        arrived = self._give(OBSERVED, record)
        try:
            if tokens is not None:
                self.tokens = added(self.tokens, tokens)
            if polls:
                self.of_waiting(action, digest, failed=says_no if failed is None else failed)
            stale, exploration = self.metrics.get(StaleScore), self.metrics.get(Exploration)
            score = None if stale is None else stale.current
            if latest and (score or exploration is not None):
                case = None if exploration is None else exploration.case
                self.latest = self.latest._replace(stale_score=score, case=case)
                self._going_on = made(Decision, ("go_on", None, None, self.latest, None, None))
            if self.history is not None:
                self.history.observed(record, self.of(StaleScore).current, shown)
            if digest is None and any(one[0] is None for one in results):
                self.count_not_comparable(name, ("result",))
        except BaseException as error:
            arrived = self._lose("step", error) or arrived
        if arrived is not None:
            raise arrived
        decision = None
        if decider is not None and not self.unguarded:
            try:
                decision = decider.decide(self, OBSERVED, False)
            except Exception as error:
                self._switch_off(error)
        if decision is None:
            return Decision(signals=self.signals()) if full else self._going_on
        return decision

    def of_waiting(self, action: bytes, outcome: bytes | None, *, failed: bool) -> None:
        """A call that polls, or may, has given a result, which may be new."""
        allowance = self.find(PollingAllowance)
        if allowance is not None:
            allowance.observe(action, outcome, failed=failed)

    def _give(self, moment: int, record: IssuedStep | ObservedStep) -> BaseException | None:
        """Give every metric a step. One that fails is lost, and the others take the step.

        Returns:
            An exception that arrived from outside meanwhile, to be raised at the end.
        """
        arrived: BaseException | None = None
        updates: Iterator[Update] | None = None
        names: tuple[str, ...] = ()
        if self.skipping:
            moment += _SKIPPING
        missing = self._absent[moment]
        while True:
            try:
                if updates is None:
                    if missing is not None and missing[0](record) != missing[1]:
                        arrived = self._bring(moment, record) or arrived
                    plan, names = self._plans[moment]
                    updates = iter(plan)
                for update in updates:
                    if update(record) is True:
                        self.count_onset(names[-1 - length_hint(updates)], record.t)
                return arrived
            except BaseException as error:
                left = len(names) if updates is None else length_hint(updates)
                name = names[-1 - left] if left < len(names) else "brought"
                outside = self._lose(name, error)
                arrived = outside or arrived
                if updates is None and outside is None:
                    missing = None  # it would fail again

    def _lose(self, name: str, error: BaseException) -> BaseException | None:
        """Drop a metric that failed, because it may be incomplete, and switch the policy off.

        The other metrics still take the step, so that they all count the same steps.

        Returns:
            The exception, if it arrived from outside; else ``None``, and it will be recorded.
        """
        self.unguarded = True
        metric = _BY_NAME.get(name)
        if metric is not None and name not in self.lost:
            self._drop(metric)
            if metric.feeds is not None:  # may be incomplete, too
                self._drop(_BY_KIND[metric.feeds])
            self.plan()
        if not isinstance(error, Exception) or arrived_from_outside(error):
            return error
        self.faults.append((f"metric.{name}", error))
        return None

    def _drop(self, metric: Declaration[Any]) -> None:
        if metric.name in self.lost:
            return
        self.all_totals()  # what it has added up stays
        self.lost = (*self.lost, metric.name)
        if metric.kind is None:
            return
        if metric.always:
            self.metrics[metric.kind] = metric.made(self)
        else:
            self.metrics.pop(metric.kind, None)

    def _bring(self, moment: int, record: Any) -> BaseException | None:
        """Create the metrics that a step needs and that the run does not have yet."""
        arrived: BaseException | None = None
        for metric in brought_metrics(moment % _SKIPPING, record):
            if moment >= _SKIPPING and not metric.takes_skipped:
                continue
            kind = metric.kind
            if kind is None or kind in self.metrics or metric.name in self.lost:
                continue
            if metric.feeds is not None and _BY_KIND[metric.feeds].name in self.lost:
                continue
            try:
                self.metrics[kind] = metric.made(self)
            except BaseException as error:
                arrived = self._lose(metric.name, error) or arrived
            self.plan()  # not for nothing: a metric that was lost is called for at every step
        return arrived

    def plan(self) -> None:
        """Plan which updates each step needs, by the metrics that the run has."""
        self._plans, self._absent = planned_updates(self, self.metrics, self.lost)

    def _switch_off(self, error: Exception) -> None:
        """After an internal error of the policy, the run gets no more decisions."""
        self.unguarded = True
        if arrived_from_outside(error):
            raise error
        self.faults.append(("policy", error))

    def signals(self) -> Signals:
        """All signals of the run now."""
        return read_signals(self)

    def situation(self) -> Situation:
        """Where the agent can continue, and what it repeats."""
        exploration, loops = self.find(Exploration), self.of(Loops)
        repeated = tuple(loops.cycle_names[:_MAX_SITUATION]) if loops.period else ()
        if exploration is None:
            return Situation(repeated=repeated)
        return Situation(
            exploration.here,
            tuple(islice(exploration.unexplored, _MAX_SITUATION)),
            tuple(islice(exploration.ready, _MAX_SITUATION)),
            repeated,
        )

    def chanted(
        self, share: float, now: float | None, decider: Decider | None = None
    ) -> Decision | None:
        """Take how much of the model's answer repeats itself, so far; 0, another answer begins.

        Args:
            share: as :class:`~tidegauge.chanting.Chanting` has it.
            now: seconds on the engine's clock.
            decider: the policy to ask.
        """
        answers = None if self.finished else self.bring(ChantingAnswers)
        if answers is None:
            return None
        if now is not None:
            self.last_seen = now
        answers.take(share)
        if not share or decider is None or self.unguarded:
            return None
        try:
            return decider.decide(self, ANSWERED, False)
        except Exception as error:
            self._switch_off(error)
            return None

    def policy_state(self, make: Callable[[], S]) -> S:
        """The policy's state for this run, created on the first call."""
        state = self.policy
        if state is None:
            state = make()
            if self.saved_policy is not None:
                state.load(self.saved_policy)
            self.policy = state
        found: Any = state
        return found  # type: ignore[no-any-return]

    def intervene(self, action: str, reason: str, step: int) -> None:
        """Count an intervention, or one that would have been (``would_stop``).

        A stop counts once a run for each reason, a nudge and a blocked call each time.
        """
        counted = self.totals.interventions
        key = (action, reason)
        if action in ("stop", "would_stop") and key in counted:
            return
        interventions = self.bring(Interventions)
        counted[key] = counted.get(key, 0) + 1
        self._exemplify("interventions", *key)
        if self.history is not None:
            self.history.intervened(action, reason, step)
        if interventions is None:
            return
        if action == "stop":
            interventions.stop(step, reason)
        elif action == "would_stop" and interventions.would_stop is None:
            interventions.observed_stop(step, reason, waits=step in self.open_steps)
            self.totals.saved_steps += max(self.steps - (interventions.saved_from or 0), 0)
            for t, (_, _, _, tokens, *_) in self.open_steps.items():
                if t > step and tokens is not None:
                    self.totals.saved_tokens += addable(tokens)

    def count_onset(self, kind: str, step: int) -> None:
        """Count and log the onset of a loop."""
        onsets = self.totals.onsets
        onsets[kind] = onsets.get(kind, 0) + 1
        self._exemplify("loops", kind)
        if self.history is not None:
            self.history.report(kind, step, "")

    def count_not_comparable(self, name: str, parts: Sequence[str]) -> None:
        """Count parts of a step that cannot be compared."""
        counts = self.totals.not_comparable
        for part in parts:
            key = (self.actions.admit(name), part)
            counts[key] = counts.get(key, 0) + 1

    def _exemplify(self, *counted: str) -> None:
        trace_id = self.started.trace_id
        if trace_id is not None:
            self.totals.exemplars[counted] = Exemplar(trace_id, 1.0, time.time())

    def end(self, event: RunEnded) -> FinishedRun:
        """Close the run. Returns the record that its group takes."""
        self.close()
        self.agent_name = event.agent_name
        interventions = self.find(Interventions)
        stopped = interventions is not None and interventions.stopped is not None
        outcome = event.outcome or ("stopped" if stopped else None)
        success = event.success
        if success is None and outcome in ("stopped", "error"):
            success = False
        if outcome is None:
            outcome = "unknown" if success is None else "success" if success else "failure"
        self.success, self.outcome = success, outcome
        started = self.started
        numbers: dict[str, Any] = {}
        for metric in RUNS:
            found = None if metric.kind is None else self.metrics.get(metric.kind)
            if metric.ended is not None and found is not None:
                numbers.update(self._numbers(metric, metric.ended, found))
        self.ended = FinishedRun(
            success=success,
            steps=self.steps,
            outcome=outcome,
            reason=event.reason,
            task=started.task,
            t_max=self.t_max,
            operations=started.operations,
            height=started.height,
            memory=started.memory,
            lost=self.lost,
            trace_id=started.trace_id,
            ended=time.time() if started.trace_id is not None else None,
            **numbers,
        )
        return self.ended

    def close(self) -> None:
        """Take no more steps."""
        self.finished = True
        self._plans = NO_PLANS  # they refer to the run: it is freed without the cyclic collector

    def report(self) -> RunReport:
        """A report of everything that is measured now."""
        numbers = dict(ABSENT_FIELDS)
        for metric in RUNS:
            if metric.report is not None:
                found = None if metric.kind is None else self.metrics.get(metric.kind)
                if found is not None or metric.kind is None:
                    numbers.update(self._numbers(metric, metric.report, found))
        started = self.started
        return RunReport(
            run=started.run,
            group=self.group,
            agent=started.agent,
            agent_name=self.agent_name,
            task_group=started.task_group,
            memory=started.memory,
            model=started.model,
            trace_id=started.trace_id,
            steps=self.steps,
            t_max=self.t_max,
            finished=self.finished,
            success=self.success,
            outcome=self.outcome,
            tokens=self.tokens,
            unguarded=self.unguarded,
            lost=self.lost,
            numbers=numbers,
        )

    def _numbers(
        self,
        metric: Declaration[Any],
        read: Callable[[MeasuredRun, Any], Mapping[str, Any]],
        found: Any,
    ) -> Mapping[str, Any]:
        """The fields of a metric; none if it fails, so that the run can be shown and ended."""
        try:
            return read(self, found)
        except Exception as error:
            if arrived_from_outside(error):
                raise
            if metric.name not in self.lost:  # counted once, however often the run is read
                self._lose(metric.name, error)
            return {}

    def all_totals(self) -> Totals:
        """The totals, those that metrics add up themselves included."""
        totals: Totals = self.totals
        for name, kind, total, kept_as in KEPT:
            metric = self.metrics.get(kind)
            if metric is not None and name not in self.lost:
                setattr(totals, total, getattr(metric, kept_as))
        return totals

    @property
    def counted(self) -> Totals:
        """The totals that were counted here."""
        totals = self.all_totals()
        return totals if self.baseline is None else totals.without(self.baseline)

    def restore_ended(self) -> None:
        """End the restoration: everything so far was counted elsewhere."""
        self.baseline = Totals()
        self.baseline.add(self.all_totals())


_BY_NAME: Final[Mapping[str, Declaration[Any]]] = {metric.name: metric for metric in RUNS}
_BY_KIND: Final[Mapping[type[Stateful], Declaration[Any]]] = {
    metric.kind: metric for metric in RUNS if metric.kind is not None
}
