"""Rotel, an OTLP collector of somebody else, between those who send spans and who takes them."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc  # type: ignore[import-untyped]

from support.processes import stopped_in_the_end, wait_until_ready
from support.prometheus import free_port
from support.requirements import missing


class Rotel(NamedTuple):
    """Where it listens."""

    grpc_endpoint: str
    http_endpoint: str


@contextlib.contextmanager
def rotel(forward_to: str, directory: Path, *, protocol: str = "grpc") -> Iterator[Rotel]:
    """A collector that sends on what it takes, 50 ms later at most.

    Args:
        forward_to: an OTLP endpoint.
        directory: where its log is kept.
        protocol: ``grpc`` or ``http``.
    """
    grpc_address, http_address = (f"127.0.0.1:{free_port()}" for _ in range(2))
    log = directory / "rotel.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                _binary(),
                "start",
                f"--otlp-grpc-endpoint={grpc_address}",
                f"--otlp-http-endpoint={http_address}",
                "--exporter=otlp",
                f"--otlp-exporter-endpoint={forward_to}",
                f"--otlp-exporter-protocol={protocol}",
                "--batch-timeout=50ms",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    with stopped_in_the_end(process):
        with grpc.insecure_channel(grpc_address) as channel:
            connected = grpc.channel_ready_future(channel)
            wait_until_ready(process, log, connected.done)
        yield Rotel(f"http://{grpc_address}", f"http://{http_address}")


def _binary() -> Path:
    """The program: required in CI, elsewhere skipped when missing."""
    found = importlib.util.find_spec("rotel")
    if found is None or found.origin is None:
        missing("rotel is missing: pip install rotel")
    return Path(found.origin).with_name("rotel-agent")
