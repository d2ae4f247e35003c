"""What it costs to read the words of every action, which the combined score needs."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import Line as Measured
from benchmarks.measure import medians
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Threshold
from tidegauge.streaming_metrics import Engine

STEPS = 2_000


def _steps(words: int) -> list[tuple[Step, Outcome]]:
    """Steps whose arguments have so many words, and an outcome of 200 characters."""
    text = " ".join(f"word{n}" for n in range(words - 1))
    return [
        (
            Step(run="r", calls=(Call("search", {"query": f"{text} {t}", "page": 1}),)),
            Outcome(run="r", results=(CallResult(f"{t:06d} " + "text " * 40, False),)),
        )
        for t in range(STEPS)
    ]


def _subject(words: int, *, repetition: bool, line: bool = False) -> Callable[[], None]:
    steps = _steps(words)
    lines = [Threshold("stagnation", 1e9, "stop")] if line else []

    def subject() -> None:
        sink = EngineSink(Engine(repetition=repetition), Policy(thresholds=lines))
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
        issue, observe = sink.step_issued, sink.step_observed
        for step, outcome in steps:
            issue(step)
            observe(outcome)

    return subject


def measure() -> list[Measured]:
    """Microseconds a step without and with it, and with a line that is asked at both moments."""
    taken = medians(
        {
            f"{name}, {words}": _subject(words, **settings)
            for words in (5, 200)
            for name, settings in (
                ("bare", {"repetition": False}),
                ("words", {"repetition": True}),
                ("line", {"repetition": True, "line": True}),
            )
        },
        rounds=9,
        inner=STEPS,
    )
    found = []
    for words in (5, 200):
        bare, read, asked = (taken[f"{name}, {words}"] for name in ("bare", "words", "line"))
        found += [
            Measured(f"metrics of a step of {words} words", bare * 1e6, "µs"),
            Measured("repetition adds", (read - bare) * 1e6, "µs"),
            Measured("metrics of a step with it / without", read / bare),
            Measured("a step under a calibrated line / without", asked / bare),
        ]
    return found
