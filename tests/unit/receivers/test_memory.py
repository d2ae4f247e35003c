"""What open traces and runs hold: bounded, counted about right, and freed at once when they end."""

from __future__ import annotations

import gc
import itertools
import json
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.other_spans import Listener
from tidegauge import testing
from tidegauge.foreign_spans.external_run import ExternalRun
from tidegauge.foreign_spans.matching import MAX_SHOWN_BYTES, SpanTurn
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly, AssemblyLimits

MEGABYTE = 1_000_000

_ids = itertools.count(1)
_times = itertools.count(1_000, 10)


def span(trace: int, parent: int | None, name: str, attributes: Any, **fields: Any) -> SpanData:
    number = fields.pop("span_id", None) or next(_ids)
    times = next(_times), next(_times)
    return SpanData(trace, number, parent, name, "theirs", attributes, *times, size=2_000, **fields)


def chat(trace: int, parent: int, call: str, arguments: object = None, **fields: Any) -> SpanData:
    said = {"type": "tool_call", "id": call, "name": "look", "arguments": arguments or {"q": call}}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [said]}]),
    }
    return span(trace, parent, "chat", attributes, **fields)


def tool(trace: int, parent: int, call: str, result: str = "") -> SpanData:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": call,
        "gen_ai.tool.call.result": result or f"what {call} found in row {call}",
    }
    return span(trace, parent, "execute_tool look", attributes)


def open_runs(steps: int) -> Iterator[list[SpanData]]:
    """Runs whose roots never end."""
    while True:
        trace = root = next(_ids)
        calls = [f"c{next(_ids)}" for _ in range(steps)]
        yield [each(trace, root, call) for call in calls for each in (chat, tool)]


def long_runs() -> Iterator[list[SpanData]]:
    """Steps of ten runs, each a new one."""
    traces = [next(_ids) for _ in range(10)]
    while True:
        yield [each(trace, trace, f"c{next(_ids)}") for trace in traces for each in (chat, tool)]


def open_traces() -> Iterator[list[SpanData]]:
    """Traces without agents, whose roots never end."""
    while True:
        trace = next(_ids)
        yield [span(trace, next(_ids), "GET /", {}) for _ in range(20)]


def remembered_spans() -> Iterator[list[SpanData]]:
    """Spans of one trace without an agent."""
    while True:
        yield [span(7, 8, "GET /", {}) for _ in range(100)]


def awaited_parents() -> Iterator[list[SpanData]]:
    """Calls of one run that waits for a tool, each in a span of which nothing is known."""
    trace = root = next(_ids)
    yield [chat(trace, root, "first")]
    while True:
        yield [chat(trace, next(_ids), f"c{next(_ids)}") for _ in range(20)]


def long_ids() -> Iterator[list[SpanData]]:
    """Ids of calls that take a lot of room."""
    traces = [next(_ids) for _ in range(10)]
    while True:
        yield [chat(trace, trace, f"{next(_ids):09}" * 500, {"q": 1}) for trace in traces]


def large_contents() -> Iterator[list[SpanData]]:
    """Arguments and results of many kilobytes."""
    while True:
        trace = root = next(_ids)
        for number in range(8):
            call = f"c{next(_ids)}"
            arguments = {"text": f"{call} {number}" * 3_000}
            yield [chat(trace, root, call, arguments), tool(trace, root, call, "found " * 5_000)]


SHAPES: dict[str, Callable[[], Iterator[list[SpanData]]]] = {
    "open runs": lambda: open_runs(2),
    "open runs of some steps": lambda: open_runs(12),
    "long runs": long_runs,
    "open traces": open_traces,
    "remembered spans": remembered_spans,
    "awaited parents": awaited_parents,
    "long ids": long_ids,
    "large contents": large_contents,
}


class Fed:
    """An assembly that gets spans, a request every hundredth of a second."""

    def __init__(self, **limits: Any) -> None:
        self.assembly = Assembly(limits=AssemblyLimits(allowed_lateness=0.0, **limits))
        self.now = 0.0

    def take(self, spans: list[SpanData]) -> None:
        self.now += 0.01
        self.assembly.take(spans, now=self.now)


