"""What TIDE compares of agents: the profiles of its radar plot, and pairs of memory arms."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from tidegauge.streaming_metrics import AUV, GroupSnapshot
from tidegauge.streaming_metrics.contrast import contrast

_ON, _OFF = "on", "off"


def profiles(groups: Iterable[GroupSnapshot]) -> list[dict[str, Any]]:
    """AUV, 1 - loop ratio and memory index of each agent, also from 0 to 1 within its task group.

    An axis goes from the lowest to the highest agent of the task group; it is ``None`` where it was
    not measured, or where all agents are equal. Only task groups of several agents have profiles.

    Source: TIDE (arXiv 2602.02196), figure 9 and appendix C.6.
    """
    agents: dict[tuple[str, str], list[GroupSnapshot]] = {}
    for group in groups:
        agents.setdefault((group.key.task_group, group.key.agent), []).append(group)
    rows: dict[str, list[dict[str, Any]]] = {}
    for (task_group, agent), members in agents.items():
        rows.setdefault(task_group, []).append(
            {"task_group": task_group, "agent": agent, **_measured(members)}
        )
    several = [own for own in rows.values() if len(own) > 1]
    for own in several:
        for axis in ("auv", "no_loops", "memory_index"):
            known = [row[axis] for row in own if row[axis] is not None]
            low, high = min(known, default=0.0), max(known, default=0.0)
            for row in own:
                value = row[axis]
                flat = value is None or high == low
                row[f"{axis}_scaled"] = None if flat else (value - low) / (high - low)
    return [row for own in several for row in own]


def memory_pairs(groups: Iterable[GroupSnapshot]) -> list[dict[str, Any]]:
    """The difference in AUV of any two memory arms of an agent in a task group, with its interval.

    Of the arms ``on`` and ``off`` it is the memory index. There may be others, such as window
    sizes.
    """
    arms: dict[tuple[str, str], dict[str, AUV]] = {}
    for group in groups:
        if group.key.memory is not None:
            own = arms.setdefault((group.key.task_group, group.key.agent), {})
            own[group.key.memory] = group.finished.of(AUV)
    return [
        {
            "task_group": task_group,
            "agent": agent,
            "arm": arm,
            "against": against,
            "auv": own[arm].value,
            "auv_against": own[against].value,
            "value": difference.value,
            "low": difference.low,
            "high": difference.high,
        }
        for (task_group, agent), own in arms.items()
        for arm, against in _pairs(own)
        if (difference := contrast(own[arm], own[against])) is not None
    ]


def _pairs(arms: Iterable[str]) -> list[tuple[str, str]]:
    """Any two arms; the arm without memory is the second of its pairs."""
    ordered = sorted(arms, key=lambda arm: (arm == _OFF, arm))
    return list(combinations(ordered, 2))


def _measured(groups: list[GroupSnapshot]) -> dict[str, float | None]:
    """The axes of an agent, over its memory arms."""
    auv, arms = AUV(), {}
    for group in groups:
        own = group.finished.of(AUV)
        auv.merge(own)
        arms[group.key.memory] = own
    steps = sum(group.totals.steps for group in groups)
    loop_steps = sum(sum(group.totals.loop_steps.values()) for group in groups)
    index = contrast(arms[_ON], arms[_OFF]) if {_ON, _OFF} <= arms.keys() else None
    return {
        "auv": auv.value,
        "no_loops": 1 - loop_steps / steps if steps else None,
        "memory_index": None if index is None else index.value,
    }
