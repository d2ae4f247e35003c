"""What an operator sees: colours that mean something, words where there is no data."""

from __future__ import annotations

from typing import Any, Final

import pytest

from dashboards.panels import BAD, GOOD, MISSING, NEUTRAL, WATCH, Query, named_colours
from dashboards.visualizations import (
    Column,
    areas,
    bars,
    big_number,
    grid,
    lines,
    with_band,
)
from support.grafana import panels
from tidegauge import catalog
from tidegauge.streaming_metrics.exploration import BEHAVIOR_ERRORS
from tidegauge.streaming_metrics.loops import LOOPS
from tidegauge.streaming_metrics.run_counts import RUNS_FINISHED

GRAPHS: Final = ("timeseries", "state-timeline", "heatmap")


def overrides(panel: Any) -> dict[str, dict[str, Any]]:
    """The settings of single series, by the name of the series."""
    return {
        override.matcher.options: {setting.id_val: setting.value for setting in override.properties}
        for override in panel.build().field_config.overrides
    }


@pytest.mark.parametrize("panel", panels())
def test_a_panel_without_data_says_why(panel: dict[str, Any]) -> None:
    said = panel["fieldConfig"]["defaults"]["noValue"]
    if panel["type"] in GRAPHS:
        assert said in panel["description"] or said.startswith("No data: ")
        assert said.startswith("Empty ") == ("Empty " in panel["description"])
    else:
        assert said


def test_a_missing_value_is_not_green() -> None:
    panel: Any = big_number("Looping", "…", Query("up"), steps=[(1, BAD)]).build()
    [mapping] = panel.field_config.defaults.mappings
    assert mapping.options.result.color == MISSING
    assert mapping.options.match.value == "null+nan"


def test_a_number_of_now_is_asked_for_now() -> None:
    now: Any
    shown: Any
    [now] = big_number("…", "…", Query("up")).build().targets
    [shown] = big_number("…", "…", Query("up"), now=False).build().targets
    assert (now.instant, now.range_val) == (True, False)
    assert (shown.instant, shown.range_val) == (False, True)


@pytest.mark.parametrize(
    ("legend", "values"),
    [
        ("{{outcome}}", RUNS_FINISHED.values),
        ("{{kind}}", LOOPS.values + BEHAVIOR_ERRORS.values),
        ("{{answer}}", catalog.DECISIONS_REQUESTS.values),
        ("{{action}}", ("would_stop", "nudge", "block", "stop")),
    ],
)
def test_each_known_value_has_its_own_colour(legend: str, values: tuple[str, ...]) -> None:
    assert set(named_colours(legend)) == set(values)
    panel = bars("…", "…", Query("up", legend))
    assert {name: found["color"]["fixedColor"] for name, found in overrides(panel).items()} == {
        **named_colours(legend)
    }


def test_outcomes_are_as_good_as_their_colours() -> None:
    colours = named_colours("{{outcome}}")
    assert (colours["success"], colours["failure"], colours["error"]) == (GOOD, WATCH, BAD)
    assert len(set(colours.values())) == len(colours)


def test_a_band_lies_between_its_bounds() -> None:
    queries = [Query("up", name) for name in ("upper bound", "share", "lower bound")]
    found = overrides(with_band(lines("…", "…", *queries), low="lower bound", high="upper bound"))
    assert found["upper bound"]["custom.fillBelowTo"] == "lower bound"
    assert found["lower bound"]["custom.lineWidth"] == found["upper bound"]["custom.lineWidth"] == 0


def test_what_several_hold_is_stacked() -> None:
    held: Any
    alone: Any
    held, alone = (draw("…", "…", Query("up")).build() for draw in (areas, lines))
    assert held.field_config.defaults.custom.stacking.mode == "normal"
    assert alone.field_config.defaults.custom.stacking is None


def test_a_column_that_can_be_bad_is_coloured() -> None:
    panel = grid("…", "…", {"Good": Column("up"), "Bad": Column("up", [(0.3, BAD)])})
    found = overrides(panel)
    assert "thresholds" not in found.get("Good", {})
    assert [step["color"] for step in found["Bad"]["thresholds"]["steps"]] == [GOOD, BAD]


def test_a_value_without_thresholds_is_neither_good_nor_bad() -> None:
    [step] = lines("…", "…", Query("up")).build().field_config.defaults.thresholds.steps
    assert step.color == NEUTRAL
