"""Traces as recorded runs leave them, made by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tidegauge.policies import RunTrace
from tidegauge.policies.trace import Crossing

__all__ = ["counting", "trace"]


def trace(
    run: str,
    success: bool | None,
    rises: Mapping[str, Sequence[tuple[float, int]]],
    *,
    steps: int = 10,
    agent: str = "a",
    task_group: str = "g",
    tokens_each: float | None = None,
    seconds_each: float | None = None,
    onset: int | None = None,
) -> RunTrace:
    """A run that spent the same at every step.

    Args:
        run: its id.
        success: whether it succeeded.
        rises: by score, (value, steps taken by then).
        steps: how many it took.
        agent: its agent.
        task_group: its task group.
        tokens_each: tokens of each step.
        seconds_each: seconds of each step.
        onset: steps taken when trouble set in.
    """

    def spent(each: float | None, after: int) -> float | None:
        return None if each is None else each * after

    made = RunTrace(run, agent, task_group, rises)
    made.success, made.finished, made.steps, made.onset = success, True, steps, onset
    made.tokens, made.seconds = spent(tokens_each, steps), spent(seconds_each, steps)
    for score, one in rises.items():
        made.rises[score] = [
            Crossing(value, after, spent(tokens_each, after), spent(seconds_each, after))
            for value, after in one
            if value != -math.inf
        ]
    return made


def counting(run: str, success: bool | None, steps: int, **fields: object) -> RunTrace:
    """A run of which the steps are counted, and twice as many of them are its stagnation."""
    rises = {
        "steps": [(step, step) for step in range(1, steps + 1)],
        "stagnation": [(2 * step, step) for step in range(1, steps + 1)],
    }
    return trace(run, success, rises, steps=steps, **fields)  # type: ignore[arg-type]
