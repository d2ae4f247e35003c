"""Backtest: what stopping at a calibrated threshold would have done to recorded runs.

Repeatedly, some successful runs of a group are drawn to learn the threshold, and every other run of
the group is judged by it: no run is both, and with ``by_task``, no task. Every score is judged on
the same draws, so that they can be compared. The rules to beat are step counts alone.

Needs ``pip install '.[backtest]'``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import xxhash

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.policies.calibration import Guarantee
from tidegauge.policies.trace import RunTrace

try:
    import numpy as np
    from numpy.typing import NDArray
except ModuleNotFoundError as error:
    raise MissingExtraError("numpy", extra="backtest") from error

_MILLION = 1e6


@dataclass(frozen=True)
class Costs:
    """What tokens, lost successes and retries cost, in one currency.

    A stopped run saves its further tokens, and costs a retry. If it would have succeeded, its value
    is lost, too; if a retry brings it back, that value is 0.

    Args:
        prices: price of a million tokens, by the name of the model.
        success_value: value of a successful run.
        retry_cost: cost of each stopped run: of a retry, or of a person who looks at it.
    """

    prices: Mapping[str, float]
    success_value: float = 0.0
    retry_cost: float = 0.0

    def per_token(self, run: RunTrace) -> float | None:
        """Price of a token of the run; ``None``: it reports no tokens, or its model has no price.

        >>> run = RunTrace("r1", model="small")
        >>> run.tokens = 2_000.0
        >>> Costs({"small": 2.0}).per_token(run), Costs({"large": 9.0}).per_token(run)
        (2e-06, None)
        """
        price = None if run.model is None else self.prices.get(run.model)
        return None if run.tokens is None or price is None else price / _MILLION

    def per_stop(self, run: RunTrace) -> float:
        """What stopping the run costs."""
        return self.retry_cost + (self.success_value if run.success else 0.0)


BASELINES: Final = ("steps", "steps_begun")
"""The scores that all others are compared with: steps completed so far, and steps begun."""

_LEAST_GOOD: Final = 30
_LEAST_BAD: Final = 10
_INTERVAL: Final = (2.5, 97.5)

_Floats: TypeAlias = NDArray[np.float64]
_Indices: TypeAlias = NDArray[np.int64]


class _Key(NamedTuple):
    task_group: str
    agent: str


class BootstrapMean(NamedTuple):
    """A mean over the draws, with its 95% bootstrap interval.

    Where runs share a task, whole tasks are resampled.
    """

    value: float
    low: float
    high: float


class BacktestRow(NamedTuple):
    """What one score's threshold did to one group of runs. ``None``: there was nothing to measure.

    Attributes:
        runs: runs whose success is known.
        good: those that succeeded.
        good_stopped: share of the good test runs that were stopped.
        bad_stopped: share of the other test runs that were stopped.
        steps_saved: saved steps / all steps of the test runs.
        tokens_saved: the same of tokens, over the test runs that report them.
        seconds_saved: the same of seconds.
        delay: steps from the onset of trouble (a loop, a streak, failed rounds) to the stop, over
            the bad runs that were stopped and had one; less than 0 if stopped before it.
        stopped_at: mean step, from 1, at which bad runs were stopped.
        with_threshold: share of the draws that gave a threshold.
        oracle: steps that are saved if every bad run, and no other, ends after its first step.
        net: what stopping saves less what it costs, per run, over the test runs whose tokens have a
            price; see :class:`~tidegauge.policies.backtesting.Costs`.
        priced: how many runs that are.
        draws: ``good_stopped``, ``steps_saved`` and ``net``, draw by draw.
    """

    task_group: str
    agent: str
    score: str
    runs: int
    good: int
    good_stopped: BootstrapMean | None
    bad_stopped: BootstrapMean | None
    steps_saved: BootstrapMean | None
    tokens_saved: BootstrapMean | None
    seconds_saved: BootstrapMean | None
    delay: float | None
    stopped_at: float | None
    with_threshold: float
    oracle: float | None
    net: BootstrapMean | None
    priced: int
    draws: Mapping[str, _Floats]

    @property
    def counts(self) -> bool:
        """Whether the group is large enough for the summary: 30 successful runs and 10 others."""
        return self.good >= _LEAST_GOOD and self.runs - self.good >= _LEAST_BAD


class BacktestSummary(NamedTuple):
    """The plain means of a score over the groups that are large enough.

    Attributes:
        good_stopped: mean share of successful runs stopped.
        steps_saved: mean share of steps saved.
        good_stopped_of_task_groups: mean over task groups, each with the mean of its groups.
        steps_saved_of_task_groups: the same of steps saved.
        oracle: mean over the groups of what an oracle saves, see :class:`BacktestRow`.
        net: mean net effect per run, over the groups that have one.
        priced_groups: how many have.
    """

    score: str
    good_stopped: BootstrapMean | None
    steps_saved: BootstrapMean | None
    groups: int
    good_stopped_of_task_groups: BootstrapMean | None
    steps_saved_of_task_groups: BootstrapMean | None
    task_groups: int
    oracle: float | None
    net: BootstrapMean | None
    priced_groups: int


class Backtest(NamedTuple):
    """A backtest's result.

    Attributes:
        rows: one for each group and score.
        summary: one for each score.
        left_out: groups without a row, as (task group, agent, successful runs): too few of them.
    """

    rows: list[BacktestRow]
    summary: list[BacktestSummary]
    left_out: list[tuple[str, str, int]]


def backtest(
    traces: Iterable[RunTrace],
    *,
    scores: Sequence[str],
    guarantee: Guarantee,
    calibration_runs: int = 20,
    repeats: int = 200,
    leave_out_agent: bool = False,
    by_task: bool = False,
    costs: Costs | None = None,
    fixed: Sequence[str] = (),
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> Backtest:
    """Judge scores by what their thresholds would have done, group by group.

    Args:
        traces: runs; those whose success is unknown are ignored.
        scores: names of scores that the traces follow.
        calibration_runs: number of successful runs per threshold; with ``by_task``, of tasks that
            have one.
        repeats: how often they are drawn.
        leave_out_agent: learn each agent's thresholds from other agents' runs of its task
            group only.
        by_task: whether runs of one task may be alike: whole tasks are drawn.
        fixed: names of rules that the traces follow, which stop without a threshold.
        advance: called after each group with its number of runs.

    Raises:
        ConfigurationError: a number is out of range.
    """
    if calibration_runs < 1 or repeats < 1:
        raise ConfigurationError(
            f"calibration_runs {calibration_runs} or repeats {repeats} is out of range; "
            "use at least 1"
        )
    groups = _grouped(traces)
    rows: list[BacktestRow] = []
    left_out: list[tuple[str, str, int]] = []
    for key, runs in groups.items():
        pool = _tasks(
            (
                run
                for other, others in groups.items()
                if other.task_group == key.task_group and (other == key) != leave_out_agent
                for run in others
                if run.success
            ),
            by_task=by_task,
        )
        advance(len(runs))
        if len(pool) < calibration_runs + (not leave_out_agent):
            left_out.append((*key, len(pool)))
            continue
        rng = _generator(seed, key)
        names = list(pool)
        draws = [
            [names[one] for one in rng.choice(len(names), calibration_runs, replace=False)]
            for _ in range(repeats)
        ]
        test = np.ones((repeats, len(runs)))
        if not leave_out_agent:
            places: dict[object, list[int]] = {}
            for index, run in enumerate(runs):
                places.setdefault(_task(run, by_task=by_task), []).append(index)
            for draw, kept in zip(draws, test, strict=True):
                kept[[index for name in draw for index in places[name]]] = 0
        weights = test * _resampled(test, _units(runs), rng)
        for score in scores:
            highest = {name: [run.highest(score) for run in own] for name, own in pool.items()}
            thresholds = [guarantee.threshold([highest[one] for one in draw]) for draw in draws]
            each = [thresholds] * len(runs)
            rows.append(_row(key, score, runs, each, (test, weights), costs=costs))
        rows += [
            _row(key, rule, runs, [[0.0]] * len(runs), (test, weights), costs=costs)
            for rule in fixed
        ]
    return Backtest(rows, [summarise(score, rows) for score in (*scores, *fixed)], left_out)


def backtest_thresholds(
    traces: Iterable[RunTrace],
    above: Callable[[RunTrace, str], float | None],
    *,
    scores: Sequence[str],
    repeats: int = 200,
    costs: Costs | None = None,
    seed: int = 0,
) -> Backtest:
    """Judge given thresholds on runs that they were not learned from.

    Args:
        above: gives the threshold that holds for a run and a score; ``None``, there is none.
        repeats: how often the runs are resampled for the intervals.
    """
    rows = []
    for key, runs in _grouped(traces).items():
        rng = _generator(seed, key)
        test = np.ones((repeats, len(runs)))
        weights = test * _resampled(test, _units(runs), rng)
        for score in scores:
            held = [[above(run, score)] for run in runs]
            if all(threshold is None for (threshold,) in held):
                continue
            rows.append(_row(key, score, runs, held, (test, weights), costs=costs))
    return Backtest(rows, [summarise(score, rows) for score in scores], [])


def summarise(score: str, rows: Iterable[BacktestRow]) -> BacktestSummary:
    """The plain means of a score over the groups that are large enough, and over task groups."""
    own = [row for row in rows if row.score == score and row.counts]
    task_groups: dict[str, list[BacktestRow]] = {}
    for row in own:
        task_groups.setdefault(row.task_group, []).append(row)
    stopped, saved = (
        _mean_of([_of_row(row, which) for row in own]) for which in ("good_stopped", "steps_saved")
    )
    nested = [
        _mean_of([_mean_of([_of_row(row, which) for row in rows]) for rows in task_groups.values()])
        for which in ("good_stopped", "steps_saved")
    ]
    oracles = [row.oracle for row in own if row.oracle is not None]
    priced = [row for row in own if row.net is not None]
    return BacktestSummary(
        score,
        stopped.share,
        saved.share,
        len(own),
        nested[0].share,
        nested[1].share,
        len(task_groups),
        float(np.mean(oracles)) if oracles else None,
        _mean_of([_of_row(row, "net") for row in priced]).share,
        len(priced),
    )


class _Drawn(NamedTuple):
    """A share, and its value in each draw."""

    share: BootstrapMean | None
    draws: _Floats


def _of_row(row: BacktestRow, which: str) -> _Drawn:
    return _Drawn(getattr(row, which), row.draws[which])


def _mean_of(parts: Sequence[_Drawn]) -> _Drawn:
    """The plain mean; nothing if one of them was not measured."""
    known = [part.share.value for part in parts if part.share is not None]
    if not parts or len(known) < len(parts):
        return _Drawn(None, np.empty(0))
    draws = np.mean([part.draws for part in parts], axis=0)
    return _Drawn(BootstrapMean(float(np.mean(known)), *_interval(draws)), draws)


def _task(run: RunTrace, *, by_task: bool) -> object:
    """The task of a run; a run without one counts as a task by itself."""
    return run.task if by_task and run.task is not None else id(run)


def _tasks(runs: Iterable[RunTrace], *, by_task: bool) -> dict[object, list[RunTrace]]:
    tasks: dict[object, list[RunTrace]] = {}
    for run in runs:
        tasks.setdefault(_task(run, by_task=by_task), []).append(run)
    return tasks


def _grouped(traces: Iterable[RunTrace]) -> dict[_Key, list[RunTrace]]:
    groups: dict[_Key, list[RunTrace]] = {}
    for trace in traces:
        if trace.success is not None:
            groups.setdefault(_Key(trace.task_group, trace.agent), []).append(trace)
    return groups


def _generator(seed: int, key: _Key) -> np.random.Generator:
    """A generator that depends on the seed and the group only, not on the other groups."""
    name = f"{key.task_group}\0{key.agent}".encode("utf-8", "surrogatepass")
    return np.random.default_rng([seed, xxhash.xxh3_64_intdigest(name)])


def _units(runs: Sequence[RunTrace]) -> _Indices:
    """What is resampled together with each run: the number of its task, in order."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(_task(run, by_task=True), len(numbers)) for run in runs])


