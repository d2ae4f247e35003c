"""Nodes that ask a person run from their start at each answer: what they did before counts once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

import tidegauge
from support.langchain_agents import (
    Reports,
    StepLog,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
    waiting,
)
from support.looking_agents import look, looks_around, once
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
WAYS = pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
INVALID = 5
ANSWERS = ["no"] * INVALID + ["yes"]
RULES: dict[str, Any] = {"stop_on_loop": 2, "stop_on_result_streak": 4}

Body = Callable[[], None]


@tidegauge.tool(name="look")
def look_decorated(place: str) -> str:
    return f"{place} is empty"


def look_by_hand(place: str) -> None:
    run = tidegauge.get_current_run()
    assert run is not None
    run.act("look", {"place": place})
    run.observe(f"{place} is empty")


MODEL = ScriptedChatModel(
    script=lambda messages: (
        answers("none")
        if turns(messages)
        else chooses(("look", {"place": str(messages[-1].content)}))
    )
)


def look_by_a_model(place: str) -> None:
    question: list[Any] = [("user", place)]
    answer = MODEL.invoke(question)
    for call in answer.tool_calls:
        question += [answer, look.invoke(call)]
    MODEL.invoke(question)


LOOKS = pytest.mark.parametrize(
    "looking",
    [lambda place: look.invoke({"place": place}), look_decorated, look_by_hand, look_by_a_model],
    ids=["tool", "decorated", "by hand", "model"],
)


def asks_until_valid() -> None:
    while interrupt("is it there?") != "yes":
        pass


def one_node(body: Body, checkpointer: Any = None) -> Any:
    def node(state: MessagesState) -> dict[str, Any]:
        body()
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("search", node)
    graph.add_edge(START, "search")
    return graph.compile(name="searcher", checkpointer=checkpointer or InMemorySaver())


def in_a_subgraph(body: Body) -> Any:
    inner = one_node(body, True)
    graph = StateGraph(MessagesState)
    graph.add_node("inside", inner)
    graph.add_edge(START, "inside")
    return graph.compile(name="searcher", checkpointer=InMemorySaver())


def by_function(body: Body) -> Any:
    @entrypoint(checkpointer=InMemorySaver())
    def searcher(inputs: Any) -> str:
        body()
        return "none"

    searcher.name = "searcher"
    return searcher


GRAPHS = pytest.mark.parametrize("graph", [one_node, in_a_subgraph, by_function])


async def resumed(way: Any, agent: Any, answers: list[str], seen: testing.Capture) -> None:
    config: dict[str, Any] = {"configurable": {"thread_id": "one"}}
    for inputs in (TASK, *[Command(resume=answer) for answer in answers]):
        handler = TidegaugeCallbackHandler()
        await way(agent, inputs, {**config, "callbacks": [handler]})
    assert nothing_is_left(handler, seen)


@WAYS
@LOOKS
@GRAPHS
async def test_a_call_before_an_interrupt_counts_once(way: Any, looking: Any, graph: Any) -> None:
    def body() -> None:
        looking("desk")
        asks_until_valid()

    with testing.capture(**RULES) as seen:
        reports = Reports(seen)
        await resumed(way, graph(body), ANSWERS, seen)
    (report,) = [one for one in reports if one.steps]
    assert (report.agent, report.steps, report.loops) == ("searcher", 1, [])


@WAYS
@LOOKS
@GRAPHS
async def test_a_new_call_for_each_answer_is_a_step(way: Any, looking: Any, graph: Any) -> None:
    def body() -> None:
        looking("desk")
        for number in range(len(ANSWERS)):
            answer = interrupt("is it there?")
            looking(f"box {number}")
            if answer == "yes":
                break
        looking("door")

    with testing.capture(**RULES) as seen:
        reports = Reports(seen)
        await resumed(way, graph(body), ANSWERS, seen)
    (report,) = [one for one in reports if one.steps]
    assert (report.agent, report.steps, report.loops) == ("searcher", INVALID + 3, [])


@WAYS
@LOOKS
@GRAPHS
async def test_a_loop_over_answers_is_found(way: Any, looking: Any, graph: Any) -> None:
    def body() -> None:
        while True:
            looking("desk")
            if interrupt("is it there?") == "yes":
                break

    with testing.capture() as seen:
        reports = Reports(seen)
        await resumed(way, graph(body), ANSWERS, seen)
    (report,) = [one for one in reports if one.steps]
    assert (report.agent, report.steps, len(report.loops)) == ("searcher", len(ANSWERS), 1)


@WAYS
async def test_two_nodes_ask_at_once(way: Any) -> None:
    """Both begin again at each answer, also that which was not answered."""

    def node(place: str) -> Any:
        def search(state: MessagesState) -> dict[str, Any]:
            look.invoke({"place": place})
            asks_until_valid()
            return {}

        return search

    graph = StateGraph(MessagesState)
    for place in ("desk", "box"):
        graph.add_node(place, node(place))
        graph.add_edge(START, place)
    agent = graph.compile(name="searcher", checkpointer=InMemorySaver())
    config: dict[str, Any] = {"configurable": {"thread_id": "one"}}
    with testing.capture(**RULES) as seen:
        reports = Reports(seen)
        await way(agent, TASK, {**config, "callbacks": [TidegaugeCallbackHandler()]})
        for answer in ANSWERS:
            for _ in range(2 if answer == "yes" else 1):
                pause = agent.get_state(config).interrupts[0]  # type: ignore[arg-type]
                handler = TidegaugeCallbackHandler()
                command = Command(resume={pause.id: answer})
                await way(agent, command, {**config, "callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    runs = sorted((one.agent, one.steps, one.loops, one.outcome) for one in reports)
    assert runs == [
        ("box", 1, [], "unknown"),
        ("desk", 1, [], "unknown"),
        ("searcher", 1, [], "unknown"),
    ]


@WAYS
@pytest.mark.parametrize("name", [None, "looker"])
async def test_an_agent_before_an_interrupt(way: Any, name: str | None) -> None:
    def body() -> None:
        create_agent(ScriptedChatModel(script=looks_around), [look], name=name).invoke(TASK)
        asks_until_valid()

    with testing.capture(**RULES) as seen:
        reports = Reports(seen)
        await resumed(way, one_node(body), ANSWERS[-2:], seen)
    steps = {one.agent: one.steps for one in reports if one.steps}
    assert steps == ({"looker": 3, "searcher": 1} if name else {"searcher": 3})
    assert not any(one.loops for one in reports)


@LOOKS
@GRAPHS
@pytest.mark.parametrize("loop", [False, True])
def test_another_process_counts_no_call_again(
    looking: Any, graph: Any, loop: bool, tmp_path: Path
) -> None:
    def body() -> None:
        looking("desk")
        while interrupt("is it there?") != "yes":
            if loop:
                looking("desk")

    agent = graph(body)
    config: dict[str, Any] = {"configurable": {"thread_id": "one"}}
    for inputs in (TASK, *[Command(resume=answer) for answer in ANSWERS]):
        with testing.capture(run_store=str(tmp_path / "runs.sqlite")) as seen:
            reports = Reports(seen)
            agent.invoke(inputs, {**config, "callbacks": [TidegaugeCallbackHandler()]})
    (report,) = [one for one in reports if one.steps]
    assert (report.steps, len(report.loops)) == ((len(ANSWERS), 1) if loop else (1, 0))


@WAYS
async def test_a_run_from_an_earlier_checkpoint_is_a_new_one(way: Any) -> None:
    """The run that waits at a later one is not continued."""

    def node(place: str) -> Any:
        def search(state: MessagesState) -> dict[str, Any]:
            look.invoke({"place": place})
            if place == "shelf":
                interrupt("is it there?")
            return {}

        return search

    places = ["desk", "box", "shelf", "door"]
    graph = StateGraph(MessagesState)
    for before, place in zip([START, *places], places, strict=False):
        graph.add_node(place, node(place))
        graph.add_edge(before, place)
    agent = graph.compile(name="searcher", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "one"}}
    with testing.capture(**RULES) as seen:
        reports = Reports(seen)
        await way(agent, TASK, {**config, "callbacks": [TidegaugeCallbackHandler()]})
        (earlier,) = [one for one in agent.get_state_history(config) if one.next == ("box",)]
        for count in range(2, 6):
            handler = TidegaugeCallbackHandler()
            await way(agent, None, {**earlier.config, "callbacks": [handler]})
            assert waiting(seen) == count
        await way(agent, Command(resume="yes"), {**config, "callbacks": [handler]})
    assert [(one.steps, one.loops) for one in reports][:1] == [(3, [])]
    assert sorted(one.steps for one in reports) == [2, 2, 2, 3, 3]
    assert len({one.run for one in reports}) == 5


class Asked(TypedDict):
    found: Annotated[list[str], operator.add]


@pytest.mark.parametrize("by_model", [False, True], ids=["by hand", "by a model"])
@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_what_send_started_and_that_waits_is_a_branch_each_when_it_continues(
    way: Any, by_model: bool
) -> None:
    model = ScriptedChatModel(script=once("look", {"place": "desk"}))

    def ask(state: Any) -> Asked:
        place = interrupt(state["question"])
        if by_model:
            [chosen] = model.invoke("where?").tool_calls
            return {"found": [look.invoke(chosen).content]}
        return {"found": [look.invoke({"place": place})]}

    graph = StateGraph(Asked)
    graph.add_node("ask", ask)
    sends = [Send("ask", {"question": name}) for name in "abc"]
    graph.add_conditional_edges(START, lambda state: sends, ["ask"])
    team = graph.compile(name="team", checkpointer=InMemorySaver())
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "1"}}
    with testing.capture() as seen:
        reports, log = Reports(seen), StepLog(seen)
        await way(team, {"found": []}, config)
        waits = team.get_state(config).interrupts
        await way(team, Command(resume={one.id: f"{one.value}!" for one in waits}), config)
        assert nothing_is_left(handler, seen)
    assert sorted((report.agent, report.steps) for report in reports) == [
        *[("ask", 1)] * 3,
        ("team", 1),
    ]
    outer = next(report.run for report in reports if report.agent == "team")
    [(calls, _, _)] = log.steps(outer)
    assert [call.arguments for call in calls] == [{"question": name} for name in "abc"]
