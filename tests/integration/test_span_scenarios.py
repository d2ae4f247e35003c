"""Agents that follow a script: what is read equals what it says, in any order of arrival."""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.framework_spans import BATCHINGS, ReadRun, batches, read
from support.hand_off_spans import GOOGLE, OPENAI, Spans
from support.other_spans import Listener
from support.scripted_spans import (
    ALL_SHAPES,
    SHAPES,
    Agent,
    Call,
    Scripted,
    Tracer,
    random_agent,
    truth,
)
from tidegauge import testing
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly

SLOW = pytest.mark.slow

SEARCH = Call("search")
FAILING = Call("search", error=True)


def looping(name: str, steps: int) -> Agent:
    return Agent(name, [[SEARCH]] * steps)


def delegated(name: str, steps: int = 3) -> Call:
    return Call(f"ask_{name}", agent=looping(name, steps))


SCENARIOS = {
    "one call a turn": looping("a", 8),
    "parallel calls": Agent("a", [[Call("search", q, f"at {q}") for q in "xyz"]] * 8),
    "parallel equal calls": Agent("a", [[SEARCH, SEARCH]] * 4),
    "a failing tool": Agent("a", [[FAILING]] * 8),
    "one of two tools fails": Agent("a", [[SEARCH, Call("other", error=True)]] * 8),
    "a retried tool": Agent("a", [[FAILING], [SEARCH], [Call("other")]]),
    "an agent called twice": Agent("a", [[delegated("b")], [delegated("b")]]),
    "two agents in parallel": Agent("a", [[delegated("b"), delegated("c", 5)]]),
    "one agent twice in parallel": Agent("a", [[delegated("b"), delegated("b")]]),
    "an agent and a tool in parallel": Agent("a", [[SEARCH, delegated("b")]] * 2),
    "an agent in a tool that fails": Agent("a", [[delegated("b")._replace(error=True)], [SEARCH]]),
    "an agent that only answers": Agent("a", []),
    "an agent in a tool only answers": Agent("a", [[Call("ask_b", agent=Agent("b", []))]]),
}


def as_scripted(found: list[ReadRun]) -> list[Scripted]:
    """The runs as the script has them, in order of their names."""
    runs = [
        Scripted(
            run.agent or "", None if run.parent is None else found[run.parent].agent, run.steps
        )
        for run in found
    ]
    return sorted(runs, key=str)


def _agent(found: list[ReadRun], number: int | None) -> str | None:
    return None if number is None else found[number].agent


@pytest.mark.parametrize("shape", ALL_SHAPES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_read_is_what_the_model_asked_for(scenario: str, shape: str) -> None:
    if shape not in SHAPES and "only answers" in scenario:
        return
    tracer = Tracer(shape)
    tracer.run(SCENARIOS[scenario])
    found = read(batches(tracer.spans, "one"))
    assert as_scripted(found) == sorted(truth(SCENARIOS[scenario]), key=str)
    for how in BATCHINGS:
        assert read(batches(tracer.spans, how)) == found, how
    for seed in range(4):
        assert read(tracer.shuffled(seed)) == found, seed
        once = tracer.shuffled(seed, 0.3)
        again = [(when + 0.1, spans) for when, spans in once]
        assert read(sorted([*once, *again], key=lambda each: each[0])) == found, seed


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_an_agent_two_tools_deep_is_inside_the_agent_that_called_it(shape: str) -> None:
    boss = Agent("a", [[Call("ask_b", agent=Agent("b", [[SEARCH], [delegated("c")]]))]])
    tracer = Tracer(shape)
    tracer.run(boss)
    assert as_scripted(read(batches(tracer.spans, "one"))) == sorted(truth(boss), key=str)


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_agents_at_the_same_time_in_one_trace_are_separate_runs(shape: str) -> None:
    tracer = Tracer(shape)
    tracer.run(looping("a", 2), parent=1)
    tracer.run(looping("b", 3), parent=1, now=1_005)
    tracer.add(1, None, "GET /", {}, 999, 1_200)
    found = as_scripted(read(batches(tracer.spans, "one")))
    assert found == [Scripted("a", None, 2), Scripted("b", None, 3)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 12))])
