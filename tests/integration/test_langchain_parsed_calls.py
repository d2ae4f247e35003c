"""Calls that a parser takes as the model's answer are no steps; calls that are answered are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    JsonOutputToolsParser,
    PydanticToolsParser,
)
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

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
from support.looking_agents import look, looks_around, looks_for_ever
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
WAYS = pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
RULES: dict[str, Any] = {"stop_on_loop": 1, "stop_on_result_streak": 3}
DOCUMENTS = 6


class Grade(BaseModel):
    """Whether a document is about the question."""

    relevant: Literal["yes", "no"]


class Ended:
    """The runs with steps, and their results."""

    def __init__(self, seen: testing.Capture) -> None:
        self.reports, self.log = Reports(seen), StepLog(seen)

    @property
    def runs(self) -> list[tuple[str, int, int]]:
        return [(one.agent, one.steps, len(one.loops)) for one in self.reports]


@pytest.mark.parametrize(
    "parser",
    [
        PydanticToolsParser(tools=[Grade]),
        JsonOutputToolsParser(),
        JsonOutputKeyToolsParser(key_name="Grade"),
    ],
    ids=lambda parser: type(parser).__name__,
)
@WAYS
async def test_grades_by_a_parser_are_no_steps(way: Callable[..., Any], parser: Any) -> None:
    """A search before each grade is a step, with its result."""
    model = ScriptedChatModel(script=lambda _: chooses(("Grade", {"relevant": "yes"})))
    grader = ChatPromptTemplate.from_messages([("user", "{it}")]) | model.bind_tools([Grade])
    graded: list[Any] = []

    def search(state: MessagesState) -> dict[str, Any]:
        look.invoke({"place": f"shelf {len(graded)}"})
        return {}

    def grade(state: MessagesState) -> dict[str, Any]:
        graded.append((grader | parser).invoke({"it": f"document {len(graded)}"}))
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("search", search)
    graph.add_node("grade", grade)
    graph.add_edge(START, "search")
    graph.add_edge("search", "grade")
    graph.add_conditional_edges(
        "grade", lambda _: "search" if len(graded) < DOCUMENTS else "__end__"
    )
    handler = TidegaugeCallbackHandler()
    with testing.capture(**RULES) as seen:
        ended = Ended(seen)
        await way(graph.compile(name="rag"), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(graded) == DOCUMENTS
    assert ended.runs == [("rag", DOCUMENTS, 0)]
    steps = ended.log.steps(ended.reports[0].run)
    assert [calls[0].action for calls, *_ in steps] == ["look"] * DOCUMENTS
    assert all(results is not None for *_, results in steps)


@WAYS
@pytest.mark.parametrize("loops", [False, True])
async def test_a_model_after_a_prompt_chooses_steps(way: Callable[..., Any], loops: bool) -> None:
    model = ScriptedChatModel(script=looks_for_ever if loops else looks_around)
    prompt = ChatPromptTemplate.from_messages([("placeholder", "{messages}")])
    chain = prompt | model.bind_tools([look])

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [chain.invoke({"messages": state["messages"]})]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        ended = Ended(seen)
        with contextlib.suppress(tidegauge.RunStopped):
            await way(graph.compile(name="looker"), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert ended.runs == [("looker", 4, 1) if loops else ("looker", 3, 0)]


@WAYS
async def test_a_parsed_call_that_code_runs_is_a_step(way: Callable[..., Any]) -> None:
    """As in LangChain's guides to chains with tools."""
    places = iter(["desk", "box", "shelf"])
    model = ScriptedChatModel(script=lambda _: chooses(("look", {"place": next(places)})))
    chain = (
        model.bind_tools([look]) | JsonOutputKeyToolsParser(key_name="look", first_tool_only=True)
    ) | look

    def node(state: MessagesState) -> dict[str, Any]:
        for _ in range(3):
            chain.invoke("find the key")
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("search", node)
    graph.add_edge(START, "search")
    with testing.capture() as seen:
        ended = Ended(seen)
        await way(graph.compile(name="looker"), TASK, {"callbacks": [TidegaugeCallbackHandler()]})
    assert ended.runs == [("looker", 3, 0)]
    steps = ended.log.steps(ended.reports[0].run)
    assert [results[0].outcome for *_, results in steps] == [
        f"{place} is empty" for place in ("desk", "box", "shelf")
    ]


