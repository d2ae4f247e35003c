"""A line as JSON, in numbers and texts that are read again as they were."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson

__all__ = ["amount", "encoded", "moment"]

_MAX_NUMBER: Final = 2.0**53
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def encoded(line: Mapping[str, Any], *, nulls: bool = False) -> bytes:
    """The line's bytes, without what is ``None``: null means "not given" to whoever reads it.

    Args:
        line: a JSON object.
        nulls: write what is ``None``, too, for those to whom it means something.

    >>> encoded({"type": "end", "run": "r1", "success": None})
    b'{"type":"end","run":"r1"}'
    """
    told = {key: value for key, value in line.items() if nulls or value is not None}
    try:
        return orjson.dumps(told, option=_OPTIONS)
    except TypeError:  # texts that UTF-8 has no form for, subclasses, huge numbers
        return orjson.dumps(_plain(told), option=_OPTIONS)


def amount(told: float | None) -> float | None:
    """A number that is read again: the engine adds up no other."""
    return told if told is not None and 0 <= told <= _MAX_NUMBER else None


def _plain(value: Any) -> Any:
    """``value`` in what JSON has a form for, whatever it takes."""
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
    """A time as it is written; ``None``, now."""
    if seconds is not None:
        with suppress(ValueError, OverflowError, OSError):  # a moment beyond all calendars
            return datetime.fromtimestamp(seconds, UTC)
    return datetime.now(UTC)
