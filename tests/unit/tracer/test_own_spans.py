"""Our own spans are the SDK's to everybody else: stories run with both are compared."""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
import weakref
from typing import Any

import numpy
import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    Tracer,
    TracerProvider,
)
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    StaticSampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags, TraceState

from tidegauge.events import RunStarted, RunSummary
from tidegauge.testing import capture
from tidegauge.tracer import ModelRequest, ModelResponse
from tidegauge.tracer.failures import CallFailure
from tidegauge.tracer.own_spans import OwnSpan

ELSEWHERE = SpanContext(1, 2, True, TraceFlags(1))


class Ended(SpanProcessor):
    """Collects spans, and does nothing before their ends."""

    def __init__(self):
        self.spans = []

    def on_end(self, span):
        self.spans.append(span)


class Watching(SpanProcessor):
    """Looks at spans when they start."""

    def __init__(self):
        self.started = []

    def on_start(self, span, parent_context=None):
        above = trace.get_current_span(parent_context).get_span_context()
        self.started.append((span.name, tuple(span.context), above == span.parent, span.kind))


class Deciding(StaticSampler):
    """A sampler that is not known to follow the parent: the SDK makes the spans."""

    def __init__(self):
        super().__init__(Decision.RECORD_AND_SAMPLE)

    def should_sample(self, *args, **named):
        return super().should_sample(*args, **named)


class Numbers(RandomIdGenerator):
    def __init__(self):
        self.last = 0

    def generate_span_id(self):
        self.last += 1
        return self.last

    def generate_trace_id(self):
        return 7


def opened(*processors, agent="agent", **settings):
    """The spans of a run, and what collects them."""
    ended = Ended()
    provider = TracerProvider(id_generator=Numbers(), shutdown_on_exit=False, **settings)
    for one in (ended, *processors):
        provider.add_span_processor(one)
    context = capture(tracer_provider=provider)
    seen = context.__enter__()
    spans = seen.pipeline.recorder.spans.start_run(RunStarted(run="r", agent=agent))
    context.__exit__(None, None, None)
    return spans, ended.spans, provider


def all_of(span: ReadableSpan):
    """Everything that an exporter reads of a span, but its times."""
    return {
        "name": span.name,
        "context": tuple(span.context),
        "parent": span.parent and tuple(span.parent),
        "kind": span.kind,
        "attributes": dict(span.attributes),
        "order": sorted(span.attributes),
        "events": [(one.name, dict(one.attributes)) for one in span.events],
        "links": [(tuple(one.context), dict(one.attributes)) for one in span.links],
        "status": (span.status.status_code, span.status.description),
        "resource": span.resource,
        "scope": span.instrumentation_scope,
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
        "timed": span.start_time <= span.end_time,
        "kind of attributes": type(span.attributes),
    }


SDK = {"sampler": Deciding()}
WAYS = [({}, None), ({}, Watching), (SDK, None), (SDK, Watching)]
"""Settings of the provider, and a processor: our spans, then the SDK's."""


def both(story, **settings):
    """What a story gives with our spans, after it was compared with what it gives with others."""
    stories, started = [], []
    for given, watching in WAYS:
        watchers = [] if watching is None else [watching()]
        spans, ended, provider = opened(*watchers, **settings, **given)
        first = spans.start_tool("first")
        assert isinstance(first, OwnSpan) is (given is not SDK)
        said = story(spans, first)
        spans.end(RunSummary(1, "success"))
        provider.shutdown()
        stories.append((said, [all_of(one) for one in ended]))
        started += [one.started for one in watchers]
    assert stories[0] == stories[1] == stories[2] == stories[3]
    assert started[0] == started[1]
    return stories[0]


def both_with(processor):
    """The same, with a processor of the user's."""
    stories = []
    for given, _ in WAYS:
        spans, ended, _ = opened(processor(), **given)
        spans.end_tool(spans.start_tool("first"), hand_off="another")
        spans.end(None)
        stories.append([all_of(one) for one in ended])
    assert stories[0] == stories[2]
    return stories[0]


def test_what_a_run_does():
    def story(spans, first):
        chat = spans.start_chat(ModelRequest("m", "acme", parameters={"gen_ai.request.top_k": 3}))
        spans.end_chat(chat, ModelResponse("id", "m-2", ("stop",), 3, 4))
        node = spans.start_node("node")
        inside = spans.start_tool("näme", "call", inside=node)
        spans.end_tool(inside, error=LookupError("no door"))
        spans.end_node(node)
        spans.end_tool(first, error=CallFailure("tool_error", "no"), hand_off="another")
        late = spans.start_chat()
        spans.end_chat(late, request=ModelRequest("later"))

    _, ended = both(story)
    assert len(ended) == 6


