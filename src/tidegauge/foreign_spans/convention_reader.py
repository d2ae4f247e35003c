"""Reading a span: from its attributes to what it is for a run.

A span is read by the first convention of the table whose marker attributes it has, whatever its
scope is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegauge.foreign_spans.conventions import (
    Convention,
    adk,
    announcement,
    genai,
    laminar,
    langfuse,
    langsmith,
    litellm,
    logfire,
    mlflow,
    openinference,
    openllmetry,
    vercel_ai,
)
from tidegauge.foreign_spans.span import Attributes, KnownSpan, SpanData

OUR_SCOPE: Final = "tidegauge"
"""Scope of our own spans: their steps are reported apart, and they are never read again."""

CONVENTIONS: Final[tuple[Convention, ...]] = (
    announcement.CONVENTION,
    logfire.CONVENTION,
    litellm.CONVENTION,
    adk.CONVENTION,
    vercel_ai.CONVENTION,
    laminar.CONVENTION,
    langfuse.CONVENTION,
    langsmith.CONVENTION,
    mlflow.CONVENTION,
    openinference.CONVENTION,
    openllmetry.CONVENTION,
    genai.CONVENTION,
)
"""The conventions that are read. A span that has marker attributes of several is read by the
first: those that set attributes of others, too, come before these."""

MARKER_ATTRIBUTES: Final = frozenset[str]().union(*[one.markers for one in CONVENTIONS])
"""Attributes of which a span has one, or it is not read."""

CONTENT_MARKERS: Final = frozenset[str]().union(*[one.content_markers for one in CONVENTIONS])
"""Those of them whose values are contents."""


_BY_MARKER: Final = {
    marker: [one for one in CONVENTIONS if marker in one.markers] for marker in MARKER_ATTRIBUTES
}

_UNREAD: Final = ("haystack.agent.", "haystack.tool.")
"""Starts of names of attributes that model calls, tool calls and agents have in a convention that
is not read."""

_LOOK_ALIKES: Final = (*_UNREAD, *(start for one in CONVENTIONS for start in one.looks_alike))
_COPIED: Final = tuple(start for one in CONVENTIONS for start in one.copied)
_HINTS: Final = sorted(
    ((scope, hint) for one in CONVENTIONS for scope, hint in one.hints.items()),
    key=lambda pair: -len(pair[0]),  # a longer name says more
)
_NO_HINT: Final = "switch on the capture of messages in this instrumentation"


def content_hint(scope: str) -> str:
    """How to switch on the contents of this instrumentation.

    >>> content_hint("pydantic-ai")
    'use InstrumentationSettings(include_content=True)'
    >>> content_hint("aider")
    'switch on the capture of messages in this instrumentation'
    """
    for name, hint in _HINTS:
        if scope == name or (name.endswith(".") and scope.startswith(name)):
            return hint
    return _NO_HINT


def looks_like_agent(names: Iterable[str]) -> bool:
    """Whether attributes with these names look like those of a model call, a tool or an agent.

    >>> looks_like_agent(["http.method", "llm.model"]), looks_like_agent(["http.method"])
    (True, False)
    """
    alike = [name for name in names if name.startswith(_LOOK_ALIKES)]
    return any(not name.startswith(_COPIED) for name in alike)


def convention_of(attributes: Attributes, scope: str = "") -> Convention | None:
    """The convention by which a span with these attributes is read.

    >>> convention_of({"gen_ai.operation.name": "chat"}).name
    'OpenTelemetry GenAI'
    """
    markers = MARKER_ATTRIBUTES.intersection(attributes)
    if not markers:
        return None
    for one in CONVENTIONS:
        if one.scope in ("", scope) and not markers.isdisjoint(one.markers):
            return one
    return None


def read_span(span: SpanData) -> KnownSpan | None:
    """What an ended span is; ``None``: nothing of an agent's run.

    >>> attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    >>> read_span(SpanData(1, 2, None, "execute_tool look", "any", attributes, 0, 1)).name
    'look'
    """
    if span.read is not None:
        return span.read.reading
    if span.scope == OUR_SCOPE:
        return None
    attributes = span.attributes
    markers = MARKER_ATTRIBUTES.intersection(attributes)
    if len(markers) == 1:  # as most have
        [marker] = markers
        for one in _BY_MARKER[marker]:
            if one.scope in ("", span.scope):
                return one.read(span)
        return None
    convention = convention_of(attributes, span.scope) if markers else None
    return None if convention is None else convention.read(span)


def may_enclose_run(name: str, attributes: Attributes, scope: str = "") -> bool | None:
    """Whether a span that is still open is an agent, a chain or a workflow.

    Returns:
        ``None`` when that is not known yet: some set their attributes when the span ends.
    """
    convention = convention_of(attributes, scope)
    if convention is not None and convention is not genai.CONVENTION:
        return convention.encloses(attributes)
    if name.startswith(genai.INVOKE_AGENT):
        return True
    if convention is not None:
        return convention.encloses(attributes)
    return False if attributes else None
