"""Mark 1: what the LangChain handler adds to an agent's step, against the floor.

The floor is the shortest handler that opens and closes the four spans of a step (two graph nodes,
model call, tool call) with explicit parents and no attributes. A step is one model call and one
tool call of a real ``create_agent`` agent whose model is scripted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, Tracer, set_span_in_context

import tidegauge
from benchmarks.measure import Line, medians
from tidegauge.instrumentation.current import set_recorder
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

STEPS = 50
ROUNDS = 20


class _Discard(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class _Scripted(BaseChatModel):
    """Calls one tool ``steps`` times with new arguments, then answers."""

    steps: int

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        message = AIMessage("done")
        if turn < self.steps:
            call = {"name": "look", "args": {"page": turn}, "id": f"call-{turn}"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


class _Floor(BaseCallbackHandler):
    """Four spans a step, explicit parents, no attributes: nothing shorter makes them."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[UUID, Span] = {}

    def _start(self, name: str, run_id: UUID, parent_run_id: UUID | None) -> None:
        parent = self._spans.get(parent_run_id) if parent_run_id else None
        context = set_span_in_context(parent) if parent is not None else None
        self._spans[run_id] = self._tracer.start_span(name, context)

    def _end(self, run_id: UUID) -> None:
        self._spans.pop(run_id).end()

    def on_chain_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        self._start("chain", run_id, parent_run_id)

    def on_chain_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id)

    def on_chat_model_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        self._start("chat", run_id, parent_run_id)

    def on_llm_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id)

    def on_tool_start(
        self, *args: Any, run_id: UUID, parent_run_id: Any = None, **kwargs: Any
    ) -> None:
        self._start("tool", run_id, parent_run_id)

    def on_tool_end(self, *args: Any, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id)


@tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} says something of its own"


def _run(steps: int, handlers: Callable[[], list[BaseCallbackHandler]]) -> Callable[[], Any]:
    agent: Any = create_agent(_Scripted(steps=steps), [look])
    config = {"recursion_limit": 10_000}
    return lambda: agent.invoke(
        {"messages": [("user", "look around")]}, {**config, "callbacks": handlers()}
    )


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
        _run(steps, lambda handler=handler: [handler])()  # type: ignore[misc]
        taken.append(spent / steps)
    return statistics.median(taken)


def measure() -> list[Line]:
    """Added time a step, as multiples of the floor's."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Discard(), max_queue_size=100_000))
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
        "bare": _run(STEPS, list),
        "floor": _run(STEPS, lambda: [_Floor(tracer)]),
        "spans": _run(STEPS, using(with_spans)),
        "metrics": _run(STEPS, using(without_spans)),
    }
    taken = medians(subjects, rounds=ROUNDS, inner=STEPS)
    floor = taken["floor"] - taken["bare"]

    # Growth with the run, inside the hooks: the framework's own step grows with its history, and
    # the difference of two such numbers would tell nothing.
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
