"""What tidegauge's preset does to each everyday agent: as committed, and as it is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.guards.agents import AGENTS
from benchmarks.guards.own import PRESET, Tidegauge
from benchmarks.guards.play import ran_before_stop

__all__ = ["EXPECTED", "found", "write"]

EXPECTED: Final = Path(__file__).with_name("expected.json")


def found(**settings: Any) -> dict[str, dict[str, list[Any]]]:
    """For each agent that is stopped, how many turns ran, and by which signal.

    ``plain`` without any declaration of tools, ``declared`` with them.
    """
    stops: dict[str, dict[str, list[Any]]] = {"plain": {}, "declared": {}}
    for kind, stopped in stops.items():
        for agent in AGENTS.values():
            run = Tidegauge(agent.declared if kind == "declared" else {}, **(settings or PRESET))
            ran = ran_before_stop(run, agent.turns())
            if ran is not None:
                stopped[agent.name] = [ran, run.reason]
    return stops


def write() -> None:
    """Commit to what it does now."""
    EXPECTED.write_bytes(orjson.dumps(found(), option=orjson.OPT_INDENT_2) + b"\n")
