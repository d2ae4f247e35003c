"""The share of an answer that chants equals its definition, however it is cut into tokens."""

from __future__ import annotations

import zlib
from itertools import accumulate

import pytest
from benchmarks.chanting_texts import CHANTS, ORDINARY
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge import chanting
from tidegauge.chanting import Chanting, chanting_in

RULES = "-=*_.#~+/\\"


def kind_of(letter: str) -> tuple[str, int]:
    """The kind of a piece that begins with this character, and its longest length."""
    if (letter.isascii() and letter.isalpha()) or "\u00c0" <= letter <= "\u0dff":
        return "word", 32
    if letter in "0123456789":
        return "number", 9
    if letter in RULES or "\u2500" <= letter <= "\u259f":
        return "rule", 160
    if letter.isspace():
        return "blank", 160
    return "sign", 1


def cut(text: str) -> list[str]:
    """A text in its pieces, character by character."""
    pieces: list[str] = []
    for letter in text:
        kind, longest = kind_of(letter)
        last = pieces[-1] if pieces else ""
        if last and kind_of(last[0])[0] == kind and len(last) < longest:
            pieces[-1] += letter
        else:
            pieces.append(letter)
    return pieces


def checksum(piece: str, *, word: bool = False) -> str:
    number = zlib.crc32(piece.encode("utf-8", "surrogatepass"))
    return chr(0x10000 + number % 0x70000) if word else chr(0x80000 + number % 0x90000)


def compared(text: str) -> list[str]:
    """What is compared of a text: u of the definition."""
    kept: list[str] = []
    numbers: list[tuple[tuple[str, str], int]] = []  # places and numbers, in their order
    for piece in cut(text)[:-1]:
        kind, longest = kind_of(piece[0])
        full = len(piece) == longest
        if kind == "word":
            kept += [checksum(piece, word=True)] * (16 if full else 1)
        elif kind == "blank":
            kept += [checksum(" ")] * (160 if full else 0)
        elif kind == "number":
            near = kept[-10:]
            shown = piece
            if sum(one < chr(0x80000) for one in near) >= 6:
                place = (near[-2], near[-1])
                recent = dict(last_places(numbers, 32))
                grown = int(piece) - recent.get(place, int(piece))
                shown = f"{grown:+}" if grown else piece
                numbers.append((place, int(piece)))
            kept += [checksum(shown)] * (3 if full else 1)
        else:
            kept += [checksum(piece)] * (160 if full and kind == "rule" else 1)
    return kept


def last_places(
    numbers: list[tuple[tuple[str, str], int]], most: int
) -> list[tuple[tuple[str, str], int]]:
    """The last number at each of the places that come last."""
    found: dict[tuple[str, str], int] = {}
    for place, number in reversed(numbers):
        if place not in found:
            if len(found) == most:
                break
            found[place] = number
    return list(found.items())


def batch(text: str) -> float:
    """The share of a whole text, by its definition."""
    read = text[: min(len(text), chanting.MOST) // 64 * 64]
    u = "".join(compared(read)) if read else ""
    last = len(u) // 8
    repeats = 0
    for k in range(max(last - 15, 1), last + 1):
        begin = 8 * k - 32
        if begin > 0:
            repeats += u[max(begin - 600, 0) : begin].count(u[begin : 8 * k]) >= 2
    return repeats / 16


def differences(text: str, cuts: list[int]) -> list[tuple[int, float, float]]:
    """Where the share after each token, and the highest one, differ from the definition."""
    found: list[tuple[int, float, float]] = []
    stream, begin, known = Chanting(), 0, {}
    for end in [*cuts, len(text)]:
        stream.add(text[begin:end])
        whole = end // 64 * 64
        if whole not in known:
            known[whole] = batch(text[:whole])
        if stream.value != known[whole]:
            found.append((end, stream.value, known[whole]))
        begin = end
    return found


words = st.sampled_from(["try", "again", "the", "file", "größe", "a" * 40, "x\u00d7y", "ё"])
signs = st.sampled_from([*".,:;-_/=*|{}[]()\"'!", "🎉", "文", "ล", "\udc80", "\x00", "─"])
numbers = st.sampled_from(["1", "17", "18", "0", "123456789", "1234567890", "007"])
blanks = st.sampled_from([" ", "\n", "  ", "\t", " " * 170, "\u00a0"])
runs = st.sampled_from(["-" * 170, "=" * 40, "." * 3, "0" * 30])
bits = st.lists(words | words | blanks | blanks | signs | numbers | runs, min_size=1, max_size=14)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts of stretches that repeat, some with a number that grows."""
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        unit = "".join(draw(bits))
        times = draw(st.sampled_from([1, 2, 3, 10, 60]))
        grows = draw(st.sampled_from([0, 0, 1, -3]))
        start = draw(st.integers(0, 120))
        for i in range(times):
            text += unit
            if grows:
                text += f" then I try it again for the time {abs(start + grows * i)} now. "
    return text[:6_000]


@examples(3)
@given(texts(), st.data())
def test_it_is_its_definition_after_every_token(text: str, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 90), max_size=120))
    cuts = [end for end in accumulate(sizes) if end < len(text)]
    assert differences(text, cuts) == []


@pytest.mark.parametrize("name", [*CHANTS, *ORDINARY])
def test_it_is_its_definition_on_real_looking_texts(name: str) -> None:
    text = {**CHANTS, **ORDINARY}[name][:3_000]
    assert differences(text, list(range(0, len(text), 61))) == []


@given(texts(), st.integers(1, 90))
def test_the_highest_share_does_not_depend_on_the_tokens(text: str, size: int) -> None:
    stream = Chanting()
    for begin in range(0, len(text), size):
        stream.add(text[begin : begin + size])
    assert stream.highest == chanting_in(text)
