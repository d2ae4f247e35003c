"""What reading a trace request takes and gives, whichever form it comes in.

A span that is not valid is refused and told, the rest of its request is taken (OTLP's partial
success); a request that is none raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.instrumentation.otlp.limits import ReadLimits
from tidegauge.instrumentation.spans.span import SpanData

__all__ = [
    "MAX_DEPTH",
    "MAX_EVENTS",
    "REMOTE",
    "Decoded",
    "MalformedRequestError",
    "Taking",
]

REMOTE: Final = 0x300
"""Of a span's flags: it is known whether its parent is remote, and it is."""

MAX_DEPTH: Final = 32
"""How deep lists and mappings in an attribute are read."""

MAX_EVENTS: Final = 128
"""How many events of a span are read."""


class MalformedRequestError(TidegaugeError, ValueError):
    """What came is no trace request; the message says why."""


class Decoded(NamedTuple):
    """What a request brought.

    Args:
        spans: those that are taken.
        refused: how many are not, by reason: ``invalid``, ``too_many``.
    """

    spans: list[SpanData]
    refused: Mapping[str, int] = {}

    @property
    def rejected(self) -> int:
        """How many spans are not taken."""
        return sum(self.refused.values())

    @property
    def reason(self) -> str | None:
        """Why, for whoever sent them; ``None``, all are taken.

        >>> Decoded([], {"invalid": 2}).reason
        '2 spans refused: their ids, names or times are not valid'
        """
        why = {
            "invalid": "their ids, names or times are not valid",
            "too_many": "too many in one request",
        }
        told = [f"{count} spans refused: {why[kind]}" for kind, count in self.refused.items()]
        return "; ".join(told) or None


class Taking:
    """Counts what is taken and what is refused.

    Args:
        limits: how many are taken.
    """

    def __init__(self, limits: ReadLimits) -> None:
        self._room = limits.spans
        self._refused: dict[str, int] = {}
        self._spans: list[SpanData] = []

    @property
    def decoded(self) -> Decoded:
        """What was taken and what was not, so far."""
        return Decoded(self._spans, self._refused)

    def take(self, span: SpanData | None) -> None:
        """Take a span, if it and its ids are valid and there is room; ``None`` is not valid."""
        if span is None or not span.trace_id or not span.span_id:
            self.refuse("invalid")
        elif len(self._spans) >= self._room:
            self.refuse("too_many")
        else:
            self._spans.append(span)

    def refuse(self, reason: str) -> None:
        """Count a span that is not taken."""
        self._refused[reason] = self._refused.get(reason, 0) + 1
