"""``tidegauge decisions`` as a process of its own, a real broker, and agents that ask."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.deciding import until_true
from support.kafka import Kafka
from support.processes import PATIENCE
from support.prometheus import free_port
from support.serve import http, samples_at
from tidegauge.errors import RunStopped
from tidegauge.fleet import DecisionClient, WorkerRun
from tidegauge.fleet.kafka_records import DecisionAction, DecisionRecord

pytestmark = pytest.mark.system

COMMAND = (sys.executable, "-c", "from tidegauge.cli.main import main; main()", "decisions")


@pytest.fixture
def topic(kafka, topic) -> str:
    """There is one of its decisions."""
    kafka.create(f"{topic}.decisions", 3)
    return topic


class Producing:
    """Writes decisions to the topic."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": kafka.address, "linger.ms": 0, "log_level": 0}
        )
        self._topic = f"{topic}.decisions"

    def decide(self, run: str, action: DecisionAction, step: int = 0, **more: Any) -> None:
        record = DecisionRecord(run, action, step, time=time.time(), **more)
        self.write(run.encode(), record.encoded())

    def write(self, key: bytes | None, value: bytes | None, partition: int | None = None) -> None:
        place = {} if partition is None else {"partition": partition}
        self._producer.produce(self._topic, value, key, **place)
        assert self._producer.flush(PATIENCE) == 0


@pytest.fixture
def producing(kafka, topic) -> Producing:
    return Producing(kafka, topic)


