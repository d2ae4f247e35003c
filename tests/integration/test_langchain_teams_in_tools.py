"""Agents that tools and nodes call: whole teams, and an agent below another one of its name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

import tidegauge
from support.langchain_agents import (
    Reports,
    StepLog,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.looking_agents import Bound, Script, look, looks_around, looks_for_ever, once
from support.scripted_model import ScriptedChatModel, answers, chooses
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
ASKED: dict[str, Any] = {"messages": [("user", "look around")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


def calling(make: Any, name: str, asks: Any, *, passed: bool) -> Any:
    """An agent whose one tool asks another agent once, with its own config or without."""

    def delegate(task: str, config: RunnableConfig) -> str:
        """Let another agent do it."""
        asks.invoke(ASKED, config if passed else None)
        return "asked"

    async def delegate_later(task: str, config: RunnableConfig) -> str:
        """Let another agent do it."""
        await asks.ainvoke(ASKED, config if passed else None)
        return "asked"

    both = tool("delegate")(delegate)
    both.coroutine = delegate_later
    return make(ScriptedChatModel(script=once("delegate", {"task": "x"})), [both], name=name)


async def healthy(agent: Any, way: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Run agents that are not stopped. Gives the runs, as they end, with their steps' actions."""
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    return [
        (r.agent, [tuple(c.action for c in calls) for calls, _, _ in log.steps(r.run)])
        for r in reports
    ]


async def stopped(agent: Any, way: Any) -> tuple[int, str, int, list[Any]]:
    """Run agents of which one loops. Gives its place among the runs, reason and step, the runs."""
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    runs = [(report.agent, report.steps, report.outcome) for report in reports]
    place = [report.run for report in reports].index(caught.value.run)
    return place, caught.value.reason, caught.value.step, runs


def supervised(*, loops: bool) -> Any:
    """A supervisor that hands over to its one agent: once, or again and again."""

    def boss(messages: Sequence[BaseMessage]) -> AIMessage:
        found = any(message.content == "none" for message in messages)
        return answers("done") if found and not loops else chooses(("transfer_to_seeker", {}))

    seeker = create_react_agent(
        ScriptedChatModel(script=lambda messages: answers("none")), [look], name="seeker"
    )
    return create_supervisor([seeker], model=Bound(script=boss)).compile(name="team")


def swarming(*, loops: bool) -> Any:
    """Two agents: the first hands over to the second, which answers or hands back."""

    def bert(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("transfer_to_anna", {})) if loops else answers("none")

    def anna(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("transfer_to_bert", {}))

    members: list[Any] = [
        create_react_agent(
            Bound(script=anna), [create_handoff_tool(agent_name="bert")], name="anna"
        ),
        create_react_agent(
            Bound(script=bert), [create_handoff_tool(agent_name="anna")], name="bert"
        ),
    ]
    return create_swarm(members, default_active_agent="anna").compile(name="team")


def deep(*, loops: bool) -> Any:
    """A deep agent that asks a sub-agent once, or again and again."""
    asked = ("task", {"description": "look around", "subagent_type": "seeker"})
    seeker: Any = {
        "name": "seeker",
        "description": "looks",
        "runnable": create_agent(
            ScriptedChatModel(script=lambda messages: answers("none")), [look], name="seeker"
        ),
    }
    script: Script = (lambda messages: chooses(asked)) if loops else once(*asked)
    return create_deep_agent(ScriptedChatModel(script=script), subagents=[seeker], name="team")


SEEKER = [("seeker", 0, "unknown")]
"""A sub-agent of a deep agent, which answers at once."""