@pytest.fixture
def uncollected():
    """No collector runs meanwhile: what refers to itself stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_held_is_counted_about_right(shape: str) -> None:
    with testing.capture(repetition=True):
        fed = Fed(pending_bytes=0 if shape == "awaited parents" else 10 * MEGABYTE)
        requests = SHAPES[shape]()
        for _ in range(3):  # what is made once
            fed.take(next(requests))
        gc.collect()
        tracemalloc.start()
        try:
            before = fed.assembly.state_bytes
            while (counted := fed.assembly.state_bytes - before) < 3 * MEGABYTE:
                fed.take(next(requests))
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert taken < 1.25 * counted
    assert taken > counted / 3


@pytest.mark.parametrize("shape", SHAPES)
def test_no_traffic_takes_more_than_the_limit(shape: str, caplog: Any) -> None:
    with testing.capture():
        fed = Fed(state_bytes=MEGABYTE)
        requests = SHAPES[shape]()
        while not (reported := [one for one in caplog.messages if "take more than 1 MB" in one]):
            fed.take(next(requests))
        for _ in range(50):
            fed.take(next(requests))
            assert fed.assembly.state_bytes <= MEGABYTE
    assert len([one for one in caplog.messages if one in reported]) == 1
    assert "--max-state-bytes" in reported[0]


def test_beyond_the_limit_what_is_idle_for_longest_ends() -> None:
    with testing.capture() as seen:
        listener = Listener(seen)
        fed = Fed(state_bytes=MEGABYTE)
        requests = open_runs(2)
        busy = next(requests)
        for _ in range(80):
            fed.take(next(requests))
            fed.take([chat(busy[0].trace_id, busy[0].parent_id or 0, f"c{next(_ids)}")])
    ended = [one for one in listener.ended if one.reason == "too many runs"]
    started = [one.run for one in listener.started if one.run != f"{busy[0].trace_id:032x}"]
    assert len(ended) > 10
    assert seen.pipeline.engine.snapshot().evicted_runs == len(ended)
    assert [one.run for one in ended] == started[: len(ended)]


def test_runs_that_have_no_end_are_freed_at_once(uncollected: None) -> None:
    with testing.capture():
        fed = Fed(runs=5, traces=5)
        for request, _ in zip(open_runs(3), range(50), strict=False):
            fed.take(request)
        assert alive(SpanTurn) <= 3 * 6
        fed.assembly._spans._models.clear()  # the last thousand model calls name their runs
        assert alive(ExternalRun) <= 6


def test_turns_that_cannot_be_shown_again_are_freed_at_once(uncollected: None) -> None:
    with testing.capture():
        fed = Fed()
        for request, _ in zip(long_runs(), range(100), strict=False):
            fed.take(request)
        assert alive(SpanTurn) <= 10 * 66


def test_an_ended_run_holds_none_of_its_turns(uncollected: None) -> None:
    with testing.capture():
        fed = Fed()
        for _ in range(20):
            trace = root = next(_ids)
            about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
            calls = [each(trace, root, "c") for each in (chat, tool)]
            fed.take([*calls, span(trace, None, "invoke_agent a", about, span_id=root)])
        assert alive(SpanTurn) == 0


class Attributes(dict):
    """Attributes of which it can be seen whether anything holds them."""


def test_of_a_span_whose_parent_is_awaited_nothing_is_held_that_it_said(uncollected: None) -> None:
    with testing.capture():
        fed = Fed()
        trace, chain = next(_ids), next(_ids)
        fed.take([each(trace, chain, "c") for each in (chat, tool)])
        attributes = Attributes({"openinference.span.kind": "CHAIN", "input.value": "k" * 1_000})
        held = weakref.ref(attributes)
        fed.take([span(trace, next(_ids), "step", attributes, span_id=chain)])
        del attributes
        assert fed.assembly.open_runs == 1
        assert held() is None


def test_what_may_be_shown_again_is_bounded_in_memory(uncollected: None) -> None:
    with testing.capture():
        fed = Fed()
        trace = root = next(_ids)
        tracemalloc.start()
        try:
            for number in range(60):
                call, text = f"c{number}", f"{number:09} " * 50_000
                fed.take([chat(trace, root, call, {"text": text}), tool(trace, root, call, text)])
                del text
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        [run] = fed.assembly._spans._runs.values()
        assert run.turns.held_bytes < 2.5 * MAX_SHOWN_BYTES
    assert taken < 16 * 1024 * 1024 + 3 * MAX_SHOWN_BYTES  # of all runs together, and of this one
