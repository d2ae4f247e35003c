"""Budgets in real frameworks: a run whose model only talks ends cleanly, and keeps its work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

import tidegauge
from support.agents_sdk import nothing_is_left, scripted, traced_by
from support.langchain_agents import Reports
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    stopped_by,
)
from tidegauge.instrumentation.openai_agents import (
    AgentRunStopped,
    TidegaugeRunHooks,
    TidegaugeTracingProcessor,
)
from tidegauge.policies import Budget

ran: list[str] = []


@tool
def read(path: str) -> str:
    """Read a file."""
    ran.append(path)
    return f"text of {path}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def talking_graph(model: Any, checkpointer: Any = None) -> Any:
    """A graph that asks its model again while it says nothing."""

    def think(state: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_edge(START, "think")
    graph.add_conditional_edges(
        "think", lambda state: END if state["messages"][-1].content else "think", ["think", END]
    )
    return graph.compile(name="talker", checkpointer=checkpointer)


def test_a_graph_whose_model_only_talks_is_stopped_before_the_next_model_call() -> None:
    asked: list[int] = []

    def says_nothing(messages: Sequence[BaseMessage]) -> AIMessage:
        asked.append(turns(messages))
        return answers("", tokens=(8_000, 2))

    saver = InMemorySaver()
    graph = talking_graph(ScriptedChatModel(script=says_nothing), saver)
    config: Any = {
        "callbacks": [TidegaugeCallbackHandler()],
        "configurable": {"thread_id": "t"},
        "recursion_limit": 50,
    }
    with testing.capture(budgets=[Budget("tokens", 50_000)]) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped, match="the budget of 50,000 tokens") as raised:
            graph.invoke({"messages": [HumanMessage("go")]}, config)
    assert raised.value.reason == "budget_tokens"
    assert asked == list(range(7))  # seven answers were paid for, and all are kept
    assert len(graph.get_state(config).values["messages"]) == 8
    assert [one.outcome for one in reports] == ["stopped"]


def test_an_answer_that_uses_the_budget_up_and_ends_the_run_is_its_answer() -> None:
    graph = talking_graph(ScriptedChatModel(script=lambda _: answers("42", tokens=(9_000, 2))))
    with testing.capture(budgets=[Budget("tokens", 100)]) as seen:
        reports = Reports(seen)
        found = graph.invoke(
            {"messages": [HumanMessage("go")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    assert found["messages"][-1].content == "42"
    assert [one.outcome for one in reports] == ["unknown"]


def test_calls_that_are_chosen_beyond_the_budget_are_not_run() -> None:
    model = ScriptedChatModel(
        script=lambda m: chooses(("read", {"path": str(turns(m))}), tokens=(40, 2))
    )
    agent = create_agent(model, [read], name="coder")
    with (
        testing.capture(budgets=[Budget("tokens", 100)]),
        pytest.raises(tidegauge.RunStopped),
    ):
        agent.invoke({"messages": [("user", "go")]}, {"callbacks": [TidegaugeCallbackHandler()]})
    assert ran == ["0", "1"]


def test_the_middleware_shows_what_is_left_and_ends_the_agent_in_words() -> None:
    shown: list[list[str]] = []

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        shown.append([str(one.content) for one in messages if isinstance(one, HumanMessage)])
        return chooses(("read", {"path": str(turns(messages))}), tokens=(42, 2))

    agent = create_agent(
        ScriptedChatModel(script=script), [read], middleware=[TidegaugeMiddleware()]
    )
    with testing.capture(budgets=[Budget("tokens", 100)]):
        found = agent.invoke(
            {"messages": [("user", "go")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    stop = stopped_by(found["messages"][-1])
    assert stop is not None
    assert stop.reason == "budget_tokens"
    assert "the budget of 100 tokens for this run is used up: 132 tokens" in str(
        found["messages"][-1].content
    )
    assert ran == ["0", "1"]
    assert shown[2][1:] == [
        "The budget of 100 tokens for this run is nearly used up: 12 tokens left. "
        "Finish with what you have."
    ]


def test_the_middleware_answers_calls_beyond_a_budget_that_blocks() -> None:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) == 4:
            return answers("done")
        return chooses(("read", {"path": str(turns(messages))}))

    agent = create_agent(
        ScriptedChatModel(script=script), [read], middleware=[TidegaugeMiddleware()]
    )
    budget = Budget("calls", 2, tool="read", action="block", nudge_at=0)
    with testing.capture(budgets=[budget]):
        found = agent.invoke(
            {"messages": [("user", "go")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    assert found["messages"][-1].content == "done"
    assert ran == ["0", "1"]
    assert "This call was not run: the budget of 2 calls of read" in str(found["messages"][-2])


def test_the_agents_sdk_stops_before_the_next_model_call_and_after_too_dear_a_choice() -> None:
    processor = TidegaugeTracingProcessor()
    hooks = TidegaugeRunHooks(processor)

    @function_tool
    def look(place: str) -> str:
        """Look into a place."""
        ran.append(place)
        return f"{place} is empty"

    agent = Agent(
        "searcher",
        model=scripted([[("look", {"place": str(n)})] for n in range(9)]),
        tools=[look],
    )
    with (
        traced_by(processor),
        testing.capture(budgets=[Budget("tokens", 36)]) as seen,  # of 12 a call
    ):
        with pytest.raises(AgentRunStopped, match="the budget of 36 tokens") as raised:
            asyncio.run(Runner.run(agent, "find it", hooks=hooks, max_turns=9))
        assert raised.value.reason == "budget_tokens"
        assert ran == ["0", "1"]
        assert nothing_is_left(processor, seen)


def test_decorators_report_model_calls_and_are_stopped_there() -> None:
    @tidegauge.agent(model="m")
    def talks(task: str) -> None:
        while True:
            run = tidegauge.get_current_run()
            run.spend(input_tokens=1_000, output_tokens=10)

    prices = {"m": {"input": 1, "output": 2}}
    with (
        testing.capture(budgets=[Budget("usd", 0.01)], prices=prices),
        pytest.raises(tidegauge.RunStopped, match=r"the budget of \$0.01 for this run is used up"),
    ):
        talks("go on")


def test_tokens_of_reported_model_calls_are_those_of_the_next_step() -> None:
    with testing.capture() as seen, tidegauge.run(agent="a") as run:
        run.spend(tokens=30)
        run.spend(input_tokens=5, output_tokens=5)
        run.act("look", tokens=2)
        run.observe("nothing")
        run.act("look")
        [report] = seen.pipeline.engine.snapshot().active
        assert report.tokens == 42
