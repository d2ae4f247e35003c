"""Nodes that edges start in one superstep: each is a run by itself, all together are one step."""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, Send, interrupt

import tidegauge
from support.langchain_agents import Reports, StepLog, nothing_is_left
from support.scripted_model import ScriptedChatModel, answers, chooses
from tidegauge import testing
from tidegauge.events import Call
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

PAIR = ("anna", "bert")


@tool
def read(essay: str) -> str:
    """Read an essay."""
    return "fine"


@tool
def fetch(page: str) -> str:
    """Fetch a page."""
    return f"content of {page}"


async def via_invoke(graph: Any, inputs: Any, config: Any) -> None:
    graph.invoke(inputs, config)


async def via_ainvoke(graph: Any, inputs: Any, config: Any) -> None:
    await graph.ainvoke(inputs, config)


async def via_stream(graph: Any, inputs: Any, config: Any) -> None:
    list(graph.stream(inputs, config, subgraphs=True))


async def via_astream(graph: Any, inputs: Any, config: Any) -> None:
    [_ async for _ in graph.astream(inputs, config)]


WAYS = pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])


class Seen:
    """What came of an invocation: the steps of the outermost run, and the runs in it."""

    def __init__(self, reports: Reports, log: StepLog) -> None:
        *inner, self.outer = reports
        self.calls = [calls for calls, *_ in log.steps(self.outer.run)]
        self.runs = Counter((report.agent, report.steps, report.outcome) for report in inner)


async def observed(way: Callable[..., Any], graph: Any, inputs: Any, **settings: Any) -> Seen:
    """What came of an invocation; a stop of the run is in its outcome."""
    handler = TidegaugeCallbackHandler()
    with testing.capture(**settings) as seen:
        reports, log = Reports(seen), StepLog(seen)
        with contextlib.suppress(tidegauge.RunStopped):
            await way(graph, inputs, {"callbacks": [handler], "recursion_limit": 100})
        assert nothing_is_left(handler, seen)
    return Seen(reports, log)


def asking() -> dict[str, Any]:
    return {"messages": [("user", "essay 1")]}


def reading(messages: Sequence[BaseMessage]) -> AIMessage:
    """Reads one essay, and answers."""
    if isinstance(messages[-1], ToolMessage):
        return answers("ok")
    return chooses(("read", {"essay": "essay 1"}))


def reading_on(messages: Sequence[BaseMessage]) -> AIMessage:
    """Reads the same essay forever."""
    return chooses(("read", {"essay": "essay 1"}))


def agents(named: bool, **scripts: Any) -> Any:
    graph = StateGraph(MessagesState)
    for node, script in scripts.items():
        model = ScriptedChatModel(script=script)
        graph.add_node(node, create_agent(model, [read], name=node if named else None))
        graph.add_edge(START, node)
    return graph.compile(name="team")


@WAYS
@pytest.mark.parametrize("named", [True, False])
async def test_a_healthy_pair_of_agents_is_one_step(way: Callable[..., Any], named: bool) -> None:
    for _ in range(5):  # threads begin in any order
        graph = agents(named, bert=reading, anna=reading)
        seen = await observed(way, graph, asking(), stop_on_result_streak=2, stop_on_loop=1)
        assert seen.runs == {("anna", 1, "unknown"): 1, ("bert", 1, "unknown"): 1}
        assert [[call.action for call in calls] for calls in seen.calls] == [list(PAIR)]
        if named:
            assert {call.arguments for call in seen.calls[0]} == {"essay 1"}
        assert (seen.outer.steps, seen.outer.outcome) == (1, "unknown")


@WAYS
@pytest.mark.parametrize("named", [True, False])
async def test_an_agent_that_loops_beside_another_is_stopped(
    way: Callable[..., Any], named: bool
) -> None:
    graph = agents(named, anna=reading, bert=reading_on)
    seen = await observed(way, graph, asking(), stop_on_loop=3)
    assert seen.runs["bert", 5, "stopped"] == 1
    assert (seen.outer.steps, seen.outer.outcome) == (1, "stopped")
    assert [[call.action for call in calls] for calls in seen.calls] == [list(PAIR)]


