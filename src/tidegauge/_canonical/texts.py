"""The canonical text of a value: at once where it is plain JSON, else by the encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
import xxhash

from tidegauge._canonical.encoder import (
    CONTAINER,
    MAX_COST,
    SHORT,
    Encoder,
    Incomparable,
    Reading,
    bytes_length,
    digest_of,
    is_bytes,
    raw_pieces,
)

__all__ = [
    "MAX_TEXT",
    "canonical_digest",
    "canonical_pieces",
    "canonical_start",
    "canonical_text",
    "is_long",
    "plain_text",
    "plain_tree",
]

MAX_TEXT: Final = 1 << 20
"""Characters, or bytes, of the longest text that is ever made as a whole."""

_MAX_LEVELS: Final = 254
"""Levels that orjson writes."""

_MANY: Final = 256

_dumps: Final = orjson.dumps
_SORTED: Final = orjson.OPT_SORT_KEYS


def plain_text(value: Any) -> bytes | None:
    """The canonical text of a short text or of plain JSON; ``None``, the encoder has to say.

    >>> plain_text({"b": 1, "a": [None, True]}), plain_text({1, 2})
    (b'{"a":[null,true],"b":1}', None)
    """
    kind = type(value)
    if kind is str:
        if len(value) > MAX_TEXT:
            return None
        try:
            return value.encode()  # type: ignore[no-any-return]
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]
    try:
        if kind is dict or kind is list or kind is tuple:
            return _dumps(value, None, _SORTED) if plain_tree(value) else None
        if value is None or kind is int or kind is float or kind is bool:
            return _dumps(value)
    except (TypeError, RuntimeError):
        pass  # a huge number, half a character, more than 254 levels; changed while it was read
    return None


def plain_tree(value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> bool:
    """Whether a container holds nothing but plain JSON, short enough to be written at once.

    Types are compared by identity: a set of them would ask their metaclasses for a hash.

    Raises:
        TypeError: a key is no text.
    """
    level: list[Any] = [value]
    room = MAX_COST - CONTAINER - len(value)
    if room < 0:
        return False
    size = 0
    for _ in range(_MAX_LEVELS):
        inside: list[Any] = []
        for container in level:
            items = container
            if type(container) is dict:
                items = container.values()
                size += len("".join(container))  # a key that is no text is a TypeError
            for item in items:
                kind = type(item)
                if kind is str:
                    size += len(item)
                elif kind is int or item is None or kind is bool or kind is float:
                    continue
                elif kind is dict or kind is list or kind is tuple:
                    inside.append(item)
                    room -= CONTAINER + len(item)  # before it is read
                    if room < 0:
                        return False
                else:
                    return False
            if room < size >> 5 or size > SHORT:
                return False
        if not inside:
            return room >= size >> 5 and size <= SHORT
        if len(inside) > _MANY and 2 * len(set(map(id, inside))) < len(inside):
            return False  # a few that are referred to again and again: the encoder reads them once
        level = inside
    return False


def canonical_pieces(value: Any, reading: Reading | None = None) -> Iterator[bytes]:
    """The canonical text of a value, piece by piece.

    Args:
        value: anything.
        reading: what was read in the same report; ``None``, nothing.

    Raises:
        Incomparable: before the first piece; the value has no text.
    """
    data = None if reading is not None and reading.knows(value) else plain_text(value)
    return iter((data,)) if data is not None else encoded_pieces(value, reading)


def encoded_pieces(value: Any, reading: Reading | None = None) -> Iterator[bytes]:
    """The same of a value that :func:`plain_text` has no text of."""
    if issubclass(type(value), str) or is_bytes(type(value)):
        return raw_pieces(value)
    return Reading().pieces(value) if reading is None else reading.pieces(value)


def canonical_text(
    value: Any, limit: int = MAX_TEXT, reading: Reading | None = None
) -> bytes | None:
    """The canonical text of a value; ``None`` if it has none or is longer than ``limit`` bytes."""
    try:
        text = _joined(canonical_pieces(value, reading), limit + 1)
    except Incomparable:
        return None
    return text if len(text) <= limit else None


def canonical_digest(value: Any, reading: Reading | None = None) -> bytes | None:
    """The digest of a value's text, 16 bytes; ``None``, it has none."""
    try:
        data = None if reading is not None and reading.knows(value) else plain_text(value)
        if data is not None:
            return xxhash.xxh3_128_digest(data)
        if is_long(value):
            return (reading or Reading()).long(value)
        return digest_of(encoded_pieces(value, reading))
    except Incomparable:
        return None


def is_long(value: Any) -> bool:
    """Whether it is a text or bytes that are never made as a whole."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__len__(value) > MAX_TEXT
    return is_bytes(kind) and bytes_length(value) > MAX_TEXT


def canonical_start(value: Any, limit: int) -> bytes:
    """At most ``limit`` bytes of the beginning of a value's text, for display.

    What is not comparable stands there by the name of its type. No more is read than is needed.

    >>> canonical_start([1, object()], 100)
    b'[1,!"builtins.object"]'
    """
    data = plain_text(value)
    if data is not None:
        return data[:limit]
    try:
        if issubclass(type(value), str) or is_bytes(type(value)):
            return _joined(raw_pieces(value), limit)
        return _joined(Encoder(lenient=True, wanted=limit).pieces(value), limit)
    except Incomparable:  # changed while it was read
        return b""


def _joined(pieces: Iterator[bytes], limit: int) -> bytes:
    """The first ``limit`` bytes."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece[: limit - size])
        size += len(found[-1])
        if size >= limit:
            break
    return b"".join(found)
