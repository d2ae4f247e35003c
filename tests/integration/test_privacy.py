"""Nothing but digests leaves the process: whatever it sends, shows or logs is searched."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import sqlite3
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest
from agents import Agent, Runner, function_tool
from confluent_kafka import Producer
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.types import interrupt
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

import tidegauge
from support import framework_spans
from support.agents_sdk import chat_completions, traced_by
from support.fleet import LATENESS, STEPS, create_topics, working
from support.framework_spans import with_canaries
from support.hook_payloads import PAYLOADS
from support.kafka import Kafka
from support.other_spans import INSTRUMENTORS, instrumented
from support.processes import PATIENCE, logging_everything
from support.scripted_model import ScriptedChatModel, chooses, turns
from support.serve import serving
from tidegauge import catalog
from tidegauge.coding_agents.sessions import HookSessions, SessionLimits
from tidegauge.events import RunStarted
from tidegauge.fleet.snapshots import RunSnapshot
from tidegauge.foreign_spans.span import SpanData
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware
from tidegauge.instrumentation.openai_agents import TidegaugeTracingProcessor
from tidegauge.policies import Rule
from tidegauge.redact import RedactingExporter
from tidegauge.runs.current import get_recorder
from tidegauge.runs.extraction import Observation, extractor
from tidegauge.streaming_metrics import PassAtK
from tidegauge.streaming_metrics.saved_run import save_run
from tidegauge.testing import Capture, capture

SECRET = "s3cret"
"""A canary: all contents begin with it."""
PROMPT, ARGUMENT, RESULT, ERROR, THOUGHT, SAID, STATE = [
    f"{SECRET}-{what}"
    for what in ("prompt", "argument", "result", "error", "thought", "said", "state")
]
RUNS = 4
"""At least as many as an agent of these tests has."""
LADDER = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 3, "block"),
    Rule("loop_repeats", 5, "stop"),
]
HERE, ATTIC, CELLAR, TASK, ENTITY = NAMES = [
    f"{SECRET}-{what}" for what in ("here", "attic", "cellar", "task", "entity")
]
ROOMS = extractor(
    lambda call, result: Observation(
        place=HERE, exits=(ATTIC, CELLAR), tasks=(tidegauge.events.Task(TASK),), mentions=(ENTITY,)
    )
)


def canaries_in(text: str) -> set[str]:
    """The contents that a text has."""
    return {f"{SECRET}{what}" for what in re.findall(rf"{SECRET}(-\w+)?", text)}


def shown_by(seen: Capture) -> dict[str, str]:
    """What the metrics, the page, its document of every run, the spans and events say."""
    url = seen.pipeline.page_url
    assert seen.pipeline.metrics_url is not None
    spans, redacted = seen.spans, InMemorySpanExporter()
    RedactingExporter(redacted).export(spans)
    events = [f"{one.event_name} {one.body} {one.attributes}" for one in seen.events]
    return {
        "metrics": get(seen.pipeline.metrics_url),
        "page": "\n".join(get(f"{url}{path}") for path in ("", *pages(RUNS))),
        "spans": written(spans),
        "redacted spans": written(redacted.get_finished_spans()),
        "events": "\n".join(events),
    }


def written(spans: Sequence[ReadableSpan]) -> str:
    """Spans in JSON, with their scopes, and as they are sent."""
    texts = [f"{span.to_json()} {span.instrumentation_scope}" for span in spans]
    return "\n".join([*texts, repr(encode_spans(spans).SerializeToString())])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def pages(runs: int) -> list[str]:
    """The paths of the page's documents of so many runs."""
    return [f"page/live?run={number}&rows=100&after=0" for number in range(1, runs + 1)]


def plain_agent() -> None:
    with tidegauge.run(agent="browser", task=PROMPT, task_group="shop") as run:
        while True:
            run.act("think", {"thought": THOUGHT})
            run.observe(THOUGHT)
            run.act("push", {"at": ARGUMENT}, state=STATE)
            run.observe(error=ValueError(ERROR))
            if not run.act("look", {"at": ARGUMENT}).block:
                run.observe(RESULT)


def decorated_agent() -> None:
    @tidegauge.tool
    def look(at: str) -> str:
        return RESULT

    @tidegauge.tool
    def push(door: str) -> str:
        raise ValueError(ERROR)

    with tidegauge.run(agent="browser", task=PROMPT, task_group="shop"):
        with pytest.raises(ValueError, match=ERROR):
            push(ARGUMENT)
        while True:
            with contextlib.suppress(tidegauge.CallBlocked):
                look(ARGUMENT)


