"""What ``docs/deployment.md`` says: its files are whole, and its shapes give the same numbers."""

from __future__ import annotations

import subprocess
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from support.otlp_receiver import grpc_receiver, http_receiver
from support.prometheus import find_binary
from support.serve import Server, serving
from support.wire_runs import WireRun, batches, interleaved
from tidegauge import catalog

pytestmark = pytest.mark.system

FILES = Path(__file__).parents[2] / "examples" / "deployment"
COLLECTORS = ("collector-beside.yaml", "collector-gateway.yaml")
RUNS = [WireRun(number) for number in range(60)]
SPANS = interleaved([run.spans for run in RUNS])


def test_prometheus_takes_its_configuration() -> None:
    command = [find_binary("promtool"), "check", "config", str(FILES / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_part_of_a_collectors_pipeline_is_defined(name: str) -> None:
    document = yaml.safe_load((FILES / name).read_text())
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    for pipeline in document["service"]["pipelines"].values():
        for kind, parts in pipeline.items():
            used[kind] |= set(parts)
    assert {kind: set(document[kind]) for kind in used} == used


def test_the_gateway_balances_by_trace_to_where_the_receivers_are() -> None:
    balancing = yaml.safe_load((FILES / COLLECTORS[1]).read_text())["exporters"]["loadbalancing"]
    assert balancing["routing_key"] == "traceID"
    name = balancing["resolver"]["dns"]["hostname"]
    compose = FILES.parent / "compose"
    services = yaml.safe_load((compose / "compose.yaml").read_text())["services"]
    assert services[name]["scale"] == 2
    jobs = yaml.safe_load((compose / "prometheus.yml").read_text())["scrape_configs"]
    assert [name] in [found["names"] for job in jobs for found in job.get("dns_sd_configs", ())]


def summed(servers: list[Server]) -> dict[Any, float]:
    """The counters of all receivers together, of agents alone."""
    found: dict[Any, float] = {}
    for server in servers:
        for (name, labels), value in server.samples().items():
            if name.endswith(("_total", "_count", "_bucket")) and "agent" in dict(labels):
                found[name, labels] = found.get((name, labels), 0) + value
    return found


def settled(servers: list[Server]) -> None:
    """Wait until everything was measured."""
    for server in servers:
        server.wait_for(catalog.TRACES_OPEN.name, lambda traces: traces == 0)


def test_receivers_behind_a_balancer_by_trace_are_as_one(tmp_path: Path) -> None:
    with serving(tmp_path) as one, serving(tmp_path) as two, serving(tmp_path) as alone:
        shares: dict[int, list[Span]] = {0: [], 1: []}
        for span in SPANS:
            shares[hash(span.trace_id) % 2].append(span)
        for server, spans in ((one, shares[0]), (two, shares[1]), (alone, SPANS)):
            assert spans
            server.send_grpc(batches(spans))
        settled([one, two, alone])
        assert summed([one, two]) == summed([alone])


def test_dealt_out_in_turn_they_are_not(tmp_path: Path) -> None:
    """The reason that the docs give is one: every run is several."""
    with serving(tmp_path) as one, serving(tmp_path) as two:
        for server, request in zip(cycle([one, two]), batches(SPANS, size=100), strict=False):
            server.send_grpc([request])
        for server in (one, two):
            server.wait_for("tidegauge_runs_started_total", lambda runs: runs > len(RUNS) * 0.8)


@pytest.mark.parametrize("behind", [grpc_receiver, http_receiver])
def test_a_sidecar_measures_and_passes_on(behind: Any, tmp_path: Path) -> None:
    with behind() as backend:
        url = backend.endpoint
        if behind is grpc_receiver:
            url = url.replace("http:", "grpc:")
        with serving(tmp_path, f"--forward-to={url}") as server:
            server.send(batches(SPANS[: len(SPANS) // 2]))
            server.send_grpc(batches(SPANS[len(SPANS) // 2 :]))
            backend.wait_for(len(SPANS))
            settled([server])
            steps = sum(len(run.turns) for run in RUNS)
            assert server.value("tidegauge_steps_total") == steps
            server.wait_for(catalog.SPANS_FORWARDED.name, lambda spans: spans == len(SPANS))
            assert server.value(catalog.SPANS_NOT_FORWARDED.name) == 0
    assert sorted(each.span_id for each in backend.spans) == sorted(s.span_id for s in SPANS)
