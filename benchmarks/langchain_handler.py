"""Target 1: what the LangChain handler adds to an agent's step, against the floor.

The agent, its steps and the floor are those of :mod:`benchmarks.scripted_agent`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tidegauge
from benchmarks.measure import Line, medians
from benchmarks.scripted_agent import Discard, Floor, scripted_run
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.runs.current import set_recorder

STEPS = 50
ROUNDS = 20


def _seconds_in_hooks(steps: int, *, rounds: int = 9) -> float:
    """Median time that the handler's hooks take for one step of a run of that length."""
    taken = []
    for _ in range(rounds if steps < 500 else 3):
        handler = TidegaugeCallbackHandler(agent="benchmark")
        spent = 0.0

        def timed(hook: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                nonlocal spent
                began = time.perf_counter()
                try:
                    return hook(*args, **kwargs)
                finally:
                    spent += time.perf_counter() - began

            return wrapper

        for name in dir(handler):
            if name.startswith("on_") and name in type(handler).__dict__:
                setattr(handler, name, timed(getattr(handler, name)))
        scripted_run(steps, lambda handler=handler: [handler])()  # type: ignore[misc]
        taken.append(spent / steps)
    return statistics.median(taken)


def measure() -> list[Line]:
    """Added time a step, as multiples of the floor's."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discard(), max_queue_size=100_000))
    tracer = provider.get_tracer("floor")

    def handler() -> list[BaseCallbackHandler]:
        return [TidegaugeCallbackHandler(agent="benchmark")]

    with_spans = tidegauge.configure(tracer_provider=provider, serve_metrics=False).recorder
    without_spans = tidegauge.configure(serve_metrics=False).recorder

    def using(recorder: Any) -> Callable[[], list[BaseCallbackHandler]]:
        def handlers() -> list[BaseCallbackHandler]:
            set_recorder(recorder)
            return handler()

        return handlers

    subjects: dict[str, Callable[[], object]] = {
        "bare": scripted_run(STEPS, list),
        "floor": scripted_run(STEPS, lambda: [Floor(tracer)]),
        "spans": scripted_run(STEPS, using(with_spans)),
        "metrics": scripted_run(STEPS, using(without_spans)),
    }
    taken = medians(subjects, rounds=ROUNDS, inner=STEPS)
    floor = taken["floor"] - taken["bare"]

    # Growth with the run, inside the hooks: the framework's own step grows with its history, and
    # the difference of two such numbers would mean nothing.
    set_recorder(with_spans)
    inside = {steps: _seconds_in_hooks(steps) for steps in (50, 1_000)}
    provider.shutdown()
    return [
        Line("agent step without callbacks", taken["bare"] * 1e6, "µs"),
        Line("floor: four bare spans, added", floor * 1e6, "µs"),
        Line(
            "handler with spans and metrics / floor",
            (taken["spans"] - taken["bare"]) / floor,
            "x",
            1.0,
        ),
        Line(
            "handler with metrics only / floor",
            (taken["metrics"] - taken["bare"]) / floor,
            "x",
            0.4,
        ),
        Line(
            "handler, per step at 1,000 steps / at 50, inside its hooks",
            inside[1_000] / inside[50],
            "x",
            1.1,
        ),
    ]
