"""A real Prometheus that scrapes what a test serves, and answers queries over it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.requirements import missing


class Sample(NamedTuple):
    """One series of a query's answer."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """A server that runs: ask it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        """The answer's ``data``."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}{path}?{query}", timeout=PATIENCE) as response:
            return json.load(response)["data"]

    def query(self, expression: str, *, at: float | None = None) -> list[Sample]:
        """What an instant query finds now, or what it found at another time."""
        when = {} if at is None else {"time": f"{at:.3f}"}
        found = self.get("/api/v1/query", query=expression, **when)["result"]
        return [Sample(entry["metric"], float(entry["value"][1])) for entry in found]

    def value(self, expression: str, *, at: float | None = None) -> float | None:
        """The value of a query with one series; ``None`` when it finds none."""
        found = self.query(expression, at=at)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def wait_for(self, expression: str, holds: Callable[[list[Sample]], object]) -> list[Sample]:
        """What the query finds as soon as it is as it should be."""
        until = time.monotonic() + PATIENCE
        while not holds(found := self.query(expression)):
            assert time.monotonic() < until, f"{expression} is {found}"
            time.sleep(0.05)
        return found

    def scrape_error(self) -> str:
        """Why the target cannot be scraped; empty when it can."""
        [target] = self.get("/api/v1/targets", state="active")["activeTargets"]
        return str(target["lastError"])


def find_binary(name: str, *, package: str = "prometheus") -> str:
    """Path of a program of Debian's: required in CI, elsewhere skipped when missing."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is missing: apt-get install {package}")
    return found


_PORTS: Final = range(10_000, 32_000)
"""Below those that systems give to connections, which could take a port before its server does."""


def free_port() -> int:
    """A port that nothing listens on now, and that no connection gets."""
    draw = random.SystemRandom()  # other processes draw, too, with the same seed of the tests
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = draw.choice(_PORTS)
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def scraping(
    metrics_url: str | None,
    directory: Path,
    *,
    rule_files: Sequence[Path] = (),
    flags: Sequence[str] = (),
    every: str = "250ms",
    alertmanager: str | None = None,
    job: Mapping[str, Any] | None = None,
) -> Iterator[Prometheus]:
    """Start a Prometheus that scrapes ``metrics_url`` again and again, and stop it.

    It begins to scrape five seconds after its start, which no option changes: tests share one, see
    ``support.servers``, and start another only for what that one cannot have.

    Args:
        metrics_url: an address that ends in ``/metrics``; ``None``, targets are what the files
            ``targets/*.json`` in ``directory`` say.
        directory: where it keeps its data and its log.
        rule_files: rules that it evaluates as often.
        every: how often it scrapes and evaluates.
        alertmanager: the address, host and port, that it sends alerts to.
        flags: of its command line, beside those that it always has.
        job: settings of the scrape, beside its targets.
    """
    binary = find_binary("prometheus")
    often = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), every)
    managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    scrape: dict[str, Any] = {"job_name": "agents", **(job or {})}
    if metrics_url is None:
        scrape["file_sd_configs"] = [{"files": [str(directory / "targets" / "*.json")]}]
    else:
        target = urllib.parse.urlsplit(metrics_url).netloc
        scrape["static_configs"] = [{"targets": [target]}]
    config = directory / "prometheus.json"  # YAML includes JSON
    config.write_text(
        json.dumps(
            {
                "global": often,
                "alerting": {"alertmanagers": managers},
                "rule_files": [str(path) for path in rule_files],
                "scrape_configs": [scrape],
            }
        )
    )
    address = f"127.0.0.1:{free_port()}"
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
                *flags,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: answers(f"http://{address}/-/ready"))
        yield Prometheus(f"http://{address}")


def answers(url: str) -> bool:
    """Whether a server answers at ``url``."""
    with urllib.request.urlopen(url, timeout=5):
        return True
