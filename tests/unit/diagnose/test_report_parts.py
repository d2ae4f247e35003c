"""Clouds, map and graph of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep
from tidegauge.diagnose.report import word_clouds as mapping
from tidegauge.diagnose.report.page_data import MAX_PLACES, auv_interval, positions
from tidegauge.diagnose.report.word_clouds import (
    MAX_PHRASES,
    action_map,
    tf_idf,
    verbs_and_nouns,
    word_clouds,
)
from tidegauge.streaming_metrics import AUV, FinishedRun


def run(*steps: tuple[str, str], labels: str = "") -> ReportedRun:
    report: Any = None  # neither words nor map look at it
    return ReportedRun(
        report,
        "",
        [ReportedStep(name, arguments, "here", labels, 0, 0) for name, arguments in steps],
        [],
    )


def phrases(cloud: dict[str, Any]) -> dict[str, list[int]]:
    return dict(cloud["phrases"])


def test_actions_are_counted_by_runs_with_the_first_word_they_are_given() -> None:
    runs = [
        run(
            ("bash", "find . -name x"),
            ("bash", "find ."),
            ("read", '{"lines": 3, "path": "Notes of May"}'),
        ),
        run(("bash", "ls"), ("respond", "The order")),
    ]
    actions = phrases(word_clouds(runs)[0])
    assert actions == {
        "bash": [0, 1],
        "bash: find": [0],
        "bash: ls": [1],
        "read": [0],
        "read: notes": [0],
        "respond": [1],
    }


def test_reasoning_is_what_thinking_actions_say_in_words_verbs_and_nouns() -> None:
    thought = "I need to check the reservation first"
    clouds = word_clouds([run(("think", thought)), run(("think", thought)), run(("go", "north"))])
    fields = {cloud["name"]: phrases(cloud) for cloud in clouds}
    assert [cloud["of"] for cloud in clouds] == ["actions", *["reasoning"] * 7]
    assert fields["4 words"]["check the reservation first"] == [0, 1]
    assert fields["Verbs"] == {"check": [0, 1], "need": [0, 1]}
    assert fields["Nouns"] == {"reservation": [0, 1]}
    assert fields["Verb and noun"] == {"check reservation": [0, 1]}
    assert fields["1 word"] == {"check": [0, 1], "need": [0, 1], "reservation": [0, 1]}
    assert fields["2 words"]["check the"] == [0, 1]
    assert "the reservation first" in fields["3 words"]
    assert "i" not in fields["1 word"]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("I will open the log file.", {"open file"}),
        ("Look at the shelf", set()),  # a preposition
        ("I need to read. The door is open.", set()),  # another sentence
        ("Buy a very nice big old cheap red table", set()),  # too far away
        ("She takes the mugs and cleans them", {"take mug"}),
        ("", set()),
        ("x" * 100_000 + " " + "!?" * 1_000 + " ᾳ作業 0123", set()),
    ],
)
def test_pairs_of_verb_and_noun(text: str, pairs: set[str]) -> None:
    assert verbs_and_nouns([text])[0].pairs == pairs


def test_only_the_beginning_of_long_texts_is_tagged() -> None:
    [found] = verbs_and_nouns([f"open the door. {'It was so. ' * 20_000} close the window."])
    assert found.pairs == {"open door"}


def test_without_thoughts_the_observations_are_read() -> None:
    clouds = word_clouds(
        [run(("go", "a"), labels="a locked door"), run(("go", "b"), labels="locked door")]
    )
    assert {cloud["of"] for cloud in clouds} == {"actions", "observations"}
    assert phrases(clouds[2]) == {"locked door": [0, 1]}


def test_a_cloud_is_bounded_and_may_be_empty() -> None:
    many = [run(*[(f"tool{n}", "") for n in range(MAX_PHRASES + 20)])]
    assert len(word_clouds(many)[0]["phrases"]) == MAX_PHRASES
    assert [cloud["phrases"] for cloud in word_clouds([])] == [[]]


@pytest.fixture
def many_actions() -> list[ReportedRun]:
    return [
        run(*[("search", f"red shoes size {n}") for n in range(20)]),
        run(*[("bash", f"grep -r token{n} src") for n in range(20)]),
        run(("bash", "grep -r token3 src"), ("think", "what now")),
    ]


def test_like_actions_lie_together_and_know_their_runs(many_actions: list[ReportedRun]) -> None:
    drawn = action_map(many_actions)
    assert drawn is not None
    assert drawn["actions"] == len(drawn["points"]) == 40
    assert all(0 <= point["x"] <= 1 and 0 <= point["y"] <= 1 for point in drawn["points"])
    spots = {
        name: np.array([(p["x"], p["y"]) for p in drawn["points"] if p["name"] == name])
        for name in ("search", "bash")
    }
    apart = np.linalg.norm(spots["search"].mean(axis=0) - spots["bash"].mean(axis=0))
    assert apart > 2 * max(spot.std(axis=0).max() for spot in spots.values())
    [shared] = [point for point in drawn["points"] if "token3 " in point["text"]]
    assert (shared["runs"], shared["steps"]) == ([1, 2], 2)


def test_the_same_runs_give_the_same_map(many_actions: list[ReportedRun]) -> None:
    assert action_map(many_actions) == action_map(many_actions)


def test_every_action_is_counted_where_not_all_are_drawn(many_actions: list[ReportedRun]) -> None:
    drawn = action_map(many_actions, max_points=10)
    assert drawn is not None
    assert (drawn["actions"], len(drawn["points"])) == (40, 10)
    assert sum(point["steps"] for point in drawn["points"]) == 41
    assert {index for point in drawn["points"] for index in point["runs"]} == {0, 1, 2}


def test_any_embedder_will_do(many_actions: list[ReportedRun]) -> None:
    asked: list[list[str]] = []

    def embed(texts: Any) -> Any:
        asked.append(list(texts))
        return np.array([[len(text), text.count("e"), 1.0] for text in texts])

    drawn = action_map(many_actions, embed)
    assert drawn is not None
    assert len(drawn["points"]) == len(asked[0]) == 40
    assert asked[0][0] == "search red shoes size 0"


def test_where_all_is_alike_each_point_is_still_its_own_action(
    many_actions: list[ReportedRun],
) -> None:
    drawn = action_map(many_actions, lambda texts: np.ones((len(texts), 3)), max_points=10)
    assert drawn is not None
    assert min(point["steps"] for point in drawn["points"]) >= 1


@pytest.mark.parametrize("actions", [[], [("go", "")], [("go", str(n)) for n in range(4)]])
def test_too_few_actions_are_no_map(actions: list[tuple[str, str]]) -> None:
    assert action_map([run(*actions)]) is None


def test_actions_without_a_difference_are_still_drawn() -> None:
    drawn = action_map([run(*[("go", "!" * n) for n in range(8)])])
    assert drawn is not None
    assert len(drawn["points"]) == 8
    assert tf_idf(["!", "?"]).shape[0] == 2


def test_the_points_are_those_taken_most_and_some_of_all_the_rest() -> None:
    chosen = mapping._chosen([1] * 50 + [9] * 5 + [1] * 45, 10)
    assert chosen[0] == 0
    assert chosen[-1] == 99
    assert {50, 51, 52, 53, 54} <= set(chosen)
    assert len(set(chosen)) == 10


@pytest.mark.parametrize("walk", [[0], [0, 1], [0, 1, 2, 0, 3], list(range(30)), [0, 0, 0]])
def test_each_place_has_a_spot_of_its_own(walk: list[int]) -> None:
    spots = positions(walk)
    assert len(spots) == len(set(walk)) == len(set(spots))
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in spots)


def test_more_places_than_can_be_looked_at_are_not_drawn() -> None:
    assert len(positions(list(range(MAX_PLACES + 40)))) == MAX_PLACES


def test_the_interval_is_students() -> None:
    auv = AUV()
    auv.update(FinishedRun(True, steps=1, t_max=10))
    assert auv_interval(auv) is None
    auv.update(FinishedRun(True, steps=5, t_max=10))
    low, high = auv_interval(auv) or (None, None)
    assert (low, high) == (0.0, 1.0)  # 12.7 standard errors to either side
    for turn in (2, 3, 4):
        auv.update(FinishedRun(True, steps=turn, t_max=10))
    low, high = auv_interval(auv) or (0.0, 0.0)
    assert low == pytest.approx(auv.value - 2.776445 * auv.standard_error)
    assert high == pytest.approx(auv.value + 2.776445 * auv.standard_error)
