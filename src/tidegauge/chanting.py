"""Chanting: how much of the last part of one answer repeats what stands shortly before it."""

from __future__ import annotations

import re
import zlib
from collections import deque
from functools import lru_cache
from itertools import accumulate
from typing import Final

MOST: Final = 131_072
"""Characters of an answer that are read."""
BLOCK: Final = 64
"""Characters that are read at once: of an answer, its complete blocks count."""
STRIDE: Final = 8
"""Pieces between two places."""
COMPARED: Final = 32
"""Pieces up to a place, which are looked for before them."""
BEFORE: Final = 600
"""Pieces in which they are looked for."""
TIMES: Final = 2
"""How often they must be there, without overlap: one copy of a text is no chant."""
PLACES: Final = 16
"""The last places, whose share is the value."""
CHANTING: Final = 0.9
"""The share from which an answer chants: no answer of a recorded run that succeeds has any."""

_LONGEST_WORD: Final = 32
_LONGEST_NUMBER: Final = 9
_LONGEST_RUN: Final = 160
_DIGITS: Final = "0123456789"
# Scripts from U+0E00 on have no spaces between words: there, a character is a piece.
_pieces: Final = re.compile(
    rf"[a-zA-Z\u00c0-\u0dff]{{1,{_LONGEST_WORD}}}|\s{{1,{_LONGEST_RUN}}}"
    rf"|[0-9]{{1,{_LONGEST_NUMBER}}}|[-=*_.#~+/\\\u2500-\u259f]{{1,{_LONGEST_RUN}}}|.",
    re.DOTALL,
).findall

_FIRST_SIGN: Final = "\U00080000"
"""A piece is kept as a checksum, which is a character: those of words are below this one."""
_PROSE: Final = 10
_WORDS_OF_PROSE: Final = 6
_NUMBERS: Final = 32


class Chanting:
    """The share of the last part of an answer that repeats what stands shortly before it.

    An answer is cut into pieces: words, numbers, signs, rules such as ``-----``; white space
    between them does not count. Every eighth piece is a place. A place repeats if the 32 pieces up
    to it stand at least twice, without overlap, in the 600 before these. The value is the share of
    the last 16 places that repeat. In prose, a number counts by how much it grew since the last
    one that followed the same two pieces, so that "attempt 17" repeats "attempt 16".

    Known for every prefix, and the same however it is cut into tokens: pieces of the complete
    blocks of 64 characters count, but the last one, which may go on. O(1) amortised a token; memory
    for 632 checksums, 32 numbers and 224 characters. The exact definition is in
    ``docs/metrics/chanting.md``.

    Attributes:
        highest: the highest share so far.

    >>> chanting = Chanting()
    >>> for _ in range(200):
    ...     chanting.add("I will try again. ")
    >>> chanting.value
    1.0
    """

    __slots__ = (
        "_count",
        "_left",
        "_numbers",
        "_parts",
        "_places",
        "_read",
        "_rest",
        "_size",
        "highest",
    )

    def __init__(self) -> None:
        self.highest = 0.0
        self._parts: list[str] = []  # of a block that is not complete
        self._size = 0
        self._left = MOST
        self._rest = ""  # the piece that may go on
        self._read = ""  # the last pieces
        self._count = 0
        self._places = deque([False] * PLACES, PLACES)
        self._numbers: dict[str, int] = {}  # the last number at each place, oldest first

    @property
    def value(self) -> float:
        """The share now."""
        return sum(self._places) / PLACES

    def add(self, text: str) -> None:
        """Take the next part of the answer."""
        if not text or not self._left:
            return
        if len(text) > self._left:
            text = text[: self._left]
        self._parts.append(text)
        self._size += len(text)
        if self._size >= BLOCK:
            text = "".join(self._parts)
            whole = self._size // BLOCK * BLOCK
            self._parts = [text[whole:]]
            self._size -= whole
            read = min(whole, self._left)
            self._left -= read
            for start in range(0, read, BLOCK):
                self._take(self._rest + text[start : start + BLOCK])

    def _take(self, text: str) -> None:
        pieces = _pieces(text)
        self._rest = pieces.pop()
        kept = list(map(_kept, pieces))
        for digit in _DIGITS:
            if digit in text:
                self._keep_growth(pieces, kept)
                break
        new = "".join(kept)
        read, before = self._read + new, self._count
        self._count = count = before + len(new)
        begin = len(read) - count
        for place in range(before // STRIDE * STRIDE + STRIDE, count + 1, STRIDE):
            end = begin + place
            start = end - COMPARED
            repeats = (
                start > 0 and read.count(read[start:end], max(start - BEFORE, 0), start) >= TIMES
            )
            self._places.append(repeats)
            if repeats:
                self.highest = max(self.highest, self.value)
        self._read = read[-BEFORE - COMPARED :]

    def _keep_growth(self, pieces: list[str], kept: list[str]) -> None:
        """Keep of numbers in prose by how much they grew, where they did."""
        before = self._read[-_PROSE:]
        begin = len(before)
        whole = before + "".join(kept)
        ends = list(accumulate(map(len, kept), initial=begin))
        words = list(accumulate(map(_FIRST_SIGN.__gt__, whole), initial=0))
        for index, piece in enumerate(pieces):
            at = ends[index]
            if piece[0] not in _DIGITS or words[at] - words[max(at - _PROSE, 0)] < _WORDS_OF_PROSE:
                continue
            place, number = whole[at - 2 : at], int(piece)
            last = self._numbers.pop(place, number)
            self._numbers[place] = number
            if len(self._numbers) > _NUMBERS:
                del self._numbers[next(iter(self._numbers))]
            if last != number:
                grown = kept[index] = _sign(f"{number - last:+}") * len(kept[index])
                whole = whole[:at] + grown + whole[ends[index + 1] :]


SHORTEST_CHANT: Final = 2 * BLOCK
"""Characters below which no text repeats enough."""


def chanting_in(text: str) -> float:
    """The highest share in a whole answer.

    >>> chanting_in("I will try again. " * 200), chanting_in("That is done.")
    (1.0, 0.0)
    """
    if len(text) < SHORTEST_CHANT:
        return 0.0
    chanting = Chanting()
    chanting.add(text)
    return chanting.highest


@lru_cache(4_096)
def _kept(piece: str) -> str:
    """What is kept of a piece: a checksum; none of white space; several if it is very long."""
    first, size = piece[0], len(piece)
    if (first.isascii() and first.isalpha()) or "\u00c0" <= first < "\u0e00":
        number = zlib.crc32(piece.encode("utf-8", "surrogatepass"))
        word = chr(0x10000 + number % 0x70000)
        return word if size < _LONGEST_WORD else word * (size // 2)
    if first in _DIGITS:
        return _sign(piece) if size < _LONGEST_NUMBER else _sign(piece) * 3
    if first.isspace():
        return "" if size < _LONGEST_RUN else _sign(" ") * size
    return _sign(piece) if size < _LONGEST_RUN else _sign(piece) * size


def _sign(piece: str) -> str:
    return chr(0x80000 + zlib.crc32(piece.encode("utf-8", "surrogatepass")) % 0x90000)