@pytest.mark.parametrize("shape", SHAPES)
def test_agents_in_tools_of_agents(shape: str, seed: int) -> None:
    chance = random.Random(seed)
    tracer, agent = Tracer(shape, chance=chance), random_agent(chance, "a", 3)
    tracer.run(agent)
    found = read(batches(tracer.spans, "one"))
    assert as_scripted(found) == sorted(truth(agent), key=str)
    assert read(batches(tracer.spans, "each")) == found
    assert read(tracer.shuffled(seed)) == found


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 12))])
@pytest.mark.parametrize("shape", SHAPES)
def test_several_that_start_together_with_agents_in_their_tools(shape: str, seed: int) -> None:
    chance = random.Random(seed)
    tracer = Tracer(shape, chance=chance)
    agents = [random_agent(chance, name, 2) for name in "ABC"[: chance.randint(2, 3)]]
    ends = [tracer.run(agent, 1, 1_000 + number) for number, agent in enumerate(agents)]
    tracer.add(1, None, "GET /", {}, 999, max(ends) + 1)
    found = read(batches(tracer.spans, "one"))
    assert as_scripted(found) == sorted([run for one in agents for run in truth(one)], key=str)
    assert read(batches(tracer.spans, "each")) == found
    assert read(tracer.shuffled(seed)) == found


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 12))])
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_several_that_start_at_any_time(shape: str, seed: int) -> None:
    chance = random.Random(seed)
    tracer = Tracer(shape, chance=chance)
    agents = [looping(name, chance.randint(2, 6)) for name in "abcd"[: chance.randint(2, 4)]]
    ends = [tracer.run(agent, 1, 1_000 + chance.randint(0, 150)) for agent in agents]
    tracer.add(1, None, "GET /", {}, 999, max(ends) + 1)
    found = read(batches(tracer.spans, "one"))
    if shape != "openinference":  # whose spans of turns end after the tools
        assert as_scripted(found) == sorted([run for one in agents for run in truth(one)], key=str)
    assert read(batches(tracer.spans, "each")) == found
    assert read(tracer.shuffled(seed)) == found


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_agents_one_after_the_other_in_one_trace_are_separate_runs(shape: str) -> None:
    tracer = Tracer(shape)
    now = tracer.run(looping("a", 2), parent=1)
    now = tracer.run(looping("b", 3), parent=1, now=now + 5)
    tracer.add(1, None, "GET /", {}, 999, now + 1)
    for how in BATCHINGS:
        found = as_scripted(read(batches(tracer.spans, how)))
        assert found == [Scripted("a", None, 2), Scripted("b", None, 3)], how


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in range(1, 6))])
@pytest.mark.parametrize("skew", [-100, 100])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tools_whose_clock_is_wrong_in_any_order(scenario: str, skew: int, seed: int) -> None:
    tracer = Tracer("genai", skew=skew)
    tracer.run(SCENARIOS[scenario])
    found = read(tracer.shuffled(seed))
    assert as_scripted(found) == sorted(truth(SCENARIOS[scenario]), key=str)
    assert found == read(batches(tracer.spans, "one"))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_agent_in_a_tool_whose_span_is_not_sent(shape: str) -> None:
    boss = Agent("a", [[SEARCH], [delegated("b")], [SEARCH]])
    tracer = Tracer(shape)
    tracer.run(boss)
    spans = [span for span in tracer.spans if span.name != "ask_b"]
    for how in BATCHINGS:
        assert as_scripted(read(batches(spans, how))) == sorted(truth(boss), key=str), how
    with testing.capture() as seen:
        listener, assembly = Listener(seen), Assembly()
        for now, batch in batches(spans[:-1], "each"):
            assembly.take(batch, now=now)
        assembly.expire(now + 1)
        assert len(listener.started) == 2, "it is seen before the agent around it ends"
        assembly.close()


@pytest.mark.parametrize("how", BATCHINGS)
def test_an_agent_of_another_service_in_a_tool(how: str) -> None:
    boss = Agent("a", [[SEARCH], [delegated("b", 8)], [SEARCH]])
    tracer = Tracer("genai")
    tracer.run(boss)
    outer = next(span for span in tracer.spans if span.name == "ask_b")
    parents = {span.span_id: span.parent_id for span in tracer.spans}
    other = {"service.name": "other", "host.name": "other"}
    spans = [
        span._replace(resource=other) if _inside(span.span_id, outer.span_id, parents) else span
        for span in tracer.spans
    ]
    assert as_scripted(read(batches(spans, how))) == sorted(truth(boss), key=str)


def _inside(span_id: int, outer: int, parents: dict[int, int | None]) -> bool:
    around = parents[span_id]
    while around is not None and around != outer:
        around = parents.get(around)
    return around is not None


