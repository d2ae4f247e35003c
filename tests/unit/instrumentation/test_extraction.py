"""The joining of what extractors say, and what a faulty one costs."""

from __future__ import annotations

import itertools

import pytest

from tidegauge.events import Call, CallResult, Task
from tidegauge.runs.extraction import (
    MAX_ITEMS,
    Observation,
    extract_observation,
    extract_reach,
    extract_uses,
    extractor,
)
from tidegauge.safety.guard import internal_errors

LOOK = Call("look", {"at": "door"})
SEEN = CallResult("a door")


def saying(**fields):
    """An extractor that says the same of every call."""
    return extractor(lambda call, result: Observation(**fields))


class Faulty:
    reach = "anywhere"

    def uses(self, call):
        raise RuntimeError("uses")

    def observe(self, call, result):
        raise RuntimeError("observe")


def test_nothing_is_reported_without_extractors():
    assert extract_observation((), [LOOK], [SEEN]) == Observation()
    assert extract_uses((), [LOOK]) == ()
    assert extract_reach(()) is None


def test_the_agent_stands_where_the_last_call_led():
    rooms = extractor(
        lambda call, result: Observation(place=call.arguments, exits=(f"from {call.arguments}",))
    )
    calls = [Call("go", "hall"), Call("go", "attic"), Call("wait")]
    seen = extract_observation([rooms], calls, [SEEN] * 3)
    assert (seen.place, seen.exits) == ("attic", ("from attic",))


def test_exits_without_a_place_are_of_no_place():
    assert extract_observation([saying(exits=("a",))], [LOOK], [SEEN]).exits is None


def test_of_several_extractors_the_first_names_the_place_of_a_call():
    first, second = saying(place="hall", exits=("attic",)), saying(place="page", exits=("link",))
    seen = extract_observation([saying(), first, second], [LOOK], [SEEN])
    assert (seen.place, seen.exits) == ("hall", ("attic",))


def test_tasks_achievements_and_entities_of_all_are_joined_each_once():
    one = saying(tasks=(Task("a"), Task("b")), achieved=("a",), mentions=("x", "y"))
    two = saying(tasks=(Task("b", (("a",),)), Task("c")), achieved=("a", "b"), mentions=("y", "z"))
    seen = extract_observation([one, two], [LOOK], [SEEN])
    assert seen.tasks == (Task("a"), Task("b"), Task("c"))
    assert seen.achieved == ("a", "b")
    assert seen.mentions == ("x", "y", "z")


def test_tasks_without_a_place_are_not_taken_for_those_of_another_call():
    todo = extractor(
        lambda call, result: (
            Observation(tasks=(Task("b"),), achieved=("a",)) if call.action == "plan" else None
        )
    )
    rooms = extractor(
        lambda call, result: (
            Observation("hall", tasks=(Task("c"),)) if call.action == "look" else None
        )
    )
    seen = extract_observation([todo, rooms], [Call("plan"), LOOK], [SEEN, SEEN])
    assert (seen.place, seen.tasks, seen.achieved) == ("hall", (Task("c"),), ("a",))
    assert extract_observation([todo, rooms], [Call("plan")], [SEEN]).tasks == (Task("b"),)


def test_progress_is_the_one_reported_last_and_lies_between_0_and_1():
    one, two, none = saying(progress=0.25), saying(progress=7), saying()
    assert extract_observation([one, two, none], [LOOK], [SEEN]).progress == 1.0
    assert extract_observation([two, one], [LOOK], [SEEN]).progress == 0.25


def test_uses_of_a_round_are_joined_each_once():
    words = extractor(uses=lambda call: str(call.arguments).split())
    calls = [Call("say", "a b"), Call("say", "b c")]
    assert extract_uses([words, words], calls) == ("a", "b", "c")


def test_a_result_that_is_missing_is_left_out():
    calls = [Call("go", "hall"), Call("go", "attic")]
    rooms = extractor(lambda call, result: Observation(place=call.arguments))
    assert extract_observation([rooms], calls, [SEEN]).place == "hall"


def test_at_most_so_many_things_are_taken_even_of_an_endless_answer():
    endless = saying(
        place="hall",
        exits=itertools.count(),
        tasks=(Task(number) for number in itertools.count()),
        achieved=itertools.count(),
        mentions=itertools.count(),
    )
    seen = extract_observation([endless], [LOOK] * 3, [SEEN] * 3)
    assert list(map(len, (seen.exits, seen.tasks, seen.achieved, seen.mentions))) == [MAX_ITEMS] * 4
    assert len(extract_uses([extractor(uses=lambda call: itertools.count())], [LOOK])) == MAX_ITEMS


@pytest.mark.parametrize(
    "wrong",
    [
        Faulty(),
        saying(place=object()),
        saying(exits=(object(),)),
        saying(exits=7),
        saying(tasks=("",)),
        saying(progress="much"),
        extractor(lambda call, result: "hall"),  # type: ignore[arg-type, return-value]
        extractor(lambda call: None),  # type: ignore[arg-type, misc]
        object(),
    ],
)
def test_a_faulty_extractor_costs_its_answer_and_no_more(wrong, faults_are_swallowed):
    right = saying(place="hall")
    assert extract_observation([wrong, right], [LOOK], [SEEN]) == Observation("hall")
    assert internal_errors.counts() == {"extractor": 1}


def test_what_a_call_uses_survives_a_faulty_extractor(faults_are_swallowed):
    right = extractor(uses=lambda call: ["door"])
    wrong = extractor(uses=lambda call: [object()])
    assert extract_uses([Faulty(), wrong, right], [LOOK]) == ("door",)  # type: ignore[list-item]
    assert internal_errors.counts() == {"extractor": 2}


def test_a_fault_is_raised_where_tests_ask_for_it():
    with pytest.raises(RuntimeError, match="observe"):
        extract_observation([Faulty()], [LOOK], [SEEN])  # type: ignore[list-item]


def test_the_first_opinion_on_reach_counts(faults_are_swallowed):
    opinions = [extractor(), extractor(reach="anywhere"), extractor(reach="adjacent")]
    assert extract_reach(opinions) == "anywhere"
    assert extract_reach([object(), extractor(reach="far"), extractor(reach="adjacent")]) == (  # type: ignore[arg-type, list-item]
        "adjacent"
    )
    assert internal_errors.counts() == {"extractor": 2}
