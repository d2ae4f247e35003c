"""Kinds of settings: what a value must be, for :func:`~tidegauge.configure` and the command line.

:func:`check_fields` checks each field of a dataclass by its annotation. The annotation, as it is
written, names a :class:`ValueKind` in a table. ``X | None`` also takes ``None``, ``Iterable[X]`` a
list (kept as a tuple), ``Mapping[str, X]`` a mapping by name (kept as a dict).
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

Count: TypeAlias = int
"""A whole number of 1 or more."""

Seconds: TypeAlias = float
"""A number of seconds, more than 0."""

Share: TypeAlias = float
"""A number from 0 to 1."""

_SHOWN_CHARACTERS: Final = 80


class ValueKind(NamedTuple):
    """What a setting takes.

    Args:
        use: what to set, for the message.
        read: takes the value and returns the one to store; raises if the value is invalid.
        secret: whether to keep the value out of the message.
    """

    use: str
    read: Callable[[Any], Any]
    secret: bool = False


Kinds: TypeAlias = Mapping[str, ValueKind]


class Range(NamedTuple):
    """Finite numbers from ``low`` to ``high``; ``exclusive``, without these two.

    >>> str(Range(1)), str(Range(0, 65_535)), str(Range(0, 1, exclusive=True))
    ('1 or more', '0 to 65535', 'more than 0 and less than 1')
    >>> math.inf in Range(1), 0.0 in Range(0, exclusive=True), 10**400 in Range(1)
    (False, False, True)
    """

    low: int
    high: int | None = None
    exclusive: bool = False

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int | float) or number in (math.inf, -math.inf):
            return False
        if self.exclusive and number in (self.low, self.high):
            return False
        return self.low <= number and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.exclusive:
            below = "" if self.high is None else f" and less than {self.high}"
            return f"more than {self.low}{below}"
        return f"{self.low} or more" if self.high is None else f"{self.low} to {self.high}"


COUNTS: Final = Range(1)
PORTS: Final = Range(0, 65_535)
SHARES: Final = Range(0, 1)


def check_fields(made: Any, kinds: Kinds) -> None:
    """Check every field of a frozen dataclass, and store the checked values.

    Raises:
        ConfigurationError: a value is invalid.
    """
    for field in fields(made):
        value = checked(field.name, getattr(made, field.name), str(field.type), kinds)
        object.__setattr__(made, field.name, value)


def checked(name: str, value: Any, annotation: str, kinds: Kinds) -> Any:
    """The value of a setting, checked and converted.

    Raises:
        ConfigurationError: the value is invalid.

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
            items = _read(
                name, value, ValueKind(f"a list, each item {kinds[inner].use}", _iterator)
            )
            return tuple(
                checked(f"{name}[{at}]", item, inner, kinds) for at, item in enumerate(items)
            )
        case "Mapping":
            inner = inner.removeprefix("str, ")
            use = f"a dict by name, each value {kinds[inner].use}"
            return {
                checked(f"a key of {name}", key, "str", kinds): checked(
                    f"{name}[{shown(key)}]", item, inner, kinds
                )
                for key, item in _read(name, value, ValueKind(use, _items))
            }
        case _:
            return _read(name, value, kinds[annotation])


def _read(name: str, value: Any, kind: ValueKind) -> Any:
    with contextlib.suppress(Exception):  # the value may run code of any class
        return kind.read(value)
    given = f"of type {type(value).__name__}" if kind.secret else shown(value)
    raise ConfigurationError(f"{name} is {given}; use {kind.use}")


def shown(value: object) -> str:
    """The beginning of a value's ``repr``, in one line."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _SHOWN_CHARACTERS
    try:
        text = " ".join(brief.repr(value).split())
    except Exception:  # noqa: BLE001 -- a number of thousands of digits has none
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def instance_of(taken: type, use: str) -> ValueKind:
    """An instance of a class."""

    def read(value: Any) -> Any:
        if not isinstance(value, taken):
            raise TypeError
        return value

    return ValueKind(use, read)


def having(*methods: str, use: str) -> ValueKind:
    """An instance of any class with these methods."""

    def read(value: Any) -> Any:
        if isinstance(value, type) or not all(callable(getattr(value, name)) for name in methods):
            raise TypeError
        return value

    return ValueKind(use, read)


def function(use: str) -> ValueKind:
    """A callable."""

    def read(value: Any) -> Any:
        if not callable(value):
            raise TypeError
        return value

    return ValueKind(use, read)


def whole(taken: Range, use: str | None = None) -> ValueKind:
    """An integer of any type but ``bool``, in a range."""

    def read(value: Any) -> int:
        number = operator.index(value)
        if isinstance(value, bool) or number not in taken:
            raise ValueError
        return number

    return ValueKind(use or f"a whole number of {taken}", read)


def one_of(*values: str) -> ValueKind:
    """One of these texts."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError
        return value

    return ValueKind(" or ".join(f'"{one}"' for one in values), read)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _seconds(value: Any) -> float:
    number = _real(value)
    if not number > 0:  # endless is a time, too
        raise ValueError
    return number


def _share(value: Any) -> float:
    number = _real(value)
    if number not in SHARES:
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
    "Count": whole(COUNTS),
    "Seconds": ValueKind("a number of seconds, more than 0", _seconds),
    "Share": ValueKind("a share from 0 to 1", _share),
}
"""Kinds for every table."""
