"""A person decides in a graph whose calls no model chose, or were chosen in another process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from support.langchain_agents import (
    Reports,
    StepLog,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.looking_agents import look
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]
PLACES = ["desk", "box"]


def on(thread: str, *handlers: TidegaugeCallbackHandler) -> dict[str, Any]:
    return {"callbacks": list(handlers), "configurable": {"thread_id": thread}}


def plan(place: str) -> Callable[..., Any]:
    call = {"name": "look", "args": {"place": place}, "id": f"call-{place}", "type": "tool_call"}
    return lambda state: {"messages": [AIMessage("", tool_calls=[call])]}


def approve(state: MessagesState) -> dict[str, Any]:
    interrupt("may I?")
    return {}


def planned(*, by_node: bool) -> tuple[Any, Any]:
    """A graph without a model, which runs the calls that its code makes."""
    graph = StateGraph(MessagesState)
    order = [START]
    if by_node:
        graph.add_node("approve", approve)
        order.append("approve")
    for place in PLACES:
        graph.add_node(f"plan {place}", plan(place))
        graph.add_node(f"look into {place}", ToolNode([look]))
        order += [f"plan {place}", f"look into {place}"]
    for before, after in pairwise(order):
        graph.add_edge(before, after)
    pauses = [] if by_node else ["look into desk"]
    made = graph.compile(name="looker", checkpointer=InMemorySaver(), interrupt_before=pauses)
    return made, Command(resume="yes") if by_node else None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_node", [False, True])
async def test_calls_of_code_after_an_approval_are_steps(
    way: Callable[..., Any], by_node: bool
) -> None:
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent, answer = planned(by_node=by_node)
        for inputs in (TASK, answer):
            handler = TidegaugeCallbackHandler()
            await way(agent, inputs, on("one", handler))
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("looker", 2, "unknown")]
    steps = [
        (call.arguments, result.outcome) for (call,), _, (result,) in log.steps(reports[0].run)
    ]
    assert steps == [({"place": place}, f"{place} is empty") for place in PLACES]


def test_they_are_steps_in_another_process_that_has_the_run(tmp_path: Path) -> None:
    agent, answer = planned(by_node=True)
    for inputs, count in ((TASK, []), (answer, [2])):
        with testing.capture(run_store=str(tmp_path / "runs.sqlite")) as seen:
            reports = Reports(seen)
            agent.invoke(inputs, on("one", TidegaugeCallbackHandler()))
        assert [report.steps for report in reports] == count


@tool
def ask(place: str) -> str:
    """Look into a place, if a person lets you."""
    return f"{place} is empty, says {interrupt(place)}"


def test_calls_of_a_run_that_is_not_known_here_are_no_steps_after_a_second_pause() -> None:
    def say(messages: Any) -> AIMessage:
        return (
            answers("none")
            if turns(messages)
            else chooses(*[("ask", {"place": p}) for p in PLACES])
        )

    agent = create_agent(
        ScriptedChatModel(script=say), [ask], name="it", checkpointer=InMemorySaver()
    )
    with testing.capture() as seen:
        first = Reports(seen)
        agent.invoke(TASK, on("one", TidegaugeCallbackHandler()))
    pauses = {pause.value: pause.id for pause in agent.get_state(on("one")).interrupts}  # type: ignore[arg-type]
    with testing.capture() as seen:
        second = Reports(seen)
        for place in PLACES:
            answer = Command(resume={pauses[place]: "a person"})
            agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
    assert [report.steps for report in (*first, *second)] == [1, 0]
