"""``tidegauge serve`` as a process of its own: started, asked, stopped and killed."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grpc  # type: ignore[import-untyped]
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.prometheus import free_port

_COMMAND = (sys.executable, "-c", "from tidegauge.cli.main import main; main()")
_LOG_CHARACTERS = 4_000
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


Samples: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


class Ports(NamedTuple):
    """Where it listens on 127.0.0.1."""

    grpc: int
    http: int
    metrics: int

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody listens on now."""
        return cls(free_port(), free_port(), free_port())


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    body: bytes


class Server:
    """A ``tidegauge serve`` that runs."""

    def __init__(self, process: subprocess.Popen[bytes], ports: Ports, log: Path) -> None:
        self.process = process
        self.ports = ports
        self.log = log
        self.traces_url = f"http://127.0.0.1:{ports.http}/v1/traces"
        self.grpc_target = f"127.0.0.1:{ports.grpc}"
        self.metrics_url = f"http://127.0.0.1:{ports.metrics}/metrics"

    @property
    def resident_bytes(self) -> int:
        """How much memory it holds."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def peak_bytes(self) -> int:
        """How much memory it has ever held at once."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [kilobytes] = re.findall(r"VmHWM:\s*(\d+) kB", status)
        return int(kilobytes) * 1024

    def get(self, path: str, accept: str = "text/plain") -> Answer:
        """What it answers beside ``/metrics``."""
        url = self.metrics_url.removesuffix("/metrics") + path
        return http(urllib.request.Request(url, headers={"Accept": accept}))

    def samples(self) -> Samples:
        """All that ``/metrics`` says."""
        return samples_at(self.metrics_url)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series of this name that have these labels."""
        return sum(
            value
            for (_, one), value in samples_at(self.metrics_url, name).items()
            if labels.items() <= dict(one).items()
        )

    def wait_for(
        self,
        name: str,
        holds: Callable[[float], object] = bool,
        *,
        seconds: float = PATIENCE,
        **labels: str,
    ) -> float:
        """The sum as soon as it is as it should be."""
        until = time.monotonic() + seconds
        while not holds(value := self.value(name, **labels)):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until, f"{name}{labels or ''} is {value}"
            time.sleep(0.05)
        return value

    def post(
        self,
        body: bytes,
        *,
        kind: str = "application/x-protobuf",
        url: str | None = None,
        seconds: float = PATIENCE,
        **headers: str,
    ) -> Answer:
        """Send a body to ``/v1/traces``, or another address.

        ``Content_Encoding="gzip"`` names a header.
        """
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        fields["Content-Type"] = kind
        return http(urllib.request.Request(url or self.traces_url, body, fields), seconds)

    def send(self, requests: Iterable[ExportTraceServiceRequest]) -> None:
        """Send requests over HTTP, which must all be taken."""
        for request in requests:
            body = gzip.compress(request.SerializeToString(), 1)
            answer = self.post(body, Content_Encoding="gzip")
            assert answer.status == 200, answer

    def send_grpc(self, requests: Iterable[ExportTraceServiceRequest]) -> int:
        """Send requests over gRPC; how many spans the answer says were refused."""
        rejected = 0
        with grpc.insecure_channel(self.grpc_target) as channel:
            export = channel.unary_unary(
                EXPORT,
                request_serializer=ExportTraceServiceRequest.SerializeToString,
                response_deserializer=ExportTraceServiceResponse.FromString,
            )
            for request in requests:
                answer = export(request, timeout=PATIENCE, wait_for_ready=True)
                rejected += answer.partial_success.rejected_spans
        return rejected

    def send_raw_grpc(self, body: bytes, seconds: float = PATIENCE) -> grpc.StatusCode:
        """Send any bytes as a gRPC message; how it is answered."""
        with grpc.insecure_channel(self.grpc_target) as channel:
            try:
                channel.unary_unary(EXPORT)(body, timeout=seconds, wait_for_ready=True)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Add its log and its counters to an error, which happens too seldom to be repeated."""
        try:
            yield
        except BaseException as error:
            counters = "no answer"
            with contextlib.suppress(OSError, AssertionError):
                counters = "\n".join(
                    f"{name}{dict(labels) or ''} {value:g}"
                    for (name, labels), value in sorted(self.samples().items(), key=str)
                    if value and not name.endswith(("_bucket", "_created"))
                )
            log = self.log.read_text(errors="replace")[-_LOG_CHARACTERS:]
            error.add_note(f"{self.log.name}:\n{log}\n{counters}")
            raise

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE)


@contextlib.contextmanager
def serving(
    directory: Path,
    *flags: str,
    ports: Ports | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start ``tidegauge serve``, wait until it is ready, and stop it.

    Args:
        directory: where its log is kept.
        flags: what the command line says beside the ports.
        ports: where it listens; left out, at free ones.
        environment: variables beside those of this process.
    """
    ports = ports or Ports.free()
    log = directory / f"serve-{ports.grpc}.log"
    command = [
        *_COMMAND,
        "serve",
        f"--grpc-port={ports.grpc}",
        f"--http-port={ports.http}",
        f"--metrics-port={ports.metrics}",
        *flags,
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    server = Server(process, ports, log)
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: server.get("/readyz").status == 200)
        with server.explained():
            yield server


def samples_at(metrics_url: str, name: str | None = None) -> Samples:
    """What a page of metrics says: all of it, or the samples of this name."""
    answer = http(urllib.request.Request(metrics_url, headers={"Accept": "text/plain"}))
    assert answer.status == 200
    page = answer.body.decode()
    if name is not None:  # parsing takes far longer than serving
        starts = (f"{name} ", f"{name}{{")
        page = "".join(line + "\n" for line in page.split("\n") if line.startswith(starts))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def http(request: urllib.request.Request, seconds: float = PATIENCE) -> Answer:
    """What a server answers, whatever the status."""
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return Answer(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read())
