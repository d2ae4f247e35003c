"""Runs that wait are found by place and checkpoint, and are bounded by number and by time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.runs.waiting_runs import WaitingRuns
from tidegauge.testing import SteppedClock


class Run:
    """A run that waits."""

    def __init__(
        self, key: str, checkpoint: str | None = None, *, unique: bool = False, idle: float = 60.0
    ) -> None:
        self.key = key
        self.checkpoint = checkpoint
        self.unique = unique
        self.idle_seconds = idle
        self.last_seen = 0.0
        self.checkpointer: Callable[[], object] | None = None
        self.ending: dict[str, Any] = {}

    def end(self, **ending: Any) -> None:
        self.ending = ending


def no_load(saved: object) -> Any:
    raise AssertionError("nothing was saved")


class Checkpointer:
    """Stores checkpoints."""


NOT_RESUMED = {"outcome": "unknown", "reason": "not resumed", "evicted": False}


@pytest.mark.parametrize(
    ("waiting", "checkpoint", "found"),
    [
        (["1", "2"], "1", 0),
        (["1", "2"], "2", 1),
        (["1"], "3", 0),  # someone wrote to the thread meanwhile
        (["1", "2"], "3", None),  # to one of two: it is not known which
        (["2"], "1", None),  # from before: another thread of this name
        (["1", "4"], "3", 0),
        (["1", None], None, 1),
        ([None], "3", 0),
        ([], "1", None),
    ],
)
def test_a_run_is_found_by_its_checkpoint(
    waiting: list[str | None], checkpoint: str | None, found: int | None
) -> None:
    runs = WaitingRuns()
    held = [Run("place", one) for one in waiting]
    for run in held:
        runs.add(run)
    runs.add(Run("elsewhere", checkpoint))
    taken = runs.take("place", checkpoint, no_load)
    assert taken is (None if found is None else held[found])
    assert len(runs) == len(held) + 1 - (found is not None)
    assert runs.take("elsewhere", checkpoint, no_load) is not None


def test_a_checkpoint_is_resumed_once_whatever_else_waits_at_its_place() -> None:
    runs = WaitingRuns()
    branch, run = Run("place", "1"), Run("place", "2")
    runs.add(branch)
    runs.add(run)
    assert runs.take("place", "2", no_load) is run
    assert runs.take("place", "2", no_load) is None
    runs.add(run)
    assert runs.take("place", "2", no_load) is run, "it has waited there twice"
    assert runs.take("place", "3", no_load) is branch
    runs.add(Run("place", "0"))
    assert runs.take("place", "3", no_load) is None
    assert runs.unknown == 2


def test_of_two_runs_that_wait_at_one_place_the_later_one_is_resumed() -> None:
    runs = WaitingRuns()
    for unique, checkpoint in ((False, None), (True, "1")):
        first, second = (Run("place", checkpoint, unique=unique) for _ in range(2))
        runs.add(first)
        runs.add(second)
        assert first.ending == NOT_RESUMED
        assert len(runs) == 1
        assert runs.take("place", checkpoint, no_load) is second


def test_a_thread_that_continues_gives_up_the_runs_of_its_checkpointer_only() -> None:
    runs = WaitingRuns()
    mine, other, unknown = (Run("place", number) for number in "123")
    one, two = Checkpointer(), Checkpointer()
    mine.checkpointer, other.checkpointer = weakref.ref(one), weakref.ref(two)
    for run in (mine, other, unknown):
        runs.add(run)
    runs.give_up("place", one)
    assert [run.ending for run in (mine, other, unknown)] == [NOT_RESUMED, {}, {}]
    assert len(runs) == 2


def test_runs_are_bounded_by_number_and_by_time() -> None:
    clock = SteppedClock()
    runs = WaitingRuns(max_runs=2, clock=clock)
    first, second, third = (Run(key) for key in "abc")
    for run in (first, second, third):
        runs.add(run)
    assert first.ending == {"outcome": "unknown", "reason": "too many runs", "evicted": True}
    assert not runs.is_idle(second)
    clock.advance(61.0)
    assert runs.is_idle(second)
    runs.add(Run("d"))
    assert (
        second.ending == third.ending == {"outcome": "unknown", "reason": "idle", "evicted": True}
    )
    assert len(runs) == 1


def test_nothing_waits_any_more_when_they_are_closed() -> None:
    runs = WaitingRuns()
    before, after, discarded = (Run(key) for key in "abc")
    runs.add(before)
    runs.add(discarded)
    runs.discard(discarded)
    runs.discard(discarded)
    runs.close()
    runs.add(after)
    assert before.ending == after.ending == NOT_RESUMED
    assert not discarded.ending
    assert len(runs) == 0
    assert not runs._places
