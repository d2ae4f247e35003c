"""What can go wrong around a worker: it goes on, or says why not, and nothing is lost uncounted."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from confluent_kafka import Producer

from support.fleet import CONFIG, entries, records, worker_command, working
from support.kafka import Kafka
from support.processes import PATIENCE
from support.prometheus import free_port
from support.small_disk import small_disk
from support.wire_runs import WireRun
from tidegauge import catalog

pytestmark = pytest.mark.system

MEGABYTE = 2**20
SPAN = {"id": "1" * 16, "name": "chat", "scope": "s", "start": 1, "end": 2}
TRACE = "a" * 32


class Poison(NamedTuple):
    """A message that nobody can take.

    Args:
        why: the reason that it is buried with.
        value: of the message.
        key: of the message.
    """

    why: str
    value: bytes | None
    key: bytes | None = b"r"

    @property
    def too_large(self) -> bool:
        """Whether only a producer that is asked to write it does so: it stays where it is."""
        return len(self.value or b"") > 1_000_000


def message(key: str = "r", **fields: Any) -> bytes:
    """A message's value."""
    return orjson.dumps({"run": key, **fields})


def spans(*encoded: object, **fields: Any) -> bytes:
    """The value of a message of spans."""
    return message(TRACE, type="spans", **{"version": 1, "spans": encoded, **fields})


POISONS = {
    "no JSON": Poison("malformed", b"no JSON"),
    "no UTF-8": Poison("malformed", b'{"run": "\xff"}'),
    "half of it": Poison("malformed", message(type="end")[:-1]),
    "nothing": Poison("malformed", None),
    "a list": Poison("malformed", b"[1]"),
    "deep": Poison("malformed", b"[" * 100_000),
    "elements": Poison("malformed", message(type="step", arguments=[{}] * 300_000)),
    "large": Poison("malformed", b"x" * 900_000),
    "huge": Poison("invalid", message(type="step", action="x" * 4 * MEGABYTE)),
    "another version": Poison("version", message(type="end", version=2)),
    "another version of spans": Poison("version", spans(version=2), TRACE.encode()),
    "no key": Poison("key", message(type="end"), None),
    "another key": Poison("key", message(type="end"), b"s"),
    "another trace": Poison("key", spans(SPAN), b"b" * 32),
    "no run": Poison("invalid", b'{"type": "end"}'),
    "unknown type": Poison("invalid", message(type="begin")),
    "a step of another form": Poison("invalid", message(type="step", action=7)),
    "an end of nothing": Poison("invalid", message(type="end")),
    "a span of another form": Poison("invalid", spans({**SPAN, "id": "x"}), TRACE.encode()),
    "spans that are none": Poison("invalid", spans("x"), TRACE.encode()),
}


def create(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, 1, max_message_bytes=str(8 * MEGABYTE))
    for name in (f"{topic}.summaries", f"{topic}.decisions", f"{topic}.dead-letters"):
        kafka.create(name, 1)


def produce(kafka: Kafka, topic: str, *messages: tuple[bytes | None, bytes | None]) -> None:
    """Keys and values, in this order."""
    producer = Producer(
        {"bootstrap.servers": kafka.address, "linger.ms": 5, "message.max.bytes": 8 * MEGABYTE}
    )
    for key, value in messages:
        producer.produce(topic, value, key)
    assert producer.flush(PATIENCE) == 0


def of_run(run: WireRun) -> list[tuple[bytes, bytes]]:
    """The step events of a run."""
    return [(event["run"].encode(), orjson.dumps(event)) for event in run.events()]


