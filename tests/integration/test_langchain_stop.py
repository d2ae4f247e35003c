"""A looping LangChain agent is stopped, in every way it can be invoked, and leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph

import tidegauge
from support.langchain_agents import (
    Reports,
    graph_agent,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.processes import import_error
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("system", "be brief"), ("user", "open the door")]}
STOP_AT = 2  # repeats: three rounds of the same step are issued, the third is not run


def doors(kind: str) -> tuple[BaseTool, list[str]]:
    """A tool that opens nothing, sync or async, and what it was called with."""
    pushed: list[str] = []

    def push(door: str) -> str:
        """Push a door."""
        pushed.append(door)
        return "it does not move"

    async def push_later(door: str) -> str:
        """Push a door."""
        await asyncio.sleep(0)
        return push(door)

    if kind == "async":
        return StructuredTool.from_function(coroutine=push_later, name="push"), pushed
    return StructuredTool.from_function(push), pushed


def looping(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses(("push", {"door": "red"}))


def alternating(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses(("push", {"door": "red" if turns(messages) % 2 == 0 else "blue"}))


def agent_of_langchain(model: ScriptedChatModel, push: BaseTool) -> Any:
    return create_agent(model, [push], name="porter")


def agent_with_middleware(model: ScriptedChatModel, push: BaseTool) -> Any:
    retries: dict[str, Any] = {"initial_delay": 0.0, "jitter": False}
    return create_agent(
        model,
        [push],
        name="porter",
        middleware=[
            ModelFallbackMiddleware(model),
            ModelRetryMiddleware(max_retries=2, **retries),
            ToolRetryMiddleware(max_retries=2, **retries),
        ],
    )


def agent_of_a_graph(model: ScriptedChatModel, push: BaseTool) -> Any:
    return graph_agent(model, [push], name="porter")


async def run_invoke(agent: Any, config: Any) -> Any:
    return agent.invoke(TASK, config=config)


async def run_ainvoke(agent: Any, config: Any) -> Any:
    return await agent.ainvoke(TASK, config=config)


async def run_stream(agent: Any, config: Any) -> Any:
    return list(agent.stream(TASK, config=config))


async def run_stream_messages(agent: Any, config: Any) -> Any:
    return list(agent.stream(TASK, config=config, stream_mode="messages"))


async def run_astream(agent: Any, config: Any) -> Any:
    return [chunk async for chunk in agent.astream(TASK, config=config)]


async def run_astream_messages(agent: Any, config: Any) -> Any:
    return [chunk async for chunk in agent.astream(TASK, config=config, stream_mode="messages")]


AGENTS = [agent_of_langchain, agent_with_middleware, agent_of_a_graph]
SYNC = [run_invoke, run_stream, run_stream_messages]
ASYNC = [run_ainvoke, run_astream, run_astream_messages]
WAYS = [("sync", way) for way in SYNC + ASYNC] + [("async", way) for way in ASYNC]


@pytest.mark.parametrize("make", AGENTS)
@pytest.mark.parametrize(("kind", "way"), WAYS)
async def test_a_looping_agent_is_stopped(
    make: Callable[..., Any], kind: str, way: Callable[..., Any]
) -> None:
    push, pushed = doors(kind)
    handler = TidegaugeCallbackHandler(task_group="doors")
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        agent = make(ScriptedChatModel(script=looping), push)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, {"callbacks": [handler]})
        snapshot = seen.pipeline.engine.snapshot()
        assert nothing_is_left(handler, seen)

    # The first step is from another state (the task) than those that follow; the loop is those.
    stop = caught.value
    assert isinstance(stop, GraphBubbleUp)
    assert (stop.reason, stop.step) == ("loop_repeats", 3)
    assert stop.metrics["loop_repeats"] == STOP_AT
    assert stop.metrics["loop_period"] == 1
    assert pushed == ["red"] * 3, "the step that was stopped has not been run"
    (group,) = snapshot.groups
    assert (group.key.agent, group.key.task_group) == ("porter", "doors")
    assert group.finished.finished == {"stopped": 1}
    assert group.totals.steps == 4
    assert seen.tree() == [
        "invoke_agent porter",
        *["  chat scripted-1", "  execute_tool push"] * 3,
        "  chat scripted-1",
    ]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}
    root = next(span for span in seen.spans if span.name == "invoke_agent porter")
    assert root.attributes["tidegauge.stopped.reason"] == "loop_repeats"
    assert root.attributes["tidegauge.outcome"] == "stopped"


def test_a_cycle_of_two_is_stopped() -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        return f"behind the {door} one"

    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1) as seen:
        agent = agent_of_langchain(ScriptedChatModel(script=alternating), push)
        with pytest.raises(tidegauge.RunStopped) as caught:
            agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (caught.value.step, caught.value.metrics["loop_period"]) == (4, 2)


def test_a_stop_leaves_a_checkpoint_that_can_be_resumed() -> None:
    push, _ = doors("sync")
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}

    def gives_in(messages: Sequence[BaseMessage]) -> AIMessage:
        nudged = "give up" in str(messages[-1].content)
        return answers("I give up") if nudged else looping(messages)

    with testing.capture(stop_on_loop=STOP_AT):
        agent = create_agent(
            ScriptedChatModel(script=gives_in), [push], checkpointer=InMemorySaver()
        )
        with pytest.raises(tidegauge.RunStopped):
            agent.invoke(TASK, config=config)
        state = agent.get_state(config)
        assert isinstance(state.values["messages"][-1], ToolMessage)
        chosen = [c["id"] for m in state.values["messages"] for c in getattr(m, "tool_calls", [])]
        answered = [m.tool_call_id for m in state.values["messages"] if m.type == "tool"]
        assert chosen == answered, "no call is left without its answer"

        nudge = {"messages": [HumanMessage("give up")]}
        assert agent.invoke(nudge, config=config)["messages"][-1].content == "I give up"


def failing_differently(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses(("push", {"door": f"door {turns(messages)}"}))


@pytest.mark.parametrize("way", SYNC + ASYNC)
@pytest.mark.parametrize(
    ("setting", "reason"),
    [("stop_on_result_streak", "result_streak"), ("stop_on_failed_rounds", "failed_rounds")],
)
@pytest.mark.parametrize("handled", ["by the tool", "by the node"])
async def test_creative_retries_of_one_failure_are_stopped(
    way: Callable[..., Any], setting: str, reason: str, handled: str
) -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        if handled == "by the tool":
            raise ToolException("locked")
        raise RuntimeError("locked")

    push.handle_tool_error = handled == "by the tool"
    handler = TidegaugeCallbackHandler()
    with testing.capture(**{setting: 3}) as seen:
        agent = agent_of_a_graph(ScriptedChatModel(script=failing_differently), push)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (caught.value.reason, caught.value.step) == (reason, 2)
    tools = [span for span in seen.spans if span.name == "execute_tool push"]
    assert [span.status.status_code.name for span in tools] == ["ERROR"] * 3
    # decided when the third was observed, raised before the model is asked again
    assert sum(span.name.startswith("chat") for span in seen.spans) == 3


def test_tools_called_without_a_model_are_steps_too() -> None:
    push, pushed = doors("sync")
    handler = TidegaugeCallbackHandler(agent="robot")
    robot = RunnableLambda(lambda _: [push.invoke({"door": "red"}) for _ in range(10)])
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        with pytest.raises(tidegauge.RunStopped):
            robot.invoke("open the door", config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(pushed) == 3
    assert seen.tree() == ["invoke_agent robot", *["  execute_tool push"] * 3]


def test_without_a_graph_the_stop_comes_before_the_model_is_asked_again() -> None:
    push, pushed = doors("sync")
    asked = []

    def differently(messages: Sequence[BaseMessage]) -> AIMessage:
        asked.append("")
        return failing_differently(messages)

    model = ScriptedChatModel(script=differently)

    def loop(text: str) -> None:
        messages: list[BaseMessage] = [HumanMessage(text)]
        while True:
            said = model.invoke(messages)
            messages.append(said)
            messages += [push.invoke(call) for call in said.tool_calls]

    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_result_streak=3) as seen:
        with pytest.raises(tidegauge.RunStopped):
            RunnableLambda(loop).invoke("open the door", config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(asked) == len(pushed) == 3


def test_an_agent_that_swallows_the_stop_is_stopped_at_its_next_move() -> None:
    push, pushed = doors("sync")
    handler = TidegaugeCallbackHandler(agent="robot")
    model = FakeListLLM(responses=["push"])
    attempts = []

    def stubborn(_: object) -> str:
        for _attempt in range(10):
            attempts.append("")
            try:
                model.invoke("what now?")
                push.invoke({"door": "red"})
            except Exception:
                attempts[-1] = "stopped"
        return "still here"

    with testing.capture(stop_on_loop=STOP_AT) as seen:
        config: Any = {"callbacks": [handler]}
        assert RunnableLambda(stubborn).invoke("open the door", config=config) == "still here"
        assert nothing_is_left(handler, seen)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert len(pushed) == 3
    assert attempts == [""] * 3 + ["stopped"] * 7
    assert group.finished.finished == {"stopped": 1}
    assert group.totals.steps == 4


def test_watching_raises_nothing_and_counts_what_would_have_been_stopped() -> None:
    push, pushed = doors("sync")

    def for_a_while(messages: Sequence[BaseMessage]) -> AIMessage:
        return looping(messages) if turns(messages) < 8 else answers("no way")

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        agent = agent_of_langchain(ScriptedChatModel(script=for_a_while), push)
        result = agent.invoke(TASK, config={"callbacks": [handler]})
        (group,) = seen.pipeline.engine.snapshot().groups
    assert result["messages"][-1].content == "no way"
    assert len(pushed) == 8
    assert group.totals.interventions[("would_stop", "loop_evidence")] == 1
    assert group.finished.finished == {"unknown": 1}


SUCCESS = [(None, "unknown"), (lambda state: True, "success"), (lambda state: False, "failure")]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
@pytest.mark.parametrize(("success", "outcome"), SUCCESS)
@pytest.mark.parametrize("more", [0, 1])
async def test_a_run_that_ends_by_itself_is_reported_as_it_ended(
    way: Any, success: Any, outcome: str, more: int
) -> None:
    """The third equal result exceeds the threshold; nothing is stopped without a fourth call."""
    push, pushed = doors("sync")

    def node(state: MessagesState) -> dict[str, Any]:
        for door in range(3 + more):
            push.invoke({"door": f"door {door}"})
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("push", node)
    graph.add_edge(START, "push")
    handler = TidegaugeCallbackHandler(success=success)
    with testing.capture(stop_on_result_streak=3) as seen:
        reports = Reports(seen)
        with contextlib.suppress(tidegauge.RunStopped):
            await way(graph.compile(), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(pushed) == 3
    (report,) = reports
    assert (report.steps, report.outcome) == (3, "stopped" if more else outcome)


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
@pytest.mark.parametrize("name", ["robot", None])
async def test_with_retry_does_not_repeat_a_stopped_agent(way: Any, name: str | None) -> None:
    push, pushed = doors("sync")
    agent = create_agent(ScriptedChatModel(script=looping), [push], name=name)
    again = agent.with_retry(stop_after_attempt=5, wait_exponential_jitter=False)
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(again, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(pushed) == 3
    assert caught.value.step == 3
    steps = [(report.steps, report.outcome) for report in reports]
    assert steps == [(4, "stopped"), *([(1, "stopped")] if name else [])]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_with_retry_does_not_repeat_a_tool_whose_agent_was_stopped(way: Any) -> None:
    push, pushed = doors("sync")
    agent = create_agent(ScriptedChatModel(script=looping), [push], name="robot")

    @tool
    def delegate(task: str) -> str:
        """Let a robot do it."""
        return str(agent.invoke(TASK)["messages"][-1].content)

    again = delegate.with_retry(wait_exponential_jitter=False)
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [("user", again.invoke({"task": "push"}))]})
    graph.add_edge(START, "ask")
    handler = TidegaugeCallbackHandler(agent="chief")
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped):
            await way(graph.compile(), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(pushed) == 3
    runs = [(report.agent, report.steps, report.outcome) for report in reports]
    assert runs == [("robot", 4, "stopped"), ("chief", 1, "stopped")]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_with_retry_repeats_an_agent_that_failed(way: Any) -> None:
    push, _ = doors("sync")
    failures = [OSError("no connection")]

    def once_down(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) == 1 and failures:
            raise failures.pop()
        return answers("open") if turns(messages) else looping(messages)

    agent = create_agent(ScriptedChatModel(script=once_down), [push], name="robot")
    again = agent.with_retry(wait_exponential_jitter=False)
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen)
        await way(again, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    outcomes = [(report.steps, report.outcome) for report in reports]
    assert outcomes == [(1, "error"), (1, "unknown"), (1, "unknown")]


def test_without_langgraph_a_plain_run_stopped_is_raised() -> None:
    program = """
import sys
sys.modules["langgraph"] = None
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
import tidegauge
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

@tool
def push(door: str) -> str:
    "Push a door."
    return "it does not move"

tidegauge.configure(stop_on_loop=2, serve_metrics=False)
robot = RunnableLambda(lambda _: [push.invoke({"door": "red"}) for _ in range(10)])
try:
    robot.invoke("open", config={"callbacks": [TidegaugeCallbackHandler()]})
except tidegauge.RunStopped as stop:
    print(type(stop) is tidegauge.RunStopped, stop.step)
"""
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == ["True", "3"]


def test_without_langchain_it_says_what_to_install() -> None:
    assert import_error("langchain_core", "import tidegauge.instrumentation.langchain") == (
        "MissingExtraError langchain_core is not installed: pip install '.[langchain]' in a clone"
    )
