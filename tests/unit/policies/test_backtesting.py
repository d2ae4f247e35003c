"""Backtest: what a threshold would have done to runs that it was not learned from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.traces import counting, trace
from tidegauge.errors import ConfigurationError
from tidegauge.policies import Guarantee, RunTrace
from tidegauge.policies.backtesting import (
    Backtest,
    BacktestRow,
    backtest,
    backtest_thresholds,
    summarise,
)

NUMBERS = [field for field in BacktestRow._fields if field not in ("score", "draws")]


def numbers(row: BacktestRow) -> dict[str, object]:
    return {field: getattr(row, field) for field in NUMBERS}


def mixed(seed: int, runs: int = 60, **fields: str) -> list[RunTrace]:
    """Good runs and longer bad ones."""
    lengths = np.random.default_rng(seed).integers(3, 15, runs).tolist()
    return [
        counting(f"r{n} {fields}", n % 3 != 0, length + 4 * (n % 3 == 0), tokens_each=2.0, **fields)
        for n, length in enumerate(lengths)
    ]


def judged(traces: list[RunTrace], **fields: object) -> Backtest:
    given = {
        "scores": ["stagnation", "steps"],
        "guarantee": Guarantee(0.1),
        "calibration_runs": 10,
        "repeats": 40,
    }
    return backtest(traces, **{**given, **fields})  # type: ignore[arg-type]


class TestByHand:
    """Two good runs, of which one is learned from and the other judged, and a bad one."""

    SHORT = counting("short", True, 4, tokens_each=2.0, seconds_each=0.5)
    LONG = counting("long", True, 6, seconds_each=0.5)  # reports no tokens
    BAD = counting("bad", False, 10, tokens_each=2.0, seconds_each=0.5, onset=3)

    @pytest.fixture
    def row(self) -> BacktestRow:
        [row] = backtest(
            [self.SHORT, self.LONG, self.BAD, counting("unknown", None, 99)],
            scores=["steps"],
            guarantee=Guarantee(0.5),
            calibration_runs=1,
            repeats=500,
        ).rows
        return row

    def test_it(self, row: BacktestRow) -> None:
        assert (row.task_group, row.agent, row.score) == ("g", "a", "steps")
        assert (row.runs, row.good, row.with_threshold) == (3, 2, 1.0)
        assert row.good_stopped is not None
        # The line is 4 in some draws, where the long run is stopped at its 5th step; 6 in the
        # others, where the short one goes on to its end.
        often = row.good_stopped.value
        assert often == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 500))
        for share, of_four, of_six in (
            (row.bad_stopped, 1, 1),
            (row.steps_saved, (1 + 5) / (6 + 10), 3 / (4 + 10)),
            (row.tokens_saved, 10 / 20, 6 / (8 + 20)),
            (row.seconds_saved, (0.5 + 2.5) / (3 + 5), 1.5 / (2 + 5)),
        ):
            assert share is not None
            assert share.value == pytest.approx(often * of_four + (1 - often) * of_six)
        assert row.delay == pytest.approx(often * (5 - 3) + (1 - often) * (7 - 3))
        assert row.stopped_at == pytest.approx(often * 5 + (1 - often) * 7)

    def test_intervals_hold_what_the_draws_bring(self, row: BacktestRow) -> None:
        assert row.good_stopped is not None
        assert row.good_stopped[1:] == (0, 1)
        assert row.steps_saved is not None
        # resampled, the test runs may be the good one twice, or the bad one twice
        assert row.steps_saved.low == 0
        assert row.steps_saved.high == pytest.approx(5 / 10)


def test_a_line_is_crossed_by_more_and_not_by_as_much() -> None:
    runs = [counting(f"good {n}", True, 5) for n in range(12)]
    same = judged(
        [*runs, counting("bad", False, 5)], guarantee=Guarantee(0.2), scores=["steps"]
    ).rows[0]
    assert same.bad_stopped is not None
    assert (same.bad_stopped.value, same.stopped_at) == (0, None)
    more = judged(
        [*runs, counting("bad", False, 6)], guarantee=Guarantee(0.2), scores=["steps"]
    ).rows[0]
    assert more.bad_stopped is not None
    # stopped when the step that is too many was completed: all were taken
    assert (more.bad_stopped.value, more.stopped_at) == (1, 6)
    assert more.steps_saved is not None
    assert more.steps_saved.value == 0


def test_no_run_is_on_both_sides() -> None:
    """Learned from all good runs but one, only the longest can be beyond the line."""
    runs = [counting(f"good {n}", True, n + 1) for n in range(20)]
    row = judged(
        runs, guarantee=Guarantee(0.05), calibration_runs=19, repeats=2_000, scores=["steps"]
    ).rows[0]
    assert row.good_stopped is not None
    # it is the one left out in a twentieth of the draws, and stopped in all of these
    deviation = math.sqrt(0.05 * 0.95 / 2_000)
    assert row.good_stopped.value == pytest.approx(0.05, abs=4 * deviation)


def test_runs_of_one_agent_are_judged_by_lines_of_the_others() -> None:
    runs = [counting(f"a{n}", True, 10, agent="a") for n in range(12)]
    runs += [counting(f"b{n}", True, 2, agent="b") for n in range(12)]
    runs += [counting(f"c{n}", True, 50, agent="c", task_group="another") for n in range(12)]
    own = judged(runs, scores=["steps"], guarantee=Guarantee(0.2))
    assert [row.good_stopped.value for row in own.rows if row.good_stopped] == [0, 0, 0]
    left_out = judged(runs, scores=["steps"], guarantee=Guarantee(0.2), leave_out_agent=True)
    rows = {row.agent: row for row in left_out.rows}
    assert left_out.left_out == [("another", "c", 0)]  # nobody else is in its group
    assert rows["a"].good_stopped is not None
    assert rows["a"].good_stopped.value == 1  # beyond the 2 steps of b
    assert rows["a"].steps_saved is not None
    assert rows["a"].steps_saved.value == 7 / 10
    assert rows["b"].good_stopped is not None
    assert rows["b"].good_stopped.value == 0
    # every run of the agent is judged in every draw
    assert rows["a"].steps_saved[1:] == (7 / 10, 7 / 10)


def test_every_score_is_judged_on_the_same_draws() -> None:
    """A score that is twice the other draws twice the line, and does the same at it."""
    stagnation, steps = judged(mixed(1)).rows
    assert (stagnation.score, steps.score) == ("stagnation", "steps")
    assert numbers(stagnation) == numbers(steps)
    for name in ("good_stopped", "steps_saved"):
        np.testing.assert_array_equal(stagnation.draws[name], steps.draws[name])
    alone = judged(mixed(1), scores=["steps"]).rows[0]
    assert numbers(alone) == numbers(steps)


def test_with_too_few_calibration_runs_nothing_is_stopped() -> None:
    for row in judged(mixed(1), guarantee=Guarantee(0.05), calibration_runs=18).rows:
        assert (row.with_threshold, row.stopped_at, row.delay) == (0, None, None)
        for share in (row.good_stopped, row.bad_stopped, row.steps_saved, row.tokens_saved):
            assert share == (0, 0, 0)
    assert all(
        row.with_threshold == 1
        for row in judged(mixed(1), guarantee=Guarantee(0.05), calibration_runs=19).rows
    )


def test_a_group_of_too_few_good_runs_is_reported() -> None:
    few = [counting(f"r{n}", n < 10, 5) for n in range(30)]
    found = judged(few, calibration_runs=10)
    assert (found.rows, found.left_out) == ([], [("g", "a", 10)])
    assert [(one.good_stopped, one.groups) for one in found.summary] == [(None, 0)] * 2
    assert len(judged(few, calibration_runs=9).rows) == 2


def test_what_was_not_reported_is_not_measured() -> None:
    good = [trace(f"r{n}", True, {"tokens": []}) for n in range(15)]
    [row] = judged(good, scores=["tokens"], guarantee=Guarantee(0.2)).rows
    assert (row.bad_stopped, row.tokens_saved, row.seconds_saved) == (None, None, None)
    assert row.with_threshold == 0  # never measured: there is no line
    assert row.good_stopped is not None
    assert row.good_stopped.value == 0


class TestDraws:
    def test_a_seed_gives_the_same_again(self) -> None:
        first, again, other = (judged(mixed(1), seed=seed).rows[0] for seed in (3, 3, 4))
        assert numbers(first) == numbers(again)
        assert numbers(first) != numbers(other)

    def test_another_group_beside_it_changes_nothing(self) -> None:
        alone = judged(mixed(1)).rows
        beside = judged([*mixed(2, agent="b"), *mixed(1), *mixed(3, task_group="mail")]).rows
        assert len(beside) == 6
        for row in alone:
            [same] = [one for one in beside if one[:3] == row[:3]]
            assert numbers(same) == numbers(row)

    def test_groups_are_drawn_from_apart_from_each_other(self) -> None:
        """Else what chance does to one it would do to all, and their mean would be no surer."""
        rows = judged([*mixed(1, agent="b"), *mixed(1, agent="c")], scores=["steps"]).rows
        assert not np.array_equal(rows[0].draws["steps_saved"], rows[1].draws["steps_saved"])

    def test_attempts_at_one_task_are_drawn_together(self) -> None:
        """Eight attempts at each of ten tasks: what is known is as unsure as ten runs, not 80."""
        apart, alike = mixed(5, 80), mixed(5, 80)
        for number, run in enumerate(alike):
            run.task = f"task {number // 8}"
            run.rises = apart[number - number % 8].rises
            run.steps, run.success = run.rises["steps"][-1].steps, number % 24 >= 8
        for number, run in enumerate(apart):
            run.rises, run.steps = alike[number].rises, alike[number].steps
            run.success = alike[number].success
        widths = []
        for runs in (apart, alike):
            [row] = backtest_thresholds(runs, lambda run, score: 8, scores=["steps"]).rows
            assert row.steps_saved is not None
            widths.append(row.steps_saved.high - row.steps_saved.low)
        assert widths[1] > 1.8 * widths[0] > 0

    def test_one_draw_is_enough(self) -> None:
        [row, _] = judged(mixed(1), repeats=1).rows
        assert row.steps_saved is not None
        assert row.steps_saved.low == row.steps_saved.high

    @pytest.mark.parametrize("reported", [{"repeats": 0}, {"calibration_runs": 0}, {"repeats": -1}])
    def test_what_cannot_work_is_rejected(self, reported: dict[str, float]) -> None:
        with pytest.raises(ConfigurationError):
            judged(mixed(1), **reported)

    def test_progress_is_reported_in_runs(self) -> None:
        done: list[int] = []
        judged([*mixed(1), *mixed(2, 9, agent="b")], advance=done.append)
        assert done == [60, 9]


class TestSummary:
    def test_it_is_the_plain_mean_of_the_groups_that_are_large_enough(self) -> None:
        small = mixed(3, 45, agent="small")  # 30 good runs and 15 others
        smaller = [*mixed(4, 43, agent="smaller")]  # 28 good ones
        found = judged([*mixed(1), *small, *smaller], repeats=100)
        for one in found.summary:
            own = [row for row in found.rows if row.score == one.score]
            assert [row.counts for row in own] == [True, True, False]
            assert one.groups == 2
            for name in ("good_stopped", "steps_saved"):
                share = getattr(one, name)
                assert share.value == pytest.approx(
                    sum(getattr(row, name).value for row in own[:2]) / 2
                )
                assert share.low <= share.value <= share.high

    def test_the_mean_is_surer_than_a_group(self) -> None:
        groups = [run for n in range(9) for run in mixed(n, agent=f"a{n}")]
        found = judged(groups, repeats=200)
        [share] = [one.steps_saved for one in found.summary if one.score == "steps"]
        widths = [
            row.steps_saved.high - row.steps_saved.low for row in found.rows if row.steps_saved
        ]
        assert share is not None
        assert share.high - share.low < min(widths)

    def test_of_no_rows_there_is_none(self) -> None:
        assert summarise("steps", []) == ("steps", None, None, 0, None, None, 0, None, None, 0)


class TestLinesThatAreThere:
    RUNS = (
        *(counting(f"good {n}", True, 4) for n in range(3)),
        counting("long", True, 8),
        counting("bad", False, 12, onset=2),
        counting("unknown", None, 99),
    )

    def test_they_are_held_against_every_run(self) -> None:
        [row] = backtest_thresholds(self.RUNS, lambda run, score: 6, scores=["steps"]).rows
        assert row.good_stopped is not None
        assert row.bad_stopped is not None
        assert row.steps_saved is not None
        assert (row.runs, row.good, row.with_threshold) == (5, 4, 1)
        assert (row.good_stopped.value, row.bad_stopped.value) == (1 / 4, 1)
        assert row.steps_saved.value == pytest.approx((1 + 5) / 32)
        assert (row.stopped_at, row.delay) == (7, 5)

    def test_a_group_without_a_line_has_no_row(self) -> None:
        runs = [*self.RUNS, counting("other", True, 4, agent="b")]
        found = backtest_thresholds(
            runs,
            lambda run, score: 6 if (run.agent, score) == ("a", "steps") else None,
            scores=["stagnation", "steps"],
        )
        assert [row[:3] for row in found.rows] == [("g", "a", "steps")]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=13, max_size=40),
    st.sampled_from([0.1, 0.25, 0.5]),
    st.integers(1, 12),
)
def test_shares_are_shares_and_good_runs_are_stopped_as_promised(reported, alpha, calibration_runs):
    runs = [counting(f"r{n}", good, steps) for n, (good, steps) in enumerate(reported)]
    found = judged(runs, guarantee=Guarantee(alpha), calibration_runs=calibration_runs, repeats=25)
    for row in found.rows:
        for share in (row.good_stopped, row.bad_stopped, row.steps_saved):
            if share is not None:
                assert 0 <= share.low <= share.high <= 1
                assert 0 <= share.value <= 1
        assert row.good == sum(good for good, _ in reported)
        assert row.runs == len(reported)
