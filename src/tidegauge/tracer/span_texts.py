"""Texts on spans: names, and the beginnings of contents. None of the user's code runs."""

from __future__ import annotations

import json
from typing import Any, Final

from tidegauge._canonical import canonical_start, plain_text

__all__ = ["content_text", "plain_name", "span_name"]

_MAX_CONTENT: Final = 8_192
_MAX_DATA: Final = 4 * _MAX_CONTENT
"""Bytes that have so many characters at least, if they are not the whole text."""

_MAX_NAME: Final = 128


def span_name(operation: str, what: str | None) -> str:
    """The name of a span: the operation, and what it is done with."""
    return f"{operation} {plain_name(what[:_MAX_NAME])}" if what else operation


def plain_name(value: str) -> str:
    """``value`` without lone surrogates, of which one would lose a whole batch of spans."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def content_text(value: Any) -> str:
    """The beginning of a content, as JSON where it is plain."""
    if issubclass(type(value), str):
        text: str = str.__getitem__(value, slice(_MAX_CONTENT + 1))
    else:
        data = plain_text(value)
        if data is not None and len(data) <= _MAX_DATA:
            text = json.dumps(value)
        else:  # a long one would be written as a whole, and then cut off
            shown = canonical_start(value, _MAX_DATA) if data is None else data[:_MAX_DATA]
            text = shown.decode("utf-8", "ignore")
    return plain_name(text if len(text) <= _MAX_CONTENT else text[:_MAX_CONTENT] + "…")
