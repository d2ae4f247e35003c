"""What users set, checked at once: each field of a dataclass by its annotation.

The annotation, as it is written, names a :class:`Kind` in a table. ``X | None`` also takes
``None``, ``Iterable[X]`` a list (kept as a tuple), ``Mapping[str, X]`` a mapping by name (kept as
a dict).
"""

from __future__ import annotations

import contextlib
import math
import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from numbers import Real
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError

__all__ = [
    "KINDS",
    "Count",
    "Kind",
    "Kinds",
    "Seconds",
    "check_fields",
    "checked",
    "function",
    "having",
    "instance_of",
    "whole",
]

Count: TypeAlias = int
"""A whole number of 1 or more."""

Seconds: TypeAlias = float
"""A number of seconds, more than 0."""

_SHOWN_CHARACTERS: Final = 80


class Kind(NamedTuple):
    """What a setting takes.

    Args:
        use: what to set, for the message.
        read: takes the value and gives it as it is kept; raises for one that cannot work.
        secret: keep the value out of the message.
    """

    use: str
    read: Callable[[Any], Any]
    secret: bool = False


Kinds: TypeAlias = Mapping[str, Kind]


def check_fields(made: Any, kinds: Kinds) -> None:
    """Check every field of a frozen dataclass, and keep what was read.

    Raises:
        ConfigurationError: the first value that cannot work.
    """
    for field in fields(made):
        value = checked(field.name, getattr(made, field.name), str(field.type), kinds)
        object.__setattr__(made, field.name, value)


def checked(name: str, value: Any, annotation: str, kinds: Kinds) -> Any:
    """The value of a setting as it is kept.

    Raises:
        ConfigurationError: it cannot work.

    >>> checked("max_runs", "10", "Count", KINDS)
    Traceback (most recent call last):
        ...
    tidegauge.errors.ConfigurationError: max_runs is '10'; use a whole number of 1 or more
    """
    annotation, optional, _ = annotation.partition(" | None")
    if value is None and optional:
        return None
    outer, _, inner = annotation.removesuffix("]").partition("[")
    match outer:
        case "Iterable":
            items = _read(name, value, Kind(f"a list, each item {kinds[inner].use}", _iterator))
            return tuple(
                checked(f"{name}[{at}]", item, inner, kinds) for at, item in enumerate(items)
            )
        case "Mapping":
            inner = inner.removeprefix("str, ")
            use = f"a dict by name, each value {kinds[inner].use}"
            return {
                checked(f"a key of {name}", key, "str", kinds): checked(
                    f"{name}[{_shown(key)}]", item, inner, kinds
                )
                for key, item in _read(name, value, Kind(use, _items))
            }
        case _:
            return _read(name, value, kinds[annotation])


def _read(name: str, value: Any, kind: Kind) -> Any:
    with contextlib.suppress(Exception):  # the value may be of anybody's class
        return kind.read(value)
    shown = f"of type {type(value).__name__}" if kind.secret else _shown(value)
    raise ConfigurationError(f"{name} is {shown}; use {kind.use}")


def _shown(value: object) -> str:
    """The beginning of a value's ``repr``, in one line."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _SHOWN_CHARACTERS
    try:
        text = " ".join(brief.repr(value).split())
    except Exception:  # noqa: BLE001 -- a number of thousands of digits has none
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def instance_of(taken: type, use: str) -> Kind:
    """What is of a class."""

    def read(value: Any) -> Any:
        if not isinstance(value, taken):
            raise TypeError
        return value

    return Kind(use, read)


def having(*methods: str, use: str) -> Kind:
    """What has these methods, whatever its class; no class that was not called."""

    def read(value: Any) -> Any:
        if isinstance(value, type) or not all(callable(getattr(value, name)) for name in methods):
            raise TypeError
        return value

    return Kind(use, read)


def function(use: str) -> Kind:
    """What can be called."""

    def read(value: Any) -> Any:
        if not callable(value):
            raise TypeError
        return value

    return Kind(use, read)


def whole(least: int, most: float = math.inf, use: str | None = None) -> Kind:
    """A whole number within limits, of any type of whole numbers but ``bool``."""

    def read(value: Any) -> int:
        number = operator.index(value)
        if isinstance(value, bool) or not least <= number <= most:
            raise ValueError
        return number

    return Kind(use or f"a whole number of {least} or more", read)


def _seconds(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not isinstance(value, Real) or not number > 0:
        raise ValueError
    return number


def _iterator(value: Any) -> Iterator[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError
    iterator: Iterator[Any] = iter(value)
    return iterator


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError
    return list(value.items())


KINDS: Final[Kinds] = {
    "bool": instance_of(bool, "True or False"),
    "str": instance_of(str, "a text"),
    "Count": whole(1),
    "Seconds": Kind("a number of seconds, more than 0", _seconds),
}
"""What every table of kinds begins with."""