def _resampled(test: _Floats, units: _Indices, rng: np.random.Generator) -> _Floats:
    """How often each run is drawn when the tasks of each repeat's test runs are resampled.

    Attempts at one task are alike: resampled one by one, they would make intervals too narrow.
    """
    tested = np.zeros((len(test), int(units.max()) + 1))
    for unit, one in zip(units, test.T, strict=True):
        tested[:, unit] = np.maximum(tested[:, unit], one)
    sizes = tested.sum(axis=1)
    drawn = np.array(
        [rng.multinomial(int(size), one / size) for size, one in zip(sizes, tested, strict=True)],
        dtype=float,
    )
    found: _Floats = drawn[:, units]
    return found


def _row(
    key: _Key,
    score: str,
    runs: Sequence[RunTrace],
    thresholds: Sequence[Sequence[float | None]],
    draws: tuple[_Floats, _Floats],
    *,
    costs: Costs | None,
) -> BacktestRow:
    """What the thresholds of each run, one a draw or one for all, do to the test runs.

    ``draws`` has which runs are tested, and how often each is when they are resampled.
    """
    test, weights = draws
    repeats = len(test)
    stopped, steps, tokens, seconds = (np.zeros((repeats, len(runs))) for _ in range(4))
    delays, moments = np.full((2, repeats, len(runs)), np.nan)
    for index, run in enumerate(runs):
        rises = run.rises[score]
        values = [rise.value for rise in rises]
        own = thresholds[index]
        for draw in range(repeats):
            threshold = own[draw if len(own) > 1 else 0]
            at = len(rises) if threshold is None else bisect_right(values, threshold)
            if at == len(rises):
                continue
            rise = rises[at]
            stopped[draw, index] = 1
            steps[draw, index] = run.steps - rise.steps
            if run.tokens is not None:
                tokens[draw, index] = run.tokens - (rise.tokens or 0.0)
            if run.seconds is not None:
                seconds[draw, index] = run.seconds - (rise.seconds or 0.0)
            moments[draw, index] = rise.steps
            if run.onset is not None:
                delays[draw, index] = rise.steps - run.onset
    good = np.array([bool(run.success) for run in runs])
    amounts = [
        [run.steps for run in runs],
        [run.tokens or 0.0 for run in runs],
        [run.seconds or 0.0 for run in runs],
    ]

    def share(part: _Floats, whole: _Floats) -> tuple[BootstrapMean | None, _Floats]:
        def of(weighed: _Floats) -> _Floats:
            whole_of, part_of = (weighed * whole).sum(axis=1), (weighed * part).sum(axis=1)
            none = np.full(repeats, np.nan)
            found: _Floats = np.divide(part_of, whole_of, out=none, where=whole_of > 0)
            return found

        drawn, plain = of(weights), of(test)
        if np.isnan(plain).all():
            return None, drawn
        return BootstrapMean(float(np.nanmean(plain)), *_interval(drawn)), drawn

    good_stopped, good_draws = share(stopped * good, np.tile(good.astype(float), (repeats, 1)))
    bad_stopped, _ = share(stopped * ~good, np.tile((~good).astype(float), (repeats, 1)))
    wholes = [np.tile(np.array(whole, dtype=float), (repeats, 1)) for whole in amounts]
    saved = [
        share(part, whole) for part, whole in zip((steps, tokens, seconds), wholes, strict=True)
    ]
    after_first = np.array([max(run.steps - 1, 0) for run in runs]) * ~good
    oracle, _ = share(np.tile(after_first.astype(float), (repeats, 1)), wholes[0])
    bad = (test > 0) & ~good
    net, net_draws, priced = None, np.full(repeats, np.nan), 0
    if costs is not None:
        each = [costs.per_token(run) for run in runs]
        known = np.array([price is not None for price in each])
        per_stop = np.array([costs.per_stop(run) for run in runs])
        gain = tokens * np.array([price or 0.0 for price in each]) - stopped * per_stop
        net, net_draws = share(gain * known, np.tile(known.astype(float), (repeats, 1)))
        priced = int(known.sum())
    return BacktestRow(
        *key,
        score,
        len(runs),
        int(good.sum()),
        good_stopped,
        bad_stopped,
        saved[0][0],
        saved[1][0],
        saved[2][0],
        _mean(delays[bad]),
        _mean(moments[bad]),
        sum(any(own[draw % len(own)] is not None for own in thresholds) for draw in range(repeats))
        / repeats,
        None if oracle is None else oracle.value,
        net,
        priced,
        {"good_stopped": good_draws, "steps_saved": saved[0][1], "net": net_draws},
    )


def _interval(draws: _Floats) -> tuple[float, float]:
    known = draws[~np.isnan(draws)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.percentile(known, _INTERVAL)
    return float(low), float(high)


def _mean(values: _Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
