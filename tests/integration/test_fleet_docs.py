"""What ``docs/fleets.md`` says of topics, messages and dead letters, with a broker and a worker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.fleet import Worker, working
from support.kafka import Kafka
from support.processes import PATIENCE
from tidegauge import catalog
from tidegauge.fleet.fleet_messages import VERSION
from tidegauge.fleet.kafka_records import DecisionAction
from tidegauge.streaming_metrics.registry import METRICS

pytestmark = pytest.mark.system

PAGE = (Path(__file__).parents[2] / "docs" / "fleets.md").read_text()
TOPIC = "agents"
AGAIN = "again"
"""Where one test writes letters back to: no topic of the page's."""

LETTERS = {
    "malformed": (b"r1", b"no JSON"),
    "version": (b"r2", json.dumps({"type": "end", "run": "r2", "version": 7}).encode()),
    "key": (b"r3", json.dumps({"type": "start", "run": "another"}).encode()),
    "invalid": (b"r4", json.dumps({"type": "a new one", "run": "r4"}).encode()),
}


@pytest.fixture(scope="module")
def topics_before(kafka: Kafka) -> set[str]:
    """Those of other tests."""
    return kafka.topics()


@pytest.fixture(scope="module")
def worker(
    kafka: Kafka, topics_before: set[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """One that has read a letter of each kind, and a run that loops and ends."""
    assert TOPIC not in topics_before
    kafka.create(TOPIC, 2)
    directory = tmp_path_factory.mktemp("worker")
    flags = ("--group=tidegauge", "--policy=loop_repeats=1", "--commit-seconds=0.2")
    with working(directory, kafka, TOPIC, *flags) as running:
        producer = Producer({"bootstrap.servers": kafka.address})
        for key, value in (*LETTERS.values(), *run_that_loops()):
            producer.produce(TOPIC, key=key, value=value)
        producer.flush(PATIENCE)
        running.wait_for("tidegauge_runs_finished_total", lambda runs: runs == 1)
        yield running


def run_that_loops() -> Iterator[tuple[bytes, bytes]]:
    step = {"type": "step", "run": "r", "action": "look", "state": "a", "outcome": "b"}
    reported = [{"type": "start", "run": "r"}, *({**step, "t": t} for t in (0, 2, 1, 1, 3))]
    for event in (*reported, {"type": "end", "run": "r", "success": False}):
        yield b"r", json.dumps(event).encode()


def table(after: str) -> list[list[str]]:
    """The rows of the page's first table after these words."""
    _, found, rest = PAGE.partition(after)
    assert found, after
    _, _, body = rest.partition("| ---")
    rows = body.split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows]


def test_topics_are_called_as_the_page_says(
    kafka: Kafka, worker: Worker, topics_before: set[str]
) -> None:
    named = {re.sub("`", "", row[0]) for row in table("### Topics")}
    assert named == kafka.topics() - topics_before - {AGAIN}


def test_dead_letters_are_there_unchanged_with_the_headers_of_the_page(
    kafka: Kafka, worker: Worker
) -> None:
    letters = kafka.read(f"{TOPIC}.dead-letters", until=len(LETTERS))
    found = {dict(each.headers())["reason"].decode(): each for each in letters}
    assert {reason: (each.key(), each.value()) for reason, each in found.items()} == LETTERS
    named = re.findall("`([a-z]+)`", PAGE.partition("Its headers say")[2].partition(".")[0])
    for each in letters:
        assert [name for name, _ in each.headers()] == named
    assert {re.sub("`", "", row[0]) for row in table("### Dead letters")} == found.keys()
    assert set(catalog.WORKER_DEAD_LETTERS.values) == found.keys()


def test_letters_are_written_back_as_the_page_does_it(kafka: Kafka, worker: Worker) -> None:
    [block] = [b for b in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "again(" in b]
    given: dict[str, Any] = {}
    exec(compile(block, "docs/fleets.md", "exec"), given)
    kafka.create(AGAIN, 1)
    config = {"bootstrap.servers": kafka.address}
    consumer, producer = Consumer({**config, "group.id": "again"}), Producer(config)
    letters = f"{TOPIC}.dead-letters"
    partitions = consumer.list_topics(letters, PATIENCE).topics[letters].partitions
    consumer.assign([TopicPartition(letters, number, 0) for number in partitions])
    assert given["again"](consumer, producer.produce, AGAIN, seconds=2.0) == 1
    consumer.close()
    producer.flush(PATIENCE)
    [found] = kafka.read(AGAIN, until=1)
    assert (found.key(), found.value()) == LETTERS["version"]


def test_summaries_and_decisions_hold_what_the_page_says(kafka: Kafka, worker: Worker) -> None:
    rows = {row[1].strip("`"): row for row in table("### Messages")}
    [summary] = kafka.read(f"{TOPIC}.summaries", until=1)
    decisions = kafka.read(f"{TOPIC}.decisions", until=2)
    document = json.loads(summary.value())
    assert (summary.key(), document["type"], document["run"]) == (b"r", "summary", "r")
    assert document["steps"] == 4, "each once"
    assert [loop["repeats"] for loop in document["loops"]] == [3], "and in their order"
    assert {"version", "outcome", "trace_id", "parent"} <= document.keys()
    named = set(re.findall("`([a-z_]+)`", rows["decision"][2]))
    actions = set(DecisionAction.__args__)  # type: ignore[attr-defined]
    assert actions <= named
    for each in decisions:
        record = json.loads(each.value())
        assert record.keys() - {"type"} == named - actions
        assert (each.key(), record["version"]) == (b"r", VERSION)
    assert [json.loads(each.value())["action"] for each in decisions] == ["stop", "ended"]


def test_metrics_that_are_to_be_watched_are_in_the_catalogue() -> None:
    known = {metric.name for metric in METRICS}
    named = re.findall(r"`[^`]*?(tidegauge_\w+)", "\n".join(row[0] for row in table("### What to")))
    assert named
    assert set(named) <= known
