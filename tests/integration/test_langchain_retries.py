"""Nodes that LangGraph tries again: the attempts of one task are one piece of work."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, Send

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
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, branches

WAYS = pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
RULES: dict[str, Any] = {"stop_on_loop": 1, "stop_on_result_streak": 5}
ATTEMPTS = 3
TIMEOUT = 0.517  # as no one else sleeps


def policy(attempts: int = ATTEMPTS) -> RetryPolicy:
    return RetryPolicy(initial_interval=0.0, jitter=False, retry_on=OSError, max_attempts=attempts)


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


class Failing:
    """Fails at its first calls."""

    def __init__(self, times: int = 2) -> None:
        self.left = times

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise OSError("no connection")


class Seen:
    """What came of an invocation: the runs in the order of their ends, and their steps."""

    def __init__(self, reports: Reports, log: StepLog) -> None:
        self.runs = [(report.agent, report.steps, report.outcome) for report in reports]
        self.onsets = sum(bool(report.loop_repeats) for report in reports)
        self.steps = {
            report.agent: [[call.action for call in calls] for calls, *_ in log.steps(report.run)]
            for report in reports
        }
        self.arguments = {
            report.agent: [
                [call.arguments for call in calls] for calls, *_ in log.steps(report.run)
            ]
            for report in reports
        }
        self.results = {
            report.agent: [results for *_, results in log.steps(report.run)] for report in reports
        }


async def observed(way: Callable[..., Any], graph: Any, config: Any = None, **rules: Any) -> Seen:
    handler = TidegaugeCallbackHandler(agent="team")
    with testing.capture(**(rules or RULES)) as seen:
        reports, log = Reports(seen), StepLog(seen)
        with contextlib.suppress(tidegauge.RunStopped, OSError):
            await way(graph, asking(), {"callbacks": [handler], **(config or {})})
        assert nothing_is_left(handler, seen)
    return Seen(reports, log)


def asking() -> dict[str, Any]:
    return {"messages": [("user", "find the key")]}


def one_node(node: Any, attempts: int = ATTEMPTS, **options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("search", node, retry_policy=policy(attempts))
    graph.add_edge(START, "search")
    return graph.compile(name="team", **options)


def by_tool(place: str) -> None:
    look.invoke({"place": place})


@tidegauge.tool(name="look")
def decorated(place: str) -> str:
    return f"{place} is empty"


def by_decorator(place: str) -> None:
    decorated(place)


def by_hand(place: str) -> None:
    run = tidegauge.get_current_run()
    run.act("look", {"place": place})
    run.observe(f"{place} is empty")


CALLS = pytest.mark.parametrize("call", [by_tool, by_decorator, by_hand])


@WAYS
@CALLS
async def test_calls_of_a_node_that_is_tried_again_count_once(way: Any, call: Any) -> None:
    fail = Failing()

    def node(state: MessagesState) -> dict[str, Any]:
        for place in ("desk", "bed", "door"):
            call(place)
        fail()
        call("shelf")
        return {}

    seen = await observed(way, one_node(node))
    assert seen.runs == [("team", 4, "unknown")]
    assert seen.onsets == 0
    places = [one["place"] for (one,) in seen.arguments["team"]]
    assert places == ["desk", "bed", "door", "shelf"]
    assert None not in seen.results["team"]


@WAYS
@pytest.mark.parametrize("first_turns", [0, 2, 100])
async def test_turns_of_a_model_that_a_node_asks_itself_count_once(
    way: Any, first_turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a task remembers before it has attempts."""
    monkeypatch.setattr(branches, "MAX_FIRST_TURNS", first_turns)
    fail, places = Failing(), ("desk", "bed", "door")

    def choose(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("look", {"place": places[turns(messages)]}))

    model: Any = ScriptedChatModel(script=choose)

    def node(state: MessagesState) -> dict[str, Any]:
        messages: list[BaseMessage] = []
        for _ in places:
            messages.append(model.invoke([*state["messages"], *messages]))
            messages += [look.invoke(call) for call in cast("AIMessage", messages[-1]).tool_calls]
        fail()
        by_tool("shelf")
        return {}

    seen = await observed(way, one_node(node))
    assert seen.runs == [("team", 4, "unknown")]
    assert [one["place"] for (one,) in seen.arguments["team"]] == [*places, "shelf"]
    assert None not in seen.results["team"]


@WAYS
@CALLS
@pytest.mark.parametrize("failures", [0, 1])
async def test_a_loop_inside_one_attempt_is_found(way: Any, call: Any, failures: int) -> None:
    fail = Failing(failures)

    def node(state: MessagesState) -> dict[str, Any]:
        call("desk")
        fail()
        for _ in range(20):
            call("desk")
        return {}

    seen = await observed(way, one_node(node), stop_on_loop=2)
    assert seen.runs == [("team", 4, "stopped")]


