"""Adds to the text of a JSON file, and removes from it, without touching the rest of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")


class _Item(NamedTuple):
    """A member of an object or an element of an array: where it and its value begin, and ends."""

    key: str | int
    start: int
    value: int
    end: int


def find_value(text: str, path: tuple[str | int, ...]) -> int | None:
    """Where the value at a path begins in a JSON text; ``None``, it is not there.

    >>> find_value('{"a": {"b": [1]}}', ("a", "b"))
    12
    """
    at = _skip(text, 0)
    for key in path:
        if text[at] not in "{[":
            return None
        found = [item for item in _items(text, at) if item.key == key]
        if not found:
            return None
        at = found[-1].value
    return at


def append(text: str, at: int, depth: int, value: Any, key: str | None = None) -> str:
    """Append to the object or array that begins at ``at``, ``depth`` levels deep.

    >>> append('{"a": 1}', 0, 0, [2], "b")
    '{"a": 1, "b": [2]}'
    """
    name = "" if key is None else f"{json.dumps(key)}: "
    items = list(_items(text, at))
    _, after = _DECODER.raw_decode(text, at)
    if "\n" not in (text[at:after] if items else text):
        comma = ", " if items else ""
        end = items[-1].end if items else at + 1
        return f"{text[:end]}{comma}{name}{json.dumps(value)}{text[end:]}"
    found = _INDENT.search(text)
    unit = found[1] if found is not None else "  "
    line = "\r\n" if "\r\n" in text else "\n"
    written = json.dumps(value, indent=unit)
    inner = line + unit * (depth + 1)
    shown = name + written.replace("\n", inner)
    if items:
        end = items[-1].end
        return f"{text[:end]},{inner}{shown}{text[end:]}"
    return f"{text[: at + 1]}{inner}{shown}{line}{unit * depth}{text[after - 1 :]}"


def remove_item(text: str, at: int, key: str | int) -> str:
    """Remove a member or an element from what begins at ``at``.

    >>> remove_item('{"a": 1, "b": [2]}', 0, "b")
    '{"a": 1}'
    >>> remove_item("[1,\\n 2]", 0, 0)
    '[2]'
    """
    items = list(_items(text, at))
    place = next(index for index, item in enumerate(items) if item.key == key)
    start, end = items[place].start, items[place].end
    if place > 0:
        start = items[place - 1].end
    elif len(items) > 1:
        end = items[1].start
    else:
        start, end = at + 1, _skip(text, end)
    return text[:start] + text[end:]


def _items(text: str, at: int) -> Iterator[_Item]:
    """The members of an object or the elements of an array, in a text that is valid."""
    is_object, closing = text[at] == "{", "}" if text[at] == "{" else "]"
    at = _skip(text, at + 1)
    number = 0
    while text[at] != closing:
        start = at
        key: str | int = number
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value = at
        _, end = _DECODER.raw_decode(text, at)
        yield _Item(key, start, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        number += 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
