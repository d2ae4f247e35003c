"""Target 2: all default metrics for one step, apart from spans, and the loop detector alone."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import Line, medians
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine, IssuedStep, Loops

STEPS = 2_000


def _steps(run: str, states: int) -> list[tuple[Step, Outcome]]:
    """Steps as adapters make them: small arguments, an outcome of 200 characters."""
    return [
        (
            Step(run=run, calls=(Call("read_document", {"id": t % states, "page": 1}),)),
            Outcome(run=run, results=(CallResult(f"{t % states:06d} " + "text " * 40, False),)),
        )
        for t in range(STEPS)
    ]


def _metrics(states: int) -> Callable[[], None]:
    steps = _steps("r", states)

    def subject() -> None:
        sink = EngineSink(Engine(), Policy())
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
        issue, observe = sink.step_issued, sink.step_observed
        for step, outcome in steps:
            issue(step)
            observe(outcome)

    return subject


def _loops(period: int, *, before: int = 0) -> Callable[[], None]:
    """The detector after ``before`` steps, on states of that period."""
    loops = Loops()
    for t in range(before):
        loops.update(IssuedStep(t, t.to_bytes(16), b"a" * 16))
    records = [IssuedStep(t, (t % period).to_bytes(16, "little"), b"a" * 16) for t in range(STEPS)]

    def subject() -> None:
        update = loops.update
        for record in records:
            update(record)

    return subject


def measure() -> list[Line]:
    """Microseconds a step, and how they grow with the run."""
    taken = medians(
        {
            "new": _metrics(STEPS),
            "loop": _metrics(3),
            "loops": _loops(3),
            "loops late": _loops(3, before=1_000_000),
            "loops new": _loops(STEPS),
        },
        inner=STEPS,
    )
    return [
        Line("metrics of a step, every result new", taken["new"] * 1e6, "µs", 15),
        Line("metrics of a step, in a loop of 3", taken["loop"] * 1e6, "µs", 15),
        Line("loop detector alone, in a loop of 3", taken["loops"] * 1e6, "µs", 1.5),
        Line("loop detector alone, every state new", taken["loops new"] * 1e6, "µs", 1.5),
        Line(
            "loop detector: after 1,000,000 steps / at the start",
            taken["loops late"] / taken["loops"],
            "x",
            1.2,
        ),
    ]
