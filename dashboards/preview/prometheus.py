"""A Prometheus of our own: over a folder, with or without something to scrape."""

# ruff: noqa: S310, S603, S607 -- starts and asks only what is its own
from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["Prometheus", "prometheus"]

_PATIENCE: Final = 30.0
"""Seconds until one that does not start is given up."""


class Prometheus:
    """One that runs.

    Args:
        url: its address.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What it says to a query now: for each series, its labels as ``metric``."""
        asked = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(asked, timeout=_PATIENCE) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found


@contextlib.contextmanager
def prometheus(folder: Path, target: str | None = None) -> Iterator[Prometheus]:
    """A Prometheus, as long as the block runs.

    Args:
        folder: where it keeps its data; what an earlier one left there is answered from.
        target: host and port of what it scrapes every second, if anything.

    Raises:
        RuntimeError: it does not start; the message is its log.
    """
    jobs = [{"job_name": "agents", "static_configs": [{"targets": [target]}]}] if target else []
    every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config = folder / "prometheus.json"  # YAML includes JSON
    config.write_text(json.dumps({"global": every, "scrape_configs": jobs}))
    address = f"127.0.0.1:{_free_port()}"
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + _PATIENCE
        while not _ready(f"http://{address}"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()


def _ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=5):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
