"""JSON texts from outside: within bounds, or with integers of any size."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

from tidegauge.values.elements import FREE, MOST, check_json

_DIGITS: Final = bytes.maketrans(b"123456789", b"0" * 9)
_MANY: Final = b"0" * 19
_HUGE: Final = re.compile(rb"[0-9]{20}|-[0-9]{19}")


def bounded_json(text: bytes | str, most: int = MOST) -> Any:
    """The value of a JSON text that may have been made to take much memory and time.

    Args:
        text: the text.
        most: limit of its elements, beside that by its size.

    Raises:
        ValueError: it is not JSON, or has too many elements; see :func:`check_json`.

    >>> bounded_json(b'{"q": [1]}')
    {'q': [1]}
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > FREE:
        check_json(raw, most)
    return orjson.loads(raw)


def exact_json(text: str, *, max_slow: int | None = None) -> Any:
    """The value of a JSON text.

    orjson reads an integer beyond 64 bits as a float, so that different numbers become equal, and
    rejects lone surrogates. The ``json`` module reads both exactly, but slowly.

    Args:
        text: the text.
        max_slow: limit of the characters that the slow parser reads.

    Raises:
        ValueError: it is not JSON, or too long for the slow parser.
        RecursionError: it is too deep.

    >>> exact_json('{"id": 36893488147419103233}')
    {'id': 36893488147419103233}
    """
    raw = text.encode("utf-8", "surrogatepass")
    # The search is slow, and almost no text has so many digits in a row.
    if _MANY not in raw.translate(_DIGITS) or not _HUGE.search(raw):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    if max_slow is not None and len(text) > max_slow:
        raise ValueError(f"longer than {max_slow} characters")
    return json.loads(text)
