"""Looking at values of the user's without running code of theirs."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from itertools import islice
from types import WrapperDescriptorType
from typing import Any, Final

from tidegauge._canonical import bases, namespace, type_name
from tidegauge._guard import arrived_from_outside, guarded, internal_errors

__all__ = ["collected", "failure_text", "is_a", "same_value", "text_digest", "told_items", "truth"]

_PLAIN: Final = (str, int, float, bool, type(None))
_MAX_COMPARED: Final = 10_000
_MAX_TOLD: Final = 10_000
_VIEWS: Final[tuple[Any, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_BUILT_IN: Final[tuple[Any, ...]] = (
    *(tuple, list, set, frozenset, dict, deque, str, bytes, range),
    *_VIEWS,
)
_ABSTRACT: Final = (Sequence, Set, Mapping, Iterator, Generator)
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


def collected(values: object, most: int) -> tuple[Any, ...]:
    """What a collection or an iterator holds, no more than so much of it.

    Raises:
        TypeError: it is neither by its class: going through any other object could do anything.

    >>> collected(iter([1, 2, 3]), 2)
    (1, 2)
    """
    kind = type(values)
    for built_in in _BUILT_IN:
        if issubclass(kind, built_in):
            return tuple(islice(built_in.__iter__(values), most))
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return tuple(islice(numpy.ndarray.__iter__(values), most))
    for base in bases(kind):
        if "__next__" in namespace(base) or any(base is abstract for abstract in _ABSTRACT):
            return tuple(islice(values, most))  # type: ignore[call-overload]
    raise TypeError(f"{type_name(kind)} is no collection: give a tuple, a list or a set")


def told_items(values: object) -> tuple[Any, ...] | None:
    """What was told one by one, at most 10,000 of them; ``None``, not told, or in no such form."""
    if values is None:
        return None
    kind = type(values)
    if (kind is list or kind is tuple) and len(values) <= _MAX_TOLD:  # type: ignore[arg-type]
        return tuple(values)  # type: ignore[arg-type]
    return _collected(values)


@guarded("told", default=None, interrupting="run")
def _collected(values: object) -> tuple[Any, ...] | None:
    return collected(values, _MAX_TOLD)


def truth(value: object) -> bool | None:
    """The truth of a value; ``None`` and an internal error where it has none."""
    if value is None or value is True or value is False:
        return value
    if issubclass(type(value), BaseException):
        return True
    try:
        return bool(value)
    except Exception as error:
        if arrived_from_outside(error):
            raise
        internal_errors.record("told", error)
        return None


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
