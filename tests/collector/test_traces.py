"""Recorded runs through a real Collector, as the examples configure it: none is lost or split."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.collector import (
    ACCEPTED,
    EXAMPLES,
    FAILED,
    NOT_QUEUED,
    REFUSED,
    SENT,
    Collector,
    collecting,
    program,
)
from support.fleet import LATENESS, create_topics, entries, packed, records, working
from support.kafka import Kafka, running_kafka
from support.otlp_receiver import grpc_receiver
from support.processes import PATIENCE
from support.recorded_otlp import COUNT, RecordedRun, requests
from support.serve import Ports, Server, serving
from tidegauge import catalog

BESIDE = EXAMPLES / "deployment" / "collector-beside.yaml"
GATEWAY = EXAMPLES / "deployment" / "collector-gateway.yaml"
KAFKA = EXAMPLES / "otel-collector" / "kafka.yaml"
CONFIGURATIONS = {
    "otel-collector/config": [EXAMPLES / "otel-collector" / "config.yaml"],
    "otel-collector/kafka": [KAFKA],
    "otel-collector/tail-sampling": [EXAMPLES / "otel-collector" / "tail-sampling.yaml"],
    "deployment/beside": [BESIDE],
    "deployment/gateway": [GATEWAY],
    "compose": [GATEWAY, EXAMPLES / "compose" / "collector-tempo.yaml"],
}
RECEIVERS = 3
SOME = 300
OUTAGE_SECONDS = 12.0
"""Longer than the first retries, shorter than any limit of the examples."""

COUNTERS = ("_total", "_count", "_bucket")
Counts = dict[Any, float]


class Wanted(NamedTuple):
    """What is sent, and what is to come out.

    Args:
        bodies: the requests, in their order.
        spans: how many they have.
        runs: what replay says of each run.
        counts: the counters of one receiver that takes all requests itself.
    """

    bodies: list[bytes]
    spans: int
    runs: dict[str, dict[str, Any]]
    counts: Counts


def counted(servers: Sequence[Server]) -> Counts:
    """The counters of all receivers together, of agents alone."""
    found: Counts = {}
    for server in servers:
        for (name, labels), value in server.samples().items():
            if name.endswith(COUNTERS) and "agent" in dict(labels):
                found[name, labels] = found.get((name, labels), 0) + value
    return found


def differences(servers: Sequence[Server], wanted: Counts) -> dict[Any, tuple[Any, Any]]:
    """Counters of all receivers together that are not as wanted, and both values of each."""
    found = counted(servers)
    return {
        (name, *sorted(labels)): (found.get((name, labels)), wanted.get((name, labels)))
        for name, labels in found.keys() | wanted.keys()
        if found.get((name, labels)) != wanted.get((name, labels))
    }


@pytest.fixture(scope="module")
def wanted(
    otlp_runs: list[RecordedRun],
    replayed_runs: dict[str, dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Wanted:
    some = otlp_runs[:: COUNT // SOME]
    sent = requests(some, size=256)
    [bodies] = packed(sent)
    runs = {run.id: replayed_runs[run.id] for run in some}
    with serving(tmp_path_factory.mktemp("alone"), LATENESS) as alone:
        for body in bodies:
            assert alone.post(body, Content_Encoding="gzip").status == 200
        settled([alone], runs)
        counts = counted([alone])
    return Wanted(bodies, sum(len(run.spans) for run in some), runs, counts)


def total(counts: Counts, name: str) -> float:
    """The sum of all series of a name."""
    return sum(value for (found, _), value in counts.items() if found == name)


def settled(servers: Sequence[Server], runs: dict[str, dict[str, Any]]) -> None:
    """Wait until all runs have ended, and check what all of them together are."""
    until = time.monotonic() + 4 * PATIENCE
    while (ended := sum(each.value("tidegauge_runs_finished_total") for each in servers)) < len(
        runs
    ):
        assert time.monotonic() < until, f"{ended} of {len(runs)} runs"
        time.sleep(0.2)
    counts = counted(servers)
    assert total(counts, "tidegauge_runs_started_total") == len(runs)
    assert total(counts, "tidegauge_steps_total") == sum(run["steps"] for run in runs.values())
    assert total(counts, "tidegauge_loop_steps_total") == sum(
        run["loop_steps"] for run in runs.values()
    )


def deliver(collector: Collector, bodies: Sequence[bytes], *, pause: float = 0.0) -> int:
    """Send all requests, each until it is taken; how often one was not."""
    refused = 0
    for body in bodies:
        until = time.monotonic() + 4 * PATIENCE
        while (status := collector.post(body)) in (429, 503):
            assert time.monotonic() < until
            refused += 1
            time.sleep(0.2)
        assert status == 200
        time.sleep(pause)
    return refused


def sums_up(collector: Collector, spans: float, exporters: int = 1) -> None:
    """Wait until the Collector has sent all that it took."""
    until = time.monotonic() + 4 * PATIENCE
    while collector.count(SENT) < spans * exporters:
        assert time.monotonic() < until, f"{collector.count(SENT)} of {spans} spans"
        time.sleep(0.2)
    assert collector.count(SENT) == spans * exporters


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_collector_takes_the_configuration(name: str) -> None:
    files = [f"--config={path}" for path in CONFIGURATIONS[name]]
    done = subprocess.run(
        [program(), "validate", *files],
        env={"BACKEND": "127.0.0.1:5317"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_beside_a_backend(wanted: Wanted, tmp_path: Path) -> None:
    """The backend has every span, and the receiver measures what it measures alone."""
    with serving(tmp_path, LATENESS) as server, grpc_receiver() as backend:
        changes = {
            "exporters": {
                "otlp/tidegauge": {"endpoint": server.grpc_target},
                "otlp/backend": {"tls": {"insecure": True}},
            }
        }
        target = backend.endpoint.removeprefix("http://")
        with collecting(
            tmp_path, BESIDE, changes=changes, environment={"BACKEND": target}
        ) as collector:
            assert deliver(collector, wanted.bodies) == 0
            sums_up(collector, wanted.spans, exporters=2)
            assert collector.count(ACCEPTED) == wanted.spans
            assert collector.count(FAILED) == collector.count(NOT_QUEUED) == 0
        settled([server], wanted.runs)
        assert differences([server], wanted.counts) == {}
        assert server.value(catalog.SPANS_RECEIVED.name) == wanted.spans
        assert len({(span.trace_id, span.span_id) for span in backend.spans}) == wanted.spans
        assert len(backend.spans) == wanted.spans


def balancing(servers: Sequence[Ports], **exporter: Any) -> dict[str, Any]:
    """What a test changes in the gateway's configuration: where the receivers are."""
    hosts = [f"127.0.0.1:{ports.grpc}" for ports in servers]
    resolver = {"static": {"hostnames": hosts}}
    return {"exporters": {"loadbalancing": {"resolver": resolver, **exporter}}}


