"""Where the parts are joined: settings, the live sink and ``configure()``."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from tidegauge._guard import guarded, internal_errors
from tidegauge.errors import ConfigurationError
from tidegauge.events import (
    GO_ON,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    RunSummary,
    Signals,
    Step,
    ToolDeclaration,
)
from tidegauge.instrumentation.current import set_recorder, set_recorder_factory
from tidegauge.instrumentation.recorder import Recorder
from tidegauge.policies import DEFAULT_RULES, Policy, Rule, advise
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.known_graph import Distance
from tidegauge.streaming_metrics.run_state import RunState
from tidegauge.tracer import SpanFactory, open_telemetry
from tidegauge.tracer.conventions import CAPTURE_CONTENT_VARIABLE

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from tidegauge.exporters.prometheus import MetricsServer, TidegaugeCollector
    from tidegauge.instrumentation.extraction import Extractor

__all__ = ["EngineSink", "Pipeline", "Settings", "configure"]

_SPAN_CONTENT: Final = ("SPAN_ONLY", "SPAN_AND_EVENT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What :func:`configure` takes.

    Args:
        stop_on_loop: stop a run when a cycle was repeated so many times after its first round.
        stop_on_result_streak: stop it after so many steps in a row with one outcome.
        stop_on_failed_rounds: stop it after so many rounds in a row that failed as a whole.
        stop_on_steps: stop it at the next step after so many.
        nudge_on_loop: tell the model when a cycle was repeated so many times, and again after as
            many more.
        block_on_loop: from so many repetitions on answer its calls instead of running them.
        rules: the whole policy instead, rule by rule.
        tools: what is known of tools beforehand, by their names: pollers, keys, mutations.
        extractors: tell from calls and their results where the agent stands, what it sees there
            and what it has to do, for every run that does not tell so itself.
        t_max: turns within which success counts towards AUV, for runs that don't say.
        t_max_by_group: the same by task group.
        max_runs: active runs held; one more evicts the run idle for longest.
        stale_at: stale score from which an active run counts as stale.
        idle_seconds: a run without a step for so long is ended as unknown.
        max_groups: (agent, task group) pairs told apart in metrics; later ones are ``other``.
        max_actions: action names told apart in metrics; later ones are ``other``.
        max_period: longest cycle that can be seen, in steps.
        max_distinct: distinct outcomes that a run remembers.
        normaliser: takes a text and gives it without what changes and means nothing, before it
            is digested; left out, texts are compared exactly.
        directed: whether exits lead one way only.
        distance: tells the distance between two places, where it is known better than the exits
            tell; takes the place of the search for gain.
        metrics_host: where ``/metrics`` listens; the variable OTEL_EXPORTER_PROMETHEUS_HOST
            stands in for the default, 127.0.0.1.
        metrics_port: its port, 0 for any free one; OTEL_EXPORTER_PROMETHEUS_PORT stands in for
            the default, 9464.
        metrics_certificate: file of a certificate: ``/metrics`` is served over TLS.
        metrics_key: file of its private key.
        metrics_client_ca: file of certificates: only clients with one signed by them are answered.
        serve_metrics: whether ``/metrics`` is served at all.
        registry: put the metrics into this Prometheus registry and serve nothing.
        capture_content: put arguments and results on spans; left out, the variable
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides.
        digest_key: key of the digests on spans, so that they agree between processes; left out,
            one is drawn for this process.
        tracer_provider: use this provider for spans.
        logger_provider: use this provider for events.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    stop_on_loop: int | None = None
    stop_on_result_streak: int | None = None
    stop_on_failed_rounds: int | None = None
    stop_on_steps: int | None = None
    nudge_on_loop: int | None = None
    block_on_loop: int | None = None
    rules: Iterable[Rule] | None = None
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    extractors: Iterable[Extractor] = ()
    t_max: int | None = None
    t_max_by_group: Mapping[str, int] = field(default_factory=dict)
    max_runs: int = 10_000
    stale_at: int = 5
    idle_seconds: float = 3_600.0
    max_groups: int = 200
    max_actions: int = 50
    max_period: int = 10_000
    max_distinct: int = 10_000
    normaliser: Normaliser | None = None
    directed: bool = False
    distance: Distance | None = None
    metrics_host: str | None = None
    metrics_port: int | None = None
    metrics_certificate: str | None = None
    metrics_key: str | None = None
    metrics_client_ca: str | None = None
    serve_metrics: bool = True
    registry: CollectorRegistry | None = None
    capture_content: bool | None = None
    digest_key: bytes | None = None
    tracer_provider: TracerProvider | None = None
    logger_provider: LoggerProvider | None = None

    def __post_init__(self) -> None:
        for name in (
            "stale_at",
            "max_runs",
            "max_groups",
            "max_actions",
            "max_period",
            "max_distinct",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is to be at least 1")
        if self.idle_seconds <= 0:
            raise ConfigurationError("idle_seconds is to be more than 0")
        if self.t_max is not None and self.t_max < 1:
            raise ConfigurationError("t_max is to be at least 1")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65_535:
            raise ConfigurationError("metrics_port is to be from 0 to 65535")
        if (self.metrics_certificate is None) != (self.metrics_key is None):
            raise ConfigurationError("metrics_certificate and metrics_key go together")
        if self.metrics_client_ca is not None and self.metrics_certificate is None:
            raise ConfigurationError("metrics_client_ca needs a metrics_certificate")
        for path in (self.metrics_certificate, self.metrics_key, self.metrics_client_ca):
            if path is not None and not os.path.isfile(path):
                raise ConfigurationError(f"no file {path!r}, which TLS of /metrics needs")
        if self.digest_key is not None and not 1 <= len(self.digest_key) <= 64:
            raise ConfigurationError("digest_key is to have from 1 to 64 bytes")
        if self.rules is not None:
            object.__setattr__(self, "rules", tuple(self.rules))  # it may be a generator
        object.__setattr__(self, "extractors", tuple(self.extractors))
        self.policy()

    def policy(self) -> Policy:
        """The policy that the settings describe: what is not stopped is observed."""
        short_forms = (
            ("loop_repeats", "stop", self.stop_on_loop),
            ("result_streak", "stop", self.stop_on_result_streak),
            ("failed_rounds", "stop", self.stop_on_failed_rounds),
            ("steps", "stop", self.stop_on_steps),
            ("loop_repeats", "nudge", self.nudge_on_loop),
            ("loop_repeats", "block", self.block_on_loop),
        )
        told = [
            Rule(signal, threshold, rung)  # type: ignore[arg-type]
            for signal, rung, threshold in short_forms
            if threshold is not None
        ]
        if self.rules is not None:
            if told:
                raise ConfigurationError("give either rules or the settings that stand for them")
            return Policy(self.rules)
        stopped = {rule.signal for rule in told if rule.rung == "stop"}
        return Policy([*told, *(rule for rule in DEFAULT_RULES if rule.signal not in stopped)])


class EngineSink:
    """The live :class:`~tidegauge.events.StepSink`: feeds the engine and asks the policy.

    Args:
        engine: takes the steps.
        policy: decides.
    """

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.engine = engine
        self.policy = policy

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self.engine.run_started(event)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        try:
            signals = self.engine.step_issued(event)
        except Exception:
            self._watch_only(event.run)
            raise
        return self._decide(signals, event.blockable)

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        try:
            signals = self.engine.step_observed(event)
        except Exception:
            self._watch_only(event.run)
            raise
        return self._decide(signals)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        report = self.engine.run_ended(event)
        if report is None:
            return None
        return RunSummary(report.steps, report.outcome, report.loop_ratio, report.stale_score_max)

    def _decide(self, signals: Signals | None, blockable: bool = False) -> Decision:
        if signals is None:
            return GO_ON
        decision = self._ask(signals, blockable)
        if decision is None:
            self._watch_only(signals.run)
            decision = Decision(signals=signals)
        return decision

    @guarded("policy", default=None)
    def _ask(self, signals: Signals, blockable: bool) -> Decision:
        engine, policy = self.engine, self.policy
        run = engine.get(signals.run)
        if run is None or run.watch_only:
            return Decision("go_on", None, None, signals)
        if run.stopped is not None:
            step, reason = run.stopped
            return Decision("stop", reason, f"the run was stopped at step {step}", signals)
        decision = policy.decide(signals, blockable=blockable)
        if decision.nudge or run.nudged:
            decision = self._nudge(decision, signals, run)
        if not decision.stop:
            for reason in policy.would_stop(signals):
                if ("would_stop", reason) not in run.totals.interventions:
                    engine.intervened(signals.run, "would_stop", reason, signals.step)
        if decision.action == "go_on":
            return Decision("go_on", None, None, signals)
        engine.intervened(signals.run, decision.action, decision.reason or "", signals.step)
        if decision.block:
            engine.step_blocked(signals.run, signals.step)
        outlook = engine.outlook(signals.run)
        advice = advise(decision.message or "", outlook, blocked=decision.block)
        return decision._replace(advice=advice, outlook=outlook)

    def _nudge(self, decision: Decision, signals: Signals, run: RunState) -> Decision:
        """A nudge is due when its rule is reached, and again when the signal grew by as much."""
        holding = {rule.signal: rule for rule in self.policy.nudges(signals)}
        due: Rule | None = None
        with run.lock:
            for signal in [known for known in run.nudged if known not in holding]:
                del run.nudged[signal]  # it has cleared
            for signal, rule in holding.items():
                value, last = getattr(signals, signal), run.nudged.get(signal)
                if last is None or value >= last + rule.threshold > last:
                    due = due or rule
                    run.nudged[signal] = value
        if not decision.nudge:
            return decision
        if due is None:
            return Decision(signals=signals)
        return Decision("nudge", due.signal, due.message(signals), signals)

    def _watch_only(self, run_id: str) -> None:
        """After a fault of ours nothing is decided in that run any more."""
        run = self.engine.get(run_id)
        if run is not None:
            run.watch_only = True


class Pipeline:
    """Everything joined: an engine with its sink, spans, and a way out.

    Attributes:
        settings: what it was made from.
        engine: holds the runs.
        recorder: what instrumentation reports to.
        metrics_server: serves ``/metrics``; ``None`` when it does not.
    """

    def __init__(self, settings: Settings, *, serve: bool = True) -> None:
        self.settings = settings
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
        )
        self._telemetry = open_telemetry(settings.tracer_provider, settings.logger_provider)
        capture = settings.capture_content
        if capture is None:
            capture = os.environ.get(CAPTURE_CONTENT_VARIABLE, "").upper() in _SPAN_CONTENT
        spans = SpanFactory(
            self._telemetry.tracer,
            self._telemetry.logger,
            max_runs=settings.max_runs,
            capture_content=capture,
            digest_key=settings.digest_key,
        )
        sink = EngineSink(self.engine, settings.policy())
        self.recorder = Recorder(sink, spans, extractors=tuple(settings.extractors))
        self.metrics_server: MetricsServer | None = None
        self._collector: TidegaugeCollector | None = None
        self._closed = False
        if settings.registry is not None:
            from tidegauge.exporters.prometheus import TidegaugeCollector

            self._collector = TidegaugeCollector(self.engine, place_label=spans.exported_place)
            settings.registry.register(self._collector)
        elif serve and settings.serve_metrics:
            self._serve_metrics()

    @property
    def metrics_url(self) -> str | None:
        """Where ``/metrics`` is served; ``None`` when it is not."""
        return self.metrics_server.url if self.metrics_server is not None else None

    def force_flush(self) -> None:
        """Send the spans and events that wait, if they are exported by us."""
        self._telemetry.force_flush()

    def stop_serving(self) -> None:
        """Give the metrics' port, or their place in the registry, free."""
        server, self.metrics_server = self.metrics_server, None
        if server is not None:
            server.stop()
        collector, self._collector = self._collector, None
        if collector is not None and self.settings.registry is not None:
            with contextlib.suppress(KeyError):  # it was taken out by whoever owns the registry
                self.settings.registry.unregister(collector)

    def shutdown(self) -> None:
        """Stop serving, send what waits and close what was opened for it.

        The next run takes the defaults, if this was what runs took.
        """
        with _lock:
            if self in _configured:
                _configured.remove(self)
                set_recorder(None)
            closed, self._closed = self._closed, True
        if not closed:
            self.stop_serving()
            self._telemetry.shutdown()

    def _serve_metrics(self) -> None:
        from tidegauge.exporters.prometheus import MetricsServer

        settings, environ = self.settings, os.environ
        host = settings.metrics_host or environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1"
        port = settings.metrics_port
        if port is None:
            told = environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", "9464")
            if not told.isdecimal() or int(told) > 65_535:
                raise ConfigurationError(f"OTEL_EXPORTER_PROMETHEUS_PORT={told!r} is no port")
            port = int(told)
        try:
            self.metrics_server = MetricsServer(
                self.engine,
                host=host,
                port=port,
                place_label=self.recorder.spans.exported_place,
                certificate=settings.metrics_certificate,
                key=settings.metrics_key,
                client_ca=settings.metrics_client_ca,
            )
        except OSError as error:
            import ssl

            if isinstance(error, ssl.SSLError):
                raise ConfigurationError(f"the files of TLS don't fit: {error}") from error
            # Another process of the same application often has the port: the agent goes on.
            internal_errors.record("metrics_server", error)


