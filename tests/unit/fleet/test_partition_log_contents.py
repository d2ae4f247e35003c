"""One partition gets contents of log records: they join their spans, also after a crash between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from support.fleet_log import LIMITS, Produced, Sent, WorkerHere, nothing_configured, spans_message
from support.log_events import STEPS, logs_request, records, spans_request
from support.log_events import spans as agent_spans
from tidegauge import catalog
from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import decode_logs_protobuf, decode_protobuf

SPANS = decode_protobuf(spans_request(agent_spans()).SerializeToString()).spans
EVENTS = decode_logs_protobuf(logs_request(records()).SerializeToString()).spans


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    span_faults.clear()
    span_faults.reading()
    with nothing_configured():
        yield
    span_faults.clear()


def log_of(*batches: Sequence[SpanData]) -> list[Sent]:
    return [spans_message(batch, number / 10) for number, batch in enumerate(batches)]


def dropped() -> dict[str, int]:
    counts = span_faults.metrics()[catalog.DROPPED_CONTENTS]
    return {reason: count for (reason,), count in counts.items() if count}


@pytest.mark.parametrize("crash", range(5))
@pytest.mark.parametrize("first", ["logs", "spans"])
def test_a_crash_between_changes_nothing(first: str, crash: int) -> None:
    halves = [EVENTS[::2], EVENTS[1::2]], [SPANS[::2], SPANS[1::2]]
    (one, other), (third, fourth) = halves if first == "logs" else halves[::-1]
    log = log_of(one, other, third, fourth)
    produced, store, position = Produced.nothing(), dict[bytes, bytes](), 0
    worker = WorkerHere(produced, store, position)
    for number in range(len(log)):
        if number == crash:
            worker.partition.drop()
            worker = WorkerHere(produced, store, position)
        worker.take(log)
        position = worker.commit()
    worker.use()
    worker.partition.tick(5.0)
    worker.partition.tick(5.0 + LIMITS.idle_seconds)
    worker.commit()
    [summary] = produced.summaries
    assert (summary["steps"], summary["loops"] != []) == (STEPS, True)
    assert dropped() == {}
    assert [key for key in store if key[:1] in (b"r", b"l")] == []


def test_events_without_spans_leave_nothing_behind() -> None:
    produced, store = Produced.nothing(), dict[bytes, bytes]()
    worker = WorkerHere(produced, store, 0)
    log = log_of(EVENTS)
    worker.take(log)
    worker.commit()
    assert [key for key in store if key[:1] in (b"r", b"l")]
    worker.partition.tick(1.0 + LIMITS.idle_seconds)
    worker.commit()
    assert store == {}
    assert dropped() == {"no_span": len(EVENTS)}
    assert produced == Produced.nothing()
    assert not worker.partition.state_bytes
