"""Contents never leave, and what is measured is the same with digests in their place."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from support import framework_spans
from support.framework_spans import with_canaries
from support.other_spans import Listener
from tidegauge import redact, testing
from tidegauge.foreign_spans.convention_reader import MARKER_ATTRIBUTES
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.decoding import ReadLimits, decode_protobuf
from tidegauge.redact import RedactingExporter, Redaction

KEY = b"secret"
SECRET = "4929-1234"
REDACTION = Redaction(KEY)


def exported(
    fill,
    *,
    name: str = "execute_tool look",
    scope: tuple[Any, ...] = ("theirs",),
    resource: dict[str, Any] | None = None,
    **settings: Any,
) -> Any:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, resource=Resource(resource or {}))
    provider.add_span_processor(SimpleSpanProcessor(RedactingExporter(exporter, KEY, **settings)))
    span = provider.get_tracer(*scope).start_span(name)
    fill(span)
    span.end()
    [found] = exporter.get_finished_spans()
    return found


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("url.full", ["https://x/?q=secret"], ["https://x/?sha:"]),
        ("url.full", "https://ann:secret@x/y", "https://x/y"),
        ("http.request.header.referer", ["https://x/?q=secret", "a"], ["https://x/?sha:", "a"]),
        ("http.response.header.location", "https://u:secret@x/?secret", "https://x/?sha:"),
    ],
)
def test_addresses_keep_neither_users_nor_queries(name: str, value: Any, expected: Any) -> None:
    def cut(text: str) -> str:
        return re.sub(r"sha:\w+", "sha:", text)

    for agent in (True, False):
        found = Redaction(b"k").attributes({name: value}, agent=agent)[name]
        assert (cut(found) if isinstance(found, str) else list(map(cut, found))) == expected


@pytest.mark.parametrize(
    "name", ["http.request.body", "rpc.request.payload", "http.request.header.note", "url.query"]
)
def test_a_text_with_an_address_in_it_is_no_address(name: str) -> None:
    text = "Ann lives at https://x/y " * (1 if "header" not in name else 20)
    for value in (text, ["https://x/y", text]):
        assert "Ann" not in str(Redaction(b"k").attributes({name: value}, agent=True))


def test_a_long_text_without_spaces_is_no_name() -> None:
    given = {"gen_ai.operation.name": "chat", "task.name": "\N{CJK UNIFIED IDEOGRAPH-79D8}" * 300}
    assert Redaction(b"k").attributes(given)["task.name"].startswith("sha:")
    assert Redaction(b"k").attributes({"task.id": "a" * 300}) == {"task.id": "a" * 300}


def test_the_content_of_a_message_is_replaced_beside_agents_too() -> None:
    given = {"messaging.message.content": "Call Ann", "messaging.message.id": "m1"}
    found = Redaction(b"k").attributes(given, agent=False)
    assert found["messaging.message.content"].startswith("sha:")
    assert found["messaging.message.id"] == "m1"


def test_contents_are_replaced_and_the_rest_stays():
    def fill(span):
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.call.id", "c1")
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps({"card": SECRET, "n": 2}))
        span.set_attribute("gen_ai.usage.input_tokens", 7)
        span.record_exception(ValueError(SECRET))
        span.set_status(Status(StatusCode.ERROR, SECRET))

    span = exported(fill)
    assert SECRET not in span.to_json()
    assert span.name == "execute_tool look"
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert span.attributes["gen_ai.tool.call.id"] == "c1"
    assert span.attributes["gen_ai.usage.input_tokens"] == 7
    arguments = json.loads(span.attributes["gen_ai.tool.call.arguments"])
    assert arguments == {"card": REDACTION.digest(SECRET), "n": REDACTION.digest(2)}
    [event] = span.events
    assert event.attributes["exception.type"] == "ValueError"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == REDACTION.digest(SECRET)


def test_what_is_redacted_is_encoded_as_otlp():
    def fill(span):
        span.set_attribute("gen_ai.tool.call.result", SECRET)
        span.set_attribute("gen_ai.response.finish_reasons", ["stop"])
        span.add_link(span.get_span_context(), {"gen_ai.prompt": SECRET})
        span.add_event("gen_ai.choice", {"message": SECRET})

    body = encode_spans([exported(fill)]).SerializeToString()
    [span] = decode_protobuf(body, ReadLimits(unread=True)).spans
    assert SECRET.encode() not in body
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert span.attributes["gen_ai.tool.call.result"] == REDACTION.digest(SECRET)
    assert span.events == (("gen_ai.choice", {"message": REDACTION.digest(SECRET)}),)


def test_messages_keep_their_structure():
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"name": SECRET}}
    answer = {"type": "tool_call_response", "id": "c1", "response": {"name": SECRET, "id": SECRET}}
    said = [{"role": "assistant", "parts": [{"type": "text", "content": SECRET}, call]}]
    shown = [{"role": "tool", "parts": [answer]}]
    found = REDACTION.attributes(
        {"gen_ai.output.messages": json.dumps(said), "gen_ai.input.messages": json.dumps(shown)}
    )
    assert SECRET not in str(found)
    [message] = json.loads(found["gen_ai.output.messages"])
    assert message["role"] == "assistant"
    assert message["parts"][1] == {**call, "arguments": {"name": REDACTION.digest(SECRET)}}
    [message] = json.loads(found["gen_ai.input.messages"])
    assert message["parts"][0]["response"] == REDACTION.digest(answer["response"])


@pytest.mark.parametrize(
    "attributes",
    [
        {"input.value": SECRET, "openinference.span.kind": "TOOL"},
        {"llm.input_messages.0.message.content": SECRET},
        {"llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": f'"{SECRET}"'},
        {
            "traceloop.entity.input": json.dumps(
                {"inputs": {"a": SECRET}, "kwargs": {"name": SECRET}}
            )
        },
        {"traceloop.association.properties.user_name": SECRET, "traceloop.span.kind": "tool"},
        {"ai.response.toolCalls": json.dumps([{"toolCallId": "c", "input": {"q": SECRET}}])},
        {"ai.prompt.tools": (SECRET, json.dumps({"type": "function", "description": SECRET}))},
        {"gen_ai.prompt": json.dumps([["user", SECRET]])},
        {"gen_ai.prompt": json.dumps({"name": SECRET, "role": 1, "type": ["text"]})},
        {"gen_ai.something.new": SECRET},
        {"gen_ai.tool.call.result": json.dumps({"role": "user", "name": SECRET, "id": SECRET})},
        {"ai.toolCall.result": json.dumps([["user", {"type": "text", "name": SECRET}]])},
        {
            "gen_ai.input.messages": json.dumps(
                [
                    {
                        "role": "tool",
                        "parts": [
                            {"type": "tool_result", "result": {"role": "user", "name": SECRET}}
                        ],
                    }
                ]
            )
        },
        {"gen_ai.prompt": json.dumps({"role": "user", "customer_name": SECRET, "system": SECRET})},
        {"ai.prompt.system": SECRET, "gen_ai.handoff.reason": SECRET},
        {"metadata": json.dumps({"thread_id": "t", "note": SECRET}), "llm.x": 1},
        {"gen_ai.operation.name": "chat", "raw_input": SECRET, "response": json.dumps([SECRET])},
        {"mlflow.spanInputs": json.dumps({"messages": [{"role": "user", "content": SECRET}]})},
        {"gcp.vertex.agent.llm_request": f"{{not JSON {SECRET}"},
        {"gen_ai.input.messages": json.dumps(f"[{SECRET}")},
        {"lmnr.span.type": "DEFAULT", "lmnr.span.output": SECRET},
        {"logfire.msg_template": "Function: {name}", "logfire.msg": SECRET, "input": SECRET},
        {"acme.llmOutput": SECRET, "acme.note": SECRET},
        {"weave.inputs": json.dumps({"q": SECRET})},
        {"input.value": SECRET},
        {"acme.output.0": SECRET},
        {"acme.inputs.question": SECRET, "acme.prompts": (SECRET, SECRET)},
    ],
)
def test_no_content_leaves(attributes):
    assert SECRET not in str(REDACTION.attributes(attributes))


def test_no_content_leaves_in_links_in_errors_or_beside_an_exception():
    def fill(span):
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("error.message", SECRET)
        span.add_link(span.get_span_context(), {"why": SECRET})
        span.add_event("exception", {"exception.type": "ValueError", "given": SECRET})

    span = exported(fill)
    assert SECRET not in span.to_json()
    assert span.events[0].attributes["exception.type"] == "ValueError"


FREE = f"{SECRET} is the card of Ann"
PLACES: dict[str, dict[str, Any]] = {
    "the name of a span of more than a line": {"name": f"asked:\n{SECRET}"},
    "the long name of a span": {"name": f"asked: {SECRET} {'and so on ' * 30}"},
    "the name of a scope": {"scope": (FREE,)},
    "the version of a scope": {"scope": ("theirs", FREE)},
    "the schema of a scope": {"scope": ("theirs", "1", f"https://schema/{FREE}")},
    "an attribute of a scope": {"scope": ("theirs", "1", None, {"prompt": SECRET})},
    "a text on a scope": {"scope": ("theirs", "1", None, {"note": FREE})},
    **{
        f"{name} of a resource": {"resource": {name: value}}
        for name, value in {
            "acme.prompt": SECRET,
            "inputs": SECRET,
            "acme.output.0": (SECRET, SECRET),
            "service.instructions": SECRET,
            "gen_ai.something": SECRET,
            "tidegauge.task": SECRET,
            "process.command_line": f"agent.py {SECRET}",
            "process.command_args": ("agent.py", SECRET),
            "process.environment_variable.GOAL": SECRET,
            "owner": FREE,
            "tags": ("fine", FREE),
            "address": f"http://{SECRET}/{'x' * 200}",
            "acme.name": f"{FREE} {'and so on ' * 30}",
        }.items()
    },
}


@pytest.mark.parametrize("around", PLACES.values(), ids=PLACES)
def test_no_content_leaves_around_a_span(around: dict[str, Any]) -> None:
    span = exported(lambda span: None, **around)
    # The JSON of a span has no scope.
    scope = span.instrumentation_scope
    assert SECRET not in f"{span.to_json()} {scope.to_json()}"
    assert SECRET.encode() not in encode_spans([span]).SerializeToString()


def test_what_is_known_of_a_deployment_stays():
    resource = {
        "service.name": "The shop of Ann",
        "service.version": "1.62.0",
        "service.instance.id": "5bfaafa0-96f7-4e32-9c10-212e48209bf0",
        "deployment.environment": "production",
        "host.arch": "amd64",
        "k8s.pod.name": "shop-5d9c",
        "os.description": "Debian GNU/Linux 12 (bookworm)",
        "process.command": "/srv/agent.py",
        "process.pid": 7,
        "process.runtime.description": "3.11.7 (main) [GCC 12.2.0]",
        "cloud.availability_zone": "eu-west-1a",
        "aws.ecs.task.arn": "arn:aws:ecs:eu-west-1:10:task/10838bed",
        "team": "search",
        "tags": ("blue", "canary"),
        "tidegauge.agent": "porter",
    }
    scope = ("@theirs/instrumentation-x", "0.1.80", "https://schema/1", {"lane": "fast"})
    span = exported(lambda span: None, resource=resource, scope=scope)
    assert dict(span.resource.attributes) == resource
    found = span.instrumentation_scope
    assert (found.name, found.version) == scope[:2]
    assert (found.schema_url, dict(found.attributes)) == scope[2:]


@pytest.mark.parametrize("kind", [{}, {"gen_ai.operation.name": "chat"}], ids=["other", "agent"])
def test_no_content_leaves_with_an_event_an_error_or_a_link(kind: dict[str, str]) -> None:
    def fill(span):
        span.set_attributes({**kind, "exception.message": SECRET, "error.stack": SECRET})
        span.set_attribute("otel.status_description", SECRET)
        span.set_attribute("note", FREE)
        span.record_exception(ValueError(SECRET))
        span.set_status(Status(StatusCode.ERROR, SECRET))
        span.add_event(f"asked: {SECRET}", {"note": FREE})
        span.add_event("gen_ai.choice", {"message": SECRET, "exception.message": SECRET})
        span.add_link(span.get_span_context(), {"note": FREE, "acme.output": SECRET})

    span = exported(fill)
    assert SECRET not in span.to_json()
    error, asked, choice = span.events
    assert error.name == "exception"
    assert error.attributes["exception.type"] == "ValueError"
    assert error.attributes["exception.escaped"] == "False"
    assert error.attributes["exception.message"] == REDACTION.digest(SECRET)
    assert asked.name == REDACTION.digest(f"asked: {SECRET}")
    assert choice.name == "gen_ai.choice"


def test_a_long_text_under_a_name_for_a_name_is_none():
    text = f"{FREE} {'and so on ' * 30}"
    said = [{"role": "user", "name": text, "parts": []}]
    given = {"gen_ai.agent.name": text, "gen_ai.input.messages": json.dumps(said)}
    assert SECRET not in str(REDACTION.attributes(given))
    long_id = {"gen_ai.tool.call.id": "call__thought__" + "x" * 1_000}
    assert REDACTION.attributes(long_id) == long_id


def test_bodies_and_parameters_of_other_spans_are_replaced():
    given = {
        "http.request.body": SECRET,
        "messaging.message.body": SECRET,
        "db.query.parameter.0": SECRET,
        "faas.payload": SECRET,
    }
    assert SECRET not in str(REDACTION.attributes(given))


def test_the_query_of_an_address_is_replaced():
    names = ("url.full", "url.original", "http.url", "http.target", "url.query")
    given = dict.fromkeys(names, f"http://shop/search?q={SECRET}#{SECRET}")
    found = REDACTION.attributes({**given, "url.fragment": SECRET, "url.path": "/search"})
    assert SECRET not in str(found)
    assert found["url.full"].startswith("http://shop/search?sha:")
    assert found["url.path"] == "/search"


def test_other_spans_stay_as_they_are():
    attributes = {
        "http.url": "http://shop",
        "user_agent.original": "Mozilla/5.0 (X11; Linux)",
        "error.type": "ValueError",
        "db.statement": "SELECT 1",
        "db.query.text": "SELECT 1",
        "messaging.message.id": "m",
        "app.requests": 3,
    }
    assert REDACTION.attributes(attributes) == attributes


def test_attributes_of_choice_stay():
    span = exported(lambda span: span.set_attribute("gen_ai.x", "y"), keep={"gen_ai.x"})
    assert span.attributes == {"gen_ai.x": "y"}


def test_names_and_messages_of_choice_stay():
    def fill(span):
        span.add_event("a b", {"exception.message": "no key"})

    keep = {"a b", "exception.message", "team name"}
    span = exported(fill, keep=keep, scope=("team name",))
    [event] = span.events
    assert (event.name, dict(event.attributes)) == ("a b", {"exception.message": "no key"})
    assert span.instrumentation_scope.name == "team name"


def test_equal_contents_have_equal_digests_under_one_key():
    same = ({"a": 1, "b": [2]}, '{"b": [2], "a": 1}')
    assert len({Redaction(KEY).digest(one) for one in same}) == 1
    assert Redaction(KEY).digest("5") == Redaction(KEY).digest(5)
    assert Redaction(KEY).digest("a") != Redaction(KEY).digest("b")
    assert Redaction(KEY).digest("a") != Redaction(b"other").digest("a")
    assert Redaction().digest("a") != Redaction().digest("a")


def test_a_span_that_cannot_be_redacted_has_no_contents(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(Redaction, "attributes", broken)
    given = {"acme.prompt": SECRET}
    span = exported(lambda span: span.set_attribute("gen_ai.prompt", SECRET), resource=given)
    assert SECRET not in span.to_json()
    assert span.name == "execute_tool look"
    assert span.status.status_code is StatusCode.UNSET


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "type", "content", "args", "id", "function", "usage", "x"]),
            inner,
            max_size=4,
        )
    ),
)


@given(values)
def test_any_value_is_redacted_without_a_fault(value):
    given = {"gen_ai.prompt": json.dumps(value), "gen_ai.completion": value}
    assert REDACTION.attributes(given).keys() == given.keys()


def test_a_deep_value_is_digested_as_a_whole():
    assert "x" not in REDACTION.attributes({"gen_ai.prompt": "[" * 5000 + '"x"' + "]" * 5000})[
        "gen_ai.prompt"
    ].removeprefix("sha:")


def load(path: Path, redaction: Redaction | None) -> list[SpanData]:
    spans = framework_spans.load(path)
    return spans if redaction is None else [redacted(span, redaction) for span in spans]


def redacted(span: SpanData, redaction: Redaction) -> SpanData:
    agent = redact._is_of_agent(span.attributes)
    return span._replace(
        scope=redaction.name(span.scope),
        attributes=redaction.attributes(span.attributes, agent=agent),
        description=span.description and redaction.digest(span.description),
        events=[
            (redaction.name(name), redaction.attributes(attributes, agent=agent or None))
            for name, attributes in span.events
        ],
        resource=redaction.attributes(span.resource, agent=False),
    )


def measured(spans: list[SpanData]) -> list[Any]:
    with testing.capture() as seen:
        listener, assembly = Listener(seen), Assembly()
        for at, span in enumerate(spans):
            assembly.take([span], now=float(at))
        assembly.close()
        reports = [listener.reports[event.run].as_dict() for event in listener.started]
        keys = ("steps", "loop_steps", "tokens", "failed_steps")
        return [
            [event.agent, *map(report.get, keys)]
            for event, report in zip(listener.started, reports, strict=True)
        ]


@pytest.fixture
def recordings(recorded_runs: Path) -> list[Path]:
    found = sorted((recorded_runs / "spans" / "frameworks").glob("*.jsonl"))
    assert found
    return found


def test_loops_are_the_same_with_digests(recordings: list[Path]) -> None:
    for path in recordings:
        assert measured(load(path, REDACTION)) == measured(load(path, None)), path.stem


def test_no_result_or_task_of_a_framework_leaves(recordings: list[Path]) -> None:
    for path in recordings:
        for span in load(path, REDACTION):
            written = str((dict(span.attributes), span.events))
            assert "nothing at" not in written, path.stem
            assert "find the key" not in written, path.stem


CANARY = "a canary in a mine"


def test_no_canary_leaves_in_any_recorded_convention(recorded_runs: Path) -> None:
    left = set()
    recordings = sorted((recorded_runs / "spans").rglob("*.jsonl"))
    assert recordings
    for path in recordings:
        for span in (with_canaries(span, CANARY) for span in framework_spans.load(path)):
            if not redact._is_of_agent(span.attributes):
                # What tidegauge reads as an agent's has a marker.
                assert MARKER_ATTRIBUTES.isdisjoint(span.attributes), (path.name, span)
            for attributes in (span.attributes, *[with_it for _, with_it in span.events]):
                found = REDACTION.attributes(attributes)
                left |= {name for name, value in found.items() if CANARY in str(value)}
    assert left == set()


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 300_000 + "]", "[" + "'a'," * 250_000 + "]", "-" * 1_000_000]
)
def test_a_literal_of_many_elements_costs_little(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="too many tokens"):
        redact.python_literal(text)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < len(text)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.binary(max_size=8) | st.sampled_from(["'''", '"\'#', "f'{1}'", "\\\n"]),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(literals)
def test_any_literal_is_read_as_python_reads_it(value: object) -> None:
    assert redact.python_literal(repr(value)) == value


@given(st.text(alphabet="'\"\\[](){},:#fr1 \n"))
def test_no_text_is_read_otherwise_than_python_reads_it(text: str) -> None:
    try:
        found = redact.python_literal(text)
    except ValueError:
        return
    assert found == ast.literal_eval(text)


def test_the_module_needs_nothing_of_tidegauge():
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "assert not [name for name in sys.modules if name.startswith('tidegauge')]"
    )
    subprocess.run([sys.executable, "-c", program, redact.__file__], check=True, timeout=60)