_lock = threading.Lock()
_configured: list[Pipeline] = []


def configure(**settings: Any) -> Pipeline:
    """Set tidegauge up for this process; call it once, before the agents run.

    Without it everything is measured with the defaults and served nowhere. A second call replaces
    the first; runs that are open end where they began.

    Args:
        **settings: the fields of :class:`Settings`.

    Returns:
        What was set up; nothing needs to be done with it.

    Raises:
        ConfigurationError: an unknown setting, or a value that cannot work.

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
    for previous in tuple(_configured):
        previous.stop_serving()  # the new one may want the same port
    pipeline = Pipeline(checked)
    with _lock:
        replaced = _configured.pop() if _configured else None
        _configured.append(pipeline)
        set_recorder(pipeline.recorder)
    if replaced is not None:
        replaced.shutdown()
    return pipeline


def _default_recorder() -> Recorder:
    with _lock:
        if not _configured:
            _configured.append(Pipeline(Settings(), serve=False))
        recorder = _configured[0].recorder
        set_recorder(recorder)
    return recorder


def _suggestion(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _shutdown_at_exit() -> None:
    with _lock:
        pipelines = list(_configured)
        _configured.clear()
    for pipeline in pipelines:
        pipeline.shutdown()


set_recorder_factory(_default_recorder)
atexit.register(_shutdown_at_exit)
