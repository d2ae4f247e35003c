"""Teams of langgraph-supervisor, langgraph-swarm and deepagents; langchain-openai over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from langgraph_supervisor import create_supervisor
from langgraph_supervisor.handoff import create_forward_message_tool
from langgraph_swarm import create_handoff_tool, create_swarm

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
from support.other_spans import instrumented
from support.scripted_model import answers, chooses, turns
from support.scripted_openai import OpenAIServer, serving
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]
SEEKER = "transfer_to_seeker"
TO_SEEKER = "Successfully transferred to seeker"

Run = tuple[str, int, float | None, str, list[tuple[int, int, int, int]]]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving() as running:
        yield running


@tool
def look(place: str) -> str:
    """Look into a place."""
    return "the key" if place == "shelf 3" else f"{place} is empty"


def summary(reports: Reports) -> list[Run]:
    """Agent, steps, tokens, outcome and loops of each run."""
    return [
        (r.agent, r.steps, r.tokens, r.outcome, [tuple(loop) for loop in r.loops]) for r in reports
    ]


def steps(log: StepLog, run: str) -> list[tuple[Any, ...]]:
    """Names and arguments of each step's calls, and their results."""
    return [
        (
            *((call.action, call.arguments) for call in calls),
            *(result.outcome for result in results),
        )
        for calls, _, results in log.steps(run)
    ]


def looks_once(place: Callable[[Sequence[BaseMessage]], str]) -> Any:
    """A script: look into a place, and say what was there."""

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage) and "transferred" not in str(last.content):
            return answers(f"I found this: {last.content}")
        return chooses(("look", {"place": place(messages)}))

    return script


def shelves(messages: Sequence[BaseMessage]) -> str:
    """Another shelf at every visit."""
    said = [str(message.content) for message in messages if isinstance(message, AIMessage)]
    return f"shelf {sum('I found this' in text for text in said) + 1}"


def a_team(server: OpenAIServer, boss: Any, place: Any = lambda _: "desk", **options: Any) -> Any:
    """A supervisor with one agent, which looks into one place at every visit."""
    model = server.model("worker", looks_once(place))
    seeker = create_agent(model, [look], name="seeker")
    graph = create_supervisor([seeker], model=server.model("boss", boss), **options)
    return graph.compile(name="team")


def always_delegates(messages: Sequence[BaseMessage]) -> AIMessage:
    return chooses((SEEKER, {}))


def delegates_until_found(messages: Sequence[BaseMessage]) -> AIMessage:
    found = any("the key" in str(message.content) for message in messages[1:])
    return answers("here it is") if found else chooses((SEEKER, {}))


