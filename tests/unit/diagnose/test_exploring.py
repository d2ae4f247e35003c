"""How agents explore over their runs, and how success goes with their errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep
from tidegauge.diagnose.report.page_data import PARTS, error_fits, exploration_fractions


def run(places: str, *, end: str | None, frontier: int | None = 0) -> ReportedRun:
    """A run with the place before each of its steps, and the one at its end."""
    distinct = None if end is None else len({*places, end})
    report: Any = SimpleNamespace(frontier=frontier, distinct_places=distinct)
    return ReportedRun(
        report, "", [ReportedStep("go", "", place, "", 0, 0) for place in places], []
    )


def test_a_step_explores_where_it_leads_to_a_new_place() -> None:
    assert exploration_fractions([run("abcdefghij", end="k")]) == [1] * PARTS
    assert exploration_fractions([run("abcdefghij", end="a")]) == [1] * (PARTS - 1) + [0]
    assert exploration_fractions([run("ababababab", end="a")]) == [1] + [0] * (PARTS - 1)


def test_runs_of_any_length_add_to_each_tenth() -> None:
    short, long = run("ab", end="c"), run("a" * 20, end="b")
    found = exploration_fractions([short, long])
    # the short run has its steps in the first and the sixth tenth, the long one two in each
    assert found == [1 / 3, 0, 0, 0, 0, 1 / 3, 0, 0, 0, 1 / 2]
    assert exploration_fractions([short]) == [1, None, None, None, None, 1, *[None] * 4]


def test_without_places_there_is_nothing() -> None:
    assert exploration_fractions([run("abc", end=None, frontier=None)]) is None
    assert exploration_fractions([]) is None


def group(error: float | None, success: float | None, **fields: Any) -> dict[str, Any]:
    usual = {"task_group": "maze", "exploitation_error": None}
    return {**usual, "exploration_error": error, "success_rate": success, **fields}


def test_success_falls_with_the_logarithm_of_the_error() -> None:
    groups = [group(0.001, 1.0), group(0.01, 0.7), group(0.1, 0.4), group(0, 1.0), group(None, 0.2)]
    [fit] = error_fits([*groups, group(0.5, None), group(0.01, 0.1, task_group="other")])
    assert (fit["task_group"], fit["error"], fit["groups"]) == ("maze", "exploration", 3)
    assert (fit["slope"], fit["intercept"], fit["r2"]) == pytest.approx((-0.3, 0.1, 1))


def test_what_explains_nothing_has_an_r2_of_nearly_0() -> None:
    rows = [(0.001, 0.5), (0.01, 1.0), (0.1, 0.5)]
    groups = [group(None, rate, exploitation_error=error) for error, rate in rows]
    [fit] = error_fits(groups)
    assert (fit["error"], fit["r2"]) == ("exploitation", pytest.approx(0))


@pytest.mark.parametrize(
    "rows", [[(0.1, 0.5), (0.2, 0.6)], [(0.1, 0.5), (0.1, 0.6), (0.1, 0.7)], []]
)
def test_few_or_equal_agents_have_no_line(rows) -> None:
    assert error_fits([group(*row) for row in rows]) == []


def test_where_all_succeed_alike_there_is_no_r2() -> None:
    [fit] = error_fits([group(error, 1.0) for error in (0.1, 0.2, 0.3)])
    assert (fit["slope"], fit["r2"]) == (0, None)
