"""``tidegauge serve`` as it is run: agents of other processes show on its /metrics."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from support.otlp_receiver import grpc_receiver, http_receiver
from support.receiving import COMMAND, Served, export_two_steps, served

pytestmark = pytest.mark.system

LOOP = """
import sys, time
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
exporter = OTLPSpanExporter(endpoint=sys.argv[1] + "/v1/traces")
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=200))
LangChainInstrumentor().instrument(tracer_provider=provider)

@tool
def look(place: str) -> str:
    "Look somewhere."
    return f"nothing in {place}"

class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"
    def bind_tools(self, tools, **kwargs):
        return self
    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        turn = sum(isinstance(message, AIMessage) for message in messages)
        if turn == 5:
            print("looped", flush=True)
            sys.stdin.readline()
        call = {"name": "look", "args": {"place": "hall"}, "id": f"call-{turn}"}
        said = AIMessage("", tool_calls=[call]) if turn < 5 else AIMessage("I give up")
        return ChatResult(generations=[ChatGeneration(message=said)])

create_agent(Scripted(), [look], name="searcher").invoke({"messages": [("user", "find the key")]})
provider.shutdown()
"""


@pytest.mark.end_to_end
def test_an_agent_with_openinference_alone_shows_its_loop_while_it_runs() -> None:
    with served() as server, contextlib.ExitStack() as stack:
        agent = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", LOOP, server.http],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        stack.callback(agent.kill)
        assert agent.stdout.readline() == "looped\n"
        labels = ("searcher", "")
        server.wait_for("tidegauge_steps_total", *labels, value=5)
        assert server.samples()["tidegauge_runs_looping", labels] == 1
        assert server.samples()["tidegauge_loop_steps_total", (*labels, "look")] == 3
        agent.stdin.write("\n")
        agent.stdin.flush()
        server.wait_for("tidegauge_runs_finished_total", *labels, "unknown", value=1)
        assert agent.wait(10) == 0
        assert server.samples()["tidegauge_steps_total", labels] == 5
        assert server.samples()["tidegauge_receiver_late_spans_total", ()] == 0


def exporters(server: Served) -> Iterator[SpanExporter]:
    yield GrpcExporter(endpoint=server.grpc, insecure=True)
    yield HttpExporter(endpoint=f"{server.http}/v1/traces")


def act(server: Served) -> None:
    """An agent that takes two steps, over each protocol."""
    for exporter in exporters(server):
        export_two_steps(exporter)


def test_the_live_page_shows_what_arrives() -> None:
    with served("--allowed-lateness", "0") as server:
        act(server)
        server.wait_for("tidegauge_runs_finished_total", "a", "", "unknown", value=2)
        with urllib.request.urlopen(f"{server.page}page/live?run=1", timeout=10) as answer:
            document = json.load(answer)
    assert document["fleet"]["ended"] == 2
    assert [step["tool"] for step in document["chosen"]["trail"]] == ["look", "look"]
    with served("--page", "off") as server:
        assert server.page is None
        assert server.status("/") == 200  # the metrics, as before
        assert server.status("/page/live") == 200


def test_the_empty_page_says_where_spans_are_received() -> None:
    with served() as server:
        with urllib.request.urlopen(f"{server.page}page/live", timeout=10) as answer:
            invitation = json.load(answer)["invitation"]
        assert server.http in invitation["words"]
        lines = invitation["lines"].splitlines()
        assert len(lines) == 5
        assert f"export OTEL_EXPORTER_OTLP_ENDPOINT={server.http}" in lines


def test_sigterm_drains(tmp_path) -> None:
    recording = tmp_path / "runs.jsonl"
    with served("--allowed-lateness", "30", "--record-to", str(recording)) as server:
        act(server)
        assert server.samples()["tidegauge_receiver_spans_total", ()] == 6
        assert "tidegauge_steps_total" not in {name for name, _ in server.samples()}
        assert (server.status("/healthz"), server.status("/readyz")) == (200, 200)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "stopping: received spans are being measured\n"
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    assert [line["type"] for line in lines].count("end") == 2
    assert sum(line["type"] == "step" for line in lines) >= 4


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_is_taken_is_passed_on(protocol) -> None:
    receiver = {"grpc": grpc_receiver, "http": http_receiver}[protocol]
    with receiver() as behind:
        endpoint = behind.endpoint.replace("http:", f"{protocol}:").removesuffix("/v1/traces")
        with served("--forward-to", endpoint) as server:
            act(server)
            behind.wait_for(6)
            server.wait_for("tidegauge_receiver_forwarded_spans_total", value=6)
            server.wait_for("tidegauge_runs_finished_total", "a", "", "unknown", value=2)
            body = {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}
            request = urllib.request.Request(
                f"{server.http}/v1/traces",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.read() == b"{}"
            if protocol == "grpc":  # it is put into protobuf on the way
                behind.wait_for(7)
                assert behind.spans[-1].trace_id.hex() == SPAN["traceId"]
    assert {span.name for span in behind.spans} >= {"invoke_agent a", "execute_tool look"}


SPAN = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "GET"}


def test_an_endpoint_behind_that_is_down_costs_what_was_to_be_passed_on_and_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        flags = ("--forward-timeout", "0.2", "--forward-give-up-after", "0.1")
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with served("--forward-to", address, *flags) as server:
            act(server)
            server.wait_for("tidegauge_runs_finished_total", "a", "", "unknown", value=2)
            name = "tidegauge_receiver_forward_dropped_spans_total"
            server.wait_for(name, "unreachable", value=6)


def test_a_policy_is_watched() -> None:
    with served("--policy", "steps=1") as server:
        act(server)
        server.wait_for("tidegauge_runs_finished_total", "a", "", "unknown", value=2)
        assert (
            server.samples()["tidegauge_interventions_total", ("a", "", "would_stop", "steps")] == 2
        )


def test_a_token_and_a_file_of_settings(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    config = tmp_path / "serve.toml"
    config.write_text(f'token_file = "{token}"\ntask_group = "shop"\n')
    with served("--config", str(config)) as server:
        act(server)  # shows no token
        assert server.samples()["tidegauge_receiver_spans_total", ()] == 0
        refused = ("tidegauge_receiver_refused_spans_total", ("unauthorized",))
        assert server.samples()[refused] == 2
    with served("--config", str(config), OTEL_EXPORTER_OTLP_HEADERS="") as server:
        headers = {"authorization": "Bearer secret"}
        exporter = HttpExporter(endpoint=f"{server.http}/v1/traces", headers=headers)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        with provider.get_tracer("theirs").start_as_current_span("GET /"):
            pass
        provider.shutdown()
        assert server.samples()["tidegauge_receiver_spans_total", ()] == 1


@pytest.mark.parametrize("which", ["grpc", "http", "metrics"])
def test_a_port_in_use_is_one_line_and_exit_code_1(which) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"grpc": "0", "http": "0", "metrics": "0", which: str(port)}
        flags = [part for name, value in ports.items() for part in (f"--{name}-port", value)]
        done = subprocess.run(
            [*COMMAND, *flags], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "tidegauge:" in line]
    assert f"cannot listen on 127.0.0.1:{port} for" in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--grpc-port", "x"], "--grpc-port: 'x' is not a whole number; use 0 to 65535, or off"),
        (["--forward-to", "ftp://x"], "forward_to 'ftp://x' is not an OTLP endpoint"),
        (["--forward-to", "http://[::1"], "forward_to 'http://[::1': Invalid IPv6 URL"),
        (["--max-request-bytes", "9" * 30], "is out of range; use 1 to 1073741824"),
        (
            ["--shutdown-seconds", "1e30"],
            "--shutdown-seconds: 1e30 is out of range; use 0 to 86400",
        ),
        (["--policy", "no_signal=3"], "--policy: unknown signal 'no_signal'"),
        (["--runbooks", "wiki"], "runbooks"),
        (["--tls-key", "k"], "set both tls_certificate and tls_key"),
        (["--metrics-port", "off"], "--metrics-port: 'off' is not a whole number; use 0 to 65535"),
        (["--allowed-hosts", "http://gauge.example"], "'http://gauge.example' is not a host name"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(flags, message) -> None:
    ports = ["--grpc-port", "0", "--http-port", "0"]
    done = subprocess.run(
        [*COMMAND, *ports, *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert message in done.stderr


@pytest.mark.parametrize("variable", ["TOKEN", "FORWARD_TOKEN", "TOKEN_FILE", "TLS_CLIENT_CA"])
@pytest.mark.parametrize("empty", ["", " "])
def test_a_secret_that_was_not_filled_in_is_one_line_and_exit_code_2(variable, empty) -> None:
    name = f"TIDEGAUGE_SERVE_{variable}"
    ports = ["--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"]
    done = subprocess.run(
        [*COMMAND, *ports, "--forward-to", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, name: empty},
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert name in done.stderr


def test_what_is_exposed_is_said_in_one_line(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    for flags, said in (
        ([], "any of them can send spans and read the metrics and the live page; set token_file"),
        (["--token-file", str(token)], "any of them can read the metrics and the live page; set"),
    ):
        with served("--host", "0.0.0.0", *flags) as server:
            assert server.process.stdout is not None
            warning = server.process.stdout.readline()
        assert warning.startswith("warning: 0.0.0.0 is reachable from other machines")
        assert said in warning
    with served() as server:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
        assert server.process.stdout is not None
        assert "warning:" not in server.process.stdout.read()
