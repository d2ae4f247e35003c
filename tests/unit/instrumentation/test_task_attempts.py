"""What the attempts of a task have in common."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.runs.task_attempts import Attempts, FailedRun
from tidegauge.runs.turn_calls import Turn, TurnCall


class Tracker:
    """Of a run without open turns."""

    run = "r1"

    def find(self, step: int | None) -> Turn | None:
        return None


TRACKER = Tracker()


def turn(*arguments: object) -> Turn:
    return Turn([TurnCall("look", one) for one in arguments])


def attempt(attempts: Attempts, values: list[int]) -> int:
    """Makes a turn for each value. Returns how many were new."""
    new = 0
    for value in values:
        if attempts.find(TRACKER, [("look", value)]) is None:
            attempts.made(TRACKER, turn(value))
            new += 1
    return new


@given(st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=4), st.booleans())
def test_each_value_counts_as_often_as_in_the_attempt_that_has_it_most(
    tries: list[list[int]], saved: bool
) -> None:
    attempts = Attempts(None)
    new = attempt(attempts, tries[0])
    for values in tries[1:]:
        if saved:
            state = json.loads(json.dumps(attempts.state()))
            attempts = Attempts.load(state, {TRACKER.run: TRACKER})
        attempts.begin_again()
        new += attempt(attempts, values)
    assert new == sum(max(values.count(value) for values in tries) for value in range(4))


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=2, max_size=4))
def test_a_task_in_a_task_that_is_tried_again(tries: list[list[int]]) -> None:
    """The inner task fails once in every attempt of the outer one, and does the same again."""
    outer = Attempts(None)
    new = 0
    for number, values in enumerate(tries):
        if number:
            outer.begin_again()
        inner = Attempts(outer)
        new += attempt(inner, values)
        inner.begin_again()
        assert attempt(inner, values) == 0
        inner.close(failed=True)
    assert new == sum(max(values.count(value) for values in tries) for value in range(4))


def test_calls_of_a_turn_are_found_in_any_order_and_only_all_together() -> None:
    attempts, made = Attempts(None), turn(1, 2, 2)
    attempts.made(TRACKER, made)
    attempts.begin_again()
    assert made.held
    for wrong in ([1, 2], [1, 1, 2], [1, 2, 2, 2]):
        assert attempts.find(TRACKER, [("look", one) for one in wrong]) is None
    assert attempts.find(Tracker(), [("look", one) for one in (2, 1, 2)]) is None
    found = attempts.find(TRACKER, [("look", one) for one in (2, 1, 2)])
    assert found == [made.calls[1], made.calls[0], made.calls[2]]
    assert not made.held
    assert attempts.find(TRACKER, [("look", one) for one in (2, 1, 2)]) is None


def test_what_is_remembered_is_bounded() -> None:
    attempts = Attempts(None)
    assert attempt(attempts, list(range(2_000))) == 2_000
    attempts.begin_again()
    assert attempt(attempts, list(range(2_000))) == 1_000
    attempts.begin_again()
    assert attempt(attempts, list(range(101, 110))) == 9  # it left out more than 100


class Run:
    """A run, as far as attempts look at it."""

    def __init__(self) -> None:
        self.recorded: Any = self
        self.ended = False

    def end(self) -> None:
        assert not self.ended
        self.ended = True


def failing(attempts: Attempts) -> tuple[Run, TurnCall]:
    run, call = Run(), turn(1).calls[0]
    attempts.fail(FailedRun(run, call, whole=False, end=run.end))
    return run, call


def test_a_run_that_failed_is_continued_by_the_next_attempt_or_ends() -> None:
    attempts = Attempts(None)
    run, call = failing(attempts)
    assert attempts.continued(call) is None, "the same attempt does not continue it"
    attempts.begin_again()
    assert attempts.continued(turn(1).calls[0]) is None
    assert attempts.continued(call) is run
    attempts.close(failed=False)
    assert not run.ended

    attempts = Attempts(None)
    run, _ = failing(attempts)
    attempts.begin_again()
    attempts.close(failed=False)
    assert run.ended


def test_a_run_that_failed_may_fail_the_task_around_it() -> None:
    outer = Attempts(None)
    inner = Attempts(outer)
    run, call = failing(inner)
    inner.close(failed=True)
    assert not run.ended
    outer.begin_again()
    assert Attempts(outer).continued(call) is run
    run, _ = failing(outer)
    outer.caught()
    assert run.ended
