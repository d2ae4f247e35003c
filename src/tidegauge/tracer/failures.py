"""What calls and runs failed with, on their spans.

The convention's ``error.type`` is on every span that failed. What the error says may be a content:
it is the description of the span's status only where contents are captured, redacted and cut as
they are.
"""

from __future__ import annotations

from typing import NamedTuple, Self, TypeAlias

from tidegauge.events import ABSENT, CallResult
from tidegauge.tracer.span_texts import Contents
from tidegauge.values import failure_text, type_name


class CallFailure(NamedTuple):
    """What a call failed with that is no exception.

    Attributes:
        kind: its kind, of which there are few.
        said: what the call returned, or is reported of it.
    """

    kind: str
    said: object = ABSENT

    @classmethod
    def of(cls, result: CallResult, kind: str = "tool_error") -> Self | None:
        """What a call failed with whose result says that it did; ``None``, it does not.

        >>> CallFailure.of(CallResult("no door", True)), CallFailure.of(CallResult("a door"))
        (CallFailure(kind='tool_error', said='no door'), None)
        """
        return cls(kind, result.outcome) if result.error else None


Failed: TypeAlias = "BaseException | CallFailure | None"
"""What something failed with; ``None``, it did not."""


def error_type(error: Failed) -> str | None:
    """The kind of an error: of an exception, the name of its class.

    >>> error_type(LookupError("no door")), error_type(CallFailure("tool_error", "no door"))
    ('builtins.LookupError', 'tool_error')
    """
    if error is None:
        return None
    if type(error) is CallFailure:
        return error.kind
    return type_name(type(error))  # nothing is asked of the error, which may be the user's


def error_text(error: Failed, contents: Contents) -> str | None:
    """What an error says, as it may be shown; ``None``, nothing is known.

    >>> error_text(LookupError("no door"), Contents(redact=str.upper))
    'LOOKUPERROR: NO DOOR'
    >>> error_text(CallFailure("tool_error", {"door": "red"}), Contents())
    '{"door":"red"}'
    """
    if error is None:
        return None
    if type(error) is not CallFailure:
        return contents.text(failure_text(error))  # type: ignore[arg-type]
    return None if error.said is ABSENT else contents.text(error.said)