@WAYS
@pytest.mark.parametrize("behavior", ["continue", "end"])
async def test_a_call_that_was_refused_at_the_end_has_its_result(
    way: Callable[..., Any], behavior: Any
) -> None:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        done = turns(messages)
        return answers("none") if done == 3 else chooses(("look", {"place": f"shelf {done}"}))

    limit = ToolCallLimitMiddleware(run_limit=2, exit_behavior=behavior)
    agent = create_agent(
        ScriptedChatModel(script=script), [look], name="looker", middleware=[limit]
    )
    with testing.capture() as seen:
        ended = Ended(seen)
        await way(agent, TASK, {"callbacks": [TidegaugeCallbackHandler()]})
    assert ended.runs == [("looker", 3, 0)]
    *_, (_, _, (refused,)) = ended.log.steps(ended.reports[0].run)
    assert refused.error
    assert "limit" in refused.outcome


@tool
def run_query(query: str) -> str:
    """Run a query."""
    return "Error: no such column: amount"


def checked_queries(
    last: int, *, checks: Callable[[int], bool] = lambda n: True
) -> tuple[Any, list[int]]:
    """The SQL agent of LangChain's docs: what one node asks, another checks and replaces."""
    asked: list[int] = []

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("run_query", {"query": "SELECT amount FROM sales"}))

    model = ScriptedChatModel(script=script).bind_tools([run_query])

    def generate_query(state: MessagesState) -> dict[str, Any]:
        asked.append(len(asked))
        if len(asked) > last:
            return {"messages": [AIMessage("no idea")]}
        return {"messages": [model.invoke(state["messages"])]}

    def check_query(state: MessagesState) -> dict[str, Any]:
        if not checks(len(asked)):
            return {"messages": []}
        message = model.invoke([("user", "check this")])
        message.id = state["messages"][-1].id
        return {"messages": [message]}

    graph = StateGraph(MessagesState)
    graph.add_node("generate_query", generate_query)
    graph.add_node("check_query", check_query)
    graph.add_node("run_query", ToolNode([run_query]))
    graph.add_edge(START, "generate_query")
    graph.add_conditional_edges(
        "generate_query", tools_condition, {"tools": "check_query", "__end__": "__end__"}
    )
    graph.add_edge("check_query", "run_query")
    graph.add_edge("run_query", "generate_query")
    return graph.compile(), asked


@WAYS
async def test_calls_that_another_node_replaces_are_no_steps(way: Any) -> None:
    with testing.capture() as seen:
        handler, ended = TidegaugeCallbackHandler(agent="sql"), Ended(seen)
        graph, _ = checked_queries(6)
        await way(graph, TASK, {"callbacks": [handler], "recursion_limit": 99})
        # Nobody knows of the first that it will be replaced.
        assert ended.runs == [("sql", 1 + 6, 1)]
        (report,) = ended.reports
        assert (report.tokens, report.loop_period) == (12 * 12, 1)
        assert nothing_is_left(handler, seen)


def test_a_stop_comes_before_the_checked_call_runs() -> None:
    with testing.capture(stop_on_loop=3) as seen:
        handler, ended = TidegaugeCallbackHandler(agent="sql"), Ended(seen)
        graph, asked = checked_queries(30)
        with pytest.raises(tidegauge.RunStopped):
            graph.invoke(TASK, {"callbacks": [handler], "recursion_limit": 99})
        (report,) = ended.reports
        assert (report.steps, len(asked)) == (1 + 5, 5)


@WAYS
async def test_calls_that_could_be_replaced_and_are_not(way: Any) -> None:
    with testing.capture() as seen:
        handler, ended = TidegaugeCallbackHandler(agent="sql"), Ended(seen)
        graph, _ = checked_queries(6, checks=lambda n: n % 2 == 1)
        await way(graph, TASK, {"callbacks": [handler], "recursion_limit": 99})
        assert ended.runs == [("sql", 1 + 6, 1)]
        (report,) = ended.reports
        assert report.tokens == (6 + 3) * 12
        assert nothing_is_left(handler, seen)
