"""What is remembered of an open trace: how its spans are nested, not what they say."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from tidegauge._span_faults import span_faults
from tidegauge.foreign_spans.external_run import MAX_DEPTH, ExternalRun
from tidegauge.foreign_spans.span import AgentSpan, KnownSpan, ModelSpan, SpanData
from tidegauge.receivers.held_spans import order
from tidegauge.receivers.parentless_runs import ParentlessRuns

_MAX_CHOSEN: Final = 1_000
"""Limit of the remembered ids of calls that models have chosen."""

_ID_BYTES: Final = 200
"""What one of them takes, about, without its characters."""


class OpenTrace:
    """An open trace. Of its spans, only their ids are kept, with those of their parents."""

    __slots__ = (
        *("awaited", "chosen", "chosen_bytes", "clocks", "last_seen", "parentless", "parents"),
        *("roots", "tools", "waiting"),
    )

    def __init__(self) -> None:
        self.parents: dict[int, int | None] = {}  # ids of their parents, by id
        self.waiting: set[int] = set()  # ids of those that were not emitted yet
        self.chosen: OrderedDict[str, None] = OrderedDict()  # the model's ids of emitted calls
        self.chosen_bytes = 0
        self.awaited: set[int] = set()  # ids of parents that were not emitted yet
        self.clocks: set[str] = set()  # of its spans; two at most
        self.parentless = ParentlessRuns()
        self.roots: set[int] = set()  # ids of those that were roots of runs
        self.tools: set[int] = set()  # ids of those that are tools
        self.last_seen = 0.0

    def add(self, span: SpanData, clock: str, held: Mapping[int, SpanData]) -> SpanData:
        """Add a span that has arrived. If it is its own ancestor, the outermost is a root.

        Args:
            span: the span.
            clock: the clock of its times.
            held: the held spans of the trace, by their ids.

        Returns:
            The span of the cycle that was cut, now without a parent; else the span as it was.
        """
        span_id, parents = span.span_id, self.parents
        parents[span_id] = span.parent_id
        self.waiting.add(span_id)
        if len(self.clocks) < 2:
            self.clocks.add(clock)
        around = span.parent_id
        if around not in parents:
            return span
        cycle = [span_id]
        while around is not None and around != span_id:
            if len(cycle) == MAX_DEPTH:
                span_faults.repair("depth")
                return self._cut(span)
            cycle.append(around)
            around = parents.get(around)
        if around is None:
            return span
        span_faults.repair("cycle")
        outermost = max((held.get(each, span) for each in cycle), key=order)  # it ends last
        return self._cut(outermost)

    def choose(self, model: ModelSpan) -> int:
        """Remember the ids of the calls that a model has chosen; returns the bytes that it adds."""
        before = self.chosen_bytes
        for call in model.calls or ():
            if call.id is not None and call.id not in self.chosen:
                self.chosen[call.id] = None
                self.chosen_bytes += _ID_BYTES + len(call.id)
                if len(self.chosen) > _MAX_CHOSEN:
                    forgotten, _ = self.chosen.popitem(last=False)
                    self.chosen_bytes -= _ID_BYTES + len(forgotten)
        return self.chosen_bytes - before

    def end_run(self, run: ExternalRun, root: SpanData, reading: KnownSpan | None) -> None:
        """The root of a run is emitted: the run was around others, or another is around it.

        Args:
            run: the run.
            root: its root.
            reading: what that is.
        """
        if self.parentless:
            run.earlier += self.parentless.take(
                root.span_id,
                parents=self.parents,
                waiting=self.waiting,
                roots=self.roots,
                tools=self.tools,
                sure=isinstance(reading, AgentSpan) and reading.sure,
            )
        if run.around is None and root.parent_id is not None and not root.remote:
            self.parentless.add(run.recorded.id, around=root.parent_id)

    def _cut(self, span: SpanData) -> SpanData:
        self.parents[span.span_id] = None
        return span._replace(parent_id=None)
