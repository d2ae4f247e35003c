"""Real agents' recorded runs as spans over the wire: every number is that of their replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.recorded_otlp import COUNT, RecordedRun, read_runs, replayed, requests
from tidegauge.cli.replay import RecordedRuns
from tidegauge.fleet.fleet_messages import decode_spans, encode_spans
from tidegauge.foreign_spans.span import SpanData
from tidegauge.policies import Policy
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.decoding import decode_protobuf
from tidegauge.recordings import ContentEncoder
from tidegauge.runs.recorder import Recorder
from tidegauge.streaming_metrics import run_entry
from tidegauge.streaming_metrics.normalise import volatile
from tidegauge.testing import capture

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(recorded_runs: Path) -> list[RecordedRun]:
    return read_runs(recorded_runs)


@pytest.fixture(scope="module")
def expected(
    runs: list[RecordedRun], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What their replay says of them."""
    found = replayed(tmp_path_factory.mktemp("replay") / "runs.jsonl", *runs)
    assert len(found) == COUNT
    assert sum(entry["steps"] for entry in found.values()) == 19_897
    assert sum(bool(entry["loops"]) for entry in found.values()) > 500
    return found


def assembled(batches: Iterable[Sequence[SpanData]]) -> dict[str, dict[str, Any]]:
    """What the runs are when these spans arrive, a hundredth of a second apart."""
    measured = RecordedRuns(Policy(()))
    with capture() as seen:
        recorder = Recorder(measured, seen.pipeline.recorder.spans)
        assembly, now = Assembly(recorder=lambda: recorder), 0.0
        for batch in batches:
            now += 0.01
            assembly.take(batch, now=now)
        assembly.expire(now + 1.0)
        assert (len(assembly), assembly.open_runs) == (0, 0)
        assert (assembly.duplicates, assembly.late) == (0, 0)
    found = {}
    for report in measured.reports():
        assert report.trace_id is not None
        found[report.trace_id] = {**run_entry(report), "run": report.trace_id}
    return found


def test_as_they_come(runs: list[RecordedRun], expected: dict[str, dict[str, Any]]) -> None:
    [sent] = requests(runs)
    received = (decode_protobuf(each.SerializeToString()).spans for each in sent)
    assert assembled(received) == expected


def as_messages(spans: Sequence[SpanData], shown: ContentEncoder) -> Iterator[list[SpanData]]:
    """The spans of each trace, after they have been a message."""
    for trace_id, together in groupby(
        sorted(spans, key=lambda span: span.trace_id), lambda span: span.trace_id
    ):
        yield decode_spans(orjson.loads(encode_spans(trace_id, list(together), shown)))


@pytest.mark.parametrize("plain", [False, True], ids=["digests", "contents"])
def test_in_parts_that_pass_each_other_as_messages(
    plain: bool, runs: list[RecordedRun], expected: dict[str, dict[str, Any]]
) -> None:
    """Each of two gateways sees every second span of a run, and the other one is ahead."""
    shown = ContentEncoder(bytes.hex, plain=plain, normaliser=volatile())

    def received() -> Iterator[list[SpanData]]:
        for one, other in zip_longest(*requests(runs, ways=2)):
            for request in filter(None, (other, one)):
                spans = decode_protobuf(request.SerializeToString()).spans
                yield [span for part in as_messages(spans, shown) for span in part]

    assert assembled(received()) == expected
