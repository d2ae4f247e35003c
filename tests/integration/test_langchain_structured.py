"""Structured output of ``create_agent`` is its answer; what its model tried before is a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
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
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from support.scripted_openai import serving
from tidegauge import testing
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    stopped_by,
)
from tidegauge.policies import Rule

TASK: dict[str, Any] = {"messages": [("user", "where is the key?")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


class Verdict(BaseModel):
    """What was found."""

    place: Literal["desk", "shelf"]


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


@tool
def knock(door: str) -> str:
    """Knock at a door."""
    return "no answer"


LOOK = ("look", {"place": "desk"})
OTHER = ("look", {"place": "shelf"})
FOUND = ("Verdict", {"place": "desk"})
WRONG = ("Verdict", {"place": "moon"})

Calls = Sequence[tuple[str, dict[str, Any]]]


def scripted(*rounds: Calls) -> ScriptedChatModel:
    """Chooses what each round says; the last one forever."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(*rounds[min(turns(messages), len(rounds) - 1)])

    return ScriptedChatModel(script=say)


@pytest.mark.parametrize("middleware", [(), (TidegaugeMiddleware(),)], ids=["handler", "both"])
@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_by_a_tool_call_is_no_step(
    way: Callable[..., Any], middleware: Sequence[Any]
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(
            scripted([LOOK], [OTHER], [FOUND]),
            [look],
            response_format=ToolStrategy(Verdict),
            middleware=middleware,
        )
        result = await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result["structured_response"] == Verdict(place="desk")
    # The answer's tokens belong to no step, as those of an answer in words.
    assert [(report.steps, report.tokens) for report in reports] == [(2, 24)]
    tools = [span.name for span in seen.spans if "tool" in span.name]
    assert tools == ["execute_tool look"] * 2


@pytest.mark.parametrize("middleware", [(), (TidegaugeMiddleware(),)], ids=["handler", "both"])
def test_an_answer_that_was_rejected_is_a_step(middleware: Sequence[Any]) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(
            scripted([WRONG], [LOOK], [FOUND]),
            [look],
            response_format=ToolStrategy(Verdict),
            middleware=middleware,
        )
        result = agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result["structured_response"] == Verdict(place="desk")
    assert [(report.steps, report.tokens) for report in reports] == [(2, 24)]
    first, second = log.steps(reports[0].run)
    assert first[0][0].action == "Verdict"
    assert "Failed to parse" in first[2][0].outcome
    assert first[2][0].error is True
    assert second[0][0].action == "look"
    assert [span.name for span in seen.spans if "tool" in span.name] == [
        "execute_tool Verdict",
        "execute_tool look",
    ]


def test_rejected_answers_are_failed_rounds_however_they_are_worded() -> None:
    class Review(BaseModel):
        place: Literal["desk", "shelf"]
        reason: str

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("Review", {"place": "moon", "reason": f"said {'x' * len(messages)}"}))

    with testing.capture(rules=[Rule("failed_rounds", 3, "stop")]):
        agent = create_agent(
            ScriptedChatModel(script=say), [look], response_format=ToolStrategy(Review)
        )
        with pytest.raises(tidegauge.RunStopped) as caught:
            agent.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
    assert caught.value.reason == "failed_rounds"


