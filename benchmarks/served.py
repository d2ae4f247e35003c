"""``tidegauge serve`` as a separate process, and its metrics."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import psutil

__all__ = ["Served", "free_port", "served"]

PATIENCE = 60.0


class Served:
    """A receiver that runs.

    Args:
        process: it.
        target: host and port of OTLP over gRPC.
        metrics_url: its page of metrics.
    """

    def __init__(self, process: subprocess.Popen[bytes], target: str, metrics_url: str) -> None:
        self.target = target
        self.metrics_url = metrics_url
        self._process = psutil.Process(process.pid)

    @property
    def resident_bytes(self) -> int:
        """How much memory it holds."""
        return self._process.memory_info().rss

    @property
    def processor_seconds(self) -> float:
        """How much of a processor it has used so far."""
        times = self._process.cpu_times()
        return times.user + times.system

    def total(self, name: str, holds: str = "") -> float:
        """The sum of the series of a metric whose labels hold this text."""
        found = 0.0
        for line in self.page().splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and holds in line:
                found += float(line.rpartition(" ")[2])
        return found

    def page(self) -> str:
        """``/metrics``."""
        with urllib.request.urlopen(self.metrics_url, timeout=PATIENCE) as response:
            return str(response.read().decode())

    def wait_for(self, name: str, total: float, holds: str = "", every: float = 0.05) -> None:
        """Wait until the sum has come to this."""
        until = time.monotonic() + PATIENCE
        while self.total(name, holds) < total:
            if time.monotonic() > until:
                raise TimeoutError(f"{name} is {self.total(name, holds)}, not {total}")
            time.sleep(every)


@contextlib.contextmanager
def served(*flags: str) -> Iterator[Served]:
    """Start it on free ports, wait until it is ready, and stop it."""
    grpc_port, http_port, metrics_port = free_port(), free_port(), free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from tidegauge.cli.main import main; main()",
            "serve",
            f"--grpc-port={grpc_port}",
            f"--http-port={http_port}",
            f"--metrics-port={metrics_port}",
            *flags,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    found = Served(process, f"127.0.0.1:{grpc_port}", f"http://127.0.0.1:{metrics_port}/metrics")
    try:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                found.page()
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("tidegauge serve did not start")
            time.sleep(0.05)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
