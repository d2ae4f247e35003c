"""What advice says to a model: what repeats, what is untried, no more than it can read."""

from __future__ import annotations

import pytest

from tidegauge.events import Situation
from tidegauge.policies import advise


def test_what_repeats_and_what_to_do() -> None:
    assert advise("3 rounds in a row failed", Situation()).splitlines() == [
        "You make no progress: 3 rounds in a row failed.",
        "Do something that you have not tried, or finish and say what is missing.",
    ]


def test_everything_that_is_open_is_named() -> None:
    situation = Situation(
        place="hall",
        unexplored=("cellar", (3, 4)),
        pending=("water the plants", "feed the cat"),
        repeated=("look", "wait"),
    )
    assert advise("it repeats", situation).splitlines() == [
        "You make no progress: it repeats (look, wait).",
        "Not visited yet: cellar, (3, 4).",
        "Ready to be done: water the plants, feed the cat.",
        "Do something that you have not tried, or finish and say what is missing.",
    ]


@pytest.mark.parametrize(
    ("repeated", "same"),
    [
        ((), ""),
        (("look",), " (look); you saw the same each time it ran"),
        (("edit", "test"), " (edit, test); you saw the same each time they ran"),
    ],
)
def test_in_place_of_a_result_it_says_what_is_known_and_how_to_wait(
    repeated: tuple[str, ...], same: str
) -> None:
    advice = advise("it repeats", Situation(repeated=repeated), blocked=True)
    assert advice.splitlines() == [
        f"This call was not run: it repeats{same}.",
        "If you wait for something, wait longer between looks.",
        "Do something that you have not tried, or finish and say what is missing.",
    ]


def test_long_names_are_shortened() -> None:
    advice = advise("it repeats", Situation(pending=("x" * 101, "y" * 100)))
    assert f"{'x' * 99}…, {'y' * 100}." in advice