@WAYS
async def test_a_call_that_failed_has_the_result_of_the_attempt_that_succeeds(way: Any) -> None:
    fail = Failing()

    @tool
    def fetch(page: str) -> str:
        """Fetch a page."""
        fail()
        return f"content of {page}"

    def node(state: MessagesState) -> dict[str, Any]:
        look.invoke({"place": "desk"})
        fetch.invoke({"page": "one"})
        look.invoke({"place": "bed"})
        return {}

    seen = await observed(way, one_node(node))
    assert seen.steps["team"] == [["look"], ["fetch"], ["look"]]
    assert [results[0].outcome for results in seen.results["team"]] == [
        "desk is empty",
        "content of one",
        "bed is empty",
    ]
    assert seen.runs == [("team", 3, "unknown")]


@WAYS
async def test_a_node_that_fails_to_the_end_has_its_failed_call(way: Any) -> None:
    @tool
    def fetch(page: str) -> str:
        """Fetch a page."""
        raise OSError("no connection")

    def node(state: MessagesState) -> dict[str, Any]:
        fetch.invoke({"page": "one"})
        return {}

    seen = await observed(way, one_node(node))
    assert seen.runs == [("team", 1, "error")]
    assert [result.error for (result,) in seen.results["team"]] == [True]


def searching(fail: Failing, after: int = 3, rounds: int = 4) -> Any:
    """Looks into four places, and fails before the last one."""

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        if turn == after:
            fail()
        if turn >= rounds:
            return answers("there is none")
        return chooses(("look", {"place": f"place {turn}"}))

    return script


def searcher(script: Any, name: str | None = None, **options: Any) -> Any:
    return create_agent(ScriptedChatModel(script=script), [look], name=name, **options)


def looping(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses(("look", {"place": "desk"}))


@WAYS
@pytest.mark.parametrize("after", [0, 1, 3, 4])
async def test_an_agent_without_a_name_in_a_node_that_is_tried_again(way: Any, after: int) -> None:
    seen = await observed(way, one_node(searcher(searching(Failing(), after))))
    assert seen.runs == [("team", 4, "unknown")]
    assert seen.onsets == 0
    assert [one["place"] for (one,) in seen.arguments["team"]] == [f"place {n}" for n in range(4)]


@WAYS
@pytest.mark.parametrize("after", [0, 1, 3, 4])
async def test_an_agent_with_a_name_in_a_node_that_is_tried_again(way: Any, after: int) -> None:
    seen = await observed(way, one_node(searcher(searching(Failing(), after), "seeker")))
    assert seen.runs == [("seeker", 4, "unknown"), ("team", 1, "unknown")]
    assert seen.onsets == 0
    assert [result.outcome for (result,) in seen.results["team"]] == ["there is none"]


@WAYS
@pytest.mark.parametrize("name", ["seeker", None])
async def test_an_agent_that_loops_in_a_node_that_is_tried_again(way: Any, name: Any) -> None:
    fail = Failing(1)

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) == 1:
            fail()
        return looping(messages)

    seen = await observed(way, one_node(searcher(script, name)), stop_on_loop=2)
    assert seen.runs[0] == (name or "team", 4, "stopped")


@WAYS
@pytest.mark.parametrize("name", ["seeker", None])
async def test_an_agent_whose_node_fails_after_it(way: Any, name: Any) -> None:
    fail = Failing()
    agent = searcher(searching(Failing(0)), name)

    def node(state: MessagesState) -> dict[str, Any]:
        agent.invoke(asking())
        fail()
        return {}

    seen = await observed(way, one_node(node))
    assert seen.onsets == 0
    if name is None:
        assert seen.runs == [("team", 4, "unknown")]
    else:  # it was run to its end three times
        assert seen.runs == [("seeker", 4, "unknown")] * 3 + [("team", 1, "unknown")]


@WAYS
async def test_an_agent_that_fails_to_the_end_is_one_run(way: Any) -> None:
    seen = await observed(way, one_node(searcher(searching(Failing(9)), "seeker")))
    assert seen.runs == [("seeker", 3, "error"), ("team", 1, "error")]


@WAYS
async def test_a_failure_that_the_node_catches_ends_the_run(way: Any) -> None:
    broken = searcher(searching(Failing(9)), "broken")
    seeker = searcher(searching(Failing(0)), "seeker")

    def node(state: MessagesState) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            broken.invoke(asking())
        seeker.invoke(asking())
        return {}

    seen = await observed(way, one_node(node))
    assert seen.runs == [
        ("broken", 3, "error"),
        ("seeker", 4, "unknown"),
        ("team", 2, "unknown"),
    ]


@WAYS
@pytest.mark.parametrize("name", ["seeker", None])
async def test_branches_that_are_tried_again_are_one_run_each(way: Any, name: Any) -> None:
    failures: Counter[str] = Counter()

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        place = str(messages[0].content)
        turn = turns(messages)
        if turn == 2 and failures[place] < 2:
            failures[place] += 1
            raise OSError("no connection")
        return answers("none") if turn >= 3 else chooses(("look", {"place": f"{place} {turn}"}))

    graph = StateGraph(MessagesState)
    graph.add_node("search", searcher(script, name), retry_policy=policy())
    sends = [Send("search", {"messages": [("user", f"place {n}")]}) for n in range(3)]
    graph.add_conditional_edges(START, lambda state: sends, ["search"])
    seen = await observed(way, graph.compile(name="team"))
    assert seen.runs == [(name or "search", 3, "unknown")] * 3 + [("team", 1, "unknown")]
    assert seen.onsets == 0
    assert [len(calls) for calls in seen.steps["team"]] == [3]