@pytest.mark.parametrize(
    "touch",
    [
        lambda span: span.set_attribute("a", [1, 2]),
        lambda span: span.set_attribute("a", object),
        lambda span: span.set_attribute("", 1),
        lambda span: span.set_attribute("gen_ai.tool.name", None),
        lambda span: span.set_attributes({"a": b"b", "c": {"d": object()}, 4: 5}),
        lambda span: [span.set_attribute(f"a{number}", number) for number in range(200)],
        lambda span: span.add_event("event", {"a": 1, "b": [object()]}),
        lambda span: [span.add_event(f"event {number}") for number in range(200)],
        lambda span: span.add_link(ELSEWHERE, {"a": 1}),
        lambda span: span.add_link(trace.INVALID_SPAN_CONTEXT),
        lambda span: span.update_name("another"),
        lambda span: span.set_status(StatusCode.OK, "fine"),
        lambda span: span.set_status(Status(StatusCode.ERROR, "no")),
        lambda span: span.record_exception(LookupError("no door"), {"a": 1}, escaped=True),
        lambda span: repr(span).startswith(("OwnSpan(", "_Span(")),
        lambda span: span.to_json().replace('"start_time"', "").count(":") > 10,
        lambda span: (span.name, span.kind, tuple(span.context), span.is_recording()),
        lambda span: (dict(span.attributes), span.events, span.links, span.status.status_code),
        lambda span: (span.resource, span.instrumentation_scope, span.dropped_attributes),
        lambda span: span.start() or span.start_time > 0,
        lambda span: isinstance(span, Span) and isinstance(span, trace.Span),
        lambda span: span.end(),
        lambda span: span.end(2**62),
        lambda span: [span.end(2**62), span.end(), span.set_attribute("a", 1), span.end_time],
        lambda span: [span.end(2**62), span.attributes, span.add_event("e"), span.is_recording()][
            3
        ],
        lambda span: [span.end(2**62), dict(span.attributes), span.events, span.links],
        lambda span: [span.end(2**62), span.set_status(StatusCode.OK), span.update_name("n")],
        lambda span: [span.set_attribute("a", 1), span.end(2**62), dict(span.attributes)],
    ],
)
def test_what_others_do_with_a_span(touch):
    both(lambda spans, first: (touch(first), spans.end_tool(first, hand_off="another"))[0])


def test_an_exception_that_leaves_a_span():
    spans, ended, _ = opened()
    with pytest.raises(LookupError), spans.start_tool("first"):
        raise LookupError("no door")
    second = spans.start_tool("second")
    with pytest.raises(ValueError, match="no"), trace.use_span(second, end_on_exit=True):
        raise ValueError("no")
    assert [one.events[0].name for one in ended] == ["exception", "exception"]
    assert {one.status.status_code for one in ended} == {StatusCode.ERROR}


def test_spans_of_others_are_nested():
    stories = []
    for given, _ in WAYS:
        spans, ended, provider = opened(**given)
        first = spans.start_tool("first")
        token = attach(trace.set_span_in_context(first, spans.context))
        try:
            with provider.get_tracer("other").start_as_current_span("inner") as inner:
                assert trace.get_current_span() is inner
                spans.end_tool(spans.start_tool("innermost", inside=inner))
        finally:
            detach(token)
        spans.end_tool(first)
        stories.append([all_of(one) for one in ended])
    assert stories[0] == stories[1] == stories[2] == stories[3]
    assert [one["parent"][1] for one in stories[0]] == [3, 2, 1]


@pytest.mark.parametrize(
    "state", [None, TraceState([("vendor", "value")])], ids=["no state", "state"]
)
def test_what_is_below_a_remote_span_has_its_state(state):
    remote = SpanContext(5, 6, True, TraceFlags(1), state)
    token = attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    try:
        _, ended = both(lambda spans, first: spans.end_tool(first))
    finally:
        detach(token)
    assert ended[0]["context"][4] == (state or TraceState())
    below_remote = opened()[0].start_tool("t", inside=trace.NonRecordingSpan(remote))
    assert not isinstance(below_remote, OwnSpan)


class Own(Sampler):
    def should_sample(self, parent_context, trace_id, name, *more, **named):
        return SamplingResult(Decision.RECORD_ONLY, {"sampled": name})

    def get_description(self):
        return "own"


