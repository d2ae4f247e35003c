"""How contents and lines are written: as digests or in plain, as JSON that reads back the same.

A replay compares contents and does not read them. So written values only need to be equal where
the originals were equal to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from numbers import Real
from typing import Any, Final, TypeAlias

import orjson

from tidegauge.events import ABSENT, Call, Identity
from tidegauge.streaming_metrics.digested import what_it_says
from tidegauge.streaming_metrics.fingerprint import (
    Normaliser,
    arguments_bytes,
    canonical_bytes,
    content_digest,
    content_digests,
    normaliser_of_arguments,
    without_noise,
)
from tidegauge.streaming_metrics.navigation import zone_of
from tidegauge.streaming_metrics.normalise import Normalise
from tidegauge.streaming_metrics.polls import written_polling
from tidegauge.values import ValueCache

Digest: TypeAlias = Callable[[bytes], str]
"""Converts a digest to the form that may leave the process."""

MAX_BYTES: Final = 1024 * 1024
"""Contents longer than this are written as digests."""

_NAME: Final = 8
"""How much of a name's digest is written, where only equality with few others matters."""

_MAX_DEPTH: Final = 16


class ContentEncoder:
    """Encodes contents, arguments and identities for a recording.

    Args:
        digest: converts a digest to the form that may leave the process.
        plain: whether to write contents in plain, after the tools' keys. A function of the user's
            that normalises is applied, too, as no replay has it; known noise stays.

    >>> shown = ContentEncoder(bytes.hex, plain=True)
    >>> shown.content("a text"), shown.identity((3, 4))
    ('a text', [3, 4])
    >>> ContentEncoder(bytes.hex, plain=False).content("a text")
    'sha:6e1f86fc2834ab30c9b08818c2eefaf6'
    """

    def __init__(
        self, digest: Digest, *, plain: bool, normaliser: Normaliser | None = None
    ) -> None:
        self.plain = plain
        self._digest = digest
        if plain and isinstance(normaliser, Normalise):
            normaliser = None  # a replay has it, too
        self._normaliser = normaliser
        self._of_arguments = normaliser_of_arguments(normaliser)

    def digest(
        self,
        digest: bytes,
        exact: object = None,
        result: object = ABSENT,
        noise: Sequence[str] = (),
    ) -> str:
        """The written form of a digest of the engine.

        Args:
            exact: the digest with the noise, where there is one.
            result: the result that it is of: what that says is written, too.
            noise: the kinds of known noise that were left out.

        >>> ContentEncoder(bytes.hex, plain=False).digest(b"1", b"2", "no results", ["uuids"])
        'sha:31/32+uuids+empty+negative'
        """
        text = "sha:" + self._digest(digest)
        if isinstance(exact, bytes):
            text += "/" + self._digest(exact)
        for kind in noise:
            text += "+" + kind
        if result is ABSENT:
            return text
        empty, negative = what_it_says(result)
        return text + "+empty" * empty + "+negative" * negative

    def polling(self, call: Call) -> str:
        """What is written behind the digest of a call's arguments, so that a replay finds polls.

        >>> ContentEncoder(bytes.hex, plain=False).polling(Call("bash", "sleep 5; cat a.log"))
        '+waits+looks=14d10bf9'
        """
        return "" if self.plain else written_polling(call, self._name)

    def _name(self, name: str) -> str:
        return self._digest(_digest_of(name))[:_NAME]

    def content(self, value: object, cache: ValueCache | None = None) -> Any:
        """A state, an outcome or a task.

        ``None``, which means "not given" elsewhere, stands for a value that is not comparable: the
        engine treats it as not given, too.
        """
        return self._encoded(value, self._normaliser, cache)

    def _encoded(
        self, value: object, normaliser: Normaliser | None, cache: ValueCache | None
    ) -> Any:
        if self.plain:
            if issubclass(type(value), str) and normaliser is None:
                return self._text(value, cache)
            data = canonical_bytes(value, limit=MAX_BYTES, cache=cache)
            if data is not None:
                return self._plain(data, normaliser)
        digest, exact, noise, _ = content_digests(value, normaliser, cache)
        return None if digest is None else self.digest(digest, exact, value, noise)

    def arguments(self, arguments: object, cache: ValueCache | None = None) -> Any:
        """The arguments of a call, as compared; if not comparable, a value that equals no other."""
        data = arguments_bytes(arguments, limit=MAX_BYTES, cache=cache)
        written = self._encoded(arguments if data is None else data, self._of_arguments, cache)
        return self.digest(os.urandom(16)) if written is None else written

    def identity(self, value: Identity) -> Any:
        """The id of a task or an entity."""
        if self.plain:
            return self._text(value) if isinstance(value, str) else _listed(value)
        return self.digest(_digest_of(_name(value)))

    def place(self, value: Identity) -> Any:
        """The id of a place; its digest is prefixed with the digest of its zone."""
        if self.plain:
            return self.identity(value)
        zone = self._digest(_digest_of(_name(zone_of(value))))
        return f"sha:{zone}/{self._digest(_digest_of(_name(value)))}"

    def _plain(self, data: bytes, normaliser: Normaliser | None) -> Any:
        if normaliser is not None:
            found = without_noise(data, normaliser)
            if found is not data:
                return (
                    None if found is None else self._text(found.decode("utf-8", "backslashreplace"))
                )
        if len(data) <= MAX_BYTES and data != b"null" and _is_json(data):
            return orjson.Fragment(data)
        # To the engine a text equals the value that it is the JSON of.
        return self._text(data.decode("utf-8", "backslashreplace"))

    def _text(self, value: Any, cache: ValueCache | None = None) -> str:
        if str.__len__(value) > MAX_BYTES:
            return self.digest(_digest_of(value, cache))
        written = _writable(str.__str__(value))
        return written if len(written) <= MAX_BYTES else self.digest(_digest_of(value))