class Decisions:
    """A ``tidegauge decisions`` that serves."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        import urllib.request

        return http(urllib.request.Request(self.url + path))

    def action(self, run: str) -> str:
        return json.loads(self.get(f"/v1/decisions/{run}").body)["action"]

    def value(self, name: str, **labels: str) -> float:
        return samples_at(f"{self.url}/metrics", name)[name, frozenset(labels.items())]

    def until(self, holds: Callable[[], object]) -> None:
        def held() -> object:
            assert self.process.poll() is None, self.log.read_text()
            return holds()

        until_true(held)


@contextlib.contextmanager
def decisions(
    directory: Path, kafka: Kafka, topic: str, *flags: str, port: int | None = None
) -> Iterator[Decisions]:
    """Start it, and stop it; it may not be ready yet."""
    port = port or free_port()
    log = directory / f"decisions-{port}.log"
    places = (f"--kafka={kafka.address}", f"--topic={topic}", f"--port={port}")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*COMMAND, *places, *flags], stdout=output, stderr=subprocess.STDOUT
        )
    running = Decisions(process, port, log)
    try:
        running.until(lambda: _answers(running))
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(running: Decisions) -> bool:
    try:
        return running.get("/healthz").status == 200
    except OSError:
        return False


@pytest.fixture
def served(tmp_path, kafka, topic) -> Iterator[Decisions]:
    with decisions(tmp_path, kafka, topic) as running:
        running.until(lambda: running.get("/readyz").status == 200)
        yield running


def test_what_is_decided_is_served(served, producing) -> None:
    producing.decide("r1", "nudge", 3)
    served.until(lambda: served.action("r1") == "nudge")
    producing.decide("r1", "stop", 4, reason="loop_repeats", message="3 steps, repeated twice")
    served.until(lambda: served.action("r1") == "stop")
    producing.decide("r1", "go_on", 5)
    producing.decide("t-1", "block", 1, trace_id="t")
    served.until(lambda: served.action("t") == "block")
    assert json.loads(served.get("/v1/decisions/r1").body) == {
        "run": "r1",
        "known": True,
        "action": "stop",
        "reason": "loop_repeats",
        "message": "3 steps, repeated twice",
        "step": 4,
    }
    producing.decide("r1", "ended", 6)
    served.until(lambda: served.action("r1") == "ended")
    served.process.terminate()
    assert served.process.wait(PATIENCE) == 0
    assert "ready: 0 records read, 0 runs known" in served.log.read_text()


def test_another_process_knows_the_same(tmp_path, kafka, topic, producing) -> None:
    runs = [f"r{number}" for number in range(60)]
    actions: tuple[DecisionAction, ...] = ("nudge", "block", "stop", "ended")
    for number, run in enumerate(runs):
        for step, action in enumerate(actions[: number % 5]):
            producing.decide(run, action, step)
    producing.decide(runs[1], "nudge", 0)  # a worker that died produces it again
    query = "/v1/decisions?" + "&".join(f"id={run}" for run in runs)
    found = []
    for _ in range(2):
        with decisions(tmp_path, kafka, topic) as running:
            running.until(lambda running=running: running.get("/readyz").status == 200)  # type: ignore[misc]
            found.append(json.loads(running.get(query).body)["decisions"])
            running.process.kill()
    assert found[0] == found[1]
    assert [found[0][run]["action"] for run in runs[:5]] == ["go_on", *actions]


def test_an_outage_of_the_broker_is_survived(served, kafka, producing) -> None:
    producing.decide("r1", "nudge")
    served.until(lambda: served.action("r1") == "nudge")
    kafka.pause()
    try:
        time.sleep(2.0)
        assert served.action("r1") == "nudge"
        assert served.get("/readyz").status == 200
    finally:
        kafka.resume()
    producing.decide("r1", "stop", 1)
    served.until(lambda: served.action("r1") == "stop")


def test_it_waits_for_a_broker_that_is_away(tmp_path, kafka, topic, producing) -> None:
    producing.decide("r1", "stop")
    kafka.pause()
    try:
        with decisions(tmp_path, kafka, topic) as running:
            running.until(lambda: "cannot read topic" in running.log.read_text())
            assert running.get("/readyz").status == 503
            assert running.get("/v1/decisions/r1").status == 503
            kafka.resume()
            running.until(lambda: running.get("/readyz").status == 200)
            assert running.action("r1") == "stop"
    finally:
        kafka.resume()


def test_it_waits_for_a_topic_that_is_not_there_yet(tmp_path, kafka, topic) -> None:
    topic = f"{topic}.later"
    with decisions(tmp_path, kafka, topic) as running:
        running.until(lambda: "cannot read topic" in running.log.read_text())
        assert running.get("/readyz").status == 503
        kafka.create(f"{topic}.decisions", 1)
        running.until(lambda: running.get("/readyz").status == 200)
        Producing(kafka, topic).decide("r1", "stop")
        running.until(lambda: running.action("r1") == "stop")


def test_partitions_that_are_new_are_followed(kafka, topic, producing) -> None:
    from tidegauge.fleet.decision_cache import DecisionCache
    from tidegauge.fleet.decisions_reader import DecisionsReader

    producing.decide("before", "stop")
    cache = DecisionCache()
    decisions_topic = f"{topic}.decisions"
    reader = DecisionsReader(cache, kafka.address, decisions_topic, follow_seconds=0.05)
    try:
        until_true(lambda: cache.answer(["before"])["before"]["action"] == "stop")
        kafka.add_partitions(decisions_topic, 5)
        record = DecisionRecord("after", "stop").encoded()
        Producing(kafka, topic).write(b"after", record, 4)
        until_true(lambda: cache.answer(["after"])["after"]["action"] == "stop")
        assert cache.counts.read == 2
    finally:
        reader.stop()


def test_poisoned_records_are_skipped_and_counted(served, producing) -> None:
    good = DecisionRecord("r1", "stop").encoded()
    poisoned = {
        "malformed": [(b"r1", None), (b"r1", b"{"), (b"r1", b"\xff\x00"), (None, b"[]")],
        "version": [(b"r1", good.replace(b'"version":1', b'"version":2'))],
        "key": [(b"r2", good), (None, good)],
        "invalid": [(b"r1", good.replace(b"stop", b"explode"))],
    }
    for records in poisoned.values():
        for key, value in records:
            producing.write(key, value, 0)
    producing.write(b"r9", DecisionRecord("r9", "stop").encoded(), 0)
    served.until(lambda: served.action("r9") == "stop")
    name = "tidegauge_decisions_skipped_total"
    assert {reason: served.value(name, reason=reason) for reason in poisoned} == {
        reason: len(records) for reason, records in poisoned.items()
    }
    assert served.value("tidegauge_decisions_read_total") == 1
    assert served.value("tidegauge_internal_errors_total", where="fleet.decisions") == 0
    assert served.log.read_text().count("skipped the record") == 1
    assert served.action("r1") == "go_on"


def test_an_agent_stops_when_it_is_asked_to(served, producing) -> None:
    turns = 0

    def agent(watched: WorkerRun) -> None:
        nonlocal turns
        while True:  # it goes on until it is asked to stop
            watched.enforce()
            turns += 1
            if turns == 3:
                producing.decide("r1", "stop", 2, reason="steps", message="too many")
            time.sleep(0.01)

    with DecisionClient(served.url) as client, client.watch("r1") as watched:
        with pytest.raises(RunStopped) as stopped:
            agent(watched)
        assert client.failures == 0
    assert turns >= 3
    stop = stopped.value
    assert (stop.run, stop.step, stop.reason, stop.message) == ("r1", 2, "steps", "too many")


def test_an_agent_is_not_hurt_when_the_server_dies(tmp_path, kafka, topic, producing) -> None:
    port = free_port()
    client = DecisionClient(f"http://127.0.0.1:{port}", every=0.1)
    with client, client.watch("r1") as watched:
        with decisions(tmp_path, kafka, topic, port=port) as running:
            producing.decide("r1", "nudge", 1)
            running.until(lambda: watched.decision.nudge)
            running.process.kill()
            running.process.wait(PATIENCE)
            failures = client.failures
            until_true(lambda: client.failures >= failures + 2)
            watched.enforce()
            assert watched.decision.nudge
        producing.decide("r1", "stop", 2)
        with decisions(tmp_path, kafka, topic, port=port) as running:
            running.until(lambda: watched.decision.stop)
            with pytest.raises(RunStopped):
                watched.enforce()


def test_following_prints_what_holds_and_what_comes(kafka, topic, producing) -> None:
    producing.decide("r1", "nudge", 1)
    producing.decide("r1", "stop", 2)
    producing.decide("r2", "nudge", 1)
    producing.decide("r2", "ended", 2)
    command = [*COMMAND, "--kafka", kafka.address, "--topic", topic, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        producing.decide("r1", "stop", 2)  # nothing new
        producing.decide("r3", "block", 7, reason="loop_repeats")
        second = json.loads(process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == b""
        assert process.wait(PATIENCE) == 0
    assert (first["run"], first["action"], first["step"]) == ("r1", "stop", 2)
    assert (second["type"], second["run"], second["reason"]) == ("decision", "r3", "loop_repeats")


def test_one_run_can_be_asked_for(kafka, topic, producing) -> None:
    producing.decide("r1", "stop", 2)
    for run, action in (("r1", "stop"), ("r2", "go_on")):
        command = [*COMMAND, "--kafka", kafka.address, "--topic", topic, "--run", run]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
        assert json.loads(done.stdout)["action"] == action
        assert done.stderr == b""


def test_where_there_is_no_broker_one_line_says_so() -> None:
    command = [*COMMAND, "--kafka", f"127.0.0.1:{free_port()}", "--topic", "t", "--run", "r1"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert (
        b"tidegauge: cannot read the topic t.decisions from 127.0.0.1:"
        in done.stderr.split(b"\n")[-2]
    )
