"""Reading a span: from its attributes to what it is for a run.

Pure functions, one module a convention. A span is read by the convention whose marker attributes
it has, whatever its scope is called.
"""

from __future__ import annotations

from typing import Final

from tidegauge.instrumentation.spans import genai, openinference, openllmetry
from tidegauge.instrumentation.spans.span import Attributes, KnownSpan, SpanData

__all__ = ["MARKER_ATTRIBUTES", "OUR_SCOPE", "may_enclose_run", "read_span"]

OUR_SCOPE: Final = "tidegauge"
"""Scope of our own spans: their steps are reported apart, and they are never read again."""


MARKER_ATTRIBUTES: Final = frozenset(
    {openinference.KIND, openllmetry.KIND, openllmetry.WORKFLOW, genai.OPERATION}
)
"""Attributes of which a span has one, or it is not read."""


def read_span(span: SpanData) -> KnownSpan | None:
    """What an ended span is; ``None``: nothing of an agent's run.

    >>> attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    >>> read_span(SpanData(1, 2, None, "execute_tool look", "any", attributes, 0, 1)).name
    'look'
    """
    if span.read is not None:
        return span.read.reading
    attributes = span.attributes
    if span.scope == OUR_SCOPE:
        return None
    if openinference.KIND in attributes:
        return openinference.read(span)
    if openllmetry.matches(attributes):
        return openllmetry.read(span)
    if genai.OPERATION in attributes:
        return genai.read(span)
    return None


def may_enclose_run(name: str, attributes: Attributes) -> bool | None:
    """Whether a span that is still open is an agent, a chain or a workflow.

    Args:
        name: its name.
        attributes: those that it has so far.

    Returns:
        ``None`` when that is not known yet: some set their attributes when the span ends.
    """
    if openinference.KIND in attributes:
        return attributes[openinference.KIND] in openinference.AGENTS
    operation = attributes.get(genai.OPERATION)
    if operation is not None:
        return operation in genai.AGENTS
    if openllmetry.matches(attributes):
        return attributes.get(openllmetry.KIND) in openllmetry.AGENTS
    if name.startswith("invoke_agent"):
        return True
    return False if attributes else None
