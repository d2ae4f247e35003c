"""Traces of every framework go on after each message, in another worker, as if nothing happened."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fleet_log import (
    Produced,
    Sent,
    WorkerHere,
    by_run,
    finish,
    nothing_configured,
    snapshots,
    spans_message,
    uninterrupted,
)
from support.framework_spans import load, with_canaries
from tidegauge.fleet.kafka_records import is_snapshot
from tidegauge.fleet.snapshots import RunSnapshot
from tidegauge.foreign_spans.span import SpanData

SPANS = 3
"""In a message."""


@pytest.fixture(autouse=True)
def _nothing_stays_configured() -> Iterator[None]:
    with nothing_configured():
        yield


def log_of(spans: Iterable[SpanData], seconds: float) -> list[Sent]:
    """Spans in the order of their ends, so many seconds apart."""
    traces: dict[int, list[SpanData]] = {}
    parts: list[list[SpanData]] = []
    for span in spans:
        together = traces.setdefault(span.trace_id, [])
        together.append(span)
        if len(together) == SPANS:
            parts.append(traces.pop(span.trace_id))
    parts += traces.values()
    return [spans_message(part, 1_000.0 + seconds * n) for n, part in enumerate(parts)]


def states(worker: WorkerHere) -> dict[str, Any]:
    """What it knows of each run or trace."""
    partition = worker.partition
    partition._assembly.wake(math.inf)
    return {key: unpacked(partition._snapshot(key)) for key in partition.keys}


def unpacked(data: bytes) -> Any:
    """What is in a snapshot."""
    head, trace = RunSnapshot.read(data)
    return head, trace()


def kept(store: dict[bytes, bytes]) -> list[Any]:
    """The snapshots that were written."""
    values = [data.partition(b"\n")[2] for key, data in store.items() if is_snapshot(key)]
    return list(map(unpacked, values))


def different_parts(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two values of plain data differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from different_parts(one[key], other[key], f"{place}.{key}")
    elif (
        isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other)
    ):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from different_parts(*pair, f"{place}[{number}]")
    elif one != other:
        yield f"{place}: {one!r} is {other!r}"


@pytest.mark.parametrize("seconds", [0.1, 1.0])  # held or emitted when the worker changes
def test_every_framework(recorded_runs: Path, seconds: float) -> None:
    folder = recorded_runs / "spans" / "frameworks"
    different = {}
    for name in json.loads((folder / "expected.json").read_text()):
        log = log_of(load(folder / f"{name}.jsonl"), seconds)
        expected, _ = uninterrupted(log)
        produced, store, position = Produced.nothing(), dict[bytes, bytes](), 0
        with snapshots("all"):
            worker = WorkerHere(produced, store, position)
            while worker.partition.position < len(log):
                worker.take(log)
                position = worker.commit()
                # What has changed since its last message is computed again, also times of day.
                before = {
                    key: state for key, state in states(worker).items() if state in kept(store)
                }
                worker.partition.drop()
                worker = WorkerHere(produced, store, position)
                after = states(worker)
                assert [*different_parts(before, {key: after[key] for key in before})] == [], name
            finish(worker, log)
        if by_run(produced.summaries) != by_run(expected.summaries) or by_run(
            produced.decisions
        ) != by_run(expected.decisions):
            different[name] = by_run(produced.summaries), by_run(expected.summaries)
    assert different == {}


CANARY = "a canary in a mine"


def test_no_canary_is_in_what_a_worker_keeps_and_writes(
    recorded_runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = recorded_runs / "spans" / "frameworks"
    left = set()
    for name in json.loads((folder / "expected.json").read_text()):
        spans = [with_canaries(span, CANARY) for span in load(folder / f"{name}.jsonl")]
        log, store = log_of(spans, 0.1), dict[bytes, bytes]()
        with snapshots("all"):
            worker = WorkerHere(Produced.nothing(), store, 0)
            while worker.partition.position < len(log):
                worker.take(log)
                worker.commit()
                if CANARY in str(kept(store)) or CANARY.encode() in b"".join(store.values()):
                    left.add(name)
            finish(worker, log)
        if CANARY in str(worker.produced):
            left.add(name)
    assert left == set()
    assert CANARY not in caplog.text
