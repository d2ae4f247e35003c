"""The words of an action: enough to measure how much two actions are alike, and no more.

A word is kept as a checksum of 32 bits, and only of the last actions of a run: what was asked
cannot be read from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from tidegauge.events import Call
from tidegauge.streaming_metrics.fingerprint import (
    Normaliser,
    arguments_start,
    without_noise,
)

MAX_CHARACTERS: Final = 4_096
"""How much of a call's arguments is read: the rest counts as the same."""

_SEPARATED: Final = bytes(
    byte if byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") else ord(" ")
    for byte in bytes(range(256)).lower()
)
"""Translates UTF-8 to words with spaces between: of ASCII letters in lower case, digits,
underscores, and whatever is not of ASCII."""

_DIGEST: Final = b"sha:"


def words_of(
    calls: Sequence[Call],
    normaliser: Normaliser | None = None,
    texts: Sequence[bytes | None] = (),
) -> frozenset[int]:
    """The distinct words of a round: of each call, its name and the words of its arguments.

    Arguments of which only a digest is known are one word, which equals itself and nothing else.

    Args:
        calls: the calls as they are compared.
        normaliser: applied to the texts of their arguments.
        texts: these as they are compared, where they have been read already.

    >>> search = Call("search", {"query": "red  SHOES"})
    >>> words_of([search]) == words_of([Call("search", '{"query": "red shoes"}')])
    True
    >>> len(words_of([search]))
    4
    """
    rounds = [
        _words_of(call, normaliser, texts[index] if texts else None)
        for index, call in enumerate(calls)
    ]
    words = rounds[0] if len(rounds) == 1 else frozenset().union(*rounds)
    hash(words)  # kept by it: sets that are not equal differ at once
    return words


def _words_of(call: Call, normaliser: Normaliser | None, text: bytes | None) -> frozenset[int]:
    if text is None:
        data = arguments_start(call.arguments, 4 * MAX_CHARACTERS)
        if normaliser is not None:
            data = without_noise(data, normaliser) or b""
    else:
        data = text[: 4 * MAX_CHARACTERS]
    if data.isascii():
        read = data[:MAX_CHARACTERS]
    else:
        lower = data.decode("utf-8", "replace")[:MAX_CHARACTERS].lower()
        read = lower.encode("utf-8", "surrogatepass")
    name = f"@{call.action}".encode("utf-8", "surrogatepass")
    if data.startswith(_DIGEST):
        return frozenset((crc32(name + b" " + data),))
    found = read.translate(_SEPARATED).split()
    found.append(name)
    return frozenset(map(crc32, found))
