"""What of a history is new, whatever happens to the history between two model calls."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.tracer.message_history import MessageFormat, MessageHistory, Prompt, Reply
from tidegauge.tracer.span_texts import Contents

POSITION = "tidegauge.messages.position"
COUNT = "tidegauge.messages.count"


def message(said: list[str]) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": said[0]}]}


def tools(given: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "name": name} for name in given]


FORMAT = MessageFormat(message, lambda one, other: one == other, tools)


def say(*texts: str) -> list[list[str]]:
    """Messages that are no objects of before: a list is never cached."""
    return [[text] for text in texts]


def asked(
    history: MessageHistory, messages: Sequence[list[str]], *, whole: bool = False, **more: Any
) -> dict[str, Any]:
    contents = Contents(captured=True, whole_history=whole)
    found: dict[str, Any] = {}
    history.asked(found, Prompt(FORMAT, messages, **more), contents)
    return found


def carried(found: dict[str, Any]) -> list[str]:
    """The texts of the messages."""
    given = json.loads(found.get("gen_ai.input.messages", "[]"))
    return [one["parts"][0]["content"] for one in given]


def test_only_what_is_new_is_carried() -> None:
    history, messages = MessageHistory(), say("a")
    found = asked(history, messages)
    assert (carried(found), found[POSITION], found[COUNT]) == (["a"], 0, 1)
    history.answered(Reply([], messages[:0]))
    messages = [*messages, *say("b", "c")]
    found = asked(history, messages)
    assert (carried(found), found[POSITION], found[COUNT]) == (["b", "c"], 1, 3)
    found = asked(history, messages)
    assert (carried(found), found[POSITION]) == ([], 3)


@pytest.mark.parametrize("fresh", [False, True], ids=["the same objects", "equal ones"])
def test_the_answer_of_the_model_is_not_carried_again(fresh: bool) -> None:
    history, messages, answer = MessageHistory(), say("a"), say("answer")
    asked(history, messages)
    history.answered(Reply([], answer))
    again = say("a", "answer") if fresh else [*messages, *answer]
    found = asked(history, [*again, *say("result")])
    assert (carried(found), found[POSITION]) == (["result"], 2)


@pytest.mark.parametrize(
    ("before", "after", "new", "position"),
    [
        ("abc", "bcd", "d", 2),  # trimmed at the start
        ("abcd", "acde", "e", 3),  # one was removed
        ("abcd", "scde", "scde", 0),  # summarised: from the summary on
        ("abcd", "asde", "sde", 1),  # the first one was kept
        ("abcd", "abxy", "xy", 2),  # branched
        ("abcd", "ab", "", 2),  # went back
        ("abc", "cba", "ba", 1),  # in another order
        ("aa", "aaa", "a", 2),  # said again
        ("ab", "", "", 0),
    ],
)
def test_a_history_that_was_rewritten(before: str, after: str, new: str, position: int) -> None:
    history = MessageHistory()
    asked(history, say(*before))
    found = asked(history, say(*after))
    assert ("".join(carried(found)), found[POSITION]) == (new, position)


@given(st.lists(st.tuples(st.sampled_from(["grow", "trim", "edit", "back"]), st.integers(0, 99))))
def test_what_is_not_carried_was_known_in_order(changes: list[tuple[str, int]]) -> None:
    history, messages, known = MessageHistory(), say("start"), list[str]()
    names = iter(range(10_000))
    for change, seed in [("grow", 0), *changes]:
        chance = random.Random(seed)
        if change == "grow":
            messages = [*messages, *say(*(str(next(names)) for _ in range(chance.randint(1, 3))))]
        elif messages:
            at = chance.randrange(len(messages))
            if change == "trim":
                messages = messages[at:]
            elif change == "back":
                messages = messages[:at]
            else:
                messages = [*messages[:at], *say(str(next(names))), *messages[at + 1 :]]
        grows = [one[0] for one in messages[: len(known)]] == known
        found = asked(history, messages)
        texts = [one[0] for one in messages]
        position = found[POSITION]
        assert carried(found) == texts[position:]
        left = iter(known)
        assert all(text in left for text in texts[:position])  # a part of it, in order
        if grows:
            assert position == len(known)
        known = texts


def test_instructions_and_tools_are_carried_when_they_are_new_or_changed() -> None:
    history = MessageHistory()
    names = ("gen_ai.system_instructions", "gen_ai.tool.definitions")

    def shown(system: str, *offered: str, whole: bool = False) -> list[bool]:
        found = asked(history, say("a"), system=(system,), tools=list(offered), whole=whole)
        return [name in found for name in names]

    assert shown("be brief", "look") == [True, True]
    assert shown("be brief", "look") == [False, False]
    assert shown("be long", "look") == [True, False]
    assert shown("be long", "look", "push") == [False, True]
    assert shown("be long", "look", "push", whole=True) == [True, True]


def test_the_whole_history_can_be_asked_for() -> None:
    history = MessageHistory()
    for texts in (("a",), ("a", "b")):
        found = asked(history, say(*texts), whole=True)
        assert (carried(found), found[POSITION]) == (list(texts), 0)


def test_a_long_history_is_cut_at_its_beginning() -> None:
    found = asked(MessageHistory(), say(*[f"{n}" + "x" * 8_000 for n in range(20)]))
    assert len(found["gen_ai.input.messages"]) <= 65_536 + 2
    assert found[POSITION] == 20 - len(carried(found)) == 12
    assert carried(found)[-1].startswith("19")


def test_one_message_is_carried_however_long_it_is() -> None:
    found = asked(MessageHistory(), say("x" * 1_000_000))
    assert carried(found) == ["x" * 8_192 + "…"]
