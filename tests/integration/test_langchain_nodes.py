"""Workflows without tool calls: nodes as steps, and steps that code in a node reports itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

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
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


class Essay(TypedDict, total=False):
    draft: str
    critique: str


def steps(log: StepLog, run: str) -> list[tuple[Any, ...]]:
    """Name and arguments of each step's calls, then their results."""
    return [
        (
            *((call.action, call.arguments) for call in calls),
            *(result.outcome for result in results or ()),
        )
        for calls, _, results in log.steps(run)
    ]


def writer_and_critic(
    write: Callable[[Essay], Essay], review: Callable[[Essay], Essay], rounds: int = 99
) -> Any:
    """They take turns, at most so many."""
    done = iter(range(rounds))
    graph = StateGraph(Essay)
    graph.add_node("write", RunnableLambda(write))
    graph.add_node("review", RunnableLambda(review))
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges(
        "review", lambda state: "write" if next(done, rounds) + 1 < rounds else END, ["write", END]
    )
    return graph.compile(name="essay")


@pytest.mark.parametrize("way", WAYS)
async def test_a_writer_and_a_critic_that_go_round_in_circles_are_stopped(way: Any) -> None:
    graph = writer_and_critic(
        lambda state: {"draft": "Cats sleep."}, lambda state: {"critique": "too short"}
    )
    handler = TidegaugeCallbackHandler(steps="nodes")
    with testing.capture(stop_on_loop=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await way(graph, {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    # The state before the first draft comes only once: the cycle is review and write, its second
    # repetition ends with step 6.
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 6)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("essay", 7, "stopped")]
    assert steps(log, reports[0].run)[:2] == [
        (("write", None), {"draft": "Cats sleep."}),
        (("review", None), {"critique": "too short"}),
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_drafts_that_improve_are_no_loop(way: Any) -> None:
    graph = writer_and_critic(
        lambda state: {"draft": state.get("draft", "") + " Cats sleep."},
        lambda state: {"critique": "too short"},
        rounds=6,
    )
    handler = TidegaugeCallbackHandler(steps="nodes")
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        reports = Reports(seen)
        await way(graph, {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, list(r.loops)) for r in reports] == [("essay", 12, [])]


def a_chat(say: Callable[[int], str], rounds: int) -> Any:
    """A writer and a critic that are models and talk by messages."""

    def speaker(name: str) -> Any:
        def script(messages: Sequence[BaseMessage]) -> AIMessage:
            return answers(f"{name}: {say(turns(messages))}")

        model = ScriptedChatModel(script=script)
        return lambda state: {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    for name in ("write", "review"):
        graph.add_node(name, speaker(name))
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges(
        "review",
        lambda state: "write" if turns(state["messages"]) < 2 * rounds else END,
        ["write", END],
    )
    return graph.compile(name="chat")


@pytest.mark.parametrize("way", WAYS)
async def test_messages_count_by_what_they_say_and_tokens_for_the_node_that_spent_them(
    way: Any,
) -> None:
    loops = []
    for say in (lambda turn: "again", lambda turn: f"part {turn}"):
        handler = TidegaugeCallbackHandler(steps="nodes")
        with testing.capture() as seen:
            log, reports = StepLog(seen), Reports(seen)
            task = {"messages": [("user", "write")]}
            await way(a_chat(say, 3), task, {"callbacks": [handler]})
            assert nothing_is_left(handler, seen)
        assert [(r.steps, r.tokens) for r in reports] == [(6, 72)]
        loops.append([tuple(loop) for loop in reports[0].loops])
    assert steps(log, reports[0].run)[0] == (("write", None), {"messages": ["write: part 0"]})
    assert loops == [[(3, 2, 1, 3)], []], "steps 3 to 5 repeat steps 1 to 3"


class Graded(TypedDict, total=False):
    grades: Annotated[list[str], operator.add]


@pytest.mark.parametrize("way", WAYS)
async def test_the_nodes_of_a_superstep_are_one_step(way: Any) -> None:
    graph = StateGraph(Graded)
    graph.add_node("split", lambda state: {})
    graph.add_node("grade", lambda state: {"grades": ["ok"]})
    graph.add_node("report", lambda state: {})
    graph.add_edge(START, "split")
    graph.add_conditional_edges(
        "split", lambda state: [Send("grade", {"n": n}) for n in range(8)], ["grade"]
    )
    graph.add_edge("grade", "report")
    handler = TidegaugeCallbackHandler(steps="nodes")
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(graph.compile(name="grading"), {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [len(calls) for calls, _, _ in log.steps(reports[0].run)] == [1, 8, 1]


def test_a_node_that_is_tried_again_and_one_that_fails() -> None:
    tries = iter([ValueError("busy"), None, ValueError("broken")])

    def fetch(state: Essay) -> Essay:
        error = next(tries)
        if error is not None:
            raise error
        return {"draft": "here"}

    def fetch_once(state: Essay) -> Essay:
        return fetch(state)

    graph = StateGraph(Essay)
    policy = RetryPolicy(initial_interval=0.01, jitter=False, retry_on=ValueError)
    graph.add_node("fetch", fetch, retry_policy=policy)
    graph.add_node("fetch_once", fetch_once)
    graph.add_edge(START, "fetch")
    graph.add_edge("fetch", "fetch_once")
    handler = TidegaugeCallbackHandler(steps="nodes")
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        with pytest.raises(ValueError, match="broken"):
            graph.compile().invoke({}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert steps(log, reports[0].run) == [
        (("fetch", None), {"draft": "here"}),
        (("fetch_once", None), "ValueError: broken"),
    ]


def test_a_node_that_waits_for_a_person_is_one_step() -> None:
    graph = StateGraph(Essay)
    graph.add_node("write", lambda state: {"draft": "Cats."})
    graph.add_node("approve", lambda state: {"critique": interrupt("fine?")})
    graph.add_edge(START, "write")
    graph.add_edge("write", "approve")
    compiled = graph.compile(checkpointer=InMemorySaver())
    handler = TidegaugeCallbackHandler(steps="nodes")
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        compiled.invoke({}, config)
        compiled.invoke(Command(resume="yes"), config)
        assert nothing_is_left(handler, seen)
    assert steps(log, reports[0].run) == [
        (("write", None), {"draft": "Cats."}),
        (("approve", None), {"critique": "yes"}),
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_tasks_of_the_functional_api_are_steps_with_their_arguments(way: Any) -> None:
    @task
    def write(topic: str, hint: str = "") -> str:
        return f"{topic}{hint}."

    @task
    def review(draft: str) -> str:
        return "too short"

    @entrypoint()
    def essay(topic: str) -> str:
        draft = ""
        for _ in range(3):
            draft = write(topic, hint="").result()
            review(draft).result()
        return draft

    handler = TidegaugeCallbackHandler(steps="nodes", agent="essay")
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        if way in (via_ainvoke, via_astream):
            assert [c async for c in essay.astream("Cats", {"callbacks": [handler]})]
        else:
            essay.invoke("Cats", {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert steps(log, reports[0].run)[:2] == [
        (("write", {"topic": "Cats", "hint": ""}), "Cats."),
        (("review", {"draft": "Cats."}), "too short"),
    ]
    assert [(r.steps, [tuple(loop) for loop in r.loops]) for r in reports] == [(6, [(3, 2, 1, 3)])]


def test_what_is_called_in_a_node_that_is_a_step_is_part_of_it() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        return "nothing"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        sought = isinstance(messages[-1], ToolMessage)
        return answers("none") if sought else chooses(("look", {"place": "desk"}))

    unnamed = create_agent(ScriptedChatModel(script=script), [look])
    named = create_agent(ScriptedChatModel(script=script), [look], name="seeker")

    def search(state: Essay) -> Essay:
        for agent in (unnamed, named):
            agent.invoke({"messages": [("user", "search")]})
        return {"draft": "none"}

    graph = StateGraph(Essay)
    graph.add_node("search", search)
    graph.add_edge(START, "search")
    handler = TidegaugeCallbackHandler(steps="nodes")
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        graph.compile(name="team").invoke({}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.tokens) for r in reports] == [("seeker", 1, 12), ("team", 1, 24)]
    assert steps(log, reports[1].run) == [(("search", None), {"draft": "none"})]


def test_steps_are_calls_or_nodes() -> None:
    with pytest.raises(ConfigurationError, match="use 'calls' or 'nodes'"):
        TidegaugeCallbackHandler(steps="tools")  # type: ignore[arg-type]


@tidegauge.tool
def fetch(page: int) -> str:
    return f"page {page}"


@tidegauge.tool
async def fetch_later(page: int) -> str:
    return f"page {page}"


def one_node(node: Any, later: Any = None, state: Any = Essay) -> Any:
    graph = StateGraph(state)
    graph.add_node("work", RunnableLambda(node, later))
    graph.add_edge(START, "work")
    return graph.compile(name="worker")


@pytest.mark.parametrize("way", WAYS)
async def test_a_decorated_tool_in_a_node_is_a_step(way: Any) -> None:
    def work(state: Essay) -> Essay:
        return {"draft": fetch(1) + fetch(2)}

    async def work_later(state: Essay) -> Essay:
        return {"draft": await fetch_later(1) + await fetch_later(2)}

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(one_node(work, work_later), {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    names = {call.action for calls, _, _ in log.steps(reports[0].run) for call in calls}
    assert names <= {"fetch", "fetch_later"}
    assert [step[1:] for step in steps(log, reports[0].run)] == [("page 1",), ("page 2",)]
    assert seen.tree() == ["invoke_agent worker", *[f"  execute_tool {name}" for name in names] * 2]


@pytest.mark.parametrize("way", WAYS)
async def test_a_node_reports_steps_to_the_current_run(way: Any) -> None:
    def work(state: Essay) -> Essay:
        run = tidegauge.get_current_run()
        for number in range(3):
            run.act("fetch", {"page": number}, tokens=5)
            run.observe("empty", progress=number / 2)
        run.finish(success=True, reason="all pages")
        return {"draft": "done"}

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        await way(one_node(work), {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.tokens, r.outcome) for r in reports] == [
        ("worker", 3, 15, "success")
    ]
    outcomes = log._outcomes[reports[0].run]
    assert [outcome.progress for outcome in outcomes.values()] == [0, 0.5, 1]
    assert tidegauge.get_current_run().id == "", "outside of the graph there is none"


@pytest.mark.parametrize("way", WAYS)
async def test_a_loop_of_steps_by_hand_is_stopped(way: Any) -> None:
    def work(state: Essay) -> Essay:
        while True:
            fetch(1)

    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await way(one_node(work), {}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 3)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("worker", 4, "stopped")]


def searcher(run_calls: Callable[[list[Any]], list[str]]) -> Any:
    """A graph whose own node runs the calls that the model chooses."""

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            return answers("done")
        return chooses(("fetch", {"page": 1}), ("fetch", {"page": 2}))

    model = ScriptedChatModel(script=script)

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState) -> dict[str, Any]:
        message = state["messages"][-1]
        assert isinstance(message, AIMessage)
        results = run_calls(message.tool_calls)
        pairs = zip(message.tool_calls, results, strict=True)
        return {"messages": [ToolMessage(text, tool_call_id=call["id"]) for call, text in pairs]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_edge(START, "think")
    graph.add_conditional_edges(
        "think", lambda state: "act" if state["messages"][-1].tool_calls else END, ["act", END]
    )
    graph.add_edge("act", "think")
    return graph.compile(name="searcher")


def decorated(calls: list[Any]) -> list[str]:
    return [fetch(**call["args"]) for call in calls]


def by_hand(calls: list[Any]) -> list[str]:
    run = tidegauge.get_current_run()
    results = [f"page {call['args']['page']}" for call in calls]
    run.act_round([(call["name"], call["args"]) for call in calls])
    run.observe_round([(result, False) for result in results])
    return results


def one_by_one(calls: list[Any]) -> list[str]:
    run = tidegauge.get_current_run()
    results = []
    for call in reversed(calls):
        run.act(call["name"], call["args"], call_id=call["id"])
        results.append(f"page {call['args']['page']}")
        run.observe(results[-1])
    return results[::-1]


@pytest.mark.parametrize("run_calls", [decorated, by_hand, one_by_one])
def test_a_call_that_the_model_chose_is_not_another_step(run_calls: Any) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        searcher(run_calls).invoke({"messages": [("user", "go")]}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.steps, r.tokens) for r in reports] == [(1, 12)]
    assert steps(log, reports[0].run) == [
        (("fetch", {"page": 1}), ("fetch", {"page": 2}), "page 1", "page 2")
    ]
    assert seen.tree().count("  execute_tool fetch") == 2


def test_a_decorated_function_in_a_langchain_tool_is_that_tools_call() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        return fetch(7)

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("none") if turns(messages) else chooses(("look", {"place": "desk"}))

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(ScriptedChatModel(script=script), [look], name="seeker")
        agent.invoke({"messages": [("user", "find")]}, {"callbacks": [handler]})
    assert steps(log, reports[0].run) == [(("look", {"place": "desk"}), "page 7")]


def test_an_agent_in_a_decorated_tool_belongs_to_its_call() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        return "nothing"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("none") if turns(messages) else chooses(("look", {"place": "desk"}))

    model = ScriptedChatModel(script=script)
    unnamed, named = create_agent(model, [look]), create_agent(model, [look], name="seeker")

    @tidegauge.tool
    def search() -> str:
        for agent in (unnamed, named):
            agent.invoke({"messages": [("user", "find")]})
        return "none"

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        graph = one_node(lambda state: {"draft": search()})
        graph.invoke({}, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.tokens) for r in reports] == [
        ("search", 1, 12),
        ("seeker", 1, 12),
        ("worker", 1, None),
    ]
    assert steps(log, reports[2].run) == [(("search", {}), "none")]


def test_the_innermost_run_is_the_current_one() -> None:
    seen_ids: list[str] = []

    def work(state: Essay) -> Essay:
        seen_ids.append(tidegauge.get_current_run().id)
        with tidegauge.run(agent="inner", run_id="inner"):
            seen_ids.append(tidegauge.get_current_run().id)
            fetch(1)
        seen_ids.append(tidegauge.get_current_run().id)
        return {}

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen, tidegauge.run(agent="outer", run_id="outer"):
        reports = Reports(seen)
        one_node(work).invoke({}, {"callbacks": [handler]})
        seen_ids.append(tidegauge.get_current_run().id)
    assert [(r.agent, r.steps) for r in reports] == [("inner", 1), ("worker", 0), ("outer", 0)]
    assert seen_ids == [reports[1].run, "inner", reports[1].run, "outer"]
