"""The batch version of the calls of a step: they are compared with one another, pair by pair."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.calls_per_step import CallsPerStep, counted_calls
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep

from .counterpart import Counterpart

TOOLS = {"a": None, "b": None, "append": ToolDeclaration(mutates=True)}

rounds = st.lists(
    st.lists(st.tuples(st.sampled_from(list(TOOLS)), st.integers(0, 3)), max_size=8), max_size=20
)


def issued(walk: list[list[tuple[str, int]]]) -> list[IssuedStep]:
    steps = []
    for t, chosen in enumerate(walk):
        digests = [f"{tool} {n}".encode() for tool, n in chosen]
        size, duplicates = counted_calls(digests, [TOOLS[tool] for tool, _ in chosen])
        steps.append(
            IssuedStep(
                *(t, b"", b"|".join(digests)),
                calls=size,
                declared=[TOOLS[tool] for tool, _ in chosen],
                duplicates=duplicates,
            )
        )
    return steps


def duplicates(step: IssuedStep) -> int:
    calls = step.action.split(b"|") if step.action else []
    return sum(
        not call.startswith(b"append") and call in calls[:place] for place, call in enumerate(calls)
    )


def batch(steps: list[IssuedStep]) -> dict[str, Any]:
    sizes = [len(step.action.split(b"|")) if step.action else 0 for step in steps]
    return {
        "calls": sizes[-1] if sizes else 1,
        "most": max([1, *sizes]),
        "most_duplicates": max([0, *map(duplicates, steps)]),
        "duplicates": duplicates(steps[-1]) if steps else 0,
        "total": sum(map(duplicates, steps)),
    }


COUNTERPARTS: dict[type[Metric[Any]], Counterpart] = {
    CallsPerStep: Counterpart(rounds.map(issued), batch),
}
