"""What :func:`tidegauge.configure` takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from tidegauge import settings as kinds
from tidegauge.errors import ConfigurationError
from tidegauge.events import ToolDeclaration
from tidegauge.net.listener import AllowedHosts
from tidegauge.policies import Breaker, Budget, Guard, Policy, Rule, read_policy, with_guard
from tidegauge.policies.prices import ModelPrice
from tidegauge.settings import (
    PORTS,
    Count,
    Kinds,
    Range,
    Seconds,
    Share,
    ValueKind,
    check_fields,
    checked,
    function,
    having,
    instance_of,
    one_of,
    whole,
)
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.known_graph import Distance
from tidegauge.streaming_metrics.normalise import volatile

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from tidegauge.diagnose.judges import Judging
    from tidegauge.run_stores import RunStore
    from tidegauge.runs.extraction import Extractor
    from tidegauge.tracer import Redact

FilePath: TypeAlias = str | os.PathLike[str]
HostName: TypeAlias = str
Key: TypeAlias = bytes
Comparison: TypeAlias = Normaliser | str
ExportedRuns: TypeAlias = Literal["all", "troubled"]
GuardName: TypeAlias = Guard
NoneOrMore: TypeAlias = int
Port: TypeAlias = int
ShownMessages: TypeAlias = Literal["new", "full"]
RunStorePlace: TypeAlias = "str | RunStore"
TraceUrl: TypeAlias = str
WebAddress: TypeAlias = str


def _path(value: Any) -> str:
    path = os.fspath(value)
    if not isinstance(path, str) or "\0" in path:
        raise ValueError
    return path


def _host(value: Any) -> str:
    if not isinstance(value, str) or len(value.split()) > 1:
        raise ValueError
    value.encode("idna")  # as on its way to a socket
    return value


def _key(value: Any) -> bytes:
    key = bytes(memoryview(value))
    if not 1 <= len(key) <= 64:
        raise ValueError
    return key


def _web_address(value: Any) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError
    return str(value)


def _trace_url(value: Any) -> str:
    if "{trace_id}" not in value:
        raise ValueError
    return _web_address(value)


def _comparison(value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and value in ("volatile", "exact")):
        raise ValueError
    return value


_IS_RUN_STORE: Final = having("save", "take", "take_expired", "close", use="a store")


def _run_store(value: Any) -> Any:
    return _path(value) if isinstance(value, str | os.PathLike) else _IS_RUN_STORE.read(value)


KINDS: Final[Kinds] = {
    **kinds.KINDS,
    "ExportedRuns": one_of(*get_args(ExportedRuns)),
    "GuardName": one_of(*get_args(Guard)),
    "FilePath": ValueKind("the path of a file", _path),
    "HostName": ValueKind("a host name or an address", _host),
    "Key": ValueKind('from 1 to 64 bytes, such as os.environ["KEY"].encode()', _key, secret=True),
    "NoneOrMore": whole(Range(0)),
    "Port": whole(PORTS, "a port from 1 to 65535, or 0 for any free one"),
    "RunStorePlace": ValueKind(
        "the path of a file, a postgresql:// URL, or a store with save() and take()",
        _run_store,
        secret=True,  # a URL has a password
    ),
    "ModelPrice": ValueKind(
        "$ per million tokens, or {'input': 3, 'output': 15, 'cache_read': 0.3, "
        "'cache_write': 3.75}",
        ModelPrice.of,
    ),
    "Redact": function("a function from text to text"),
    "ShownMessages": one_of(*get_args(ShownMessages)),
    "TraceUrl": ValueKind(
        "an http:// or https:// address with {trace_id} in it, of the page of a trace", _trace_url
    ),
    "WebAddress": ValueKind("an http:// or https:// address", _web_address),
    "Breaker": instance_of(Breaker, "a tidegauge.policies.Breaker"),
    "Budget": instance_of(Budget, "a tidegauge.policies.Budget"),
    "Rule": instance_of(Rule, "a tidegauge.policies.Rule"),
    "ToolDeclaration": instance_of(ToolDeclaration, "a tidegauge.ToolDeclaration"),
    "Comparison": ValueKind('"volatile", "exact" or a function from text to text', _comparison),
    "Distance": function("a function from two places to a number"),
    "Extractor": having("uses", "observe", use="an extractor, with uses() and observe()"),
    "CollectorRegistry": having("register", "unregister", use="a Prometheus registry"),
    "Judging": having("submit", "listen", "wants", "close", use="a tidegauge.diagnose.Judging"),
    "TracerProvider": having("get_tracer", use="a provider with get_tracer()"),
    "LoggerProvider": having("get_logger", use="a provider with get_logger()"),
    "MeterProvider": having("get_meter", use="a provider with get_meter()"),
}
"""The kinds of values, by the annotations of the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What :func:`configure` takes.

    Args:
        guard: ``stuck`` stops runs that are stuck, by evidence: the preset, see
            :func:`~tidegauge.policies.guard_rules`. ``watch``, the default, counts and shows what
            that would stop. The default is the variable TIDEGAUGE_GUARD. Your own rules for the
            same signal take precedence.
        guard_share: share of the runs in which the preset stops, from 0 to 1; a run's id decides.
        stop_on_loop: stop a run when its last steps, of any number, repeated those just before them
            this many times.
        stop_on_result_streak: stop it after this many consecutive steps with the same result.
        stop_on_failed_rounds: stop it after this many consecutive rounds of failed calls only.
        stop_on_steps: stop it at the next step after this many.
        nudge_on_loop: send the model a message when a loop was repeated this many times, and
            again whenever it was repeated as many times more.
        block_on_loop: from this many repetitions on, answer its calls instead of running them.
        rules: the rules of the policy, instead of the settings above; beside them, ``guard`` acts
            only if it is set.
        budgets: how much runs, conversations and agents may spend: tokens, $, time, calls.
        breakers: tools that are left alone for a while when they fail, in whatever run.
        policy: file of a policy, written by ``tidegauge calibrate`` or by you. Its rules,
            thresholds, budgets and breakers apply in addition to those given here, and its rules
            take precedence. The default is the variable TIDEGAUGE_POLICY.
        observe_only: never intervene; only count what the rules and thresholds would have stopped.
        tools: what is known about tools, by their names: pollers, keys, mutations.
        detect_polls: take calls that wait for polls, as if their tools were declared so: commands
            that sleep, follow a log or wait for a process, coding agents' own tools for output that
            is still to come, and looks at what another call has started. They raise no signal
            within the same allowance: 60 steps without a new result. By default that is done in
            sessions of coding agents (``tidegauge watch``).
        extractors: derive from calls and their results where the agent is, what it sees there and
            what it has to do, for every run that does not report this.
        t_max: turns within which success counts towards AUV, for runs that name none.
        t_max_by_group: the same by task group.
        max_runs: limit of active runs; a further one evicts the run that is idle for longest.
        stale_at: stale score from which an active run counts as stale.
        idle_seconds: end a run as unknown if it has no step for this long.
        max_groups: (agent, task group) pairs with separate metrics; later ones are ``other``.
        max_actions: action names with separate metrics; later ones are ``other``.
        max_period: longest cycle of TIDE's loop ratio, in steps; loops are found up to 256 steps.
        max_distinct: distinct results that a run remembers.
        normalise: how results and arguments are compared. ``volatile``: without known noise,
            such as times, durations and ids of requests, see
            :class:`~tidegauge.streaming_metrics.normalise.Volatile`; ``exact``; or a function that
            removes irrelevant changes from a text before it is digested.
        repetition: measure how similar each action is to those before, in words: the metrics and
            signals similarity, repetition and stagnation. Without it the metrics of a step cost a
            quarter less. Rules and thresholds that need it switch it on.
        directed: whether exits lead in one direction only.
        distance: gives the distance between two places, if you know it better than the exits show;
            replaces the search for gain.
        metrics_host: address of ``/metrics``; the default is the variable
            OTEL_EXPORTER_PROMETHEUS_HOST, else 127.0.0.1.
        metrics_port: its port, 0 for any free one; the default is the variable
            OTEL_EXPORTER_PROMETHEUS_PORT, else 9464.
        metrics_targets: folder for several processes: each adds a file for ``file_sd_configs``, in
            which Prometheus finds it, and removes it at its end; processes that are forked later
            do so, too. The port is then a free one if it is in use or not set. The default is the
            variable TIDEGAUGE_METRICS_TARGETS.
        metrics_allowed_hosts: host names that ``/metrics`` and the page accept in addition to
            loopback names and the address. By default, a loopback address accepts no others, and
            any other address accepts all. This protects against DNS rebinding by web pages.
        metrics_certificate: file of a certificate: serve ``/metrics`` over TLS.
        metrics_key: file of its private key.
        metrics_client_ca: file of certificates: accept only clients whose certificate is signed by
            one of them.
        serve_metrics: whether ``/metrics`` is served at all.
        page: whether the live page is served at ``/``, next to ``/metrics``; the default is yes.
            If this process serves nothing, ``True`` keeps the data for a server that you start:
            ``MetricsServer(pipeline.engine, page=pipeline.page)``.
        page_contents: show the beginnings of arguments and results on the page; by default, it
            does if ``capture_content`` is on, and else shows digests.
        trace_url: address of the page of a trace in your tracing system, with ``{trace_id}`` in it;
            the page links each run to its trace.
        prices: $ per million tokens, by the name of the model, as in ``{"my-model": 1.5}``; the
            page then shows what runs and loops cost in $. For budgets, a price may have its parts:
            ``{"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}``; without
            prices, budgets in $ take the table in ``policies/prices.toml``.
        runbooks: address that serves ``docs/runbooks``, for the page's links; the default is the
            variable TIDEGAUGE_RUNBOOKS.
        registry: put the metrics into this Prometheus registry and serve nothing.
        otlp_metrics: whether the metrics are also pushed over OTLP; by default, they are if
            OTEL_METRICS_EXPORTER names ``otlp`` and an OTLP endpoint is set.
        record_to: record every run as step events in this file, for ``tidegauge replay``;
            ``{pid}`` in its name is replaced by the process id.
        record_contents: write arguments, results, states and places in plain text; by default,
            digests are written instead.
        record_max_bytes: size from which the file is renamed and a new one started.
        record_backups: number of renamed files that are kept.
        run_store: saves runs that wait for a person, so that another process can resume them: the
            path of an SQLite file, the URL of a Postgres database, or a
            :class:`~tidegauge.run_stores.RunStore`. It is closed with the pipeline.
        judging: judges runs in the background when they end; the contents of the run are sent to
            its model. It is closed with the pipeline.
        capture_content: put messages, arguments and results on spans; by default, the variable
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides.
        contents: which messages a model call's span has then: those that are ``"new"`` since the
            run's last one, or ``"full"``, the whole history each time.
        redact: takes every text that is put on spans as a content, and returns what may leave of
            it; ``None``, nothing. If it fails, the content is absent.
        digest_key: key of the digests on spans, so that they agree between processes; by default,
            each process draws one.
        export: the runs whose spans are exported: ``"all"``, or only the ``"troubled"`` ones, which
            were stopped, failed, looped, were stale or cost more than p95, and a random share.
            Spans then wait until their run has ended, see
            :class:`~tidegauge.sampling.TroubledSpanProcessor`. For the exporter that tidegauge
            makes; put that processor into a provider of your own.
        sample: share of the runs without trouble that ``export="troubled"`` exports, from 0 to 1,
            decided by the trace id; the default is 0.01.
        tracer_provider: use this provider for spans.
        logger_provider: use this provider for events.
        meter_provider: use this provider for metrics that go through OpenTelemetry.

    Raises:
        ConfigurationError: a value is not valid.
    """

    guard: GuardName | None = None
    guard_share: Share = 1.0
    stop_on_loop: Count | None = None
    stop_on_result_streak: Count | None = None
    stop_on_failed_rounds: Count | None = None
    stop_on_steps: Count | None = None
    nudge_on_loop: Count | None = None
    block_on_loop: Count | None = None
    rules: Iterable[Rule] | None = None
    budgets: Iterable[Budget] = ()
    breakers: Iterable[Breaker] = ()
    policy: FilePath | None = None
    observe_only: bool = False
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    detect_polls: bool | None = None
    extractors: Iterable[Extractor] = ()
    t_max: Count | None = None
    t_max_by_group: Mapping[str, Count] = field(default_factory=dict)
    max_runs: Count = 10_000
    stale_at: Count = 5
    idle_seconds: Seconds = 3_600.0
    max_groups: Count = 200
    max_actions: Count = 50
    max_period: Count = 10_000
    max_distinct: Count = 10_000
    normalise: Comparison = "volatile"
    repetition: bool = True
    directed: bool = False
    distance: Distance | None = None
    metrics_host: HostName | None = None
    metrics_port: Port | None = None
    metrics_targets: FilePath | None = None
    metrics_allowed_hosts: Iterable[HostName] = ()
    metrics_certificate: FilePath | None = None
    metrics_key: FilePath | None = None
    metrics_client_ca: FilePath | None = None
    serve_metrics: bool = True
    page: bool | None = None
    page_contents: bool | None = None
    trace_url: TraceUrl | None = None
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)
    runbooks: WebAddress | None = None
    registry: CollectorRegistry | None = None
    otlp_metrics: bool | None = None
    record_to: FilePath | None = None
    record_contents: bool = False
    record_max_bytes: Count = 100 * 1024 * 1024
    record_backups: NoneOrMore = 5
    run_store: RunStorePlace | None = None
    judging: Judging | None = None
    capture_content: bool | None = None
    contents: ShownMessages = "new"
    redact: Redact | None = None
    digest_key: Key | None = None
    export: ExportedRuns = "all"
    sample: Share | None = None
    tracer_provider: TracerProvider | None = None
    logger_provider: LoggerProvider | None = None
    meter_provider: MeterProvider | None = None

    def __post_init__(self) -> None:
        check_fields(self, KINDS)
        if (self.metrics_certificate is None) != (self.metrics_key is None):
            raise ConfigurationError(
                "TLS needs a certificate and its key; set both metrics_certificate and metrics_key"
            )
        if self.metrics_client_ca is not None and self.metrics_certificate is None:
            raise ConfigurationError(
                "metrics_client_ca needs TLS; set metrics_certificate and metrics_key, too"
            )
        for name in ("metrics_certificate", "metrics_key", "metrics_client_ca"):
            path = getattr(self, name)
            if path is not None and not os.path.isfile(path):
                raise ConfigurationError(f"{name} is {path!r}; use the path of a file")
        if self.export == "all" and self.sample is not None:
            raise ConfigurationError(
                'sample is for export="troubled"; set both, or OTEL_TRACES_SAMPLER for all runs'
            )
        if self.export == "troubled" and self.tracer_provider is not None:
            raise ConfigurationError(
                'export="troubled" is for the exporter that tidegauge makes; add a '
                "tidegauge.sampling.TroubledSpanProcessor with your exporter to your "
                "tracer_provider instead"
            )
        AllowedHosts("127.0.0.1", self.metrics_allowed_hosts)  # reports invalid names now
        self.given_rules()

    @property
    def normaliser(self) -> Normaliser | None:
        """The function that :attr:`normalise` stands for; ``None``, texts are compared exactly."""
        if isinstance(self.normalise, str):
            return volatile() if self.normalise == "volatile" else None
        return self.normalise

    @property
    def records_digests(self) -> bool:
        """Whether runs are recorded without contents, so that similarity must be recorded."""
        return self.record_to is not None and not self.record_contents

    def decides(self) -> Policy:
        """The policy of the settings; default signals without a stop rule are observed."""
        policy = self._given_policy()
        return policy.observing() if self.observe_only else policy

    def _given_policy(self) -> Policy:
        given = self.given_rules()
        path = self.policy or os.environ.get("TIDEGAUGE_POLICY")
        limits: dict[str, Any] = {
            "budgets": self.budgets,
            "breakers": self.breakers,
            "prices": self.prices or None,
        }
        if not path:
            return Policy(given, **limits)
        found = read_policy(path)
        taken = {(rule.signal, rule.action, rule.agent, rule.tool) for rule in found.rules}
        taken |= {
            (rule.signal, "observe", None, None)
            for rule in found.rules
            if (rule.action, rule.agent, rule.tool) == ("stop", None, None)
        }
        kept = [
            rule for rule in given if (rule.signal, rule.action, rule.agent, rule.tool) not in taken
        ]
        return found.policy(kept, **limits)

    def given_rules(self) -> tuple[Rule, ...]:
        """The rules of the settings, without those of a policy file."""
        short_forms = (
            ("loop_repeats", "stop", self.stop_on_loop),
            ("turn_loop_repeats", "stop", self.stop_on_loop),
            ("result_streak", "stop", self.stop_on_result_streak),
            ("failed_rounds", "stop", self.stop_on_failed_rounds),
            ("steps", "stop", self.stop_on_steps),
            ("loop_repeats", "nudge", self.nudge_on_loop),
            ("turn_loop_repeats", "nudge", self.nudge_on_loop),
            ("loop_repeats", "block", self.block_on_loop),
        )
        given = [
            Rule(signal, threshold, action)  # type: ignore[arg-type]
            for signal, action, threshold in short_forms
            if threshold is not None
        ]
        if self.rules is not None:
            if given:
                raise ConfigurationError(
                    "rules cannot be combined with stop_on_…, nudge_on_… or block_on_…; "
                    "set only one of them"
                )
            given = list(Policy(self.rules).rules)
        guard = self.guard or _guard_of_environment()
        if self.rules is not None and guard is None:
            return tuple(given)
        return Policy(with_guard(given, guard or "watch", self.guard_share)).rules


def _guard_of_environment() -> Guard | None:
    found = os.environ.get("TIDEGAUGE_GUARD")
    if not found:
        return None
    return checked("TIDEGAUGE_GUARD", found, "GuardName", KINDS)  # type: ignore[no-any-return]
