"""A thousand runs at once, of every way in, over threads and tasks: none has anything of another.

``TIDEGAUGE_MANY_RUNS_SECONDS`` says for how long; a few seconds unless it is set.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from support import crowd
from support.crowd import LangChainAgents, Witness
from support.requirements import IN_CI
from tidegauge import testing
from tidegauge.runs.open_run import current_run
from tidegauge.safety.guard import internal_errors

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TIDEGAUGE_MANY_RUNS_SECONDS", "10" if IN_CI else "3"))
RUNS: dict[Callable[..., Any], int] = {
    crowd.thread_run: 200,
    crowd.thread_agent: 150,
    crowd.task_run: 250,
    crowd.task_agent: 200,
    crowd.generator_agent: 140,
    LangChainAgents.runnable: 40,
    LangChainAgents.graph: 20,
}
SETTINGS: dict[str, Any] = {"stop_on_loop": 3, "capture_content": True}
IN_THREADS = (crowd.thread_run, crowd.thread_agent)
TOLERANCE = 1.15
"""Resident memory after the last wave against after the second: the allocator keeps what 350
threads and a loop have used, in pieces that differ from wave to wave. What each wave leaks adds
up: over a minute, 4 kB a run would be seen."""


class Crowd:
    """All runs of one wave, which meet once they are all open."""

    def __init__(self, langchain: LangChainAgents) -> None:
        self.langchain = langchain
        self.numbers: dict[Callable[..., Any], range] = {}
        for kind, count in RUNS.items():
            self.numbers[kind] = range(count)
        self.everybody = sum(RUNS.values())
        self.here = 0
        self.lock = threading.Lock()
        self.full, self.go = threading.Event(), threading.Event()
        self.errors: list[BaseException] = []

    def arrive(self) -> None:
        with self.lock:
            self.here += 1
            if self.here == self.everybody:
                self.full.set()

    async def meet_in_thread(self) -> None:
        self.arrive()
        assert self.go.wait(120)

    async def meet_in_task(self) -> None:
        self.arrive()
        while not self.go.is_set():
            await asyncio.sleep(0.005)

    def in_thread(self, kind: Callable[..., Any], number: int) -> None:
        try:
            kind(number, self.meet_in_thread)
            assert current_run.get() is None
        except BaseException as error:
            self.errors.append(error)

    async def in_task(self, kind: Callable[..., Any], number: int) -> None:
        of_langchain = kind in (LangChainAgents.runnable, LangChainAgents.graph)
        await (
            kind(self.langchain, number, self.meet_in_task)
            if of_langchain
            else kind(number, self.meet_in_task)
        )
        assert current_run.get() is None

    async def in_tasks(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind, numbers in self.numbers.items():
                if kind not in IN_THREADS:
                    for number in numbers:
                        tasks.create_task(self.in_task(kind, number))

    def loop(self) -> None:
        try:
            asyncio.run(self.in_tasks())
        except BaseException as error:
            self.errors.append(error)

    def run(self, count_open: Callable[[], int]) -> int:
        """Let everybody come, meet and go; how many runs were open when they met."""
        threads = [threading.Thread(target=self.loop)]
        for kind in IN_THREADS:
            for number in self.numbers[kind]:
                threads.append(threading.Thread(target=self.in_thread, args=(kind, number)))
        for thread in threads:
            thread.start()
        met = self.full.wait(120)
        opened = count_open()
        self.go.set()
        for thread in threads:
            thread.join()
        assert self.errors == []
        assert met
        return opened


class Spans(SpanProcessor):
    """Looks at the spans of each wave: all are ended, and each hangs on its own run's."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def check(self) -> int:
        """Whether it is so; how many there were."""
        ended, self.ended = self.ended, []
        assert len(ended) == self.started
        self.started = 0
        roots = {s.context.span_id: s for s in ended if s.name.startswith("invoke_agent")}
        assert len(roots) == sum(RUNS.values())
        for span in ended:
            if span.name == "execute_tool look":
                root = roots[span.parent.span_id]
                number = str(root.attributes["tidegauge.task"])
                assert str(span.attributes["gen_ai.tool.call.arguments"]).startswith(
                    (f'{{"what":"{number}: ', f"{{'what': '{number}: ")
                )
        return len(ended)


def alone(langchain: LangChainAgents) -> dict[Any, Any]:
    """What is said of each run when there is no other."""

    async def at_once() -> None:
        pass

    with testing.capture(**SETTINGS) as seen:
        witness = Witness(seen.pipeline)
        meeting = Crowd(langchain)
        meeting.go.set()
        for kind, count in RUNS.items():
            for number in range(count):
                if kind in IN_THREADS:
                    kind(number, at_once)
                else:
                    asyncio.run(meeting.in_task(kind, number))
    return witness.said


@pytest.mark.slow
def test_a_thousand_runs_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    langchain = LangChainAgents()
    expected = alone(langchain)
    assert len(expected) == sum(RUNS.values()) == 1_000
    process, spans = psutil.Process(), Spans()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(spans)
    providers = {
        "tracer_provider": provider,
        "logger_provider": LoggerProvider(shutdown_on_exit=False),  # keeps no events
    }
    memory: list[int] = []
    steps = spans_seen = 0
    with testing.capture(**SETTINGS, **providers) as seen:
        pipeline = seen.pipeline
        witness, ends = Witness(pipeline), time.monotonic() + SECONDS
        while len(memory) < 2 or time.monotonic() < ends:
            opened = Crowd(langchain).run(lambda: len(pipeline.engine.snapshot().active))
            assert opened == 1_000
            for key, said in expected.items():
                assert witness.said[key] == said, key
            assert len(witness.said) == 1_000
            assert witness._open == {}
            steps += sum(len(said) // 2 for said in witness.said.values())
            spans_seen += spans.check()
            snapshot = pipeline.engine.snapshot()
            assert not snapshot.active
            assert (snapshot.evicted_runs, snapshot.dropped_events) == (0, 0)
            assert pipeline.recorder.spans.open_runs == 0
            assert len(langchain.handler._runs) == 0
            witness.said.clear()
            gc.collect()
            memory.append(process.memory_info().rss)
        assert sum(sum(g.finished.finished.values()) for g in snapshot.groups) == 1_000 * len(
            memory
        )
    assert internal_errors.counts() == {}
    megabytes = [f"{rss / 2**20:.0f}" for rss in memory]
    with capsys.disabled():
        print(
            f"\n{len(memory)} waves of 1,000 runs at once: {steps} steps, {spans_seen} spans;"
            f" memory after each, MB: {' '.join(megabytes)}"
        )
    assert memory[-1] <= TOLERANCE * memory[1], megabytes
