"""The alert on a policy's shift over recorded runs: false alarms are rare, and a change is seen."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path

import pytest
from benchmarks.policy_shift import (
    AgentRuns,
    agents_of,
    false_alarms,
    false_alarms_table,
    power_table,
    watched,
)

from dashboards.alerts import ALERTS
from tidegauge.policies.shift import SHIFTED

pytestmark = pytest.mark.slow

STOP_RULES = Path(__file__).parents[2] / "docs" / "stop-rules-measured.md"


@pytest.fixture(scope="module")
def agents(recorded_runs: Path) -> list[AgentRuns]:
    return agents_of(recorded_runs)


def test_the_alert_is_raised_below_that_p_value() -> None:
    [alert] = [alert for alert in ALERTS if alert.name == "TidegaugePolicyShift"]
    assert alert.threshold == 1 - SHIFTED


def test_false_alarms_are_at_most_one_block_in_a_hundred(agents: list[AgentRuns]) -> None:
    seen = [
        (alarms, blocks) for agent in agents for alarms, blocks in [false_alarms(agent)] if blocks
    ]
    assert len(seen) == 6
    for alarms, blocks in seen:
        assert blocks > 1_500
        assert alarms / blocks <= SHIFTED + 3 * math.sqrt(SHIFTED / blocks)
    assert false_alarms_table(agents) in STOP_RULES.read_text()


def test_other_tasks_are_seen_and_the_docs_say_how_soon(agents: list[AgentRuns]) -> None:
    pairs = [watched(*pair) for pair in permutations(agents, 2)]
    assert len(pairs) == 110
    unseen = [
        pair
        for pair in pairs
        if not pair.same_tasks and None in pair.shift and None in pair.false_stops
    ]
    assert unseen == []
    assert power_table(pairs) in STOP_RULES.read_text()
