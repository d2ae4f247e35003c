"""Code of one node asks the model again and again, and runs plain functions: LangChain reports
neither the calls nor their results. The answers that the model is shown are the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph

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
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


def looking(*places: str) -> ScriptedChatModel:
    """Looks into one place after the other."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        if turn == len(places):
            return answers("none")
        return chooses(("look", {"place": places[turn]}))

    return ScriptedChatModel(script=say)


def run_call(call: Any) -> ToolMessage:
    return ToolMessage(f"{call['args']['place']} is empty", tool_call_id=call["id"])


def in_a_node(model: ScriptedChatModel, name: str = "work") -> tuple[Any, Any]:
    def work(state: MessagesState) -> dict[str, Any]:
        messages: list[Any] = list(state["messages"])
        while True:
            messages.append(model.invoke(messages))
            if not messages[-1].tool_calls:
                return {"messages": messages[-1:]}
            messages.extend([run_call(call) for call in messages[-1].tool_calls])

    graph = StateGraph(MessagesState)
    graph.add_node(name, work)
    graph.add_edge(START, name)
    return graph.compile(name="looker"), {"messages": [("user", "find the key")]}


def in_a_node_called_model(model: ScriptedChatModel) -> tuple[Any, Any]:
    """As the node of ``create_agent``, in which a call may be its structured output."""
    return in_a_node(model, "model")


def in_an_entrypoint(model: ScriptedChatModel) -> tuple[Any, Any]:
    run_later = task(run_call)

    @entrypoint()
    def looker(messages: list[Any]) -> str:
        while True:
            messages = [*messages, model.invoke(messages)]
            if not messages[-1].tool_calls:
                return str(messages[-1].content)
            chosen = [run_later(call) for call in messages[-1].tool_calls]
            messages.extend([future.result() for future in chosen])

    return looker, [("user", "find the key")]


MADE = [in_a_node, in_a_node_called_model, in_an_entrypoint]
Make = Callable[[ScriptedChatModel], tuple[Any, Any]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", MADE)
async def test_a_loop_is_stopped(made: Make, way: Callable[..., Any]) -> None:
    handler = TidegaugeCallbackHandler(agent="looker")
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent, given = made(looking(*["desk"] * 9))
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await way(agent, given, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 3)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("looker", 4, "stopped")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", MADE)
async def test_each_choice_is_a_step_with_its_result(made: Make, way: Callable[..., Any]) -> None:
    places = ["desk", "desk", "box"]
    handler = TidegaugeCallbackHandler(agent="looker")
    with testing.capture(stop_on_loop=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent, given = made(looking(*places))
        await way(agent, given, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.tokens, r.outcome) for r in reports] == [
        ("looker", 3, 36, "unknown")
    ]
    steps = [
        ([call.arguments for call in calls], tokens, [result.outcome for result in results])
        for calls, tokens, results in log.steps(reports[0].run)
    ]
    assert steps == [([{"place": place}], 12, [f"{place} is empty"]) for place in places]
