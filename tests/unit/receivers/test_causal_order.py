"""Tool calls seen by two hosts whose clocks differ: one call is one step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.other_spans import Listener
from support.span_orders import arriving
from tidegauge import catalog, testing
from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.causal_order import in_causal_order

MS = 1_000_000
ROUNDS = 10
HERE, THERE = {"service.name": "agent"}, {"service.name": "search"}
SKEWS = [-1_000, -250, -40, -5, -4, -1, 0, 1, 4, 5, 40, 250, 1_000]


def span(number: int, at: tuple[int, int], given: dict[str, Any], **more: Any) -> SpanData:
    more = dict[str, Any](resource=HERE, scope="client", parent=1) | more
    start, end = ((10_000 + moment) * MS for moment in at)
    parent, scope = more.pop("parent"), more.pop("scope")
    return SpanData(7, number, parent, "any", scope, given, start, end, **more)


def model(number: int, at: tuple[int, int], call_id: str | None, name: str = "look") -> SpanData:
    part = {"type": "tool_call", "name": name, "arguments": {"q": 1}}
    if call_id is not None:
        part["id"] = call_id
    said = json.dumps([{"role": "assistant", "parts": [part]}])
    return span(number, at, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said})


def tool(number: int, at: tuple[int, int], call_id: str | None, **more: Any) -> SpanData:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": more.pop("name", "look"),
        "gen_ai.tool.call.arguments": json.dumps({"q": 1}),
        "gen_ai.tool.call.result": "nothing",
    }
    if call_id is not None:
        attributes["gen_ai.tool.call.id"] = call_id
    return span(number, at, attributes, **more)


def agent(skew: int, *, ids: bool, client: bool, inside: bool = False) -> list[SpanData]:
    """Ten rounds of 20 ms; the tool's host shows calls of 2 ms, with its clock so many ms ahead."""
    spans = []
    for n in range(ROUNDS):
        at, call_id = 20 * n, f"call-{n}" if ids else None
        spans.append(model(10 * n + 11, (at + 1, at + 10), call_id))
        spans.append(
            tool(
                10 * n + 12,
                (at + 11 + skew, at + 13 + skew),
                call_id,
                resource=THERE,
                scope="server",
                parent=10 * n + 13 if inside else 1,
            )
        )
        if client:
            spans.append(tool(10 * n + 13, (at + 11, at + 14), call_id))
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    return [*spans, span(1, (0, 20 * ROUNDS + 1), root, parent=None)]


def steps(story: Any) -> int:
    [(*_, reported, outcomes, _)] = story
    assert [step for step, *_ in outcomes] == list(range(len(reported)))  # each observed, in order
    return len(reported)


def skewed() -> int:
    return span_faults.metrics()[catalog.CLOCK_SKEW].get(("search",), 0)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("client", [True, False])
def test_ten_calls_are_ten_steps(skew: int, ids: bool, client: bool) -> None:
    story, _ = arriving([agent(skew, ids=ids, client=client)])
    assert steps(story) == ROUNDS
    if skew in (-1_000, -250, -5, -4):
        assert skewed() > 0
    if skew == 0:
        assert skewed() == 0


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("ids", [True, False])
def test_inside_the_span_of_the_caller_too(skew: int, ids: bool) -> None:
    story, _ = arriving([agent(skew, ids=ids, client=True, inside=True)])
    assert steps(story) == ROUNDS
    assert skewed() > 0 if skew < 0 else True
    assert skew or not skewed()


@pytest.mark.parametrize("skew", [-1_000, -250, -4, 0, 4])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("client", [True, False])
def test_span_by_span_as_they_end(skew: int, ids: bool, client: bool) -> None:
    with testing.capture() as seen:
        listener = Listener(seen)
        assembly = Assembly()
        for number, each in enumerate(agent(skew, ids=ids, client=client)):
            assembly.take([each], now=float(number))
            assembly.expire(number + 0.9)
        assembly.close()
        assert steps(listener.story()) == ROUNDS


@pytest.mark.parametrize("skew", [-9_000, 9_000])
def test_ids_decide_it_whatever_the_clocks_say(skew: int) -> None:
    story, _ = arriving([agent(skew, ids=True, client=True)])
    assert steps(story) == ROUNDS
    assert skewed() > 0


def test_without_ids_a_clock_that_is_further_off_is_counted() -> None:
    story, _ = arriving([agent(-9_000, ids=False, client=False)])
    [(*_, reported, _, _)] = story
    assert len(reported) == 2 * ROUNDS
    assert span_faults.metrics()[catalog.REPAIRED_SPANS]["unmatched",] > 0


def test_the_seconds_of_a_step_are_absent_where_clocks_contradict_each_other() -> None:
    assert timed_steps(0) == ROUNDS
    assert timed_steps(-40) == 0


def timed_steps(skew: int) -> int:
    with testing.capture() as seen:
        assembly = Assembly()
        assembly.take(agent(skew, ids=True, client=False), now=0.0)
        assembly.close()
        [group] = seen.pipeline.engine.snapshot().groups
        return sum(group.totals.step_seconds.counts)


def test_the_answer_that_the_model_was_shown_comes_before_the_span_of_a_clock_ahead() -> None:
    spans = agent(1_000, ids=True, client=False)
    shown = [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call-0", "response": 1}]}
    ]
    second = spans[2]
    attributes = {**second.attributes, "gen_ai.input.messages": json.dumps(shown)}
    spans[2] = second._replace(attributes=attributes)
    assert steps(arriving([spans])[0]) == ROUNDS


def test_a_result_by_a_clock_behind_comes_before_the_next_answer_whenever_it_arrived() -> None:
    asked, look, answered, *_ = agent(-250, ids=True, client=False)
    assert in_causal_order([answered], {look.span_id: look}, {"call-0": None}) == [look, answered]
    held = {look.span_id: look, asked.span_id: asked}
    assert in_causal_order([answered], held) == [asked, look, answered]
    assert in_causal_order([answered], {look.span_id: look}, {"other": None}) == [answered]


def test_one_clock_moves_nothing() -> None:
    spans = sorted(agent(-250, ids=False, client=False), key=lambda each: each.end)
    alike = [each._replace(resource=HERE) for each in spans]
    assert in_causal_order(alike, {}) == alike
    assert in_causal_order(spans, {}) != spans


def test_calls_of_two_tools_on_two_hosts_stay_two() -> None:
    spans = [
        model(11, (1, 10), None, "look"),
        model(12, (1, 20), None, "search"),
        tool(13, (11, 13), None),
        tool(14, (7, 8), None, name="search", resource=THERE, scope="server"),
    ]
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    assert steps(arriving([[*spans, span(1, (0, 99), root, parent=None)]])[0]) == 2
