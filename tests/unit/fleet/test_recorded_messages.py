"""Recorded spans of four dialects, through messages: the runs are those of the spans themselves."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.examples import examples
from support.framework_spans import load, with_canaries
from support.span_files import flat_spans, otlp_spans
from support.span_orders import arriving
from tidegauge.fleet.fleet_messages import decode_spans, encode_spans
from tidegauge.recordings import ContentEncoder

FILES = (
    "openinference_langchain_agent.otlp.json",
    "openllmetry_0.62_langchain_agent.otlp.json",
    "strands_otel_genai_convention_spans.json",
    "strands_pydantic_ai_live_spans.json",
)
PLAIN = ContentEncoder(bytes.hex, plain=True)
DIGESTS = ContentEncoder(bytes.hex, plain=False)


@pytest.fixture(params=FILES)
def recorded(request, recorded_runs):
    path = recorded_runs / "spans" / request.param
    return otlp_spans(path) if ".otlp." in path.name else flat_spans(path)


def through_messages(spans, shown):
    """What a worker is given of these spans, a message a trace."""
    found = []
    for trace_id, of_trace in groupby(spans, key=lambda span: span.trace_id):
        data = encode_spans(trace_id, list(of_trace), shown)
        found += decode_spans(orjson.loads(data), len(data))
    return found


OF_TEXTS = {
    *("similarity", "repetition", "repetition_recent", "stagnation"),
    *("near_streak", "near_streak_max"),
}
"""What is read from words: workers, which have digests, do not measure it."""


def numbers(story):
    """A story without its words: what runs are called, how their steps went, what was measured."""
    received = []
    for (agent, _, *about), around, steps, outcomes, measured in story:
        order: dict[object, int] = {}
        walked = [
            (step, names, *(order.setdefault(digest, len(order)) for digest in digests), tokens)
            for step, names, *digests, tokens in steps
        ]
        ended = [
            (step, [error for _, error in results], tokens) for step, results, tokens in outcomes
        ]
        left = {name: value for name, value in measured.items() if name not in OF_TEXTS}
        received.append((agent, about, around, walked, ended, {**left, "task": None}))
    return received


def test_with_contents_the_story_is_the_same(recorded):
    story, _ = arriving([recorded])
    again, assembly = arriving([through_messages(recorded, PLAIN)])
    assert again == story
    assert len(assembly) == 0


def test_with_digests_the_numbers_are_the_same(recorded):
    story, _ = arriving([recorded])
    again, _ = arriving([through_messages(recorded, DIGESTS)])
    assert numbers(again) == numbers(story)


CANARY = "a canary in a mine"


@pytest.mark.parametrize("shown", [PLAIN, DIGESTS], ids=["contents", "digests"])
def test_no_canary_of_any_recorded_convention_is_in_a_message_of_digests(
    recorded_runs: Path, shown: ContentEncoder
) -> None:
    left = set()
    recordings = sorted((recorded_runs / "spans").rglob("*.jsonl"))
    for path in recordings:
        for span in load(path):
            message = encode_spans(span.trace_id, [with_canaries(span, CANARY)], shown)
            if CANARY.encode() in message:
                left.add(path.stem)
    assert bool(left) == shown.plain, left


@examples(0.25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_any_batches_and_some_twice(recorded, data):
    order = data.draw(st.permutations(range(len(recorded))))
    cuts = data.draw(st.lists(st.integers(0, len(order)), max_size=4).map(sorted))
    batches = [
        through_messages([recorded[index] for index in order[start:end]], DIGESTS)
        for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)
    ]
    again = data.draw(st.lists(st.sampled_from(recorded), max_size=3, unique_by=id))
    story, assembly = arriving([*batches, through_messages(again, DIGESTS)])
    assert numbers(story) == numbers(arriving([recorded])[0])
    assert assembly.duplicates == len(again)
