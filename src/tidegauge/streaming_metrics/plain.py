"""Any metric's fields as plain data, and back: what a run needs to move to another process.

JSON has no bytes, tuples, sets, deques or keys that are not text; those are written as a
one-entry object ``{"~kind": ...}``. Nothing is executed on the way back.

>>> from_plain(to_plain({(1, 2): b"\\x00", "x": [None, 0.5]}))
{(1, 2): b'\\x00', 'x': [None, 0.5]}
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from tidegauge.streaming_metrics.evicting_dict import EvictingDict

__all__ = ["from_plain", "to_plain"]


def to_plain(value: object) -> Any:
    """Plain data (``None``, numbers, text, lists, objects with text keys) for ``value``.

    Raises:
        TypeError: the value is of a kind that has no plain form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"~bytes": value.hex()}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, tuple):
        return {"~tuple": [to_plain(item) for item in value]}
    if isinstance(value, set | frozenset):
        # in a fixed order: equal sets have one plain form
        return {"~set": sorted([to_plain(item) for item in value], key=repr)}
    if isinstance(value, deque):
        return {"~deque": [value.maxlen, [to_plain(item) for item in value]]}
    if isinstance(value, dict):
        kinds = {EvictingDict: "~evicting", OrderedDict: "~ordered"}
        items = [[to_plain(key), to_plain(item)] for key, item in value.items()]
        return {kinds.get(type(value), "~dict"): items}
    raise TypeError(f"no plain form for {type(value).__name__}")


def from_plain(data: Any) -> Any:
    """The value that :func:`to_plain` turned into ``data``.

    Raises:
        ValueError: the data is not of that form.
    """
    if isinstance(data, list):
        return [from_plain(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError("an object of a metric's state has one entry, its kind")
    kind, body = next(iter(data.items()))
    try:
        return _value(kind, body)
    except (TypeError, IndexError) as error:
        raise ValueError(f"malformed {kind!r} in a metric's state") from error


def _value(kind: str, body: Any) -> Any:
    match kind:
        case "~bytes":
            return bytes.fromhex(body)
        case "~tuple":
            return tuple(from_plain(item) for item in body)
        case "~set":
            return {from_plain(item) for item in body}
        case "~deque":
            return deque((from_plain(item) for item in body[1]), maxlen=body[0])
        case "~dict":
            return {from_plain(key): from_plain(item) for key, item in body}
        case "~ordered":
            return OrderedDict((from_plain(key), from_plain(item)) for key, item in body)
        case "~evicting":
            return EvictingDict((from_plain(key), from_plain(item)) for key, item in body)
        case _:
            raise ValueError(f"unknown kind {kind!r} in a metric's state")