SUPERVISORS = [
    pytest.param({}, TO_SEEKER, id="last message"),
    pytest.param(
        {"output_mode": "full_history"}, TO_SEEKER, id="full history", marks=pytest.mark.slow
    ),
    pytest.param(
        {"add_handoff_messages": False}, "seeker", id="no messages", marks=pytest.mark.slow
    ),
    pytest.param(
        {"add_handoff_messages": False, "output_mode": "full_history"},
        "seeker",
        id="no messages, full history",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("options", "handed_over"), SUPERVISORS)
async def test_a_supervisor_that_delegates_for_ever_loops(
    way: Any, options: dict[str, Any], handed_over: str, server: OpenAIServer
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        team = a_team(server, always_delegates, **options)
        with pytest.raises(GraphRecursionError):
            await way(team, TASK, {"callbacks": [handler], "recursion_limit": 12})
        assert nothing_is_left(handler, seen)
    visit = ("seeker", 1, 12, "unknown", [])
    # Six rounds of two steps. The first one repeats nothing, and of the second one the first step
    # closes the cycle. Without messages, the agent is first shown the task, then its answer: so one
    # round more differs.
    loop = (3, 2, 4, 9) if handed_over == TO_SEEKER else (4, 2, 4, 8)
    assert summary(reports) == [*[visit] * 6, ("team", 12, 72, "error", [loop])]
    assert steps(log, reports[-1].run)[2::2] == [((SEEKER, {}), handed_over)] * 5
    assert {step[-1] for step in steps(log, reports[-1].run)[1::2]} == {
        "I found this: desk is empty"
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("options", "handed_over"), SUPERVISORS)
async def test_a_supervisor_whose_agent_finds_something_new_does_not_loop(
    way: Any, options: dict[str, Any], handed_over: str, server: OpenAIServer
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        team = a_team(server, delegates_until_found, shelves, **options)
        state = await way(team, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert state["messages"][-1].content == "here it is"
    visit = ("seeker", 1, 12, "unknown", [])
    assert summary(reports) == [*[visit] * 3, ("team", 6, 36, "unknown", [])]
    assert [step[-1] for step in steps(log, reports[-1].run)] == [
        handed_over,
        "I found this: shelf 1 is empty",
        handed_over,
        "I found this: shelf 2 is empty",
        handed_over,
        "I found this: the key",
    ]


async def test_a_supervisor_that_loops_is_stopped(server: OpenAIServer) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await via_ainvoke(a_team(server, always_delegates), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 6)
    assert summary(reports)[-1] == ("team", 7, 48, "stopped", [(3, 2, 2, 4)])


async def test_a_supervisor_that_streams(server: OpenAIServer) -> None:
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "recursion_limit": 12}
    with testing.capture() as seen:
        reports = Reports(seen)
        with pytest.raises(GraphRecursionError):
            list(a_team(server, always_delegates).stream(TASK, config, stream_mode="messages"))
        with pytest.raises(GraphRecursionError):
            async for _ in a_team(server, always_delegates).astream_events(TASK, config):
                pass
        assert nothing_is_left(handler, seen)
    assert {request["stream"] for request in server.requests} == {True}
    team: Run = ("team", 12, 72, "error", [(3, 2, 4, 9)])
    assert [run for run in summary(reports) if run[0] == "team"] == [team, team]


def test_hand_offs_chosen_together_are_one_step(server: OpenAIServer) -> None:
    def both(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            return answers("done")
        return chooses((SEEKER, {}), ("transfer_to_finder", {}))

    agents: list[Any] = [
        create_agent(server.model("worker", looks_once(lambda messages: "desk")), [look], name=name)
        for name in ("seeker", "finder")
    ]
    boss = server.model("boss", both)
    team = create_supervisor(agents, model=boss, parallel_tool_calls=True).compile(name="team")
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        team.invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert reports[-1].agent == "team"
    assert steps(log, reports[-1].run)[0] == (
        (SEEKER, {}),
        ("transfer_to_finder", {}),
        TO_SEEKER,
        "Successfully transferred to finder",
    )


def test_a_forwarded_message(server: OpenAIServer) -> None:
    def boss(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) < 2:
            return chooses((SEEKER, {}))
        return chooses(("forward_message", {"from_agent": "seeker"}))

    forward = create_forward_message_tool("supervisor")
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        state = a_team(server, boss, tools=[forward]).invoke(TASK, {"callbacks": [handler]})
    assert state["messages"][-1].content == "I found this: desk is empty"
    forwarded = (("forward_message", {"from_agent": "seeker"}), "__end__")
    assert steps(log, reports[-1].run)[-1] == forwarded


def a_swarm(server: OpenAIServer, rounds: int) -> Any:
    """Two agents: the model hands over so often, then looks until it finds the key."""

    def member(name: str, other: str) -> Any:
        def script(messages: Sequence[BaseMessage]) -> AIMessage:
            done = turns(messages)
            if done < rounds:
                return chooses((f"transfer_to_{other}", {}))
            if messages[-1].content == "the key":
                return answers("here it is")
            return chooses(("look", {"place": f"shelf {done - rounds + 1}"}))

        tools = [create_handoff_tool(agent_name=other), look]
        return create_agent(server.model(name, script), tools, name=name)

    members = [member("anna", "bert"), member("bert", "anna")]
    return create_swarm(members, default_active_agent="anna").compile(name="swarm")


@pytest.mark.parametrize("way", WAYS)
async def test_a_swarm_that_hands_over_for_ever_loops(way: Any, server: OpenAIServer) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        with pytest.raises(GraphRecursionError):
            await way(a_swarm(server, 99), TASK, {"callbacks": [handler], "recursion_limit": 9})
        assert nothing_is_left(handler, seen)
    names = ["anna", "bert"] * 4 + ["anna"]
    visits = [(name, 1, 12, "unknown", []) for name in names]
    # The first step begins with the task, the second one with a hand-off: then all is repeated.
    assert summary(reports) == [*visits, ("swarm", 9, None, "error", [(3, 2, 3, 6)])]
    assert steps(log, reports[-1].run)[1:3] == [
        (("bert", "Successfully transferred to bert"), "Successfully transferred to anna"),
        (("anna", "Successfully transferred to anna"), "Successfully transferred to bert"),
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_a_swarm_that_gets_there_does_not_loop(way: Any, server: OpenAIServer) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        reports = Reports(seen)
        state = await way(a_swarm(server, 2), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert state["messages"][-1].content == "here it is"
    assert summary(reports) == [
        ("anna", 1, 12, "unknown", []),
        ("bert", 1, 12, "unknown", []),
        ("anna", 3, 36, "unknown", []),
        ("swarm", 3, None, "unknown", []),
    ]


PLAN: list[tuple[str, dict[str, Any]]] = [
    ("write_todos", {"todos": [{"content": "look", "status": "in_progress"}]}),
    ("task", {"description": "look into the desk", "subagent_type": "seeker"}),
    ("write_file", {"file_path": "/notes.md", "content": "not in the desk"}),
    ("edit_file", {"file_path": "/notes.md", "old_string": "desk", "new_string": "box"}),
    ("read_file", {"file_path": "/notes.md"}),
    ("task", {"description": "look into shelf 3", "subagent_type": "seeker"}),
    ("write_todos", {"todos": [{"content": "look", "status": "completed"}]}),
]


def a_deep_agent(server: OpenAIServer, plan: Callable[[int], tuple[str, Any] | None]) -> Any:
    """It follows a plan; its sub-agent looks where it is sent."""

    def boss(messages: Sequence[BaseMessage]) -> AIMessage:
        chosen = plan(turns(messages))
        return answers("done") if chosen is None else chooses(chosen)

    def sent_to(messages: Sequence[BaseMessage]) -> str:
        asked = next(message for message in messages if isinstance(message, HumanMessage))
        return str(asked.content).removeprefix("look into ").removeprefix("the ")

    seeker: Any = {
        "name": "seeker",
        "description": "looks into places",
        "system_prompt": "Look.",
        "tools": [look],
        "model": server.model("worker", looks_once(sent_to)),
    }
    return create_deep_agent(
        server.model("boss", boss),
        subagents=[seeker],
        middleware=[TodoListMiddleware()],
        name="deep",
    )


@pytest.mark.parametrize("way", WAYS)
async def test_a_deep_agent_with_todos_files_and_a_sub_agent(
    way: Any, server: OpenAIServer
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = a_deep_agent(server, lambda turn: PLAN[turn] if turn < len(PLAN) else None)
        await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    visit = ("seeker", 1, 12, "unknown", [])
    # Seven turns of 12 tokens; two visits of 24 tokens count for the sub-agent's run alone.
    assert summary(reports) == [visit, visit, ("deep", 7, 84, "unknown", [])]
    agents = [line for line in seen.tree() if "invoke_agent" in line]
    assert agents == ["invoke_agent deep", *["    invoke_agent seeker"] * 2], (
        "in a tool's span each"
    )
    assert [step[0] for step in steps(log, reports[2].run)] == PLAN
    assert [step[1] for step in steps(log, reports[2].run)][1::4] == [
        "I found this: desk is empty",
        "I found this: the key",
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_a_deep_agent_that_delegates_for_ever_loops(way: Any, server: OpenAIServer) -> None:
    handler = TidegaugeCallbackHandler()
    cycle = PLAN[:2]
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent = a_deep_agent(server, lambda turn: cycle[turn % 2])
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 6)
    visit = ("seeker", 1, 12, "unknown", [])
    assert summary(reports) == [*[visit] * 3, ("deep", 7, 84, "stopped", [(3, 2, 2, 4)])]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openinference", "openllmetry"])
@pytest.mark.parametrize(("options", "handed_over"), SUPERVISORS)
def test_a_supervisor_in_others_spans(
    name: str,
    options: dict[str, Any],
    handed_over: str,
    server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with testing.capture() as seen, instrumented(monkeypatch, name):
        log, reports = StepLog(seen), Reports(seen)
        with pytest.raises(GraphRecursionError):
            a_team(server, always_delegates, **options).invoke(TASK, {"recursion_limit": 12})
        a_team(server, delegates_until_found, shelves, **options).invoke(TASK)
    visit = ("seeker", 1, 12, "unknown", [])
    loop = (3, 2, 4, 9) if handed_over == TO_SEEKER else (4, 2, 4, 8)
    assert summary(reports) == [
        *[visit] * 6,
        ("team", 12, 72, "error", [loop]),
        *[visit] * 3,
        ("team", 6, 36, "unknown", []),
    ]
    assert [step[-1] for step in steps(log, reports[-1].run)] == [
        handed_over,
        "I found this: shelf 1 is empty",
        handed_over,
        "I found this: shelf 2 is empty",
        handed_over,
        "I found this: the key",
    ]
