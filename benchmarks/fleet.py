"""Gateways, a topic and workers: throughput, delay, and time of a restart.

The broker is one Apache Kafka, and the machine is shared by it, by all processes of the fleet and
by the senders: two workers can be no more than twice as fast as one where there are processors
for all of them.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import set_span_in_context

from benchmarks.fleet_parts import Messages, Topic, missing, support, wait_until, workers
from benchmarks.measure import Line
from benchmarks.otlp_load import Load, make_load
from benchmarks.serve import BATCH_MILLISECONDS, Pace, latencies, rate
from benchmarks.served import served
from tidegauge import catalog

ROUNDS: Final = 2
WAVES: Final = 12
"""Of 5,000 spans, for a worker to take."""

DECISIONS: Final = 40
LIVE_RUNS: Final = 10_000
LIVE_STEPS: Final = 20
SPANS_AT_ONCE: Final = 8
"""So many spans of a run come together: its agent sends them every few seconds."""

TAKEN: Final = catalog.WORKER_MESSAGES.name
DELIVERED: Final = catalog.GATEWAY_MESSAGES.name
LIVE: Final = catalog.WORKER_RUNS.name
STATE: Final = catalog.WORKER_STATE_BYTES.name
MINUTES: Final = 5
"""In which a worker must have taken the messages of all live runs."""

SETTLED: Final = 15
"""Seconds without a change of the state, more than it takes until a run counts as quiet."""

RESTORED: Final = catalog.WORKER_RESTORE_SECONDS.name

_numbers = itertools.count(1)


def measure() -> list[Line]:
    """Spans a second of a gateway, of one worker and of two; delays; restarts; bytes."""
    lacking = missing()
    if lacking is not None:
        print(f"fleet: skipped, because {lacking} is missing", file=sys.stderr)
        return []
    load = make_load()
    with (
        tempfile.TemporaryDirectory() as folder,
        support("kafka").running_kafka(Path(folder)) as broker,
    ):
        place = Path(folder)
        gateway = statistics.median(gateway_rate(broker, load) for _ in range(ROUNDS))
        found: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for count, rates in found.items():
                rates.append(worker_rate(place, broker, Messages.of(load), count))
        one, two = (statistics.median(rates) for rates in found.values())
        return [
            Line("gateway, agents' spans only", gateway / 1e3, "k/s"),
            Line(
                "one worker", one / 1e3, "k/s", note=f"{one * load.steps / load.spans:,.0f} steps"
            ),
            Line("two workers", two / 1e3, "k/s", note=f"{two / one:.2f} of one"),
            *delays(place, broker, load, min(gateway, one) / 2),
            *restarts(place / "live", broker),
        ]


def gateway_rate(broker: Any, load: Load) -> float:
    """Spans a second that a gateway takes until the broker has them."""
    topic, messages = Topic(broker, f"gateway-{next(_numbers)}"), Messages.of(load)
    with served(f"--kafka={broker.address}", f"--topic={topic.name}") as server:
        return rate(
            server.target,
            load,
            lambda steps: server.wait_for(DELIVERED, steps / load.steps * len(messages.written)),
        )


def worker_rate(folder: Path, broker: Any, messages: Messages, count: int) -> float:
    """Spans a second that so many workers take of a topic that is filled at once."""
    topic = Topic(broker, f"rate-{next(_numbers)}")
    with workers(folder, topic, count) as started:
        began = time.perf_counter()
        topic.fill(message for number in range(1, WAVES + 1) for message in messages.wave(number))
        taken = WAVES * len(messages.written)
        wait_until(lambda: sum(worker.value(TAKEN) for worker in started) >= taken, every=0.2)
        return WAVES * messages.spans / (time.perf_counter() - began)


class _Chain:
    """A gateway and the worker behind it, as one receiver."""

    def __init__(self, target: str, worker: Any) -> None:
        self.target = target
        self._worker = worker

    def total(self, name: str, _: str) -> float:
        return float(self._worker.value(name, agent="probe"))


def delays(folder: Path, broker: Any, load: Load, per_second: float) -> list[Line]:
    """From the end of a span to its metric, and to the decision that follows from it."""
    topic = Topic(broker, "delays")
    with (
        served(f"--kafka={broker.address}", f"--topic={topic.name}") as server,
        workers(folder, topic, 1, "--policy=loop_repeats=1") as [worker],
        Pace(server.target, load, per_second),
    ):
        chain: Any = _Chain(server.target, worker)
        metric = statistics.quantiles(latencies(chain), n=100)
        decision = statistics.quantiles(decision_delays(server.target, topic), n=100)
    note = f"at {per_second / 1e3:.1f} k/s, batches of {BATCH_MILLISECONDS} ms"
    return [
        Line("from a span's end to its metric, p50", metric[49], "s", note=note),
        Line("from a span's end to its metric, p99", metric[98], "s", note="of the same"),
        Line("from a span's end to the decision in its topic, p50", decision[49], "s"),
        Line("from a span's end to the decision in its topic, p99", decision[98], "s"),
    ]


def decision_delays(target: str, topic: Topic) -> list[float]:
    """Seconds of agents that repeat themselves, until the decision to stop."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": topic.broker.address, "group.id": "delays"})
    decisions = f"{topic.name}.decisions"
    known = consumer.list_topics(decisions, 10).topics[decisions].partitions
    consumer.assign([TopicPartition(decisions, number, 0) for number in known])
    chosen: dict[str, list[float]] = {}  # when each step was, by run
    agents = threading.Thread(target=_loop, args=(target, chosen))
    agents.start()
    found: dict[str, float] = {}
    until = time.monotonic() + 60
    while len(found) < DECISIONS and time.monotonic() < until:
        message = consumer.poll(0.1)
        now = time.perf_counter()
        if message is None or message.error() is not None:
            continue
        decision = json.loads(message.value())
        if decision["action"] == "stop" and decision["run"] in chosen:
            run = decision["run"]
            found.setdefault(run, now - chosen[run][decision["step"]])
    agents.join()
    consumer.close()
    return list(found.values())


