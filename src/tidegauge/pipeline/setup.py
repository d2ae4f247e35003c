"""``configure()``, ``flush()`` and the pipeline: an engine with its sink, spans and exporters."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Container, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidegauge.catalog import RUNBOOKS, MetricDefinition
from tidegauge.errors import ConfigurationError
from tidegauge.events import RunObserver
from tidegauge.exporters.reading import Exporter, More, Reader
from tidegauge.net.listener import is_loopback
from tidegauge.pipeline.engine_sink import EngineSink
from tidegauge.pipeline.process_end import ProcessEnd
from tidegauge.pipeline.settings import KINDS, FilePath, RunStorePlace, Settings
from tidegauge.policies.prices import flat_prices
from tidegauge.runs.current import set_recorder, set_recorder_factory
from tidegauge.runs.recorder import Recorder
from tidegauge.safety.critical import here, reset_after_fork, run_deferred
from tidegauge.safety.guard import guarded, log
from tidegauge.settings import checked
from tidegauge.streaming_metrics import Engine, EventLog
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.tracer import Contents, SpanFactory, Telemetry, open_telemetry, otlp_asked_for
from tidegauge.tracer.conventions import CAPTURE_CONTENT_VARIABLE

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import CollectorRegistry

    from tidegauge.diagnose.judges import Judging
    from tidegauge.exporters.page import Page
    from tidegauge.exporters.prometheus import MetricsServer, RegistryExporter
    from tidegauge.pipeline.judged_runs import JudgedRuns
    from tidegauge.pipeline.stored_budgets import StoredBudgets
    from tidegauge.pipeline.stored_runs import StoredRuns
    from tidegauge.recordings import LineWriter, RunLines

D = TypeVar("D")

_SPAN_CONTENT: Final = ("SPAN_ONLY", "SPAN_AND_EVENT")
_EVENT_CONTENT: Final = ("EVENT_ONLY", "SPAN_AND_EVENT")

_SETTLED_SECONDS: Final = 1.0
"""Time after which a forked child serves metrics: many start another program or end before."""

_STOP_SECONDS: Final = 5.0


class Pipeline:
    """An engine with its sink, spans and exporters.

    Attributes:
        settings: its settings.
        engine: holds the runs.
        reader: reads the metrics for exporters.
        recorder: takes the reports of the instrumentation.
        metrics_server: serves ``/metrics``; ``None``, it is not served.
        page: the live page; ``None`` without one.

    Args:
        settings: its settings.
        serve: whether it may serve metrics.
        replaces: a pipeline that is still in use. It releases its port or its place in the
            registry if this one needs them and can be created.
    """

    def __init__(
        self, settings: Settings, *, serve: bool = True, replaces: Pipeline | None = None
    ) -> None:
        self.settings = settings
        self._writer: LineWriter | None = None
        self._exporters: list[Exporter] = []
        self._telemetry: Telemetry | None = None
        self._judged: JudgedRuns | None = None
        self._stored: StoredRuns | None = None
        self._budgets: StoredBudgets | None = None
        self._registered: RegistryExporter | None = None
        self.metrics_server: MetricsServer | None = None
        self._serves_in_children = False
        self._serving_soon: threading.Timer | None = None
        self._added: More | None = None
        self._closed = False
        self._is_forked = False
        try:
            self._set_up(serve=serve, replaces=replaces)
        except BaseException:
            self._close()
            raise

    def _set_up(self, *, serve: bool, replaces: Pipeline | None) -> None:
        settings = self.settings
        policy = settings.decides()
        serves = serve and settings.serve_metrics and settings.registry is None
        has_page = serves if settings.page is None else settings.page
        event_log = EventLog(contents=self._page_contents()) if has_page else None
        self.engine = Engine(
            max_runs=settings.max_runs,
            idle_seconds=settings.idle_seconds,
            stale_at=settings.stale_at,
            max_groups=settings.max_groups,
            max_actions=settings.max_actions,
            t_max=settings.t_max,
            t_max_by_group=settings.t_max_by_group,
            max_period=settings.max_period,
            max_distinct=settings.max_distinct,
            normaliser=settings.normaliser,
            directed=settings.directed,
            distance=settings.distance,
            declarations=settings.tools,
            detect_polls=settings.detect_polls,
            repetition=(settings.repetition or policy.reads_words or settings.records_digests),
            features=policy.reads_features,
            token_rate=policy.reads_token_rate,
            on_finished=lambda report: self._sink.run_finished(report),  # noqa: PLW0108 -- made below
            event_log=event_log,
        )
        self._telemetry = telemetry = self._open_telemetry()
        spans = SpanFactory(
            telemetry.tracer,
            telemetry.logger,
            max_runs=settings.max_runs,
            contents=Contents(
                captured=self._captures_content(_SPAN_CONTENT),
                whole_history=settings.contents == "full",
                redact=settings.redact,
            ),
            digest_key=settings.digest_key,
            meter_provider=telemetry.meter_provider,
            owns_meter_provider=telemetry.owns_metrics,
        )
        self.reader = Reader(self.engine, place_label=spans.exported_place, more=self.more_metrics)
        path = settings.record_to
        self._sink = live = EngineSink(
            self.engine,
            policy,
            counts_nudges=False,
            recording=None if path is None else self._recording(path, spans),
        )
        if settings.judging is not None:
            self._judged = self._judged_runs(settings.judging, telemetry)
            live.observe(self._judged)
        self.recorder = Recorder(
            live,
            spans,
            extractors=tuple(settings.extractors),
            actions=policy.actions,
            signals=policy.signals,
            on_nudge=live.nudged,
            on_refused=self.engine.refused,
            on_model_call=None if live.limits is None else live.model_called,
            on_wait=None if live.limits is None else live.run_waits,
            on_chanting=live.chanted,
            standing=live.standing,
            held_bytes=self.engine.held_bytes,
            max_waiting=settings.max_runs,
        )
        if settings.run_store is not None:
            self._stored = self._stored_runs(settings.run_store)
            if any(budget.per != "run" for budget in policy.budgets):
                self._budgets = self._stored_budgets(self._stored)
        self.page: Page | None = None
        if event_log is not None:
            from tidegauge.exporters.page import Page

            self.page = Page(
                event_log,
                digest=spans.exported_digest,
                trace_url=settings.trace_url,
                prices=flat_prices(settings.prices),
                runbooks=settings.runbooks or os.environ.get("TIDEGAUGE_RUNBOOKS") or RUNBOOKS,
            )
            self._exporters.append(self.page)
        for exporter in self._exporters:
            exporter.start(self.reader)
        if settings.registry is not None:
            self._register(settings.registry, replaces)
        elif serves:
            self._serve_metrics(replaces)
        if self._judged is not None:
            self._judged.listen()  # last, so that a failed pipeline receives nothing

    @property
    def metrics_url(self) -> str | None:
        """The address of ``/metrics``; ``None``, it is not served."""
        return self.metrics_server.url if self.metrics_server is not None else None

    @property
    def page_url(self) -> str | None:
        """The address of the live page; ``None``, it is not served."""
        return self.metrics_server.page_url if self.metrics_server is not None else None

    @guarded("flush", default=False, interrupting="skip")
    def force_flush(self, timeout: float = 5.0) -> bool:
        """Send and write what waits in this pipeline: see :func:`tidegauge.flush`."""
        deadline = time.monotonic() + timeout
        run_deferred()
        if self._budgets is not None:
            self._budgets.flush()
        done = [
            self._stored is None or self._stored.flush(deadline),
            # Before the events are sent: each judgement is one.
            self.settings.judging is None
            or self.settings.judging.wait(max(deadline - time.monotonic(), 0.0)),
            self._telemetry is None or self._telemetry.flush(deadline),
            self._writer is None or self._writer.flush(deadline),
        ]
        return all(done)

    def stop_serving(self) -> None:
        """Free the metrics' port, or their place in the registry."""
        self._serves_in_children = False
        if self._serving_soon is not None:
            self._serving_soon.cancel()
            self._serving_soon.join(_STOP_SECONDS)
        server, self.metrics_server = self.metrics_server, None
        if server is not None:
            server.close()
        registered, self._registered = self._registered, None
        if registered is not None:
            registered.close()

    def _open_telemetry(self) -> Telemetry:
        """The providers; metrics are pushed if the settings ask for it."""
        settings = self.settings
        given = (settings.tracer_provider, settings.logger_provider, settings.meter_provider)
        push = settings.otlp_metrics
        if push is None:
            push = otlp_asked_for("metrics", default="none")
        before_export = self._sampled if settings.export == "troubled" else None
        if not push:
            return open_telemetry(*given, before_export=before_export)
        from tidegauge.exporters.otlp import OtlpExporter

        exporter = OtlpExporter()
        self._exporters.append(exporter)
        telemetry = open_telemetry(
            *given, push_metrics=exporter.with_histograms, before_export=before_export
        )
        if telemetry.meter_provider is not None:
            exporter.observe(telemetry.meter_provider, histograms=not telemetry.owns_metrics)
        return telemetry

    def _sampled(self, exporter: SpanExporter) -> SpanProcessor:
        from tidegauge.sampling import DEFAULT_SAMPLE, TroubledSpanProcessor

        sample = self.settings.sample
        return TroubledSpanProcessor(exporter, sample=DEFAULT_SAMPLE if sample is None else sample)

    def shutdown(self, timeout: float = 5.0) -> None:
        """Stop serving, send queued data, and close files and providers.

        If this pipeline was in use, the next run uses the defaults.

        Args:
            timeout: seconds after which waiting data are given up. What has had no time until then,
                because something else took it, still gets one second.
        """
        deadline = time.monotonic() + timeout
        run_deferred()
        with here.critical, _locks.lock:
            if self in _configured:
                _configured.remove(self)
                set_recorder(None)
            closed, self._closed = self._closed, True
        if not closed:
            if self._budgets is not None:
                self._budgets.close(_left(deadline))
            if self._stored is not None:  # first: what it has saved is not ended
                self._stored.close(_left(deadline))
            self.recorder.waiting.close()
            if self.settings.judging is not None:  # first: it may still send events
                self.settings.judging.close(_left(deadline))
            self._close(deadline)

    def _close(self, deadline: float = 0.0) -> None:
        """Close the files, providers and servers of this pipeline."""
        with contextlib.ExitStack() as closing:  # last in, first out; all of them if one fails
            if self._writer is not None:
                writer = self._writer
                closing.callback(lambda: writer.close(_left(deadline)))
            for exporter in reversed(self._exporters):
                closing.callback(exporter.close)
            # A child that has seen no run has nothing to send, and need not wait for a collector.
            if self._telemetry is not None and not (self._is_forked and self.engine.unused):
                telemetry = self._telemetry
                closing.callback(lambda: telemetry.shutdown(_left(deadline)))
            closing.callback(self.stop_serving)

    def _recording(self, path: FilePath, spans: SpanFactory) -> RunLines:
        from tidegauge.recordings import ContentEncoder, LineWriter, RunLines

        settings = self.settings
        self._writer = LineWriter(
            path, max_bytes=settings.record_max_bytes, backups=settings.record_backups
        )
        contents = ContentEncoder(
            spans.exported_digest,
            plain=settings.record_contents,
            normaliser=settings.normaliser,
        )
        return RunLines(
            self._writer,
            contents,
            declarations=settings.tools,
            detect_polls=settings.detect_polls,
        )

    def _judged_runs(self, judging: Judging, telemetry: Telemetry) -> JudgedRuns:
        from tidegauge.pipeline.judged_runs import JudgedRuns

        return JudgedRuns(
            judging,
            telemetry.logger,
            contents=self._captures_content(_EVENT_CONTENT),
            max_groups=self.settings.max_groups,
        )

    def _stored_runs(self, store: RunStorePlace) -> StoredRuns:
        from tidegauge.pipeline.stored_runs import StoredRuns
        from tidegauge.run_stores import open_run_store

        waiting = self.recorder.waiting
        stored = waiting.saved = StoredRuns(
            open_run_store(store) if isinstance(store, str) else store,
            self._sink,
            waiting,
            idle_seconds=self.settings.idle_seconds,
        )
        return stored

    def _stored_budgets(self, stored: StoredRuns) -> StoredBudgets | None:
        from tidegauge.pipeline.stored_budgets import StoredBudgets

        limits = self._sink.limits
        if limits is None:
            return None
        found = StoredBudgets(stored, limits.budgets)
        found.start()
        return found

    def _page_contents(self) -> bool:
        shown = self.settings.page_contents
        return self._captures_content(_SPAN_CONTENT) if shown is None else shown

    def _captures_content(self, asked_by: Container[str]) -> bool:
        """Whether to capture contents: by the setting, else by these values of the variable."""
        if self.settings.capture_content is not None:
            return self.settings.capture_content
        return os.environ.get(CAPTURE_CONTENT_VARIABLE, "").upper() in asked_by

    def more_metrics(
        self,
    ) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float | Buckets]]:
        """Metrics from outside the engine: recorded lines, failures, thresholds, judgements."""
        recorded = self._writer.counts() if self._writer is not None else {}
        judged = self._judged.metrics() if self._judged is not None else {}
        stored = self._stored.metrics() if self._stored is not None else {}
        spent = self._sink.limits.metrics() if self._sink.limits is not None else {}
        added = self._added() if self._added is not None else {}
        return {**self._sink.crossings.metrics(), **spent, **recorded, **stored, **judged, **added}

    def observe(self, observer: RunObserver) -> None:
        """Report to it all that the engine takes from now on."""
        self._sink.observe(observer)

    def add_metrics(self, more: More) -> None:
        """Export these, too: of what reports the runs of this pipeline."""
        self._added = more

    def _register(self, registry: CollectorRegistry, replaces: Pipeline | None) -> None:
        """Export to the application's registry, in place of a replaced pipeline."""
        from tidegauge.exporters.prometheus import RegistryExporter

        exporter = RegistryExporter(registry)
        previous = None
        if replaces is not None and replaces.settings.registry is registry:
            previous = replaces._registered
        left = previous is not None and previous.close()
        try:
            exporter.start(self.reader)
        except BaseException:
            if replaces is not None and previous is not None and left:
                previous.start(replaces.reader)
            raise
        self._registered = exporter

    def _serve_metrics(self, replaces: Pipeline | None = None) -> None:
        settings = self.settings
        targets = settings.metrics_targets or os.environ.get("TIDEGAUGE_METRICS_TARGETS") or None
        host = settings.metrics_host or _variable(
            "OTEL_EXPORTER_PROMETHEUS_HOST", "HostName", "127.0.0.1"
        )
        port = settings.metrics_port
        if port is None:
            port = _variable("OTEL_EXPORTER_PROMETHEUS_PORT", "Port", 0 if targets else 9464)
        self._serves_in_children = targets is not None
        # Often another process of the application has the port; the agent must not fail.
        ports = [port, *([port] if replaces else ()), *([0] if port else ())]
        while self.metrics_server is None:
            try:
                self.metrics_server = self._server(host, ports.pop(0), targets)
            except OSError as error:
                if ports and _is_in_use(error):
                    if replaces is not None:
                        replaces.stop_serving()  # it may hold the port
                    continue
                log(
                    logging.WARNING,
                    "tidegauge: %s, so they are not served; set metrics_port=0 for any free port, "
                    "another metrics_host, or serve_metrics=False",
                    error,
                )
                return
        if port and not ports:
            level, finds = logging.INFO, f"Prometheus finds them in {targets}"
            if targets is None:
                level = logging.WARNING
                finds = "set metrics_port=0 and metrics_targets, so that Prometheus finds them"
            log(
                level,
                "tidegauge: port %d is in use, so the metrics are at %s; %s",
                *(port, self.metrics_server.url, finds),
            )
        if not is_loopback(host) and settings.metrics_client_ca is None:
            log(
                logging.WARNING,
                "tidegauge: %s is reachable from other machines, and any of them can read the "
                "metrics and the live page; set metrics_client_ca, or restrict who reaches it",
                self.metrics_server.url,
            )

    def _server(self, host: str, port: int, targets: FilePath | None) -> MetricsServer:
        from tidegauge.exporters.prometheus import MetricsServer

        settings = self.settings
        server = MetricsServer(
            host=host,
            port=port,
            certificate=settings.metrics_certificate,
            key=settings.metrics_key,
            client_ca=settings.metrics_client_ca,
            page=self.page,
            allowed_hosts=settings.metrics_allowed_hosts,
            targets=targets,
        )
        server.start(self.reader)
        return server

    @guarded("metrics_server", default=None, interrupting="run")
    def continue_in_child(self) -> None:
        """After a fork, serve the child's metrics if Prometheus finds them in the folder."""
        self._is_forked = True
        self.metrics_server = self._serving_soon = None  # those are the parent's
        if self._serves_in_children:
            serve = guarded("metrics_server", default=None)(self._serve_metrics)
            self._serving_soon = timer = threading.Timer(_SETTLED_SECONDS, serve)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # the system starts no more threads
                self._serving_soon = None


