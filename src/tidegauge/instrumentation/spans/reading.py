"""Reading a span: from its attributes to what it is for a run.

Pure functions, one module a dialect. A span is read in the dialect whose attributes it has,
whatever its scope is called: instrumentations of the same dialect share it.
"""

from __future__ import annotations

from typing import Final

from tidegauge.instrumentation.spans import genai, openinference, openllmetry
from tidegauge.instrumentation.spans.span import Attributes, Reading, SpanData

__all__ = ["OUR_SCOPE", "TELLTALES", "may_enclose_run", "read_span"]

OUR_SCOPE: Final = "tidegauge"
"""Scope of our own spans: they are reported beside their steps, and never read again."""


TELLTALES: Final = frozenset(
    {openinference.KIND, openllmetry.KIND, openllmetry.WORKFLOW, genai.OPERATION}
)
"""Attributes of which a span has one, or it is not read."""


def read_span(span: SpanData) -> Reading | None:
    """What an ended span is; ``None``: nothing of an agent's run.

    >>> told = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    >>> read_span(SpanData(1, 2, None, "execute_tool look", "any", told, 0, 1)).name
    'look'
    """
    if span.read is not None:
        return span.read.reading
    attributes = span.attributes
    if span.scope == OUR_SCOPE:
        return None
    if openinference.KIND in attributes:
        return openinference.read(span)
    if openllmetry.speaks(attributes):
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
        ``None`` when it cannot be told yet: some set their attributes when the span ends.
    """
    if openinference.KIND in attributes:
        return attributes[openinference.KIND] in openinference.AGENTS
    operation = attributes.get(genai.OPERATION)
    if operation is not None:
        return operation in genai.AGENTS
    if openllmetry.speaks(attributes):
        return attributes.get(openllmetry.KIND) in openllmetry.AGENTS
    if name.startswith("invoke_agent"):
        return True
    return False if attributes else None
