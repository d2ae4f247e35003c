"""What a convention of span attributes consists of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidegauge.foreign_spans.span import Attributes, KnownSpan, SpanData


class Convention(NamedTuple):
    """How spans of one convention are recognized and read. All functions are pure.

    Args:
        name: its name, as users know it.
        markers: attributes; a span that has one of them is read by this convention.
        encloses: whether a span with these attributes encloses a run: an agent, a chain or a
            workflow. It is asked while the span is open, and in fleets where only the markers
            arrive: it may look at the markers alone.
        read: what an ended span is; ``None``: nothing of an agent's run.
        scope: the only instrumentation that uses it; empty, any may.
        in_tools: whether an agent inside another one is always in one of its tools. Elsewhere it
            may be a node of a graph, which is a step.
        contents: those of the markers whose values are contents. They may not leave, so
            ``encloses`` does not look at them.
    """

    name: str
    markers: frozenset[str]
    encloses: Callable[[Attributes], bool]
    read: Callable[[SpanData], KnownSpan | None]
    scope: str = ""
    in_tools: bool = False
    contents: frozenset[str] = frozenset()
