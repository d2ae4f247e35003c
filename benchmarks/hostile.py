"""One run that is new in everything at every step, a million times: memory stays bounded."""

from __future__ import annotations

import gc

import psutil

from benchmarks.measure import Line
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, Task
from tidegauge.streaming_metrics import Engine

STEPS = 1_000_000
CAPPED_AT = 250_000
"""By then every cap is reached: the largest is 200,000 exits, two a step."""


def measure() -> list[Line]:
    """Resident memory after a million steps, against that when every cap was just reached."""
    engine, process, resident = Engine(clock=None), psutil.Process(), {}
    engine.run_started(RunStarted(run="r", place="p", exits=("e",), t_max=50))
    for t in range(1, STEPS + 1):
        calls = (Call(f"tool {t}", t),)
        engine.step_issued(Step("r", calls, t, 1, uses=(f"u{t}",), mentions=(f"m{t}",)))
        engine.step_observed(
            Outcome(
                "r",
                (CallResult(t, True),),
                place=f"p{t}",
                exits=(f"e{t}", f"f{t}"),
                tasks=(Task(f"task {t}", ((f"other {t}",),)),),
                progress=t / STEPS,
            )
        )
        if t in (CAPPED_AT, STEPS):
            gc.collect()
            resident[t] = process.memory_info().rss
    return [
        Line(
            "a hostile run: resident memory at 1,000,000 steps / at 250,000",
            resident[STEPS] / resident[CAPPED_AT],
            "x",
            1.05,
            note=f"{resident[STEPS] / 1e6:.0f} MB in all",
        )
    ]
