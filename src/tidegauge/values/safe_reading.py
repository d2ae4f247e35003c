"""Inspect the user's values without running their code: names, numbers, texts and labels."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final
from uuid import UUID

from tidegauge.safety.guard import arrived_from_outside, guarded, internal_errors
from tidegauge.values import Identities, bases, built_in, namespace, type_name

_MAX_COMPARED: Final = 10_000
MAX_COUNT: Final = 1 << 53
_MAX_GIVEN: Final = 10_000
_VIEWS: Final[tuple[Any, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_BUILT_IN: Final[tuple[Any, ...]] = (
    *(tuple, list, set, frozenset, dict, deque, str, bytes, range),
    *_VIEWS,
)
_ABSTRACT: Final = (Sequence, Set, Mapping, Iterator, Generator)


def is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """``isinstance`` by the value's real class: a lazy proxy is not evaluated.

    >>> is_a(True, int), is_a("1", (int, float))
    (True, False)
    """
    return issubclass(type(value), kinds)


def entry(mapping: Any, name: str) -> Any:
    """What a ``dict`` holds under a name; ``None``: nothing, or it is no ``dict``.

    >>> entry({"a": 1}, "a"), entry({"a": 1}, "b"), entry(["a"], "a")
    (1, None, None)
    """
    if type(mapping) is dict:
        return mapping.get(name)
    return dict.get(mapping, name) if issubclass(type(mapping), dict) else None


def part(value: Any, of: slice) -> Sequence[Any]:
    """What a slice takes of a list or a tuple, as a plain one; of anything else nothing.

    >>> part([1, 2, 3], slice(2)), part((1, 2), slice(-1, None)), part("text", slice(2))
    ([1, 2], (2,), ())
    """
    kind = type(value)
    if issubclass(kind, list):
        return list.__getitem__(value, of)
    return tuple.__getitem__(value, of) if issubclass(kind, tuple) else ()


def plain_items(value: Any) -> Sequence[Any] | None:
    """A list itself, if it is a plain one, else a plain copy of a list or a tuple; or nothing.

    >>> plain_items([1]), plain_items([]), plain_items("text")
    ([1], None, None)
    """
    return (value if type(value) is list else part(value, slice(None))) or None


def first(value: object) -> Any:
    """The first item of a list or a tuple; ``None``, there is none."""
    if type(value) is list:
        return value[0] if value else None
    return next(iter(part(value, slice(1))), None)


def last(value: object) -> Any:
    """The last item of a list or a tuple; ``None``, there is none."""
    return next(iter(part(value, slice(-1, None))), None)


def label(value: Any) -> str | None:
    """A name or an id as a plain text; ``None``, it is none.

    >>> label("a"), label(7), label(None), label(["a"])
    ('a', '7', None, None)
    """
    if value is None or type(value) is str:
        return value
    kind: Any = type(value)
    if kind is UUID:
        return str(value)
    if issubclass(kind, str):
        return str.__str__(value)
    for known in (bool, int, float):
        if issubclass(kind, known):
            try:
                return known.__repr__(value)
            except ValueError:  # more digits than Python writes
                return None
    return None


def labels(mapping: Any, names: Sequence[str]) -> list[str | None]:
    """Several labels that a ``dict`` holds: as :func:`entry` and :func:`label` read them.

    >>> labels({"model": "m", "id": 7}, ("id", "model", "name")), labels([], ("id",))
    (['7', 'm', None], [None])
    """
    if not issubclass(type(mapping), dict):
        return [None] * len(names)
    found: list[str | None] = []
    for name in names:
        value = dict.get(mapping, name)
        found.append(value if value is None or type(value) is str else label(value))
    return found


def named(value: object, identities: Identities | None = None) -> str | None:
    """What something is called, as a plain text: what is no :func:`label` has a name all the same.

    Args:
        value: anything.
        identities: of the same event: together they cost no more than one value.

    >>> named("a"), named(None), named(("a", 1)), named(object())
    ('a', None, "('a', 1)", 'builtins.object')
    """
    if value is None or type(value) is str:
        return value
    name = label(value)
    if name is None:
        try:
            name = str((identities or Identities()).plain(value))
        except ValueError as error:
            internal_errors.record("identity", error)
            name = type_name(type(value))
    return name


def whole(value: object) -> int | None:
    """A number that counts, as a plain ``int`` of 64 bits; else ``None`` and an internal error.

    >>> whole(30.0), whole("30"), whole(None), whole([30]), whole(10**400)
    (30, 30, None, None, None)
    """
    if value is None:
        return None
    try:
        found = value if type(value) is int else int(built_in(value))  # type: ignore[arg-type]
        if not -(1 << 63) <= found < 1 << 63:
            raise OverflowError("a number of more than 64 bits")
        return found
    except (TypeError, ValueError, OverflowError) as error:
        internal_errors.record("value", error)
        return None


def number(value: Any) -> float | None:
    """A number as a plain ``float``; ``None``, it is none."""
    if is_a(value, float):
        return float.__float__(value)
    try:
        return int.__float__(value) if is_a(value, int) else None
    except OverflowError:
        return None


def count(value: Any) -> int | None:
    """How many there are, as a plain ``int``; ``None``, it cannot be added up.

    >>> count(7), count(-7), count(1 << 100), count("7")
    (7, None, None, None)
    """
    kind = type(value)
    found = value if kind is int else int.__index__(value) if issubclass(kind, int) else -1
    return found if 0 <= found <= MAX_COUNT else None


def total(left: int | None, right: int | None) -> int | None:
    """Both numbers together; ``None``, neither is known.

    >>> total(10, None), total(None, None)
    (10, None)
    """
    return None if left is None and right is None else (left or 0) + (right or 0)


def collected(values: object, most: int) -> tuple[Any, ...]:
    """What a collection or an iterator holds, no more than so much of it.

    Raises:
        TypeError: it is neither by its class: going through any other object could do anything.

    >>> collected(iter([1, 2, 3]), 2)
    (1, 2)
    """
    kind = type(values)
    for known in _BUILT_IN:
        if issubclass(kind, known):
            return tuple(islice(known.__iter__(values), most))
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return tuple(islice(numpy.ndarray.__iter__(values), most))
    for base in bases(kind):
        if "__next__" in namespace(base) or any(base is abstract for abstract in _ABSTRACT):
            return tuple(islice(values, most))  # type: ignore[call-overload]
    raise TypeError(f"{type_name(kind)} is not a collection; give a tuple, a list or a set")


def given_items(values: object) -> tuple[Any, ...] | None:
    """What a collection holds, at most 10,000 items; ``None``, not given, or no collection."""
    if values is None:
        return None
    kind = type(values)
    if (kind is list or kind is tuple) and len(values) <= _MAX_GIVEN:  # type: ignore[arg-type]
        return tuple(values)  # type: ignore[arg-type]
    return _collected(values)


@guarded("value", default=None, interrupting="run")
def _collected(values: object) -> tuple[Any, ...] | None:
    return collected(values, _MAX_GIVEN)


def truth(value: object) -> bool | None:
    """The truth of a value; ``None`` and an internal error where it has none.

    >>> truth([]), truth(0.5), truth(None), truth(object())
    (False, True, None, True)
    """
    if value is None or value is True or value is False:
        return value
    if issubclass(type(value), BaseException):
        return True
    try:
        return bool(value)
    except Exception as error:
        if arrived_from_outside(error):
            raise
        internal_errors.record("value", error)
        return None


def text_digest(text: str) -> str:
    """The digest of a text that need not be kept: 32 hexadecimal digits."""
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
            if len(one) != len(other) or len(one) + len(waiting) > _MAX_COMPARED:  # type: ignore[arg-type]
                return False
            waiting.extend(zip(one, other, strict=True))  # type: ignore[call-overload]
        elif not _is_plain(one) or one != other:
            return False
    return True


def _is_plain(value: object) -> bool:
    kind = type(value)
    return kind is str or kind is int or kind is float or kind is bool or value is None
