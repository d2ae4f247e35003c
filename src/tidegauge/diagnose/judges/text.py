"""Texts that can be sent and written, whatever was in them."""

from __future__ import annotations

__all__ = ["writable"]


def writable(text: str) -> str:
    """A text without lone surrogates: agents and models write them, UTF-8 has no form for them.

    >>> writable("half of a \\ud83d face")
    'half of a ? face'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
