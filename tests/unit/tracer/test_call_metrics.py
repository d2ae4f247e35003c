"""Durations and tokens of the conventions: of what, with which attributes, and for whom."""

from __future__ import annotations

import math
import time

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

import tidegauge
from tidegauge.events import RunStarted, RunSummary
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture
from tidegauge.tracer import CallFailure, ModelRequest, ModelResponse, SpanFactory

CHAT = {"gen_ai.operation.name": "chat"}
LOOK = {"gen_ai.tool.name": "look", "gen_ai.tool.type": "function"}


class Collected:
    """A provider of metrics, and what it has collected."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def all(self):
        """(attributes, data point) of every metric, by its name; exemplars are returned once."""
        data = self.reader.get_metrics_data()
        return {
            metric.name: [(dict(point.attributes), point) for point in metric.data.data_points]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name):
        """(attributes, data point) of a metric of the conventions."""
        return self.all().get(f"gen_ai.{name}", [])

    def counts(self, name):
        """Attributes and number of what was recorded."""
        return [(attributes, point.count) for attributes, point in self.points(name)]


@pytest.fixture
def collected():
    return Collected()


@pytest.fixture(params=["sampled", "not sampled", "no spans at all"])
def factory(request, collected):
    """Makes spans, which are recorded or are not; metrics are in any case."""
    provider = {
        "sampled": TracerProvider(shutdown_on_exit=False),
        "not sampled": TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False),
        "no spans at all": NoOpTracerProvider(),
    }[request.param]
    with capture() as seen:
        logger = seen.pipeline.recorder.spans.logger
    return SpanFactory(provider.get_tracer("t"), logger, meter_provider=collected.provider)


def run(name="r1", **fields):
    return RunStarted(run=name, agent="browser", **fields)


def test_a_model_call(factory, collected):
    spans = factory.start_run(run())
    assert spans.calls_wanted
    chat = spans.start_chat(ModelRequest("m1", "acme"))
    spans.end_chat(chat, ModelResponse(input_tokens=10, output_tokens=0))
    spans.end_chat(spans.start_chat(ModelRequest("m1", "acme")))
    fields = {**CHAT, "gen_ai.request.model": "m1", "gen_ai.provider.name": "acme"}
    assert collected.counts("client.operation.duration") == [(fields, 2)]
    assert [
        (attributes.pop("gen_ai.token.type"), attributes, point.count, point.sum)
        for attributes, point in collected.points("client.token.usage")
    ] == [("input", fields, 1, 10), ("output", fields, 1, 0)]


def test_a_model_call_that_failed(factory, collected):
    spans = factory.start_run(run())
    spans.end_chat(spans.start_chat(), error=TimeoutError())
    spans.end_chat(spans.start_chat(), error=CallFailure("rate_limit"))
    assert collected.counts("client.operation.duration") == [
        ({**CHAT, "error.type": "builtins.TimeoutError"}, 1),
        ({**CHAT, "error.type": "rate_limit"}, 1),
    ]
    assert collected.points("client.token.usage") == []


def test_tool_calls_side_by_side(factory, collected):
    spans = factory.start_run(run())
    calls = [spans.start_tool("look") for _ in range(3)]
    spans.end_tool(calls[1])
    spans.end_tool(calls[0], error=ValueError())
    spans.end_tool(calls[0])  # it has ended
    attributes = {**LOOK, "gen_ai.agent.name": "browser"}
    assert collected.counts("execute_tool.duration") == [
        (attributes, 1),
        ({**attributes, "error.type": "builtins.ValueError"}, 1),
    ]


def test_a_run_is_recorded_once_however_it_ends(factory, collected):
    whole, suspended, failed = (factory.start_run(run(model="m")) for _ in range(3))
    whole.end(RunSummary(1, "success"))
    suspended.end(None, stopped_reason="approval")
    suspended.end(RunSummary(1, "unknown"))
    failed.end(RunSummary(1, "error"), error=KeyError())
    attributes = {"gen_ai.agent.name": "browser", "gen_ai.request.model": "m"}
    assert collected.counts("invoke_agent.duration") == [
        (attributes, 2),
        ({**attributes, "error.type": "builtins.KeyError"}, 1),
    ]


def test_what_a_run_left_open_has_no_duration(factory, collected):
    spans = factory.start_run(run())
    spans.start_tool("look")
    spans.start_chat()
    spans.end(None)
    assert collected.points("execute_tool.duration") == []
    assert collected.points("client.operation.duration") == []


def test_durations_are_those_of_the_spans(collected):
    with capture(meter_provider=collected.provider) as seen, tidegauge.run(agent="a") as opened:
        opened.act("look")
        time.sleep(0.2)
        opened.observe("nothing")
    found = collected.all()
    for span, name in zip(seen.spans, ("execute_tool", "invoke_agent"), strict=True):
        [(_, point)] = found[f"gen_ai.{name}.duration"]
        # Between the two clocks another process may have its turn.
        assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9, abs=0.1)
        assert point.sum >= 0.2
        [exemplar] = point.exemplars
        assert exemplar.trace_id == span.get_span_context().trace_id
        assert exemplar.span_id == span.get_span_context().span_id


def test_buckets_are_those_of_the_conventions(factory, collected):
    spans = factory.start_run(run())
    spans.end_chat(spans.start_chat(), ModelResponse(input_tokens=1))
    spans.end_tool(spans.start_tool("look"))
    spans.end(None)
    for name, first, last, number in (
        ("client.operation.duration", 0.01, 81.92, 14),
        ("execute_tool.duration", 0.01, 81.92, 14),
        ("invoke_agent.duration", 0.1, 409.6, 13),
        ("client.token.usage", 1, 67_108_864, 14),
    ):
        [(_, point)] = collected.points(name)
        bounds = point.explicit_bounds
        assert (math.isclose(bounds[0], first), math.isclose(bounds[-1], last)) == (True, True)
        assert len(bounds) == number


def test_names_are_bounded(collected):
    with capture() as seen:
        logger = seen.pipeline.recorder.spans.logger
    tracer = NoOpTracerProvider().get_tracer("t")
    factory = SpanFactory(tracer, logger, meter_provider=collected.provider)
    for n in range(1_500):
        spans = factory.start_run(RunStarted(run="r", agent=f"agent {n}"))
        spans.end_tool(spans.start_tool(f"tool {n}"), error=CallFailure(f"error {n}"))
        spans.end(None, error=CallFailure("another"))
    tools = collected.counts("execute_tool.duration")
    assert sum(count for _, count in tools) == 1_500
    assert len(tools) + len(collected.counts("invoke_agent.duration")) <= 1_010
    assert tools[-1][0] == {
        "gen_ai.tool.name": "other",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "other",
        "error.type": "_OTHER",
    }


def test_without_anybody_who_collects_calls_are_not_even_timed():
    assert type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")
    with capture() as seen:
        logger = seen.pipeline.recorder.spans.logger
    spans = SpanFactory(NoOpTracerProvider().get_tracer("t"), logger).start_run(run())
    assert not spans.calls_wanted
    spans.start_tool("look")
    assert spans._children == {}


def test_the_application_may_set_up_its_metrics_later(collected, monkeypatch):
    with capture() as seen:
        with tidegauge.run(agent="early"):
            pass
        monkeypatch.setattr(metrics, "get_meter_provider", lambda: collected.provider)
        with tidegauge.run(agent="late"):
            pass
    assert len(seen.spans) == 2
    assert collected.counts("invoke_agent.duration") == [({"gen_ai.agent.name": "late"}, 1)]


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_fault_of_the_provider_s_keeps_no_span_from_ending(collected, monkeypatch):
    with capture(meter_provider=collected.provider) as seen, tidegauge.run(agent="a") as opened:
        for histogram, _ in seen.pipeline.recorder.spans._metrics.current()._durations.values():
            monkeypatch.setattr(histogram, "record", None)
        opened.act("look")
        opened.observe("nothing")
    assert [span.name for span in seen.spans] == ["execute_tool look", "invoke_agent a"]
    assert internal_errors.counts() == {"call_metrics": 2}
