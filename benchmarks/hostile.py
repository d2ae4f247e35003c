"""Runs with only new values at every step: neither memory nor the time of a step grows.

Every state, action, result, place, exit, task and entity comes once, so that every cap is reached
and something is dropped or evicted at every step from there on.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeAlias
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult

import tidegauge
from benchmarks.measure import Line
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, Task
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.streaming_metrics import Engine

STEPS = 1_000_000
CAPPED_AT = 250_000
"""By then every cap is reached: the largest is 200,000 exits, two a step."""

LONG = 50_000
"""Steps of the longer one of two runs, before both are timed."""

WARM_UP = 1_000
SLICES = 18
SLICE = 500
ROUNDS = 3

__all__ = ["Advance", "engine_run", "langchain_run", "measure"]

Advance: TypeAlias = Callable[[int], None]
"""Takes so many more steps of a run."""


def engine_run(cap: int = 10_000) -> Advance:
    """Through the engine, with everything that a step can report."""
    engine = Engine(clock=None, max_distinct=cap, max_period=cap)
    engine.run_started(RunStarted(run="r", place="p", exits=("e",), t_max=50))
    numbers = itertools.count(1)

    def advance(steps: int) -> None:
        for t in itertools.islice(numbers, steps):
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

    return advance


def _decorated_run() -> Advance:
    """Through a decorated tool."""
    numbers, context = itertools.count(1), copy_context()

    @tidegauge.tool
    def look(page: int) -> str:
        return f"page {page}"

    def steps_of(steps: int) -> None:
        for t in itertools.islice(numbers, steps):
            look(t)

    context.run(tidegauge.run(agent="benchmark").__enter__)  # its own context, for two at once
    return lambda steps: context.run(steps_of, steps)


def langchain_run() -> Advance:
    """Through the hooks of the handler, as LangChain calls them in a round of one call."""
    numbers, root = itertools.count(1), uuid4()
    history: list[BaseMessage] = []
    handler: Any = TidegaugeCallbackHandler(agent="benchmark")
    handler.on_chain_start({}, {"messages": []}, run_id=root)

    def advance(steps: int) -> None:
        for t in itertools.islice(numbers, steps):
            model, call, inputs = uuid4(), uuid4(), {"page": t}
            handler.on_chat_model_start({}, [history], run_id=model, parent_run_id=root)
            chosen = {"name": "look", "args": inputs, "id": f"call-{t}"}
            message = AIMessage("", tool_calls=[chosen])
            response = LLMResult(generations=[[ChatGeneration(message=message)]])
            handler.on_llm_end(response, run_id=model, parent_run_id=root)
            handler.on_tool_start(
                {"name": "look"},
                "",
                run_id=call,
                parent_run_id=root,
                inputs=inputs,
                tool_call_id=chosen["id"],
            )
            found = ToolMessage(f"page {t}", tool_call_id=chosen["id"])
            handler.on_tool_end(found, run_id=call)
            history.extend((message, found))

    return advance


def _growth(late: Advance, make: Callable[[], Advance]) -> float:
    """What a step of a long run costs, as a multiple of what one of the first 10,000 does.

    The processor time of slices of both, in turns, so that noise hits both alike; the median.
    """
    ratios = []
    for _ in range(ROUNDS):
        early = make()
        early(WARM_UP)
        gc.collect()
        for _ in range(SLICES):
            taken = []
            for advance in (early, late):
                began = time.process_time()
                advance(SLICE)
                taken.append(time.process_time() - began)
            ratios.append(taken[1] / taken[0])
    return statistics.median(ratios)


def _ways() -> list[Line]:
    """Growth past the caps, by the way in."""
    tidegauge.configure(serve_metrics=False)
    subjects: dict[str, Callable[[], Advance]] = {
        "engine": engine_run,
        "engine, caps of 1,000": lambda: engine_run(cap=1_000),
        "decorated tool": _decorated_run,
        "LangChain handler": langchain_run,
    }
    lines = []
    for name, make in subjects.items():
        late = make()
        late(LONG)
        what = f"a hostile run, {name}: a step after {LONG:,} / one of the first 10,000"
        lines.append(Line(what, _growth(late, make), "x", 1.1))
    return lines


def measure() -> list[Line]:
    """Time of a step and resident memory, late in a run against early in it."""
    import psutil  # not where only runs are taken from here

    lines = _ways()
    gc.collect()
    process, resident, late = psutil.Process(), {}, engine_run()
    late(CAPPED_AT)
    for steps, more in ((CAPPED_AT, 0), (STEPS, STEPS - CAPPED_AT)):
        late(more)
        gc.collect()
        resident[steps] = process.memory_info().rss
    return [
        *lines,
        Line(
            "a hostile run, engine: a step after 1,000,000 / one of the first 10,000",
            _growth(late, engine_run),
            "x",
            1.1,
        ),
        Line(
            "a hostile run: resident memory at 1,000,000 steps / at 250,000",
            resident[STEPS] / resident[CAPPED_AT],
            "x",
            1.05,
            note=f"{resident[STEPS] / 1e6:.0f} MB in all",
        ),
    ]
