"""What happens to brokers, networks and workers: every summary equals that of the replay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from support.far_host import NEAR, FarHost, far_host
from support.fleet import (
    LATENESS,
    NOT_OF_THE_ENTRY,
    PARTITIONS,
    STEPS,
    create_topics,
    entries,
    gateway,
    holds,
    packed,
    records,
    restarted_when_it_exits,
    sending,
    wait_for_commits,
    working,
)
from support.fleet_log import LIMITS, Sent, by_run, nothing_configured, uninterrupted
from support.kafka import Kafka, running_kafka
from support.processes import PATIENCE
from support.recorded_otlp import COUNT, RecordedRun, requests

Entries = dict[str, dict[str, Any]]
Records = dict[str, list[dict[str, Any]]]
BROKERS = 3
SOME = 300
ONCE = "--exactly-once=on"
POLICY = "--policy=loop_repeats=2,failed_rounds=3"
EAGER = """
from tidegauge.fleet import partition
partition._QUIET_SECONDS, partition._MIN_LOG_BYTES, partition._MIN_LOG_SHARE = 0.2, 0, 0.0
"""
"""Workers take snapshots of most runs between two of their messages."""

eager = partial(working, before=EAGER)
supervised = partial(restarted_when_it_exits, before=EAGER)

NEXT = """
from tidegauge.fleet import snapshots
snapshots.UPGRADES = {2: snapshots.Upgrade()}
snapshots.VERSION = 3
"""
"""The next release, which writes another version of snapshots, and reads this one's."""

CUT_SECONDS = 15.0
"""Longer than it takes until a worker is missed."""

PATIENT_SECONDS = 20.0
"""So far may gateways with all runs be apart on a machine that is busy."""