def test_what_cannot_be_taken_is_buried_and_the_worker_goes_on(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    run = WireRun(9)
    create(kafka, topic)
    good, bad = of_run(run), list(POISONS.values())
    first, rest = good[: len(good) // 2], good[len(good) // 2 :]
    poisoned = [(poison.key, poison.value) for poison in bad]
    with working(tmp_path, kafka, topic) as worker:
        produce(kafka, topic, *first, *poisoned, *rest)
        [entry] = entries(records(kafka, f"{topic}.summaries", 1)).values()
        assert entry["steps"] == len(run.turns)
        letters = kafka.read(f"{topic}.dead-letters", until=len(bad))
        assert [(letter.key(), letter.value()) for letter in letters] == [
            (None, None) if poison.too_large else (poison.key, poison.value) for poison in bad
        ]
        for number, (letter, poison) in enumerate(zip(letters, bad, strict=True)):
            headers = {name: value.decode() for name, value in letter.headers()}
            detail = headers.pop("detail")
            assert headers == {
                "reason": poison.why,
                "topic": topic,
                "partition": "0",
                "offset": str(len(first) + number),
            }
            assert 0 < len(detail) < 300
            assert detail.isprintable()
        for reason in catalog.WORKER_DEAD_LETTERS.values:
            counted = worker.value(catalog.WORKER_DEAD_LETTERS.name, reason=reason)
            assert counted == [poison.why for poison in bad].count(reason) > 0
        assert worker.value(catalog.INTERNAL_ERRORS.name) == 0, worker.log.read_text()
        assert worker.stop() == 0


def test_a_full_disk_under_the_state_ends_it_and_another_goes_on(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    create(kafka, topic)
    runs = [WireRun(24, wave=wave) for wave in range(300)]
    parts = [of_run(run) for run in runs]
    begun = [message for part in parts for message in part[:10]]
    with (
        small_disk(tmp_path / "disk", 16 * MEGABYTE) as disk,
        working(tmp_path, kafka, topic, f"--state-dir={disk}") as worker,
    ):
        produce(kafka, topic, *begun[:50])
        worker.wait_for("tidegauge_steps_total")
        fill(disk / "other")
        produce(kafka, topic, *begun[50:])
        with pytest.raises(OSError, match="No space left"):
            (disk / "more").write_bytes(bytes(4096))
        code = worker.process.wait(PATIENCE)
    said = worker.log.read_text()
    assert code == 1, said
    assert "Traceback" not in said
    [line] = [line for line in said.splitlines() if "cannot store the state" in line]
    assert line.startswith("tidegauge: ")
    assert "No space left" in line
    with working(tmp_path, kafka, topic, name="another"):
        produce(kafka, topic, *(message for part in parts for message in part[10:]))
        summaries = entries(records(kafka, f"{topic}.summaries", len(runs)))
    assert {entry["steps"] for entry in summaries.values()} == {len(runs[0].turns)}


def fill(path: Path) -> None:
    """Write a file until there is no more room for it."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


WRONG = {
    "no topic": (["--topic=nowhere"], 2, "nowhere"),
    "no broker": ([f"--kafka=127.0.0.1:{free_port()}"], 1, "127.0.0.1"),
    "no policy": (["--policy=/no/such/policy.toml"], 2, "/no/such/policy.toml"),
    "no rule": (["--policy=no_signal=3"], 2, "no_signal"),
    "no switch": (["--exactly-once=perhaps"], 2, "--exactly-once"),
    "no port": (["--metrics-port=off"], 2, "--metrics-port"),
}


HANGS = """
import time
from quixstreams.kafka.consumer import BaseConsumer
from tidegauge.fleet import partition_worker
partition_worker._STUCK_SECONDS, partition_worker._WATCH_SECONDS = 3.0, 0.2
BaseConsumer.commit = lambda *args, **kwargs: time.sleep(3_600)
"""
"""A worker whose Kafka client does not return from a commit, and that waits less long for it."""


def test_a_client_that_hangs_in_a_commit_ends_the_worker_and_nothing_is_lost(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    create(kafka, topic)
    run = WireRun(7)
    produce(kafka, topic, *of_run(run))
    command = worker_command(tmp_path, kafka, topic, "--metrics-port=0", before=HANGS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr.splitlines()[-1] == (
        "tidegauge: the brokers have not answered for 3 seconds; "
        "restart the worker, which loses nothing"
    )
    assert done.returncode == 1
    with working(tmp_path, kafka, topic):
        [[summary, *_]] = records(kafka, f"{topic}.summaries", 1).values()
    assert summary["steps"] == len(run.turns)


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_from_the_start_is_one_line(
    fault: str, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    flags, code, said = WRONG[fault]
    create(kafka, topic)
    command = worker_command(tmp_path, kafka, topic, "--metrics-port=0", *flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    [line] = done.stderr.splitlines()
    assert said in line
    assert done.returncode == code


def test_a_policy_file_that_is_wrong_is_one_line(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("rules = [")
    create(kafka, topic)
    command = worker_command(tmp_path, kafka, topic, f"--policy={policy}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    [line] = done.stderr.splitlines()
    assert str(policy) in line
    assert done.returncode == 2


def test_a_run_whose_snapshot_fits_in_no_message_goes_on(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    """Its messages stay instead."""
    create(kafka, topic)
    chance, run = random.Random(1), WireRun(5)
    ids = iter([f"{chance.getrandbits(64) | 1:016x}" for _ in range(20_000)])
    messages = [
        (TRACE.encode(), spans(*({**SPAN, "id": one} for one in itertools.islice(ids, 1_000))))
        for _ in range(20)
    ]
    config = {**CONFIG, "message.max.bytes": 100_000}
    with working(tmp_path, kafka, topic, config=config) as worker:
        produce(kafka, topic, *messages, *of_run(run))
        [entry] = entries(records(kafka, f"{topic}.summaries", 1)).values()
        assert entry["steps"] == len(run.turns)
        assert worker.value(catalog.WORKER_ABORTED.name) == 0
        assert worker.stop() == 0, worker.log.read_text()
