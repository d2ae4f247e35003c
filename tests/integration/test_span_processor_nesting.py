"""Agents inside tools, graphs written by hand and retried tools, as others show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from support.langchain_agents import graph_agent
from support.other_spans import Listener, instrumented
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

WAYS = [
    ("openinference",),
    ("openllmetry",),
    ("otel-genai",),
    ("openinference", "openllmetry"),
    ("openinference", "otel-genai"),
    ("otel-genai", "openllmetry"),
]
QUESTION = {"messages": [("user", "find the key")]}


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def both(
    run: Callable[[dict[str, Any]], object], names: tuple[str, ...], monkeypatch: Any
) -> tuple[Any, Any]:
    """What our own handler reports of a run, and what the spans of others give."""
    with testing.capture() as seen:
        ours = Listener(seen)
        run({"callbacks": [TidegaugeCallbackHandler(task_group="house")]})
    with testing.capture() as seen, instrumented(monkeypatch, *names, task_group="house") as watch:
        theirs = Listener(seen)
        run({})
        assert len(watch._grouping) == 0
        assert not seen.pipeline.engine.snapshot().active
    return ours.story(), theirs.story()


@pytest.mark.parametrize("names", WAYS, ids="+".join)
def test_an_agent_inside_a_tool_is_a_run_of_its_own(names, monkeypatch):
    def searching(messages):
        if turns(messages) < 3:
            return chooses(("look", {"place": "attic"}))
        return answers("nothing there")

    searcher = create_agent(ScriptedChatModel(script=searching), [look], name="searcher")

    @tool
    def search(what: str) -> str:
        """Have it searched for."""
        found = searcher.invoke({"messages": [("user", what)]})
        return str(found["messages"][-1].content)

    def leading(messages):
        if turns(messages) < 2:
            return chooses(("search", {"what": f"key {turns(messages)}"}))
        return answers("no key")

    leader = create_agent(ScriptedChatModel(script=leading), [search], name="leader")
    ours, theirs = both(lambda config: leader.invoke(QUESTION, config=config), names, monkeypatch)
    assert [(run[0][0], run[1][1], len(run[2])) for run in ours] == [
        ("leader", None, 2),
        ("searcher", "run 0", 3),
        ("searcher", "run 0", 3),
    ]
    assert theirs == ours


@pytest.mark.parametrize("names", WAYS, ids="+".join)
def test_a_model_inside_a_tool_is_part_of_the_tool(names, monkeypatch):
    inner = ScriptedChatModel(script=lambda messages: chooses(("look", {"place": "here"})))

    @tool
    def think(about: str) -> str:
        """Ask the model, within a tool."""
        look.invoke({"place": about})
        return f"thought about {inner.invoke(about).tool_calls[0]['name']}"

    def script(messages):
        return chooses(("think", {"about": "it"})) if turns(messages) < 2 else answers("done")

    agent = create_agent(ScriptedChatModel(script=script), [think], name="thinker")
    ours, theirs = both(lambda config: agent.invoke(QUESTION, config=config), names, monkeypatch)
    assert [(run[0][0], len(run[2]), run[4]["tokens"]) for run in ours] == [("thinker", 2, 48)]
    assert theirs == ours


@pytest.mark.parametrize("names", WAYS, ids="+".join)
def test_a_graph_written_by_hand_whose_tools_fail(names, monkeypatch):
    @tool
    def fail(at: str) -> str:
        """Fail."""
        raise ValueError(f"no {at}")

    def script(messages):
        turn = turns(messages)
        if turn < 4:
            return chooses(("fail", {"at": "a"}), ("fail", {"at": "b"}))
        return chooses(("look", {"place": "x"})) if turn < 6 else answers("done")

    agent = graph_agent(ScriptedChatModel(script=script), [look, fail], name="byhand")
    ours, theirs = both(lambda config: agent.invoke(QUESTION, config=config), names, monkeypatch)
    assert [(run[0][0], len(run[2])) for run in ours] == [("byhand", 6)]
    assert ours[0][4]["failed_rounds_max"] == 4
    assert theirs == ours


@pytest.mark.parametrize("names", WAYS, ids="+".join)
def test_a_retried_tool_is_one_call(names, monkeypatch):
    tries = []

    @tool
    def flaky(place: str) -> str:
        """Fail every other time."""
        tries.append(place)
        if len(tries) % 2:
            raise ValueError("not now")
        return f"found {place}"

    def script(messages):
        return chooses(("flaky", {"place": "x"})) if turns(messages) < 3 else answers("done")

    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    agent = create_agent(
        ScriptedChatModel(script=script), [flaky], name="patient", middleware=[retry]
    )
    ours, theirs = both(lambda config: agent.invoke(QUESTION, config=config), names, monkeypatch)
    assert [(run[0][0], len(run[2])) for run in ours] == [("patient", 3)]
    assert ours[0][3][0][1] == (("found x", False),)
    assert theirs == ours


@pytest.mark.parametrize("names", WAYS[:3], ids="+".join)
def test_a_call_without_a_span_is_taken_from_its_answer(names, monkeypatch):
    def script(messages):
        return chooses(("nosuch", {"n": 1})) if turns(messages) < 3 else answers("done")

    agent = create_agent(ScriptedChatModel(script=script), [look], name="lost")
    ours, theirs = both(lambda config: agent.invoke(QUESTION, config=config), names, monkeypatch)
    assert [step[1] for step in theirs[0][2]] == [("nosuch",)] * 3
    if names != ("openllmetry",):  # which does not say what this model was shown
        assert theirs[0][2] == ours[0][2]
        assert theirs[0][4]["loop_steps"] == ours[0][4]["loop_steps"]


@pytest.mark.parametrize("names", WAYS, ids="+".join)
def test_agents_that_are_nodes_of_a_graph_are_steps_of_its_run(names, monkeypatch):
    def member(name: str, place: str, until: int) -> Any:
        def script(messages):
            spoken = turns(messages)
            return chooses(("look", {"place": place})) if spoken < until else answers(f"{name} out")

        return create_agent(ScriptedChatModel(script=script), [look], name=name)

    graph = StateGraph(MessagesState)
    graph.add_node("first", member("first", "hall", 2))
    graph.add_node("other", member("second", "attic", 5))
    graph.add_edge(START, "first")
    graph.add_edge("first", "other")
    team = graph.compile(name="team")
    ours, theirs = both(lambda config: team.invoke(QUESTION, config=config), names, monkeypatch)
    assert [(run[0][0], run[1][1], [step[1] for step in run[2]]) for run in ours] == [
        ("team", None, [("first",), ("second",)]),
        ("first", "run 0", [("look",)] * 2),
        ("second", "run 0", [("look",)] * 2),
    ]
    assert theirs == ours
