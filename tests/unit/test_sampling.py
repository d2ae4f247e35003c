"""Spans of a run wait until it is known how the run went; troubled runs are exported whole."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

import tidegauge
from support.requirements import needs_fork
from tidegauge import ConfigurationError, testing
from tidegauge._span_counts import sampling_counts
from tidegauge.events import RunStarted
from tidegauge.runs.current import get_recorder
from tidegauge.sampling import TroubledSpanProcessor
from tidegauge.tracer import conventions as names

SAMPLED = (1 << 64) - 1
"""A trace id of which the random share has none; 1 is in every share."""


class Kept(SpanExporter):
    """Keeps what it exports, or fails."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.fails = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.fails:
            return SpanExportResult.FAILURE
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)

    @property
    def ratios(self) -> set[Any]:
        return {(span.attributes or {}).get("tidegauge.sample.ratio") for span in self.spans}


class Ids(RandomIdGenerator):
    """Trace ids that are in no random share, unless one is set."""

    def __init__(self) -> None:
        self.next = SAMPLED

    def generate_trace_id(self) -> int:
        return self.next | (RandomIdGenerator().generate_trace_id() >> 64 << 64)


class Setup:
    """An application with the processor, and tidegauge in it."""

    def __init__(self, **limits: Any) -> None:
        self.exporter = Kept()
        self.ids = Ids()
        self.provider = TracerProvider(id_generator=self.ids, shutdown_on_exit=False)
        self.processor = TroubledSpanProcessor(self.exporter, **{"sample": 0.0, **limits})
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("application")

    def configure(self, **settings: Any) -> None:
        self.pipeline = tidegauge.configure(
            tracer_provider=self.provider, serve_metrics=False, **settings
        )

    def sent(self) -> list[str]:
        """The names of what is exported by now; what waits is not decided."""
        self.processor.send_decided()
        return self.exporter.names


@contextmanager
def installed(**limits: Any) -> Iterator[Setup]:
    made = Setup(**limits)
    made.configure()
    try:
        yield made
    finally:
        made.pipeline.shutdown()
        made.provider.shutdown()


@pytest.fixture
def setup() -> Iterator[Setup]:
    with installed() as made:
        yield made


def decisions() -> dict[str, int]:
    found = sampling_counts.metrics()
    return {
        reason: count
        for metric, counts in found.items()
        if metric.name == "tidegauge_sampling_decisions_total"
        for (reason,), count in counts.items()
        if count
    }


def dropped() -> dict[str, int]:
    found = sampling_counts.metrics()
    return {
        reason: count
        for metric, counts in found.items()
        if metric.name == "tidegauge_sampling_dropped_spans_total"
        for (reason,), count in counts.items()
        if count
    }


def steps(run: Any, count: int = 3, *, loops: bool = False) -> None:
    for number in range(count):
        run.act("look", {"page": 0 if loops else number})
        run.observe("nothing" if loops else f"page {number}")


def test_spans_wait_and_a_healthy_run_is_counted(setup: Setup) -> None:
    with tidegauge.run(agent="healthy") as run:
        steps(run)
        assert setup.sent() == []
    assert setup.sent() == []
    assert decisions() == {"not_troubled": 1}
    assert dropped() == {"not_troubled": 4}


def test_a_run_that_loops_is_exported_whole(setup: Setup) -> None:
    with tidegauge.run(agent="looping") as run:
        steps(run, 4, loops=True)
    assert setup.sent() == [*["execute_tool look"] * 4, "invoke_agent looping"]
    assert setup.exporter.ratios == {1.0}
    assert decisions() == {"loop": 1}
    [root] = [span for span in setup.exporter.spans if span.parent is None]
    assert root.attributes is not None
    assert root.attributes["tidegauge.troubled"] is True
    assert root.attributes["tidegauge.troubles"] == ("loop", "result_streak")


def test_a_run_that_fails_is_exported(setup: Setup) -> None:
    with suppress(KeyError), tidegauge.run(agent="broken") as run:
        steps(run)
        raise KeyError
    with tidegauge.run(agent="unsolved") as run:
        steps(run)
        run.finish(success=False)
    assert len(setup.sent()) == 8
    assert decisions() == {"error": 1, "failure": 1}


def test_the_random_share_is_decided_by_the_trace_id(setup: Setup) -> None:
    setup.processor.sample = 0.25
    setup.ids.next = (1 << 62) - 1
    with tidegauge.run(agent="chosen") as run:
        steps(run)
    setup.ids.next = 1 << 62
    with tidegauge.run(agent="other") as run:
        steps(run)
    assert setup.sent() == [*["execute_tool look"] * 3, "invoke_agent chosen"]
    assert setup.exporter.ratios == {0.25}
    assert decisions() == {"sample": 1, "not_troubled": 1}
    # a troubled run is certain to be exported, whether or not it was drawn
    setup.ids.next = 1
    setup.exporter.spans.clear()
    with suppress(KeyError), tidegauge.run(agent="both"):
        raise KeyError
    setup.sent()
    assert setup.exporter.ratios == {1.0}


