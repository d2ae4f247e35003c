"""Agents that hand over to others, as frameworks trace it: one step, and a run inside."""

from __future__ import annotations

from typing import Any

import pytest

from support.framework_spans import BATCHINGS, ReadRun, batches, read
from support.hand_off_spans import GOOGLE, OPENAI, Spans
from tidegauge.instrumentation.spans.span import SpanData

LOOP = {"period": 1, "first_step": 2, "loop_steps": 6}


def openai() -> list[SpanData]:
    spans = Spans(OPENAI)
    trace, boss = spans.begin(), spans.begin()
    spans.openai_turn(boss, "transfer_to_researcher")
    agent = {"openinference.span.kind": "AGENT"}
    spans.end(boss, trace, "boss", {**agent, "agent.name": "boss"})
    researcher = spans.begin()
    for _ in range(8):
        spans.openai_turn(researcher, "search", query="key")
    spans.openai_turn(researcher, None)
    spans.end(researcher, trace, "researcher", {**agent, "agent.name": "researcher"})
    spans.end(trace, None, "Agent workflow", agent)
    return spans.found


def google() -> list[SpanData]:
    spans = Spans(GOOGLE)
    boss = spans.begin()
    spans.google_turn(boss, "boss", "transfer_to_agent", agent_name="researcher")
    researcher = spans.begin()
    for _ in range(8):
        spans.google_turn(researcher, "researcher", "search", query="key")
    spans.google_turn(researcher, "researcher", None)
    agent = {"gen_ai.operation.name": "invoke_agent"}
    for begun, parent, name in ((researcher, boss, "researcher"), (boss, None, "boss")):
        spans.end(begun, parent, f"invoke_agent {name}", {**agent, "gen_ai.agent.name": name})
    return spans.found


@pytest.mark.parametrize("how", BATCHINGS)
@pytest.mark.parametrize("shape", [openai, google])
def test_a_hand_off_is_one_step_and_the_other_agent_a_run_inside(shape: Any, how: str) -> None:
    found = read(batches(shape(), how))
    assert [run[:4] for run in found] == [
        ("boss", None, 1, None),
        ("researcher", 0, 8, LOOP),
    ]
    assert isinstance(found[0], ReadRun)


@pytest.mark.parametrize("how", BATCHINGS)
def test_agents_one_after_the_other_in_one_trace_are_separate_runs(how: str) -> None:
    spans = Spans(OPENAI)
    request = spans.begin()
    for name in ("one", "two"):
        agent = spans.begin()
        for _ in range(3):
            spans.openai_turn(agent, "search", query=name)
        spans.openai_turn(agent, None)
        given = {"openinference.span.kind": "AGENT", "agent.name": name}
        spans.end(agent, request, name, given)
    spans.end(request, None, "GET /", {"http.request.method": "GET"})
    found = read(batches(spans.found, how))
    assert [run[:3] for run in found] == [("one", None, 3), ("two", None, 3)]
