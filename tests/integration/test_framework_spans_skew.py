"""Recorded spans of frameworks whose tools run on a host with another clock.

Where the model's ids of calls are on the spans of tools, the numbers are those of one clock, in any
order of arrival. Elsewhere they may differ, but not without being counted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.framework_spans import BATCHINGS, ReadRun, batches, load, read
from tidegauge import catalog
from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.span import ModelSpan, SpanData, ToolSpan

pytestmark = pytest.mark.slow

LATENESS = 0.45
"""Seconds: less than is allowed."""


ONE_ORDER = {"lg_openlit.loop1": "spans of its nodes are beside the agents that they are in"}
"""Recordings that are right in the order of ends only."""


class Recording(NamedTuple):
    """The spans of a file, and how many of its tools' spans have an id that a model gave."""

    spans: list[SpanData]
    tools: int
    known: int

    @classmethod
    def of(cls, path: Path) -> Recording:
        spans = load(path)
        readings = [read_span(span) for span in spans]
        chosen = {
            call.id
            for reading in readings
            if isinstance(reading, ModelSpan)
            for call in reading.calls or ()
        }
        tools = [reading for reading in readings if isinstance(reading, ToolSpan)]
        known = [tool for tool in tools if tool.id is not None and tool.id in chosen]
        return cls(spans, len(tools), len(known))

    def skewed(self, milliseconds: int) -> list[SpanData]:
        """The spans with those of tools by the clock of another host."""
        moved = milliseconds * 1_000_000
        return [
            span._replace(
                start=span.start + moved,
                end=span.end + moved,
                resource={**span.resource, "host.name": "tools", "service.instance.id": "tools"},
            )
            if isinstance(read_span(span), ToolSpan)
            else span._replace(
                resource={**span.resource, "host.name": "agents", "service.instance.id": "agents"}
            )
            for span in self.spans
        ]

    def shuffled(self, milliseconds: int, seed: int) -> list[tuple[float, list[SpanData]]]:
        """Each span arrives alone, by chance, some time after it has really ended."""
        chance = random.Random(seed)
        first = min(span.start for span in self.spans)
        late = [
            ((truly.end - first) / 1e9 + chance.random() * LATENESS, span)
            for truly, span in zip(self.spans, self.skewed(milliseconds), strict=True)
        ]
        return [(when, [span]) for when, span in sorted(late, key=lambda each: each[0])]


def numbers(runs: Sequence[ReadRun]) -> list[ReadRun]:
    """The runs without their labels, which depend on what ended first in other traces."""
    return [run._replace(label="") for run in runs]


@cache
def recordings(frameworks: Path) -> Mapping[str, Recording]:
    names = json.loads((frameworks / "expected.json").read_text())
    found = {name: Recording.of(frameworks / f"{name}.jsonl") for name in names}
    return {name: one for name, one in found.items() if one.tools}


@pytest.fixture
def frameworks(recorded_runs: Path) -> Path:
    return recorded_runs / "spans" / "frameworks"


def arrivals(name: str, one: Recording, skew: int) -> Iterator[tuple[object, Any]]:
    spans = one.skewed(skew)
    yield from ((how, batches(spans, how)) for how in BATCHINGS)
    if name not in ONE_ORDER:
        yield from ((seed, one.shuffled(skew, seed)) for seed in range(4))


@pytest.mark.parametrize("skew", [-100, -30, 30, 100])
def test_ids_of_calls_make_clocks_irrelevant(frameworks: Path, skew: int) -> None:
    wrong, count = [], 0
    for name, one in recordings(frameworks).items():
        if one.known == one.tools:
            count += 1
            right = numbers(read(batches(one.spans, "each")))
            wrong += [
                (name, how)
                for how, arriving in arrivals(name, one, skew)
                if numbers(read(arriving)) != right
            ]
    assert not wrong
    assert count >= 15


@pytest.mark.parametrize("skew", [-100, 100])
def test_other_numbers_without_ids_are_counted(frameworks: Path, skew: int) -> None:
    silent = []
    for name, one in recordings(frameworks).items():
        if one.known == one.tools:
            continue
        right = numbers(read(batches(one.spans, "each")))
        for how in ("one", "each"):
            before = contradictions()
            found = numbers(read(batches(one.skewed(skew), how)))
            if found != right and contradictions() == before:
                silent.append((name, how))
    assert not silent


def contradictions() -> float:
    """Times that contradict each other, and calls without their tools."""
    counted = span_faults.metrics()
    unmatched = counted[catalog.REPAIRED_SPANS].get(("unmatched",), 0)
    return unmatched + sum(counted[catalog.CLOCK_SKEW].values())
