"""How much the receiver reads of what comes, and how much of it it holds."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ASSEMBLY_LIMITS", "READ_LIMITS", "AssemblyLimits", "ReadLimits"]


class ReadLimits(NamedTuple):
    """How much of a request is read.

    Args:
        spans: spans in one request; those after it are refused.
        attributes: attributes of one span, resource or event; those after it are left out.
        text: characters of a text in an attribute; what comes after is cut off.
    """

    spans: int = 100_000
    attributes: int = 2_000
    text: int = 1_048_576


READ_LIMITS: Final = ReadLimits()


class AssemblyLimits(NamedTuple):
    """How much is held, and for how long.

    Args:
        settle_seconds: for so long a span is kept after its arrival before it is told.
        idle_seconds: a trace, and a run, without a span for so long is ended.
        orphan_seconds: the same for a run whose outermost known span has ended, while that is
            inside one that never arrived.
        traces: traces held; one more ends the one idle for longest.
        runs: open runs held; one more ends the one idle for longest.
        spans: spans remembered, so that what arrives twice is counted once; of more, the traces
            idle for longest go.
        undecided_bytes: of calls that wait for the span around them; one more waits no longer.
    """

    settle_seconds: float = 0.5
    idle_seconds: float = 600.0
    orphan_seconds: float = 60.0
    traces: int = 10_000
    runs: int = 10_000
    spans: int = 500_000
    undecided_bytes: int = 64 * 1024 * 1024


ASSEMBLY_LIMITS: Final = AssemblyLimits()
