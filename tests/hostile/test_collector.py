"""The garbage collector comes at any allocation, and runs the user's code when it does."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import tidegauge
from hostile.agents_at_work import AGENTS, look, nothing, open_runs, steps_of, stream
from hostile.harness import check
from tidegauge import testing

calls_at_the_end: list[str] = []


class CallsATool:
    """Part of a cycle; calls a tool when it is collected."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        calls_at_the_end.append(look("the end"))


def at_every_allocation(agent: str, threshold: str) -> None:
    """Half-read streams are closed by the collector, in the middle of any step."""
    with testing.capture() as seen:
        gc.set_threshold(int(threshold))
        made = AGENTS[agent]("find it", 400, nothing)
        gc.set_threshold(700)
        gc.collect()
        assert steps_of(seen) == made
        assert open_runs(seen) == 0


@pytest.mark.parametrize("threshold", ["1", "2", "7", "50"])
@pytest.mark.parametrize("agent", AGENTS)
def test_at_every_allocation(agent: str, threshold: str) -> None:
    check(at_every_allocation, agent, threshold)


def tool_in_del(threshold: str) -> None:
    with testing.capture() as seen:
        gc.set_threshold(int(threshold))

        @tidegauge.agent
        def agent(task: str) -> None:
            for number in range(500):
                look(f"room {number}")
                CallsATool()
            gc.collect()

        agent("find it")
        gc.set_threshold(700)
        assert 500 <= steps_of(seen) <= 1_000  # those collected inside a tool are its own
        assert len(calls_at_the_end) == 500


@pytest.mark.parametrize("threshold", ["1", "3", "20"])
def test_a_finaliser_calls_a_tool(threshold: str) -> None:
    check(tool_in_del, threshold)


def with_snapshots(threshold: str) -> None:
    """The collector closes streams while a scrape looks at the runs, too."""
    with testing.capture() as seen:
        gc.set_threshold(int(threshold))

        def scrape() -> None:
            seen.pipeline.engine.snapshot()

        made = AGENTS["sync"]("find it", 200, scrape)
        gc.set_threshold(700)
        gc.collect()
        assert steps_of(seen) == made


@pytest.mark.parametrize("threshold", ["1", "10"])
def test_while_runs_are_looked_at(threshold: str) -> None:
    check(with_snapshots, threshold)


def callback_at_every_collection(deed: str) -> None:
    """``gc.callbacks`` call what they like at the moment of a collection."""
    deeds: dict[str, Callable[[testing.Capture], object]] = {
        "tool": lambda seen: look("the callback"),
        "snapshot": lambda seen: seen.pipeline.engine.snapshot(),
        "run": lambda seen: AGENTS["manual"]("inside", 1, nothing),
    }
    inside: list[Any] = []
    with testing.capture() as seen:

        def callback(phase: str, info: Any) -> None:
            if phase == "start" and not inside:
                inside.append(deeds[deed](seen))
                inside.clear()

        gc.callbacks.append(callback)
        gc.set_threshold(200)  # less often than a call allocates, or none would ever end
        AGENTS["sync"]("find it", 100, nothing)
        gc.callbacks.clear()
        gc.set_threshold(700)
        gc.collect()
        assert steps_of(seen) >= 400
        assert open_runs(seen) == 0


@pytest.mark.parametrize("deed", ["tool", "snapshot", "run"])
def test_a_callback_of_the_collector(deed: str) -> None:
    check(callback_at_every_collection, deed)


def unexhausted_streams() -> None:
    """Every stream is read once and left: what an agent does that takes the first hit."""
    with testing.capture() as seen:

        @tidegauge.agent
        def agent(task: str) -> None:
            for number in range(3_000):
                items = stream(f"room {number}")
                next(items)
                held: list[Any] = [items]
                held.append(held)

        agent("find it")
        gc.collect()
        assert steps_of(seen) == 3_000
        assert open_runs(seen) == 0


def test_streams_left_unexhausted() -> None:
    check(unexhausted_streams)


def unexhausted_async_streams() -> None:
    with testing.capture() as seen:

        @tidegauge.tool
        async def pages(place: str) -> AsyncIterator[str]:
            for number in range(3):
                yield f"{place} {number}"

        @tidegauge.agent
        async def agent(task: str) -> None:
            for number in range(500):
                items = pages(f"room {number}")
                await anext(items)
                held: list[Any] = [items]
                held.append(held)
                if number % 10 == 0:
                    await asyncio.sleep(0)

        gc.set_threshold(3)
        asyncio.run(agent("find it"))
        gc.set_threshold(700)
        gc.collect()
        assert steps_of(seen) == 500
        assert open_runs(seen) == 0


def test_async_streams_left_unexhausted() -> None:
    check(unexhausted_async_streams)


def streaming_agents_left(threshold: str) -> None:
    """Runs that the collector ends, while others are at work."""

    @tidegauge.agent
    def left(task: str) -> Any:
        look("inside")
        yield 1
        look("never")

    with testing.capture() as seen:
        gc.set_threshold(int(threshold))

        @tidegauge.agent
        def agent(task: str) -> None:
            for _ in range(300):
                items = left("a part")
                next(items)
                held: list[Any] = [items]
                held.append(held)
                look("outside")

        agent("find it")
        gc.set_threshold(700)
        gc.collect()
        assert steps_of(seen) == 600
        assert open_runs(seen) == 0


@pytest.mark.parametrize("threshold", ["1", "5", "100"])
def test_streaming_agents_left_unexhausted(threshold: str) -> None:
    check(streaming_agents_left, threshold)