def _digest_of(text: object, cache: ValueCache | None = None) -> bytes:
    """The digest of a text; a text that is too long for one equals no other."""
    return content_digest(text, cache=cache) or os.urandom(16)


def _is_json(data: bytes) -> bool:
    """Whether reading and writing gives these bytes again: no huge number, no odd text."""
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
    """The same text for equal identities: 1 and 1.0 are one place."""
    if isinstance(value, tuple):
        return f"({','.join([_name(part) for part in value])})"
    if isinstance(value, str):
        return repr(str.__str__(value))
    whole = _whole(value)
    return repr(value) if whole is None else repr(whole)


def _listed(value: object, depth: int = _MAX_DEPTH) -> list[Any]:
    """A list for every identity that is not a string, since the reader accepts only these two."""
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


_MAX_NUMBER: Final = 2.0**53
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def encoded(line: Mapping[str, Any], *, nulls: bool = False) -> bytes:
    """The line as JSON, without keys whose value is ``None``: to readers, null means "not given".

    Args:
        nulls: whether to write ``None``, too, for readers to whom it has a meaning.

    >>> encoded({"type": "end", "run": "r1", "success": None})
    b'{"type":"end","run":"r1"}'
    """
    given = {key: value for key, value in line.items() if nulls or value is not None}
    try:
        return orjson.dumps(given, option=_OPTIONS)
    except TypeError:  # texts that UTF-8 has no form for, subclasses, huge numbers
        return orjson.dumps(_plain(given), option=_OPTIONS)


def amount(value: float | None) -> float | None:
    """The value if the reader accepts it; the engine adds up no other."""
    return value if value is not None and 0 <= value <= _MAX_NUMBER else None


def _plain(value: Any) -> Any:
    """``value`` in types that JSON supports."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.encode(value, "utf-8", "backslashreplace").decode()
    try:
        orjson.dumps(value)
    except TypeError:
        return str(value)
    return value


def moment(seconds: float | None) -> datetime:
    """The written form of a time; ``None``: now."""
    if seconds is not None:
        with suppress(ValueError, OverflowError, OSError):  # a moment beyond all calendars
            return datetime.fromtimestamp(seconds, UTC)
    return datetime.now(UTC)