def openai() -> list[SpanData]:
    spans = Spans(OPENAI)
    trace = spans.begin()
    agent = {"openinference.span.kind": "AGENT"}
    for name, calls in (
        ("boss", "transfer_to_researcher"),
        ("researcher", "transfer_to_writer"),
        ("writer", None),
    ):
        begun = spans.begin()
        spans.openai_turn(begun, "search", query="key")
        spans.openai_turn(begun, calls)
        spans.end(begun, trace, name, {**agent, "agent.name": name})
    spans.end(trace, None, "Agent workflow", agent)
    to_writer = spans.found
    last = max(n for n, span in enumerate(to_writer) if span.name == "handoff to researcher")
    to_writer[last] = to_writer[last]._replace(name="handoff to writer")
    return to_writer


def google() -> list[SpanData]:
    spans = Spans(GOOGLE)
    boss = spans.begin()
    spans.google_turn(boss, "boss", "search", query="key")
    spans.google_turn(boss, "boss", "transfer_to_agent", agent_name="researcher")
    researcher = spans.begin()
    spans.google_turn(researcher, "researcher", "search", query="key")
    spans.google_turn(researcher, "researcher", "transfer_to_agent", agent_name="writer")
    writer = spans.begin()
    spans.google_turn(writer, "writer", "search", query="key")
    spans.google_turn(writer, "writer", None)
    agent = {"gen_ai.operation.name": "invoke_agent"}
    for begun, parent, name in (
        (writer, researcher, "writer"),
        (researcher, boss, "researcher"),
        (boss, None, "boss"),
    ):
        spans.end(begun, parent, f"invoke_agent {name}", {**agent, "gen_ai.agent.name": name})
    return spans.found


@pytest.mark.parametrize("shape", [openai, google])
def test_who_was_handed_over_to_and_hands_over_is_the_parent(shape: object) -> None:
    spans = openai() if shape is openai else google()
    assert as_scripted(read(batches(spans, "one"))) == [
        Scripted("boss", None, 2),
        Scripted("researcher", "boss", 2),
        Scripted("writer", "researcher", 1),
    ]


@pytest.mark.parametrize("how", BATCHINGS)
def test_an_agent_beside_the_span_of_the_tool_that_it_is_in(how: str) -> None:
    helper = Agent("helper", [[Call("search", "k")]])
    boss = Agent("boss", [[Call("delegate", agent=helper)], [Call("delegate", agent=helper)]])
    tracer = Tracer("genai")
    tracer.run(boss)
    tools = {span.span_id: span.parent_id for span in tracer.spans if span.name == "delegate"}
    beside = [
        span._replace(parent_id=tools[span.parent_id]) if span.parent_id in tools else span
        for span in tracer.spans
    ]
    assert as_scripted(read(batches(beside, how))) == sorted(truth(boss), key=str)


@pytest.mark.parametrize("how", BATCHINGS)
def test_an_agent_in_a_tool_that_ends_before_the_answer_that_chose_it(how: str) -> None:
    """As the Vercel AI SDK streams: tools run while the model still answers."""
    spans: list[SpanData] = []

    def add(span: int, parent: int | None, name: str, start: int, end: int, **given: Any) -> None:
        times = (start * 1_000_000, end * 1_000_000)
        attributes = {f"ai.{key.replace('_', '.')}": value for key, value in given.items()}
        resource = {"service.name": "svc"}
        ids = (7, span, parent)
        spans.append(SpanData(*ids, name, "ai", attributes, *times, resource=resource))

    def turn(agent: str, span: int, parent: int, tool: str, start: int, end: int) -> None:
        call = f'[{{"toolCallId": "c{span}", "toolName": "{tool}", "input": "{{}}"}}]'
        chat = "ai.streamText.doStream"
        named: dict[str, Any] = {"telemetry_functionId": agent}
        add(span, parent, chat, start, end, operationId=chat, response_toolCalls=call, **named)
        shown: dict[str, Any] = {"toolCall_name": tool, "toolCall_id": f"c{span}", **named}
        ran = (start + 1, end - 1)
        add(span + 1, parent, "ai.toolCall", *ran, operationId="ai.toolCall", **shown)

    boss = {"operationId": "ai.streamText", "telemetry_functionId": "boss"}
    helper = {"operationId": "ai.streamText", "telemetry_functionId": "helper"}
    turn("boss", 10, 1, "search", 1, 20)
    turn("boss", 20, 1, "helper", 21, 100)
    add(30, 21, "ai.streamText", 23, 98, **helper)
    turn("helper", 40, 30, "search", 24, 60)
    add(1, None, "ai.streamText", 0, 110, **boss)
    spans.sort(key=lambda span: span.end)
    found = as_scripted(read(batches(spans, how)))
    assert found == [Scripted("boss", None, 2), Scripted("helper", "boss", 1)]
