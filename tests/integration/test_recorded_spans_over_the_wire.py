"""Recorded spans of four dialects arrive in any order: the numbers are those of the process."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.examples import examples
from support.other_spans import Listener
from support.span_files import flat_spans, otlp_spans, replay_spans
from support.span_orders import arriving
from tidegauge import testing
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.runs.current import get_recorder

FILES = (
    "openinference_langchain_agent.otlp.json",
    "openllmetry_0.62_langchain_agent.otlp.json",
    "strands_otel_genai_convention_spans.json",
    "strands_pydantic_ai_live_spans.json",
)


@pytest.fixture(params=FILES)
def recorded(request, recorded_runs):
    path = recorded_runs / "spans" / request.param
    return otlp_spans(path) if ".otlp." in path.name else flat_spans(path)


def in_process(recorded):
    with testing.capture() as seen:
        listener = Listener(seen)
        replay_spans(Grouping(get_recorder), recorded)
        return listener.story()


def test_all_at_once(recorded):
    story, assembly = arriving([recorded])
    assert story == in_process(recorded)
    assert len(assembly) == 0
    assert (assembly.duplicates, assembly.late) == (0, 0)


@examples(0.25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_any_batches_and_some_twice(recorded, data):
    order = data.draw(st.permutations(range(len(recorded))))
    cuts = data.draw(st.lists(st.integers(0, len(order)), max_size=4).map(sorted))
    batches = [
        [recorded[index] for index in order[start:end]]
        for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)
    ]
    again = data.draw(st.lists(st.sampled_from(recorded), max_size=3, unique_by=id))
    story, assembly = arriving([*batches, again])
    assert story == in_process(recorded)
    assert assembly.duplicates == len(again)
    assert assembly.late == 0
