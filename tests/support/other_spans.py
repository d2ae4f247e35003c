"""What a run was, whatever instrumentation reported it; and others' instrumentations, in turn."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from tidegauge.events import Decision, Outcome, RunEnded, RunObserver, RunStarted, Step
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
from tidegauge.testing import Capture

INSTRUMENTORS = {
    "openinference": ("openinference.instrumentation.langchain", "LangChainInstrumentor"),
    "openllmetry": ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor"),
    "otel-genai": ("opentelemetry.instrumentation.genai.langchain", "LangChainInstrumentor"),
}

PATCHED = {  # what OpenLLMetry patches and does not all restore
    "langchain_core.callbacks:BaseCallbackManager": ("__init__",),
    "langgraph.pregel:Pregel": ("stream", "astream"),
    "langgraph.types:Command": ("__init__",),
    "langchain.agents.middleware.types:AgentMiddleware": tuple(
        f"{kind}{when}_{what}"
        for kind in ("", "a")
        for when in ("before", "after")
        for what in ("model", "agent")
    ),
    "langchain.agents.factory:": ("create_agent",),
    "langchain.agents:": ("create_agent",),
}


class Listener(RunObserver):
    """Keeps what every step of a pipeline was, by digests alone."""

    def __init__(self, seen: Capture) -> None:
        self.engine = seen.pipeline.engine
        self.started: list[RunStarted] = []
        self.ended: list[RunEnded] = []
        self.steps: dict[str, list[tuple[Any, ...]]] = {}
        self.outcomes: dict[str, list[tuple[Any, ...]]] = {}
        self.reports: dict[str, Any] = {}
        self._active: dict[str, Any] = {}
        seen.pipeline.observe(self)

    def run_started(self, event: RunStarted) -> None:
        self.started.append(event)
        self._active[event.run] = self.engine.get(event.run)

    def step_issued(self, event: Step, decision: Decision) -> None:
        signals = decision.signals
        names = tuple(call.action for call in event.calls)
        self.steps.setdefault(event.run, []).append(
            (signals.step, names, signals.action_digest, signals.state_digest, event.tokens)
        )

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        results = tuple((result.outcome, result.error) for result in event.results)
        self.outcomes.setdefault(event.run, []).append((event.step, results, event.tokens))

    def run_ended(self, event: RunEnded) -> None:
        self.ended.append(event)
        self.reports[event.run] = self._active.pop(event.run).report()

    def story(self) -> list[tuple[Any, ...]]:
        """Every run: what it is called, its steps, its outcomes, and all that was measured."""
        names = {event.run: f"run {number}" for number, event in enumerate(self.started)}
        found = {event.run: event.agent_name for event in self.ended}
        return [
            (
                (
                    found.get(event.run) or event.agent,
                    event.task,
                    event.task_group,
                    event.t_max,
                    event.memory,
                ),
                (event.conversation, names.get(event.parent or "")),
                self.steps.get(event.run, []),
                self.outcomes.get(event.run, []),
                _measured(self.reports[event.run]),
            )
            for event in self.started
        ]


def _measured(report: Any) -> dict[str, Any]:
    """All of a report but what is new at every run: its ids, and how long things took."""
    hidden = ("run", "agent", "agent_name", "group", "trace_id", "model", "loop_since")
    return {
        name: value
        for name, value in report.as_dict().items()
        if name not in hidden and not name.endswith("_seconds")
    }


@contextlib.contextmanager
def instrumented(
    monkeypatch: pytest.MonkeyPatch,
    *names: str,
    content: bool = True,
    beside: Sequence[SpanProcessor] = (),
    **settings: Any,
) -> Iterator[TidegaugeSpanProcessor]:
    """LangChain under these instrumentations, in this order, with our processor; undone after.

    ``beside``: processors that are given the same spans.
    """
    monkeypatch.setenv(
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        "SPAN_ONLY" if content else "NO_CONTENT",
    )
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", str(content).lower())
    for hidden in ("OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS"):
        monkeypatch.setenv(hidden, str(not content).lower())
    for path, attributes in PATCHED.items():
        module, _, kind = path.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, kind) if kind else owner
        for attribute in attributes:  # set to what it is: restored when the test is over
            monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    provider = TracerProvider(shutdown_on_exit=False)
    processor = TidegaugeSpanProcessor(**settings)
    for each in (processor, *beside):
        provider.add_span_processor(each)
    with contextlib.ExitStack() as undo:
        for name in names:
            module, kind = INSTRUMENTORS[name]
            instrumentor = getattr(importlib.import_module(module), kind)()
            instrumentor.instrument(tracer_provider=provider)
            undo.callback(instrumentor.uninstrument)
        yield processor
    provider.shutdown()