balanced = partial(collecting, without=[("exporters", "loadbalancing", "resolver", "dns")])


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving(tmp_path, LATENESS)) for _ in range(RECEIVERS)]


def test_three_receivers_balanced_by_trace(
    receivers: list[Server], wanted: Wanted, tmp_path: Path
) -> None:
    """Through two Collectors in turn, which agree on where a trace goes."""
    changes = balancing([server.ports for server in receivers])
    with (
        balanced(tmp_path, GATEWAY, changes=changes, name="one") as one,
        balanced(tmp_path, GATEWAY, changes=changes, name="two") as two,
    ):
        for number, body in enumerate(wanted.bodies):
            assert deliver((one, two)[number % 2], [body]) == 0
        settled(receivers, wanted.runs)
        assert one.count(ACCEPTED) + two.count(ACCEPTED) == wanted.spans
    shares = [server.value("tidegauge_runs_finished_total") for server in receivers]
    print(f"\nruns of each receiver: {shares}")
    assert min(shares) > 0.2 * len(wanted.runs)
    assert sum(server.value(catalog.SPANS_RECEIVED.name) for server in receivers) == wanted.spans
    assert differences(receivers, wanted.counts) == {}


def test_a_receiver_that_stands_still(
    receivers: list[Server], wanted: Wanted, tmp_path: Path
) -> None:
    """It answers nothing for a while, and all that waited is measured as if it had not waited."""
    changes = balancing([server.ports for server in receivers])
    still = receivers[0]
    half = len(wanted.bodies) // 2
    with balanced(tmp_path, GATEWAY, changes=changes) as collector:
        deliver(collector, wanted.bodies[:half])
        still.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            deliver(collector, wanted.bodies[half:])
            time.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - stopped)))
        finally:
            still.process.send_signal(signal.SIGCONT)
        settled(receivers, wanted.runs)
        assert collector.count(FAILED) == collector.count(NOT_QUEUED) == 0
    came, twice, late = (
        sum(server.value(metric.name) for server in receivers)
        for metric in (catalog.SPANS_RECEIVED, catalog.SPANS_DUPLICATE, catalog.SPANS_LATE)
    )
    # What was sent again, because the answer was missing, is late where its run has ended.
    assert came - twice - late == wanted.spans
    print(f"\nspans that came twice, and counted once: {twice + late:g}")
    assert differences(receivers, wanted.counts) == {}


