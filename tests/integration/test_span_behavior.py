"""What an agent does wrong is seen in its trace: repeated steps, stale scores, cases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

import tidegauge
from support.agents_sdk import chat_completions, traced_by
from support.genai_registry import faults
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.openai_agents import TidegaugeTracingProcessor
from tidegauge.runs.extraction import Observation
from tidegauge.testing import Capture, capture

DOORS = ["red", "blue", "red", "blue", "red", "blue", "green"]


def decorated() -> None:
    @tidegauge.tool
    def push(door: str) -> str:
        return f"{door} does not move"

    with tidegauge.run(agent="porter"):
        for door in DOORS:
            push(door)


def reported() -> None:
    with tidegauge.run(agent="porter") as run:
        for door in DOORS:
            run.act("push", {"door": door})
            run.observe(f"{door} does not move")


def langchain() -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        return f"{door} does not move"

    said = [*[chooses(("push", {"door": door})) for door in DOORS], answers("no way")]
    model = ScriptedChatModel(script=lambda messages: said[turns(messages)])
    agent: Any = create_agent(model, [push], name="porter")
    config = {"callbacks": [TidegaugeCallbackHandler()], "recursion_limit": 100}
    agent.invoke({"messages": [("user", "open a door")]}, config)


def agents_sdk() -> None:
    @function_tool
    def push(door: str) -> str:
        """Push a door."""
        return f"{door} does not move"

    said: list[Any] = [*[[("push", {"door": door})] for door in DOORS], "no way"]
    agent = Agent(name="porter", model=chat_completions(said), tools=[push])
    with traced_by(TidegaugeTracingProcessor()):
        asyncio.run(Runner.run(agent, "open a door", max_turns=20))


ADAPTERS = [decorated, reported, langchain, agents_sdk]


def tools(seen: Capture) -> list[Any]:
    return [span for span in seen.spans if span.name.startswith("execute_tool")]


@pytest.mark.parametrize("work", ADAPTERS)
def test_each_repeated_step_is_linked_to_the_one_that_it_repeats(work: Callable[[], None]) -> None:
    with capture() as seen:
        work()
    spans = tools(seen)
    steps = {span.context.span_id: span.attributes["tidegauge.step.index"] for span in spans}
    linked = [[steps[link.context.span_id] for link in span.links] for span in spans]
    # The state before a step counts, and before the first there is none. So the loop begins with
    # the second step, and its first repetition is complete with the fifth.
    assert linked == [[], [], [], [], [2], [3], []]
    assert [link.attributes for span in spans for link in span.links] == [
        {"tidegauge.step.index": step} for step in (2, 3)
    ]
    assert {link.context.trace_id for span in spans for link in span.links} == {
        spans[0].context.trace_id
    }
    assert faults(seen.spans) == []


class Rooms:
    """Reads the place from the arguments of every call."""

    reach = "adjacent"

    def uses(self, call: Call) -> tuple[str, ...]:
        return ()

    def observe(self, call: Call, result: CallResult) -> Observation:
        arguments: Any = call.arguments
        return Observation(place=arguments["door"], exits=("red", "blue", "green"))


@pytest.mark.parametrize("work", ADAPTERS)
def test_a_step_has_the_stale_score_and_the_case_that_it_led_to(work: Callable[[], None]) -> None:
    with capture(extractors=[Rooms()]) as seen:
        work()
    spans = tools(seen)
    found = [
        (span.attributes.get("tidegauge.stale_score"), span.attributes.get("tidegauge.case"))
        for span in spans
    ]
    scores = [score for score, _ in found]
    assert scores == [None, None, *scores[2:-1], None]  # a score of 0 is left out
    risen = [score or 0 for score in scores[2:-1]]
    assert risen == sorted(risen)
    assert risen[-1] > 2
    assert found[0][1] is None  # no place was known before it
    assert {case for _, case in found[1:]} == {1}
    assert faults(seen.spans) == []


def test_without_places_results_serve_as_places() -> None:
    with capture() as seen:
        decorated()
    spans = tools(seen)
    assert [span.attributes.get("tidegauge.stale_score") for span in spans][:2] == [None, None]
    assert spans[-1].attributes["tidegauge.stale_score"] > 0
    assert not [span for span in spans if "tidegauge.case" in span.attributes]


def test_a_span_ends_when_its_tool_does_and_not_when_it_is_measured() -> None:
    class Slow(Rooms):
        def observe(self, call: Call, result: CallResult) -> Observation:
            time.sleep(0.2)
            return super().observe(call, result)

    with capture(extractors=[Slow()]) as seen:
        reported()
    for span in tools(seen):
        assert span.end_time - span.start_time < 0.15e9


def test_a_run_that_continues_is_not_linked_to_another_run() -> None:
    with capture() as seen:
        reported()
        reported()
    traces = {span.context.trace_id for span in tools(seen)}
    assert len(traces) == 2
    for span in tools(seen):
        assert {link.context.trace_id for link in span.links} <= {span.context.trace_id}


def noting_agent(**settings: Any) -> list[str]:
    """The spans of a graph with a node beside those of the agent."""

    @tool
    def push(door: str) -> str:
        """Push a door."""
        return f"{door} does not move"

    said = [chooses(("push", {"door": "red"})), answers("no way")]
    model = ScriptedChatModel(script=lambda messages: said[turns(messages)])
    inner: Any = create_agent(model, [push])

    def noting(state: Any) -> dict[str, Any]:
        seen.tracer_provider.get_tracer("app").start_span("database").end()
        return {"messages": []}

    graph = StateGraph(MessagesState)
    graph.add_node("note", noting)
    graph.add_node("work", inner)
    graph.add_edge(START, "note")
    graph.add_edge("note", "work")
    with capture(capture_content=True) as seen:
        handler = TidegaugeCallbackHandler(agent="porter", **settings)
        graph.compile().invoke({"messages": [("user", "open")]}, {"callbacks": [handler]})
    assert faults([span for span in seen.spans if span.name != "database"], contents=True) == []
    chats = [span for span in seen.spans if span.name.startswith("chat")]
    assert [span.attributes["tidegauge.messages.position"] for span in chats] == [0, 2]
    return seen.tree()


def test_the_nodes_of_a_graph_have_spans_if_asked_for() -> None:
    assert noting_agent(node_spans=True) == [
        "invoke_agent porter",
        "  node note",
        "    database",
        "  node work",
        "    node model",
        "      chat scripted-1",
        "    node tools",
        "      execute_tool push",
        "    node model",
        "      chat scripted-1",
    ]
    assert noting_agent() == [
        "invoke_agent porter",
        "  database",
        "  chat scripted-1",
        "  execute_tool push",
        "  chat scripted-1",
    ]


def test_a_node_that_fails_has_the_error() -> None:
    def fail(state: Any) -> Any:
        raise ValueError("no door")

    graph = StateGraph(MessagesState)
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")
    handler = TidegaugeCallbackHandler(agent="porter", node_spans=True)
    work: Any = graph.compile()
    with capture() as seen, pytest.raises(ValueError, match="no door"):
        work.invoke({"messages": []}, {"callbacks": [handler]})
    [node] = [span for span in seen.spans if span.name == "node fail"]
    assert node.attributes == {"tidegauge.node.name": "fail", "error.type": "builtins.ValueError"}
