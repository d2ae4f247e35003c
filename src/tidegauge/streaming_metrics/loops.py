"""Loops: the last steps repeat the steps before them, one by one.

This is what every surface means by *loop*. The paper's loop ratio, which forbids a state to repeat
inside a cycle, is :mod:`~tidegauge.streaming_metrics.tide_loops`.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, ClassVar, Final, NamedTuple

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.events import made
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    Measured,
    RunView,
    Signal,
    Sum,
    counts,
    loop_in_words,
    no_counts,
    zero,
)
from tidegauge.streaming_metrics.limits import OTHER
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

MAX_PERIOD: Final = 256
"""Longest period of a loop that is found, in steps."""

_MAX_TOOLS: Final = 10
_MAX_OWN: Final = 64
_RECENT: Final = 16
"""Steps for which an action that overlaps others counts as one that still goes on."""

LASTING: Final = 2
"""Repeats from which a loop lasts. One repeat is often a retry that ends by itself."""

_ALL_LAGS: Final = (1 << MAX_PERIOD + 1) - 2  # bits 1 to MAX_PERIOD
_LAGS_WITH_BIT: Final = tuple(
    sum(1 << lag for lag in range(1, MAX_PERIOD + 1) if lag >> bit & 1)
    for bit in range(MAX_PERIOD.bit_length())
)
"""For each binary digit, the lags that have it."""


def steps_of_evidence(period: int) -> int:
    """Repeating steps that are enough evidence of a loop: a long cycle needs fewer rounds.

    >>> [steps_of_evidence(period) for period in (1, 2, 3, 6, 12, 40)]
    [3, 6, 6, 12, 12, 40]
    """
    return 3 * period if period < 3 else min(2 * period, max(period, 12))


class Loop(NamedTuple):
    """A stretch of steps that loop.

    Attributes:
        first_step: the first step that repeats another.
        period: steps of one round, at the height of the stretch.
        repeats: complete rounds after the first one, at its height.
        steps: steps that repeat, those of a round that is not complete included.
    """

    first_step: int
    period: int
    repeats: int
    steps: int


class _Taken(NamedTuple):
    """A step of the sequence in which loops are looked for."""

    state: bytes
    action: bytes
    name: str
    t: int
    at: float | None


class _Live(NamedTuple):
    """A live period: as many of the last steps repeat those before them.

    Attributes:
        period: in steps.
        since: place in the sequence of the first step that repeats.
        first_step: index of that step in the run.
        at: when it was issued; ``None``, not known.
        called_before: whether the step before that one made the calls of the step a period before
            it, after another result: people count it as repeated.
    """

    period: int
    since: int
    first_step: int
    at: float | None
    called_before: bool


class _Own(NamedTuple):
    """An action that is issued while others wait for their results: a separate sequence.

    Attributes:
        result: its last result; ``None``, there is none yet.
        times: how often that came in a row.
        last: the step that issued it last.
        since: the first step that repeated it; -1, none has.
        name: its name.
    """

    result: bytes | None
    times: int
    last: int
    since: int
    name: str


class Loops(Metric[IssuedStep]):
    """The loop that a run is in, and all that it was in.

    Two steps are equal if the agent saw the same and chose the same. A period p is *live* while the
    last p steps equal the p steps before them, one by one; the run loops while any period is live.
    This is known when the last of these actions is issued, before it runs. :attr:`period` is the
    live one with the most complete repeats, so that a short cycle inside a long one hides nothing.

    Steps that are issued while another one has no result (parallel workers), and report no state,
    have no order that means anything: there, an action that gives the same result again and again
    loops with period 1. A loop whose steps all changed something with success is none. Steps that
    wait within their polling allowance, or only think, are not passed to this class.

    Exact for every period up to :data:`MAX_PERIOD`. O(1) a step: for each lag up to that cap, a bit
    says whether it still matches, so that a step takes a few operations on integers of 257 bits,
    and one look-up if it is new. Memory: the last :data:`MAX_PERIOD` steps.

    Args:
        max_loops: how many loops are listed in :attr:`loops`; later ones are only counted.

    Attributes:
        loop_steps: steps that repeat, of all loops.
        settled: indexes of the steps that turned out to be loop steps with the last one.
        pending: how many of the last steps may still turn out to be loop steps.
        period: steps of one round of the current loop; 0, there is none.
        repeats: complete rounds of it after the first one.
        times: how often its calls were repeated, as people count: of three equal calls twice,
            although what came before the first one was another result.
        evidence: repeating steps over those that are enough (:func:`steps_of_evidence`).
        evidence_max: the most that it was in the run.
        first_step: its first step that repeats another; -1, there is none.
        since: when that was issued, in seconds since the epoch; ``None``, not known.
        onsets: how many loops have begun.

    >>> loops = Loops()
    >>> for t in range(9):
    ...     loops.update(IssuedStep(t, b"ok", [b"open", b"edit", b"test"][t % 3]))
    >>> loops.period, loops.repeats, loops.first_step, loops.loop_steps
    (3, 2, 3, 6)
    """

    takes: ClassVar[type] = IssuedStep
    version: ClassVar[int] = 6
    computed: ClassVar[frozenset[str]] = frozenset({"_places"})
    holds: ClassVar[tuple[type, ...]] = (Loop, _Taken, _Live, _Own)
    __slots__ = (
        "_changed",
        "_counters",
        "_covered",
        "_first_place",
        "_height",
        "_listed",
        "_listed_times",
        "_live",
        "_lived",
        "_own",
        "_own_steps",
        "_places",
        "_recent",
        "_shown",
        "_taken",
        "dropped_loops",
        "evidence",
        "evidence_max",
        "first_step",
        "lasting",
        "loop_steps",
        "max_loops",
        "onsets",
        "pending",
        "period",
        "repeats",
        "settled",
        "since",
        "steps",
        "times",
    )

    def __init__(self, *, max_loops: int = 1_000) -> None:
        self.max_loops = max_loops
        self.steps = 0
        self.loop_steps = 0
        self.onsets = 0
        self.dropped_loops = 0
        self.settled: tuple[int, ...] = ()
        self.pending = 0
        # the current loop
        self.period = 0
        self.repeats = 0
        self.times = 0
        self.evidence = 0.0
        self.evidence_max = 0.0
        self.first_step = -1
        self.since: float | None = None
        self.lasting = False  # whether it was counted as one that lasts
        self._height = (0, 0, 0)  # its repeats, repeating steps and -period at its height
        self._first_place = -1  # of its first step; -1, it consists of overlapping steps
        self._own_steps = 0  # those of them that repeat
        self._shown: bytes | None = None  # the action, if it is a loop of overlapping steps
        self._listed: list[Loop] = []
        self._listed_times: list[int] = []
        # the sequence
        self._taken = 0  # how many steps it has
        self._recent: deque[_Taken] = deque()  # the last of them
        # Of each step among those: bit k, it stood k places before the last such place; that place.
        self._places: dict[bytes, tuple[int, int]] = {}
        # How many of the last steps equal the step a lag before, for each lag: the binary digits of
        # that count, the lowest first, each for all lags.
        self._counters: list[int] = []
        self._lived = 0  # the lags that have become live periods and still match
        self._live: list[_Live] = []  # without multiples that say nothing more
        self._covered = 0  # bit k: the step k places before the last one is a loop step
        self._changed = 0  # bit k: that step changed something with success
        self._own: dict[bytes, _Own] = {}  # by action, the one issued last at the end

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step."""
        # Nothing here raises: only digests are compared and looked up.
        self.steps += 1
        self.settled = ()
        if step.overlaps:
            self._take_own(step)
        else:  # it continues the sequence: which lags still match?
            t, state, action, name = step[:4]
            here = self._taken
            self._taken = here + 1
            key = state + action
            known = self._places.get(key)
            matches = 0 if known is None else known[0] << here - known[1] & _ALL_LAGS
            self._places[key] = (matches | 1, here)
            recent = self._recent
            at = step.at
            if matches and at is None and step.time is not None:
                at = time.time()
            recent.append(made(_Taken, (state, action, name, t, at)))
            if len(recent) > MAX_PERIOD + 1:
                oldest = recent.popleft()
                key = oldest.state + oldest.action
                if self._places[key][1] == here - MAX_PERIOD - 1:
                    del self._places[key]
            self._covered = self._covered << 1 & _ALL_LAGS
            if self._changed:
                self._changed = self._changed << 1 & _ALL_LAGS
            if matches:
                self._match(matches, here)
            elif self._counters:
                self._counters.clear()
                self._live.clear()
                self._lived = self.pending = 0
        if self._live or self._own:
            self._choose(step.t)
        elif self.period:
            self._leave()

    def observe(self, step: ObservedStep) -> None:
        """Take a result. Only steps that overlap, or that changed something, need it."""
        place = self._place_of(step.t) if step.changed else -1
        if place >= 0:
            self._changed |= 1 << self._taken - 1 - place
        own = self._own
        if not own:
            return
        action, outcome = step.action, step.outcome
        one = own.get(action)
        if step.changed or outcome is None:
            own.pop(action, None)
        elif one is not None:
            own[action] = (
                one._replace(times=one.times + 1)
                if outcome == one.result
                else one._replace(result=outcome, times=1, since=-1)
            )
        elif len(own) < _MAX_OWN:
            own[action] = _Own(outcome, 1, step.t, -1, self._name_at(step.t))

    def compute(self) -> None:
        """Find the places of the last steps again."""
        self._places = {}
        for place, one in enumerate(self._recent, self._taken - len(self._recent)):
            key = one.state + one.action
            known = self._places.get(key)
            matches = 0 if known is None else known[0] << place - known[1] & _ALL_LAGS
            self._places[key] = (matches | 1, place)

    @property
    def value(self) -> float | None:
        """Loop ratio: loop steps / steps."""
        return self.loop_steps / self.steps if self.steps else None

    @property
    def loops(self) -> list[Loop]:
        """Each loop so far, in order."""
        return self._listed.copy()

    @property
    def longest(self) -> tuple[int, int]:
        """Period and times of the loop with the most steps so far; zeros, there was none."""
        listed = zip(self._listed, self._listed_times, strict=True)
        loop, times = max(listed, key=lambda one: one[0].steps, default=(_NO_LOOP, 0))
        return loop.period, times

    @property
    def current_steps(self) -> int:
        """Steps of the current loop, those of a round that is not complete included."""
        if not self.period:
            return 0
        return self._own_steps + (self._taken - self._first_place if self._first_place >= 0 else 0)

    @property
    def cycle_names(self) -> list[str]:
        """Names of the actions of the last round of the current loop."""
        if not self.period:
            return []
        if self._shown is not None:
            return [self._own[self._shown].name] if self._shown in self._own else []
        return [self._recent[-back].name for back in range(self.period, 0, -1)]

    @property
    def pending_since(self) -> int | None:
        """The first step that may still turn out to be a loop step; ``None``, there is none."""
        return self._recent[-self.pending].t if self.pending else None

    @property
    def repeats_step(self) -> int:
        """The step that the last one repeats, in a loop of the sequence; -1, none."""
        if not self.period or self._shown is not None or not self.settled:
            return -1
        return self._recent[-1 - self.period].t

    @property
    def expected(self) -> tuple[bytes, bytes, str] | None:
        """State, action and name of the next step if the loop continues; ``None``, no loop."""
        if not self.period:
            return None
        if self._shown is not None:
            own = self._own.get(self._shown)
            return None if own is None else (own.result or b"", self._shown, own.name)
        return self._recent[-self.period][:3]

    def name_of(self, t: int) -> str:
        """Name of the action of a step that has settled just now."""
        return self._own[self._shown].name if self._shown in self._own else self._name_at(t)

    def _name_at(self, t: int) -> str:
        place = self._place_of(t)
        return "" if place < 0 else self._recent[place - self._taken].name

    def _place_of(self, t: int) -> int:
        """The place of a step in the sequence; -1, it is none of the last ones there."""
        place = self._taken - 1
        for taken in reversed(self._recent):  # most results arrive at once
            if taken.t <= t:
                return place if taken.t == t else -1
            place -= 1
        return -1

    def _match(self, matches: int, here: int) -> None:
        """Count the step for each lag that matches, and find the periods that become live."""
        counters = self._counters
        carry = matches
        for digit, one in enumerate(counters):
            kept = one & matches
            counters[digit] = kept ^ carry
            carry &= kept
        if carry and len(counters) < len(_LAGS_WITH_BIT):
            counters.append(carry)
        live = self._live
        if live:
            live = self._live = [one for one in live if matches >> one.period & 1]
        # A lag becomes a live period with the step at which its count is the lag itself.
        begins = matches & (1 << (1 << len(counters))) - 1 & ~self._lived
        for one, lags in zip(counters, _LAGS_WITH_BIT, strict=False):
            begins &= ~(one ^ lags)
        self._lived = self._lived & matches | begins
        while begins:
            period = (begins & -begins).bit_length() - 1
            begins &= begins - 1
            # A multiple of a live period that has lasted as long ends when that ends.
            if not [
                one
                for one in live
                if not period % one.period and here - one.since + 1 >= period - one.period
            ]:
                recent = self._recent
                first = recent[-period]
                called = 2 * period < len(recent)
                called = called and recent[-period - 1].action == recent[-2 * period - 1].action
                live.append(_Live(period, here - period + 1, first.t, first.at, called))
        self.pending = self._longest(matches & ~self._lived)

    def _longest(self, lags: int) -> int:
        """The highest count of these lags."""
        longest = 0
        for digit in range(len(self._counters) - 1, -1, -1) if lags else ():
            with_digit = lags & self._counters[digit]
            if with_digit:
                lags = with_digit
                longest |= 1 << digit
        return longest

    def _take_own(self, step: IssuedStep) -> None:
        """The step overlaps others: does its action give the same result again and again?"""
        own = self._own
        result, count, _, since, _ = own.pop(step.action, _NEW)
        if count > 1:
            self.settled = (step.t,)
            self.loop_steps += 1
            self._own_steps += 1
            since = step.t if since < 0 else since
        if len(own) >= _MAX_OWN:
            del own[next(iter(own))]
        own[step.action] = _Own(result, count, step.t, since, step.name)

    def _choose(self, t: int) -> None:
        """Which of all live periods the loop shows."""
        here = self._taken - 1
        best, evidence, shown, called = (0, 0, 0), 0.0, None, False
        first: tuple[int, float | None, int] = (t + 1, None, -1)
        for period, since, first_step, at, called_before in self._live:
            round_before = (1 << period) - 1
            if self._changed >> 1 & round_before == round_before:
                # each of its steps changed something with success; one that fails may follow
                self.pending = max(self.pending, min(here - since + 1, MAX_PERIOD))
                continue
            length = here - since + 1
            if (length // period, length, -period) > best:
                best, called = (length // period, length, -period), called_before
            evidence = max(evidence, length / steps_of_evidence(period))
            if first_step < first[0]:
                first = (first_step, at, since)
        if best[0]:
            self._cover(here - first[2] + 1)
        for action, own in list(self._own.items()) if self._own else ():
            if t - own.last > _RECENT:
                del self._own[action]
            elif own.since >= 0:
                length = own.times - 1
                evidence = max(evidence, length / steps_of_evidence(1))
                if (length, length, -1) > best:
                    best, shown, called = (length, length, -1), action, True
                if own.since < first[0]:
                    first = (own.since, None, first[2])
        if not best[0]:
            if self.period:
                self._leave()
            return
        begins = not self.period
        self.repeats, self.period, self.evidence = best[0], -best[2], evidence
        self.times = (best[1] + called) // self.period
        self._shown = shown
        self.evidence_max = max(self.evidence_max, evidence)
        if begins:
            self.onsets += 1
            self._own_steps = len(self.settled) if shown is not None else 0
        if begins or first[0] < self.first_step:
            self.first_step, self.since, self._first_place = first
        higher = best > self._height
        self._height = max(self._height, best)
        self._list(begins, self.times if higher else None)

    def _cover(self, length: int) -> None:
        """So many of the last steps are loop steps; most of them are known to be."""
        window = (1 << min(length, MAX_PERIOD)) - 1
        new = window & ~self._covered
        if new:
            self._covered |= window
            recent = self._recent
            backs = range(new.bit_length() - 1, -1, -1)
            self.settled += tuple([recent[-1 - back].t for back in backs if new >> back & 1])
            self.loop_steps += new.bit_count()

    def _list(self, begins: bool, times: int | None) -> None:
        if begins and len(self._listed) >= self.max_loops:
            self.dropped_loops += 1
        if self.dropped_loops:
            return
        repeats, _, period = self._height
        listed = Loop(self.first_step, -period, repeats, self.current_steps)
        if begins:
            self._listed.append(listed)
            self._listed_times.append(self.times)
        else:
            self._listed[-1] = listed
            if times is not None:
                self._listed_times[-1] = times

    def _leave(self) -> None:
        self.period = self.repeats = self.times = self._own_steps = 0
        self.evidence = 0.0
        self.first_step = self._first_place = -1
        self.since = self._shown = None
        self.lasting = False
        self._height = (0, 0, 0)


_NO_LOOP: Final = Loop(-1, 0, 0, 0)
_NEW: Final = _Own(None, 0, -1, -1, "")


LOOP_STEPS: Final = MetricDefinition(
    "tidegauge_loop_steps_total",
    "counter",
    "steps",
    "Steps of loops: they repeated, one by one, the steps just before them; by action. Divided by "
    "tidegauge_steps_total, the loop ratio.",
    labels=(*GROUP_LABELS, "action"),
)
LOOPS: Final = MetricDefinition(
    "tidegauge_loops_total",
    "counter",
    "loops",
    "What began: a loop, a streak of one result (of failures, or of one call), or failed rounds.",
    labels=(*GROUP_LABELS, "kind"),
    values=("loop", "result_streak", "failed_rounds"),
)
RUNS_LOOPING: Final = MetricDefinition(
    "tidegauge_runs_looping",
    "gauge",
    "runs",
    "Active runs in a loop: their last steps, or turns, repeat those before them, one by one.",
)
LASTING_LOOPS: Final = MetricDefinition(
    "tidegauge_lasting_loops_total",
    "counter",
    "loops",
    "Loops that repeated a second time.",
)
LASTING_LOOPS_ACTIVE: Final = MetricDefinition(
    "tidegauge_lasting_loops_active",
    "gauge",
    "loops",
    "Active runs whose current loop has repeated at least twice.",
)
RUN_LOOP_REPEATS: Final = MetricDefinition(
    "tidegauge_run_loop_repeats",
    "gauge",
    "repeats",
    "Complete repetitions of the current loop; 0 without one. Only for the most troubled active "
    "runs.",
    labels=(*GROUP_LABELS, "run"),
)


def _issued(run: RunView, loops: Loops, step: IssuedStep) -> None:
    onsets = loops.onsets
    loops.update(step)
    if not loops.settled:
        return
    totals = run.totals
    counted = totals.loop_steps
    for t in loops.settled:
        label = run.actions.admit(step.name if t == step.t else loops.name_of(t))
        counted[label] = counted.get(label, 0) + 1
    if loops.onsets != onsets:
        run.count_onset("loop", step.t)
    if loops.repeats >= LASTING and not loops.lasting:
        loops.lasting = True
        totals.lasting_loops += 1


def _observed(run: RunView, loops: Loops, step: ObservedStep) -> None:
    if step.changed or loops._own:
        loops.observe(step)


def _report(run: RunView, loops: Loops) -> dict[str, object]:
    looping = loops.period > 0
    return {
        "loop_steps": loops.loop_steps,
        "loop_ratio": loops.loop_steps / run.steps if run.steps else None,
        "loops": loops.loops,
        "loop_period": loops.period,
        "loop_repeats": loops.repeats,
        "loop_times": loops.times,
        "longest_loop": loops.longest,
        "loop_evidence": loops.evidence,
        "loop_evidence_max": loops.evidence_max,
        "looping": looping,
        "loop_first_step": loops.first_step if looping else None,
        "loop_since": loops.since,
        "loop_tools": tuple(loops.cycle_names[:_MAX_TOOLS]),
    }


def _document(report: Any) -> dict[str, object]:
    return {
        "loop_steps": None if "loops" in report.lost else report.loop_steps,
        "loop_ratio": report.loop_ratio,
        "loop_evidence_max": None if "loops" in report.lost else report.loop_evidence_max,
        "loops": [loop._asdict() for loop in report.loops],
    }


def loops_on(report: Any) -> bool:
    """Whether the run, as reported, is in a loop that lasts."""
    return bool(max(report.loop_repeats, report.turn_loop_repeats) >= LASTING)


DECLARATION: Final = Declaration(
    name="loops",
    kind=Loops,
    issued=_issued,
    observed=_observed,
    sums=(
        Sum("loop_steps", no_counts),
        Sum("onsets", no_counts),
        Sum("lasting_loops", zero),
    ),
    absent={
        "loop_steps": 0,
        "loop_ratio": None,
        "loops": (),
        "loop_period": 0,
        "loop_repeats": 0,
        "loop_times": 0,
        "longest_loop": (0, 0),
        "loop_evidence": 0.0,
        "loop_evidence_max": 0.0,
        "looping": False,
        "loop_first_step": None,
        "loop_since": None,
        "loop_tools": (),
    },
    report=_report,
    document=_document,
    ended=lambda run, loops: {
        "loop_steps": loops.loop_steps,
        "loop_actions": tuple(run.totals.loop_steps.items()),
    },
    signals=(
        Signal(
            name="loop_repeats",
            read=Attribute(Loops, "repeats"),
            help="how often the last steps, of any number, repeated those just before them",
            message=lambda now, at: loop_in_words(now),
            blocks=True,
            moment="issued",
        ),
        Signal(
            name="loop_evidence",
            read=Attribute(Loops, "evidence"),
            help="steps that repeat, over those that are enough: 3 of one call, 6 of two, for n "
            "calls n to 12, but no more than two rounds",
            message=lambda now, at: loop_in_words(now),
            threshold="positive",
            blocks=True,
            moment="issued",
        ),
    ),
    details={
        "loop_period": lambda run: run.of(Loops).period,
        "loop_first_step": lambda run: run.of(Loops).first_step,
        "loop_times": lambda run: run.of(Loops).times,
        "repeats_step": lambda run: run.of(Loops).repeats_step,
    },
    of_group=(
        # It is not known beforehand which actions will loop. "other" starts at 0, so that the loop
        # ratio of a group without loops is 0 and not absent.
        Measured(LOOP_STEPS, lambda group: counts(group.totals.loop_steps, known=(OTHER,))),
        Measured(LOOPS, lambda group: counts(group.totals.onsets, known=LOOPS.values)),
        Measured(RUNS_LOOPING, lambda group: sum(run.looping for run in group.active)),
        Measured(LASTING_LOOPS, lambda group: group.totals.lasting_loops),
        Measured(LASTING_LOOPS_ACTIVE, lambda group: sum(map(loops_on, group.active))),
    ),
    of_run=(Measured(RUN_LOOP_REPEATS, lambda run: run.loop_repeats),),
)