PAUSE = 0.2
"""Seconds between two requests: enough of them are sent before, during and after each fault."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("cluster"), BROKERS) as running:
        yield running


@pytest.fixture(scope="module")
def some(otlp_runs: list[RecordedRun]) -> list[RecordedRun]:
    """Of every recording."""
    return otlp_runs[:: COUNT // SOME]


class Wanted(NamedTuple):
    """What is sent on two ways, and what is to come out.

    Args:
        ways: the requests.
        runs: what replay says.
    """

    ways: list[list[bytes]]
    runs: Entries


@pytest.fixture(scope="module")
def wanted(some: list[RecordedRun], replayed_runs: Entries) -> Wanted:
    return Wanted(
        packed(requests(some, ways=2, size=64)), {run.id: replayed_runs[run.id] for run in some}
    )


def check(kafka: Kafka, topic: str, runs: Entries, *, once: bool) -> None:
    """All runs have their summaries, as replay has them; readers of what is committed see them."""
    summaries = records(
        kafka, f"{topic}.summaries", len(runs), seconds=240.0, isolation_level="read_committed"
    )
    assert entries(summaries) == runs
    again = sum(map(len, summaries.values())) - len(runs)
    print(f"\n{topic}: {len(runs)} runs equal, {again} summaries written again")
    assert not (once and again)


@pytest.mark.parametrize("flag", [ONCE, "--exactly-once=off"])
def test_a_broker_is_killed_and_comes_back(
    flag: str, cluster: Kafka, wanted: Wanted, tmp_path: Path
) -> None:
    """The one that leads most: its partitions get other leaders, also those of the changelog."""
    topic = create_topics(cluster, f"killed-broker-{flag[-2:]}")
    with (
        gateway(tmp_path, cluster, topic) as one,
        gateway(tmp_path, cluster, topic) as other,
        restarted_when_it_exits(tmp_path, cluster, topic, LATENESS, flag, name="first") as first,
        restarted_when_it_exits(tmp_path, cluster, topic, LATENESS, flag, name="second") as second,
    ):
        with sending([one, other], wanted.ways, pause=PAUSE) as sent:
            wait_for_commits(cluster, topic, 100)
            leaders = list(cluster.leaders(topic).values())
            killed = cluster.brokers[max(set(leaders), key=leaders.count) - 1]
            killed.kill()
            time.sleep(10.0)
            assert killed.number not in cluster.leaders(topic).values()
            killed.start()
            killed.wait()
            sent.wait()
        check(cluster, topic, wanted.runs, once=flag == ONCE)
        print(f"workers exited and were restarted: {[*first, *second]}")
        cluster.wait_in_sync()


def test_every_broker_is_restarted_in_turn(cluster: Kafka, wanted: Wanted, tmp_path: Path) -> None:
    """As in an upgrade of Kafka: every partition changes its leader at least once."""
    topic = create_topics(cluster, "restarted-brokers")
    with (
        gateway(tmp_path, cluster, topic) as one,
        gateway(tmp_path, cluster, topic) as other,
        restarted_when_it_exits(tmp_path, cluster, topic, LATENESS, ONCE, name="first") as first,
        restarted_when_it_exits(tmp_path, cluster, topic, LATENESS, ONCE, name="second") as second,
        sending([one, other], wanted.ways, pause=2 * PAUSE) as sent,
    ):
        wait_for_commits(cluster, topic, 100)
        for broker in cluster.brokers:
            broker.stop()
            broker.start()
            broker.wait()
            cluster.wait_in_sync()
        sent.wait()
        check(cluster, topic, wanted.runs, once=True)
        print(f"workers exited and were restarted: {[*first, *second]}")


def test_partitions_are_moved_to_other_brokers(
    cluster: Kafka, wanted: Wanted, tmp_path: Path
) -> None:
    topic = create_topics(cluster, "moved", replicas=2)
    with (
        gateway(tmp_path, cluster, topic) as one,
        gateway(tmp_path, cluster, topic) as other,
        eager(tmp_path, cluster, topic, LATENESS, ONCE, name="first") as first,
        eager(tmp_path, cluster, topic, LATENESS, ONCE, name="second") as second,
        sending([one, other], wanted.ways, pause=PAUSE) as sent,
    ):
        first.wait_for(STEPS)
        second.wait_for(STEPS)
        changelog = next(name for name in cluster.topics() if f"--{topic}--" in name)
        for moved in (topic, changelog):
            plan = {}
            for number, had in cluster.replicas(moved).items():
                new = min({1, 2, 3} - had, default=min(had))
                plan[number] = [new, max(had - {new})]
            cluster.move(moved, plan, tmp_path)
        sent.wait()
        check(cluster, topic, wanted.runs, once=True)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[FarHost]:
    with far_host() as host:
        yield host


@pytest.mark.parametrize("flag", [ONCE, "--exactly-once=off"])
def test_the_network_between_a_worker_and_the_brokers_is_cut(
    flag: str,
    elsewhere: FarHost,
    wanted: Wanted,
    tmp_path: Path,
) -> None:
    """It still has its partitions when the other one gets them, and comes back."""
    with running_kafka(tmp_path / "near", host=NEAR) as near:
        topic = create_topics(near, "cut")
        with (
            gateway(tmp_path, near, topic) as one,
            gateway(tmp_path, near, topic) as other,
            eager(tmp_path, near, topic, LATENESS, flag, name="here") as here,
            working(tmp_path, near, topic, LATENESS, flag, name="far", host=elsewhere) as far,
        ):
            holds(here, PARTITIONS // 2)
            holds(far, PARTITIONS // 2)
            with sending([one, other], wanted.ways, pause=PAUSE) as sent:
                far.wait_for(STEPS)
                with elsewhere.cut_off():
                    holds(here, PARTITIONS)
                    time.sleep(CUT_SECONDS)
                holds(far, PARTITIONS // 2)
                sent.wait()
            check(near, topic, wanted.runs, once=flag == ONCE)


def test_exactly_once_with_killed_workers_and_all_runs(
    cluster: Kafka, otlp_runs: list[RecordedRun], tmp_path: Path
) -> None:
    """Two of three are killed, one after the other: no summary and no decision twice, none missing.

    They are compared with those of one worker that reads the same log undisturbed: what a policy
    decides is in the summaries, too.
    """
    topic = create_topics(cluster, "once")
    ways = packed(requests(otlp_runs, ways=2))
    flags = (f"--allowed-lateness={PATIENT_SECONDS}", ONCE, POLICY)
    with (
        gateway(tmp_path, cluster, topic) as one,
        gateway(tmp_path, cluster, topic) as other,
        eager(tmp_path, cluster, topic, *flags, name="first") as first,
        eager(tmp_path, cluster, topic, *flags, name="second") as second,
        eager(tmp_path, cluster, topic, *flags, name="third") as third,
        sending([one, other], ways, pause=PAUSE) as sent,
    ):
        first.wait_for(STEPS, lambda found: found > 2_000, seconds=8 * PATIENCE)
        first.kill()
        holds(third, PARTITIONS // 2)
        second.kill()
        holds(third, PARTITIONS)
        with eager(tmp_path, cluster, topic, *flags, name="fourth") as fourth:
            holds(fourth, PARTITIONS // 2)
            sent.wait()
            undisturbed, summaries = one_worker(cluster, topic)
            assert len(summaries) == COUNT
            runs = {run: only(summary) for run, [summary] in summaries.items()}
            check(cluster, topic, runs, once=True)
            decisions = records(
                cluster, f"{topic}.decisions", len(undisturbed), isolation_level="read_committed"
            )
            for one_run in decisions.values():
                for decision in one_run:
                    del decision["time"]
            assert decisions == undisturbed
            print(f"{sum(map(len, decisions.values()))} decisions, none twice, none missing")


def test_workers_are_upgraded_in_turn_to_another_version_of_the_state(
    cluster: Kafka, wanted: Wanted, tmp_path: Path
) -> None:
    topic = create_topics(cluster, "upgraded")
    kinds = {"old": EAGER, "new": EAGER + NEXT}

    def worker(kind: str, number: int) -> AbstractContextManager[list[str]]:
        name = f"{kind}-{number}"
        flags = (LATENESS, ONCE)
        return restarted_when_it_exits(
            tmp_path, cluster, topic, *flags, name=name, before=kinds[kind]
        )

    with (
        gateway(tmp_path, cluster, topic) as one,
        gateway(tmp_path, cluster, topic) as other,
        sending([one, other], wanted.ways, pause=2 * PAUSE) as sent,
        ExitStack() as new,
    ):
        total = sum(map(len, wanted.ways))
        with worker("old", 1), ExitStack() as second:
            second.enter_context(worker("old", 2))
            wait_for_commits(cluster, topic, total)
            second.close()
            new.enter_context(worker("new", 2))
            wait_for_commits(cluster, topic, 4 * total)
        exits = new.enter_context(worker("new", 1))
        sent.wait()
        check(cluster, topic, wanted.runs, once=True)
        assert exits == []


def one_worker(kafka: Kafka, topic: str) -> tuple[Records, Records]:
    """The decisions and the summaries of one worker that reads each partition undisturbed."""
    partitions: dict[int, list[Sent]] = {}
    for message in kafka.read(topic):
        kind, time_ms = message.timestamp()
        assert kind != TIMESTAMP_NOT_AVAILABLE
        log = partitions.setdefault(message.partition(), [])
        assert message.offset() == len(log)
        log.append(Sent(message.key(), message.value(), time_ms / 1e3))
    decisions: Records = {}
    summaries: Records = {}
    limits = LIMITS._replace(allowed_lateness=PATIENT_SECONDS)
    with nothing_configured():
        for log in partitions.values():
            produced, _ = uninterrupted(log, limits=limits)
            decisions |= by_run(produced.decisions)
            summaries |= by_run(produced.summaries)
    return decisions, summaries


def only(summary: dict[str, Any]) -> dict[str, Any]:
    """What a summary has of the run's entry."""
    return {name: value for name, value in summary.items() if name not in NOT_OF_THE_ENTRY}
