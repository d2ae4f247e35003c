"""What of a run's contents is written: digests, or the contents themselves.

A replay compares and never reads, so what is written only has to be equal where what it stands
for was equal to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Real
from typing import Any, Final, TypeAlias

import orjson

from tidegauge._canonical import Reading
from tidegauge.events import Identity
from tidegauge.streaming_metrics.fingerprint import (
    Normaliser,
    arguments_bytes,
    canonical_bytes,
    content_digest,
    normalised,
)
from tidegauge.streaming_metrics.navigation import zone_of

__all__ = ["MAX_BYTES", "Contents", "Digest"]

Digest: TypeAlias = Callable[[bytes], str]
"""What leaves the process in place of a digest."""

MAX_BYTES: Final = 1024 * 1024
"""Contents longer than this are written as digests."""

_MAX_DEPTH: Final = 16


class Contents:
    """Gives contents, arguments and identities the form in which they are written.

    Args:
        digest: makes what is written in place of a digest.
        plain: write contents as they are, but for what the normaliser and the tools' keys strip.
        normaliser: the one of the engine.

    >>> shown = Contents(bytes.hex, plain=True)
    >>> shown.content("a text"), shown.identity((3, 4))
    ('a text', [3, 4])
    >>> Contents(bytes.hex, plain=False).content("a text")
    'sha:6e1f86fc2834ab30c9b08818c2eefaf6'
    """

    def __init__(
        self, digest: Digest, *, plain: bool, normaliser: Normaliser | None = None
    ) -> None:
        self.plain = plain
        self._digest = digest
        self._normaliser = normaliser

    def digest(self, digest: bytes) -> str:
        """What stands for a digest of the engine's."""
        return "sha:" + self._digest(digest)

    def content(self, value: object, reading: Reading | None = None) -> Any:
        """A state, an outcome or a task.

        Null, which means "not given" elsewhere, only for what is not comparable: to the engine it
        is not given either.

        Args:
            value: the content.
            reading: what was read in the same report.
        """
        if self.plain:
            if issubclass(type(value), str) and self._normaliser is None:
                return self._text(value, reading)
            data = canonical_bytes(value, limit=MAX_BYTES, reading=reading)
            if data is not None:
                return self._plain(data)
        digest = content_digest(value, self._normaliser, reading)
        return None if digest is None else self.digest(digest)

    def arguments(self, arguments: object, reading: Reading | None = None) -> Any:
        """The arguments of a call, as they are compared; what is not comparable equals nothing."""
        data = arguments_bytes(arguments, limit=MAX_BYTES, reading=reading)
        written = self.content(arguments if data is None else data, reading)
        return self.digest(os.urandom(16)) if written is None else written

    def identity(self, value: Identity) -> Any:
        """The id of a task or an entity."""
        if self.plain:
            return self._text(value) if isinstance(value, str) else _listed(value)
        return self.digest(_digest_of(_name(value)))

    def place(self, value: Identity) -> Any:
        """The id of a place; its digest has the one of its zone before it, as a path has."""
        if self.plain:
            return self.identity(value)
        zone = self._digest(_digest_of(_name(zone_of(value))))
        return f"sha:{zone}/{self._digest(_digest_of(_name(value)))}"

    def _plain(self, data: bytes) -> Any:
        if self._normaliser is not None:
            text = normalised(data.decode("utf-8", "surrogateescape"), self._normaliser)
            return None if text is None else self._text(text)
        if len(data) <= MAX_BYTES and data != b"null" and _is_json(data):
            return orjson.Fragment(data)
        # To the engine a text and the value that it is the JSON of are the same.
        return self._text(data.decode("utf-8", "backslashreplace"))

    def _text(self, value: Any, reading: Reading | None = None) -> str:
        if str.__len__(value) > MAX_BYTES:
            return self.digest(_digest_of(value, reading))
        written = _writable(str.__str__(value))
        return written if len(written) <= MAX_BYTES else self.digest(_digest_of(value))


def _digest_of(text: object, reading: Reading | None = None) -> bytes:
    """The digest of a text; one that is too long for it equals no other."""
    return content_digest(text, reading=reading) or os.urandom(16)


def _is_json(data: bytes) -> bool:
    """Whether whoever reads it gets these bytes again: no huge number, no odd text."""
    try:
        return orjson.dumps(orjson.loads(data), option=orjson.OPT_SORT_KEYS) == data
    except (orjson.JSONDecodeError, TypeError):
        return False


def _writable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return str.__str__(text)


def _name(value: object) -> str:
    """The same text for identities that are equal: 1 and 1.0 are one place."""
    if isinstance(value, tuple):
        return f"({','.join([_name(part) for part in value])})"
    if isinstance(value, str):
        return repr(str.__str__(value))
    whole = _whole(value)
    return repr(value) if whole is None else repr(whole)


def _listed(value: object, depth: int = _MAX_DEPTH) -> list[Any]:
    """A list for every identity that is no text: nothing else is read again."""
    if not isinstance(value, tuple) or not depth:
        return [_part(value, 0)]
    return [_part(part, depth - 1) for part in value]


def _part(value: object, depth: int) -> Any:
    if isinstance(value, tuple) and depth:
        return _listed(value, depth)
    if isinstance(value, str):
        return _writable(value)
    whole = _whole(value)
    if whole is not None and abs(whole) < 2**53:
        return whole
    if type(value) is float and value - value == 0:  # neither infinite nor NaN
        return value
    return _writable(repr(value))


def _whole(value: Any) -> int | None:
    if not isinstance(value, Real):
        return None
    try:
        whole = int(value)  # type: ignore[call-overload]
    except (ValueError, OverflowError):
        return None
    return whole if whole == value else None
