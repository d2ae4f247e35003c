"""Values of the user's are looked at without calling code of theirs."""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import pytest

import tidegauge
from support.untouchable import untouchable
from tidegauge import testing
from tidegauge.runs.request_metadata import run_labels
from tidegauge.safety.guard import internal_errors
from tidegauge.values import failure_text
from tidegauge.values.safe_reading import (
    count,
    entry,
    first,
    label,
    last,
    number,
    part,
    same_value,
    truth,
)


def test_what_containers_hold_is_read_by_the_base_class() -> None:
    assert entry(untouchable(dict, {"a": 1}), "a") == 1
    assert entry(untouchable(object), "a") is None
    for base in (list, tuple):
        value = untouchable(base, (1, 2, 3))
        assert (first(value), last(value)) == (1, 3)
        assert list(part(value, slice(2))) == [1, 2]
    assert part(untouchable(set), slice(2)) == ()
    assert first([]) is last(()) is None


def test_labels_are_plain_texts() -> None:
    reported = [untouchable(str, "a"), untouchable(int, 7), untouchable(float, 0.5), True]
    assert [(type(one), one) for one in map(label, reported)] == [
        (str, "a"),
        (str, "7"),
        (str, "0.5"),
        (str, "True"),
    ]
    thread = uuid.uuid4()
    assert label(thread) == str(thread)
    for no_label in (untouchable(object), untouchable(list), None, 1 << 100_000):
        assert label(no_label) is None


def test_numbers_are_plain() -> None:
    assert [number(untouchable(int, 7)), number(untouchable(float, 0.5))] == [7.0, 0.5]
    assert type(count(untouchable(int, 7))) is int
    for none in (untouchable(object), None, "7", 1 << 100_000):
        assert number(none) is count(none) is None
    assert count(-1) is count(0.5) is None


class Verdict:
    def __bool__(self) -> bool:
        raise AssertionError("called")


class Many:
    def __len__(self) -> int:
        raise AssertionError("called")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (False, False),
        ("", False),
        ([0], True),
        (object(), True),
        (re.match("a", "a"), True),
        (np.float64(0.5) > 1, False),
        (type("Share", (float,), {})(0.0), False),
    ],
)
def test_the_truth_of_a_value(value: object, found: bool | None) -> None:
    assert truth(value) is found


@pytest.mark.usefixtures("faults_are_swallowed")
def test_what_fails_to_say_its_truth_has_none() -> None:
    assert (truth(Verdict()), truth(Many())) == (None, None)
    assert internal_errors.counts() == {"value": 2}


class Nameless(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise AssertionError("called")

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("called")

    __hash__ = type.__hash__


def test_classes_are_not_asked_for_their_names_or_compared() -> None:
    kind = Nameless("Odd", (), {})
    assert failure_text(ValueError(kind())) == "ValueError: Odd"
    assert not same_value(kind(), kind())


def test_long_lists_are_not_compared() -> None:
    assert not same_value([0] * 20_000, [0] * 20_000)


def test_labels_of_metadata_that_are_none_are_left_out() -> None:
    metadata = {"tidegauge_agent": untouchable(object), "tidegauge_task": untouchable(str, "find")}
    assert run_labels(metadata)._asdict() == {
        "agent": None,
        "task": "find",
        "task_group": None,
        "t_max": None,
        "memory": None,
    }
    assert run_labels({"tidegauge_t_max": "9" * 10_000}).t_max is None


@pytest.mark.parametrize("given", ["x", 3, 0.5, [1], {"a": 1}, (1,)])
def test_a_value_that_runs_code_is_a_name_a_number_and_a_truth_without_it(given: Any) -> None:
    value = untouchable(type(given), given)
    with testing.capture():
        with tidegauge.run(
            **dict.fromkeys(("agent", "task", "task_group", "model", "memory"), value),
            **dict.fromkeys(("t_max", "operations", "height", "reach"), value),
            conversation=value,
            run_id=value,
        ) as run:
            run.act(value, call_id=value)
            run.observe(1, error=value, progress=value, tokens=value, seconds=value)
            run.finish(success=value, reason=value)
        assert type(run.id) is str