@WAYS
async def test_an_agent_alone_after_a_pair_is_a_step_by_itself(way: Callable[..., Any]) -> None:
    graph = StateGraph(MessagesState)
    for node in (*PAIR, "carl"):
        model = ScriptedChatModel(script=reading)
        graph.add_node(node, create_agent(model, [read], name=node))
    graph.add_node("last", create_agent(ScriptedChatModel(script=reading), [read]))
    for node in PAIR:
        graph.add_edge(START, node)
    graph.add_edge(list(PAIR), "carl")
    graph.add_edge("carl", "last")
    seen = await observed(way, graph.compile(name="team"), asking())
    names = [[call.action for call in calls] for calls in seen.calls]
    assert names == [list(PAIR), ["carl"], ["read"]]
    assert seen.runs == {(name, 1, "unknown"): 1 for name in (*PAIR, "carl")}


class Pages(TypedDict):
    round: int
    found: Annotated[list[str], operator.add]


class Conversation(MessagesState):
    round: int
    found: Annotated[list[str], operator.add]


def rounds(
    most: int, page: Callable[[int], str], *, alone: bool = False, state: Any = Pages
) -> Any:
    """A graph of rounds: nodes that call a tool at once, with a counter in the state."""

    def fetching(node: str) -> Any:
        def run(state: Pages) -> dict[str, Any]:
            return {"found": [fetch.invoke({"page": f"{node} {page(state['round'])}"})]}

        async def arun(state: Pages) -> dict[str, Any]:
            return {"found": [await fetch.ainvoke({"page": f"{node} {page(state['round'])}"})]}

        return RunnableLambda(run, arun)

    graph = StateGraph(state)
    graph.add_node("plan", lambda state: {"round": state["round"] + 1})
    graph.add_node("check", lambda state: {})
    graph.add_edge(START, "plan")
    nodes = PAIR[:1] if alone else PAIR
    for node in nodes:
        graph.add_node(node, fetching(node))
        graph.add_edge("plan", node)
    graph.add_edge(list(nodes), "check")
    graph.add_conditional_edges("check", lambda state: END if state["round"] >= most else "plan")
    return graph.compile(name="team")


STATES = pytest.mark.parametrize("state", [Pages, Conversation])


def beginning(state: Any) -> dict[str, Any]:
    """A state in which nothing happened; its messages stay as they are."""
    return {"round": 0, "found": [], **(asking() if state is Conversation else {})}


@WAYS
@STATES
async def test_tools_that_nodes_call_at_once_are_steps_within_the_nodes(
    way: Callable[..., Any], state: Any
) -> None:
    inputs = beginning(state)
    graph = rounds(6, lambda number: f"page {number}", state=state)
    seen = await observed(way, graph, inputs, stop_on_loop=1)
    assert seen.runs == {(node, 1, "unknown"): 6 for node in PAIR}
    assert [[call.action for call in calls] for calls in seen.calls] == [list(PAIR)] * 6
    assert len(set(seen.calls)) == 6, "each round fetched other pages"
    assert (seen.outer.steps, seen.outer.outcome) == (6, "unknown")


@WAYS
@STATES
async def test_a_counter_in_the_state_hides_no_loop_of_fan_outs(
    way: Callable[..., Any], state: Any
) -> None:
    inputs = beginning(state)
    graph = rounds(20, lambda number: "page", state=state)
    seen = await observed(way, graph, inputs, stop_on_loop=2)
    assert seen.outer.outcome == "stopped"
    assert len(set(seen.calls)) == 1, "each round did the same"
    assert seen.outer.steps < 20


