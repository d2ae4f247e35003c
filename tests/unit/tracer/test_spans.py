"""Spans: bounded, always with an explicit parent, closed by the code that opened them."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import tidegauge
from support.span_story import events, story
from support.untouchable import untouchable
from tidegauge.events import RunStarted, RunSummary
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture
from tidegauge.tracer import ModelRequest, ModelResponse, RunSpans, SpanFactory


@pytest.fixture
def seen():
    with capture() as seen:
        yield seen


@pytest.fixture
def factory(seen):
    spans = seen.pipeline.recorder.spans
    return SpanFactory(spans.tracer, spans.logger, max_runs=2)


def run(name="r1", **fields):
    return RunStarted(run=name, agent=name, **fields)


def test_a_model_call(seen, factory):
    spans = factory.start_run(run())
    chat = spans.start_chat(ModelRequest("m1", "acme"))
    response = ModelResponse(
        id="r-1",
        model="m1-2",
        finish_reasons=("stop", "length"),
        input_tokens=10,
        output_tokens=0,
        cache_read_tokens=7,
        cache_write_tokens=1,
        reasoning_tokens=0,
    )
    spans.end_chat(chat, response)
    spans.end_chat(spans.start_chat(), error=TimeoutError())
    spans.end(RunSummary(0, "unknown"))
    assert story(seen)[0][4] == [
        (
            "chat m1",
            SpanKind.CLIENT.name,
            "",
            {
                "gen_ai.request.model": "m1",
                "gen_ai.provider.name": "acme",
                "gen_ai.response.id": "r-1",
                "gen_ai.response.model": "m1-2",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 0,
                "gen_ai.usage.cache_read.input_tokens": 7,
                "gen_ai.usage.cache_write.input_tokens": 1,
                "gen_ai.usage.reasoning.output_tokens": 0,
                "gen_ai.response.finish_reasons": ("stop", "length"),
            },
            [],
        ),
        ("chat", SpanKind.CLIENT.name, "ERROR", {"error.type": "builtins.TimeoutError"}, []),
    ]


def test_a_model_call_inside_a_tool(seen, factory):
    spans = factory.start_run(run())
    tool = spans.start_tool("ask")
    spans.end_chat(spans.start_chat(inside=tool))
    spans.end_tool(tool)
    spans.end(None)
    assert seen.tree() == ["invoke_agent r1", "  execute_tool ask", "    chat"]


def test_the_end_of_a_run_closes_what_it_left_open(seen, factory):
    spans = factory.start_run(run())
    spans.start_tool("a")
    spans.start_chat(ModelRequest("m"))
    spans.end(None)
    assert [span.name for span in seen.spans] == ["execute_tool a", "chat m", "invoke_agent r1"]
    assert {span.status.status_code for span in seen.spans} == {StatusCode.UNSET}
    assert factory.open_runs == 0


def test_one_run_too_many_ends_the_spans_of_the_oldest(seen, factory):
    first = factory.start_run(run("r1"))
    tool = first.start_tool("look")
    for name in ("r2", "r3"):
        factory.start_run(run(name))
    assert [span.name for span in seen.spans] == ["execute_tool look", "invoke_agent r1"]
    assert factory.open_runs == 2
    assert not tool.is_recording()


def test_the_end_of_a_run_that_made_room_before_is_no_second_end(seen, factory, caplog):
    first = factory.start_run(run("r1"))
    tool = first.start_tool("look")
    for name in ("r2", "r3"):
        factory.start_run(run(name))
    late = first.start_tool("late")
    first.end_tool(tool, error=ValueError())
    first.end_tool(late)
    first.end(RunSummary(1, "success"))
    assert [span.name for span in seen.spans] == [
        "execute_tool look",
        "invoke_agent r1",
        "execute_tool late",
    ]
    assert caplog.records == []


def test_open_children_are_bounded(seen, factory):
    spans = factory.start_run(run())
    for _ in range(1_010):
        spans.start_tool("look")
    assert len(spans._children) == 1_000
    assert len(seen.spans) == 10
    spans.end(None)
    assert len(seen.spans) == 1_011


def test_long_names_are_cut(seen, factory):
    spans = factory.start_run(run("x" * 500))
    spans.end_tool(spans.start_tool("y" * 500))
    spans.end(None)
    assert [len(span.name) for span in seen.spans] == [13 + 128, 13 + 128]


def test_a_parent_can_be_given(seen, factory):
    tracer = seen.pipeline.settings.tracer_provider.get_tracer("app")
    with tracer.start_as_current_span("request") as request:
        elsewhere = factory.start_run(run("r1"), trace.set_span_in_context(request))
    elsewhere.end(None)
    alone = factory.start_run(run("r2"))
    alone.end(None)
    assert seen.tree() == ["request", "  invoke_agent r1", "invoke_agent r2"]
    assert elsewhere.trace_id == f"{request.get_span_context().trace_id:032x}"


def test_an_event_hangs_on_the_span_it_is_given(seen, factory):
    spans = factory.start_run(run())
    tool = spans.start_tool("look")
    spans.event("tidegauge.note", {"number": 1}, tool)
    spans.event("tidegauge.note", {"number": 2})
    assert events(seen) == [("tidegauge.note", {"number": 1}), ("tidegauge.note", {"number": 2})]
    assert [event.span_id for event in seen.events] == [
        span.get_span_context().span_id for span in (tool, spans.span)
    ]
    spans.end(None)


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_span_that_cannot_end_keeps_no_other_from_ending(seen, factory):
    class Broken(SpanProcessor):
        def on_end(self, span):
            if span.name == "execute_tool broken":
                raise RuntimeError("no")

    seen.tracer_provider.add_span_processor(Broken())
    spans = factory.start_run(run())
    broken, whole = spans.start_tool("broken"), spans.start_tool("whole")
    spans.end(None)
    assert not broken.is_recording()
    assert not whole.is_recording()
    assert [span.name for span in seen.spans][1:] == ["execute_tool whole", "invoke_agent r1"]
    assert internal_errors.counts() == {"spans.end": 1}


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_span_that_takes_no_attribute_ends_all_the_same(seen, factory, monkeypatch):
    spans = factory.start_run(run())
    tool = spans.start_tool("look")

    def set_attributes(attributes):
        raise RuntimeError("no")

    tool.set_attribute("from", "elsewhere")
    monkeypatch.setattr(tool, "set_attributes", set_attributes)
    spans.end_tool(tool, hand_off="another")
    spans.end(None)
    assert [span.name for span in seen.spans] == ["execute_tool look", "invoke_agent r1"]
    assert internal_errors.counts() == {"spans.end": 1}


class TestSampling:
    def test_numbers_do_not_depend_on_it(self):
        def agent():
            with tidegauge.run() as opened:
                for _ in range(9):
                    opened.act("look", state="same")
                    opened.observe("nothing")

        provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
        with capture(tracer_provider=provider, stop_on_loop=3) as seen:
            with pytest.raises(tidegauge.RunStopped):
                agent()
            group = seen.pipeline.engine.snapshot().groups[0]
        assert seen.spans == []
        assert (group.totals.steps, group.totals.loop_steps) == (4, {"look": 3})
        assert group.finished.finished == {"stopped": 1}

    def test_nothing_is_held_of_what_is_not_sampled(self):
        tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("t")
        with capture() as seen:
            logger = seen.pipeline.recorder.spans.logger
        spans = SpanFactory(tracer, logger).start_run(run())
        for _ in range(10):
            spans.start_tool("look", arguments={"a": 1})
        assert spans._children == {}
        spans.end(RunSummary(10, "success"))

    def test_a_trace_is_reported_though_it_is_not_sampled(self):
        tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("t")
        with capture() as seen:
            logger = seen.pipeline.recorder.spans.logger
        assert len(SpanFactory(tracer, logger).start_run(run()).trace_id) == 32

    def test_without_any_provider_there_is_no_trace(self):
        with capture() as seen:
            logger = seen.pipeline.recorder.spans.logger
        spans = SpanFactory(trace.NoOpTracer(), logger).start_run(run())
        assert isinstance(spans, RunSpans)
        assert spans.trace_id is None


def test_a_call_that_was_abandoned_has_no_result():
    with capture(capture_content=True) as seen, tidegauge.run() as run:
        run.act("look")
        run.act("find")
        run.observe(None)
    results = {
        span.name: (span.attributes or {}).get("gen_ai.tool.call.result") for span in seen.spans
    }
    assert results["execute_tool look"] is None
    assert results["execute_tool find"] == "null"  # it brought back nothing


def test_an_error_is_not_asked_for_its_type(seen, factory):
    spans = factory.start_run(run())
    spans.end_tool(spans.start_tool("look"), error=untouchable(ValueError, "x"))
    spans.end(RunSummary(1, "unknown"))
    [_, _, _, _, [(_, _, _, attributes, *_)], *_] = story(seen)[0]
    assert attributes["error.type"] == "support.untouchable.Untouchable"


def test_a_long_content_is_begun():
    long = list(range(100_000))
    with capture(capture_content=True) as seen, tidegauge.run() as run:
        run.act("look", {"at": [1, 2]})
        run.observe(long)
    [attributes] = [span.attributes for span in seen.spans if span.name == "execute_tool look"]
    assert attributes is not None
    assert attributes["gen_ai.tool.call.arguments"] == '{"at":[1,2]}'
    result = str(attributes["gen_ai.tool.call.result"])
    assert result.startswith("[0,1,2,")
    assert len(result) == 8_193
