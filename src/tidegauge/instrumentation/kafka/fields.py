"""Fields of a message, read strictly: each is of its type or the message is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import TidegaugeError

__all__ = ["Fields", "MessageError", "Refusal"]

Refusal: TypeAlias = Literal["malformed", "version", "invalid"]
Fields: TypeAlias = Mapping[str, Any]

_MAX_NUMBER: Final = (1 << 64) - 1


class MessageError(TidegaugeError, ValueError):
    """A message that cannot be read; its text says why, in one line.

    Attributes:
        reason: ``malformed``, it is no message of this kind; ``version``, it is of another
            version; ``invalid``, something in it is not as it should be.
    """

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def invalid(name: str, meant: str, told: object) -> MessageError:
    """What is wrong with a field; what it holds is told by its type: it may be anybody's words."""
    return MessageError("invalid", f"{name} is to be {meant}, not {type(told).__name__}")


def text(fields: Fields, name: str) -> str:
    """A text."""
    told = fields.get(name)
    if not isinstance(told, str):
        raise invalid(name, "a text", told)
    return told


def text_or_none(fields: Fields, name: str) -> str | None:
    """A text, if there is one."""
    return None if fields.get(name) is None else text(fields, name)


def flag(fields: Fields, name: str) -> bool:
    """Yes or no; left out, no."""
    told = fields.get(name, False)
    if not isinstance(told, bool):
        raise invalid(name, "true or false", told)
    return told


def number(fields: Fields, name: str) -> int:
    """A whole number that is not negative, of 64 bits at most."""
    told = fields.get(name)
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told <= _MAX_NUMBER:
        raise invalid(name, "a whole number of 64 bits", told)
    return told


def identifier(fields: Fields, name: str, digits: int) -> int:
    """An id in hexadecimal digits, as W3C's trace context writes it; none is all zeros.

    >>> identifier({"id": "00000000000000ff"}, "id", 16)
    255
    """
    told = text(fields, name)
    if len(told) != digits or not set(told) <= set("0123456789abcdef") or not int(told, 16):
        raise MessageError("invalid", f"{name} is to be {digits} hexadecimal digits, not all zero")
    return int(told, 16)


def mapping(fields: Fields, name: str) -> Fields:
    """An object; left out, an empty one."""
    told = fields.get(name, {})
    if not isinstance(told, Mapping):
        raise invalid(name, "an object", told)
    return told


def texts(fields: Fields, name: str) -> dict[str, str]:
    """An object whose values are texts; left out, an empty one."""
    told = mapping(fields, name)
    return {key: text(told, key) for key in told}


def objects(fields: Fields, name: str) -> list[Fields]:
    """A list of objects."""
    told = fields.get(name)
    if not isinstance(told, Sequence) or isinstance(told, str):
        raise invalid(name, "a list", told)
    for each in told:
        if not isinstance(each, Mapping):
            raise invalid(f"each of {name}", "an object", each)
    return list(told)