@WAYS
async def test_a_branch_that_loops_while_another_is_tried_again(way: Any) -> None:
    fail = Failing()

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[0].content == "loop":
            return looping(messages)
        return searching(fail)(messages)

    graph = StateGraph(MessagesState)
    graph.add_node("search", searcher(script), retry_policy=policy())
    sends = [Send("search", {"messages": [("user", text)]}) for text in ("loop", "work")]
    graph.add_conditional_edges(START, lambda state: sends, ["search"])
    seen = await observed(way, graph.compile(name="team"), stop_on_loop=2)
    assert ("search", 4, "stopped") in seen.runs
    assert seen.runs[-1] == ("team", 1, "stopped")


@WAYS
async def test_a_node_inside_an_agent_and_the_node_around_it_are_tried_again(way: Any) -> None:
    inner, outer = Failing(1), Failing(1)

    def work(state: MessagesState) -> dict[str, Any]:
        by_tool("desk")
        inner()
        by_tool("bed")
        outer()
        by_tool("door")
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work, retry_policy=policy(2))
    graph.add_edge(START, "work")
    seen = await observed(way, one_node(graph.compile()))
    assert [one["place"] for (one,) in seen.arguments["team"]] == ["desk", "bed", "door"]


@WAYS
@pytest.mark.parametrize("name", ["seeker", None])
async def test_an_agent_in_a_node_that_is_tried_again_with_a_checkpointer(
    way: Any, name: Any
) -> None:
    graph = one_node(searcher(searching(Failing()), name), checkpointer=InMemorySaver())
    seen = await observed(way, graph, {"configurable": {"thread_id": "one"}})
    assert seen.runs[0] == (name or "team", 4, "unknown")
    assert seen.onsets == 0


@pytest.mark.parametrize("way", [via_ainvoke, via_astream])
@pytest.mark.parametrize("name", ["seeker", None])
async def test_a_node_that_is_tried_again_after_a_timeout(
    way: Any, name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second attempt may begin before LangChain reports the end of the first one."""
    waits, sleep = asyncio.Event(), asyncio.sleep
    attempts = 0

    async def sleep_until_it_waits(seconds: float, result: Any = None) -> Any:
        """The time is up when the first attempt waits, however slow the machine is."""
        nonlocal attempts
        if seconds != TIMEOUT:
            return await sleep(seconds, result)
        attempts += 1
        return await (waits.wait() if attempts == 1 else sleep(60.0))

    monkeypatch.setattr(asyncio, "sleep", sleep_until_it_waits)

    @tool
    async def wait(place: str) -> str:
        """Wait at a place."""
        if not waits.is_set():
            waits.set()
            await sleep(60.0)
        return f"{place} is open"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        called = "wait" if turn == 1 else "look"
        return answers("none") if turn > 2 else chooses((called, {"place": f"place {turn}"}))

    agent = create_agent(ScriptedChatModel(script=script), [look, wait], name=name)
    graph = StateGraph(MessagesState)
    retry = RetryPolicy(initial_interval=0.0, jitter=False)
    graph.add_node("search", agent, retry_policy=retry, timeout=TIMEOUT)
    graph.add_edge(START, "search")
    seen = await observed(way, graph.compile(name="team"))
    assert attempts == 2
    assert seen.runs[-1] == ("team", 1 if name else 3, "unknown")
    assert (name or "team", 3, "unknown") in seen.runs
    assert seen.onsets == 0


@WAYS
@pytest.mark.parametrize("named", [True, False])
async def test_parallel_nodes_of_which_one_is_tried_again(way: Any, named: bool) -> None:
    graph = StateGraph(MessagesState)
    for name, failures in (("anna", 2), ("bert", 0)):
        agent = searcher(searching(Failing(failures), 2, 3), name if named else None)
        graph.add_node(name, agent, retry_policy=policy())
        graph.add_edge(START, name)
    seen = await observed(way, graph.compile(name="team"))
    assert sorted(seen.runs) == [
        ("anna", 3, "unknown"),
        ("bert", 3, "unknown"),
        ("team", 1, "unknown"),
    ]
    assert len(set(seen.arguments["team"][0])) == 1, "both did the same in the end"


@WAYS
async def test_a_branch_that_fails_to_the_end(way: Any) -> None:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) == 1 and messages[0].content == "room 1":
            raise OSError("no connection")
        return searching(Failing(0), 0, 2)(messages)

    graph = StateGraph(MessagesState)
    graph.add_node("search", searcher(script), retry_policy=policy())
    sends = [Send("search", {"messages": [("user", f"room {n}")]}) for n in range(3)]
    graph.add_conditional_edges(START, lambda state: sends, ["search"])
    seen = await observed(way, graph.compile(name="team"))
    assert sorted(seen.runs) == [
        ("search", 1, "error"),
        ("search", 2, "unknown"),
        ("search", 2, "unknown"),
        ("team", 1, "error"),
    ]