def test_spans_below_the_run_wait_with_it_and_those_around_it_do_not(setup: Setup) -> None:
    for fails in (False, True):
        setup.exporter.spans.clear()
        with setup.tracer.start_as_current_span("request"):
            setup.tracer.start_span("before").end()
            try:
                with tidegauge.run(agent="a"):
                    with setup.tracer.start_as_current_span("SELECT"):
                        setup.tracer.start_span("connect").end()
                    setup.provider.get_tracer("other").start_span("chat").end()
                    late = setup.tracer.start_span("background")
                    if fails:
                        raise KeyError
            except KeyError:
                pass
            setup.tracer.start_span("after").end()
            setup.tracer.start_span("background child", trace.set_span_in_context(late)).end()
            late.end()
        outside = ["after", "before", "request"]
        inside = ["SELECT", "background", "background child", "chat", "connect", "invoke_agent a"]
        setup.processor.force_flush()
        assert setup.exporter.names == sorted(outside + inside * fails)
    assert dropped() == {"not_troubled": 6}


def test_sub_agents_decide_with_their_root(setup: Setup) -> None:
    with tidegauge.run(agent="lead") as lead:
        steps(lead, 2)
        with tidegauge.run(agent="helper") as helper:
            steps(helper, 4, loops=True)
        assert setup.sent() == []
    assert len(setup.sent()) == 2 + 1 + 4 + 1
    with tidegauge.run(agent="lead") as lead, tidegauge.run(agent="helper") as helper:
        steps(helper, 1)
    assert len(setup.sent()) == 8
    assert decisions() == {"loop": 1, "not_troubled": 1}


def test_a_run_over_its_bounds_is_exported_from_then_on() -> None:
    with installed(max_spans=10) as setup:
        with tidegauge.run(agent="long") as run:
            steps(run, 9)
            assert setup.sent() == []
            steps(run, 20)
            assert len(setup.sent()) >= 19
        assert len(setup.sent()) == 30
        assert decisions() == {"beyond_limit": 1}


def test_bytes_are_bounded_over_all_runs() -> None:
    with installed(max_bytes=100_000) as setup:
        setup.configure(capture_content=True)
        context = trace.set_span_in_context(trace.INVALID_SPAN)
        recorder = get_recorder()
        runs = [recorder.start_run(RunStarted(run=f"r{n}", agent="a"), context) for n in range(20)]
        for run in runs:
            for _ in range(3):
                run.spans.end_tool(
                    run.spans.start_tool("look", arguments="x" * 4_000), result="y" * 4_000
                )
            assert setup.processor.waiting_bytes <= 100_000
        assert 0 < len(setup.sent()) < 60
        assert decisions()["beyond_limit"] > 10


def test_a_run_waits_for_a_limited_time() -> None:
    clock = testing.SteppedClock()
    with installed(max_seconds=60.0, clock=clock) as setup:
        with tidegauge.run(agent="slow") as run:
            steps(run, 2)
            clock.advance(61)
            assert len(setup.sent()) == 2
            steps(run, 1)
            assert len(setup.sent()) == 3
        assert len(setup.sent()) == 4
        assert decisions() == {"beyond_limit": 1}


def test_a_flush_and_a_shutdown_decide_what_waits(setup: Setup) -> None:
    with tidegauge.run(agent="a") as run:
        steps(run, 2)
        assert setup.provider.force_flush()
        assert len(setup.exporter.spans) == 2
        steps(run, 2)
        run2 = tidegauge.run(agent="b")
        with run2 as other:
            steps(other, 1)
            setup.provider.shutdown()
            assert len(setup.exporter.spans) == 5
    assert decisions() == {"unknown": 1}


def test_an_evicted_run_is_exported_as_unknown(setup: Setup) -> None:
    setup.configure(max_runs=1)
    recorder = get_recorder()
    context = trace.set_span_in_context(trace.INVALID_SPAN)
    recorder.start_run(RunStarted(run="r1", agent="a"), context)
    recorder.start_run(RunStarted(run="r2", agent="a"), context)
    assert setup.sent() == ["invoke_agent a"]
    assert decisions() == {"unknown": 1}


