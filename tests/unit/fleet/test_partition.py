"""One partition: its clock, its marks, what is kept of it and for how long, and bad messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from support.fleet_log import (
    LIMITS,
    Produced,
    Sent,
    WorkerHere,
    event_message,
    finish,
    nothing_configured,
    spans_message,
    spans_of,
)
from support.wire_runs import WireRun
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.kafka_records import CLOCK_KEY, load_changelog_record, marker_key
from tidegauge.receivers.assembly import AssemblyLimits

IDLE = LIMITS.idle_seconds
AN_HOUR = 3_600.0
TRACE = WireRun(7).trace_id.hex()


@pytest.fixture(autouse=True)
def _nothing_stays_configured() -> Iterator[None]:
    with nothing_configured():
        yield


class Here(WorkerHere):
    """A worker whose log is given message by message."""

    def __init__(self, before: WorkerHere | None = None) -> None:
        store = {} if before is None else before.store
        super().__init__(Produced.nothing(), store, 0 if before is None else before.commit())
        self.offset = self.partition.position

    def hear(self, sent: Sent) -> None:
        self.partition.take(self.offset, sent.key, sent.value, sent.time)
        self.offset += 1

    def event(self, now: float, run: str = "r", **data: Any) -> None:
        self.hear(Sent(run.encode(), orjson.dumps({**data, "run": run}), now))

    def start(self, now: float, run: str = "r") -> None:
        self.event(now, run, type="start")

    def step(self, now: float, run: str = "r", **data: Any) -> None:
        self.event(now, run, type="step", action="go", **data)

    def end(self, now: float, run: str = "r", **data: Any) -> None:
        self.event(now, run, type="end", success=True, **data)

    def records(self) -> list[bytes]:
        return [data for key, data in sorted(self.store.items()) if key[:1] in (b"r", b"l")]

    def active(self) -> list[str]:
        return [run.run for view in self.engine.snapshot().groups for run in view.active]


@pytest.fixture
def here() -> Here:
    return Here()


def test_a_clock_that_goes_back_stands_still(here) -> None:
    here.start(1_000.0)
    for now in (900.0, -0.001, 0.0):
        here.step(now)
    here.commit()
    assert [load_changelog_record(record).now for record in here.records()] == [1_000.0] * 4
    assert float(here.store[CLOCK_KEY]) == 1_000.0
    here.step(1_000.0 + IDLE)
    assert here.produced.summaries == []


def test_the_clock_is_kept_as_long_as_anything_is(here) -> None:
    assert here.partition.changes() == {}
    here.partition.tick(5.0)
    assert here.partition.changes() == {}
    here.start(10.0)
    here.commit()
    here.partition.tick(12.0)
    here.commit()
    assert float(here.store[CLOCK_KEY]) == 12.0
    assert here.partition.changes() == {}
    here.end(13.0)
    here.commit()
    assert CLOCK_KEY not in here.store


def test_a_worker_that_goes_on_knows_how_late_it_is(here) -> None:
    here.start(10.0)
    here.partition.tick(10.0 + IDLE)
    after = Here(here)
    after.step(0.0)  # its own time is long past
    after.partition.tick(10.1 + 2 * IDLE)
    assert [summary["steps"] for summary in after.produced.summaries] == [1]


def test_where_it_stands_is_where_nobody_has_changed_what_it_kept(here) -> None:
    clock = here.store.get
    assert here.partition.is_current(clock(CLOCK_KEY))
    here.start(10.0)
    here.commit()
    assert here.partition.is_current(clock(CLOCK_KEY))
    here.partition.tick(11.0)
    here.partition.changes()  # they are lost, as in a checkpoint that is aborted
    assert not here.partition.is_current(clock(CLOCK_KEY))
    assert Here(here).partition.is_current(clock(CLOCK_KEY))


def test_what_is_kept_is_what_came_of_runs_that_go_on(here) -> None:
    here.start(1.0)
    here.step(2.0, t=0)
    here.step(3.0, t=0)  # again
    here.start(4.0, "other")
    here.commit()
    assert len(here.records()) == 3
    assert here.partition.state_bytes == sum(map(len, here.records()))
    assert list(here.partition.keys) == ["r", "other"]
    assert len(here.partition) == 2
    here.end(5.0)
    here.commit()
    [record] = here.records()
    assert load_changelog_record(record).key == "other"
    assert here.partition.state_bytes == len(record)
    counts = here.partition.counts
    assert (counts.messages, counts.duplicates, counts.late) == (5, 1, 0)


def test_a_record_is_the_message_as_it_came(here) -> None:
    value = b'{ "type": "start",\n\t"run": "r", "agent": "\\u00e9" }'
    here.hear(Sent(b"r", value, 1.0))
    here.commit()
    [record] = here.records()
    assert load_changelog_record(record) == (0, 1.0, "r", value)


def test_a_mark_is_kept_for_an_hour_after_the_end(here) -> None:
    here.start(1.0)
    here.end(2.0)
    here.commit()
    assert list(here.store) == [marker_key("r")]
    here.start(2.0 + AN_HOUR)
    assert here.partition.counts.late == 1
    after = Here(here)
    after.start(2.0 + AN_HOUR)
    assert after.partition.counts.late == 1
    after.start(2.1 + AN_HOUR)
    assert after.active() == ["r"]
    after.commit()
    assert marker_key("r") not in after.store


def test_spans_of_a_run_that_has_ended_are_late_for_as_long(here) -> None:
    spans = spans_of(WireRun(7))
    here.hear(spans_message(spans, 1.0))
    here.partition.tick(2.0)
    here.hear(spans_message(spans[:3], AN_HOUR))
    assert here.partition.counts.late == 3
    here.partition.tick(2.1 + AN_HOUR)
    # No worker knows any more that it has ended.
    for one in (Here(here), here):
        one.use()
        one.hear(spans_message(spans, 3.0 + AN_HOUR))
        finish(one, [Sent(b"", b"", 3.0 + AN_HOUR)])
        one.commit()
        assert one.produced.summaries[-1]["run"] == TRACE
        assert one.records() == []


@pytest.mark.parametrize(
    "run", ["0x" + TRACE[2:], "0_" + TRACE[2:], f" {TRACE[1:]}", "+" + TRACE[1:]]
)
def test_a_run_whose_name_looks_like_that_of_a_trace(here, run) -> None:
    here.start(1.0, run)
    here.end(1.0, run)
    here.hear(spans_message(spans_of(WireRun(7)), 2.0))
    here.partition.tick(3.0)
    assert [summary["run"] for summary in here.produced.summaries] == [run, TRACE]
    assert here.partition.counts.late == 0


@pytest.mark.parametrize(
    "lost",
    [
        {"type": "outcome", "late_outcome": 3, "outcome": "x"},
        {"type": "end", "steps": 3},
    ],
)
def test_of_what_waited_in_vain_nothing_stays(here, lost) -> None:
    here.event(1.0, **lost)
    here.commit()
    assert len(here.records()) == 1
    here.partition.tick(2.0)
    assert here.produced.dead == ["invalid"]
    after = Here(here)
    after.partition.tick(2.0 + IDLE)
    after.commit()
    assert after.store == {}
    assert (len(after.partition), after.partition.state_bytes) == (0, 0)
    assert after.produced.dead == []  # it was produced before


def test_what_waits_is_refused_as_it_came_also_after_a_move(here) -> None:
    refused = []
    here.event(1.0, type="end", steps=3)
    here.commit()
    after = Here(here)
    after._refuse = lambda message, why: refused.append(message)  # type: ignore[method-assign]
    after.partition._reject = after._refuse
    after.partition.tick(2.0)
    [message] = refused
    assert (message.offset, message.run) == (0, "r")
    assert orjson.loads(message.value or b"") == {"type": "end", "steps": 3, "run": "r"}


def test_spans_that_make_no_run_are_forgotten(here) -> None:
    spans = [span for span in spans_of(WireRun(7)) if span.parent_id is None]
    here.hear(spans_message(spans, 1.0))
    here.partition.tick(2.0 + IDLE)
    here.commit()
    assert here.store == {}


POISON = [
    (b"r", b"{no JSON", "malformed"),
    (b"r", None, "malformed"),
    (None, b"[]", "malformed"),
    (b"r", b'{"type":"end","run":"r","version":2}', "version"),
    (b"x", b'{"type":"end","run":"r"}', "key"),
    (None, b'{"type":"end","run":"r"}', "key"),
    (b"r", b'{"type":"odd","run":"r"}', "invalid"),
    (b"n", b'{"type":"end","run":"n"}', "invalid"),
    (b"r", b'{"type":"outcome","run":"r","late_outcome":0}', "invalid"),
    (TRACE.encode(), b'{"type":"spans","version":1,"run":"%b"}' % TRACE.encode(), "invalid"),
    (
        TRACE.encode(),
        b'{"type":"spans","version":1,"run":"%b","spans":[{"id":"07"}]}' % TRACE.encode(),
        "invalid",
    ),
]


@pytest.mark.parametrize(("key", "value", "reason"), POISON)
def test_what_cannot_be_read_changes_nothing(here, key, value, reason) -> None:
    here.start(1.0)
    here.step(1.0)
    here.commit()
    store, bytes_kept = dict(here.store), here.partition.state_bytes
    with pytest.raises(MessageError) as raised:
        here.hear(Sent(key, value, 1.0))
    assert raised.value.reason == reason
    here.commit()
    assert (here.store, here.partition.state_bytes) == (store, bytes_kept)
    assert here.partition.position == 3
    assert here.active() == ["r"]
    assert here.partition.counts.messages == 2


def test_what_cannot_be_taken_keeps_no_run_alive(here) -> None:
    here.start(1.0)
    here.step(1.0)
    with pytest.raises(MessageError):
        here.event(IDLE, type="outcome", late_outcome=0)
    here.partition.tick(1.1 + IDLE)
    assert len(here.produced.summaries) == 1


DEEP = b"[" * 1_023 + b"]" * 1_023


@pytest.mark.parametrize("field", [b"state", b"outcome", b"args"])
def test_what_is_nested_as_deep_as_it_is_read_is_read_again(here, field) -> None:
    value = b'{"type":"step","run":"r","action":"go","%b":%b}' % (field, DEEP)
    here.hear(Sent(b"r", value, 1.0))
    after = Here(here)
    after.end(2.0)
    assert [summary["steps"] for summary in after.produced.summaries] == [1]


def test_state_that_was_kept_under_other_limits(here, monkeypatch) -> None:
    """There is less room now: some runs have to go, and what came of them later goes with them."""
    for run in ("a", "b", "c"):
        here.start(1.0, run)
        here.step(1.0, run, t=0, late_outcome=0)
    for run in ("a", "b", "c"):
        here.event(2.0, run, type="outcome", late_outcome=0, outcome="x")
    here.commit()
    assert len(here.records()) == 9
    monkeypatch.setattr("support.fleet_log.LIMITS", AssemblyLimits(runs=1))
    after = Here(here)
    assert after.active() == ["c"]
    assert after.produced.dead == []
    after.commit()
    assert [load_changelog_record(record).key for record in after.records()] == ["c"] * 3
    after.end(3.0, "c")
    after.commit()
    assert [summary["run"] for summary in after.produced.summaries] == ["c"]
    assert after.records() == []


def test_state_that_was_kept_with_more_time_to_settle(monkeypatch) -> None:
    """What was in time then is too late now, and what follows it has nothing to follow."""
    monkeypatch.setattr("support.fleet_log.LIMITS", AssemblyLimits(allowed_lateness=3.0))
    here = Here()
    here.start(1.0)
    here.step(1.0, t=1)
    here.step(3.0, t=0, late_outcome=0)
    here.event(3.1, type="outcome", late_outcome=0, outcome="x")
    monkeypatch.setattr("support.fleet_log.LIMITS", AssemblyLimits(allowed_lateness=0.5))
    after = Here(here)
    after.end(4.0)
    after.commit()
    assert [summary["steps"] for summary in after.produced.summaries] == [1]
    assert after.records() == []


def test_runs_that_were_held_count_nothing_until_something_new_comes(here) -> None:
    here.start(1.0)
    here.step(1.0, t=0)
    here.step(1.0, t=0)
    after = Here(here)
    counts = after.partition.counts
    assert (counts.messages, counts.duplicates, counts.late) == (0, 0, 0)
    after.step(2.0, t=0)
    after.step(2.0, t=1)
    counts = after.partition.counts
    assert (counts.messages, counts.duplicates, counts.late) == (2, 1, 0)


@pytest.mark.slow
def test_many_spans_in_one_message(here) -> None:
    spans = spans_of(WireRun(7))
    root = next(span for span in spans if span.parent_id is None)
    many = [
        root._replace(span_id=n + 1, parent_id=root.span_id, name="other", attributes={}, read=None)
        for n in range(50_000)
    ]
    here.hear(spans_message([*many, *spans], 1.0))
    here.partition.tick(2.0)
    assert [summary["run"] for summary in here.produced.summaries] == [TRACE]
    here.commit()
    assert here.records() == []


def test_a_run_that_takes_all_the_room_is_given_up() -> None:
    produced = Produced.nothing()
    worker = WorkerHere(produced, {}, 0)
    worker.partition._max_state_bytes = 10_000
    small, large = spans_of(WireRun(1)), spans_of(WireRun(24))
    log = [spans_message([small[0]], 1.0)]
    log += [spans_message([span], 2.0 + n / 10) for n, span in enumerate(large[:-1])]
    log += [
        event_message({"type": "step", "run": "r", "action": "look"}, 20.0 + n / 10)
        for n in range(99)
    ]
    for _ in log:
        worker.take(log)
        assert worker.partition.state_bytes <= 10_000
    given_up = [summary["run"] for summary in produced.summaries]
    assert f"{large[0].trace_id:032x}" in given_up  # the largest, and not the oldest
    assert f"{small[0].trace_id:032x}" not in given_up
    assert worker.partition.counts.aborted == len(given_up)
    assert worker.engine.snapshot().evicted_runs == len(given_up)
    assert {summary["outcome"] for summary in produced.summaries} == {"unknown"}
    assert worker.partition.counts.late > 0  # of the run that was given up


def test_a_snapshot_that_no_record_holds_is_not_made_and_a_restored_run_is_the_same() -> None:
    def made(most: int) -> tuple[list[dict[str, Any]], WorkerHere]:
        produced, store = Produced.nothing(), dict[bytes, bytes]()
        first = WorkerHere(produced, store, 0)
        first.partition._max_record_bytes = most
        for _ in log[: len(log) // 2]:
            first.take(log)
        second = WorkerHere(produced, store, first.commit())
        assert max(map(len, store.values())) <= most
        for _ in log[len(log) // 2 :]:
            second.take(log)
        return produced.summaries, second

    chance = random.Random(1)
    log = [event_message({"type": "start", "run": "r", "agent": "a"}, 1.0)]
    for n in range(400):
        step = {"type": "step", "run": "r", "action": f"look {chance.random()}", "t": n}
        result = {"type": "outcome", "run": "r", "result": chance.random(), "t": n}
        log += [event_message(step, 2.0 + n / 50), event_message(result, 2.01 + n / 50)]
    log.append(event_message({"type": "end", "run": "r", "steps": 400}, 20.0))
    small, worker = made(2_000)
    assert small == made(1_000_000)[0]
    assert worker.engine.snapshot().evicted_runs == 0
