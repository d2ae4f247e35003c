"""Agents of every way in that follow scripts of their own, for tests with many runs at once.

Each run has a number, from which its script follows: some steps, then a loop of 1 to 8 steps that
is repeated up to 4 times. Every argument and every outcome carries the number, so that what one
run has of another can be seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool as langchain_tool

import tidegauge
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import RunStopped
from tidegauge.events import (
    Decision,
    Outcome,
    RunEnded,
    RunObserver,
    RunStarted,
    RunSummary,
    Step,
)
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.pipeline import Pipeline
from tidegauge.streaming_metrics.run import MeasuredRun

Meeting = Callable[[], Awaitable[None]]
"""Called once by every run, in its midst: returns when all of them are open."""


def script(number: int) -> Iterator[tuple[str, str]]:
    """(what is looked for, what is found) of each step."""
    for n in range(number % 4):
        yield f"{number}: way {n}", f"{number}: on way {n}"
    period, repeats = number % 8 + 1, number // 8 % 5
    for _ in range(repeats + 1):
        for n in range(period):
            yield f"{number}: look {n}", f"{number}: seen {n}"


def found(what: str) -> str:
    """What a tool finds, as the script says."""
    return what.replace(": way", ": on way").replace(": look", ": seen")


@tidegauge.tool
def look(what: str) -> str:
    return found(what)


@tidegauge.tool
async def look_later(what: str) -> str:
    await asyncio.sleep(0)
    return found(what)


@langchain_tool("look")
async def look_in_langchain(what: str) -> str:
    """Look for something."""
    await asyncio.sleep(0)
    return found(what)


def _now(meeting: Meeting) -> None:
    """A meeting of a thread: one that never suspends."""
    with suppress(StopIteration):
        meeting().__await__().send(None)


def thread_run(number: int, meeting: Meeting) -> None:
    """Steps reported by hand, in a thread."""
    with suppress(RunStopped), tidegauge.run(agent="thread run", task=str(number)) as run:
        _now(meeting)
        for what, outcome in script(number):
            run.act("look", {"what": what})
            time.sleep(0)  # let another thread go on
            run.observe(outcome)
        run.finish(success=number % 2 == 0)


def thread_agent(number: int, meeting: Meeting) -> None:
    """A decorated agent, in a thread."""

    @tidegauge.agent(name="thread agent", success=lambda answer: answer)
    def agent(task: str) -> bool:
        _now(meeting)
        for what, _ in script(number):
            look(what)
        return number % 2 == 0

    with suppress(RunStopped):
        agent(str(number))


async def task_run(number: int, meeting: Meeting) -> None:
    """Steps reported by hand, in a task."""
    with suppress(RunStopped):
        async with tidegauge.run(agent="task run", task=str(number)) as run:
            await meeting()
            for what, outcome in script(number):
                run.act("look", {"what": what})
                await asyncio.sleep(0)
                run.observe(outcome)
            run.finish(success=number % 2 == 0)


async def task_agent(number: int, meeting: Meeting) -> None:
    """A decorated agent with tools in tasks of their own and in threads."""

    @tidegauge.agent(name="task agent", success=lambda answer: answer)
    async def agent(task: str) -> bool:
        await meeting()
        for n, (what, _) in enumerate(script(number)):
            if n % 8 == 7:
                await asyncio.to_thread(look, what)
            else:
                await asyncio.create_task(look_later(what))
        return number % 2 == 0

    with suppress(RunStopped):
        await agent(str(number))


async def generator_agent(number: int, meeting: Meeting) -> None:
    """An async generator; every third is closed when it has yielded half of its items."""

    @tidegauge.agent(name="generator agent")
    async def agent(task: str) -> AsyncIterator[str]:
        await meeting()
        for what, _ in script(number):
            yield await look_later(what)

    limit = len([*script(number)]) // 2 if number % 3 == 0 else None
    items, taken = agent(str(number)), 0
    with suppress(RunStopped):
        async for _ in items:
            assert tidegauge.get_current_run().id == ""
            taken += 1
            if taken == limit:
                break
    await items.aclose()  # type: ignore[attr-defined]


class LangChainAgents:
    """Runnables and graphs, all under one handler."""

    def __init__(self) -> None:
        self.handler = TidegaugeCallbackHandler()

    async def runnable(self, number: int, meeting: Meeting) -> None:
        """A function that calls tools."""

        async def work(task: str) -> str:
            await meeting()
            for what, _ in script(number):
                await look_in_langchain.ainvoke({"what": what})
            return "done"

        agent = RunnableLambda(work).with_config(run_name="runnable")
        with suppress(RunStopped):
            await agent.ainvoke(str(number), config=self._config(number))

    async def graph(self, number: int, meeting: Meeting) -> None:
        """An agent of ``create_agent`` with a scripted model."""
        calls = [
            ("look_once", {"what": str(number)}),
            *(("look", {"what": w}) for w, _ in script(number)),
        ]

        @langchain_tool
        async def look_once(what: str) -> str:
            """Wait until everybody is there."""
            await meeting()
            return what

        def say(messages: Any) -> Any:
            turn = turns(messages)
            return chooses(calls[turn]) if turn < len(calls) else answers("done")

        agent = create_agent(
            ScriptedChatModel(script=say), [look_once, look_in_langchain], name="graph"
        )
        state = {"messages": [HumanMessage(str(number))]}
        config = {**self._config(number), "recursion_limit": 1_000}
        with suppress(RunStopped):
            await agent.ainvoke(state, config=config)

    def _config(self, number: int) -> Any:
        return {"callbacks": [self.handler], "metadata": {"tidegauge_task": str(number)}}


class Witness(RunObserver):
    """Keeps what was said of each run, by agent and task."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.said: dict[tuple[str, str | None], list[Any]] = {}
        self._engine = pipeline.engine
        self._open: dict[str, tuple[tuple[str, str | None], MeasuredRun]] = {}
        pipeline.observe(self)

    def run_started(self, event: RunStarted) -> None:
        key, run = (event.agent, event.task), self._engine.get(event.run)
        assert key not in self.said
        assert run is not None
        self._open[event.run] = key, run
        self.said[key] = []

    def step_issued(self, event: Step, decision: Decision) -> None:
        self._keep("issued", decision)

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        self._keep("observed", decision)

    def run_ended(self, event: RunEnded) -> None:
        key, run = self._open.pop(event.run)
        report = run.report()
        self.said[key].append((event.reason, [getattr(report, name) for name in _SUMMARISED]))

    def _keep(self, moment: str, decision: Decision) -> None:
        assert decision.signals is not None
        key, run = self._open[decision.signals.run]
        with run.lock:
            signals = run.signals()
        self.said[key].append(
            (
                moment,
                decision.action,
                decision.reason,
                *signals._replace(run="", loop_cost_seconds=0),
            )
        )


_SUMMARISED = [name for name in RunSummary._fields if name not in ("lost_seconds", "troubles")]
"""What a run cost is compared with the others, and differs."""
