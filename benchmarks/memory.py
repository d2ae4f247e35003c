"""Target 4: memory of an active run, and of runs that ended."""

from __future__ import annotations

import gc
import tracemalloc

import psutil

from benchmarks.measure import Line
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine

ACTIVE_RUNS = 10
STEPS = 1_000


def _steps(sink: EngineSink, run: str, steps: int) -> None:
    sink.run_started(RunStarted(run=run, agent="a", task_group="g", t_max=50))
    for t in range(steps):
        sink.step_issued(Step(run=run, calls=(Call("read", {"id": t}),)))
        result = CallResult(f"{run} outcome {t}", False)
        sink.step_observed(Outcome(run=run, results=(result,), progress=t / steps))


def measure() -> list[Line]:
    """Kilobytes of a run with distinct states; resident memory after many that ended."""
    sink = EngineSink(Engine(), Policy())
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(ACTIVE_RUNS):
        _steps(sink, f"active-{number}", STEPS)
    gc.collect()
    held = (tracemalloc.get_traced_memory()[0] - before) / ACTIVE_RUNS
    tracemalloc.stop()
    del sink

    sink, process, resident = EngineSink(Engine(), Policy()), psutil.Process(), {}
    for number in range(1, 100_001):
        run = f"run-{number}"
        _steps(sink, run, 5)
        sink.run_ended(RunEnded(run=run, success=number % 2 == 0))
        if number in (1_000, 100_000):
            gc.collect()
            resident[number] = process.memory_info().rss
    return [
        Line("an active run of 1,000 steps, every state new", held / 1_000, "kB", 300),
        Line(
            "resident memory after 100,000 ended runs / after 1,000",
            resident[100_000] / resident[1_000],
            "x",
            1.05,
        ),
    ]
