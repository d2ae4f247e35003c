"""The preset on everyday agents that never end, and on legitimate ones that repeat themselves."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from benchmarks.guards.agents import ENDLESS, LEGITIMATE
from benchmarks.guards.expected import EXPECTED, found

COMPARED = Path(__file__).parents[2] / "docs" / "compared.md"

Stops = dict[str, dict[str, list]]


@pytest.fixture(scope="module")
def stops() -> Stops:
    return found()


def test_each_agent_is_stopped_where_it_was(stops: Stops) -> None:
    """``python -m benchmarks.guards --expect`` writes what is expected."""
    assert stops == orjson.loads(EXPECTED.read_bytes())


def test_most_endless_agents_are_caught_and_none_before_its_loop(stops: Stops) -> None:
    for kind, least in (("plain", 68), ("declared", 71)):
        late = [stops[kind][one.name][0] - one.began for one in ENDLESS if one.name in stops[kind]]
        assert len(late) >= least
        assert min(late) > 0
        assert sorted(late)[len(late) // 2] <= 8


def test_the_docs_say_what_it_does(stops: Stops) -> None:
    """``make bench-guards`` writes the table."""
    caught, declared = (sum(one.name in stops[kind] for one in ENDLESS) for kind in stops)
    undeclared = sum(one.name in stops["plain"] for one in LEGITIMATE)
    [row] = [line for line in COMPARED.read_text().splitlines() if line.startswith("| **tidegauge")]
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[3], cells[5], cells[6]) == (str(caught), str(undeclared), f"{declared} / 0")
    assert f"caught of {len(ENDLESS)} " in COMPARED.read_text()
    assert f"false stops of {len(LEGITIMATE)} " in COMPARED.read_text()


def test_with_tools_declared_no_legitimate_agent_is_stopped(stops: Stops) -> None:
    legitimate = {agent.name for agent in LEGITIMATE}
    assert not legitimate & stops["declared"].keys()
    # without: equal looks, key presses and heartbeats, which only their developer knows
    undeclared = legitimate & stops["plain"].keys()
    assert len(undeclared) <= 12
    assert all(agent.declared for agent in LEGITIMATE if agent.name in undeclared)
