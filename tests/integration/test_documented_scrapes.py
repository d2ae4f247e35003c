"""The scrape configurations in the documentation: Prometheus takes them, and they work."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.certificates import Authority
from support.prometheus import find_binary, scraping
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.streaming_metrics import Engine

pytestmark = pytest.mark.system

DOCS = Path(__file__).resolve().parents[2] / "docs"


def scrape_configs(page: Path) -> list[dict[str, Any]]:
    """The configurations of scrapes on a page."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    return [found for block in blocks if "scrape_configs" in (found := yaml.safe_load(block))]


CONFIGS = [
    pytest.param(config, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, config in enumerate(scrape_configs(page))
]


def with_files(folder: Path) -> None:
    """The certificates that the pages name."""
    authority = Authority(folder)
    authority.sign("prometheus")


def test_there_are_such_pages() -> None:
    assert len(CONFIGS) >= 4


@pytest.mark.parametrize("config", CONFIGS)
def test_prometheus_takes_it(config: dict[str, Any], tmp_path: Path) -> None:
    with_files(tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    checked = subprocess.run(
        [find_binary("promtool"), "check", "config", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_scrapes_over_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    [secured] = [
        job
        for config in scrape_configs(DOCS / "prometheus.md")
        for job in config["scrape_configs"]
        if job.get("scheme") == "https"
    ]
    authority = Authority(tmp_path)
    authority.sign("prometheus")
    certificate, key = authority.sign("agents")
    server = MetricsServer(
        port=0,
        certificate=str(certificate),
        key=str(key),
        client_ca=str(authority.certificate),
    )
    server.start(Reader(Engine()))
    job = {name: secured[name] for name in ("scheme", "tls_config")}
    try:
        with scraping(server.url, tmp_path, job=job) as prometheus:
            prometheus.wait_for("up", lambda found: found and found[0].value == 1)
            assert prometheus.scrape_error() == ""
            assert prometheus.value("tidegauge_evicted_runs_total") == 0
    finally:
        server.close()
