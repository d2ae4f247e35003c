"""The survey: a row for every scripted agent, whose numbers add up its runs."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import pytest

from tidegauge.cli.worlds import survey_markdown
from tidegauge.worlds import (
    GRID_AGENTS,
    LORE_AGENTS,
    MeasuredAttempt,
    SurveyRow,
    code_task,
    document_task,
    survey,
)

ROWS = {(row.world, row.agent): row for row in survey(range(15))}


def test_has_a_row_for_every_agent_of_every_world() -> None:
    assert list(ROWS) == [
        *[("grid", name) for name in GRID_AGENTS],
        *[("documents", name) for name in LORE_AGENTS],
        *[("code", name) for name in LORE_AGENTS],
    ]


def test_comes_out_the_same_each_time() -> None:
    assert survey(iter(range(3))) == survey(range(3)) != survey(range(3, 6))


def test_the_documentation_shows_what_comes_out() -> None:
    page = Path(__file__).parents[3] / "docs" / "worlds.md"
    assert survey_markdown(survey(range(20))) in page.read_text()


def test_no_seeds_no_rows() -> None:
    assert survey(()) == []


@pytest.mark.parametrize("name", LORE_AGENTS)
@pytest.mark.parametrize(("world", "sample"), [("documents", document_task), ("code", code_task)])
def test_a_row_adds_up_its_runs(world: str, sample: object, name: str) -> None:
    measured, solved = [], []
    for seed in range(15):
        task = sample(seed)  # type: ignore[operator]
        measured.append(MeasuredAttempt(task.start()))
        reading = task.reading(measured[-1])
        LORE_AGENTS[name](reading, random.Random(seed))
        solved.append(reading.solved)
    row = ROWS[world, name]
    assert row.steps == fmean(one.steps for one in measured)
    assert row.success == fmean(solved)
    displaced = [
        0 if success else one.exploration.leads.displaced
        for one, success in zip(measured, solved, strict=True)
    ]
    assert row.displaced_leads == fmean(displaced)
    assert row.failed_rounds_max == max(one.failed_rounds.maximum or 0 for one in measured)


def test_distinguishes_the_walkers() -> None:
    def column(field: str) -> dict[str, float]:
        return {name: getattr(ROWS["grid", name], field) for name in GRID_AGENTS}

    assert column("success")["optimal"] == column("success")["explorer"] == 1
    assert column("exploration_error")["optimal"] == column("exploitation_error")["optimal"] == 0
    errors = column("exploration_error")
    assert errors["explorer"] < errors["exploiter"] < errors["wanderer"] < errors["oscillator"]
    assert max(column("loop_ratio"), key=column("loop_ratio").__getitem__) == "oscillator"
    assert column("stale_max")["optimal"] == 0
    assert column("stale_max")["wanderer"] < column("stale_max")["oscillator"]
    assert min(column("steps"), key=column("steps").__getitem__) == "optimal"


@pytest.mark.parametrize("world", ["documents", "code"])
def test_distinguishes_the_readers(world: str) -> None:
    def row(name: str) -> SurveyRow:
        return ROWS[world, name]

    assert [row(name).success for name in LORE_AGENTS] == [1, 0, 0, 1]
    assert [row(name).premature_halt for name in LORE_AGENTS] == [0, 1, 1, 0]
    assert [row(name).failed_rounds_max for name in LORE_AGENTS] == [0, 0, 0, 3]
    assert [bool(row(name).displaced_leads) for name in LORE_AGENTS] == [False, False, True, False]
