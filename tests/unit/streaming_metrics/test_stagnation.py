"""Repetition and stagnation: measured where they are used, and one number on every surface."""

from __future__ import annotations

from typing import Any

import pytest

import tidegauge
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.policies import SCORES, Rule, Threshold
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.registry import SIGNALS
from tidegauge.testing import Capture, capture

SEARCHES = ("red shoes", "shoes red", "red shoes 9", "shoes")


def searched(seen: Capture) -> Any:
    """A run that is still active, in words that are alike; its report."""
    run = tidegauge.run(agent="searcher", run_id="r")
    with run as current:
        for words in SEARCHES:
            current.act("search", {"query": words})
            current.observe("nothing found")
        found = seen.pipeline.engine.get("r")
        assert found is not None
        return found.report(), found.signals(), families(seen)


def families(seen: Capture) -> dict[str, Any]:
    return {one.metric.name: dict(one.rows) for one in seen.pipeline.reader.families()}


def test_one_number_on_every_surface() -> None:
    with capture(repetition=True) as seen:
        report, signals, rows = searched(seen)
    group, run = ("searcher", ""), ("searcher", "", "r")
    for name, metric in (
        ("stagnation", "stagnation"),
        ("repetition", "repetition"),
        ("repetition_recent", "repetition_recent"),
        ("similarity", "action_similarity"),
    ):
        value = getattr(report, name)
        assert value > 0
        assert getattr(signals, name) == value
        assert SCORES[name].read(signals) == value
        assert rows[f"tidegauge_run_{metric}"] == {run: value}
        assert rows[f"tidegauge_{metric}"] == {(*group, "mean"): value, (*group, "max"): value}
    # each step to the nearest 2**-20, so that sums do not depend on their order
    repeated = pytest.approx(report.repetition, abs=4 * 2**-20)
    assert rows["tidegauge_repeated_steps_total"] == {group: repeated}
    attributes = seen.spans[-1].attributes
    assert attributes["tidegauge.stagnation"] == report.stagnation
    assert attributes["tidegauge.repetition"] == report.repetition
    assert attributes["tidegauge.repetition_recent"] == report.repetition_recent
    assert attributes["tidegauge.novelty"] == report.novelty == 0.25
    assert rows["tidegauge_new_results_total"] == {group: 1}
    assert rows["tidegauge_results_total"] == {group: 4}


def test_a_long_honest_read_reaches_every_threshold_but_that_of_the_recent_sum() -> None:
    """The numbers of docs/stop-rules-measured.md, The default thresholds."""
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    pages: dict[tuple[str, float], int] = {}
    for page in range(1, 201):
        arguments = {"path": "src/big.py", "offset": 200 * page, "limit": 200}
        engine.step_issued(Step("r", (Call("read_file", arguments),)))
        signals = engine.step_observed(Outcome("r", (CallResult(f"text {page}", False),)))
        assert signals is not None
        for name, at in (
            ("repetition", 3),
            ("stagnation", 25),
            ("repetition_recent", 5),
            ("repetition_recent", 8),
        ):
            if getattr(signals, name) >= at:
                pages.setdefault((name, at), page)
    expected = {("repetition", 3): 9, ("stagnation", 25): 12, ("repetition_recent", 5): 14}
    assert pages == expected


def test_it_can_be_switched_off() -> None:
    with capture(repetition=False) as seen:
        report, signals, rows = searched(seen)
    assert (report.stagnation, report.repetition, signals.similarity) == (None, None, None)
    assert (report.repetition_recent, signals.repetition_recent) == (None, None)
    assert not [name for name in rows if "stagnation" in name or "repe" in name.split("_")[1]]


@pytest.mark.parametrize("signal", [name for name, one in SIGNALS.items() if one.reads_words])
def test_a_rule_or_a_threshold_switches_it_on(signal: str) -> None:
    with capture(rules=[Rule(signal, 1_000)], repetition=False) as seen:
        assert searched(seen)[0].stagnation is not None
    policy = tidegauge.policies.Policy((), thresholds=[Threshold(signal, 1_000)])
    assert policy.reads_words
    assert not tidegauge.policies.Policy([Rule("recurrence", 3)]).reads_words


def test_entropy_and_progress_are_signals_and_gauges() -> None:
    with capture() as seen, tidegauge.run(agent="a", run_id="r", t_max=4) as run:
        run.act("look", entropy=0.5)
        run.observe("one", progress=0.5)
        run.act("look", entropy=0.25)
        run.observe("two")
        found = seen.pipeline.engine.get("r")
        assert found is not None
        signals, rows = found.signals(), families(seen)
    assert signals.action_entropy == 0.25
    assert rows["tidegauge_run_action_entropy"] == {("a", "", "r"): 0.25}
    # 0.5 from turn 1 on: 3.5 of 4 turns; with the rest at turn 3: 1.5 of them more
    assert rows["tidegauge_run_progress_auv"] == {("a", "", "r"): 0.5 * 3.5 / 4}
    assert signals.progress_auv_upper == 0.5 * 3.5 / 4 + 0.5 * 1.5 / 4
    ended = families(seen)
    assert ended["tidegauge_action_entropy_sum_total"][("a", "", "other")] == 0.75
    assert ended["tidegauge_action_entropy_steps_total"][("a", "", "other")] == 2
    assert ended["tidegauge_progress_auv"][("a", "")].total == 0.5 * 3.5 / 4
