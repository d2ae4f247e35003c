"""Announces agents as soon as they start, for receivers of spans in other processes.

Exporters send a span when it has ended, and an agent's span ends last: until then, a receiver
cannot know whose model and tool calls it gets. So, when an agent's span starts, this processor
emits a child span of no length that says so.

This module uses nothing but OpenTelemetry: you can copy it to where tidegauge is not installed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import TracerProvider, set_span_in_context

_SCOPE: Final = "tidegauge.announce"
_BY_NAME: Final = ("invoke_agent", "invoke_workflow")
"""How names of agents' spans begin."""

# What follows is written from the conventions, by test_convention_facts.py.
_KINDS: Final = {
    "gen_ai.operation.name": ("invoke_agent", "invoke_workflow"),
    "langfuse.observation.type": ("agent",),
    "mlflow.spanType": ("AGENT", '"AGENT"'),
    "openinference.span.kind": ("AGENT",),
    "traceloop.span.kind": ("agent", "workflow"),
}
"""Attributes that say what a span is, and their values for agents."""
_AGENT_NAMES: Final = (
    "gen_ai.agent.name",
    "agent_name",
    "agent.name",
    "traceloop.entity.name",
)
# End of what is written.


class AnnouncingSpanProcessor(SpanProcessor):
    """Emits a span ``tidegauge.announce`` in each agent's span when that starts.

    An agent's span says so when it starts: with an attribute of a convention, or with a name that
    starts with ``invoke_agent``. It is announced if it is sampled. Add this processor last, so that
    the others know the agent's span before they get its announcement.

    Args:
        provider: the tracer provider that the processor is added to.
        names: names of further spans that are agents, for instrumentations that set their
            attributes when a span ends.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> provider = TracerProvider(shutdown_on_exit=False)
    >>> provider.add_span_processor(AnnouncingSpanProcessor(provider, names={"LangGraph"}))
    """

    def __init__(self, provider: TracerProvider, *, names: Collection[str] = ()) -> None:
        self._tracer = provider.get_tracer(_SCOPE)
        self._names = frozenset(names)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span has started: if it is an agent's, announce it."""
        with suppress(Exception):  # never a fault of the agent
            self._announce(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Nothing is left to do."""

    def _announce(self, span: Span) -> None:
        context, scope = span.get_span_context(), span.instrumentation_scope
        if context is None or not context.trace_flags.sampled:
            return
        if scope is not None and scope.name == _SCOPE:
            return
        attributes = span.attributes or {}
        if span.name not in self._names and not _is_agent(span.name, attributes):
            return
        about = {
            "tidegauge.announce.span_id": f"{context.span_id:016x}",
            "tidegauge.announce.name": span.name,
        }
        if span.parent is not None:
            about["tidegauge.announce.parent_id"] = f"{span.parent.span_id:016x}"
        agent = next((attributes[name] for name in _AGENT_NAMES if attributes.get(name)), None)
        if isinstance(agent, str):
            about["tidegauge.announce.agent"] = agent
        now = span.start_time
        announcement = self._tracer.start_span(
            _SCOPE, set_span_in_context(span), attributes=about, start_time=now
        )
        announcement.end(now)


def _is_agent(name: str, attributes: Mapping[str, Any]) -> bool:
    """Whether a span that starts says that it is an agent's.

    >>> _is_agent("invoke_agent a", {}), _is_agent("chat", {"gen_ai.agent.name": "a"})
    (True, False)
    """
    said = [key for key in _KINDS if key in attributes]
    if said:
        return any(attributes[key] in _KINDS[key] for key in said)
    return name.startswith(_BY_NAME) or "agent.name" in attributes
