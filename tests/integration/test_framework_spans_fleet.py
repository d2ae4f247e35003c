"""A fleet reads what agent frameworks emit as one process does, whichever gateway has the spans."""

from __future__ import annotations

import json
import random
import runpy
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from support.fleet import gateway, records, working
from support.fleet_log import Sent as Message
from support.fleet_log import nothing_configured, uninterrupted
from support.framework_spans import FREE, ReadRun, batches, expected, parsed, read
from support.kafka import Kafka
from support.serve import Server
from tidegauge import catalog
from tidegauge.receivers.assembly import AssemblyLimits

pytestmark = pytest.mark.system

PARTITIONS = 4
LIMITS = AssemblyLimits(allowed_lateness=3.0, idle_seconds=8.0)
"""The roots of some recordings never arrive."""

Given: TypeAlias = dict[str, Any]
Requests: TypeAlias = list[tuple[int, list[Given]]]
"""Spans as they are in the files, and the number of the gateway that each request goes to."""


class Sent(NamedTuple):
    """A recording under ids and a service name that no other has, and how it is sent."""

    name: str
    spans: list[Given]
    requests: Requests

    @classmethod
    def of(cls, path: Path, number: int) -> Sent:
        """The recording with this number: even, round robin; odd, in random batches."""
        spans = [_renamed(json.loads(line), number) for line in path.read_text().splitlines()]
        spans.sort(key=lambda span: int(span["end"]))
        divided = _by_chance(spans, random.Random(number)) if number % 2 else _in_turn(spans)
        return cls(path.stem, spans, divided)

    def read_here(self) -> list[ReadRun]:
        """What one process reads of its spans, one after the other."""
        return read(batches(sorted(map(parsed, self.spans), key=lambda span: span.end), "each"))


def _renamed(span: Given, number: int) -> Given:
    resource = {**span["resource"], "service.name": f"{span['resource']['service.name']}-{number}"}
    trace_id = f"{number + 1:08x}{span['trace_id'][8:]}"
    return {**span, "trace_id": trace_id, "resource": resource}


def _in_turn(spans: Sequence[Given]) -> Requests:
    """Every other span goes to each gateway, in requests of four."""
    ways = [
        [(way, list(spans[way::2][first : first + 4])) for first in range(0, len(spans[way::2]), 4)]
        for way in range(2)
    ]
    return [one for turn in zip_longest(*ways) for one in turn if one is not None]


def _by_chance(spans: Sequence[Given], chance: random.Random) -> Requests:
    found: Requests = []
    first = 0
    while first < len(spans):
        size = chance.randint(1, 8)
        found.append((chance.randrange(2), list(spans[first : first + size])))
        first += size
    return found


def _runs(summaries: Mapping[str, Given], sent: Sent) -> list[ReadRun]:
    """What the fleet reads of a recording, in the order in which its runs start."""
    began: dict[str, int] = {}
    for span in sent.spans:
        began[span["trace_id"]] = min(
            int(span["start"]), began.get(span["trace_id"], int(span["start"]))
        )
    found = [one for one in summaries.values() if one["trace_id"] in began]
    found.sort(key=lambda one: (began[one["trace_id"]], one["run"] != one["trace_id"]))
    numbers = {one["run"]: number for number, one in enumerate(found)}
    around = {child: one["run"] for one in found for child in one.get("children", ())}
    return [
        ReadRun(
            one.get("agent_name") or one["agent"],
            numbers.get(one["parent"] or around.get(one["run"], "")),
            one["steps"],
            _loop(one["loops"], one["tide_loop_steps"]),
            one["agent"],
        )
        for one in found
    ]


def _loop(loops: Sequence[Mapping[str, int]], tide: int) -> dict[str, int] | None:
    if not loops:
        return None
    [loop] = loops
    return {
        "period": loop["period"],
        "first_step": loop["first_step"],
        "loop_steps": tide,
        "live_loop_steps": loop["steps"],
    }


def _labels(kafka: Kafka, topic: str) -> dict[str, str]:
    """The label of each run, read in this process from the log of each partition."""
    logs: dict[int, list[Message]] = {}
    for message in kafka.read(topic):
        sent = Message(message.key(), message.value(), message.timestamp()[1] / 1_000)
        logs.setdefault(message.partition(), []).append(sent)
    with nothing_configured():
        produced = [uninterrupted(log, limits=LIMITS)[0] for log in logs.values()]
    return {run["run"]: run["agent"] for one in produced for run in one.summaries}


def _deal(gateways: Sequence[Server], all_sent: Sequence[Sent], request: Any) -> None:
    """Send the next request of each recording in turn, until all were taken."""
    waiting: list[Iterator[tuple[int, list[Given]]]] = [iter(one.requests) for one in all_sent]
    for turn in zip_longest(*waiting):
        for way, spans in filter(None, turn):
            body = json.dumps(request(spans)).encode()
            answer = gateways[way].post(body, kind="application/json")
            assert answer.status == 200, answer


def test_two_gateways_share_the_spans_of_every_framework(
    kafka: Kafka, topic: str, recorded_runs: Path, tmp_path: Path
) -> None:
    folder = recorded_runs / "spans" / "frameworks"
    truth: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    request = runpy.run_path(str(folder / "send.py"))["request"]
    all_sent = [
        Sent.of(folder / f"{name}.jsonl", 2 * number + way)
        for number, name in enumerate(truth)
        for way in range(2)
    ]
    here = [one.read_here() for one in all_sent]
    count, steps = sum(map(len, here)), sum(run.steps for runs in here for run in runs)
    for name in (topic, f"{topic}.summaries", f"{topic}.decisions", f"{topic}.dead-letters"):
        kafka.create(name, PARTITIONS)
    flags = [
        f"--allowed-lateness={LIMITS.allowed_lateness}",
        f"--idle-seconds={LIMITS.idle_seconds}",
    ]
    with (
        gateway(tmp_path, kafka, topic) as one,
        gateway(tmp_path, kafka, topic) as other,
        working(tmp_path, kafka, topic, *flags) as worker,
    ):
        _deal([one, other], all_sent, request)
        found = records(kafka, f"{topic}.summaries", count)
        lost = [server.value(catalog.GATEWAY_FAILED_MESSAGES.name) for server in (one, other)]
        unread = (catalog.WORKER_DUPLICATES, catalog.WORKER_LATE, catalog.WORKER_DEAD_LETTERS)
        assert [worker.value(each.name) for each in unread] == [0, 0, 0]
        assert lost == [0, 0]
        assert worker.value("tidegauge_steps_total") == steps
        assert worker.stop() == 0
    assert {run for run, each in found.items() if len(each) != 1} == set()
    summaries = {run: each for run, [each] in found.items()}
    assert {run: each["agent"] for run, each in summaries.items()} == _labels(kafka, topic)
    wrong = {}
    for sent, as_one in zip(all_sent, here, strict=True):
        runs = _runs(summaries, sent)
        if sent.name in FREE:
            right = [one._replace(label=run.label) for one, run in zip(as_one, runs, strict=False)]
        else:
            right = expected(truth[sent.name], runs)
        if runs != right or len(runs) != len(as_one):
            wrong[sent.name, sent.spans[0]["trace_id"]] = runs, as_one
    assert not wrong
