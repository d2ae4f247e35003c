"""Records of decisions come at least once and overtake each other: the table stays the same."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.fleet.decision_cache import DecisionTable
from tidegauge.fleet.kafka_records import DecisionAction, DecisionRecord

RUNS = ["t", "t-1", "t-2", "alone"]


@st.composite
def logs(draw: Any) -> list[DecisionRecord]:
    """What workers wrote, in order: later steps later, each moment once."""
    actions = draw(st.lists(st.sampled_from(get_args(DecisionAction)), max_size=25))
    log = []
    step = 0
    for time, action in enumerate(actions):
        run = draw(st.sampled_from(RUNS))
        step += draw(st.integers(0, 1))
        trace_id = None if run == "alone" else "t"
        log.append(DecisionRecord(run, action, step, trace_id=trace_id, time=float(time)))
    return log


def holding(log: list[DecisionRecord]) -> dict[str, DecisionRecord]:
    """What holds, in the plainest form: the newest; but a stop stays, and the end more so."""
    found: dict[str, DecisionRecord] = {}
    for record in log:
        held = found.get(record.run)
        if held is not None and held.action == "ended" and record.action != "ended":
            continue
        if held is not None and held.action == "stop" and record.action != "ended":
            continue
        found[record.run] = record
    return found


def decisions_of(table: DecisionTable) -> list[DecisionRecord | None]:
    return [table.find(name) for name in RUNS]


@given(logs(), st.data())
def test_any_order_of_duplicates_gives_the_table_of_the_log(log: Any, data: Any) -> None:
    table = DecisionTable()
    for record in log:
        table.take(record, 0.0)
    expected = holding(log)
    for run in ("t-1", "t-2", "alone"):
        assert table.find(run) == expected.get(run)
    assert {record.run: record for record in table.of_trace("t")} == {
        run: record for run, record in expected.items() if run != "alone"
    }

    again = DecisionTable()
    copies = st.permutations(log + log) if log else st.just([])
    for record in data.draw(copies):
        again.take(record, 0.0)
    assert decisions_of(again) == decisions_of(table)
    assert len(again) == len(table) == len(expected)


@given(logs(), st.integers(1, 3))
def test_it_is_bounded_and_what_is_dropped_is_counted(log: Any, most: int) -> None:
    table = DecisionTable(max_runs=most)
    changed = sum(table.take(record, 0.0) for record in log)
    assert len(table) <= most
    assert table.dropped <= changed
    runs = {record.run for record in log}
    assert len(table) + table.dropped >= len(runs)
    assert set(map(id, table)) <= set(map(id, log))
