"""How each convention of span attributes is read: a module a convention, with all its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        contents: how names of its attributes begin that may hold contents. Redaction replaces
            what it does not know on a span that has one of them.
        looks_alike: how names of attributes begin that only model calls, tool calls and agents
            have: such a span that no convention reads is counted as one of an unknown convention.
        announces: attributes that say when a span starts that it is an agent's, with these values.
        hints: what to switch on in an instrumentation so that its spans have contents, by the
            start of its scope's name; a name without a dot at its end is the whole name.
        shown: what a span of it has, for the docs.
        written_by: who writes it, for the docs; empty, it is none of others.
        scope: the only instrumentation that uses it; empty, any may.
        in_tools: whether an agent inside another one is always in one of its tools. Elsewhere it
            may be a node of a graph, which is a step.
        wraps: ends of the scopes whose outermost span goes around the agents of a task, and is
            none of them, if it names none.
        agent_names: attributes with the name of the agent, when its span starts.
        content_markers: those of the markers whose values are contents. They may not leave, so
            ``encloses`` does not look at them.
        copied: starts of names that look alike, but that are on all spans of a process or of a
            framework.
    """

    name: str
    markers: frozenset[str]
    encloses: Callable[[Attributes], bool]
    read: Callable[[SpanData], KnownSpan | None]
    contents: tuple[str, ...]
    looks_alike: tuple[str, ...]
    announces: Mapping[str, tuple[str, ...]]
    hints: Mapping[str, str]
    shown: str
    written_by: str
    scope: str = ""
    in_tools: bool = False
    wraps: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()
    content_markers: frozenset[str] = frozenset()
    copied: tuple[str, ...] = ()