def test_a_receiver_that_is_not_there_yet(wanted: Wanted, tmp_path: Path) -> None:
    """The Collector's queue is short: it refuses, and the sender tries again."""
    ports = Ports.free()
    short = {"protocol": {"otlp": {"sending_queue": {"queue_size": 4}}}}
    with (
        ExitStack() as stack,
        ThreadPoolExecutor(1) as later,
        balanced(tmp_path, GATEWAY, changes=balancing([ports], **short)) as collector,
    ):

        def start() -> Server:
            time.sleep(OUTAGE_SECONDS)
            return stack.enter_context(serving(tmp_path, LATENESS, ports=ports))

        started = later.submit(start)
        refused = deliver(collector, wanted.bodies)
        server = started.result()
        assert refused > 0
        sums_up(collector, wanted.spans)
        print(f"\nrefused {refused} times, {collector.count(REFUSED):g} spans")
        settled([server], wanted.runs)
        assert differences([server], wanted.counts) == {}
        assert server.value(catalog.SPANS_RECEIVED.name) == wanted.spans


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka"), 1) as running:
        yield running


def test_workers_read_what_two_collectors_write_to_kafka(
    kafka: Kafka, wanted: Wanted, tmp_path: Path
) -> None:
    """The broker stands still for a while."""
    topic = create_topics(kafka, "collectors")
    changes = {"exporters": {"kafka": {"brokers": [kafka.address], "traces": {"topic": topic}}}}
    half = len(wanted.bodies) // 2
    with (
        collecting(tmp_path, KAFKA, changes=changes, name="one") as one,
        collecting(tmp_path, KAFKA, changes=changes, name="two") as two,
        working(tmp_path, kafka, topic, LATENESS, "--format=otlp") as worker,
    ):
        deliver(one, wanted.bodies[:half])
        kafka.brokers[0].pause()
        time.sleep(OUTAGE_SECONDS)
        kafka.brokers[0].resume()
        sums_up(one, one.count(ACCEPTED))
        deliver(two, wanted.bodies[half:])
        sums_up(two, two.count(ACCEPTED))
        assert one.count(ACCEPTED) + two.count(ACCEPTED) == wanted.spans
        summaries = records(kafka, f"{topic}.summaries", len(wanted.runs))
        assert entries(summaries) == wanted.runs
        assert worker.value(catalog.WORKER_DEAD_LETTERS.name) == 0
        twice = worker.value(catalog.WORKER_DUPLICATES.name)
        print(f"\nspans that came twice, and counted once: {twice:g}")
