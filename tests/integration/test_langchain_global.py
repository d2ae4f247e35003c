"""A handler that is given to nobody sees every invocation, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langchain_core.tracers import context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph

import tidegauge
from support.langchain_agents import Reports, nothing_is_left
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    instrument,
    uninstrument,
)
from tidegauge.instrumentation.langchain.run_lookup import find_agent_run

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}


@pytest.fixture
def handler() -> Iterator[TidegaugeCallbackHandler]:
    yield instrument(agent="everywhere", task_group="keys")
    uninstrument()


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


def say(messages: Sequence[BaseMessage]) -> AIMessage:
    return answers("no") if turns(messages) == 2 else chooses(("look", {"place": "desk"}))


def seeker(**options: Any) -> Any:
    return create_agent(ScriptedChatModel(script=say), [look], name="seeker", **options)


async def test_in_threads_and_in_tasks(handler: TidegaugeCallbackHandler) -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = seeker()
        agent.invoke(TASK)
        list(agent.stream(TASK))
        agent.batch([TASK, TASK])
        await asyncio.gather(agent.ainvoke(TASK), agent.ainvoke(TASK))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(agent.invoke, [TASK, TASK]))
        assert nothing_is_left(handler, seen)
    reported = [(report.agent, report.task_group, report.steps) for report in reports]
    assert reported == [("everywhere", "keys", 2)] * 8
    assert all(line.startswith(("invoke_agent", "  ")) for line in seen.tree())


def test_an_invocation_with_a_handler_of_its_own_is_measured_once_by_that_one(
    handler: TidegaugeCallbackHandler,
) -> None:
    own = TidegaugeCallbackHandler(agent="own")
    with testing.capture() as seen:
        reports = Reports(seen)
        seeker().invoke(TASK, {"callbacks": [own]})
        seeker().with_config(callbacks=[own]).invoke(TASK)
        seeker().invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert nothing_is_left(own, seen)
    assert [(report.agent, report.steps) for report in reports] == [
        ("own", 2),
        ("own", 2),
        ("everywhere", 2),
    ]
    assert len(seen.spans) == 3 * (1 + 3 + 2)


def test_it_is_over_when_it_is_undone_and_begins_anew_with_other_labels(
    handler: TidegaugeCallbackHandler,
) -> None:
    hooks = len(context._configure_hooks)
    with testing.capture() as seen:
        reports = Reports(seen)
        instrument(agent="first")
        instrument(agent="second")
        seeker().invoke(TASK)
        uninstrument()
        uninstrument()
        seeker().invoke(TASK)
        instrument(agent="third")
        seeker().invoke(TASK)
    assert [report.agent for report in reports] == ["second", "third"]
    assert len(context._configure_hooks) == hooks, "hooks are there for ever: one is enough"


def test_it_stops(handler: TidegaugeCallbackHandler) -> None:
    with testing.capture(stop_on_steps=1) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped):
            seeker(checkpointer=InMemorySaver()).invoke(
                TASK, {"configurable": {"thread_id": "one"}}
            )
        assert nothing_is_left(handler, seen)
    assert [report.outcome for report in reports] == ["stopped"]


def test_a_run_that_is_open_when_it_is_undone_goes_on_to_its_end(
    handler: TidegaugeCallbackHandler,
) -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        stream = seeker().stream(TASK)
        next(stream)
        uninstrument()
        list(stream)
        assert nothing_is_left(handler, seen)
    assert [report.steps for report in reports] == [2]


def test_a_setting_that_cannot_work_changes_nothing(handler: TidegaugeCallbackHandler) -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.ConfigurationError):
            instrument(t_max=0)
        seeker().invoke(TASK)
    assert [report.agent for report in reports] == ["everywhere"]


@pytest.mark.parametrize("given", ["globally", "by invocation"])
async def test_a_node_finds_its_run(given: str) -> None:
    found: list[Any] = []

    @tool
    def inside(place: str) -> str:
        """Look into a place."""
        found.append(find_agent_run(get_config()["callbacks"]))
        return "nothing"

    def node(state: MessagesState) -> dict[str, Any]:
        found.append(find_agent_run(get_config()["callbacks"]))
        inside.invoke({"place": "desk"})
        return {}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    config: Any = {}
    if given == "globally":
        instrument()
    else:
        config = {"callbacks": [TidegaugeCallbackHandler()]}
    try:
        with testing.capture() as seen:
            reports = Reports(seen)
            graph.invoke(TASK, config)
            await graph.ainvoke(TASK, config)
    finally:
        uninstrument()
    assert [None if run is None else run.recorded.id for run in found] == [
        reports[0].run,
        None,
        reports[1].run,
        None,
    ]
    assert find_agent_run(None) is None
    assert find_agent_run([TidegaugeCallbackHandler()]) is None
