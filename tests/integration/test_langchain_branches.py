"""Chains that run beside one another: each is a run by itself, all together are one step."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, Send, interrupt

import tidegauge
from support.langchain_agents import Reports, StepLog, nothing_is_left
from support.scripted_model import Script, ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware

OK = CallResult("ok", False)


@tool
def read(essay: str) -> str:
    """Read an essay."""
    return "fine"


def asked(messages: Sequence[BaseMessage]) -> str:
    return next(str(m.content) for m in messages if isinstance(m, HumanMessage))


def grading(messages: Sequence[BaseMessage]) -> AIMessage:
    """Reads the essay, and says that it is ok."""
    return answers("ok") if turns(messages) else chooses(("read", {"essay": asked(messages)}))


def reading_on(messages: Sequence[BaseMessage]) -> AIMessage:
    """Reads the same essay forever."""
    return chooses(("read", {"essay": asked(messages)}))


def with_others(count: int, script: Script) -> Script:
    """A script of so many models that take their time: each answers first when all were asked."""
    all_asked = threading.Barrier(count, timeout=10)

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        if not turns(messages):
            all_asked.wait()
        return script(messages)

    return say


def grader(script: Script = grading, name: str | None = None) -> Any:
    return create_agent(ScriptedChatModel(script=script), [read], name=name)


def request(number: int) -> dict[str, Any]:
    return {"messages": [("user", f"essay {number}")]}


class Marks(TypedDict):
    marks: Annotated[list[str], operator.add]


def fanned_out(count: int, node: Any, name: str = "team") -> Any:
    """A graph that sends so many essays to a node at once."""
    graph = StateGraph(MessagesState)
    graph.add_node("grade", node)
    sends = [Send("grade", request(number)) for number in range(count)]
    graph.add_conditional_edges(START, lambda state: sends, ["grade"])
    return graph.compile(name=name)


async def via_invoke(graph: Any, config: Any) -> None:
    graph.invoke(request(1), config)


async def via_ainvoke(graph: Any, config: Any) -> None:
    await graph.ainvoke(request(1), config)


async def via_stream(graph: Any, config: Any) -> None:
    list(graph.stream(request(1), config, subgraphs=True))


async def via_astream(graph: Any, config: Any) -> None:
    [_ async for _ in graph.astream(request(1), config)]


async def via_events(graph: Any, config: Any) -> None:
    [_ async for _ in graph.astream_events(request(1), config, version="v2")]


WAYS = [via_invoke, via_ainvoke, via_stream, via_astream, via_events]
LATER = [via_ainvoke, via_astream, via_events]


class Seen:
    """What came of an invocation."""

    def __init__(self, reports: Reports, log: StepLog) -> None:
        *self.inner, self.outer = reports
        self.calls = [calls for calls, *_ in log.steps(self.outer.run)]
        self.results = [tuple(map(_plain, results)) for *_, results in log.steps(self.outer.run)]
        self.agents = Counter((r.agent, r.steps, r.outcome) for r in self.inner)


def _plain(result: CallResult) -> CallResult:
    return result._replace(outcome=str(result.outcome).strip())  # a stream ends with a space


async def observed(way: Callable[..., Any], graph: Any, **settings: Any) -> Seen:
    handler = TidegaugeCallbackHandler()
    with testing.capture(**settings) as seen:
        reports, log = Reports(seen), StepLog(seen)
        await way(graph, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    return Seen(reports, log)


def calls_of(name: str, count: int) -> tuple[Call, ...]:
    return tuple(Call(name, f"essay {number}") for number in range(count))


@pytest.mark.parametrize("way", WAYS)
async def test_healthy_graders_are_not_a_streak_of_one_result(way: Callable[..., Any]) -> None:
    seen = await observed(way, fanned_out(8, grader()), stop_on_result_streak=3, stop_on_loop=1)
    assert seen.agents == {("grade", 1, "unknown"): 8}
    assert {report.tokens for report in seen.inner} == {12}
    assert (seen.outer.agent, seen.outer.steps) == ("team", 1)
    assert list(seen.outer.loops) == []
    assert seen.calls == [calls_of("grade", 8)]
    assert seen.results == [(OK,) * 8]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by_command", [False, True])
async def test_nodes_that_ask_the_model_and_run_the_tools_themselves(
    way: Callable[..., Any], by_command: bool
) -> None:
    model = ScriptedChatModel(script=grading)

    def grade(state: MessagesState) -> Any:
        messages: list[Any] = [HumanMessage(str(state["messages"][0]))]
        while True:
            messages.append(model.invoke(messages))
            if not messages[-1].tool_calls:
                return {"messages": messages[-1:]}
            messages.extend(read.invoke(call) for call in messages[-1].tool_calls)

    sends = [Send("grade", {"messages": [f"essay {number}"]}) for number in range(5)]
    graph = StateGraph(MessagesState)
    graph.add_node("grade", grade)
    if by_command:
        graph.add_node("plan", lambda state: Command(goto=sends), destinations=("grade",))
        graph.add_edge(START, "plan")
    else:
        graph.add_conditional_edges(START, lambda state: sends, ["grade"])
    seen = await observed(way, graph.compile(name="team"), stop_on_result_streak=3)
    assert seen.agents == {("grade", 1, "unknown"): 5}
    assert seen.calls == [calls_of("grade", 5)]


@pytest.mark.parametrize("way", WAYS)
async def test_a_node_that_is_sent_alone_again_and_again_is_no_branch(
    way: Callable[..., Any],
) -> None:
    rounds = 5

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        return answers("ok") if turn == rounds else chooses(("read", {"essay": f"part {turn}"}))

    model = ScriptedChatModel(script=say)
    graph = StateGraph(MessagesState)
    graph.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([read]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_conditional_edges("tools", lambda state: [Send("think", state)], ["think"])
    seen = await observed(way, graph.compile(name="team"), stop_on_result_streak=9)
    assert seen.inner == []
    assert seen.calls == [(Call("read", {"essay": f"part {turn}"}),) for turn in range(rounds)]


@pytest.mark.parametrize("way", [via_invoke, *LATER])
async def test_graders_that_wait_for_one_another(way: Callable[..., Any]) -> None:
    graph = fanned_out(5, grader()).with_config(max_concurrency=1)
    seen = await observed(way, graph, stop_on_result_streak=3)
    assert seen.agents == {("grade", 1, "unknown"): 5}
    assert seen.calls == [calls_of("grade", 5)]
    assert seen.results == [(OK,) * 5]


@pytest.mark.parametrize("way", WAYS)
async def test_each_looping_branch_is_found(way: Callable[..., Any]) -> None:
    handler = TidegaugeCallbackHandler()
    script = with_others(3, reading_on) if way in (via_invoke, via_stream) else reading_on
    with testing.capture(stop_on_loop=3) as seen:
        reports, log = Reports(seen), StepLog(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(fanned_out(3, grader(script)), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    *inner, team = reports
    assert caught.value.run in {report.run for report in inner}
    assert caught.value.metrics["loop_repeats"] == 3
    assert [report.agent for report in inner] == ["grade"] * 3
    if way in (via_invoke, via_stream):  # in a thread each
        assert [(report.steps, report.outcome) for report in inner] == [(5, "stopped")] * 3
    assert (team.agent, team.outcome, team.steps) == ("team", "stopped", 1)
    assert [calls for calls, *_ in log.steps(team.run)] == [calls_of("grade", 3)]


@pytest.mark.parametrize("way", WAYS)
async def test_identical_agents_that_run_at_once_are_all_counted(way: Callable[..., Any]) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("grade", grader(name="grader"))
    sends = [Send("grade", request(7)) for _ in range(4)]
    graph.add_conditional_edges(START, lambda state: sends, ["grade"])
    seen = await observed(way, graph.compile(name="team"), stop_on_loop=1)
    assert seen.agents == {("grader", 1, "unknown"): 4}
    assert seen.calls == [(Call("grader", "essay 7"),) * 4]
    assert seen.results == [(OK,) * 4]


@pytest.mark.parametrize("way", WAYS)
async def test_equal_call_ids(way: Callable[..., Any]) -> None:
    def same_id(messages: Sequence[BaseMessage]) -> AIMessage:
        message = grading(messages)
        for call in message.tool_calls:
            call["id"] = "call-0"
        return message

    seen = await observed(way, fanned_out(4, grader(same_id)))
    assert seen.agents == {("grade", 1, "unknown"): 4}
    assert seen.calls == [calls_of("grade", 4)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [None, "grader"])
async def test_nodes_that_edges_start_at_once(way: Callable[..., Any], name: str | None) -> None:
    graph = StateGraph(MessagesState)
    for node in ("anna", "bert"):
        graph.add_node(node, grader(name=name and node))
        graph.add_edge(START, node)
    seen = await observed(way, graph.compile(name="team"), stop_on_loop=1)
    assert seen.agents == {("anna", 1, "unknown"): 1, ("bert", 1, "unknown"): 1}
    assert [[call.action for call in calls] for calls in seen.calls] == [["anna", "bert"]]
    assert seen.results == [(OK, OK)]


@pytest.mark.parametrize("way", WAYS)
async def test_fan_outs_in_fan_outs(way: Callable[..., Any]) -> None:
    inner = fanned_out(3, grader(), "inner")
    seen = await observed(way, fanned_out(2, inner))
    grades = {report.run: report for report in seen.inner}
    assert Counter((r.agent, r.steps) for r in grades.values()) == {("grade", 1): 8}
    assert [len(calls) for calls in seen.calls] == [2]
    assert seen.results == [(OK, OK)]


async def gathered(agent: Any, count: int) -> list[Any]:
    return await asyncio.gather(*(agent.ainvoke(request(n)) for n in range(count)))


async def batched(agent: Any, count: int) -> list[Any]:
    return await agent.abatch([request(n) for n in range(count)])


async def mapped(agent: Any, count: int) -> list[Any]:
    def asking(number: int) -> Any:
        return RunnableLambda(lambda _: request(number)) | agent

    many = {str(number): asking(number) for number in range(count)}
    return list((await RunnableParallel(many).ainvoke({})).values())


@pytest.mark.parametrize("way", LATER)
@pytest.mark.parametrize("at_once", [gathered, batched, mapped])
async def test_graphs_that_a_node_runs_at_once(
    at_once: Callable[..., Any], way: Callable[..., Any]
) -> None:
    agent = grader()

    async def work(state: MessagesState) -> dict[str, Any]:
        found = await at_once(agent, 5)
        return {"messages": [one["messages"][-1] for one in found]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    seen = await observed(way, graph.compile(name="team"), stop_on_loop=1, stop_on_result_streak=3)
    assert seen.agents == {("work", 1, "unknown"): 5}
    assert [len(calls) for calls in seen.calls] == [5]
    if at_once is not mapped:
        assert seen.calls == [calls_of("work", 5)]
    assert seen.results == [(OK,) * 5]


@pytest.mark.parametrize("way", [via_invoke, via_stream])
async def test_a_batch_in_threads(way: Callable[..., Any]) -> None:
    agent = grader(with_others(4, grading))

    def work(state: MessagesState) -> dict[str, Any]:
        agent.batch([request(n) for n in range(4)])
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    seen = await observed(way, graph.compile(name="team"))
    assert seen.agents == {("work", 1, "unknown"): 4}
    assert [Counter(calls) for calls in seen.calls] == [Counter(calls_of("work", 4))]


async def test_chains_outside_of_graphs() -> None:
    async def work(_: Any) -> str:
        await gathered(grader().with_config(run_name="reader"), 3)
        await grader().ainvoke(request(9))
        return "done"

    seen = await observed(via_ainvoke, RunnableLambda(work, name="chief"))
    assert seen.agents == {("reader", 1, "unknown"): 3}
    assert seen.calls == [calls_of("reader", 3), (Call("read", {"essay": "essay 9"}),)]


async def test_parallel_tasks_of_the_functional_api() -> None:
    agent = grader()

    @task
    async def grade(number: int) -> str:
        state = await agent.ainvoke(request(number))
        return str(state["messages"][-1].content)

    @entrypoint()
    async def flow(inputs: Any) -> list[str]:
        alone = await grade(0)
        return [alone, *await asyncio.gather(*(grade(number) for number in (1, 2, 3)))]

    seen = await observed(via_ainvoke, flow)
    assert seen.agents == {("grade", 1, "unknown"): 3}
    assert seen.calls[0] == (Call("read", {"essay": "essay 0"}),)
    assert [call.arguments for call in seen.calls[1]] == [{"number": one} for one in (1, 2, 3)]
    assert seen.results[1] == (OK,) * 3


@pytest.mark.parametrize("way", WAYS)
async def test_a_branch_that_is_tried_again_is_one_call(way: Callable[..., Any]) -> None:
    attempts: Counter[str] = Counter()

    def down_once(messages: Sequence[BaseMessage]) -> AIMessage:
        essay = asked(messages)
        if turns(messages) and not attempts[essay]:
            attempts[essay] += 1
            raise OSError("no connection")
        return grading(messages)

    graph = StateGraph(MessagesState)
    policy = RetryPolicy(initial_interval=0.0, jitter=False, retry_on=OSError)
    graph.add_node("grade", grader(down_once), retry_policy=policy)
    sends = [Send("grade", request(number)) for number in range(3)]
    graph.add_conditional_edges(START, lambda state: sends, ["grade"])
    seen = await observed(way, graph.compile(name="team"))
    assert seen.agents == {("grade", 1, "unknown"): 3}
    assert seen.calls == [calls_of("grade", 3)]
    assert seen.results == [(OK,) * 3]


@pytest.mark.parametrize("way", WAYS)
async def test_the_error_of_a_branch(way: Callable[..., Any]) -> None:
    def broken(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            raise OSError("no connection")
        return grading(messages)

    with pytest.raises(OSError, match="no connection"):
        await observed(way, fanned_out(3, grader(broken)))


async def test_a_stream_that_is_closed_early_and_a_task_that_is_cancelled() -> None:
    handler = TidegaugeCallbackHandler()
    slow = asyncio.Event()

    @tool
    async def read(essay: str) -> str:
        """Read an essay."""
        await slow.wait()
        return "fine"

    agent = create_agent(ScriptedChatModel(script=grading), [read])
    graph = fanned_out(3, agent)
    with testing.capture() as seen:
        reports = Reports(seen)
        running = asyncio.ensure_future(graph.ainvoke({"messages": []}, {"callbacks": [handler]}))
        while len(handler._runs._runs) < 4:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert nothing_is_left(handler, seen)
        stream = fanned_out(3, grader()).astream(
            {"messages": []}, {"callbacks": [handler]}, subgraphs=True
        )
        async for _ in stream:
            break
        await stream.aclose()
        for chunk in fanned_out(3, grader()).stream(
            {"messages": []}, {"callbacks": [handler]}, subgraphs=True
        ):
            assert chunk
            break
        assert nothing_is_left(handler, seen)
    assert Counter(report.agent for report in reports)["team"] == 3


@pytest.mark.parametrize("way", WAYS)
async def test_branches_without_steps_are_no_runs(way: Callable[..., Any]) -> None:
    def says(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("ok")

    seen = await observed(way, fanned_out(4, grader(says)))
    assert seen.inner == []
    assert seen.outer.steps == 0


@pytest.mark.parametrize("way", WAYS)
async def test_parallel_calls_of_one_model_are_one_step(way: Callable[..., Any]) -> None:
    def two(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            return answers("ok")
        return chooses(("read", {"essay": "a"}), ("read", {"essay": "b"}))

    agent = create_agent(ScriptedChatModel(script=two), [read], name="reader")
    seen = await observed(way, agent)
    assert seen.inner == []
    assert seen.calls == [(Call("read", {"essay": "a"}), Call("read", {"essay": "b"}))]


@pytest.mark.parametrize("way", WAYS)
async def test_a_node_beside_the_model_of_the_graph_makes_no_branch(
    way: Callable[..., Any],
) -> None:
    """What the model chooses is run by another node: its turns are those of the graph."""
    rounds = 4

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        return answers("ok") if turn == rounds else chooses(("read", {"essay": f"part {turn}"}))

    model = ScriptedChatModel(script=with_others(1, say))

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def think_now(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", RunnableLambda(think_now, think))
    graph.add_node("note", lambda state: {})
    graph.add_node("tools", ToolNode([read]))
    for before in (START, "tools"):
        graph.add_edge(before, "think")
        graph.add_edge(before, "note")
    graph.add_conditional_edges("think", tools_condition)
    seen = await observed(way, graph.compile(name="team"), stop_on_result_streak=9)
    assert seen.inner == []
    assert seen.calls == [(Call("read", {"essay": f"part {turn}"}),) for turn in range(rounds)]


@pytest.mark.parametrize("way", WAYS)
async def test_branches_end_gracefully_with_the_middleware(way: Callable[..., Any]) -> None:
    model = ScriptedChatModel(script=reading_on)
    agent = create_agent(model, [read], middleware=[TidegaugeMiddleware()])
    seen = await observed(way, fanned_out(3, agent), stop_on_loop=3)
    assert seen.agents == {("grade", 5, "stopped"): 3}
    assert (seen.outer.steps, seen.outer.outcome) == (1, "unknown")
    assert seen.calls == [calls_of("grade", 3)]


def test_a_pipeline_that_streams_makes_no_branch() -> None:
    handler = TidegaugeCallbackHandler()
    chain = RunnableLambda(request) | grader() | RunnableLambda(lambda s: s)
    with testing.capture() as seen:
        reports = Reports(seen)
        assert list(chain.stream(1, {"callbacks": [handler]}))
        assert nothing_is_left(handler, seen)
    assert [report.steps for report in reports] == [1]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_a_loop_of_fan_outs_is_a_loop_of_the_run_around_them(
    way: Callable[..., Any],
) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("plan", lambda state: {})
    graph.add_node("grade", grader())
    sends = [Send("grade", request(number)) for number in range(3)]
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: sends, ["grade"])
    graph.add_edge("grade", "plan")
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports, log = Reports(seen), StepLog(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(graph.compile(name="team"), {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    *inner, team = reports
    assert caught.value.run == team.run
    assert {calls for calls, *_ in log.steps(team.run)} == {calls_of("grade", 3)}
    assert len(inner) == 3 * team.steps


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
@pytest.mark.parametrize("name", [None, "grader"])
async def test_branches_that_wait_for_a_person(way: Callable[..., Any], name: str | None) -> None:
    @tool
    def read(essay: str) -> str:
        """Read an essay, if a person lets you."""
        return str(interrupt(essay)) if essay != "essay 0" else "fine"

    agent = create_agent(ScriptedChatModel(script=grading), [read], name=name)
    graph = StateGraph(MessagesState)
    graph.add_node("grade", agent)
    sends = [Send("grade", request(number)) for number in range(3)]
    graph.add_conditional_edges(START, lambda state: sends, ["grade"])
    compiled: Any = graph.compile(name="team", checkpointer=InMemorySaver())
    config: dict[str, Any] = {"configurable": {"thread_id": "one"}}
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports, log = Reports(seen), StepLog(seen)
        config["callbacks"] = [handler]
        await way(compiled, config)
        assert [report.outcome for report in reports] == ["unknown"], "the one that need not wait"
        waiting = compiled.get_state(config).interrupts
        assert len(waiting) == 2
        resume = Command(resume={one.id: "fine" for one in waiting})
        if way is via_ainvoke:
            await compiled.ainvoke(resume, config)
        else:
            compiled.invoke(resume, config)
        assert nothing_is_left(handler, seen)
    found = Seen(reports, log)
    assert found.agents == {(name or "grade", 1, "unknown"): 3}
    assert found.calls == [calls_of(name or "grade", 3)]
    assert found.results == [(OK,) * 3]