@pytest.mark.parametrize(
    ("settings", "ours"),
    [
        ({}, True),
        ({"sampler": ALWAYS_ON}, True),
        ({"sampler": ParentBased(ALWAYS_ON)}, True),
        ({"sampler": ParentBasedTraceIdRatio(1.0)}, True),
        ({"sampler": ParentBased(ALWAYS_ON, local_parent_sampled=Own())}, False),
        ({"sampler": ParentBased(ALWAYS_ON, local_parent_sampled=ALWAYS_OFF)}, False),
        ({"sampler": TraceIdRatioBased(1.0)}, False),
        ({"sampler": Own()}, False),
        ({"sampler": ALWAYS_OFF}, False),
        ({"span_limits": SpanLimits(max_span_attributes=3)}, False),
        ({"span_limits": SpanLimits(max_span_attributes=64)}, True),
        ({"span_limits": SpanLimits(max_span_attributes=SpanLimits.UNSET)}, True),
        ({"span_limits": SpanLimits(max_span_attribute_length=5)}, False),
        ({"span_limits": SpanLimits(max_attribute_length=5)}, False),
        ({"span_limits": SpanLimits(max_links=1, max_events=1)}, True),
        ({"active_span_processor": ConcurrentMultiSpanProcessor(1)}, False),
    ],
)
def test_what_is_unusual_is_left_to_the_sdk(settings, ours):
    stories = []
    for given in ({}, {} if "sampler" in settings else SDK):
        spans, ended, provider = opened(**settings, **given)
        first = spans.start_tool("first")
        assert isinstance(first, OwnSpan) is (ours and given is not SDK)
        first.add_link(ELSEWHERE)
        first.add_link(ELSEWHERE)
        spans.end_tool(first, hand_off="another agent")
        spans.end(RunSummary(1, "success"))
        provider.force_flush()
        if "active_span_processor" not in settings:  # it is one object
            stories.append([all_of(one) for one in ended])
    assert len(stories) < 2 or stories[0] == stories[1]


def test_the_metrics_of_the_sdk_are_left_to_it(monkeypatch):
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    assert not isinstance(opened()[0].start_tool("t"), OwnSpan)


def test_an_sdk_with_another_field_makes_its_own_spans(monkeypatch):
    before = Span.__init__

    def more(self, *args, **kwargs):
        before(self, *args, **kwargs)
        self._something_new = None

    monkeypatch.setattr(Span, "__init__", more)
    assert not isinstance(opened()[0].start_tool("t"), OwnSpan)


def test_a_provider_that_is_set_late():
    proxy: Any = trace.ProxyTracerProvider().get_tracer("t")
    with capture() as seen:
        spans = seen.pipeline.recorder.spans
        spans.tracer = proxy
        spans._tools = spans._tools._replace(tracer=proxy)
        early = spans.start_run(RunStarted(run="early"))
        assert early.start_tool("t") is not None
        proxy._real_tracer = seen.tracer_provider.get_tracer("late")
        late = spans.start_run(RunStarted(run="late"))
        assert isinstance(late.start_tool("t"), OwnSpan)


def test_a_processor_that_is_added_meanwhile():
    spans, ended, provider = opened()
    before = spans.start_tool("before")
    endings = []

    class Ending(SpanProcessor):
        def _on_ending(self, span):
            endings.append(span.name)

    provider.add_span_processor(Ending())
    spans.end_tool(before, hand_off="another")
    spans.end_tool(spans.start_tool("after"))
    spans.end(None)
    assert endings == ["execute_tool before", "execute_tool after", "invoke_agent agent"]
    assert ended[0].attributes["tidegauge.hand_off.to"] == "another"


def test_a_processor_that_overrides_its_own_method(monkeypatch):
    processor, started = Ended(), []

    def on_start(span, parent_context=None):
        started.append(span.name)

    monkeypatch.setattr(processor, "on_start", on_start)
    spans, *_ = opened(processor)
    spans.start_tool("t")
    assert started == ["invoke_agent agent", "execute_tool t"]


def test_a_processor_sets_attributes_when_a_span_starts():
    class Naming(SpanProcessor):
        def on_start(self, span, parent_context=None):
            assert span.attributes["gen_ai.operation.name"]
            span.set_attribute("tenant", "t1")
            span.update_name(f"{span.name}!")

    ended = both_with(Naming)
    assert [one["name"] for one in ended] == ["execute_tool first!", "invoke_agent agent!"]
    assert {one["attributes"]["tenant"] for one in ended} == {"t1"}


