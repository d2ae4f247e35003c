"""Target 5: spans over gRPC to metrics that can be scraped, in one process, and their delay.

Two loads: agents' spans alone, each of which is half a step; and agents' spans among those of
databases and web clients, as a service sends them. The sender is a separate process; the two
share the machine's processors.
"""

from __future__ import annotations

import itertools
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer, set_span_in_context

from benchmarks.measure import Line
from benchmarks.otlp_load import Load, Sender, make_load
from benchmarks.raw_receiver import raw_receiver
from benchmarks.served import Served, served

__all__ = ["OTHERS", "STEPS", "Pace", "measure", "rate"]

SECONDS = 4.0
ROUNDS = 3
MARK_SPANS = 60_000
MARK_AGENT_SPANS = 30_000
OTHERS = 8
"""Spans of no agent, a step, in the mixed load: two of ten are the agent's."""

PROBES = 150
BATCH_MILLISECONDS = 200
STEPS = "tidegauge_steps_total"
RECEIVED = "tidegauge_receiver_spans_total"

_numbers = itertools.count(1)  # a trace id of nothing but zeros is none


def measure() -> list[Line]:
    """Spans a second of both loads beside what gRPC and protobuf allow; the latency of a step."""
    agents, mixed = make_load(), make_load(OTHERS)
    raws: list[float] = []
    of_agents: list[Found] = []
    of_mixed: list[Found] = []
    for _ in range(ROUNDS):
        with raw_receiver() as target:
            raws.append(rate(target, mixed, lambda steps: None))
        of_agents.append(throughput(agents))
        of_mixed.append(throughput(mixed))
    raw, (alone, alone_cost), (among, among_cost) = (
        statistics.median(raws),
        _median(of_agents),
        _median(of_mixed),
    )
    with served() as server, Pace(server.target, mixed, among / 2):
        late = latencies(server)
    busy = statistics.quantiles(late, n=100)
    return [
        Line("gRPC and protobuf alone, thousand spans a second", raw / 1e3, "k/s"),
        Line(
            "receiver, spans of services and agents",
            among / 1e3,
            "k/s",
            MARK_SPANS / 1e3,
            at_least=True,
            note=f"{among / raw:.2f} of gRPC and protobuf alone; 2 of {OTHERS + 2} are an agent's; "
            f"{among_cost:.0f} µs of processor time each",
        ),
        Line(
            "receiver, agents' spans only",
            alone / 1e3,
            "k/s",
            MARK_AGENT_SPANS / 1e3,
            at_least=True,
            note=f"{alone / raw:.2f} of gRPC and protobuf alone; {alone / 2:,.0f} steps a second; "
            f"{alone_cost:.0f} µs of processor time each",
        ),
        Line(
            "from a span's end to its metric, half of that load, p99",
            busy[98],
            "s",
            1.0,
            note=f"median {busy[49]:.2f} s; batches of {BATCH_MILLISECONDS} ms",
        ),
    ]


class Found(NamedTuple):
    """What a receiver bears.

    Args:
        per_second: spans.
        microseconds: of a processor, for a span: what else the machine does leaves this alone.
    """

    per_second: float
    microseconds: float


def throughput(load: Load) -> Found:
    """As much of a load as a receiver takes that is started for it."""
    with served() as server:
        before = server.processor_seconds
        per_second = rate(server.target, load, partial(server.wait_for, STEPS))
        used = server.processor_seconds - before
        return Found(per_second, used / server.total(RECEIVED) * 1e6)


def _median(found: Iterable[Found]) -> Found:
    return Found(*(statistics.median(numbers) for numbers in zip(*found, strict=True)))


def rate(target: str, load: Load, until: Callable[[float], object]) -> float:
    """Spans a second, from the first that is sent to the last that is measured.

    Args:
        target: where to send them.
        load: a wave, sent again and again.
        until: waits until so many steps are seen.
    """
    sender = Sender(target)
    waves = 0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        for body in load.wave(next(_numbers)):
            sender.send(body)
        waves += 1
    sender.finish()
    until(waves * load.steps)
    taken = time.perf_counter() - began
    sender.close()
    return waves * load.spans / taken


class Pace:
    """Sends at a rate from a thread, as long as it is the context.

    Args:
        target: where to.
        load: a wave, sent again and again.
        per_second: spans.

    Attributes:
        sent: spans so far.
        steps: of those that whole waves had.
    """

    def __init__(self, target: str, load: Load, per_second: float) -> None:
        self._sender = Sender(target)
        self._load = load
        self._per_second = per_second
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0.0
        self.steps = 0

    @property
    def retries(self) -> int:
        """Requests that were refused and sent again."""
        return self._sender.retries

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send the rest of the wave, and no more."""
        self._over.set()
        self._thread.join()
        self._sender.close()

    def _send(self) -> None:
        began = time.perf_counter()
        a_request = self._load.spans / len(self._load.bodies)
        while not self._over.is_set():
            for body in self._load.wave(next(_numbers)):
                ahead = self.sent / self._per_second - (time.perf_counter() - began)
                if ahead > 0:
                    time.sleep(ahead)
                self._sender.send(body)
                self.sent += a_request
            self.steps += self._load.steps
        self._sender.finish()


def latencies(server: Served) -> list[float]:
    """Seconds from the end of a model call's span to the scrape that shows its step.

    The spans come from the SDK, in batches of 200 ms. A scrape shows all steps that have arrived,
    so that the time between two of them, 50 ms, is in every number.
    """
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"http://{server.target}", insecure=True)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_MILLISECONDS)
    )
    ended: list[float] = []
    over = threading.Event()
    agent = threading.Thread(target=_probe, args=(provider.get_tracer("probe"), ended, over))
    agent.start()
    found: list[float] = []
    try:
        until = time.monotonic() + 60
        while len(found) < PROBES and time.monotonic() < until:
            time.sleep(0.05)
            seen = server.total(STEPS, 'agent="probe"')
            now = time.perf_counter()
            found += [now - each for each in ended[len(found) : int(seen)]]
    finally:
        over.set()
        agent.join()
        provider.shutdown()
    return found


def _probe(tracer: Tracer, ended: list[float], over: threading.Event) -> None:
    """An agent that chooses a step every 50 ms."""
    about = {"gen_ai.agent.name": "probe"}
    attributes = {"gen_ai.operation.name": "invoke_agent", **about}
    run = tracer.start_span("invoke_agent probe", attributes=attributes)
    context = set_span_in_context(run)
    while not over.wait(0.05):
        call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {"n": len(ended)}}
        said = json.dumps([{"role": "assistant", "parts": [call]}])
        attributes = {"gen_ai.operation.name": "chat", **about, "gen_ai.output.messages": said}
        tracer.start_span("chat", context=context, attributes=attributes).end()
        ended.append(time.perf_counter())
        attributes = {"gen_ai.operation.name": "execute_tool", **about, "gen_ai.tool.name": "look"}
        attributes |= {"gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": f"seen {len(ended)}"}
        tracer.start_span("execute_tool look", context=context, attributes=attributes).end()
    run.end()
