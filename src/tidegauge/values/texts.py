"""Canonical texts of values, and identities as built-in values.

Plain JSON is written by orjson, everything else by the encoder. Identities (ids of places, tasks
and entities) become safe keys of a dictionary: no ``__hash__`` or ``__eq__`` of the user's runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import orjson
import xxhash

from tidegauge.values.attributes import type_name
from tidegauge.values.encoder import (
    CONTAINER,
    MAX_COST,
    SHORT,
    Encoder,
    Incomparable,
    ValueCache,
    bytes_length,
    digest_of,
    is_bytes,
    raw_pieces,
    rendered,
)
from tidegauge.values.handlers import handler_of

MAX_TEXT: Final = 1 << 20
"""Characters, or bytes, of the longest text that is ever made as a whole."""

_MAX_LEVELS: Final = 254
"""Levels that orjson writes."""

_MANY: Final = 256

_dumps: Final = orjson.dumps
_SORTED: Final = orjson.OPT_SORT_KEYS


def plain_text(value: Any) -> bytes | None:
    """The canonical text of a short text or of plain JSON; ``None``: the encoder is needed.

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
        if kind is dict and flat_size(value) >= 0:
            return _dumps(value, None, _SORTED)
        if kind is dict or kind is list or kind is tuple:
            return _dumps(value, None, _SORTED) if plain_tree(value) else None
        if value is None or kind is int or kind is float or kind is bool:
            return _dumps(value)
    except (TypeError, RuntimeError):
        pass  # a huge number, half a character, more than 254 levels; changed while it was read
    return None


def flat_size(value: dict[Any, Any]) -> int:
    """Characters of a mapping that holds, as most arguments do, only short texts and plain values.

    >>> flat_size({"query": "red key", "page": 1}), flat_size({"pages": [1]})
    (16, -1)
    """
    if len(value) > _MANY:
        return -1
    size = 0
    for key, item in value.items():
        kind = type(item)
        if kind is str:
            size += len(item)
        elif not (kind is int or item is None or kind is bool or kind is float):
            return -1
        if type(key) is not str:
            return -1
        size += len(key)
    return size if size <= SHORT else -1


