"""What every message of a fleet has: JSON with a version. What cannot be read is rejected."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import TidegaugeError
from tidegauge.values.exact_json import bounded_json

Reason: TypeAlias = Literal["malformed", "version", "key", "invalid"]

VERSION: Final = 1
"""Of all messages that this release writes and reads."""

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
