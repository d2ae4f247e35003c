"""What :func:`tidegauge.configure` takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegauge import _checked
from tidegauge._checked import (
    Count,
    Kind,
    Kinds,
    Seconds,
    check_fields,
    function,
    having,
    instance_of,
    whole,
)
from tidegauge._guard import log
from tidegauge._net.hosts import AllowedHosts
from tidegauge.errors import ConfigurationError
from tidegauge.events import ToolDeclaration
from tidegauge.policies import DEFAULT_RULES, Policy, Rule, read_policy
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.known_graph import Distance

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from tidegauge.diagnose.judges import Judging
    from tidegauge.instrumentation.extraction import Extractor

__all__ = ["KINDS", "Settings"]

FilePath: TypeAlias = str | os.PathLike[str]
HostName: TypeAlias = str
Key: TypeAlias = bytes
NoneOrMore: TypeAlias = int
Port: TypeAlias = int


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


KINDS: Final[Kinds] = {
    **_checked.KINDS,
    "FilePath": Kind("the path of a file", _path),
    "HostName": Kind("a host name or an address", _host),
    "Key": Kind('from 1 to 64 bytes, such as os.environ["KEY"].encode()', _key, secret=True),
    "NoneOrMore": whole(0),
    "Port": whole(0, 65_535, "a port from 1 to 65535, or 0 for any free one"),
    "Rule": instance_of(Rule, "a tidegauge.policies.Rule"),
    "ToolDeclaration": instance_of(ToolDeclaration, "a tidegauge.ToolDeclaration"),
    "Normaliser": function("a function that takes a text and gives one"),
    "Distance": function("a function that takes two places and gives a number"),
    "Extractor": having("uses", "observe", use="an extractor, with uses() and observe()"),
    "CollectorRegistry": having("register", "unregister", use="a Prometheus registry"),
    "Judging": having("submit", "listen", "wants", "close", use="a tidegauge.diagnose.Judging"),
    "TracerProvider": having("get_tracer", use="a provider with get_tracer()"),
    "LoggerProvider": having("get_logger", use="a provider with get_logger()"),
    "MeterProvider": having("get_meter", use="a provider with get_meter()"),
}
"""What the settings take, by their annotations."""


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
        policy: file of a policy that ``tidegauge calibrate`` wrote or you did: its rules and lines
            hold beside those told here, and its rules before them; the variable TIDEGAUGE_POLICY
            stands in for it. A file that cannot be used is told in one line, and nothing is
            stopped by it.
        observe_only: step in nowhere, whatever the rules and lines say: count what they would stop.
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
        metrics_allowed_hosts: host names that ``/metrics`` and the page accept in addition to
            loopback names and the address; left out, any, unless that address is loopback. A web
            page whose name is made to point here (DNS rebinding) is recognised by that name.
        metrics_certificate: file of a certificate: ``/metrics`` is served over TLS.
        metrics_key: file of its private key.
        metrics_client_ca: file of certificates: only clients with one signed by them are answered.
        serve_metrics: whether ``/metrics`` is served at all.
        page: whether the live page is served beside ``/metrics``, at ``/``; left out, it is. Where
            this process serves nothing, ``True`` keeps what it shows for a server of yours:
            ``MetricsServer(pipeline.engine, page=pipeline.page)``.
        page_contents: let the page show the beginnings of arguments and results; left out, it
            shows digests.
        registry: put the metrics into this Prometheus registry and serve nothing.
        otlp_metrics: whether the metrics are pushed over OTLP as well; left out, they are when
            OTEL_METRICS_EXPORTER names ``otlp`` and an endpoint of OTLP is set.
        record_to: record every run as step events in this file, to be replayed; ``{pid}`` in its
            name stands for the process id.
        record_contents: write arguments, results, states and places as they are; left out,
            digests stand for them.
        record_max_bytes: size past which the file is renamed and another begun.
        record_backups: how many renamed files are kept.
        judging: judges runs as they end, in the background: what a run held goes to the model that
            it was given. It is closed with what is set up here.
        capture_content: put arguments and results on spans; left out, the variable
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT decides.
        digest_key: key of the digests on spans, so that they agree between processes; left out,
            one is drawn for this process.
        tracer_provider: use this provider for spans.
        logger_provider: use this provider for events.
        meter_provider: use this provider for metrics that go through OpenTelemetry.

    Raises:
        ConfigurationError: a value that cannot work.
    """

    stop_on_loop: Count | None = None
    stop_on_result_streak: Count | None = None
    stop_on_failed_rounds: Count | None = None
    stop_on_steps: Count | None = None
    nudge_on_loop: Count | None = None
    block_on_loop: Count | None = None
    rules: Iterable[Rule] | None = None
    policy: FilePath | None = None
    observe_only: bool = False
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
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
    normaliser: Normaliser | None = None
    directed: bool = False
    distance: Distance | None = None
    metrics_host: HostName | None = None
    metrics_port: Port | None = None
    metrics_allowed_hosts: Iterable[HostName] = ()
    metrics_certificate: FilePath | None = None
    metrics_key: FilePath | None = None
    metrics_client_ca: FilePath | None = None
    serve_metrics: bool = True
    page: bool | None = None
    page_contents: bool = False
    registry: CollectorRegistry | None = None
    otlp_metrics: bool | None = None
    record_to: FilePath | None = None
    record_contents: bool = False
    record_max_bytes: Count = 100 * 1024 * 1024
    record_backups: NoneOrMore = 5
    judging: Judging | None = None
    capture_content: bool | None = None
    digest_key: Key | None = None
    tracer_provider: TracerProvider | None = None
    logger_provider: LoggerProvider | None = None
    meter_provider: MeterProvider | None = None

    def __post_init__(self) -> None:
        check_fields(self, KINDS)
        if (self.metrics_certificate is None) != (self.metrics_key is None):
            raise ConfigurationError("metrics_certificate and metrics_key go together")
        if self.metrics_client_ca is not None and self.metrics_certificate is None:
            raise ConfigurationError("metrics_client_ca needs a metrics_certificate")
        for name in ("metrics_certificate", "metrics_key", "metrics_client_ca"):
            path = getattr(self, name)
            if path is not None and not os.path.isfile(path):
                raise ConfigurationError(f"{name} is {path!r}; use the path of a file")
        AllowedHosts("127.0.0.1", self.metrics_allowed_hosts)  # says at once which name is none
        self.rules_told()

    @property
    def records_digests(self) -> bool:
        """Whether runs are recorded without their words, whose likeness is to be written then."""
        return self.record_to is not None and not self.record_contents

    def decides(self) -> Policy:
        """The policy that the settings describe: what is not stopped is observed."""
        policy = self._policy_told()
        return policy.observing() if self.observe_only else policy

    def _policy_told(self) -> Policy:
        told = self.rules_told()
        path = self.policy or os.environ.get("TIDEGAUGE_POLICY")
        if not path:
            return Policy(told)
        try:
            found = read_policy(path)
            taken = {(rule.signal, rule.rung, rule.agent, rule.tool) for rule in found.rules}
            taken |= {
                (rule.signal, "observe", None, None)
                for rule in found.rules
                if (rule.rung, rule.agent, rule.tool) == ("stop", None, None)
            }
            return found.policy(
                rule
                for rule in told
                if (rule.signal, rule.rung, rule.agent, rule.tool) not in taken
            )
        except ConfigurationError as error:
            log(logging.WARNING, "tidegauge: %s; it stops nothing", error)
            return Policy(told)

    def rules_told(self) -> tuple[Rule, ...]:
        """The rules that the settings describe."""
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
            return Policy(self.rules).rules
        stopped = {rule.signal for rule in told if rule.rung == "stop"}
        observed = [rule for rule in DEFAULT_RULES if rule.signal not in stopped]
        return Policy([*told, *observed]).rules
