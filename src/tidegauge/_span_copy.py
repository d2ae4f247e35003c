"""A copy of an ended span, which itself cannot be changed.

This module uses nothing but OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.types import AttributeValue


class SpanCopy(ReadableSpan):
    """The same span with other attributes; what limits have dropped from it stays counted.

    Args:
        span: an ended span.
        attributes: those of the copy.

    >>> span = ReadableSpan("look", attributes={"gen_ai.tool.name": "look"})
    >>> copy = SpanCopy(span, {**(span.attributes or {}), "tidegauge.sample.ratio": 0.1})
    >>> copy.name, dict(copy.attributes or {})
    ('look', {'gen_ai.tool.name': 'look', 'tidegauge.sample.ratio': 0.1})
    """

    def __init__(self, span: ReadableSpan, attributes: Mapping[str, AttributeValue]) -> None:
        super().__init__(
            span.name,
            span.context,
            span.parent,
            span.resource,
            attributes,
            span.events,
            span.links,
            span.kind,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )
        self._original = span

    @property
    def dropped_attributes(self) -> int:
        """Attributes beyond the SDK's limit."""
        return self._original.dropped_attributes

    @property
    def dropped_events(self) -> int:
        """Events beyond the SDK's limit."""
        return self._original.dropped_events

    @property
    def dropped_links(self) -> int:
        """Links beyond the SDK's limit."""
        return self._original.dropped_links
