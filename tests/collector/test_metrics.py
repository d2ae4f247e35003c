"""Metrics that agents push: what Prometheus reads at a Collector is what it reads at the agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import tidegauge
from support.collector import ACCEPTED, EXAMPLES, SENT, collecting
from support.otlp_metrics import meet_everything, scraped
from support.processes import PATIENCE
from support.prometheus import free_port
from support.serve import Samples, samples_at

OF_THE_COLLECTOR = (
    "job",
    "instance",
    "otel_scope_name",
    "otel_scope_version",
    "otel_scope_schema_url",
)


def ours(samples: Samples) -> Samples:
    """Samples of ours, without labels of the Collector; bounds as Prometheus keeps them."""
    return {
        (
            name,
            frozenset(_label(*pair) for pair in labels if pair[0] not in OF_THE_COLLECTOR),
        ): value
        for (name, labels), value in samples.items()
        if name.startswith("tidegauge_") and not name.endswith("_created")
    }


def _label(name: str, value: str) -> tuple[str, str]:
    return name, str(float(value)) if name == "le" else value


def test_what_an_agent_pushes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    port = free_port()
    changes = {"exporters": {"prometheus": {"endpoint": f"127.0.0.1:{port}"}}}
    file = EXAMPLES / "otel-collector" / "config.yaml"
    with collecting(tmp_path, file, changes=changes) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        pipeline = tidegauge.configure(serve_metrics=False, stop_on_loop=3, otlp_metrics=True)
        meet_everything()
        expected = ours(scraped(pipeline))
        pipeline.shutdown()
        until = time.monotonic() + PATIENCE
        while not (found := ours(samples_at(f"http://127.0.0.1:{port}/metrics"))):
            assert time.monotonic() < until
            time.sleep(0.2)
        assert collector.count(ACCEPTED) == collector.count(SENT) > 0
        assert collector.count("otelcol_receiver_accepted_log_records") > 0
        assert collector.count("otelcol_exporter_sent_log_records") > 0
    assert found.keys() ^ expected.keys() == set()
    assert found == pytest.approx(expected)
    assert len(found) > 100