@pytest.mark.parametrize("graceful", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_rejected_answers_without_end_are_stopped(
    way: Callable[..., Any], graceful: bool
) -> None:
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture(stop_on_loop=2) as seen:
        agent = create_agent(
            scripted([WRONG]),
            [],
            response_format=ToolStrategy(Verdict),
            middleware=[TidegaugeMiddleware()] if graceful else [],
            checkpointer=InMemorySaver(),
        )
        if graceful:
            stop = stopped_by(await way(agent, TASK, config))
        else:
            with pytest.raises(tidegauge.RunStopped) as caught:
                await way(agent, TASK, config)
            stop = caught.value
        assert nothing_is_left(handler, seen)
    assert stop is not None
    assert (stop.reason, stop.step) == ("loop_repeats", 3)
    kinds = [message.type for message in agent.get_state(config).values["messages"]]
    assert kinds == ["human", *["ai", "tool"] * (4 if graceful else 3), *["ai"] * graceful]


def test_of_a_turn_with_an_answer_the_other_calls_are_the_step() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(scripted([LOOK, FOUND]), [look], response_format=ToolStrategy(Verdict))
        result = agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result["structured_response"] == Verdict(place="desk")
    (step,) = log.steps(reports[0].run)
    assert [call.action for call in step[0]] == ["look"]
    assert [one.outcome for one in step[2]] == ["desk is empty"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_at_a_tool_that_was_not_used_before_leaves_a_clean_state(
    way: Callable[..., Any],
) -> None:
    """Until the node ends, such a call may be structured output; it is stopped there."""
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture(rules=[Rule("steps", 1, "stop")]) as seen:
        agent = create_agent(
            scripted([LOOK], [("knock", {"door": "red"})]),
            [look, knock],
            checkpointer=InMemorySaver(),
        )
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, TASK, config)
        assert nothing_is_left(handler, seen)
    assert caught.value.step == 1
    kinds = [message.type for message in agent.get_state(config).values["messages"]]
    assert kinds == ["human", "ai", "tool"]
    assert seen.spans[-1].attributes["tidegauge.stopped.reason"] == "steps"


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_answers_of_a_model_over_http(
    way: Callable[..., Any], streaming: bool, strategy: Any
) -> None:
    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        said = turns(messages)
        if said < 3:
            return chooses([LOOK, OTHER, LOOK][said])
        return chooses(FOUND) if strategy is ToolStrategy else answers('{"place":"desk"}')

    handler = TidegaugeCallbackHandler()
    with serving() as server, testing.capture() as seen:
        reports = Reports(seen)
        model = server.model("gpt-4o", say, streaming=streaming)
        agent = create_agent(model, [look], response_format=strategy(Verdict))
        result = await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result["structured_response"] == Verdict(place="desk")
    asked = server.requests[0]
    assert ("response_format" in asked) is (strategy is ProviderStrategy)
    assert [(report.steps, report.tokens) for report in reports] == [(3, 36)]
    assert sum("tool" in span.name for span in seen.spans) == 3


def test_tools_beside_an_answer_in_text_are_steps() -> None:
    """``with_structured_output(method="json_schema", tools=...)``: the calls are no answer."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(LOOK, OTHER) if turns(messages) == 0 else answers('{"place":"desk"}')

    handler = TidegaugeCallbackHandler()
    with serving() as server, testing.capture() as seen:
        reports = Reports(seen)
        model = server.model("gpt-4o", say)
        asked = model.with_structured_output(
            Verdict, method="json_schema", tools=[look], include_raw=True, strict=True
        )

        def loop(text: str) -> Any:
            messages: list[BaseMessage] = [HumanMessage(text)]
            said = asked.invoke(messages)
            messages.append(said["raw"])
            messages += [look.invoke(call) for call in said["raw"].tool_calls]
            return asked.invoke(messages)["parsed"]

        result = RunnableLambda(loop).invoke("where?", config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result == Verdict(place="desk")
    assert [(report.steps, report.tokens) for report in reports] == [(1, 12)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("worded", [True, False])
async def test_a_branch_that_only_answers_is_no_run(way: Any, branches: int, worded: bool) -> None:
    """Whether it answers in words or by a tool call."""
    seen = await fanned_out(way, branches, answers("desk") if worded else chooses(FOUND))
    assert seen == [("team", 0, "unknown")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("branches", [1, 3])
async def test_a_branch_that_looks_and_answers_is_a_run(way: Any, branches: int) -> None:
    seen = await fanned_out(way, branches, chooses(LOOK), chooses(FOUND))
    assert seen == [*[("judge", 1, "unknown")] * branches, ("team", 1, "unknown")]


@pytest.mark.parametrize("way", WAYS)
async def test_a_branch_whose_first_answer_is_rejected_is_a_run(way: Any) -> None:
    seen = await fanned_out(way, 2, chooses(WRONG), chooses(FOUND))
    assert seen == [*[("judge", 1, "unknown")] * 2, ("team", 1, "unknown")]


@pytest.mark.parametrize("way", WAYS)
async def test_a_branch_that_loops_and_may_answer_by_a_tool_call_is_stopped(way: Any) -> None:
    seen = await fanned_out(way, 2, chooses(LOOK), stop_on_loop=2)
    assert ("judge", 4, "stopped") in seen
    assert seen[-1] == ("team", 1, "stopped")


async def fanned_out(
    way: Any, branches: int, *messages: AIMessage, **rules: Any
) -> list[tuple[str, int, str]]:
    """The runs of a graph that sends to an agent; the last message is said forever."""

    def say(asked: Sequence[BaseMessage]) -> AIMessage:
        said = messages[min(turns(asked), len(messages) - 1)]
        calls = [(call["name"], call["args"]) for call in said.tool_calls]
        return chooses(*calls) if calls else said

    model = ScriptedChatModel(script=say)
    judge = create_agent(model, [look], response_format=ToolStrategy(Verdict))
    graph = StateGraph(MessagesState)
    graph.add_node("judge", judge)
    sends = [Send("judge", {"messages": [("user", f"room {n}")]}) for n in range(branches)]
    graph.add_conditional_edges(START, lambda state: sends, ["judge"])
    handler = TidegaugeCallbackHandler()
    with testing.capture(**rules) as seen:
        reports = Reports(seen)
        with contextlib.suppress(tidegauge.RunStopped):
            await way(graph.compile(name="team"), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    return [(report.agent, report.steps, report.outcome) for report in reports]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("same", "steps"), [(True, 3), (False, 6)])
async def test_a_streak_of_steps_with_several_calls(way: Any, same: bool, steps: int) -> None:
    """What was looked into differs at each step; all of it is empty, or has its own contents."""

    @tool
    def search(place: str) -> str:
        """Search a place."""
        return "empty" if same else f"{place} is empty"

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        calls = [("search", {"place": f"place {turn}-{number}"}) for number in range(2)]
        return chooses(*calls) if turn < 6 else answers("none")

    agent = create_agent(ScriptedChatModel(script=say), [search])
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_result_streak=3) as seen:
        reports = Reports(seen)
        with contextlib.suppress(tidegauge.RunStopped):
            await way(agent, TASK, {"callbacks": [handler]})
    (report,) = reports
    assert (report.steps, report.result_streak_max) == (steps, 3 if same else 1)
