"""Label values: short, writable, and still told apart."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["MAX_LENGTH", "label_value"]

MAX_LENGTH: Final = 128


def label_value(value: object) -> str:
    """What stands for ``value`` as a label's value: itself, if it is a text that can be written.

    Names come from outside: one that is too long, or that UTF-8 has no form for, is cut and ends
    in a digest of the whole, so that two of them don't become one series.

    >>> label_value("browser")
    'browser'
    >>> label_value("find it " * 100)[-20:]
    ' it find it…28afe79d'
    """
    text = str(value)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = text.encode("utf-8", "backslashreplace")
        text = encoded.decode()
    else:
        if len(text) <= MAX_LENGTH:
            return text
    digest = hashlib.blake2b(encoded, digest_size=4).hexdigest()
    return f"{text[: MAX_LENGTH - len(digest) - 1]}…{digest}"