@WAYS
async def test_a_node_that_is_tried_again_is_what_its_last_attempt_did(
    way: Callable[..., Any],
) -> None:
    tried: set[int] = set()

    def unsteady(state: Pages) -> dict[str, Any]:
        number = state["round"]
        if number not in tried:
            tried.add(number)
            fetch.invoke({"page": f"attempt {number}"})
            raise OSError("no connection")
        return {"found": [fetch.invoke({"page": "page"})]}

    def steady(state: Pages) -> dict[str, Any]:
        return {"found": [fetch.invoke({"page": "page"})]}

    graph = StateGraph(Pages)
    graph.add_node("plan", lambda state: {"round": state["round"] + 1})
    policy = RetryPolicy(initial_interval=0.0, jitter=False, retry_on=OSError)
    graph.add_node("anna", unsteady, retry_policy=policy)
    graph.add_node("bert", steady)
    graph.add_node("check", lambda state: {})
    graph.add_edge(START, "plan")
    for node in PAIR:
        graph.add_edge("plan", node)
    graph.add_edge(list(PAIR), "check")
    graph.add_conditional_edges("check", lambda state: END if state["round"] >= 3 else "plan")
    seen = await observed(way, graph.compile(name="team"), {"round": 0, "found": []})
    assert seen.runs["anna", 2, "unknown"] == 3
    assert [[call.action for call in calls] for calls in seen.calls] == [list(PAIR)] * 3
    (step,) = set(seen.calls)
    assert step[0].arguments == step[1].arguments, "both did the same in the end"


@WAYS
async def test_agents_with_names_are_compared_by_what_their_nodes_ask_them(
    way: Callable[..., Any],
) -> None:
    model = ScriptedChatModel(script=reading)

    def asks(name: str) -> Any:
        agent = create_agent(model, [read], name=name)

        def node(state: Pages) -> dict[str, Any]:
            agent.invoke({"messages": [("user", f"{name} page")]})
            return {}

        return node

    graph = StateGraph(Pages)
    for name in PAIR:
        graph.add_node(name, asks(name))
        graph.add_edge(START, name)
    seen = await observed(way, graph.compile(name="team"), {"round": 0, "found": []})
    assert seen.calls == [(Call("anna", "anna page"), Call("bert", "bert page"))]


