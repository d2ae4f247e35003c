"""Fields of a Kafka message, read strictly: a field of a wrong type rejects the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import TidegaugeError
from tidegauge.values.exact_json import bounded_json

Reason: TypeAlias = Literal["malformed", "version", "key", "invalid"]
Fields: TypeAlias = Mapping[str, Any]

VERSION: Final = 1
"""Of all messages that this release writes and reads."""

_MAX_NUMBER: Final = (1 << 64) - 1
_MAX_DETAIL: Final = 200


class MessageError(TidegaugeError, ValueError):
    """A message that cannot be read.

    Attributes:
        reason: ``malformed``: it is not JSON, or not such a message; ``version``: it has another
            version; ``key``: its key is not its run's id; ``invalid``: a field is wrong.
        detail: what is wrong, in one line.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = one_line(detail)
        super().__init__(f"{reason}: {self.detail}")


def one_line(text: str) -> str:
    r"""The beginning of a text, in one line.

    >>> one_line("a\n  b")
    'a b'
    """
    return " ".join(text[:_MAX_DETAIL].split())


def invalid(name: str, expected: str, value: object) -> MessageError:
    """The error for a field. It names the type of the value only: the value may be private."""
    return MessageError("invalid", f"{name} must be {expected}, not {type(value).__name__}")


def json_object(value: bytes | None) -> dict[str, Any]:
    """A message's value as a JSON object."""
    try:
        data = bounded_json(value or b"")
    except ValueError as error:
        raise MessageError("malformed", f"not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise MessageError("malformed", "not a JSON object")
    return data


def check_version(version: object) -> None:
    """Reject every version but :data:`VERSION`."""
    if isinstance(version, bool) or version != VERSION:
        given = str(version) if type(version) is int else f"of type {type(version).__name__}"
        raise MessageError("version", f"version {given} is not supported; use {VERSION}")


def text(fields: Fields, name: str) -> str:
    """A string."""
    value = fields.get(name)
    if not isinstance(value, str):
        raise invalid(name, "a string", value)
    return value


def text_or_none(fields: Fields, name: str) -> str | None:
    """A string, if there is one."""
    return None if fields.get(name) is None else text(fields, name)


def flag(fields: Fields, name: str) -> bool:
    """True or false; absent is false."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise invalid(name, "true or false", value)
    return value


def number(fields: Fields, name: str) -> int:
    """An unsigned 64-bit integer."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NUMBER:
        raise invalid(name, "an unsigned 64-bit integer", value)
    return value


def identifier(fields: Fields, name: str, digits: int) -> int:
    """An id in hexadecimal digits, as in W3C's trace context; never all zeros.

    >>> identifier({"id": "00000000000000ff"}, "id", 16)
    255
    """
    value = text(fields, name)
    if len(value) != digits or not set(value) <= set("0123456789abcdef") or not int(value, 16):
        raise MessageError("invalid", f"{name} must be {digits} hexadecimal digits, not all zero")
    return int(value, 16)


def mapping(fields: Fields, name: str) -> Fields:
    """An object; absent is an empty one."""
    value = fields.get(name, {})
    if not isinstance(value, Mapping):
        raise invalid(name, "an object", value)
    return value


def texts(fields: Fields, name: str) -> dict[str, str]:
    """An object whose values are strings; absent is an empty one."""
    values = mapping(fields, name)
    return {key: text(values, key) for key in values}


def objects(fields: Fields, name: str) -> list[Fields]:
    """A list of objects."""
    values = fields.get(name)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise invalid(name, "a list", values)
    for each in values:
        if not isinstance(each, Mapping):
            raise invalid(f"each of {name}", "an object", each)
    return list(values)
