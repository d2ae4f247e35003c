"""The words of an action: what makes two of them alike, and what does not."""

from __future__ import annotations

import re

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.fingerprint import MAX_CHARACTERS, words_of


def words(arguments: object, action: str = "search") -> frozenset[int]:
    return words_of([Call(action, arguments)])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Red SHOES", "shoes, red!"),
        ("red red shoes", "red shoes"),
        ({"q": "red", "n": 7}, '{ "n": 7,  "q": "red" }'),
        ([1, "a"], '[1, "a"]'),
        ("GRÖSSE 9", "größe 9".replace("ß", "ss")),
        ("Привет, мир", "мир привет"),
        ("東京 駅", "駅 東京"),
        ("", "!?"),
        ("null", None),
    ],
)
def test_alike(left: object, right: object) -> None:
    assert words(left) == words(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("red", "red shoes"),
        ("naïve", "naive"),
        ("größe", "grosse"),
        ("👟 red", "red boots"),
        ({"q": "red"}, {"p": "red"}),
        ("a_b", "a b"),
        (7, 70),
    ],
)
def test_not_alike(left: object, right: object) -> None:
    assert words(left) != words(right)


def test_a_tool_is_one_word_that_no_argument_is() -> None:
    assert words("x", action="search") != words("x", action="find")
    assert len(words("x", action="search") & words("x", action="find")) == 1  # the x
    assert not words("", action="search") & words("search @search", action="find")


def test_a_round_of_no_calls_is_like_nothing() -> None:
    assert words_of([]) == frozenset()
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    for _ in range(3):
        signals = engine.step_issued(Step("r", ()))
        assert engine.step_observed(Outcome("r", ())) is not None
    assert signals is not None
    assert (signals.steps, signals.similarity, signals.repetition) == (3, 0.0, 0.0)


def test_a_text_that_is_no_unicode_is_read_all_the_same() -> None:
    assert words("red \udc80 shoes") == words("shoes red \udc80")
    assert words("a", action="odd \udc80") != words("a", action="odd")
    assert len(words(b"\xff\xfe red")) > 1


def test_a_round_has_the_words_of_all_its_calls_in_any_order() -> None:
    red, blue = Call("search", "red"), Call("click", "blue")
    assert words_of([red, blue]) == words_of([blue, red]) == words_of([red]) | words_of([blue])


class TestDigests:
    ONE, OTHER = "sha:00aa11bb00aa11bb", "sha:00aa11bb00aa11bc"

    def test_a_digest_equals_itself_and_nothing_else(self) -> None:
        one = words(self.ONE)
        assert one == words(self.ONE)
        assert len(one) == 1
        assert not one & words(self.OTHER)
        assert not one & words(self.ONE, action="find")  # not the tool's name either
        assert not one & words("00aa11bb00aa11bb")

    def test_what_only_has_a_digest_in_it_is_read_as_words(self) -> None:
        assert len(words({"id": self.ONE})) == 4  # the tool, id, sha, the digits


class TestLimits:
    def test_what_comes_after_the_limit_counts_as_the_same(self) -> None:
        same = "x " * (MAX_CHARACTERS // 2)
        assert words(same + "red") == words(same + "blue")
        assert words(same[:-4] + "red") != words(same[:-4] + "blu")

    @pytest.mark.parametrize("letter", ["x", "ß", "東", "👟"])
    def test_the_limit_is_in_characters_of_any_width(self, letter: str) -> None:
        same = f"{letter}. " * (MAX_CHARACTERS // 3 - 2)
        assert words(same + " a") != words(same + " b")
        assert words(3 * same + " a") == words(3 * same + " b")

    def test_a_huge_argument_has_no_more_words_than_the_limit_allows(self) -> None:
        huge = " ".join(f"word{n}" for n in range(1_000_000))
        assert len(huge) > 1_000 * MAX_CHARACTERS
        assert len(words(huge)) < MAX_CHARACTERS


def without_digits(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def test_a_normaliser_strips_what_means_nothing() -> None:
    left, right = Call("read", "line 17 of a"), Call("read", "line 18 of a")
    assert words_of([left]) != words_of([right])
    assert words_of([left], without_digits) == words_of([right], without_digits)


def repetition_of(engine: Engine, *arguments: object) -> float:
    engine.run_started(RunStarted(run="r"))
    for one in arguments:
        signals = engine.step_issued(Step("r", (Call("read", one),)))
        assert signals is not None
        engine.step_observed(Outcome("r", (CallResult("the same"),)))
    assert signals is not None
    assert signals.repetition is not None
    return signals.repetition


def test_the_engine_compares_what_the_normaliser_leaves() -> None:
    reported = ("line 17", "line 18", "line 19")
    plain = repetition_of(Engine(clock=None, repetition=True), *reported)
    assert plain == pytest.approx(2 * (2 / 4) ** 2)  # read and line of read, line, 17, 18
    stripped = Engine(clock=None, repetition=True, normaliser=without_digits)
    assert repetition_of(stripped, *reported) == 2


def test_the_engine_compares_the_key_of_a_declared_tool() -> None:
    declared = {"read": ToolDeclaration(key=lambda arguments: arguments["q"])}
    reported = [{"q": "red", "request": f"{n} {n + 1} {n + 2} {n + 3}"} for n in (10, 20, 30)]
    assert repetition_of(Engine(clock=None, repetition=True), *reported) < 1
    assert repetition_of(Engine(clock=None, repetition=True, declarations=declared), *reported) == 2


def test_a_likeness_that_was_reported_goes_before_the_words() -> None:
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    for similarity in (0.0, 0.5):
        step = Step("r", (Call("read", f"sha:{similarity}"),), similarity=similarity)
        signals = engine.step_issued(step)
    assert signals is not None
    assert (signals.similarity, signals.repetition) == (0.5, 0.25)
