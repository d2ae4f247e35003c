"""The row of coding agents, as ``tidegauge watch`` sees them."""

from __future__ import annotations

from typing import Final

from dashboards.board import EVENTS, NOW
from dashboards.panels import Panel, Query
from dashboards.queries import QueryScope, total
from dashboards.visualizations import bars, lines
from tidegauge import catalog
from tidegauge.streaming_metrics.loop_cost import LOOP_TOKENS
from tidegauge.streaming_metrics.loops import LOOPS, RUN_LOOP_REPEATS
from tidegauge.streaming_metrics.run_counts import REFUSED_CALLS

_HALF: Final = 12
_EMPTY: Final = "Empty without tidegauge watch."


def of_coding_agents(expression: str, scope: QueryScope, *labels: str) -> str:
    """The series of coding agents among some that have these labels.

    >>> of_coding_agents("up", QueryScope(""), "agent")
    '(up)\\nand on (agent) sum by (agent) (tidegauge_sessions_total)'
    """
    known = total(scope.series(catalog.SESSIONS), labels)
    return f"({expression})\nand on ({', '.join(labels)}) {known}"


def sessions_looping(scope: QueryScope, *labels: str) -> str:
    """Repeats of the current loop of each run of a coding agent that is in one."""
    repeats = total(f"{scope.series(RUN_LOOP_REPEATS)} > 0", [*labels, "run"], operator="max")
    return of_coding_agents(repeats, scope, *labels)


def coding_row() -> list[Panel]:
    """The panels."""
    return [
        lines(
            "Coding agents: sessions at work",
            "Sessions that are at work on a prompt, by agent. A session that stays here for hours "
            f"may be stuck: see the loops beside it. {_EMPTY}",
            Query(total(NOW.series(catalog.SESSIONS_ACTIVE), ["agent"]), "{{agent}}"),
        ).span(_HALF),
        bars(
            "Coding agents: loops that began",
            "Cycles that sessions repeated for the first time, by agent. Read in the output of "
            "tidegauge watch what was repeated; with --act, the agent is nudged and refused. "
            f"{_EMPTY}",
            Query(
                of_coding_agents(
                    total(EVENTS.increase(LOOPS, 'kind="loop"'), ["agent"]), NOW, "agent"
                ),
                "{{agent}}",
            ),
        ).span(_HALF),
        bars(
            "Coding agents: refused calls",
            "Calls that were not run, because the policy blocked them or had stopped the run, by "
            f"agent. Zero without --act. {_EMPTY}",
            Query(
                of_coding_agents(total(EVENTS.increase(REFUSED_CALLS), ["agent"]), NOW, "agent"),
                "{{agent}}",
            ),
        ).span(_HALF),
        bars(
            "Coding agents: tokens spent in loops",
            "Tokens spent on loop steps, by agent. Zero for agents that report no tokens. "
            f"{_EMPTY}",
            Query(
                of_coding_agents(total(EVENTS.increase(LOOP_TOKENS), ["agent"]), NOW, "agent"),
                "{{agent}}",
            ),
        ).span(_HALF),
    ]