def _loop(target: str, chosen: dict[str, list[float]]) -> None:
    """Agents, one after the other, each of which calls its tool six times, 50 ms apart."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"http://{target}", insecure=True)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_MILLISECONDS)
    )
    tracer = provider.get_tracer("loop")
    about = {"gen_ai.agent.name": "looping"}
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
    said = json.dumps([{"role": "assistant", "parts": [call]}])
    for _ in range(DECISIONS):
        agent = {"gen_ai.operation.name": "invoke_agent", **about}
        run = tracer.start_span("invoke_agent looping", attributes=agent)
        context = set_span_in_context(run)
        steps = chosen[f"{run.get_span_context().trace_id:032x}"] = []
        for _ in range(6):
            attributes = {"gen_ai.operation.name": "chat", **about, "gen_ai.output.messages": said}
            tracer.start_span("chat", context=context, attributes=attributes).end()
            steps.append(time.perf_counter())
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                **about,
                "gen_ai.tool.name": "look",
            }
            attributes |= {"gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": "nothing"}
            tracer.start_span("execute_tool look", context=context, attributes=attributes).end()
            time.sleep(0.05)
        run.end()
    provider.shutdown()


def restarts(folder: Path, broker: Any) -> list[Line]:
    """What a worker of many live runs keeps, and how long the next one takes to know it."""
    folder.mkdir()
    topic = Topic(broker, "restarts")
    messages = Messages.of_live_runs(make_load(steps=LIVE_STEPS), SPANS_AT_ONCE)
    waves = LIVE_RUNS // make_load(steps=1).runs
    steps, count = waves * messages.steps, waves * len(messages.written)
    size = topic.fill(
        message for number in range(1, waves + 1) for message in messages.wave(number)
    )
    with workers(folder, topic, 1) as [worker]:
        wait_until(
            lambda: worker.value(TAKEN) >= count and topic.committed() >= count,
            every=1.0,
            seconds=MINUTES * 60,
        )
        _wait_for_snapshots(worker)
        state = sum(path.stat().st_size for path in folder.glob("worker-0/**/*") if path.is_file())
        kept, held = worker.value(STATE), worker.resident_bytes
        worker.kill()
    changelog = topic.changelog_bytes()
    with_state = _restored(folder, topic)
    (folder / "empty").mkdir()
    without = _restored(folder / "empty", topic)
    of = f"of {LIVE_RUNS:,} live runs of {LIVE_STEPS} steps"
    return [
        Line(f"restored {of}, with local state", with_state, "s"),
        Line("restored from the changelog alone", without, "s", note="of the same"),
        Line("a message of 8 spans", size / count, "B"),
        Line("in the topic, a step", size / steps, "B"),
        Line("state of a live run", kept / LIVE_RUNS, "B"),
        Line("on disk, a step", state / steps, "B"),
        Line("in the changelog, a step", changelog / steps, "B"),
        Line("memory of the worker, a live run", held / LIVE_RUNS / 1e3, "kB"),
    ]


def _wait_for_snapshots(worker: Any) -> None:
    """Wait until the worker has replaced the messages of quiet runs by snapshots."""
    sizes = [float(worker.value(STATE))]
    while len(set(sizes[-SETTLED:])) > 1 or len(sizes) <= SETTLED:
        time.sleep(1.0)
        sizes.append(float(worker.value(STATE)))


def _restored(folder: Path, topic: Topic) -> float:
    """Seconds until a worker that starts in this folder knows what is live."""
    with workers(folder, topic, 1) as [worker]:
        # Not by its metrics: a scrape of all runs takes time from the worker.
        wait_until(lambda: worker.get("/readyz").status == 200, seconds=MINUTES * 60)
        wait_until(lambda: worker.value(LIVE) >= LIVE_RUNS and worker.value(RESTORED) > 0)
        seconds = float(worker.value(RESTORED))
        worker.kill()
        return seconds
