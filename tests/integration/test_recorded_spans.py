"""Recorded spans of four dialects, through the reading and grouping alone."""

from __future__ import annotations

import pytest

from support.other_spans import Listener
from support.span_files import flat_spans, otlp_spans, replay_spans
from tidegauge import testing
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.runs.current import get_recorder


@pytest.fixture
def spans(recorded_runs):
    return recorded_runs / "spans"


def steps_of(recorded, *, early):
    with testing.capture() as seen:
        listener = Listener(seen)
        grouping = Grouping(get_recorder)
        replay_spans(grouping, recorded, early=early)
        assert len(grouping) == 0
        return listener.story()


@pytest.mark.parametrize("early", [False, True])
def test_two_dialects_of_one_langchain_run_give_the_same_step(spans, early):
    files = (
        "openinference_langchain_agent.otlp.json",
        "openllmetry_0.62_langchain_agent.otlp.json",
    )
    stories = [steps_of(otlp_spans(spans / name), early=early) for name in files]
    for [((name, task, *_), _, steps, outcomes, measured)] in stories:
        assert (name, task) == ("AgentExecutor", "What is OpenLLMetry?")
        assert [step[1] for step in steps] == [("tavily_search_results_json",)]
        assert outcomes[0][1][0][1] is False
        assert measured["steps"] == 1
    one, other = stories
    assert one[0][2] == other[0][2]  # down to the digests of action and state
    assert one[0][4] == other[0][4]


@pytest.mark.parametrize("early", [False, True])
def test_a_trace_of_the_genai_conventions(spans, early):
    recorded = flat_spans(spans / "strands_otel_genai_convention_spans.json")
    [((name, task, *_), (thread, _), steps, outcomes, measured)] = steps_of(recorded, early=early)
    assert (name, thread) == ("WeatherAssistant", "conv_otel_test_001")
    assert task == "What's the weather in Paris and London?"
    assert [(step[1], step[4]) for step in steps] == [(("get_weather", "get_weather"), 105)]
    assert outcomes == [(0, (("rainy, 57°F", False), ("TimeoutError", True)), None)]
    assert measured["loop_steps"] == 0


@pytest.mark.parametrize("early", [False, True])
def test_a_trace_of_pydantic_ai(spans, early):
    recorded = flat_spans(spans / "strands_pydantic_ai_live_spans.json")
    [((name, task, *_), _, steps, outcomes, _)] = steps_of(recorded, early=early)
    assert (name, task) == ("agent", "What's the weather like in Seattle right now?")
    assert [(step[1], step[4]) for step in steps] == [(("get_weather",), 641)]
    assert outcomes == [(0, (("62°F, cloudy with light rain", False),), None)]
