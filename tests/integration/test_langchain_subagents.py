"""Agents inside agents: each is a run of its own, under the run that it works for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, RetryPolicy, Send

import tidegauge
from support.langchain_agents import Reports, StepLog, nothing_is_left
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


def seeking(messages: Sequence[BaseMessage]) -> AIMessage:
    sought = isinstance(messages[-1], ToolMessage)
    return answers("there is none") if sought else chooses(("look", {"place": "desk"}))


def seeker(name: str) -> Any:
    return create_agent(ScriptedChatModel(script=seeking), [look], name=name)


async def via_invoke(agent: Any, config: Any) -> None:
    agent.invoke(TASK, config)


async def via_ainvoke(agent: Any, config: Any) -> None:
    await agent.ainvoke(TASK, config)


async def via_stream(agent: Any, config: Any) -> None:
    list(agent.stream(TASK, config, subgraphs=True))


async def via_astream(agent: Any, config: Any) -> None:
    [_ async for _ in agent.astream(TASK, config)]


WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


def nodes(*names: str, name: str = "team") -> Any:
    """A graph whose nodes are agents, one after the other."""
    graph = StateGraph(MessagesState)
    for before, here in zip((START, *names), names, strict=False):
        graph.add_node(here, seeker(here))
        graph.add_edge(before, here)
    return graph.compile(name=name)


@pytest.mark.parametrize("way", WAYS)
async def test_agents_that_are_nodes_are_runs_and_steps_of_the_graphs_run(
    way: Callable[..., Any],
) -> None:
    handler = TidegaugeCallbackHandler(task_group="keys", t_max=9, success=lambda state: True)
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(nodes("anna", "bert"), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.tokens, r.outcome, r.t_max) for r in reports] == [
        ("anna", 1, 12, "unknown", None),
        ("bert", 1, 12, "unknown", None),
        ("team", 2, None, "success", 9),
    ]
    assert {report.task_group for report in reports} == {"keys"}
    assert [(calls, results) for calls, _, results in log.steps(reports[2].run)] == [
        ((Call("anna", "find the key"),), (CallResult("there is none", False),)),
        ((Call("bert", "there is none"),), (CallResult("there is none", False),)),
    ]
    inside = ["chat scripted-1", "execute_tool look", "chat scripted-1"]
    assert seen.tree() == [
        "invoke_agent team",
        "  invoke_agent anna",
        *[f"    {name}" for name in inside],
        "  invoke_agent bert",
        *[f"    {name}" for name in inside],
    ]


def handing_over(*, rounds: int, history: bool = False) -> Any:
    """Two agents that hand over to each other, so many times, maybe with all messages so far."""

    def to(other: str) -> Any:
        @tool(f"to_{other}")
        def hand_over(
            state: Annotated[dict[str, Any], InjectedState],
            call_id: Annotated[str, InjectedToolCallId],
        ) -> Command[str]:
            """Hand over."""
            message = ToolMessage(f"transferred to {other}", tool_call_id=call_id)
            messages = [*(state["messages"] if history else ()), message]
            return Command(goto=other, update={"messages": messages}, graph=Command.PARENT)

        return hand_over

    def agent(name: str, other: str) -> Any:
        def say(messages: Sequence[BaseMessage]) -> AIMessage:
            done = sum(isinstance(message, ToolMessage) for message in messages)
            return answers("done") if done >= rounds else chooses((f"to_{other}", {}))

        return create_agent(ScriptedChatModel(script=say), [to(other)], name=name)

    graph = StateGraph(MessagesState)
    graph.add_node("anna", agent("anna", "bert"), destinations=("bert",))
    graph.add_node("bert", agent("bert", "anna"), destinations=("anna",))
    graph.add_edge(START, "anna")
    return graph.compile(name="team")


@pytest.mark.parametrize("way", WAYS)
async def test_hand_offs(way: Callable[..., Any]) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        await way(handing_over(rounds=2), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [
        ("anna", 1, "unknown"),
        ("bert", 1, "unknown"),
        ("anna", 0, "unknown"),
        ("team", 3, "unknown"),
    ]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_agents_that_only_hand_over_to_each_other_are_a_loop(
    way: Callable[..., Any], history: bool
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(handing_over(rounds=99, history=history), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    team = reports[-1]
    assert caught.value.run == team.run
    assert caught.value.metrics["loop_period"] == 2
    assert (team.agent, team.outcome) == ("team", "stopped")
    assert {report.outcome for report in reports[:-1]} == {"unknown"}
    assert len(reports[:-1]) == team.steps - 1, "whom the last step calls has not been run"


def test_a_stop_that_was_decided_meanwhile_comes_before_the_next_agent_is_a_step() -> None:
    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("there is none")

    names = [f"number {number}" for number in range(9)]
    graph = StateGraph(MessagesState)
    for before, here in zip((START, *names), names, strict=False):
        graph.add_node(here, create_agent(ScriptedChatModel(script=say), [look], name=here))
        graph.add_edge(before, here)
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_result_streak=3) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped):
            graph.compile(name="team").invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [report.agent for report in reports] == [*names[:3], "team"]
    assert reports[-1].steps == 3


@pytest.mark.parametrize("way", WAYS)
async def test_parallel_agents(way: Callable[..., Any]) -> None:
    both = threading.Barrier(2, timeout=10)
    names = ["anna", "bert"]

    @tool
    def look(place: str) -> str:
        """Look into a place."""
        if way in (via_invoke, via_stream):
            both.wait()  # they do run at once
        return f"{place} is empty"

    graph = StateGraph(MessagesState)
    for name in names:
        graph.add_node(name, create_agent(ScriptedChatModel(script=seeking), [look], name=name))
    graph.add_conditional_edges(START, lambda state: [Send(name, state) for name in names], names)
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(graph.compile(name="team"), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    *inner, team = reports
    assert sorted(report.agent for report in inner) == names
    assert {(report.steps, report.tokens) for report in inner} == {(1, 12)}
    assert (team.agent, team.steps) == ("team", 1)
    ((calls, _, results),) = log.steps(team.run)
    assert calls == tuple(Call(name, "find the key") for name in names)
    assert results == (CallResult("there is none", False),) * 2
    for name in names:
        (root,) = [span for span in seen.spans if span.name == f"invoke_agent {name}"]
        below = [s for s in seen.spans if s.parent and s.parent.span_id == root.context.span_id]
        assert len(below) == 3


def test_an_agent_called_by_a_node_of_a_supervisor() -> None:
    """The supervisor is an agent itself: what it chooses are steps as well as whom it calls."""
    helper = seeker("helper")

    def call(state: MessagesState) -> dict[str, Any]:
        result = helper.invoke({"messages": [("user", "look for it")]})
        return {"messages": result["messages"][-1:]}

    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", seeker("supervisor"))
    graph.add_node("call", call)
    graph.add_edge(START, "supervisor")
    graph.add_edge("supervisor", "call")
    graph.add_edge("call", END)
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        graph.compile(name="team").invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps) for r in reports] == [("supervisor", 1), ("helper", 1), ("team", 2)]


def test_the_stop_of_an_agent_that_is_a_node_surfaces() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        model = ScriptedChatModel(script=lambda messages: chooses(("look", {"place": "desk"})))
        graph = StateGraph(MessagesState)
        graph.add_node("anna", create_agent(model, [look], name="anna"))
        graph.add_edge(START, "anna")
        with pytest.raises(tidegauge.RunStopped) as caught:
            graph.compile(name="team").invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert caught.value.run == reports[0].run
    assert [(r.agent, r.outcome) for r in reports] == [("anna", "stopped"), ("team", "stopped")]


def test_a_node_that_is_tried_again_is_one_step() -> None:
    attempts: list[int] = []

    def once_down(messages: Sequence[BaseMessage]) -> AIMessage:
        attempts.append(turns(messages))
        if len(attempts) == 1:
            raise OSError("no connection")
        return answers("there is none")

    graph = StateGraph(MessagesState)
    policy = RetryPolicy(initial_interval=0.0, jitter=False, retry_on=OSError)
    agent = create_agent(ScriptedChatModel(script=once_down), [look], name="anna")
    graph.add_node("anna", agent, retry_policy=policy)
    graph.add_edge(START, "anna")
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        graph.compile(name="team").invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.outcome, r.steps, r.failed_rounds_max) for r in reports] == [
        ("anna", "unknown", 0, None),
        ("team", "unknown", 1, 0),
    ]


def test_an_agent_of_no_other_name_is_part_of_the_run() -> None:
    graph = StateGraph(MessagesState)
    inner = create_agent(ScriptedChatModel(script=seeking), [look])
    graph.add_node("anna", inner)
    graph.add_edge(START, "anna")
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        graph.compile(name="team").invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(report.agent, report.steps) for report in reports] == [("team", 1)]


def test_a_chain_that_is_given_the_handler_again_is_a_run_under_the_one_around_it() -> None:
    """LangChain reports no parent of a chain that has its own callbacks; its context does."""
    handler = TidegaugeCallbackHandler()
    other = TidegaugeCallbackHandler(agent="other", success=lambda state: True)
    robot = RunnableLambda(lambda place: look.invoke({"place": place}), name="robot")

    @tool
    def delegate(place: str) -> str:
        """Let somebody else do it."""
        return str(robot.invoke(place, {"callbacks": [other]}))

    def work(text: str) -> None:
        robot.invoke("desk", {"callbacks": [handler]})
        delegate.invoke({"place": "box"})

    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        RunnableLambda(work, name="chief").invoke("go", {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert nothing_is_left(other, seen)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [
        ("robot", 1, "unknown"),
        ("other", 1, "success"),
        ("chief", 2, "unknown"),
    ]
    assert [calls for calls, *_ in log.steps(reports[-1].run)] == [
        (Call("robot", "desk"),),
        (Call("delegate", {"place": "box"}),),
    ]
    parents = {s.attributes.get("tidegauge.run.parent") for s in seen.spans} - {None}
    assert parents == {reports[-1].run}
    assert seen.tree() == [
        "invoke_agent chief",
        "  invoke_agent robot",
        "    execute_tool look",
        "  execute_tool delegate",
        "    invoke_agent other",
        "      execute_tool look",
    ]


def delegating(say: Any = None) -> Any:
    """An agent whose tool asks another one, which reports by ``say`` how it went."""

    @tool
    def report(text: str) -> str:
        """Report."""
        if say is not None:
            say()
        return text

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        inner = ScriptedChatModel(script=one_call("report", {"text": "none"}))
        helper = create_agent(inner, [report], name="helper")
        return str(helper.invoke({"messages": [("user", task)]})["messages"][-1].content)

    outer = ScriptedChatModel(script=one_call("delegate", {"task": "look around"}))
    return create_agent(outer, [delegate], name="chief")


def one_call(name: str, arguments: dict[str, Any]) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    return lambda messages: answers("done") if turns(messages) else chooses((name, arguments))


@pytest.mark.parametrize("solved", [True, False])
def test_the_success_of_an_agent_inside_is_read_from_its_output(solved: bool) -> None:
    outputs: list[str] = []

    def helped(state: Any) -> bool:
        outputs.append(state["messages"][-1].content)
        return solved

    handler = TidegaugeCallbackHandler(success={"helper": helped})
    with testing.capture() as seen:
        reports = Reports(seen)
        delegating().invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert outputs == ["done"]
    assert [(report.agent, report.success) for report in reports] == [
        ("helper", solved),
        ("chief", None),
    ]


def test_the_success_of_an_agent_inside_is_reported_by_its_own_code() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = delegating(lambda: tidegauge.get_current_run().finish(success=True))
        agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(report.agent, report.success) for report in reports] == [
        ("helper", True),
        ("chief", None),
    ]


def test_user_session_and_tags_of_a_request_are_on_the_spans_of_its_runs() -> None:
    handler = TidegaugeCallbackHandler()
    config: Any = {
        "callbacks": [handler],
        "tags": ["nightly", "eu"],
        "metadata": {"user_id": 7, "session_id": "s1"},
    }
    with testing.capture() as seen:
        delegating().invoke(TASK, config=config)
        delegating().invoke(TASK, config={"callbacks": [handler]})
    roots = [span for span in seen.spans if span.name.startswith("invoke_agent")]
    found = [
        tuple((span.attributes or {}).get(name) for name in ("user.id", "session.id"))
        for span in roots
    ]
    assert found == [("7", "s1")] * 2 + [(None, None)] * 2
    assert [(span.attributes or {}).get("tidegauge.tags") for span in roots] == [
        *[("nightly", "eu")] * 2,
        *[None] * 2,
    ]
    others = [span for span in seen.spans if span not in roots]
    assert not any("user.id" in (span.attributes or {}) for span in others)