def test_a_suspended_run_waits_for_its_continuation(setup: Setup) -> None:
    recorder = get_recorder()
    context = trace.set_span_in_context(trace.INVALID_SPAN)
    for outcome in ("success", "failure"):
        run = recorder.start_run(RunStarted(run=outcome, agent="a"), context)
        run.suspend("interrupt", "checkpoint-1")
        assert setup.sent() == []
        run.resume(context)
        run.end(outcome=outcome)
    assert setup.sent() == ["invoke_agent a", "invoke_agent a"]
    assert {(span.attributes or {})[names.RUN_ID] for span in setup.exporter.spans} == {"failure"}
    assert decisions() == {"not_troubled": 1, "failure": 1}


def test_what_the_exporter_loses_is_counted(setup: Setup) -> None:
    setup.exporter.fails = True
    with suppress(KeyError), tidegauge.run(agent="a") as run:
        steps(run, 2)
        raise KeyError
    setup.processor.force_flush()
    assert dropped() == {"export_failed": 3}


def test_many_spans_of_one_run_do_not_overflow_the_batch_processor(setup: Setup) -> None:
    with suppress(KeyError), tidegauge.run(agent="a") as run:
        steps(run, 5_000)
        raise KeyError
    setup.processor.force_flush()
    assert Counter(setup.exporter.names) == {"execute_tool look": 5_000, "invoke_agent a": 1}


def test_a_slow_exporter_bounds_what_is_queued() -> None:
    with installed(max_bytes=50_000) as setup:
        gate = threading.Event()
        export = setup.exporter.export

        def slowly(spans: Sequence[ReadableSpan]) -> SpanExportResult:
            gate.wait(10)
            return export(spans)

        setup.exporter.export = slowly  # type: ignore[method-assign]
        for _ in range(300):
            with suppress(KeyError), tidegauge.run(agent="a") as run:
                steps(run, 4)
                raise KeyError
        gate.set()
        setup.processor.force_flush()
        lost = dropped()
        assert lost["queue_full"] > 500
        assert len(setup.exporter.spans) + lost["queue_full"] == 300 * 5


def test_spans_that_belong_to_no_run_pass(setup: Setup) -> None:
    setup.tracer.start_span("alone").end()
    setup.processor.force_flush()
    assert setup.exporter.names == ["alone"]
    assert setup.exporter.ratios == {None}


def test_nothing_is_held_once_it_is_decided(setup: Setup) -> None:
    for _ in range(3):
        with tidegauge.run(agent="a") as run:
            steps(run, 3)
    gc.collect()
    assert setup.processor.waiting_bytes == 0
    assert setup.processor.waiting_runs == 0


@needs_fork
def test_a_fork_leaves_what_waits_to_the_parent(setup: Setup) -> None:
    with suppress(KeyError), tidegauge.run(agent="a") as run:
        steps(run, 2)
        child = os.fork()
        if not child:
            code = 1
            try:
                waits = setup.processor.waiting_runs
                with tidegauge.run(agent="child") as inner:
                    steps(inner, 4, loops=True)
                setup.processor.force_flush()
                code = 0 if not waits and "invoke_agent child" in setup.exporter.names else 2
                code = 3 if setup.exporter.names.count("execute_tool look") != 4 else code
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        raise KeyError
    assert len(setup.sent()) == 3


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"sample": 1.5}, "sample is 1.5; use a share from 0 to 1"),
        ({"max_spans": 0}, "max_spans is 0"),
        ({"max_seconds": -1.0}, "max_seconds is -1.0"),
    ],
)
def test_limits_are_checked(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        TroubledSpanProcessor(Kept(), **limits)


def test_every_span_of_many_threads_is_exported_or_counted() -> None:
    with installed(sample=0.3, max_bytes=200_000, max_spans=40) as setup:
        setup.ids.generate_trace_id = RandomIdGenerator().generate_trace_id  # type: ignore[method-assign]

        def work(first: int) -> None:
            for number in range(first, first + 40):
                with suppress(KeyError), tidegauge.run(agent="a") as run:
                    steps(run, number % 50)
                    with setup.tracer.start_as_current_span("part"):
                        pass
                    if number % 7 == 0:
                        raise KeyError

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        setup.processor.force_flush()
        spans = sum(number % 50 + 2 for first in range(8) for number in range(first, first + 40))
        assert len(setup.exporter.spans) + sum(dropped().values()) == spans
        assert sum(decisions().values()) == 8 * 40
        assert decisions()["beyond_limit"] > 0
        assert (setup.processor.waiting_runs, setup.processor.waiting_bytes) == (0, 0)


def test_a_run_of_ours_is_sent_without_a_flush() -> None:
    with installed(sample=1.0) as setup:
        with tidegauge.run(agent="a") as run:
            steps(run, 2)
        assert setup.processor._thread is not None
        assert setup.processor._thread.is_alive()
        deadline = time.monotonic() + 10
        while setup.processor._queue:
            assert time.monotonic() < deadline
            time.sleep(0.01)