@WAYS
@pytest.mark.parametrize(("most", "outcome"), [(1, "stopped"), (8, "unknown")])
@pytest.mark.parametrize("name", [None, "reader"])
async def test_rounds_of_agents_that_nodes_ask_something_else(
    way: Callable[..., Any], name: str | None, most: int, outcome: str
) -> None:
    """The state has a message that stays the same; what the nodes ask changes, or it does not."""

    def reads(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return answers("ok")
        return chooses(("fetch", {"page": str(messages[0].content)}))

    agent = create_agent(ScriptedChatModel(script=reads), [fetch], name=name)

    def asks(state: Conversation) -> dict[str, Any]:
        agent.invoke({"messages": [("user", f"page {min(state['round'], most)}")]})
        return {}

    graph = StateGraph(Conversation)
    graph.add_node("plan", lambda state: {"round": state["round"] + 1})
    graph.add_node("check", lambda state: {})
    graph.add_edge(START, "plan")
    for node in PAIR:
        graph.add_node(node, asks)
        graph.add_edge("plan", node)
    graph.add_edge(list(PAIR), "check")
    graph.add_conditional_edges("check", lambda state: END if state["round"] >= 8 else "plan")
    compiled = graph.compile(name="team")
    seen = await observed(way, compiled, beginning(Conversation), stop_on_loop=2)
    assert seen.outer.outcome == outcome
    assert all(len(calls) == 2 for calls in seen.calls)
    assert (seen.outer.steps == 8) is (outcome == "unknown")


@WAYS
async def test_tools_of_a_node_that_is_alone_are_steps_of_the_graph(
    way: Callable[..., Any],
) -> None:
    inputs = {"round": 0, "found": []}
    graph = rounds(2, lambda number: f"page {number}", alone=True)
    seen = await observed(way, graph, inputs)
    assert not seen.runs
    assert seen.calls == [(Call("fetch", {"page": f"anna page {n}"}),) for n in (1, 2)]


@WAYS
async def test_what_a_model_chooses_beside_a_tool_of_its_node_counts_once(
    way: Callable[..., Any],
) -> None:
    """The node calls a tool, then asks the model, whose calls the next node runs."""
    model = ScriptedChatModel(script=reading)

    def think(state: MessagesState) -> dict[str, Any]:
        fetch.invoke({"page": "context"})
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("note", lambda state: {})
    graph.add_node("tools", ToolNode([read]))
    for before in (START, "tools"):
        graph.add_edge(before, "think")
        graph.add_edge(before, "note")
    graph.add_conditional_edges("think", tools_condition)
    seen = await observed(way, graph.compile(name="team"), asking())
    assert seen.runs == {("think", 1, "unknown"): 2}
    names = [[call.action for call in calls] for calls in seen.calls]
    assert sorted(names) == [["read"], ["think"], ["think"]]
    assert seen.outer.steps == 3


@WAYS
async def test_an_edge_and_a_send_in_one_superstep_are_one_step(way: Callable[..., Any]) -> None:
    model = ScriptedChatModel(script=reading)
    graph = StateGraph(MessagesState)
    graph.add_node("plan", lambda state: {})
    graph.add_node("anna", create_agent(model, [read], name="anna"))
    graph.add_node("sent", create_agent(model, [read]))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "anna")
    graph.add_conditional_edges("plan", lambda state: [Send("sent", asking())], ["sent"])
    seen = await observed(way, graph.compile(name="team"), asking())
    assert seen.runs == {("anna", 1, "unknown"): 1, ("sent", 1, "unknown"): 1}
    assert seen.calls == [(Call("anna", "essay 1"), Call("sent", "essay 1"))]


def reader(*essays: str, ask: int | None = None) -> Any:
    """A node that reads essays, and asks a person before one of them."""

    def node(state: MessagesState) -> dict[str, Any]:
        for number, essay in enumerate(essays):
            if number == ask:
                interrupt("go on?")
            read.invoke({"essay": essay})
        return {}

    return node


@WAYS
async def test_a_graph_of_parallel_nodes_beside_another_node(way: Callable[..., Any]) -> None:
    inner = StateGraph(MessagesState)
    outer = StateGraph(MessagesState)
    for graph, nodes in ((inner, ("x", "y")), (outer, ("i", "j"))):
        for name in nodes:
            graph.add_node(name, inner.compile() if name == "i" else reader(name))
            graph.add_edge(START, name)
    seen = await observed(way, outer.compile(name="team"), asking())
    assert seen.runs == {(name, 1, "unknown"): 1 for name in "ijxy"}
    assert [[call.action for call in calls] for calls in seen.calls] == [["i", "j"]]


@WAYS
async def test_a_node_that_waits_for_a_person_beside_another(way: Callable[..., Any]) -> None:
    """The node begins again when it is resumed: what it reads first counts once."""
    graph = StateGraph(MessagesState)
    graph.add_node("anna", reader("a"))
    graph.add_node("bert", reader("b", "c", ask=1))
    for name in PAIR:
        graph.add_edge(START, name)
    compiled = graph.compile(name="team", checkpointer=InMemorySaver())
    handler = TidegaugeCallbackHandler()
    config = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture() as captured:
        reports, log = Reports(captured), StepLog(captured)
        await way(compiled, asking(), config)
        await way(compiled, Command(resume="yes"), config)
        assert nothing_is_left(handler, captured)
    seen = Seen(reports, log)
    assert seen.runs == {("anna", 1, "unknown"): 1, ("bert", 2, "unknown"): 1}
    (pair,) = seen.calls
    assert [call.action for call in pair] == list(PAIR)
    assert pair[0].arguments != pair[1].arguments, "each read other essays"
