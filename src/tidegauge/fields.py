"""Fields of JSON and TOML from outside, read strictly, and files that hold them.

Each function gives a field of an object, or raises a :class:`FieldError`. Its message names the
field and the kind of its value, never a text, which may be private. ``where`` is where the object
is, such as ``calls[0]``.

>>> text({"run": "r1"}, "run")
'r1'
>>> text({"name": 7}, "name", "calls[0]")
Traceback (most recent call last):
    ...
tidegauge.fields.FieldError: calls[0].name is a number; use a string
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tidegauge.errors import ConfigurationError

Fields: TypeAlias = Mapping[str, Any]

_MAX_SHOWN: Final = 60


class FieldError(ValueError):
    """A field is missing or has a wrong value; the message says what to use."""


def text(fields: Fields, name: str, where: str = "") -> str:
    """A string."""
    value = fields.get(name)
    if isinstance(value, str):
        return value
    if name not in fields:
        raise missing(name, where)
    raise wrong(name, "a string", value, where)


def text_or_none(fields: Fields, name: str, where: str = "") -> str | None:
    """A string, if there is one."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise wrong(name, "a string", value, where)


def texts(fields: Fields, name: str) -> tuple[str, ...]:
    """A list of strings; absent is an empty one."""
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise wrong(name, "a list of strings", value)
    return tuple(value)


def flag(fields: Fields, name: str, where: str = "") -> bool | None:
    """True or false, if it is known."""
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(name, "true, false or null", value, where)


def whole(fields: Fields, name: str, least: int = 0, most: int | None = None) -> int | None:
    """A whole number in a range, if there is one."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(name, "a whole number", value)
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"{least} to {most}"
        raise FieldError(f"{name} is {value}; use {limits}")
    return value


def required_whole(fields: Fields, name: str, most: int | None = None) -> int:
    """A whole number of 0 or more."""
    value = whole(fields, name, most=most)
    if value is None:
        raise missing(name)
    return value


def number(fields: Fields, name: str) -> float | None:
    """A number, if there is one."""
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise wrong(name, "a number", value)
    return value


def number_from_0(fields: Fields, name: str, most: float | None = None) -> float | None:
    """A number from 0 on, if there is one."""
    value = number(fields, name)
    if value is not None and (value < 0 or (most is not None and value > most)):
        limits = "at least 0" if most is None else f"0 to {most}"
        raise FieldError(f"{name} is {value}; use {limits}")
    return value


def mapping(fields: Fields, name: str) -> Fields:
    """An object; absent is an empty one."""
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise wrong(name, "an object", value)
    return value


def objects(fields: Fields, name: str) -> list[Fields]:
    """A list of objects."""
    value = fields.get(name)
    if not isinstance(value, list):
        raise wrong(name, "a list", value)
    for at, one in enumerate(value):
        if not isinstance(one, Mapping):
            raise wrong(f"{name}[{at}]", "an object", one)
    return value


def identifier(fields: Fields, name: str, digits: int) -> int:
    """An id in hexadecimal digits, as in W3C's trace context; never all zeros.

    >>> identifier({"id": "00000000000000ff"}, "id", 16)
    255
    """
    value = text(fields, name)
    if len(value) != digits or not set(value) <= set("0123456789abcdef") or not int(value, 16):
        raise FieldError(f"{name} is no id; use {digits} hexadecimal digits, not all zero")
    return int(value, 16)


def missing(name: str, where: str = "") -> FieldError:
    """The error for a field that is not there."""
    return FieldError(f"{_full(name, where)} is missing")


def wrong(name: str, use: str, value: object, where: str = "") -> FieldError:
    """The error for a value of another kind."""
    return FieldError(f"{_full(name, where)} is {kind(value)}; use {use}")


def _full(name: str, where: str) -> str:
    return f"{where}.{name}" if where else name


def kind(value: object) -> str:
    """What a value is in JSON, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def shown(value: str) -> str:
    """The beginning of a text, in quotes."""
    quoted = repr(value)
    return quoted if len(quoted) <= _MAX_SHOWN else quoted[: _MAX_SHOWN - 1] + "…"


def content_of(path: str | os.PathLike[str], what: str, *, megabytes: int) -> bytes:
    """The content of a regular file of at most so many MiB.

    Args:
        path: the file.
        what: what it is, for messages: ``policy``, ``score``.
        megabytes: its limit.

    Raises:
        ConfigurationError: it cannot be read, is not a regular file, or is larger.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb", opener=without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(f"not a regular file; give the path of a {what} file")
            content = stream.read((megabytes << 20) + 1)
    except OSError as error:
        raise ConfigurationError(f"{what} {name}: {error.strerror or error}") from error
    except ValueError as error:  # such as a name with a null byte
        raise ConfigurationError(f"{what} {name!r}: {error}") from error
    if len(content) > megabytes << 20:
        raise ConfigurationError(
            f"{what} {name}: larger than {megabytes} MiB; give the path of a {what} file"
        )
    return content


def without_waiting(path: str, flags: int) -> int:
    """An opener for ``open()`` that does not wait for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
