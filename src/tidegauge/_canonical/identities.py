"""Ids of places, tasks and entities as built-in values: safe as keys of a dictionary.

No ``__hash__`` or ``__eq__`` of the user's runs, here or in a dictionary.
"""

from __future__ import annotations

import sys
from typing import Any, Final, TypeAlias

from tidegauge._canonical.attributes import type_name
from tidegauge._canonical.encoder import (
    MAX_COST,
    Encoder,
    Incomparable,
    Reading,
    bytes_length,
    digest_of,
    is_bytes,
)
from tidegauge._canonical.texts import canonical_digest

__all__ = ["MAX_IDENTITY", "Identities", "PlainIdentity", "built_in", "is_plain"]

PlainIdentity: TypeAlias = "str | int | float | bool | bytes | tuple[PlainIdentity, ...] | None"

MAX_IDENTITY: Final = 4_096
"""Characters, bytes or bits of the longest text or number that is kept as an identity."""

_MAX_DEPTH: Final = 16
_MAX_PARTS: Final = 1_000
_SHIFT: Final = 12
"""Characters of a long text cost as much as one item: 2 to the power of this."""


def is_plain(value: object) -> bool:
    """Whether an identity is kept as it is, at a glance.

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

    __slots__ = ("_known", "_reading", "_room")

    def __init__(self, reading: Reading | None = None) -> None:
        self._reading = reading
        self._known: dict[int, tuple[object, PlainIdentity, str | None]] | None = None
        self._room = MAX_COST

    def plain(self, value: object) -> PlainIdentity:
        """The identity as a built-in value.

        Raises:
            ValueError: the value is not comparable, or too large.
        """
        if is_plain(value):
            return value  # type: ignore[return-value]
        if self._known is None:
            self._known = {}
            self._reading = self._reading or Reading()
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
                raise ValueError("the identity is too large")
            parts = tuple.__iter__(value)
            return tuple([self._parts(part, depth - 1, room) for part in parts])
        plain = built_in(value)
        if plain is not None and (type(plain) is bytes or is_plain(plain)):
            return plain
        digest = self._digest(value)
        if digest is None:
            raise ValueError(f"an identity of type {type_name(kind)} is not comparable")
        return f"{type_name(kind)}:{digest.hex()}"

    def _digest(self, value: Any) -> bytes | None:
        if self._room < 0:
            return None
        length = _length(value)
        if length is not None:
            self._room -= length >> _SHIFT
            return canonical_digest(value, self._reading)
        encoder = Encoder(reading=self._reading, room=self._room)
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
