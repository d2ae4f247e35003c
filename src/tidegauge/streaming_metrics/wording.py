"""The words of an action: enough to measure how much two actions are alike, and no more.

A word is kept as a checksum of 32 bits, and only of the last actions of a run: what was asked
cannot be read from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from tidegauge.events import Call
from tidegauge.streaming_metrics.fingerprint import Normaliser, arguments_start, normalised

__all__ = ["MAX_CHARACTERS", "words_of"]

MAX_CHARACTERS: Final = 4_096
"""How much of a call's arguments is read: the rest counts as the same."""

_WORD: Final = re.compile(rb"[\w\x80-\xff]+")
"""A word in UTF-8: letters, digits, underscores, and whatever is not of ASCII."""

_DIGEST: Final = "sha:"


def words_of(calls: Iterable[Call], normaliser: Normaliser | None = None) -> frozenset[int]:
    """The distinct words of a round: of each call, its name and the words of its arguments.

    Arguments of which only a digest is known are one word, which equals itself and nothing else.

    Args:
        calls: the calls as they are compared.
        normaliser: applied to the texts of their arguments.

    >>> search = Call("search", {"query": "red  SHOES"})
    >>> words_of([search]) == words_of([Call("search", '{"query": "red shoes"}')])
    True
    >>> len(words_of([search]))
    4
    """
    words: set[int] = set()
    for call in calls:
        text = arguments_start(call.arguments, 4 * MAX_CHARACTERS).decode("utf-8", "replace")
        if normaliser is not None:
            text = normalised(text, normaliser) or ""
        if text.startswith(_DIGEST):
            words.add(_checksum(f"@{call.action} {text}"))
            continue
        words.add(_checksum(f"@{call.action}"))
        read = text[:MAX_CHARACTERS].lower().encode("utf-8", "surrogatepass")
        words.update(map(crc32, _WORD.findall(read)))
    return frozenset(words)


def _checksum(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
