"""A receiver in the test's own process, and ``tidegauge serve`` in another."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from prometheus_client.parser import text_string_to_metric_families

from tidegauge import catalog
from tidegauge.net.listener import Listener
from tidegauge.receivers.receiver import Receiver, ReceiverSettings

HERE = Listener(port=0)
COMMAND = [sys.executable, "-c", "from tidegauge.cli.main import main; main()", "serve"]


@contextlib.contextmanager
def receiving(**settings: Any) -> Iterator[Receiver]:
    """A receiver on free ports."""
    receiver = Receiver(replace(ReceiverSettings(grpc=HERE, http=HERE), **settings))
    try:
        yield receiver
    finally:
        receiver.stop()


def refused(receiver: Receiver) -> dict[str, float]:
    """What it refused, by reason."""
    counts = receiver.metrics()[catalog.SPANS_REFUSED]
    return {reason: count for (reason,), count in counts.items() if count}


@dataclass
class Served:
    """A ``tidegauge serve`` that listens."""

    process: subprocess.Popen[str]
    grpc: str
    http: str
    metrics: str
    page: str | None = None

    def samples(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """What a scrape shows, by name and the values of the labels."""
        with urllib.request.urlopen(self.metrics, timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def wait_for(self, name: str, *labels: str, value: float, seconds: float = 20.0) -> None:
        """Wait until a sample has this value."""
        deadline = time.monotonic() + seconds
        while (found := self.samples().get((name, labels))) != value:
            assert time.monotonic() < deadline, f"{name} is {found}, not {value}"
            time.sleep(0.05)

    def status(self, path: str) -> int:
        """The status of another path beside ``/metrics``."""
        try:
            with urllib.request.urlopen(self.metrics.replace("/metrics", path), timeout=10) as it:
                return int(it.status)
        except urllib.error.HTTPError as error:
            return error.code


@contextlib.contextmanager
def served(*flags: str, **environment: str) -> Iterator[Served]:
    """``tidegauge serve`` on free ports, ended with SIGTERM if it has not ended before."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    process = subprocess.Popen(
        [*COMMAND, *ports, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        urls: dict[str, str] = {}
        while "metrics" not in urls:  # reported last
            line = process.stdout.readline()
            assert ": http" in line, line + process.stdout.read()
            name, _, url = line.strip().partition(": ")
            urls[name] = url
        otlp = urls["OTLP over gRPC"], urls["OTLP over HTTP"]
        yield Served(process, *otlp, urls["metrics"], urls.get("live page"))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def export_two_steps(exporter: SpanExporter) -> None:
    """Send the spans of an agent that takes two steps."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("theirs")
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    with tracer.start_as_current_span("invoke_agent a", attributes=attributes):
        step = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.agent.name": "a",
            "gen_ai.tool.name": "look",
        }
        for _ in range(2):
            with tracer.start_as_current_span("execute_tool look", attributes=step):
                pass
    provider.shutdown()
