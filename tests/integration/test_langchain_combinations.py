"""Parallel branches with structured output, spans, interrupts, nodes as steps and by hand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from opentelemetry import trace
from pydantic import BaseModel

import tidegauge
from support.langchain_agents import (
    Reports,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.scripted_model import ScriptedChatModel, answers, chooses
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware

Way = Callable[..., Any]
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]
NOTHING: dict[str, Any] = {}


class Essays(TypedDict, total=False):
    messages: Annotated[list[BaseMessage], add_messages]
    grades: Annotated[list[str], operator.add]
    essay: str


@tool
def grade(essay: str) -> str:
    """Grade an essay."""
    return "ok"


@tool
def ask(essay: str) -> str:
    """Ask a person for a grade."""
    return str(interrupt("which grade?"))


class Grade(BaseModel):
    """A grade."""

    mark: int


def calls_once(name: str) -> Any:
    """A model that calls one tool, then answers."""

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return answers("done")
        return chooses((name, {"essay": "x"}))

    return ScriptedChatModel(script=script)


def grading(node: Any, essays: int) -> Any:
    """A graph that sends each essay to the node."""
    sent = [
        Send("grader", {"essay": f"essay {n}", "messages": [("user", f"essay {n}")]})
        for n in range(essays)
    ]
    graph = StateGraph(Essays)
    graph.add_node("grader", node)
    graph.add_node("join", lambda state: {"grades": ["joined"]})
    graph.add_conditional_edges(START, lambda state: sent, ["grader"])
    graph.add_edge("grader", "join")
    return graph


def summary(reports: Reports) -> list[tuple[str, int]]:
    return sorted((report.agent, report.steps) for report in reports)


async def reports_of(way: Way, graph: Any, **settings: Any) -> list[tuple[str, int]]:
    """Agent and steps of each run."""
    handler = TidegaugeCallbackHandler(**settings)
    with testing.capture(stop_on_loop=2, stop_on_result_streak=3) as seen:
        reports = Reports(seen)
        await way(graph.compile(name="team"), NOTHING, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    return summary(reports)


@pytest.mark.parametrize("way", WAYS)
async def test_structured_output_of_branches_is_no_step(way: Way) -> None:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return chooses(("Grade", {"mark": 3}))
        return chooses(("grade", {"essay": str(messages[-1].content)}))

    model = ScriptedChatModel(script=script)
    agent = create_agent(model, [grade], response_format=ToolStrategy(Grade))
    assert await reports_of(way, grading(agent, 4)) == [*[("grader", 1)] * 4, ("team", 1)]


@pytest.mark.parametrize("way", WAYS)
async def test_with_nodes_as_steps_what_is_sent_is_one_step(way: Way) -> None:
    agent = create_agent(calls_once("grade"), [grade])
    assert await reports_of(way, grading(agent, 4), steps="nodes") == [("team", 2)]


@pytest.mark.parametrize("way", WAYS)
async def test_tools_that_nodes_call_themselves(way: Way) -> None:
    def node(state: Essays) -> Any:
        return {"grades": [grade.invoke({"essay": state["essay"]})]}

    assert await reports_of(way, grading(node, 8)) == [*[("grader", 1)] * 8, ("team", 1)]


@pytest.mark.parametrize("way", WAYS)
async def test_decorated_tools_that_nodes_call(way: Way) -> None:
    @tidegauge.tool
    def mark(essay: str) -> str:
        return "ok"

    def node(state: Essays) -> Any:
        return {"grades": [mark(state["essay"])]}

    assert await reports_of(way, grading(node, 8)) == [*[("grader", 1)] * 8, ("team", 1)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_stop", ["raise", "end"])
async def test_branches_that_loop_end_gracefully(way: Way, on_stop: Any) -> None:
    model = ScriptedChatModel(script=lambda messages: chooses(("grade", {"essay": "same"})))
    agent = create_agent(model, [grade], middleware=[TidegaugeMiddleware()])
    handler = TidegaugeCallbackHandler(on_stop=on_stop)
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        await way(grading(agent, 3).compile(name="team"), NOTHING, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    outcomes = sorted((report.agent, report.outcome) for report in reports)
    assert outcomes == [*[("grader", "stopped")] * 3, ("team", "unknown")]


@pytest.mark.parametrize("way", WAYS)
async def test_the_tools_of_branches_see_their_spans(way: Way) -> None:
    current: list[str] = []

    @tool
    def query(essay: str) -> str:
        """Query a database."""
        current.append(getattr(trace.get_current_span(), "name", ""))
        return "ok"

    graph = grading(create_agent(calls_once("query"), [query]), 3)
    assert await reports_of(way, graph) == [*[("grader", 1)] * 3, ("team", 1)]
    assert current == ["execute_tool query"] * 3
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.parametrize("way", WAYS)
async def test_branches_that_wait_for_a_person_go_on_with_another_handler(way: Way) -> None:
    agent = create_agent(calls_once("ask"), [ask])
    graph = grading(agent, 3).compile(name="team", checkpointer=InMemorySaver())
    thread: Any = {"thread_id": "one"}
    with testing.capture() as seen:
        reports = Reports(seen)
        first = {"callbacks": [TidegaugeCallbackHandler()], "configurable": thread}
        await way(graph, NOTHING, first)
        state = graph.get_state({"configurable": thread})
        waiting = [one.id for task in state.tasks for one in task.interrupts]
        assert len(waiting) == 3
        handler = TidegaugeCallbackHandler()
        await graph.ainvoke(
            Command(resume=dict.fromkeys(waiting, "good")),
            {"callbacks": [handler], "configurable": thread},
        )
        assert nothing_is_left(handler, seen)
    assert summary(reports) == [*[("grader", 1)] * 3, ("team", 1)]