class Delegating:
    """A processor whose methods are not those of its class."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Renaming(SpanProcessor):
    """Gives spans another resource, as some distributions of OpenTelemetry do."""

    def on_start(self, span, parent_context=None):
        span._resource = Resource({"service.name": "renamed"})


def test_a_processor_whose_methods_are_not_those_of_its_class():
    spans, ended, _ = opened(Delegating(Ended()))
    spans.end_tool(spans.start_tool("look"))
    assert [one.name for one in ended] == ["execute_tool look"]


def test_a_processor_that_gives_spans_another_resource():
    spans, ended, _ = opened(Renaming())
    spans.end_tool(spans.start_tool("look"))
    assert [one.resource.attributes["service.name"] for one in ended] == ["renamed"]


def test_what_is_replaced_meanwhile_is_left_to_the_sdk(monkeypatch):
    """The sampler of a tracer, and the SDK's own method, which other libraries wrap."""
    spans, _, _ = opened()
    monkeypatch.setattr(spans._tools.tracer, "sampler", ALWAYS_OFF)
    assert not spans.start_tool("t").is_recording()
    monkeypatch.undo()
    seen, start = [], Tracer.start_span

    def wrapped(tracer, name, *given, **named):
        seen.append(name)
        return start(tracer, name, *given, **named)

    monkeypatch.setattr(Tracer, "start_span", wrapped)
    spans.start_tool("t")
    assert seen == ["execute_tool t"]


def test_what_comes_to_light_later_is_on_no_span():
    """Of a call that is open at the end, and of one that somebody else has ended."""
    spans, ended, _ = opened()
    first, second = (spans.start_chat(ModelRequest(model="m")) for _ in range(2))
    second.end()
    for one in (first, second):
        spans.first_chunk(one)
    before = dict(ended[0].attributes)
    spans.end_chat(second, ModelResponse(), request=ModelRequest(model="other"))
    spans.close()
    assert dict(ended[0].attributes) == before
    assert "gen_ai.response.time_to_first_chunk" not in ended[1].attributes


def test_no_call_is_wanted_below_a_run_whose_spans_are_closed():
    spans, _, _ = opened()
    assert spans.calls_wanted
    spans.close()
    assert not spans.calls_wanted


def test_a_number_of_documents_is_plain():
    spans, ended, _ = opened()
    spans.end_retrieval(spans.start_retrieval(source="s", top_k=numpy.int64(4)))
    assert type(ended[0].attributes["gen_ai.retrieval.top_k"]) is int


def test_a_tracer_that_is_disabled_meanwhile():
    spans, _, _ = opened()
    spans._tools.tracer._tracer_config.is_enabled = False
    assert not spans.start_tool("t").is_recording()


def test_an_ended_span_changes_no_more():
    spans, ended, _ = opened()
    tool = spans.start_tool("t")
    spans.end_tool(tool)
    with pytest.raises(TypeError):
        ended[0].attributes["gen_ai.tool.name"] = "another"
    tool.set_attribute("late", 1)
    assert "late" not in ended[0].attributes
    assert dict(copy.deepcopy(ended[0]._attributes)) == dict(ended[0].attributes)


def test_threads_touch_and_end_a_span_at_once():
    spans, ended, _ = opened()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            ended.clear()
            tool = spans.start_tool("t")
            barrier = threading.Barrier(3)

            def touch(tool=tool, barrier=barrier):
                barrier.wait()
                tool.add_event("e")
                tool.set_attribute("a", 1)

            def end(tool=tool, barrier=barrier):
                barrier.wait()
                tool.end()

            threads = [threading.Thread(target=one) for one in (touch, end, end)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            assert len(ended) == 1
            assert ended[0].attributes["gen_ai.tool.name"] == "t"
    finally:
        sys.setswitchinterval(before)


def test_spans_that_never_end_are_bounded_and_freed():
    spans, ended, _ = opened()
    for number in range(2_000):
        spans.start_tool(f"t{number}")
    assert len(ended) == 1_000
    spans.end(None)
    assert len(ended) == 2_001
    last = weakref.ref(spans.start_tool("last"))
    spans.close()
    del spans
    gc.collect()
    assert last() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_span_that_ends_in_a_forked_child():
    spans, ended, _ = opened()
    tool = spans.start_tool("t")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        tool.set_attribute("child", 1)
        tool.end()
        os.write(writing, repr(dict(ended[0].attributes)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"'child': 1" in os.read(reading, 10_000)
    spans.end_tool(tool)
    assert "child" not in ended[0].attributes
