"""Texts on spans: names, and contents as far as they are captured: redacted, and cut.

None of the user's code runs for a content, but for the function that redacts it. That runs without
a lock; when it fails, the content is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from tidegauge.safety.guard import guarded
from tidegauge.values import canonical_start, flat_size, plain_text

Redact: TypeAlias = Callable[[str], str | None]
"""Takes a text, and gives what may leave of it; ``None``: nothing."""

Item: TypeAlias = dict[str, Any]
"""A message, a part of one, a document or a tool, as the conventions write it in JSON."""

_MAX_TEXT: Final = 8_192
_MAX_REDACTED: Final = 65_536
"""Characters that the function of the user gets: what it looks for must not be cut in two."""

_MAX_BYTES: Final = 4
"""Of a character."""

_MAX_ITEMS: Final = 1_000
_BITS: Final = 64
"""Of the numbers that orjson writes; longer ones are shown as texts."""

_ITEM: Final = 32
"""Characters of a message with one part, besides its texts: fewer than there are."""

_MAX_LIST: Final = 65_536
_MAX_WHOLE_LIST: Final = 1_048_576
MAX_NAME: Final = 128
"""Characters of what a span is named after."""


class Contents:
    """How contents are put on spans.

    Args:
        captured: whether they are at all.
        whole_history: whether a model call has all messages that the model is shown, and not only
            the new ones.
        redact: applied to every text.
    """

    __slots__ = ("_redact", "captured", "whole_history")

    def __init__(
        self,
        *,
        captured: bool = False,
        whole_history: bool = False,
        redact: Redact | None = None,
    ) -> None:
        self.captured = captured
        self.whole_history = whole_history
        self._redact = redact

    def text(self, value: object) -> str | None:
        """The beginning of a content, as JSON where it is plain; ``None``, it must not be shown.

        >>> Contents().text({"page": [1, None]}), Contents().text("empty")
        ('{"page":[1,null]}', 'empty')
        >>> Contents(redact=lambda text: text.replace("pw", "***")).text({"key": "pw"})
        '{"key":"***"}'
        """
        if self._redact is not None:
            return self._finished(_begun(value, _MAX_REDACTED))
        if type(value) is str:
            return value if value.isascii() and len(value) <= _MAX_TEXT else self._finished(value)
        text = _begun(value, _MAX_TEXT)
        return text if len(text) <= _MAX_TEXT and text.isascii() else self._finished(text)

    def listed(self, items: Sequence[Item], *, last: bool = False) -> tuple[str, int]:
        """A list as JSON, and how many of its items were left out to keep it short.

        Args:
            items: messages and so on; what they hold may be anything.
            last: whether it is the last items that are kept, and not the first.

        >>> Contents().listed([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}])
        ('[{"role":"user","parts":[{"type":"text","content":"hi"}]}]', 0)
        """
        data = _written_at_once(items) if self._redact is None else None
        if data is not None:
            return data.decode(), 0
        limit = _MAX_WHOLE_LIST if self.whole_history else _MAX_LIST
        texts: list[bytes] = []
        for item in reversed(items) if last else items:
            text = self._item(item)
            limit -= len(text)
            if (limit < 0 and texts) or len(texts) == _MAX_ITEMS:
                break
            texts.append(text)
        if last:
            texts.reverse()
        return f"[{b','.join(texts).decode()}]", len(items) - len(texts)

    def _item(self, item: Item) -> bytes:
        written = self._fields(item)
        try:
            return orjson.dumps(written)
        except TypeError:  # half a character in a name
            return orjson.dumps(_clean(written))

    def _fields(self, item: Item) -> Item:
        """What may be shown of an item's fields, or of those of a part."""
        found: Item = {}
        for name, value in item.items():
            shown: Any = value
            if name == "parts":
                shown = [self._fields(part) for part in value[:_MAX_ITEMS]]
            elif name not in _NAMES:
                if type(value) is str:
                    short = self._redact is None and len(value) <= _MAX_TEXT and value.isascii()
                    shown = value if short else self._finished(value[: self._read_at_most() + 1])
                else:
                    shown = self.text(value) if name == "content" else self._value(value)
            if shown is not None:
                found[name] = shown
        return found

    def _value(self, value: object) -> Any:
        """A value inside a list: as it is where it is short and plain, else its text."""
        kind: Any = type(value)
        if value is None or kind is float or kind is bool:
            return value
        if kind is int and value.bit_length() < _BITS:  # type: ignore[attr-defined]
            return value
        data = None if issubclass(type(value), str) else plain_text(value)
        if data is not None and self._redact is None and len(data) <= _MAX_TEXT:
            return orjson.Fragment(data)
        if data is not None and len(data) <= _MAX_REDACTED:
            text = self._finished(data.decode())
        else:
            text = self.text(value)
        if text is None or data is None:
            return text
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text

    def _read_at_most(self) -> int:
        return _MAX_TEXT if self._redact is None else _MAX_REDACTED

    def _finished(self, text: str) -> str | None:
        """A text as it may leave."""
        if self._redact is not None:
            redacted = self._redacted(text)
            if redacted is None:
                return None
            text = redacted
        return plain_name(text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…")

    @guarded("redact", default=None, interrupting="skip")
    def _redacted(self, text: str) -> str | None:
        assert self._redact is not None  # noqa: S101 -- for the type checker
        found = self._redact(text)
        return str.__str__(found) if issubclass(type(found), str) else None


_NAMES: Final = frozenset({"role", "type", "id", "name", "finish_reason", "modality", "score"})
"""Fields of items that hold no contents."""


def span_name(operation: str, what: str | None) -> str:
    """The name of a span: the operation, and what it is done with."""
    return f"{operation} {plain_name(what[:MAX_NAME])}" if what else operation


def plain_name(value: str) -> str:
    """``value`` without lone surrogates, of which one would lose a whole batch of spans."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _begun(value: Any, limit: int) -> str:
    """The beginning of a content, one character more than the limit where there is more."""
    if issubclass(type(value), str):
        return str.__getitem__(value, slice(limit + 1))
    most = _MAX_BYTES * (limit + 1)  # bytes that have so many characters, and maybe more
    data = plain_text(value)
    shown = canonical_start(value, most) if data is None else data[:most]
    return shown.decode("utf-8", "ignore")[: limit + 1]


def _written_at_once(items: Sequence[Item]) -> bytes | None:
    """A short list as JSON, as nearly always; ``None``: not all of it is shown as it is."""
    try:
        data = orjson.dumps(items) if _are_short(items) else None
    except (TypeError, RuntimeError):  # half a character; changed while it was read
        return None
    return data if data is None or len(data) <= _MAX_TEXT else None


def _are_short(items: Sequence[Item]) -> bool:
    """Whether items are messages of texts and flat calls, with so few characters together."""
    room = _MAX_TEXT - _ITEM * len(items)
    for item in items:
        for name, value in item.items():
            if type(value) is str:
                room -= len(value)
            elif name != "parts":
                return False
            else:
                for part in value:
                    for inner, inside in part.items():
                        if type(inside) is str:
                            room -= len(inside)
                        else:
                            size = -1
                            if type(inside) is dict and inner != "content":
                                size = flat_size(inside)
                            if size < 0:
                                return False
                            room -= size
        if room < 0:
            return False
    return True


def _clean(value: Any) -> Any:
    if type(value) is str:
        return plain_name(value)
    if isinstance(value, Mapping):
        return {name: _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if type(value) is list else value
