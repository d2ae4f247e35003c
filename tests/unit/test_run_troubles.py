"""What makes a run one to look at, and the cost that only one in twenty exceeds."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import tidegauge
from tidegauge import testing
from tidegauge.pipeline.engine_sink import RunTroubles
from tidegauge.streaming_metrics import RunReport
from tidegauge.streaming_metrics.snapshot import GroupKey


def report(**numbers: Any) -> RunReport:
    agent = numbers.pop("agent", "a")
    known: dict[str, Any] = {
        **dict.fromkeys(("agent_name", "memory", "model", "trace_id", "t_max", "success")),
        **{"run": "r", "agent": agent, "task_group": "", "group": GroupKey(agent, "", "")},
        **{"steps": 1, "finished": True, "outcome": "success", "tokens": None},
        **{"unguarded": False, "lost": ()},
    }
    numbers = {"past_troubles": (), **numbers}
    own = {name: numbers.pop(name) for name in list(numbers) if name in known}
    return RunReport(**{**known, **own}, numbers=numbers)


def test_each_trouble_by_its_name() -> None:
    troubles = RunTroubles()
    assert troubles.of(report()) == ()
    assert troubles.of(report(outcome="unknown")) == ()
    for outcome in ("stopped", "error", "failure"):
        assert troubles.of(report(outcome=outcome)) == (outcome,)
    assert troubles.of(report(past_troubles=("loop", "stale"))) == ("loop", "stale")
    assert troubles.of(report(outcome="stopped", past_troubles=("loop",))) == ("stopped", "loop")


def test_a_costly_run_exceeds_p95_of_those_before_it_exactly() -> None:
    draw = random.Random(7)
    troubles = RunTroubles()
    costs: list[float] = []
    for _ in range(2_500):
        cost = draw.choice([draw.lognormvariate(3, 1), float(draw.randrange(40))])
        last = sorted(costs[-1_000:])
        expected = len(last) >= 20 and cost > last[math.ceil(len(last) * 95 / 100) - 1]
        assert (troubles.of(report(tokens=cost)) == ("cost",)) is expected
        costs.append(cost)


def test_costs_are_compared_within_a_group_and_groups_are_bounded() -> None:
    troubles = RunTroubles()
    for _ in range(30):
        troubles.of(report(tokens=100))
        troubles.of(report(tokens=9_000, agent="expensive"))
    assert troubles.of(report(tokens=9_000)) == ("cost",)
    assert troubles.of(report(tokens=9_000, agent="expensive")) == ()
    for number in range(1_000):
        troubles.of(report(tokens=1, agent=f"a{number}"))
    assert len(troubles._costs) == 200


@pytest.mark.parametrize("cost", [None, math.nan, math.inf])
def test_a_cost_that_is_not_known_is_not_compared(cost: float | None) -> None:
    troubles = RunTroubles()
    for _ in range(30):
        troubles.of(report(tokens=1))
    assert troubles.of(report(tokens=cost)) == ()


def test_the_span_of_every_run_says_whether_it_is_troubled() -> None:
    with testing.capture(stale_at=2) as seen:
        with tidegauge.run(agent="healthy") as run:
            run.act("look")
            run.observe("a")
        with tidegauge.run(agent="stale") as run:
            for page in (1, 2, 1, 2, 1, 2, 1, 3):
                run.act("look", {"page": page})
                run.observe(f"page {page}")
    found = {span.name: dict(span.attributes or {}) for span in seen.spans if span.parent is None}
    assert found["invoke_agent healthy"]["tidegauge.troubled"] is False
    assert "tidegauge.troubles" not in found["invoke_agent healthy"]
    assert found["invoke_agent stale"]["tidegauge.troubled"] is True
    assert found["invoke_agent stale"]["tidegauge.troubles"] == ("loop", "stale")
