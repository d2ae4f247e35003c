"""Inspect the user's values without running their code."""

from __future__ import annotations

import hashlib
from types import WrapperDescriptorType
from typing import Any, Final

__all__ = ["failure_text", "is_a", "same_value", "text_digest"]

_PLAIN: Final = (str, int, float, bool, type(None))
_MAX_COMPARED: Final = 10_000
_MAX_TEXT: Final = 65_536


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """``isinstance`` by the value's real class: a lazy proxy is not evaluated.

    >>> is_a(True, int), is_a("1", (int, float))
    (True, False)
    """
    return issubclass(type(value), kinds)


def failure_text(error: BaseException) -> str:
    """What an exception says, with its class.

    The text of an exception class written in Python is taken from its arguments, since its
    ``__str__`` could do anything.

    >>> failure_text(ValueError("no such page"))
    'ValueError: no such page'
    """
    kind = type(error)
    args: tuple[Any, ...] = BaseException.__dict__["args"].__get__(error)
    plain = all(type(one) in _PLAIN for one in args)
    if plain and type(kind.__str__) is WrapperDescriptorType:
        text = str(error)
    elif plain:
        text = ", ".join([str(one) for one in args])
    else:
        text = ", ".join([str(one) if type(one) in _PLAIN else type(one).__name__ for one in args])
    return f"{kind.__name__}: {text[:_MAX_TEXT]}"


def text_digest(text: str) -> str:
    """What stands for a text that need not be kept: 32 hexadecimal digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def same_value(left: object, right: object) -> bool:
    """Whether two values are equal as JSON has them; others are when they are one object.

    >>> same_value({"id": [1, 2]}, {"id": [1, 2]}), same_value(1, 1.0), same_value({}, [])
    (True, False, False)
    """
    waiting, compared = [(left, right)], 0
    while waiting:
        one, other = waiting.pop()
        compared += 1
        if one is other:
            continue
        kind = type(one)
        if kind is not type(other) or compared > _MAX_COMPARED:
            return False
        if kind is dict:
            if len(one) != len(other):  # type: ignore[arg-type]
                return False
            for key, value in one.items():  # type: ignore[attr-defined]
                if type(key) is not str or key not in other:  # type: ignore[operator]
                    return False
                waiting.append((value, other[key]))  # type: ignore[index]
        elif kind is list or kind is tuple:
            if len(one) != len(other):  # type: ignore[arg-type]
                return False
            waiting.extend(zip(one, other, strict=True))  # type: ignore[call-overload]
        elif kind not in _PLAIN or one != other:
            return False
    return True
