"""The map from a framework's ids to runs is bounded, and empty when its runs have ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tidegauge import testing
from tidegauge.runs import run_map
from tidegauge.runs.run_map import RunMap, RunScope


class OpenRun:
    def __init__(self, root: str) -> None:
        self.root = root
        self.recorded: Any = None
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[str, None] = OrderedDict()
        self.ended: dict[str, Any] | None = None

    def end(self, **fields: Any) -> None:
        self.ended = fields


def opened(runs: RunMap[str, OpenRun], root: str) -> OpenRun:
    run = OpenRun(root)
    runs.open(RunScope(run))
    return run


def test_what_is_open_is_found_and_what_has_ended_is_not() -> None:
    runs: RunMap[str, OpenRun] = RunMap()
    run = opened(runs, "root")
    runs.enter("inside", RunScope(run))
    found = runs.find("inside")
    assert found is not None
    assert runs.find("root").run is found.run is run
    assert runs.find(None) is None
    assert runs.leave("inside") is found
    assert runs.leave("inside") is None
    runs.enter("other", RunScope(run))
    runs.close(run)
    assert len(runs) == 0
    runs.enter("late", RunScope(run))
    assert len(runs) == 0, "a run that has ended takes nothing in"
    assert not run.open_ids


def test_one_run_too_many_ends_the_one_idle_for_longest() -> None:
    runs: RunMap[str, OpenRun] = RunMap(max_runs=2)
    first, second = opened(runs, "1"), opened(runs, "2")
    runs.enter("inside", RunScope(second))
    runs.seen(first)
    third = opened(runs, "3")
    assert second.ended == {"outcome": "unknown", "reason": "too many runs", "evicted": True}
    assert first.ended is third.ended is None
    assert runs.find("inside") is None
    assert len(runs) == 2


def test_an_idle_run_is_ended_when_the_next_one_opens() -> None:
    clock = testing.SteppedClock()
    runs: RunMap[str, OpenRun] = RunMap(idle_seconds=10.0, clock=clock)
    first, second = opened(runs, "1"), opened(runs, "2")
    clock.advance(8.0)
    runs.seen(second)
    clock.advance(4.0)
    opened(runs, "3")
    assert first.ended == {"outcome": "unknown", "reason": "idle", "evicted": True}
    assert second.ended is None


def test_a_run_holds_a_bounded_number_of_ids(monkeypatch: Any) -> None:
    monkeypatch.setattr(run_map, "MAX_OPEN_IDS", 3)
    runs: RunMap[str, OpenRun] = RunMap()
    run = opened(runs, "root")
    for key in "abcd":
        runs.enter(key, RunScope(run))
    assert runs.find("a") is None
    assert list(run.open_ids) == ["b", "c", "d"]
    assert len(runs) == 4