TEAMS: dict[str, tuple[Any, list[str], list[str], list[Any], int]] = {
    "supervisor": (supervised, ["transfer_to_seeker"], [], [], 3),
    "swarm": (swarming, ["transfer_to_bert"], [], [], 6),
    "deep agent": (deep, ["task"], ["seeker"], SEEKER * 3, 3),
}
"""How a team is made, its steps when healthy, the runs in it then and when it loops, and its stop.

A round of one step (two in the swarm) is made once and repeated twice: so it is stopped at the
step after three rounds.
"""


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TEAMS)
async def test_a_whole_team_inside_a_tool(name: str, way: Any, passed: bool) -> None:
    """It is one run with its own hand-offs, and a loop of them is found in it."""
    team, steps, inside, before, at = TEAMS[name]
    runs = await healthy(calling(create_agent, "chief", team(loops=False), passed=passed), way)
    assert runs == [
        *((agent, []) for agent in inside),
        ("team", [(action,) for action in steps]),
        ("chief", [("delegate",)]),
    ]
    outer = calling(create_agent, "chief", team(loops=True), passed=passed)
    assert await stopped(outer, way) == (
        len(before),
        "loop_repeats",
        at,
        [*before, ("team", at + 1, "stopped"), ("chief", 1, "stopped")],
    )


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [create_agent, create_react_agent])
async def test_an_agent_below_another_one_of_its_name(make: Any, way: Any, passed: bool) -> None:
    """A chief asks a helper, which asks a chief: that one is a run under the helper."""

    def agents(script: Script) -> Any:
        inner = make(ScriptedChatModel(script=script), [look], name="chief")
        helper = calling(make, "helper", inner, passed=passed)
        return calling(create_agent, "chief", helper, passed=passed)

    assert await healthy(agents(looks_around), way) == [
        ("chief", [("look",)] * 3),
        ("helper", [("delegate",)]),
        ("chief", [("delegate",)]),
    ]
    assert await stopped(agents(looks_for_ever), way) == (
        0,
        "loop_repeats",
        3,
        [("chief", 4, "stopped"), ("helper", 1, "stopped"), ("chief", 1, "stopped")],
    )


@pytest.mark.parametrize("make", [create_agent, create_react_agent])
async def test_an_agent_inside_a_tool_is_seen_whatever_its_name(make: Any) -> None:
    inner = make(ScriptedChatModel(script=looks_around), [look], name="chief")
    runs = await healthy(calling(create_agent, "chief", inner, passed=True), via_invoke)
    assert runs == [("chief", [("look",)] * 3), ("chief", [("delegate",)])]


def in_a_body(agent: Any, *, passed: bool) -> Any:
    """A graph whose one node asks an agent in its code."""

    def work(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": agent.invoke(ASKED, config if passed else None)["messages"][-1:]}

    async def work_later(state: MessagesState, config: RunnableConfig) -> Any:
        given = await agent.ainvoke(ASKED, config if passed else None)
        return {"messages": given["messages"][-1:]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", RunnableLambda(work, work_later))
    graph.add_edge(START, "work")
    return graph.compile(name="outer")


def created(script: Script, name: str | None = "helper") -> Any:
    return create_agent(ScriptedChatModel(script=script), [look], name=name)


def labelled(script: Script) -> Any:
    agent = create_react_agent(ScriptedChatModel(script=script), [look])
    return agent.with_config(metadata={"tidegauge_agent": "helper"})


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [created, labelled])
async def test_an_agent_that_the_code_of_a_node_calls(make: Any, way: Any, passed: bool) -> None:
    assert await healthy(in_a_body(make(looks_around), passed=passed), way) == [
        ("helper", [("look",)] * 3),
        ("outer", [("helper",)]),
    ]
    assert await stopped(in_a_body(make(looks_for_ever), passed=passed), way) == (
        0,
        "loop_repeats",
        3,
        [("helper", 4, "stopped"), ("outer", 1, "stopped")],
    )


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", WAYS)
async def test_an_unnamed_agent_that_the_code_of_a_node_calls(way: Any, passed: bool) -> None:
    """Its steps are those of the graph."""
    agent = in_a_body(created(looks_around, None), passed=passed)
    assert await healthy(agent, way) == [("outer", [("look",)] * 3)]
    agent = in_a_body(created(looks_for_ever, None), passed=passed)
    assert await stopped(agent, way) == (0, "loop_repeats", 3, [("outer", 4, "stopped")])


@pytest.mark.parametrize("slow", ["first", "second"])
@pytest.mark.parametrize("way", [via_ainvoke, via_astream])
async def test_tools_that_the_code_of_a_node_gathers(way: Any, slow: str) -> None:
    """They are a step each, in the order in which they start, whichever ends first."""

    @tool
    async def first(place: str) -> str:
        """Look into a place."""
        await asyncio.sleep(0.05 if slow == "first" else 0)
        return "empty"

    @tool
    async def second(place: str) -> str:
        """Look into a place."""
        await asyncio.sleep(0.05 if slow == "second" else 0)
        return "full"

    async def work(state: MessagesState) -> dict[str, Any]:
        await asyncio.gather(first.ainvoke({"place": "desk"}), second.ainvoke({"place": "box"}))
        return {"messages": []}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    assert await healthy(graph.compile(name="outer"), way) == [
        ("outer", [("first",), ("second",)]),
    ]