def plain_agent_that_fails() -> None:
    with tidegauge.run(agent="browser", task=PROMPT) as run:
        for _ in range(3):
            run.act("look", {"at": ARGUMENT})
            run.observe(RESULT)
        run.act("push", {"at": ARGUMENT})
        raise ExceptionGroup(ERROR, [ValueError(ERROR), KeyError(SAID)])


async def async_agent() -> None:
    @tidegauge.tool
    async def look(at: str) -> AsyncIterator[str]:
        yield RESULT

    @tidegauge.tool
    async def push(door: str) -> str:
        error = ValueError(ERROR)
        error.add_note(ERROR)
        raise error from KeyError(SAID)

    async with tidegauge.run(agent="browser", task=PROMPT):
        for _ in range(3):
            assert [each async for each in look(ARGUMENT)] == [RESULT]
        await push(ARGUMENT)


def chosen(messages: Sequence[BaseMessage]) -> AIMessage:
    """It pushes a door once, then looks again and again, and says what it thinks of that."""
    name = "look" if turns(messages) else "push"
    message = chooses((name, {"at": ARGUMENT}))
    return message.model_copy(
        update={
            "content": [
                {"type": "reasoning", "reasoning": THOUGHT},
                {"type": "text", "text": SAID},
            ],
            "additional_kwargs": {"reasoning_content": THOUGHT},
        }
    )


def langchain_tools() -> list[Any]:
    @tool
    def look(at: str) -> str:
        """Look at something."""
        return RESULT

    @tool
    def push(at: str) -> str:
        """Push a door."""
        raise ToolException(ERROR)

    push.handle_tool_error = True
    return [look, push]


def langchain_agent(*middleware: Any) -> None:
    agent = create_agent(
        ScriptedChatModel(script=chosen),
        langchain_tools(),
        system_prompt=PROMPT,
        name="browser",
        middleware=middleware,
    )
    handler = TidegaugeCallbackHandler(agent="browser", task_group="shop", node_spans=True)
    inputs: Any = {"messages": [("user", PROMPT)]}
    agent.invoke(inputs, config={"callbacks": [handler]})


def langchain_agent_that_fails() -> None:
    def give_up(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) > 2:
            raise ValueError(ERROR)
        return chosen(messages)

    agent = create_agent(ScriptedChatModel(script=give_up), langchain_tools(), name="browser")
    handler = TidegaugeCallbackHandler(agent="browser", task_group="shop")
    inputs: Any = {"messages": [("user", PROMPT)]}
    agent.invoke(inputs, config={"callbacks": [handler]})


def agents_sdk_agent() -> None:
    @function_tool(failure_error_function=lambda _, error: f"failed: {error}")
    def look(at: str) -> str:
        """Look at something."""
        raise ValueError(ERROR)

    @function_tool
    def read(at: str) -> str:
        """Read it."""
        return RESULT

    calls: list[Any] = [[("look", {"at": ARGUMENT})], *[[("read", {"at": ARGUMENT})]] * 4, SAID]
    processor = TidegaugeTracingProcessor()
    model = chat_completions(calls)
    browser = Agent(name="browser", instructions=PROMPT, model=model, tools=[look, read])
    with traced_by(processor):
        asyncio.run(Runner.run(browser, PROMPT))


def traced_agent(
    monkeypatch: pytest.MonkeyPatch,
    exporter: SpanExporter | None = None,
    instrumentation: str = "openinference",
) -> None:
    """An agent that another instrumentation traces, with contents; tidegauge reads its spans."""
    more = () if exporter is None else (SimpleSpanProcessor(exporter),)
    model = ScriptedChatModel(script=lambda messages: chosen(messages[:40]))
    agent = create_agent(model, langchain_tools(), system_prompt=PROMPT, name="browser")
    inputs: Any = {"messages": [("user", PROMPT)]}
    with (
        instrumented(monkeypatch, instrumentation, beside=more),
        pytest.raises(GraphRecursionError),
    ):
        agent.invoke(inputs, {"recursion_limit": 14})