def _left(deadline: float) -> float:
    """Seconds up to a moment of the monotonic clock, but at least one."""
    return max(deadline - time.monotonic(), 1.0)


def _is_in_use(error: OSError) -> bool:
    """Whether a server cannot listen because its port is in use."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE


def _variable(name: str, kind: str, otherwise: D) -> D:
    """An OpenTelemetry variable; one that is not valid costs a line in the log."""
    text = os.environ.get(name)
    if not text:
        return otherwise
    try:
        number = int(text) if re.fullmatch("[0-9]{1,5}", text) else text
        return cast("D", checked(name, number if kind == "Port" else text, kind, KINDS))
    except ConfigurationError as error:
        log(logging.WARNING, "tidegauge: %s; %s is used instead", error, otherwise)
        return otherwise


class _Locks:
    def __init__(self) -> None:
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self.lock = threading.Lock()


_locks = _Locks()
_configured: list[Pipeline] = []


def configure(**settings: Any) -> Pipeline:
    """Set tidegauge up for this process; call it once, before the agents run.

    Without it, runs are measured with the defaults and served nowhere. A second call replaces the
    first; open runs end in the pipeline where they started, and runs that wait for a person end
    now.

    Args:
        **settings: the fields of :class:`Settings`.

    Returns:
        The pipeline; you can ignore it.

    Raises:
        ConfigurationError: a setting is unknown, or a value is not valid.

    >>> import tidegauge
    >>> pipeline = tidegauge.configure(stop_on_loop=3, serve_metrics=False)
    >>> tidegauge.configure(stop_on_lop=3)
    Traceback (most recent call last):
        ...
    tidegauge.errors.ConfigurationError: unknown setting 'stop_on_lop'; did you mean stop_on_loop?
    """
    known = [item.name for item in fields(Settings)]
    for name in settings:
        if name not in known:
            raise ConfigurationError(f"unknown setting {name!r}{_suggestion(name, known)}")
    checked = Settings(**settings)
    in_use = tuple(_configured)
    pipeline = Pipeline(checked, replaces=in_use[0] if in_use else None)
    with here.critical, _locks.lock:
        replaced = _configured.pop() if _configured else None
        _configured.append(pipeline)
        set_recorder(pipeline.recorder)
    _process_end.hook()
    if replaced is not None:
        replaced.shutdown()
    return pipeline


def flush(timeout: float = 5.0) -> bool:
    """Send and write what waits: spans, events and pushed metrics, lines of a recording.

    A process does it by itself while it works and when it ends. Call this at the end of your work
    if nothing runs afterwards: in a function that is frozen between two calls (AWS Lambda), or in a
    process that is killed or ends with ``os._exit``. What is in the providers of your application
    is sent by their own ``force_flush()``.

    Ended runs are judged before, if judges are configured. With ``export="troubled"``, runs that
    are open are exported from now on: call this when they have ended.

    Args:
        timeout: seconds after which this returns, even if not all is done.

    Returns:
        Whether all is done and has arrived. After ``False``, what is left is still being tried.

    >>> import tidegauge
    >>> with tidegauge.run(agent="searcher") as run:
    ...     _ = run.act("look")
    >>> tidegauge.flush(timeout=2)
    True
    """
    return all(pipeline.force_flush(timeout) for pipeline in tuple(_configured))


def _default_recorder() -> Recorder:
    made = Pipeline(Settings(), serve=False)  # outside the lock: it sets up OpenTelemetry
    with here.critical, _locks.lock:
        if not _configured:
            _configured.append(made)
        current = _configured[0]
        set_recorder(current.recorder)
    _process_end.hook()
    if current is not made:
        made.shutdown()
    return current.recorder


def _suggestion(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _shutdown_at_exit() -> None:
    run_deferred()
    with here.critical, _locks.lock:
        pipelines = list(_configured)
        _configured.clear()
    for pipeline in pipelines:
        pipeline.shutdown()


def _continue_in_child() -> None:
    for pipeline in _configured:
        pipeline.continue_in_child()


set_recorder_factory(_default_recorder)
_process_end = ProcessEnd(_shutdown_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_continue_in_child
    )  # after the locks and counts are new ones
