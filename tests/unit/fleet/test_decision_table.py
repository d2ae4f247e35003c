"""The table of decisions: which record of a run holds, and what is forgotten."""

from __future__ import annotations

from tidegauge.fleet.decision_cache import DecisionTable
from tidegauge.fleet.kafka_records import DecisionRecord


def table_of(*records, now=0.0, **limits):
    table = DecisionTable(**limits)
    for record in records:
        table.take(record, now)
    return table


def action(table, run_or_trace):
    found = table.find(run_or_trace)
    return None if found is None else found.action


def test_the_newest_holds_by_step_and_then_by_time() -> None:
    table = table_of(
        DecisionRecord("r", "nudge", step=5, time=2.0),
        DecisionRecord("r", "block", step=4, time=9.0),
        DecisionRecord("r", "go_on", step=5, time=1.0),
    )
    assert action(table, "r") == "nudge"
    assert table.take(DecisionRecord("r", "go_on", step=5, time=3.0), 0.0)
    assert action(table, "r") == "go_on"


def test_the_first_stop_stays() -> None:
    first = DecisionRecord("r", "stop", step=4, time=1.0, reason="loop_repeats")
    later = DecisionRecord("r", "stop", step=6, time=2.0, reason="steps")
    for order in ([first, later], [later, first]):
        table = table_of(*order, DecisionRecord("r", "go_on", step=9, time=9.0))
        assert table.find("r") == first


def test_a_run_that_ended_has_ended_whatever_comes() -> None:
    ended = DecisionRecord("r", "ended", step=9)
    table = table_of(ended, DecisionRecord("r", "stop", step=10))
    assert table.find("r") == ended
    assert list(table) == []


def test_a_duplicate_changes_nothing_and_says_so() -> None:
    record = DecisionRecord("r", "nudge", step=1)
    table = DecisionTable()
    assert [table.take(record, 0.0) for _ in range(3)] == [True, False, False]


def test_of_a_trace_the_severest_holds_that_has_not_ended() -> None:
    table = table_of(
        DecisionRecord("t", "nudge", step=8, trace_id="t"),
        DecisionRecord("t-1", "stop", step=3, trace_id="t"),
        DecisionRecord("t-2", "block", step=5, trace_id="t"),
        DecisionRecord("elsewhere", "stop", step=1, trace_id="u"),
    )
    assert table.find("t").run == "t-1"
    assert table.find("t-2").action == "block"
    table.take(DecisionRecord("t-1", "ended", trace_id="t"), 0.0)
    assert table.find("t").run == "t-2"
    table.take(DecisionRecord("t-2", "ended", trace_id="t"), 0.0)
    assert table.find("t") == DecisionRecord("t", "nudge", step=8, trace_id="t")
    table.take(DecisionRecord("t", "ended", trace_id="t"), 0.0)
    assert action(table, "t") == "ended"


def test_a_run_without_a_trace_is_found_by_its_id_alone() -> None:
    table = table_of(DecisionRecord("r", "stop"))
    assert (action(table, "r"), action(table, "other")) == ("stop", None)


def test_ended_runs_are_known_for_a_while() -> None:
    table = table_of(DecisionRecord("r", "ended", trace_id="t"), ended_seconds=10.0)
    table.forget_ended(9.9)
    assert (action(table, "r"), action(table, "t"), len(table)) == ("ended", "ended", 1)
    table.forget_ended(10.0)
    assert (action(table, "r"), action(table, "t"), len(table)) == (None, None, 0)
    assert (table.dropped, table._traces) == (0, {})


def test_of_too_many_runs_the_ended_go_first_and_then_the_oldest() -> None:
    table = table_of(
        *(DecisionRecord(f"r{number}", "nudge", step=0, trace_id="t") for number in range(3)),
        DecisionRecord("r2", "ended", trace_id="t"),
        DecisionRecord("r0", "block", step=1, trace_id="t"),
        max_runs=3,
    )
    table.take(DecisionRecord("r3", "nudge"), 0.0)
    assert [action(table, f"r{number}") for number in range(4)] == ["block", "nudge", None, "nudge"]
    table.take(DecisionRecord("r4", "nudge"), 0.0)
    assert [action(table, f"r{number}") for number in range(5)] == [
        "block",
        None,
        None,
        "nudge",
        "nudge",
    ]
    assert (len(table), table.dropped) == (3, 2)
