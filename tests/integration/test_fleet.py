"""A fleet: what its workers say of recorded runs, however spans reach it and whichever worker dies.

What happens to brokers and networks is in ``tests/fleet_faults``.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.fleet import (
    ALLOWED_LATENESS,
    CONFIG,
    LATENESS,
    PARTITIONS,
    STEPS,
    create_topics,
    deal,
    entries,
    gateway,
    halves,
    holds,
    messages,
    packed,
    records,
    sending,
    steps,
    wait_for_commits,
    working,
)
from support.kafka import Kafka
from support.processes import PATIENCE
from support.recorded_otlp import COUNT, RecordedRun, requests
from tidegauge import catalog
from tidegauge.cli.replay import RecordedRuns
from tidegauge.events import Answer, Decision, Outcome, Step, StepSink
from tidegauge.policies import (
    Policy,
    PolicyFile,
    Threshold,
    read_policy,
    read_score,
    write_policy,
)
from tidegauge.policies.learning import Example, ExampleSink, learn, score_document
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import run_entry

pytestmark = [pytest.mark.system, pytest.mark.minutes]

Entries = dict[str, dict[str, Any]]
OUTAGE_SECONDS = 8.0
SOME = 300
"""Of the runs, where all of them would take too long."""


@pytest.fixture(scope="module")
def all_of_them(otlp_runs: list[RecordedRun]) -> list[list[bytes]]:
    """What is sent to each of two gateways: neither has a whole run."""
    return packed(requests(otlp_runs, ways=2))


@pytest.fixture(scope="module")
def some(otlp_runs: list[RecordedRun]) -> list[RecordedRun]:
    """Of every recording."""
    return otlp_runs[:: COUNT // SOME]


def test_every_field_of_every_run_over_two_gateways_and_two_workers(
    kafka: Kafka, all_of_them: list[list[bytes]], replayed_runs: Entries, tmp_path: Path
) -> None:
    topic = create_topics(kafka, "all")
    with (
        gateway(tmp_path, kafka, topic) as one,
        gateway(tmp_path, kafka, topic) as other,
        working(tmp_path, kafka, topic, LATENESS, name="first") as first,
        working(tmp_path, kafka, topic, LATENESS, name="second") as second,
    ):
        deal([one, other], all_of_them)
        summaries = records(kafka, f"{topic}.summaries", COUNT)
        assert entries(summaries) == replayed_runs
        assert sum(map(len, summaries.values())) == COUNT  # nobody died: each is there once
        assert steps(first, second) == sum(entry["steps"] for entry in replayed_runs.values())
        assert steps(first) > 0
        assert steps(second) > 0
        assert kafka.read(f"{topic}.dead-letters") == []
        assert first.stop() == second.stop() == 0


def test_a_worker_is_killed_and_another_joins(
    kafka: Kafka, some: list[RecordedRun], replayed_runs: Entries, tmp_path: Path
) -> None:
    topic = create_topics(kafka, "killed")
    ways = packed(requests(some, ways=2, size=64))
    wanted = {run.id: replayed_runs[run.id] for run in some}
    total = sum(entry["steps"] for entry in wanted.values())
    with (
        gateway(tmp_path, kafka, topic) as one,
        gateway(tmp_path, kafka, topic) as other,
        working(tmp_path, kafka, topic, LATENESS, name="killed") as killed,
        working(tmp_path, kafka, topic, LATENESS, name="survivor") as survivor,
        sending([one, other], [way[: len(way) // 2] for way in ways], pause=0.1) as sent,
    ):
        killed.wait_for(STEPS, lambda found: found > total / 20)
        before = kafka.committed(topic, topic, PARTITIONS)
        counted, taken = steps(killed), messages(killed, survivor)
        killed.kill()
        twice, never = uncertain(kafka, topic, before, taken)
        holds(survivor, PARTITIONS)
        with working(tmp_path, kafka, topic, LATENESS, name="joined") as joined:
            holds(joined, PARTITIONS // 2)
            sent.wait()
            deal([one, other], [way[len(way) // 2 :] for way in ways])
            summaries = records(kafka, f"{topic}.summaries", len(some))
            assert entries(summaries) == wanted
            assert steps(joined) > 0
            off = counted + steps(survivor, joined) - total
            print(f"steps are off by {off:.0f} of {total}: from -{never} to {twice} may be")
            print(f"{sum(map(len, summaries.values())) - len(some)} summaries were produced twice")
            assert -never <= off <= twice


def uncertain(kafka: Kafka, topic: str, before: dict[int, int], taken: float) -> tuple[int, int]:
    """How many steps of a worker that was just killed may be counted twice, and how many never.

    Twice: those of messages that it had taken and not committed; and those that had settled since
    the last that it had, for going through that again does not show how long ago it came. Never:
    those that it counted after it was scraped, and committed, also of messages that it had taken
    before and held for the allowed lateness.

    Args:
        kafka: where the topic is.
        topic: its name.
        before: what was committed before the workers were scraped.
        taken: how many messages they said that they had taken.
    """
    after = kafka.committed(topic, topic, PARTITIONS)
    log = {
        (message.partition(), message.offset()): (message.timestamp()[1], steps_in(message.value()))
        for message in kafka.read(topic)
    }
    settled = committed = 0
    for number, offset in before.items():
        latest = log[number, offset - 1][0] if offset else 0
        for (partition, place), (sent, count) in log.items():
            if partition != number:
                continue
            if place < offset and sent >= latest - ALLOWED_LATENESS * 1e3:
                settled += count
            elif offset <= place < after[number]:
                committed += count
    largest = sorted((count for _, count in log.values()), reverse=True)
    since = max(0, int(taken) - sum(before.values()))
    return sum(largest[:since]) + settled, settled + committed


def steps_in(message: bytes) -> int:
    """How many steps its spans have."""
    return sum(bool(span.get("model", {}).get("calls")) for span in orjson.loads(message)["spans"])


def test_the_broker_stands_still_for_a_while(
    kafka: Kafka,
    some: list[RecordedRun],
    replayed_runs: Entries,
    tmp_path: Path,
) -> None:
    """Both gateways go on when the broker does, one behind the other with all that waited.

    The topic has the broker's times: the outage may be longer than the allowed lateness.
    """
    topic = create_topics(kafka, "away")
    assert OUTAGE_SECONDS > 2 * ALLOWED_LATENESS
    # A member that is missed during the outage would be a rebalance as well: another test's case.
    config = {**CONFIG, "session.timeout.ms": 30_000}
    ways = packed(requests(some, ways=2, size=64))
    with (
        gateway(tmp_path, kafka, topic) as one,
        gateway(tmp_path, kafka, topic) as other,
        working(tmp_path, kafka, topic, LATENESS, name="first", config=config) as first,
        working(tmp_path, kafka, topic, LATENESS, name="second", config=config) as second,
    ):
        holds(first, PARTITIONS // 2)
        holds(second, PARTITIONS // 2)
        with sending([one, other], ways, pause=0.2) as sent:
            first.wait_for(STEPS)
            kafka.pause()
            try:
                time.sleep(OUTAGE_SECONDS)
            finally:
                kafka.resume()
            sent.wait()
        summaries = records(kafka, f"{topic}.summaries", len(some))
        assert entries(summaries) == {run.id: replayed_runs[run.id] for run in some}


def test_exactly_once(
    kafka: Kafka, some: list[RecordedRun], replayed_runs: Entries, tmp_path: Path
) -> None:
    """A reader of what is committed finds each summary once, while workers go, die and come."""
    topic = create_topics(kafka, "once")
    begin, rest = halves(packed(requests(some, ways=2, size=64)))
    once = "--exactly-once=on"
    with (
        gateway(tmp_path, kafka, topic) as one,
        gateway(tmp_path, kafka, topic) as other,
        working(tmp_path, kafka, topic, LATENESS, once, name="goes") as goes,
        working(tmp_path, kafka, topic, LATENESS, once, name="dies") as dies,
        working(tmp_path, kafka, topic, LATENESS, once, name="stays") as stays,
        sending([one, other], begin, pause=0.2) as sent,
    ):
        goes.wait_for(STEPS)
        dies.wait_for(STEPS)
        assert goes.stop() == 0
        dies.kill()
        holds(stays, PARTITIONS)
        with working(tmp_path, kafka, topic, LATENESS, once, name="comes") as comes:
            holds(comes, PARTITIONS // 2)
            sent.wait()
            deal([one, other], rest)
            summaries = records(
                kafka, f"{topic}.summaries", len(some), isolation_level="read_committed"
            )
    assert entries(summaries) == {run.id: replayed_runs[run.id] for run in some}
    assert sum(map(len, summaries.values())) == len(some)


def test_what_a_collector_writes_to_kafka_needs_no_gateway(
    kafka: Kafka, some: list[RecordedRun], replayed_runs: Entries, tmp_path: Path
) -> None:
    """As its Kafka exporter writes it with ``partition_traces_by_id``."""
    topic = create_topics(kafka, "collector")
    few = some[:50]
    [all_requests] = requests(few, size=64)
    with working(tmp_path, kafka, topic, LATENESS, "--format=otlp") as worker:
        producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 20})
        for one in all_requests:
            for trace_id, part in by_trace(one).items():
                producer.produce(topic, part.SerializeToString(), trace_id.hex().encode())
        producer.produce(topic, all_requests[0].SerializeToString())  # of several traces
        assert producer.flush(PATIENCE) == 0
        summaries = records(kafka, f"{topic}.summaries", len(few))
        assert entries(summaries) == {run.id: replayed_runs[run.id] for run in few}
        assert worker.value(catalog.WORKER_DEAD_LETTERS.name, reason="key") == 1


def by_trace(request: ExportTraceServiceRequest) -> dict[bytes, ExportTraceServiceRequest]:
    """A request for each trace."""
    found: dict[bytes, ExportTraceServiceRequest] = {}
    for resource_spans in request.resource_spans:
        for span in resource_spans.scope_spans[0].spans:
            part = found.setdefault(span.trace_id, ExportTraceServiceRequest())
            if not part.resource_spans:
                part.resource_spans.add().resource.CopyFrom(resource_spans.resource)
                scope = part.resource_spans[0].scope_spans.add().scope
                scope.CopyFrom(resource_spans.scope_spans[0].scope)
            part.resource_spans[0].scope_spans[0].spans.append(span)
    return found


def test_step_events_of_any_writer(kafka: Kafka, recorded_runs: Path, tmp_path: Path) -> None:
    """All that a recording contains; some of it twice, some of it after what follows it."""
    topic = create_topics(kafka, "events")
    files = [str(path) for path in sorted(recorded_runs.glob("*.events.jsonl"))]
    # as a worker compares results: without what is volatile
    runs = RecordedRuns(Policy())
    for file in files:
        replay(Path(file), runs)
    expected = {entry["run"]: entry for entry in entries_of(runs)}
    with (
        working(tmp_path, kafka, topic, LATENESS, name="first") as first,
        working(tmp_path, kafka, topic, LATENESS, name="second") as second,
    ):
        produce(kafka, topic, shuffled(map(orjson.loads, lines_of(files)), random.Random(9)))
        summaries = records(kafka, f"{topic}.summaries", COUNT)
        assert entries(summaries) == expected
        assert sum(map(len, summaries.values())) == COUNT
        assert steps(first, second) == sum(entry["steps"] for entry in expected.values())


def test_a_learned_policy_decides_as_replay_does_also_in_runs_that_move(
    kafka: Kafka, recorded_runs: Path, tmp_path: Path
) -> None:
    """Half of each run reaches a worker that is killed, the rest another one.

    Replay ends a run where it is stopped. A fleet's agent may go on: its numbers are those of
    replay with a policy that only observes.
    """
    topic = create_topics(kafka, "learned")
    file = recorded_runs / "reflexion_hotpotqa.events.jsonl"
    runs: dict[str, list[dict[str, Any]]] = {}
    for event in map(orjson.loads, file.read_bytes().splitlines()):
        step = {"t": len(runs[event["run"]]) - 1} if event["type"] == "step" else {}
        runs.setdefault(event["run"], []).append({**event, **step})
    policy = learned_policy(file, tmp_path)
    policed = Decided(read_policy(policy).policy())
    replay(file, policed)
    assert 50 < len(policed.decided) < len(runs) - 50
    (threshold,) = read_policy(policy).thresholds
    observes = Policy([], thresholds=[replace(threshold, action="observe")])
    observed = RecordedRuns(observes)
    replay(file, observed)
    stopped = {entry["run"]: entry["stopped"] for entry in entries_of(policed.runs)}
    assert sum(map(bool, stopped.values())) == len(policed.decided)

    flags = (LATENESS, f"--policy={policy}", "--commit-seconds=0.5")
    begun = [event for run in runs.values() for event in run[: len(run) // 2 + 1]]
    rest = [event for run in runs.values() for event in run[len(run) // 2 + 1 :]]
    with working(tmp_path, kafka, topic, *flags, name="killed") as killed:
        produce(kafka, topic, begun)
        wait_for_commits(kafka, topic, len(begun))
        killed.kill()
    with working(tmp_path, kafka, topic, *flags, name="other") as other:
        produce(kafka, topic, rest)
        summaries = records(kafka, f"{topic}.summaries", len(runs))
        assert other.value(catalog.INTERNAL_ERRORS.name) == 0
    assert entries(summaries) == {
        entry["run"]: {**entry, "stopped": stopped[entry["run"]]} for entry in entries_of(observed)
    }
    said = records(kafka, f"{topic}.decisions", len(policed.decided))
    decided = {
        run: [first[name] for name in ("action", "step", "reason", "message")]
        for run, (first, *_) in said.items()
    }
    assert decided == policed.decided


def entries_of(runs: RecordedRuns) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(
        orjson.dumps([run_entry(report) for report in runs.reports()])
    )
    return found


def replay(recording: Path, sink: StepSink) -> None:
    taking = Replay(sink)
    with recording.open("rb") as stream:
        for line in read_lines(stream):
            taking.take(line, recording.name)
    assert taking.skipped_lines == 0


def learned_policy(recording: Path, folder: Path) -> Path:
    """A policy that stops runs at a score learned from them; its threshold is of one run in two."""
    kept: list[Example] = []
    replay(recording, ExampleSink(kept.append))
    groups, tasks = learn(kept, share=1)
    file = folder / "score.json"
    file.write_bytes(score_document(groups, tasks))
    score = read_score(file)
    weights = score.of(kept[0].agent, kept[0].task_group)
    assert weights is not None
    highest = [
        max(weights.intercept + sum(weights.parts(moment).values()) for moment in one.moments)
        for one in kept
    ]
    threshold = Threshold("learned", statistics.median(highest), "stop", learned=score)
    policy = folder / "policy.toml"
    policy.write_text(write_policy(PolicyFile((), (threshold,)), folder=str(folder)))
    return policy


class Decided:
    """Recorded runs by a policy, and the first decision of each that it stops."""

    def __init__(self, policy: Policy) -> None:
        self.runs = RecordedRuns(policy)  # as a worker compares results
        self.run_started = self.runs.run_started
        self.run_ended = self.runs.run_ended
        self.decided: dict[str, list[Any]] = {}

    def step_issued(self, event: Step) -> Decision:
        return self._kept(event.run, self.runs.step_issued(event))

    def step_observed(self, event: Outcome) -> Decision:
        return self._kept(event.run, self.runs.step_observed(event))

    def answered(self, event: Answer) -> Decision:
        return self._kept(event.run, self.runs.answered(event))

    def _kept(self, run: str, decision: Decision) -> Decision:
        if decision.signals is not None and decision.action != "go_on":
            step = decision.signals.step
            found = [decision.action, step, decision.reason, decision.message]
            self.decided.setdefault(run, found)
        return decision


def lines_of(files: Iterable[str]) -> Iterator[bytes]:
    for file in files:
        yield from Path(file).read_bytes().splitlines()


def shuffled(events: Iterable[dict[str, Any]], draw: random.Random) -> Iterator[dict[str, Any]]:
    """The events of each run in any order, every fifth step twice."""
    run: list[dict[str, Any]] = []
    for event in events:
        steps = len(run) - 1  # without the start
        match event["type"]:
            case "step":
                run.append({**event, "t": steps})
            case "start":
                run = [event]
            case "end":
                again = [step for step in run[1:] if draw.random() < 0.2]
                moved = [*run, *again, {**event, "steps": steps}]
                draw.shuffle(moved)
                yield from moved


def produce(kafka: Kafka, topic: str, events: Iterable[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 20})
    for event in events:
        producer.produce(topic, orjson.dumps(event), event["run"].encode())
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
