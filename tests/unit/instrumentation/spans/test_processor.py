"""The span processor at its edges."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider, sampling

import tidegauge
from support.other_spans import Listener
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
from tidegauge.safety.guard import internal_errors

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.output.messages": '[{"parts": [{"type": "tool_call", "name": "look", "id": "c"}]}]',
}


def provider(processor, **fields):
    made = TracerProvider(shutdown_on_exit=False, **fields)
    made.add_span_processor(processor)
    return made


def run_agent(tracer, turns=1, attributes=AGENT):
    with tracer.start_as_current_span("agent", attributes=attributes):
        for _ in range(turns):
            tracer.start_span("chat", attributes=MODEL).end()
            tracer.start_span(
                "tool",
                attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"},
            ).end()


def test_labels_from_the_span_the_processor_and_the_resource():
    resource = Resource(
        {"tidegauge.agent": "r", "tidegauge.task_group": "r", "tidegauge.memory": "r"}
    )
    processor = TidegaugeSpanProcessor(task_group="p", memory="p", t_max=9)
    tracer = provider(processor, resource=resource).get_tracer("theirs")
    with testing.capture() as seen:
        listener = Listener(seen)
        run_agent(tracer, attributes={**AGENT, "tidegauge.memory": "s"})
    [event] = listener.started
    assert (event.agent, event.task_group, event.memory, event.t_max) == ("r", "p", "s", 9)


def test_spans_of_our_own_are_not_read_again():
    processor = TidegaugeSpanProcessor()
    with testing.capture(tracer_provider=provider(processor)) as seen:
        listener = Listener(seen)
        with tidegauge.run(agent="ours") as run:
            run.act("look")
            run.observe("nothing")
    assert [event.agent for event in listener.started] == ["ours"]


def test_unsampled_spans_are_not_seen():
    processor = TidegaugeSpanProcessor()
    tracer = provider(processor, sampler=sampling.ALWAYS_OFF).get_tracer("theirs")
    with testing.capture() as seen:
        listener = Listener(seen)
        run_agent(tracer)
    assert listener.started == []


@pytest.mark.usefixtures("faults_are_swallowed")
def test_no_fault_of_ours_reaches_user_code(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a fault")

    processor = TidegaugeSpanProcessor(success=broken)
    tracer = provider(processor).get_tracer("theirs")
    with testing.capture() as seen:
        listener = Listener(seen)
        run_agent(tracer)
        assert listener.ended[0].success is None
        for name in ("start", "end", "find", "close"):
            monkeypatch.setattr(processor._grouping, name, broken)
        run_agent(tracer)
        assert processor.find_run(1) is None
        assert processor.decision("1" * 32) is tidegauge.events.GO_ON
        processor.enforce("no trace id at all")
        processor.shutdown()
    assert set(internal_errors.counts()) == {
        "spans.on_start",
        "spans.on_end",
        "spans.find_run",
        "spans.success",
        "spans.shutdown",
    }


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize(
    "given",
    [
        {"gen_ai.input.messages": '[1, "a", null, {"parts": 7}, {"parts": [1]}]'},
        {"gen_ai.output.messages": '{"not": "a list"}'},
        {"gen_ai.output.messages": "[" * 5_000},
        {"gen_ai.usage.input_tokens": "many"},
        {"openinference.span.kind": "LLM", "llm.output_messages.x.message": 1},
        {"openinference.span.kind": "TOOL", "output.value": "[]", "output.mime_type": "json"},
        {"traceloop.span.kind": "tool", "gen_ai.tool.call.result": '{"output": [[]]}'},
        {"openinference.span.kind": "CHAIN", "metadata": "[]"},
    ],
)
def test_odd_attributes_are_no_fault(given):
    tracer = provider(TidegaugeSpanProcessor()).get_tracer("theirs")
    with testing.capture(), tracer.start_as_current_span("agent", attributes=AGENT):
        tracer.start_span("odd", attributes={**MODEL, **given}).end()
    assert internal_errors.counts() == {}


def test_asked_by_span_context_and_trace():
    processor = TidegaugeSpanProcessor()
    tracer = provider(processor).get_tracer("theirs")
    with testing.capture(stop_on_steps=1):
        with tracer.start_as_current_span("agent", attributes=AGENT) as span:
            assert processor.find_run() is None  # no call yet
            run_agent(tracer, turns=2)
            found = processor.find_run()
            assert found is not None
            context = span.get_span_context()
            for where in (span, context, context.trace_id, f"{context.trace_id:032x}"):
                assert processor.find_run(where) is found
                with pytest.raises(tidegauge.RunStopped):
                    processor.enforce(where)
            assert processor.decision().stop
        assert processor.find_run(context) is None
        assert processor.find_run(trace.INVALID_SPAN) is None


@pytest.mark.parametrize("where", ["zz", "", "no trace id at all", "\N{SNOWMAN}"])
def test_a_text_that_is_no_trace_id_has_no_run(where):
    processor = TidegaugeSpanProcessor()
    assert processor.find_run(where) is None
    assert processor.decision(where) is tidegauge.events.GO_ON
    processor.enforce(where)
    assert internal_errors.counts() == {}


def test_a_turn_limit_below_one_cannot_work():
    with pytest.raises(ConfigurationError):
        TidegaugeSpanProcessor(t_max=0)


def test_the_rest_of_a_processor():
    processor = TidegaugeSpanProcessor()
    assert processor.force_flush()
    with testing.capture() as seen:
        listener = Listener(seen)
        tracer = provider(processor).get_tracer("theirs")
        with tracer.start_as_current_span("agent", attributes=AGENT):
            tracer.start_span("chat", attributes=MODEL).end()
            processor.shutdown()
        assert [ended.reason for ended in listener.ended] == ["shutdown"]


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_equal_agents_at_once_under_two_instrumentations_stay_two_runs(kind):
    """Each agent is shown in a trace of each; in time, each call is nearer to that of the other."""
    processor = TidegaugeSpanProcessor()
    made = provider(processor)

    def first(scope, start, end):
        root = made.get_tracer(scope).start_span("agent", attributes=AGENT)
        chat(root, scope, start, end)
        return root

    def chat(root, scope, start, end):
        inside = trace.set_span_in_context(root)
        tracer = made.get_tracer(scope)
        tracer.start_span("chat", inside, attributes=MODEL, start_time=start).end(end)

    def by_threads():
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
            roots = [
                one.submit(first, "left", 10, 20).result(),
                two.submit(first, "left", 15, 25).result(),
                one.submit(first, "right", 15, 25).result(),
                two.submit(first, "right", 10, 20).result(),
            ]
            for number, scope in enumerate(["left", "left", "right", "right"]):
                later = 20 * (number % 2)
                worker = [one, two][number % 2]
                worker.submit(chat, roots[number], scope, 30 + later, 40 + later).result()
            return roots

    async def by_tasks():
        async def of(times, later, turn):
            roots = []
            for scope, (start, end) in zip(["left", "right"], times, strict=True):
                await turn.acquire()
                roots.append(first(scope, start, end))
            for root, scope in zip(roots, ["left", "right"], strict=True):
                await turn.acquire()
                chat(root, scope, 30 + later, 40 + later)
            return roots

        one, two = asyncio.Semaphore(0), asyncio.Semaphore(0)
        tasks = [
            asyncio.create_task(of([(10, 20), (15, 25)], 0, one)),
            asyncio.create_task(of([(15, 25), (10, 20)], 20, two)),
        ]
        for turn in [one, two] * 4:
            turn.release()
            await asyncio.sleep(0.01)
        return [root for roots in await asyncio.gather(*tasks) for root in roots]

    with testing.capture() as seen:
        listener = Listener(seen)
        for root in by_threads() if kind == "threads" else asyncio.run(by_tasks()):
            root.end()
    assert [len(steps) for steps in listener.steps.values()] == [2, 2]


@pytest.mark.parametrize("later", [0, 5, 100])
def test_agents_of_two_threads_with_equal_call_ids_stay_two_runs(later):
    """Each under an instrumentation of its own, and their models count calls from zero."""
    call = {"type": "tool_call", "id": "call_0", "name": "look", "arguments": {"q": 1}}
    said = json.dumps([{"role": "assistant", "parts": [call]}])
    processor = TidegaugeSpanProcessor()
    made = provider(processor)

    def work(scope, start):
        tracer = made.get_tracer(scope)
        root = tracer.start_span("agent", attributes=AGENT)
        inside = trace.set_span_in_context(root)
        chose = {**MODEL, "gen_ai.output.messages": said}
        for since in (start, start + 20):
            tracer.start_span("chat", inside, attributes=chose, start_time=since).end(since + 10)
        return root

    with testing.capture() as seen:
        listener = Listener(seen)
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
            roots = [
                one.submit(work, "left", 1_000).result(),
                two.submit(work, "right", 1_000 + later).result(),
            ]
        for root in roots:
            root.end()
    assert [len(steps) for steps in listener.steps.values()] == [2, 2]
