"""Spans of other instrumentations: OpenTelemetry GenAI, OpenInference, OpenLLMetry and others.

>>> from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
>>> processor = TidegaugeSpanProcessor(task_group="docs")  # provider.add_span_processor(processor)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext, StatusCode

from tidegauge._span_counts import span_faults
from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import GO_ON, Decision
from tidegauge.foreign_spans.convention_reader import convention_of, looks_like_agent
from tidegauge.foreign_spans.external_run import ExternalRun, RunDefaults
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import (
    Attributes,
    LiveAttributes,
    SpanData,
    plain_attributes,
    plain_name,
)
from tidegauge.runs.current import get_recorder
from tidegauge.runs.recorder import RecordedRun
from tidegauge.safety.guard import guarded

Where: TypeAlias = trace.Span | SpanContext | int | str | None
"""A span, its context, or the id of a trace; ``None`` is the current span."""

Success: TypeAlias = Callable[[ReadableSpan], bool | None]


class TidegaugeSpanProcessor(SpanProcessor):
    """Makes runs of the agents that other instrumentations trace, and steps of their turns.

    It reads the conventions of :mod:`tidegauge.foreign_spans.conventions`, makes no spans itself
    and changes none. Several instrumentations at once still count once.

    A span processor cannot stop an agent: an exception in it must not reach the user's code. Call
    :meth:`decision` for the decision, or :meth:`enforce`, which raises the deliberate stop.

    Args:
        agent: name of the agent, where the spans carry no ``tidegauge.agent``; left out, the name
            that they know it by.
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides; left out, the one that is called first.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        success: takes a run's outermost span and says whether the task was solved; left out, that
            is not known, and the run counts in no success rate.

    Raises:
        ConfigurationError: ``t_max`` is below 1.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> provider = TracerProvider(shutdown_on_exit=False)
    >>> processor = TidegaugeSpanProcessor(task_group="docs")
    >>> provider.add_span_processor(processor)
    """

    def __init__(
        self,
        *,
        agent: str | None = None,
        task_group: str | None = None,
        t_max: int | None = None,
        model: str | None = None,
        memory: str | None = None,
        success: Success | None = None,
    ) -> None:
        if t_max is not None and t_max < 1:
            raise ConfigurationError(f"t_max={t_max} is out of range; use 1 or more")
        self._success = success
        self._resource: tuple[Resource, Attributes] | None = None
        self._grouping = Grouping(
            get_recorder, RunDefaults(agent, task_group, t_max, memory, model)
        )

    @guarded("spans.on_start", default=None)
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span has started: remember whose child it is."""
        context, scope = span.context, _scope(span)
        if context is not None:
            parent = span.parent.span_id if span.parent is not None else None
            self._grouping.start(
                context.trace_id,
                context.span_id,
                parent,
                name=plain_name(span.name),
                scope=scope,
                live=LiveAttributes(span),
            )

    @guarded("spans.on_end", default=None)
    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended: what it shows is reported to its run."""
        context = span.context
        if context is None or not context.is_valid:
            span_faults.drop("invalid")
            return
        data = SpanData(
            context.trace_id,
            context.span_id,
            span.parent.span_id if span.parent is not None else None,
            plain_name(span.name),
            _scope(span),
            plain_attributes(span.attributes),
            span.start_time or 0,
            span.end_time or 0,
            span.status.status_code is StatusCode.ERROR,
            plain_name(span.status.description) or None,
            tuple(
                [(plain_name(one.name), plain_attributes(one.attributes)) for one in span.events]
            ),
        )
        if looks_like_agent(data.attributes) and convention_of(data.attributes) is None:
            span_faults.unread(data.scope, "unknown_convention")
        self._grouping.end(
            data,
            self._attributes_of(span.resource),
            lambda: self._solved(span),
            place=_current_place(),
        )

    @guarded("spans.shutdown", default=None)
    def shutdown(self) -> None:
        """End the runs that are open, as unknown."""
        self._grouping.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits: every span is read when it ends."""
        return True

    def find_run(
        self, where: Where = None, *, conversation: str | None = None
    ) -> RecordedRun | None:
        """The open run around a span.

        Args:
            where: the span, its context, or the id of a trace (a number or its 32 digits), of
                which it is the outermost run; left out, the current span.
            conversation: the run of this conversation instead.

        Returns:
            ``None`` when there is none, or it has shown no model or tool call yet; also for a text
            that is not a trace id.
        """
        found = self._find(where, conversation)
        return None if found is None else found.recorded

    @guarded("spans.find_run", default=None, interrupting="skip")
    def _find(self, where: Where, conversation: str | None) -> ExternalRun | None:
        if conversation is not None:
            return self._grouping.find_conversation(conversation)
        if isinstance(where, int | str):
            trace_id = _number(where) if isinstance(where, str) else where
            return None if trace_id is None else self._grouping.find(trace_id)
        span = trace.get_current_span() if where is None else where
        context = span.get_span_context() if isinstance(span, trace.Span) else span
        return self._grouping.find(context.trace_id, context.span_id)

    def decision(self, where: Where = None, *, conversation: str | None = None) -> Decision:
        """The last decision about a run other than to go on.

        Args:
            where: as for :meth:`find_run`.
            conversation: as for :meth:`find_run`.
        """
        found = self.find_run(where, conversation=conversation)
        if found is None:
            return GO_ON
        if found.decision.nudge:
            found.nudged(found.decision)
        return found.decision

    def enforce(self, where: Where = None, *, conversation: str | None = None) -> None:
        """Raise the deliberate stop if the policy stops a run: call it between an agent's turns.

        Args:
            where: as for :meth:`find_run`.
            conversation: as for :meth:`find_run`.

        Raises:
            RunStopped: the policy stops the run.
        """
        found = self._find(where, conversation)
        error: RunStopped | None = None if found is None else found.recorded.stop_error()
        if found is not None and error is not None:
            found.turns.refuse_waiting()
            raise error

    def _attributes_of(self, resource: Resource) -> Attributes:
        """Those of a process, which are the same for all of its spans."""
        known = self._resource
        if known is None or known[0] is not resource:
            known = self._resource = (resource, plain_attributes(resource.attributes))
        return known[1]

    @guarded("spans.success", default=None)
    def _solved(self, span: ReadableSpan) -> bool | None:
        return None if self._success is None else self._success(span)


def _number(trace_id: str) -> int | None:
    """The trace id as a number; ``None`` if the text is not a trace id."""
    try:
        return int(trace_id, 16)
    except ValueError:
        return None


def _current_place() -> int:
    """A number for the task or thread that runs; 0 in a thread that an event loop hands work to.

    What two instrumentations show of one call, they mostly show from one place.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        name = threading.current_thread().name
        return 0 if name.startswith("asyncio_") else threading.get_ident()
    return id(task)


def _scope(span: Any) -> str:
    scope = span.instrumentation_scope
    return plain_name(scope.name) if scope is not None else ""
