"""Traces that were loaded from plain data, and are read when they are needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple


class SleepingTrace(NamedTuple):
    """A trace that is not read yet.

    Args:
        parts: gives its plain data.
        spans: number of its spans.
        runs: number of its open runs.
        ends: when the first part of it ends, if nothing comes until then.
    """

    parts: Callable[[], Any]
    spans: int
    runs: int
    ends: float


class SleepingTraces:
    """Traces that are not read yet; after :meth:`in_order`, the one that ends next is first.

    Attributes:
        spans: number of their spans.
        runs: number of their open runs.

    >>> sleeping = SleepingTraces()
    >>> for trace_id, ends in ((1, 9.0), (2, 3.0)):
    ...     sleeping.add(trace_id, SleepingTrace(dict, 5, 1, ends))
    >>> sleeping.in_order()
    >>> sleeping.ending(5.0), sleeping.spans, sleeping.pop(2).ends, sleeping.spans
    ([2], 10, 3.0, 5)
    """

    def __init__(self) -> None:
        self.spans = self.runs = 0
        self._traces: OrderedDict[int, SleepingTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._traces)

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._traces

    def add(self, trace_id: int, trace: SleepingTrace) -> None:
        """Add a trace."""
        self._traces[trace_id] = trace
        self.spans += trace.spans
        self.runs += trace.runs

    def pop(self, trace_id: int) -> SleepingTrace | None:
        """Take out a trace, to read it; ``None``: it does not sleep."""
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            self.spans -= trace.spans
            self.runs -= trace.runs
        return trace

    def first(self) -> int | None:
        """The id of the first trace; ``None``: there is none."""
        return next(iter(self._traces), None)

    def ending(self, until: float) -> list[int]:
        """The ids of the traces of which a part ends until this time."""
        found: list[int] = []
        for trace_id, trace in self._traces.items():
            if trace.ends > until:
                break
            found.append(trace_id)
        return found

    def in_order(self) -> None:
        """After the last was added."""
        self._traces = OrderedDict(sorted(self._traces.items(), key=_ends))


def _ends(item: tuple[int, SleepingTrace]) -> float:
    return item[1].ends
