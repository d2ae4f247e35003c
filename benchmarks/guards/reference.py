"""The definitions of loops and of the preset's signals once more, as plain as they can be said.

Nothing here is shared with tidegauge or streaming: each number is computed from the whole run up to
that step. ``tests/properties/test_reference.py`` compares it with the engine.

Two steps are equal if the state before them and their actions are. A period p is live while the
last p steps equal the p before, one by one. Of the live periods, the loop is the one with the most
complete repeats.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

__all__ = [
    "Looping",
    "Preset",
    "Stretch",
    "Taken",
    "empty_streak",
    "failed_rounds",
    "looping",
    "preset",
    "stretches",
    "stuck_streak",
]


class Taken(NamedTuple):
    """A step, as it is compared. Leave out those that only wait or think.

    Attributes:
        action: the calls with their arguments.
        result: what came back; ``None``, not known.
        failed: whether every call failed; ``None``, not known.
        state: what the agent saw before it; ``None``, the result before.
        empty: whether the result says only that there is nothing.
        changed: whether it succeeded in changing something.
    """

    action: Hashable
    result: Hashable | None = None
    failed: bool | None = None
    state: Hashable | None = None
    empty: bool = False
    changed: bool = False


class Looping(NamedTuple):
    """What is known when a step is issued."""

    period: int = 0
    repeats: int = 0
    evidence: float = 0.0
    matched: int = 0
    since: int = -1


class Stretch(NamedTuple):
    """Consecutive steps with a live period, at their height; steps with the incomplete round."""

    first_step: int
    period: int
    repeats: int
    steps: int


def _enough(period: int) -> int:
    return {1: 3, 2: 6}.get(period, min(2 * period, max(period, 12)))


def _seen(steps: Sequence[Taken]) -> list[tuple[Hashable | None, Hashable]]:
    """State and action of each step; an unknown state is ``None``."""
    before = [None, *(step.result for step in steps)]
    return [
        (before[t] if step.state is None else step.state, step.action)
        for t, step in enumerate(steps)
    ]


def looping(steps: Sequence[Taken]) -> list[Looping]:
    """The loop of a run at each of its steps."""
    seen = _seen(steps)
    found = []
    for t, now in enumerate(seen):
        live: dict[int, int] = {}
        for period in range(1, t + 1) if now[0] is not None else ():
            back = range(t, period - 1, -1)
            same = lambda i, lag=period: seen[i][0] is not None and seen[i] == seen[i - lag]  # noqa: E731
            matched = sum(1 for _ in takewhile(same, back))
            if matched >= period and not all(
                steps[i].changed for i in range(t - period, t - period - matched, -1)
            ):
                live[period] = matched
        if not live:
            found.append(Looping())
            continue
        repeats, matched, shorter = max((m // p, m, -p) for p, m in live.items())
        evidence = max(m / _enough(p) for p, m in live.items())
        found.append(Looping(-shorter, repeats, evidence, matched, t + 1 - max(live.values())))
    return found


def stretches(steps: Sequence[Taken]) -> list[Stretch]:
    """The loops of a run."""
    found: list[Stretch] = []
    height = (0, 0)
    before = Looping()
    for t, now in enumerate(looping(steps)):
        if now.period:
            first = now.since if not before.period else min(now.since, found[-1].first_step)
            reached = (now.repeats, now.matched)
            if not before.period:
                found.append(Stretch(first, now.period, now.repeats, 0))
                height = reached
            elif reached > height:
                found[-1] = found[-1]._replace(period=now.period, repeats=now.repeats)
                height = reached
            found[-1] = found[-1]._replace(first_step=first, steps=t + 1 - first)
        before = now
    return found


def stuck_streak(steps: Sequence[Taken]) -> int:
    """The last steps with one result, each of which failed or has the action of the one before."""
    length = 0
    for before, step in zip((None, *steps), steps, strict=False):
        if step.result is None or step.changed:
            length = 0
        elif (
            before is not None
            and before.result == step.result
            and not before.changed
            and (step.failed or step.action == before.action)
        ):
            length += 1
        else:
            length = 1
    return length


def failed_rounds(steps: Sequence[Taken]) -> int:
    """The last steps of which every call failed."""
    return sum(1 for _ in takewhile(lambda step: step.failed, reversed(steps)))


def empty_streak(steps: Sequence[Taken]) -> int:
    """The last steps whose results are equal and empty."""
    return sum(
        1
        for _ in takewhile(
            lambda step: step.empty and not step.changed and step.result == steps[-1].result,
            reversed(steps),
        )
    )


class Preset(NamedTuple):
    """When the preset stops a run.

    Attributes:
        rule: the signal that reaches its threshold first.
        step: the step.
        ran: how many steps ran.
    """

    rule: str
    step: int
    ran: int


_RULES: Final = (("stuck_streak", stuck_streak, 5), ("failed_rounds", failed_rounds, 7))


def preset(steps: Sequence[Taken]) -> Preset | None:
    """When the preset stops a run; ``None``, it does not."""
    for t, now in enumerate(looping(steps)):
        if now.evidence >= 1:
            return Preset("loop_evidence", t, t)
        for name, signal, at in _RULES:
            if signal(steps[: t + 1]) >= at:
                return Preset(name, t, t + 1)
    return None
