"""What agent frameworks emit is read alike, however it is batched: runs, steps, loops, parents."""

from __future__ import annotations

import json
import os
import random
import sys
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # when this file is run to write the table

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.examples import examples
from support.fleet_log import nothing_configured, spans_message, uninterrupted
from support.framework_spans import (
    BATCHINGS,
    FREE,
    ReadRun,
    batches,
    expected,
    live,
    load,
    read,
    read_each,
    shuffled,
    with_equal_ids,
)
from tidegauge import testing
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly

PAGE = Path(__file__).parents[2] / "docs" / "external-spans.md"
RECORDED = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture(scope="session")
def frameworks(recorded_runs: Path) -> Path:
    return recorded_runs / "spans" / "frameworks"


@pytest.fixture(scope="session")
def truth(frameworks: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((frameworks / "expected.json").read_text())
    return found


def test_every_framework_however_its_spans_are_batched(
    frameworks: Path, truth: dict[str, Any]
) -> None:
    wrong: dict[str, object] = {}
    for name, entry in truth.items():
        spans = load(frameworks / f"{name}.jsonl")
        found = {how: read(batches(spans, how)) for how in BATCHINGS}
        first = found[BATCHINGS[0]]
        if found != dict.fromkeys(BATCHINGS, first):
            wrong[name] = found
        elif name not in FREE and first != expected(entry, first):
            wrong[name] = first
    assert not wrong


@pytest.mark.slow
@examples(200 / 60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_in_any_order_within_the_allowed_lateness(
    frameworks: Path, truth: dict[str, Any], seed: int
) -> None:
    for name in truth:
        spans, found = _as_they_end(frameworks / f"{name}.jsonl")
        assert read(shuffled(spans, seed)) == found, name


@pytest.fixture(scope="module")
def equal_ids(frameworks: Path) -> dict[str, list[SpanData]]:
    """All recordings. In each trace, ids of calls are counted from zero."""
    paths = [*sorted(frameworks.glob("*.jsonl")), *sorted(frameworks.parent.glob("unseen/*.jsonl"))]
    found = {path.name: with_equal_ids(path) for path in paths}
    assert len(found) > 70
    return found


@pytest.mark.parametrize("turned", [False, True])
def test_one_after_the_other_in_one_server_each_is_read_as_alone(
    equal_ids: dict[str, list[SpanData]], turned: bool
) -> None:
    names = sorted(equal_ids, reverse=turned)
    found = read_each([equal_ids[name] for name in names], gap=2.0)
    alone = [read_each([equal_ids[name]], gap=2.0)[0] for name in names]
    wrong = {
        name: (here, there)
        for name, here, there in zip(names, found, alone, strict=True)
        if here != there
    }
    assert not wrong


def test_two_at_the_same_time_in_one_service_are_read_as_alone(
    equal_ids: dict[str, list[SpanData]],
) -> None:
    pairs = random.Random(1).sample(list(combinations(sorted(equal_ids), 2)), 80)
    moved = {name: _in_one_service(spans) for name, spans in equal_ids.items()}
    alone = {name: read_each([spans], gap=None)[0] for name, spans in moved.items()}
    wrong = {}
    for pair in pairs:
        found = read_each([moved[name] for name in pair], gap=None)
        if found != [alone[name] for name in pair]:
            wrong[pair] = found, [alone[name] for name in pair]
    assert not wrong


def _in_one_service(spans: list[SpanData]) -> list[SpanData]:
    moved = _NOON - min(span.start for span in spans if span.start)
    service = {"service.name": "agents", "host.name": "vm"}
    return [
        span._replace(
            start=span.start + moved, end=span.end + moved, resource={**span.resource, **service}
        )
        for span in spans
    ]


_NOON = 1_800_000_000 * 10**9


def test_a_worker_reads_each_as_alone(equal_ids: dict[str, list[SpanData]]) -> None:
    logs, when = {}, 1_000.0
    for name, spans in equal_ids.items():
        logs[name] = []
        for span in spans:
            when += 0.01
            logs[name].append(spans_message([span], when))
        when += 60.0
    with nothing_configured():
        together, _ = uninterrupted([message for log in logs.values() for message in log])
        alone = [uninterrupted(log)[0].summaries for log in logs.values()]
    assert _summaries(together.summaries) == _summaries([one for some in alone for one in some])


def _summaries(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((one["run"], one["steps"], one["loop_steps"]) for one in found)


@cache
def _as_they_end(path: Path) -> tuple[list[SpanData], list[ReadRun]]:
    spans = load(path)
    return spans, read(batches(spans, "each"))


def test_the_name_that_a_run_is_counted_by_is_decided_at_its_first_step(frameworks: Path) -> None:
    first, second = read(batches(load(frameworks / "maf.loop1.jsonl"), "one"))
    assert (first.label, first.agent) == ("svc-maf", "maf-agent"), "not known before it has ended"
    assert (second.label, second.agent) == ("maf-agent", "maf-agent"), "the only one seen so far"


@pytest.mark.parametrize("how", BATCHINGS)
@pytest.mark.parametrize("name", ["maf.delegate", "hand.loop1", "pydantic_ai.loop1"])
def test_announced_agents_have_their_names_from_the_first_step_on(
    frameworks: Path, truth: dict[str, Any], name: str, how: str
) -> None:
    spans = load(frameworks / f"{name}.jsonl")
    found = read(batches([*announcements(spans), *spans], how))
    assert found == expected(truth[name], found)
    assert [run.label for run in found] == [run.agent for run in found]


def test_an_announced_agent_in_a_tool_is_seen_before_it_has_ended(frameworks: Path) -> None:
    spans = load(frameworks / "maf.delegate.jsonl")
    half = [span for span in spans if span.end < spans[len(spans) // 2].end]
    announced = [one for one in announcements(spans) if one.end < half[-1].end]
    seen = [
        [(run.label, run.parent, run.steps) for run in live([*announced, *half])],
        [(run.label, run.parent, run.steps) for run in live(half)],
    ]
    assert seen == [[("boss", None, 1), ("researcher", 0, 5)], [("svc-maf", None, 1)]]


def test_a_run_whose_root_ends_early_ends_a_minute_after_its_last_span(frameworks: Path) -> None:
    spans = load(frameworks / "llama_tl.loop1.jsonl")
    with testing.capture() as seen:
        assembly, now = Assembly(), 0.0
        for now, batch in batches(spans, "each"):
            assembly.take(batch, now=now)
        assembly.expire(now + 30.0)
        assert assembly.open_runs == 1
        assembly.expire(now + 62.0)
        assert assembly.open_runs == 0
        [group] = seen.pipeline.engine.snapshot().groups
        assert group.totals.steps == 8


def announcements(spans: list[SpanData]) -> list[SpanData]:
    """What a processor in the agents' process emits when their spans start."""
    return [
        SpanData(
            span.trace_id,
            span.span_id ^ 1,
            span.span_id,
            "tidegauge.announce",
            "tidegauge.announce",
            {
                "tidegauge.announce.span_id": f"{span.span_id:016x}",
                "tidegauge.announce.parent_id": f"{span.parent_id or 0:016x}",
                "tidegauge.announce.name": span.name,
                "tidegauge.announce.agent": span.attributes["gen_ai.agent.name"],
            },
            span.start,
            span.start,
            resource=span.resource,
        )
        for span in spans
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent"
    ]


@pytest.mark.parametrize("how", ["one", "each", "0.2"])
def test_a_worker_reads_the_same_from_what_gateways_write(
    frameworks: Path, truth: dict[str, Any], how: str
) -> None:
    """Digests in place of contents; each message has the spans of one trace and request."""
    wrong = {}
    for name in truth:
        spans = load(frameworks / f"{name}.jsonl")
        log = []
        for when, batch in batches(spans, how):
            for trace_id in dict.fromkeys(span.trace_id for span in batch):
                of_trace = [span for span in batch if span.trace_id == trace_id]
                log.append(spans_message(of_trace, 1_000.0 + when))
        with nothing_configured():
            produced, _ = uninterrupted(log)
        found = sorted(
            (one["steps"], one["loop_steps"], [_place(loop) for loop in one["loops"]])
            for one in produced.summaries
        )
        direct = sorted(
            (
                run.steps,
                (run.loop or {}).get("live_loop_steps", 0),
                [] if run.loop is None else [_place(run.loop)],
            )
            for run in read(batches(spans, how))
        )
        if found != direct:
            wrong[name] = found, direct
    assert not wrong


def _place(loop: dict[str, int]) -> tuple[int, int]:
    return loop["first_step"], loop["period"]


def table(frameworks: Path) -> str:
    """The table of the docs: by which instrumentations each framework was read, and how far."""
    truth: dict[str, Any] = json.loads((frameworks / "expected.json").read_text())
    read_of: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for name, entry in truth.items():
        loops, steps, nothing = read_of.setdefault(entry["framework"], (set(), set(), set()))
        found = read(batches(load(frameworks / f"{name}.jsonl"), "each"))
        if not any(run.steps for run in found):
            nothing.add(entry["instrumentation"])
            continue
        steps.add(entry["instrumentation"])
        if any(run.loop for run in found):
            loops.add(entry["instrumentation"])
    lines = [
        f"| {framework} | {_list(loops)} | {_list(steps - loops)} | {_list(nothing - steps)} |"
        for framework, (loops, steps, nothing) in read_of.items()
    ]
    return "\n".join([_HEAD, "| --- | --- | --- | --- |", *sorted(lines, key=str.lower)])


_HEAD = "| framework | steps and loops | steps only | no steps |"


def _list(instrumentations: set[str]) -> str:
    return "; ".join(sorted(instrumentations, key=str.lower))


def with_the_table(page: str, frameworks: Path) -> str:
    """The page with the table as it must be."""
    begin = page.index(_HEAD)
    return page[:begin] + table(frameworks) + page[page.index("\n\n", begin) :]


def test_the_table_in_the_docs_is_what_is_read(frameworks: Path) -> None:
    page = PAGE.read_text()
    assert page == with_the_table(page, frameworks), (
        "docs/external-spans.md is out of date. "
        "Run: .venv/bin/python tests/integration/test_framework_spans.py"
    )


if __name__ == "__main__":
    PAGE.write_text(with_the_table(PAGE.read_text(), RECORDED / "spans" / "frameworks"))
