"""Small recordings whose scores can be reckoned in the head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Events = list[dict[str, Any]]


def walk(run: str, steps: int, success: bool | None, **started: Any) -> Events:
    """A run of so many steps, each of which does and brings something new."""
    events: Events = [{"type": "start", "run": run, **{"agent": "a", "task_group": "g", **started}}]
    for step in range(steps):
        events.append(
            {
                "type": "step",
                "run": run,
                "action": f"do{step}",
                "args": f"only{step}",
                "outcome": f"{run} {step}",
                "error": False,
                "tokens": 10,
                "seconds": 0.5,
            }
        )
    return [*events, {"type": "end", "run": run, "success": success}]


def walks(good: Iterable[int], bad: Iterable[int] = (), name: str = "r", **started: Any) -> Events:
    """Good and bad runs of so many steps each: their ids count them."""
    return [
        event
        for kind, lengths in (("good", good), ("bad", bad))
        for number, steps in enumerate(lengths)
        for event in walk(f"{name} {kind} {number}", steps, kind == "good", **started)
    ]
