"""Busy agents to be disturbed: each checks its own results, and says how many steps it made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import tidegauge
from tidegauge import testing


class UsersError(Exception):
    """What the user's own code raises."""


class UsersTimeout(BaseException):
    """What the user's signal handler raises."""


@tidegauge.tool
def look(place: str) -> str:
    return f"{place} is empty"


@tidegauge.tool
async def look_later(place: str) -> str:
    await asyncio.sleep(0)
    return f"{place} is empty"


@tidegauge.tool
def fail(place: str) -> str:
    raise UsersError(place)


@tidegauge.tool
def stream(place: str) -> Iterator[str]:
    for number in range(3):
        yield f"{place} {number}"


def leave_in_a_cycle(items: Any) -> None:
    """A half-read stream that only the collector closes, whenever it comes."""
    next(items)
    held: list[Any] = [items]
    held.append(held)


def _sync_steps(number: int) -> int:
    place = f"room {number % 7}"
    assert look(place) == f"{place} is empty"
    try:
        fail(place)
    except UsersError as error:
        found = error.args
    else:
        raise AssertionError("the user's error was lost")
    assert found == (place,)
    assert list(stream(place)) == [f"{place} {item}" for item in range(3)]
    leave_in_a_cycle(stream(place))
    return 4


@tidegauge.agent
def sync_agent(task: str, rounds: int, disturb: Callable[[], object]) -> int:
    """Four steps a round; it is disturbed between them, too."""
    steps = 0
    for number in range(rounds):
        steps += _sync_steps(number)
        disturb()
    return steps


@tidegauge.agent
async def async_agent(task: str, rounds: int, disturb: Callable[[], object]) -> int:
    """Three steps at once a round, and four after them."""
    steps = 0
    for number in range(rounds):
        places = [f"hall {number % 5}", "attic", "shed"]
        found = await asyncio.gather(*map(look_later, places))
        assert found == [f"{place} is empty" for place in places]
        steps += 3 + _sync_steps(number)
        disturb()
    return steps


def manual_agent(task: str, rounds: int, disturb: Callable[[], object]) -> int:
    """The same with ``tidegauge.run``: two steps a round."""
    with tidegauge.run(agent="manual", task=task) as run:
        for number in range(rounds):
            run.act("walk", {"to": number % 5})
            run.observe("dark", place=str(number % 5), exits=["0", "1", "2"])
            run.act_round([("look", {"at": "left"}), ("look", {"at": "right"})])
            disturb()
            run.observe_round([("dust", False), ("no", True)])
    return 2 * rounds


def run_async(task: str, rounds: int, disturb: Callable[[], object]) -> int:
    return asyncio.run(async_agent(task, rounds, disturb))


AGENTS: dict[str, Callable[[str, int, Callable[[], object]], int]] = {
    "sync": sync_agent,
    "async": run_async,
    "manual": manual_agent,
}


def nothing() -> None:
    """No disturbance."""


def steps_of(seen: testing.Capture) -> int:
    """All steps that the engine has counted."""
    return sum(group.totals.steps for group in seen.pipeline.engine.snapshot().groups)


def open_runs(seen: testing.Capture) -> int:
    """Runs that the engine still holds."""
    gc.collect()
    return len(seen.pipeline.engine.snapshot().active)
