"""Decorators on a trivial function, ours and the peers'."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tidegauge
from benchmarks.peers.handlers import langfuse_client
from benchmarks.peers.subject import Prepare, Subject, provider_for
from benchmarks.scripted_agent import Discard

__all__ = ["DECORATORS"]

_ATTRIBUTES = {f"key.{number}": number for number in range(8)}


def _plain(number: int) -> int:
    return number % 7


def _calls(function: Callable[[int], object]) -> Prepare:
    def prepare(calls: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(calls):
                function(number)

        return run

    return prepare


@contextmanager
def _undecorated(exporter: Discard) -> Iterator[Prepare]:
    yield _calls(_plain)


@contextmanager
def _bare_span(exporter: Discard) -> Iterator[Prepare]:
    provider = provider_for(exporter)
    tracer = provider.get_tracer("bare")

    def function(number: int) -> int:
        with tracer.start_as_current_span("execute_tool plain", attributes=_ATTRIBUTES):
            return _plain(number)

    yield _calls(function)
    provider.shutdown()


@contextmanager
def _tidegauge(exporter: Discard) -> Iterator[Prepare]:
    provider = provider_for(exporter)
    tidegauge.configure(tracer_provider=provider, serve_metrics=False)
    with tidegauge.run(agent="benchmark"):
        yield _calls(tidegauge.tool(_plain))
    provider.shutdown()


@contextmanager
def _langfuse(exporter: Discard) -> Iterator[Prepare]:
    client, _ = langfuse_client(exporter)
    yield _calls(importlib.import_module("langfuse").observe(_plain))
    client.flush()


@contextmanager
def _openllmetry(exporter: Discard) -> Iterator[Prepare]:
    importlib.import_module("traceloop.sdk").Traceloop.init(
        exporter=exporter, telemetry_enabled=False, instruments=set()
    )
    decorators = importlib.import_module("traceloop.sdk.decorators")
    yield _calls(decorators.tool(name="plain")(_plain))


@contextmanager
def _openinference(exporter: Discard) -> Iterator[Prepare]:
    provider = provider_for(exporter)
    openinference = importlib.import_module("openinference.instrumentation")
    tracer = openinference.OITracer(provider.get_tracer("bare"), openinference.TraceConfig())
    yield _calls(tracer.tool(_plain))
    provider.shutdown()


DECORATORS = (
    Subject("no decorator", _undecorated),
    Subject("bare span with 8 attributes", _bare_span),
    Subject("tidegauge @tool, with all metrics", _tidegauge),
    Subject("OpenLLMetry @tool", _openllmetry, package="traceloop-sdk"),
    Subject("OpenInference @tool", _openinference, package="openinference-instrumentation"),
    Subject("Langfuse @observe", _langfuse, package="langfuse"),
)
"""The first is what the others are added to, the second what they are divided by."""