def coding_agent(name: str) -> None:
    """What the hooks of a coding agent report."""
    sessions = HookSessions(get_recorder(), SessionLimits(beside_seconds=0.01), traced=True)

    def give(kind: str, *args: Any) -> None:
        payload = orjson.dumps(PAYLOADS[name](kind, *args))
        sessions.receive(name, payload.replace(b"Read it", PROMPT.encode()))

    for _ in range(2):
        give("prompt")
        for number in range(4):
            result = f"{RESULT} {ERROR if number == 3 else ''}"
            for kind in ("call", "result"):
                give(kind, f"c{number}", result, {"command": f"cat {ARGUMENT}; # {THOUGHT}"})
        give("end")


AGENTS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "plain": lambda _: plain_agent(),
    "plain, fails": lambda _: plain_agent_that_fails(),
    "decorated": lambda _: decorated_agent(),
    "asynchronous": lambda _: asyncio.run(async_agent()),
    "LangChain": lambda _: langchain_agent(),
    "LangChain, middleware": lambda _: langchain_agent(TidegaugeMiddleware()),
    "LangChain, fails": lambda _: langchain_agent_that_fails(),
    "Agents SDK": lambda _: agents_sdk_agent(),
    "OpenInference": traced_agent,
    **{f"hooks of {name}": partial(lambda name, _: coding_agent(name), name) for name in PAYLOADS},
}
STOPPED = {"plain", "decorated", "LangChain"}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What was logged so far, from DEBUG on."""
    caplog.set_level(logging.DEBUG, "tidegauge")
    return lambda: caplog.text


def worked(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: Any) -> Any:
    """What leaves when an agent works, and with what it ended."""
    recording, reader = folder / "runs.jsonl", InMemoryMetricReader()
    ended: BaseException | None = None
    with capture(
        rules=LADDER,
        extractors=[ROOMS],
        tools={"think": tidegauge.ToolDeclaration(thinks=True)},
        serve_metrics=True,
        metrics_port=0,
        record_to=recording,
        run_store=str(folder / "runs.sqlite"),
        meter_provider=MeterProvider([reader], shutdown_on_exit=False),
        otlp_metrics=True,
        **settings,
    ) as seen:
        try:
            AGENTS[name](monkeypatch)
        except (tidegauge.RunStopped, ValueError, ExceptionGroup) as error:
            ended = error
        data = reader.get_metrics_data()
        assert data is not None
        shown = {**shown_by(seen), "metrics in OTLP": data.to_json()}
    stored = [path.read_bytes() for path in folder.glob("runs.sqlite*")]
    return {**shown, "recording": recording.read_text(), "store": repr(stored)}, ended


@pytest.mark.parametrize("name", AGENTS)
def test_only_digests_leave(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    logged: Callable[[], str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    left, ended = worked(name, monkeypatch, tmp_path)
    left |= {"log": logged(), "terminal": "".join(capfd.readouterr())}
    assert {where: canaries_in(text) for where, text in left.items() if canaries_in(text)} == {}
    # It has something to say.
    assert '"sha:' in left["recording"]
    assert '"trail":[{"step":0,"tool":"' in left["page"]
    assert "tidegauge_steps_total{" in left["metrics"]
    assert "tidegauge_steps" in left["metrics in OTLP"]
    if name != "OpenInference":
        assert "execute_tool" in left["spans"]
    if name not in STOPPED:
        return
    assert "tidegauge.intervention" in left["events"]
    assert 'action="stop"' in left["metrics"]
    # The agent itself gets the name: that stays in the process.
    assert isinstance(ended, tidegauge.RunStopped)
    assert ended.state["unexplored"] == (ATTIC, CELLAR)
    assert canaries_in(str(ended)) == set()


@pytest.mark.parametrize("name", AGENTS)
def test_contents_leave_where_they_are_asked_for(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logged: Callable[[], str]
) -> None:
    left, _ = worked(name, monkeypatch, tmp_path, capture_content=True, record_contents=True)
    assert {ARGUMENT, RESULT} <= canaries_in(left["recording"])
    assert {ARGUMENT, RESULT} <= canaries_in(left["page"])
    if name != "OpenInference":  # its spans are not ours
        assert {PROMPT, ARGUMENT, RESULT} <= canaries_in(left["spans"])
    left["log"] = logged()
    for where in ("metrics", "metrics in OTLP", "redacted spans", "events", "store", "log"):
        assert canaries_in(left[where]) == set(), where


@pytest.mark.parametrize("instrumentation", INSTRUMENTORS)
def test_only_digests_leave_with_the_spans_of_others(
    instrumentation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, redacted = InMemorySpanExporter(), InMemorySpanExporter()
    exporter = RedactingExporter(redacted)

    class Both(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            plain.export(spans)
            return exporter.export(spans)

    with capture():
        traced_agent(monkeypatch, Both(), instrumentation)
    assert {PROMPT, ARGUMENT, RESULT, ERROR} <= canaries_in(written(plain.get_finished_spans()))
    found = redacted.get_finished_spans()
    assert len(found) > 10
    assert canaries_in(written(found)) == set()
    assert {span.name for span in found} == {span.name for span in plain.get_finished_spans()}


@pytest.mark.system
def test_no_content_of_spans_leaves_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded_runs: Path
) -> None:
    recording = tmp_path / "runs.jsonl"
    flags = (
        *("--allowed-lateness", "0.1", "--record-to", str(recording)),
        *("--policy", "loop_repeats=2,failed_rounds=1"),
    )
    environment = logging_everything(tmp_path)
    with serving(tmp_path, *flags, environment=environment) as server:
        traced_agent(monkeypatch, OTLPSpanExporter(endpoint=server.traces_url))
        exporter = OTLPSpanExporter(endpoint=server.traces_url)
        sent = 0
        for path in sorted((recorded_runs / "spans" / "frameworks").glob("*.jsonl")):
            spans = [with_canaries(span, PROMPT) for span in framework_spans.load(path)]
            assert exporter.export([sendable(span) for span in spans]).name == "SUCCESS"
            sent += len(spans)
        for kind, body in FAULTY.items():
            answer = server.post(body, kind=kind)
            assert answer.status == 400
            assert canaries_in(repr(answer.body)) == set()
        server.wait_for(catalog.SPANS_RECEIVED.name, lambda count: count > sent)
        server.wait_for("tidegauge_interventions_total", action="would_stop")
        server.wait_for("tidegauge_runs_finished_total", lambda count: count > 10)
        paths = ["/metrics", "/", *(f"/{path}" for path in pages(100))]
        left = {path: server.get(path).body.decode() for path in paths}
        assert server.stop() == 0
    left |= {"log": server.log.read_text(), "recording": recording.read_text()}
    assert {where: canaries_in(text) for where, text in left.items() if canaries_in(text)} == {}
    assert "WARNING:tidegauge:" in left["log"]
    assert '"sha:' in left["recording"]
    assert any('"trail":[{"step":0,"tool":"' in left[path] for path in paths)


@pytest.mark.system
@pytest.mark.parametrize("written_by", ["gateway", "collector"])
def test_no_content_of_spans_is_in_what_a_fleet_writes(
    written_by: str, kafka: Kafka, topic: str, recorded_runs: Path, tmp_path: Path
) -> None:
    create_topics(kafka, topic)
    requests = []
    for path in sorted((recorded_runs / "spans" / "frameworks").glob("*.jsonl")):
        # Those that come last are missing: the runs stay open.
        for _, spans in groupby(framework_spans.load(path)[:-2], lambda span: span.trace_id):
            sent = [sendable(with_canaries(span, PROMPT)) for span in spans]
            requests.append(encode_spans(sent))
    flags = (LATENESS, "--policy=loop_repeats=2", *(["--format=otlp"] * (written_by != "gateway")))
    with working(tmp_path, kafka, topic, *flags) as worker:
        if written_by == "gateway":
            variables = logging_everything(tmp_path)
            to = (f"--kafka={kafka.address}", f"--topic={topic}")
            with serving(tmp_path, *to, environment=variables) as server:
                server.send(requests)
            logs = [server.log]
        else:
            logs = []
            producer = Producer({"bootstrap.servers": kafka.address})
            for request in requests:
                trace_id = request.resource_spans[0].scope_spans[0].spans[0].trace_id
                producer.produce(topic, request.SerializeToString(), trace_id.hex().encode())
            assert producer.flush(PATIENCE) == 0
        worker.wait_for(catalog.WORKER_MESSAGES.name, lambda count: count >= len(requests))
        worker.wait_for(STEPS)
        left = {path: worker.get(f"/{path}").body.decode() for path in ["metrics", *pages(40)]}
        assert worker.stop() == 0
        logs.append(worker.log)
    topics = [name for name in kafka.topics() if topic in name]
    if written_by == "collector":  # which has sent it as it was
        topics.remove(topic)
    for name in topics:
        left[name] = "\n".join(kept_in(one.value()) for one in kafka.read(name))
    left |= {log.name: log.read_text() for log in logs}
    assert {where: canaries_in(text) for where, text in left.items() if canaries_in(text)} == {}
    [changelog] = [text for name, text in left.items() if name.startswith("changelog")]
    assert "sha:" in changelog
    assert "stopped: all measured work" in left[worker.log.name]
    assert '"trail":[{"step":0,"tool":"' in left["page/live?run=1&rows=100&after=0"]


def kept_in(value: bytes | None) -> str:
    """A message of a topic, with what is in a snapshot."""
    _, _, snapshot = (value or b"").partition(b"\n")
    with contextlib.suppress(ValueError):
        head, trace = RunSnapshot.read(snapshot)
        return f"{head} {trace()}"
    return repr(value)


FAULTY = {
    "application/json": f'{{"resourceSpans": [{{"{PROMPT}": "{PROMPT}'.encode(),
    "application/x-protobuf": b"\x0a\xff" + PROMPT.encode(),
}
"""Requests that cannot be read, by their content type."""


def sendable(span: SpanData) -> ReadableSpan:
    """A recorded span as an SDK would export it."""
    sampled = TraceFlags(TraceFlags.SAMPLED)

    def context(span_id: int) -> SpanContext:
        return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=sampled)

    return ReadableSpan(
        span.name,
        context(span.span_id),
        None if span.parent_id is None else context(span.parent_id),
        Resource(span.resource),
        span.attributes,
        [Event(name, attributes, span.end) for name, attributes in span.events],
        status=Status(StatusCode.ERROR, span.description) if span.failed else Status(),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=InstrumentationScope(span.scope),
    )


def test_a_saved_run_has_names_of_places_and_no_other_contents(tmp_path: Path) -> None:
    @tool
    def ask(at: str) -> str:
        """Look into a place, if a person lets you."""
        return f"{RESULT} {interrupt(SAID)}"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return chosen(messages) if turns(messages) < 3 else chooses(("ask", {"at": ARGUMENT}))

    model = ScriptedChatModel(script=script)
    tools = [*langchain_tools(), ask]
    agent = create_agent(model, tools, system_prompt=PROMPT, checkpointer=InMemorySaver())
    place = str(tmp_path / "runs.sqlite")
    inputs: Any = {"messages": [("user", PROMPT)]}
    with capture(run_store=place, extractors=[ROOMS]):
        handler = TidegaugeCallbackHandler(agent="browser")
        config: Any = {"callbacks": [handler], "configurable": {"thread_id": "t1"}}
        agent.invoke(inputs, config)
    with contextlib.closing(sqlite3.connect(place)) as database:
        [[state]] = database.execute("SELECT state FROM tidegauge_runs").fetchall()
    assert '"browser"' in state.decode()
    # The process that resumes it says what is unexplored and pending.
    assert canaries_in(state.decode()) == set(NAMES)


def test_a_short_content_cannot_be_guessed_from_its_digest() -> None:
    def digests(**settings: Any) -> set[Any]:
        with capture(**settings) as seen, tidegauge.run() as run:
            run.act("answer", "yes")
            run.observe("ok")
        return {span.attributes.get("tidegauge.action.digest") for span in seen.spans} - {None}

    ours = digests()
    assert ours != digests()  # another key for every pipeline
    assert digests(digest_key=b"team") == digests(digest_key=b"team") != digests(digest_key=b"b")


def keepers(task: str) -> list[RunStarted]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, RunStarted) and each.task == task]


@pytest.mark.slow
def test_the_words_of_a_task_are_forgotten_while_the_run_goes_on() -> None:
    task = f"{SECRET}-goal of this test"
    with capture() as seen, tidegauge.run(agent="browser", task=task, task_group="shop") as run:
        run.act("look", {"at": "here"})
        assert keepers(task) == []
        active = seen.pipeline.engine.get(run.id)
        assert active is not None
        assert SECRET not in repr(save_run(active))


def test_the_words_of_a_task_that_spans_are_to_show_are_kept_for_them() -> None:
    task = f"{SECRET}-goal of that test"
    with capture(capture_content=True), tidegauge.run(agent="browser", task=task) as run:
        run.act("look", {"at": "here"})
        assert len(keepers(task)) == 1


def test_a_task_is_distinguished_from_others_by_its_digest() -> None:
    with capture() as seen:
        for task, success in (("a", True), ("a", False), ("b", False)):
            with tidegauge.run(agent="browser", task=task) as run:
                run.act("look")
                run.finish(success=success)
        [group] = seen.pipeline.engine.snapshot().groups
        assert (group.finished.of(PassAtK).at(1), group.finished.of(PassAtK).at(2)) == (0.25, 1.0)