def plain_tree(value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> bool:
    """Whether a container holds nothing but plain JSON, short enough to be written at once.

    Types are compared by identity: a set of them would ask their metaclasses for a hash.
    """
    level: Sequence[Any] = (value,)
    room = MAX_COST - CONTAINER - len(value)
    if room < 0:
        return False
    size = levels = 0
    while levels < _MAX_LEVELS:
        levels += 1
        inside: list[Any] = []
        for container in level:
            items = container
            if type(container) is dict:
                items = container.values()
                for key in container:
                    if type(key) is not str:
                        return False
                    size += len(key)
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
            return True
        if len(inside) > _MANY and 2 * len(set(map(id, inside))) < len(inside):
            return False  # a few that are referred to again and again: the encoder reads them once
        level = inside
    return False


def canonical_pieces(value: Any, cache: ValueCache | None = None) -> Iterator[bytes]:
    """The canonical text of a value, piece by piece.

    Args:
        value: anything.
        cache: what was read in the same report; ``None``, nothing.

    Raises:
        Incomparable: before the first piece; the value has no text.
    """
    data = None if cache is not None and cache.knows(value) else plain_text(value)
    return iter((data,)) if data is not None else encoded_pieces(value, cache)


def encoded_pieces(value: Any, cache: ValueCache | None = None) -> Iterator[bytes]:
    """The same of a value that :func:`plain_text` has no text of.

    >>> b"".join(encoded_pieces({1, 2})) == b"".join(encoded_pieces({2, 1}))
    True
    """
    if issubclass(type(value), str) or is_bytes(type(value)):
        return raw_pieces(value)
    if cache is None:
        cache = ValueCache()
    tokens = cache.tokens(value)
    if tokens is not None:
        return rendered(tokens)
    encoder = Encoder(handler_of, cache=cache)
    try:
        pieces = encoder.pieces(value)
    except Incomparable:
        cache.keep(value, None)
        raise
    cache.keep(value, encoder.out)
    return pieces


def canonical_text(
    value: Any, limit: int = MAX_TEXT, cache: ValueCache | None = None
) -> bytes | None:
    """The canonical text of a value; ``None`` if it has none or is longer than ``limit`` bytes."""
    text = None if cache is not None and cache.knows(value) else plain_text(value)
    if text is None:
        try:
            text = _joined(encoded_pieces(value, cache), limit + 1)
        except Incomparable:
            return None
    return text if len(text) <= limit else None


def canonical_digest(value: Any, cache: ValueCache | None = None) -> bytes | None:
    """The digest of a value's text, 16 bytes; ``None``, it has none."""
    if type(value) is bytes and len(value) <= MAX_TEXT:
        return xxhash.xxh3_128_digest(value)
    try:
        data = None if cache is not None and cache.knows(value) else plain_text(value)
        if data is not None:
            return xxhash.xxh3_128_digest(data)
        if is_long(value):
            return (cache or ValueCache()).long(value)
        return digest_of(encoded_pieces(value, cache))
    except Incomparable:
        return None


def is_long(value: Any) -> bool:
    """Whether a text or bytes are too long to be made as a whole."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__len__(value) > MAX_TEXT
    return is_bytes(kind) and bytes_length(value) > MAX_TEXT


def canonical_start(value: Any, limit: int) -> bytes:
    """At most ``limit`` bytes of the beginning of a value's text, for display.

    A part that is not comparable is shown as the name of its type. Reads no more than needed.

    >>> canonical_start([1, object()], 100)
    b'[1,!"builtins.object"]'
    """
    data = plain_text(value)
    if data is not None:
        return data[:limit]
    try:
        if issubclass(type(value), str) or is_bytes(type(value)):
            return _joined(raw_pieces(value), limit)
        return _joined(Encoder(handler_of, lenient=True, wanted=limit).pieces(value), limit)
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


PlainIdentity: TypeAlias = "str | int | float | bool | bytes | tuple[PlainIdentity, ...] | None"

MAX_IDENTITY: Final = 4_096
"""Characters, bytes or bits of the longest text or number that is used as an identity."""

_MAX_DEPTH: Final = 16
_MAX_PARTS: Final = 1_000
_SHIFT: Final = 12
"""Characters of a long text cost as much as one item: 2 to the power of this."""


def is_plain(value: object) -> bool:
    """Whether an identity is used unchanged.

    >>> is_plain("hall"), is_plain(7), is_plain(("hall", 7)), is_plain("x" * 5_000)
    (True, True, False, False)
    """
    kind = type(value)
    if kind is str:
        return len(value) <= MAX_IDENTITY  # type: ignore[arg-type]
    if kind is int:
        return value.bit_length() <= MAX_IDENTITY  # type: ignore[attr-defined, no-any-return]
    return value is None or kind is bool or kind is float


class Identities:
    """Makes the identities of one report plain: together they cost no more than one value may.

    Numbers, texts and bytes pass as they are, of subclasses and of numpy's scalars their plain
    value; tuples part by part, up to 16 levels and 1,000 parts. Anything else is named by its
    type and digest, and so is what is long.

    >>> Identities().plain(("hall", 3))
    ('hall', 3)
    """

    __slots__ = ("_cache", "_known", "_room")

    def __init__(self, cache: ValueCache | None = None) -> None:
        self._cache = cache
        self._known: dict[int, tuple[object, PlainIdentity, str | None]] | None = None
        self._room = MAX_COST

    def plain(self, value: object) -> PlainIdentity:
        """The identity as a built-in value.

        Raises:
            ValueError: the value is not comparable, or too large.
        """
        if type(value) is str and len(value) <= MAX_IDENTITY:
            return value
        if type(value) is tuple and len(value) <= _MAX_PARTS:  # of texts, as most are
            for part in value:
                if type(part) is not str or len(part) > MAX_IDENTITY:
                    break
            else:
                return value
        elif is_plain(value):
            return value  # type: ignore[return-value]
        if self._known is None:
            self._known = {}
            self._cache = self._cache or ValueCache()
        known = self._known.get(id(value))
        if known is None:
            try:
                known = (value, self._parts(value, _MAX_DEPTH, [_MAX_PARTS]), None)
            except ValueError as error:
                known = (value, None, str(error))
            self._known[id(value)] = known
        _, found, fault = known
        if fault is not None:
            raise ValueError(fault)
        return found

    def _parts(self, value: Any, depth: int, room: list[int]) -> PlainIdentity:
        if is_plain(value):
            return value  # type: ignore[no-any-return]
        kind = type(value)
        if issubclass(kind, tuple):
            room[0] -= tuple.__len__(value)
            if not depth or room[0] < 0:
                raise ValueError(
                    "The identity is too large; use a tuple of at most 1,000 parts and 16 levels."
                )
            parts = tuple.__iter__(value)
            return tuple([self._parts(part, depth - 1, room) for part in parts])
        plain = built_in(value)
        if plain is not None and (type(plain) is bytes or is_plain(plain)):
            return plain
        digest = self._digest(value)
        if digest is None:
            raise ValueError(
                f"An identity of type {type_name(kind)} is not comparable; use a string or a tuple."
            )
        return f"{type_name(kind)}:{digest.hex()}"

    def _digest(self, value: Any) -> bytes | None:
        if self._room < 0:
            return None
        length = _length(value)
        if length is not None:
            self._room -= length >> _SHIFT
            return canonical_digest(value, self._cache)
        encoder = Encoder(handler_of, cache=self._cache, room=self._room)
        try:
            return digest_of(encoder.pieces(value))
        except Incomparable:
            return None
        finally:
            self._room = encoder.room


def _length(value: Any) -> int | None:
    """The length of a text or of bytes."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__len__(value)
    return bytes_length(value) if is_bytes(kind) else None


def built_in(value: Any) -> PlainIdentity:
    """The plain value of a text, number or bytes of a subclass or of numpy's; else ``None``."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value) if str.__len__(value) <= MAX_IDENTITY else None
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, bytes):
        short = bytes.__len__(value) <= MAX_IDENTITY
        return bytes.__getitem__(value, slice(None)) if short else None
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(kind, numpy.generic):
        return None
    if numpy.generic.dtype.__get__(value).kind in "biuf":  # others may be long
        number = numpy.generic.item(value)
        if type(number) in (bool, int, float):
            return number  # type: ignore[no-any-return]
    return None
