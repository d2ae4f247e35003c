"""LangChain handlers, ours and the peers', each as its documentation says to install it.

Peers are imported where they are set up, by name: none of them has to be there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.trace import NoOpTracerProvider

import tidegauge
from benchmarks.peers.subject import Prepare, Subject, provider_for, sampling_provider_for
from benchmarks.scripted_agent import Discard, Floor, scripted_run
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

__all__ = ["HANDLERS"]


def _runs(handlers: Callable[[], list[BaseCallbackHandler]]) -> Prepare:
    return partial(scripted_run, handlers=handlers)


@contextmanager
def _bare(exporter: Discard) -> Iterator[Prepare]:
    yield _runs(list)


@contextmanager
def _floor(exporter: Discard) -> Iterator[Prepare]:
    provider = provider_for(exporter)
    tracer = provider.get_tracer("floor")
    yield _runs(lambda: [Floor(tracer)])
    provider.shutdown()


@contextmanager
def _tidegauge(
    exporter: Discard, *, spans: bool = True, contents: bool = False, troubled: bool = False
) -> Iterator[Prepare]:
    provider = sampling_provider_for(exporter) if troubled else provider_for(exporter)
    tidegauge.configure(
        tracer_provider=provider if spans else NoOpTracerProvider(),
        capture_content=contents,
        serve_metrics=False,
    )
    yield _runs(lambda: [TidegaugeCallbackHandler(agent="benchmark")])
    provider.shutdown()


@contextmanager
def _instrumented(
    exporter: Discard, *, module: str, instrumentor: str, **variables: str
) -> Iterator[Prepare]:
    """What is installed by OpenTelemetry's ``instrument()``."""
    os.environ.update(variables)
    provider = provider_for(exporter)
    made: Any = getattr(importlib.import_module(module), instrumentor)()
    made.instrument(tracer_provider=provider)
    yield _runs(list)
    provider.shutdown()


@contextmanager
def _langfuse(exporter: Discard) -> Iterator[Prepare]:
    client, handler = langfuse_client(exporter)
    yield _runs(lambda: [handler()])
    client.flush()


def langfuse_client(exporter: Discard) -> tuple[Any, Callable[[], BaseCallbackHandler]]:
    """A client that sends nothing anywhere, and its handler."""
    langfuse = importlib.import_module("langfuse")
    client = langfuse.Langfuse(
        public_key="pk-none",
        secret_key="sk-none",
        base_url="http://127.0.0.1:9",
        span_exporter=exporter,
    )
    return client, importlib.import_module("langfuse.langchain").CallbackHandler


_GENAI = partial(
    _instrumented,
    module="opentelemetry.instrumentation.genai.langchain",
    instrumentor="LangChainInstrumentor",
)
_OPENLLMETRY = partial(
    _instrumented,
    module="opentelemetry.instrumentation.langchain",
    instrumentor="LangchainInstrumentor",
)
_OPENINFERENCE = partial(
    _instrumented,
    module="openinference.instrumentation.langchain",
    instrumentor="LangChainInstrumentor",
)
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

HANDLERS = (
    Subject("no handler", _bare),
    Subject("floor: four bare spans", _floor),
    Subject("tidegauge", _tidegauge),
    Subject("tidegauge, only troubled runs exported", partial(_tidegauge, troubled=True)),
    Subject("tidegauge, with contents", partial(_tidegauge, contents=True)),
    Subject("tidegauge, metrics only", partial(_tidegauge, spans=False)),
    Subject("OpenTelemetry GenAI", _GENAI, package="opentelemetry-instrumentation-genai-langchain"),
    Subject(
        "OpenTelemetry GenAI, with contents",
        partial(_GENAI, **{_CAPTURE: "SPAN_ONLY"}),
        package="opentelemetry-instrumentation-genai-langchain",
    ),
    Subject(
        "OpenLLMetry, without contents",
        partial(_OPENLLMETRY, TRACELOOP_TRACE_CONTENT="false"),
        package="opentelemetry-instrumentation-langchain",
    ),
    Subject("OpenLLMetry", _OPENLLMETRY, package="opentelemetry-instrumentation-langchain"),
    Subject("OpenInference", _OPENINFERENCE, package="openinference-instrumentation-langchain"),
    Subject("Langfuse", _langfuse, package="langfuse"),
)
"""The first is what the others are added to, the second what they are divided by."""
