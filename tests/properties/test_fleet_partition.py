"""A worker that restores what was kept of a partition goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support.fleet_log import (
    A_WHILE,
    Produced,
    Sent,
    WorkerHere,
    by_run,
    event_message,
    finish,
    nothing_configured,
    snapshots,
    spans_message,
    spans_of,
    uninterrupted,
)
from support.wire_runs import WireRun
from tidegauge.fleet import snapshots as fleet_snapshots
from tidegauge.fleet.kafka_records import NAMES_KEY
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.totals import Totals


@pytest.fixture(autouse=True)
def _nothing_stays_configured() -> Iterator[None]:
    with nothing_configured():
        yield


@st.composite
def logs(draw: Any) -> list[Sent]:
    """Some runs reported as spans and some as step events, interleaved, some messages twice."""
    streams: list[list[list[Any]]] = []
    for number in draw(st.lists(st.integers(0, 60), min_size=1, max_size=3, unique=True)):
        spans = spans_of(WireRun(number))
        cuts = draw(st.lists(st.integers(0, len(spans)), max_size=6).map(sorted))
        parts = [spans[a:b] for a, b in zip([0, *cuts], [*cuts, len(spans)], strict=True)]
        streams.append([["spans", part] for part in parts if part])
    for number in draw(st.lists(st.integers(0, 60), max_size=2, unique=True)):
        events = WireRun(number, wave=7).events()
        for t, event in enumerate(events[1:-1]):
            event["t"] = t
        events[-1]["steps"] = len(events) - 2
        if draw(st.booleans()):  # a neighbour overtakes
            at = draw(st.integers(0, len(events) - 2))
            events[at], events[at + 1] = events[at + 1], events[at]
        if draw(st.booleans()):
            del events[-1]  # it is ended for having been idle
        streams.append([["event", event] for event in events])
    log: list[Sent] = []
    now = 1_000.0
    while streams:
        at = draw(st.integers(0, len(streams) - 1))
        kind, produced = streams[at].pop(0)
        if not streams[at]:
            del streams[at]
        now += draw(st.sampled_from([0.0, 0.01, 0.2]))
        log.append(
            spans_message(produced, now) if kind == "spans" else event_message(produced, now)
        )
        if draw(st.integers(0, 9)) == 0:
            log.append(log[draw(st.integers(0, len(log) - 1))]._replace(time=now))
        if draw(st.integers(0, 19)) == 0:
            log.append(Sent(b"r", b"{no JSON", now))
    return log


def counters(engines: list[Engine]) -> dict[str, dict[str, float]]:
    """What Prometheus would add up, by agent: whole numbers only."""
    found: dict[str, dict[str, float]] = {}
    for engine in engines:
        for view in engine.snapshot().groups:
            produced = found.setdefault(view.key.agent, dict.fromkeys(("started", "finished"), 0))
            produced["started"] += view.runs_started
            produced["finished"] += sum(view.finished.finished.values())
            for name in Totals.__slots__:
                value = getattr(view.totals, name)
                if isinstance(value, int):
                    produced[name] = produced.get(name, 0) + value
                elif isinstance(value, dict) and name != "exemplars":
                    produced[name] = produced.get(name, 0) + sum(value.values())
    return found


FAST = settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
PLACES = st.frozensets(st.integers(0, 80), max_size=80)


@pytest.mark.parametrize("of", ["all", "none"])
@FAST
@given(logs(), PLACES, st.frozensets(st.integers(0, 80), max_size=4))
def test_a_worker_dies_and_another_goes_on_from_what_was_committed(
    of: Literal["all", "none"], log: list[Sent], commits: frozenset[int], deaths: frozenset[int]
) -> None:
    expected, _ = uninterrupted(log)
    with snapshots(of):
        produced, store = dying(log, commits, deaths)
    assert by_run(produced.summaries) == by_run(expected.summaries)
    assert all(len(of_run) == 1 for of_run in by_run(produced.summaries).values())
    assert by_run(produced.decisions) == by_run(expected.decisions)
    assert not [key for key in store if key[:1] in (b"r", b"l")]


def dying(
    log: list[Sent], commits: frozenset[int], deaths: frozenset[int]
) -> tuple[Produced, dict[bytes, bytes]]:
    """What comes out, and what is kept in the end."""
    produced = Produced.nothing()
    store: dict[bytes, bytes] = {}
    committed = taken = 0
    worker = WorkerHere(produced, store, 0)
    while worker.partition.position < len(log):
        worker.take(log)
        taken += 1
        if taken in commits:
            committed = worker.commit()
        elif taken in deaths:
            worker = WorkerHere(produced, store, committed)
    finish(worker, log)
    worker.commit()
    return produced, store


@pytest.mark.parametrize("of", ["all", "none"])
@FAST
@given(logs(), PLACES)
def test_counters_of_all_workers_add_up_when_partitions_move(
    of: Literal["all", "none"], log: list[Sent], moves: frozenset[int]
) -> None:
    expected, alone = uninterrupted(log, ticks=moves)
    with snapshots(of):
        produced, workers = moving(log, moves)
    assert by_run(produced.summaries) == by_run(expected.summaries)
    assert len(produced.summaries) == len(expected.summaries)
    assert by_run(produced.decisions) == by_run(expected.decisions)
    assert produced.dead == expected.dead
    assert counters([worker.engine for worker in workers]) == counters([alone.engine])


def moving(log: list[Sent], moves: frozenset[int]) -> tuple[Produced, list[WorkerHere]]:
    """What comes out of workers that follow one another."""
    produced = Produced.nothing()
    store: dict[bytes, bytes] = {}
    workers = [WorkerHere(produced, store, 0)]
    while (at := workers[-1].partition.position) < len(log):
        workers[-1].take(log)
        if at in moves:
            workers[-1].partition.tick(log[at].time + A_WHILE)
            position = workers[-1].commit()
            workers[-1].partition.drop()
            assert not any(view.active for view in workers[-1].engine.snapshot().groups)
            workers.append(WorkerHere(produced, store, position))
    finish(workers[-1], log)
    return produced, workers


def test_nothing_is_kept_of_what_is_over_but_that_it_is() -> None:
    spans = spans_of(WireRun(7))
    log = [spans_message([span], 100.0 + n) for n, span in enumerate(spans)]
    produced = Produced.nothing()
    worker = WorkerHere(produced, {}, 0)
    for _ in log[:-1]:
        worker.take(log)
    worker.commit()
    records = [data for key, data in worker.store.items() if key[:1] in (b"r", b"l")]
    assert len(records) == len(log) - 1
    assert worker.partition.state_bytes == sum(map(len, records))
    worker.take(log)
    finish(worker, log)
    worker.commit()
    assert [key[:1] for key in worker.store] == [b"e", NAMES_KEY]
    assert (worker.partition.state_bytes, len(worker.partition)) == (0, 0)
    [summary] = produced.summaries
    assert summary["run"] == WireRun(7).trace_id.hex()


def test_what_comes_after_the_end_is_late_also_for_the_next_worker() -> None:
    spans = spans_of(WireRun(7))
    log = [
        spans_message(spans, 100.0),
        spans_message(spans[:2], 101.0),
        event_message({"type": "start", "run": WireRun(7).trace_id.hex()}, 102.0),
    ]
    produced = Produced.nothing()
    worker = WorkerHere(produced, {}, 0)
    worker.take(log)
    worker.partition.tick(101.0)
    assert len(produced.summaries) == 1
    worker = WorkerHere(produced, worker.store, worker.commit())
    worker.take(log)
    worker.take(log)
    assert worker.partition.counts.late == 3
    assert len(produced.summaries) == 1
    worker.partition.tick(101.0 + 4_000)
    worker.commit()
    assert list(worker.store) == [NAMES_KEY]


def test_state_of_another_version_is_refused() -> None:
    worker = WorkerHere(Produced.nothing(), {}, 0)
    worker.take([spans_message(spans_of(WireRun(1))[:1], 1.0)])
    worker.commit()
    [(key, value)] = [item for item in worker.store.items() if item[0].startswith(b"r")]
    other = value.replace(b'{"version":1,', b'{"version":2,', 1)
    with pytest.raises(ValueError, match="version 2"):
        WorkerHere(Produced.nothing(), {key: other}, 0)


def test_snapshots_of_the_release_before_are_read_and_those_of_the_next_are_refused() -> None:
    spans = spans_of(WireRun(1))
    log = [spans_message([span], 1.0 + n) for n, span in enumerate(spans)]
    expected, _ = uninterrupted(log)
    produced, store = Produced.nothing(), dict[bytes, bytes]()
    before = WorkerHere(produced, store, 0)
    for _ in log[:5]:
        before.take(log)
    with snapshots("all"):
        position = before.commit()
    upgraded: list[str] = []

    def head(data: dict[str, Any]) -> dict[str, Any]:
        upgraded.append("head")
        return data

    def trace(data: Any) -> Any:
        upgraded.append("trace")
        return data

    with pytest.MonkeyPatch.context() as next_release, snapshots("all"):
        next_release.setattr(fleet_snapshots, "VERSION", 3)
        next_release.setattr(fleet_snapshots, "UPGRADES", {2: fleet_snapshots.Upgrade(head, trace)})
        worker = WorkerHere(produced, store, position)
        worker.take(log)
        worker.commit()
        assert upgraded == ["head", "trace"]
        kept = dict(store)
        while worker.partition.position < len(log):
            worker.take(log)
        finish(worker, log)
    assert by_run(produced.summaries) == by_run(expected.summaries)
    with pytest.raises(ValueError, match="a snapshot has version 3; this release has 2"):
        WorkerHere(produced, kept, position)
