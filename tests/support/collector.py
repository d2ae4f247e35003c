"""An OpenTelemetry Collector, which ``make test-collector`` builds, with files of the examples."""

from __future__ import annotations

import contextlib
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from support.processes import stopped_in_the_end, wait_until_ready
from support.prometheus import free_port
from support.requirements import missing
from support.serve import http, samples_at

__all__ = [
    "ACCEPTED",
    "EXAMPLES",
    "FAILED",
    "NOT_QUEUED",
    "REFUSED",
    "SENT",
    "Collector",
    "collecting",
    "program",
]

_ROOT: Final = Path(__file__).parents[2]
_OTELCOL: Final = _ROOT / ".collector" / "otelcol"
EXAMPLES: Final = _ROOT / "examples"

ACCEPTED: Final = "otelcol_receiver_accepted_spans"
REFUSED: Final = "otelcol_receiver_refused_spans"
SENT: Final = "otelcol_exporter_sent_spans"
FAILED: Final = "otelcol_exporter_send_failed_spans"
NOT_QUEUED: Final = "otelcol_exporter_enqueue_failed_spans"


class Collector:
    """A Collector that runs: it takes OTLP, and counts what it takes and sends."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, http_port: int) -> None:
        self.process = process
        self.log = log
        self.endpoint = f"http://127.0.0.1:{http_port}"
        self.traces_url = f"{self.endpoint}/v1/traces"
        self.metrics_url = ""

    def post(self, body: bytes) -> int:
        """Send a gzipped request of OTLP; the status of the answer."""
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        return http(urllib.request.Request(self.traces_url, body, headers)).status

    def count(self, name: str) -> float:
        """The sum of one of its own counters, of all its parts."""
        return sum(
            value
            for (found, _), value in samples_at(self.metrics_url).items()
            if found.removesuffix("_total") == name
        )

    def stop(self) -> int:
        """SIGTERM: it sends what it has; its exit code."""
        self.process.terminate()
        return self.process.wait(60)


def program() -> Path:
    """The program, or the test is skipped."""
    if not _OTELCOL.is_file():
        missing(f"no Collector at {_OTELCOL}: make test-collector builds one")
    return _OTELCOL


@contextlib.contextmanager
def collecting(
    directory: Path,
    *configurations: Path,
    changes: Mapping[str, Any] | None = None,
    without: Sequence[Sequence[str]] = (),
    name: str = "collector",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Collector]:
    """Start a Collector, wait until it listens, and stop it.

    Args:
        directory: where its log is kept.
        configurations: files of the examples.
        changes: what a test must set, such as where others listen; merged as the Collector does.
        without: paths of settings that are left out of the examples.
        name: of its files.
        environment: variables that the files name.
    """
    grpc_port, http_port, metrics_port = free_port(), free_port(), free_port()
    protocols = {
        "grpc": {"endpoint": f"127.0.0.1:{grpc_port}"},
        "http": {"endpoint": f"127.0.0.1:{http_port}"},
    }
    reader = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": metrics_port}}}}
    mine = {
        "receivers": {"otlp": {"protocols": protocols}},
        "service": {"telemetry": {"metrics": {"readers": [reader]}}},
    }
    arguments: list[str] = []
    for number, document in enumerate(
        [*map(_read, configurations), mine, *([changes] if changes else [])]
    ):
        for path in without:
            _drop(document, path)
        file = directory / f"{name}-{number}.yaml"
        file.write_text(yaml.safe_dump(document))
        arguments += ["--config", str(file)]
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [program(), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    collector = Collector(process, log, http_port)
    collector.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"

    def listens() -> bool:
        samples_at(collector.metrics_url)
        return http(urllib.request.Request(collector.endpoint)).status > 0

    with stopped_in_the_end(process):
        wait_until_ready(process, log, listens)
        try:
            yield collector
        except BaseException as error:
            error.add_note(log.read_text(errors="replace")[-4_000:])
            raise


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def _drop(document: Any, path: Sequence[str]) -> None:
    *parents, last = path
    for key in parents:
        document = document.get(key, {})
    document.pop(last, None)
