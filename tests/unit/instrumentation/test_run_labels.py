"""What a run is known by, as frameworks report it."""

from __future__ import annotations

import pytest

from tidegauge.runs.request_metadata import RunLabels, run_labels


class Loud(int):
    def __str__(self) -> str:
        raise AssertionError("called")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("given", "task"),
    [(Loud(7), "7"), (1.5, "1.5"), (True, "True"), (1 << 1_000_000, None), (["a"], None)],
    ids=["subclass", "float", "bool", "huge", "list"],
)
def test_a_label_is_a_plain_text(given: object, task: str | None) -> None:
    assert run_labels({"tidegauge_task": given}) == RunLabels(task=task)


def test_t_max_has_no_more_digits_than_turns_can_have() -> None:
    assert run_labels({"tidegauge_t_max": "9" * 4_000}) == RunLabels()
    assert run_labels({"tidegauge_t_max": Loud(9)}) == RunLabels(t_max=9)
