"""The spans of runs: made here, and held while they are open, a bounded number of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry._logs import Logger
from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Tracer

from tidegauge.events import RunStarted
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.tracer import conventions as names
from tidegauge.tracer.call_metrics import CallMetricsSource
from tidegauge.tracer.model_calls import Attributes
from tidegauge.tracer.run_spans import RunSpans, SpanTools
from tidegauge.tracer.span_texts import Contents, plain_name, span_name

if TYPE_CHECKING:
    from tidegauge.tracer.own_spans import OwnSpans


class RequestLabels(NamedTuple):
    """Whose request a run serves, as the application says it: for spans only, never for metrics."""

    user: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()

    def attributes(self) -> Attributes:
        """The attributes of a run's span."""
        found: Attributes = {}
        if self.user:
            found[names.USER_ID] = plain_name(self.user)
        if self.session:
            found[names.SESSION_ID] = plain_name(self.session)
        if self.tags:
            found[names.TAGS] = tuple([plain_name(tag) for tag in self.tags])
        return found


class SpanFactory:
    """Makes the spans of runs and holds the open ones, at most ``max_runs`` of them.

    Args:
        tracer: where spans are started.
        logger: where events are sent, as log records with their span's context.
        max_runs: runs whose spans are held open; one more ends those of the oldest.
        contents: how contents are put on spans; left out, not at all.
        digest_key: key of the exported digests, so that short contents can't be guessed;
            ``None`` draws one for this process.
        meter_provider: collects durations and tokens; left out, the application's does, if and
            when it sets one up.
        owns_meter_provider: whether that one is ours: a forked child does not use it.
    """

    def __init__(
        self,
        tracer: Tracer,
        logger: Logger,
        *,
        max_runs: int = 10_000,
        contents: Contents | None = None,
        digest_key: bytes | None = None,
        meter_provider: MeterProvider | None = None,
        owns_meter_provider: bool = False,
    ) -> None:
        self.tracer = tracer
        self.logger = logger
        self.contents = contents or Contents()
        # Taken up by every digest: a copy costs less than starting again from the key.
        self._keyed = hashlib.blake2b(key=digest_key or os.urandom(16), digest_size=8)
        self._metrics = CallMetricsSource(meter_provider, owned=owns_meter_provider)
        self._tools = SpanTools(tracer, logger, self.contents, self._keyed, self.forget)
        self._own: tuple[object, OwnSpans | None] = (None, None)
        self._max_runs = max_runs
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[int, RunSpans] = OrderedDict()

    def start_run(
        self,
        event: RunStarted,
        context: Context | None = None,
        link: Link | None = None,
        request: RequestLabels | None = None,
    ) -> RunSpans:
        """Open a run's span."""
        attributes: Attributes = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.RUN_ID: plain_name(event.run),
        }
        shown = self.contents.captured and event.task is not None
        task = self.contents.text(event.task) if shown else None
        texts = (
            (names.AGENT_NAME, event.agent),
            (names.TASK_GROUP, event.task_group),
            (names.REQUEST_MODEL, event.model),
            (names.MEMORY, event.memory),
            (names.RUN_PARENT, event.parent),
            (names.CONVERSATION_ID, event.conversation),
            (names.TASK, task),
        )
        attributes.update({name: plain_name(value) for name, value in texts if value})
        if task:
            parts = [{"type": "text", "content": event.task}]
            attributes[names.INPUT_MESSAGES], _ = self.contents.listed(
                [{"role": "user", "parts": parts}]
            )
        if event.t_max is not None:
            attributes[names.T_MAX] = event.t_max
        if request is not None:
            attributes.update(request.attributes())
        parent = get_current() if context is None else context
        with here.critical:  # the SDK's locks are not re-entrant
            span = self.tracer.start_span(
                span_name(names.INVOKE_AGENT, event.agent),
                parent,
                SpanKind.INTERNAL,
                attributes,
                links=None if link is None else (link,),
            )
        metrics = self._metrics.current()
        within = trace.set_span_in_context(span, parent)
        known = span.get_span_context()
        outer = trace.get_current_span(parent).get_span_context()
        owns_span = known.is_valid and known.span_id != outer.span_id
        own = self._own_spans() if owns_span and span.is_recording() else None
        spans = RunSpans(
            self._tools, span, within, attributes, metrics, owns_span=owns_span, own=own
        )
        with here.critical, self._lock:
            self._open[id(spans)] = spans
            evicted = (
                self._open.popitem(last=False)[1] if len(self._open) > self._max_runs else None
            )
        if evicted is not None:
            evicted.close()
        return spans

    def _own_spans(self) -> OwnSpans | None:
        """What starts the spans below a run's: asked once, of a provider that may be set late."""
        tracer: Any = self.tracer
        if type(tracer) is trace.ProxyTracer:
            tracer = tracer._tracer
        if self._own[0] is not tracer:
            self._own = (tracer, None)
            if type(tracer).__module__ == "opentelemetry.sdk.trace":  # it is imported by now
                with contextlib.suppress(ImportError, AttributeError):  # another version of it
                    from tidegauge.tracer.own_spans import own_spans

                    self._own = (tracer, own_spans(tracer))
        return self._own[1]

    def external(self, span: SpanContext) -> RunSpans:
        """For a run whose spans another instrumentation makes: events have its span's context."""
        theirs = NonRecordingSpan(span)
        return RunSpans(self._tools, theirs, trace.set_span_in_context(theirs))

    def forget(self, spans: RunSpans) -> None:
        """Drop a run that has ended from the store."""
        with here.critical, self._lock:
            self._open.pop(id(spans), None)

    def exported_digest(self, digest: bytes) -> str:
        """The exported form of a digest: keyed, 16 hexadecimal digits."""
        hashed = self._keyed.copy()
        hashed.update(digest)
        return hashed.hexdigest()

    def exported_place(self, place: object) -> str:
        """The exported form of a place's name: a digest, unless contents are captured."""
        text = self.contents.text(str(place)) if self.contents.captured else None
        if text is not None:
            return text
        return self.exported_digest(repr(place).encode("utf-8", "surrogateescape"))

    @property
    def open_runs(self) -> int:
        """How many runs have open spans."""
        return len(self._open)
