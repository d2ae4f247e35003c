"""Any metric's fields as plain data, and back: what a run needs to move to another process.

JSON has no bytes, tuples, sets, deques, large integers or keys that are not text; those are
written as a one-entry object ``{"~kind": ...}``. Nothing is executed on the way back.

>>> from_plain(to_plain({(1, 2): b"\\x00", "x": [None, 0.5]}))
{(1, 2): b'\\x00', 'x': [None, 0.5]}
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final

from tidegauge.streaming_metrics.evicting_dict import EvictingDict

_LARGE: Final = 63
"""Bits from which on readers of JSON round integers, or refuse them."""

WITHOUT_KIND: Final = frozenset({str, int, float, bool, type(None)})


def to_plain(value: object) -> Any:
    """Plain data (``None``, numbers, text, lists, objects with text keys) for ``value``.

    Raises:
        TypeError: the value is of a kind that has no plain form.
    """
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _LARGE else {"~int": f"{value:x}"}
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
    # Most values are numbers and texts: what restores runs reads hundreds of them for each.
    kind = type(data)
    if kind is not dict and kind is not list:
        return data
    if kind is dict and len(data) != 1:
        raise ValueError("an object of a metric's state has one entry, its kind")
    try:
        return _each(data) if kind is list else _value(*next(iter(data.items())))
    except (TypeError, IndexError) as error:
        name = "list" if kind is list else next(iter(data))
        raise ValueError(f"malformed {name!r} in a metric's state") from error


def _each(items: Iterable[Any]) -> list[Any]:
    # Digests are the most frequent values of a state that have a kind.
    return [
        item
        if type(item) in WITHOUT_KIND
        else bytes.fromhex(item["~bytes"])
        if type(item) is dict and len(item) == 1 and "~bytes" in item
        else from_plain(item)
        for item in items
    ]


def _pairs(body: Any) -> Iterable[tuple[Any, Any]]:
    keys, values = [key for key, _ in body], [value for _, value in body]
    return zip(_each(keys), _each(values), strict=True)


def _value(kind: str, body: Any) -> Any:
    match kind:
        case "~bytes":
            return bytes.fromhex(body)
        case "~int":
            return int(body, 16)
        case "~tuple":
            return tuple(_each(body))
        case "~evicting":
            return EvictingDict(_pairs(body))
        case "~dict":
            return dict(_pairs(body))
        case "~set":
            return set(_each(body))
        case "~deque":
            return deque(_each(body[1]), maxlen=body[0])
        case "~ordered":
            return OrderedDict(_pairs(body))
        case _:
            raise ValueError(f"unknown kind {kind!r} in a metric's state")
