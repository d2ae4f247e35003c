"""The client of an agent: it gets stops over real sockets, and never hurt by its server."""

from __future__ import annotations

import contextlib
import http.server
import json
import multiprocessing
import socket
import subprocess
import sys
import threading
from functools import partial

import pytest
from opentelemetry.sdk.trace import TracerProvider

from support.deciding import deciding, until_true
from support.interruptions import moments
from support.processes import PATIENCE
from support.prometheus import free_port
from support.requirements import needs_fork
from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import GO_ON
from tidegauge.fleet import DecisionClient
from tidegauge.fleet.kafka_records import DecisionAction
from tidegauge.safety.critical import run_deferred
from tidegauge.safety.guard import internal_errors


@pytest.fixture
def served():
    with deciding() as server:
        yield server


@pytest.fixture
def client(served):
    with DecisionClient(served.url, every=0.2) as made:
        yield made


def test_a_stop_reaches_the_agent(served, client) -> None:
    with client.watch("r1") as watched:
        watched.enforce()
        assert watched.decision is GO_ON
        served.decide("r1", "stop", 4, reason="loop_repeats", message="3 steps, repeated twice")
        until_true(lambda: watched.decision.stop)
        for _ in range(2):
            with pytest.raises(RunStopped) as stopped:
                watched.enforce()
            stop = stopped.value
            assert (stop.run, stop.step, stop.reason) == ("r1", 4, "loop_repeats")
            assert stop.message == "3 steps, repeated twice"
    assert client.failures == 0


def test_a_stop_that_was_decided_before_is_reported_to_every_later_client(served, client) -> None:
    served.decide("r1", "stop")
    with client.watch("r1") as first:
        until_true(lambda: first.decision.stop)
        with client.watch("r1") as second:
            until_true(lambda: second.decision.stop)


def test_a_milder_decision_comes_and_goes(served, client) -> None:
    seen = []
    client._on_decision = lambda watched: seen.append((watched.run, watched.decision.action))
    with client.watch("r1") as watched:
        for step, action in enumerate(["nudge", "block", "go_on"]):
            served.decide("r1", action, step, message="look elsewhere")
            until_true(lambda action=action: watched.decision.action == action)  # type: ignore[misc]
            watched.enforce()
        assert seen == [("r1", "nudge"), ("r1", "block"), ("r1", "go_on")]


def test_a_stop_stays_also_when_the_run_has_ended(served, client) -> None:
    with client.watch("r1") as watched, client.watch("r2") as other:
        served.decide("r1", "stop")
        until_true(lambda: watched.decision.stop)
        served.decide("r1", "ended", 1)
        served.decide("r2", "nudge")
        until_true(lambda: other.decision.nudge)
        assert watched.decision.stop
        served.decide("r2", "ended", 1)
        until_true(lambda: other.decision.action == "go_on")


def test_the_current_trace(served, client) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    with tracer.start_as_current_span("agent") as span:
        watched = client.watch_current_trace()
    trace_id = format(span.get_span_context().trace_id, "032x")
    assert watched.run == trace_id
    inner = f"{trace_id}-00000000000000ab"
    served.decide(inner, "stop", 2, trace_id=trace_id)
    until_true(lambda: watched.decision.stop)
    with pytest.raises(RunStopped) as stopped:
        watched.enforce()
    assert stopped.value.run == inner
    watched.close()
    watched.close()


def test_without_a_current_trace_nothing_is_watched(client) -> None:
    with client.watch_current_trace() as watched:
        watched.enforce()
    assert (watched.run, client._thread, client.unwatched) == (None, None, 0)


def test_more_runs_than_one_request_holds(served, client) -> None:
    with contextlib.ExitStack() as stack:
        all_watched = [stack.enter_context(client.watch(f"r{number}")) for number in range(150)]
        for number in (0, 70, 149):
            served.decide(f"r{number}", "stop")
        until_true(lambda: sum(watched.decision.stop for watched in all_watched) == 3)
        assert [w.run for w in all_watched if w.decision.stop] == ["r0", "r70", "r149"]
    assert client._open == {}


def test_runs_are_bounded_and_those_beyond_are_counted(served) -> None:
    with DecisionClient(served.url, every=0.1, max_runs=2) as client:
        served.decide("r2", "stop")
        first, second, third = (client.watch(f"r{number}") for number in range(3))
        assert (client.unwatched, third.decision) == (1, GO_ON)
        third.close()
        first.close()
        again = client.watch("r2")
        until_true(lambda: again.decision.stop)
        second.close()
        assert client.unwatched == 1


def test_a_handler_may_watch_and_close_at_any_moment() -> None:
    for moment in moments():
        with DecisionClient("http://127.0.0.1:9") as client:
            client._update = lambda runs: False  # type: ignore[method-assign]
            before = client.watch("before")
            moment.during(
                lambda client=client: client.watch("r1"),  # type: ignore[misc]
                lambda client=client, before=before: client.watch("r2") and before.close(),  # type: ignore[misc]
            )
            run_deferred()
            assert {one.run for one in client._open} == (
                {"r1", "r2"} if moment.came else {"before", "r1"}
            )


def test_what_a_handler_raises_leaves_a_client_that_works(served) -> None:
    served.decide("r2", "stop")

    def interrupt() -> None:
        raise KeyboardInterrupt

    for moment in moments(raising=True):
        with DecisionClient(served.url, every=0.1) as client:
            with contextlib.suppress(KeyboardInterrupt):
                moment.during(partial(client.watch, "r1"), interrupt)
            with client.watch("r2") as watched:
                until_true(lambda watched=watched: watched.decision.stop)  # type: ignore[misc]


@pytest.mark.parametrize("run", ["", "x" * 513, "\ud800"])
def test_ids_that_cannot_be_asked_for_hurt_nobody(served, client, run) -> None:
    with client.watch(run) as odd, client.watch("r1") as watched:
        served.decide("r1", "stop")
        until_true(lambda: watched.decision.stop)
        odd.enforce()
    assert (client.unwatched, client.failures) == (1, 0)


def test_a_fault_of_ours_hurts_nobody(served, client, faults_are_swallowed) -> None:
    with client.watch(7) as watched:
        watched.enforce()
    assert internal_errors.counts() == {"fleet.client": 1}


def test_a_callback_that_raises_stops_nobody(served, client, faults_are_swallowed) -> None:
    def fail(watched) -> None:
        watched.enforce()
        raise ValueError(watched.run)

    client._on_decision = fail
    with client.watch("r1") as first, client.watch("r2") as second:
        served.decide("r1", "nudge")
        until_true(lambda: first.decision.nudge)
        served.decide("r2", "stop")
        until_true(lambda: second.decision.stop)
        served.decide("r1", "stop", 2)
        until_true(lambda: first.decision.stop)
    assert internal_errors.counts() == {"fleet.client.on_decision": 1}


def test_a_server_that_cannot_be_reached_is_logged_once_and_tried_again(caplog) -> None:
    port = free_port()
    client = DecisionClient(f"http://127.0.0.1:{port}", every=0.01)
    with client, client.watch("r1") as watched:
        until_true(lambda: client.failures >= 3)
        watched.enforce()
        assert len(caplog.messages) == 1
        assert f"no decisions from 127.0.0.1:{port}, agents continue" in caplog.messages[0]
        with deciding(port=port) as server:
            server.decide("r1", "stop")
            until_true(lambda: watched.decision.stop)


def test_a_server_that_dies_and_comes_back_is_asked_again() -> None:
    port = free_port()
    client = DecisionClient(f"http://127.0.0.1:{port}", every=0.05)
    with client, client.watch("r1") as watched:
        actions: tuple[DecisionAction, ...] = ("nudge", "block", "stop")
        for step, action in enumerate(actions):
            with deciding(port=port) as server:
                server.decide("r1", action, step)
                until_true(lambda action=action: watched.decision.action == action)  # type: ignore[misc]


def test_a_connection_that_was_idle_too_long_is_no_failure() -> None:
    with deciding(idle_seconds=0.01) as server, DecisionClient(server.url, every=0.05) as client:
        with client.watch("r1") as first:
            server.decide("r1", "stop")
            until_true(lambda: first.decision.stop)
        until_true(lambda: server.server._connections == {})
        with client.watch("r2") as second:
            server.decide("r2", "stop")
            until_true(lambda: second.decision.stop)
        assert client.failures == 0


def test_the_token_is_shown_and_never_logged(caplog) -> None:
    with deciding(token="secret") as server:
        server.decide("r1", "stop")
        with DecisionClient(server.url, token="wrong", every=0.05) as client:
            watched = client.watch("r1")
            until_true(lambda: client.failures)
            assert not watched.decision.stop
        with DecisionClient(server.url, token="secret", every=0.05) as client:
            watched = client.watch("r1")
            until_true(lambda: watched.decision.stop)
    assert "401 Unauthorized" in caplog.text
    assert "wrong" not in caplog.text


class _Odd(http.server.BaseHTTPRequestHandler):
    """Answers 200 with what the test says."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args) -> None: ...


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"<html>",
        b"[" * 100_000,
        b'{"decisions": 1}',
        b'{"decisions": {"r1": 1}}',
        b'{"decisions": {"r1": {"action": "stop"}}}',
        b'{"decisions": {"r1": {"run": "r1", "action": ["stop"]}}}',
        b'{"decisions": {"r1": {"run": "r1", "action": "stop", "reason": 1}}}',
        b" " * (1 << 21),
    ],
    ids=lambda body: body[:20].decode() or "empty",
)
def test_what_is_no_answer_stops_nobody(body) -> None:
    odd = type("Odd", (_Odd,), {"body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), odd) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        client = DecisionClient(f"http://127.0.0.1:{server.server_port}", every=0.01)
        with client, client.watch("r1") as watched:
            until_true(lambda: client.failures >= 2)
            watched.enforce()
        server.shutdown()


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = DecisionClient(url, every=0.01, timeout=0.05)
        with client, client.watch("r1") as watched:
            until_true(lambda: client.failures >= 2)
            watched.enforce()


def test_closing_ends_a_request_that_waits(served) -> None:
    client = DecisionClient(served.url, every=30.0, timeout=5.0)
    client.watch("r1")
    served.wait_until_asked("r1")
    thread = client._thread
    assert thread is not None
    client.close()
    assert not thread.is_alive()
    client.close()
    assert client.failures == 0
    served.decide("r2", "stop")
    late = client.watch("r2")  # after that nothing is asked
    assert (late.decision, late in client._open, client._thread) == (GO_ON, False, thread)


@pytest.mark.parametrize(
    "url", ["", "localhost:9465", "ftp://host", "http://", "http://host:x", "http://[::1"]
)
def test_a_url_that_cannot_work_is_reported_at_once(url) -> None:
    with pytest.raises(ConfigurationError):
        DecisionClient(url)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"timeout": -1}, {"max_runs": 0}])
def test_numbers_that_cannot_work_are_reported_at_once(wrong) -> None:
    with pytest.raises(ConfigurationError):
        DecisionClient("http://127.0.0.1:1", **wrong)


def _in_child(client, url, answers) -> None:
    with client.watch("child") as watched:
        until_true(lambda: watched.decision.stop)
        answers.send(watched.decision.action)


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_asks_for_itself(served, client) -> None:
    with client.watch("parent") as watched:
        served.wait_until_asked("parent")
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        child = context.Process(target=_in_child, args=(client, served.url, there))
        child.start()
        served.decide("child", "stop")
        assert here.poll(PATIENCE)
        assert here.recv() == "stop"
        child.join(PATIENCE)
        assert child.exitcode == 0
        served.decide("parent", "stop")
        until_true(lambda: watched.decision.stop)
        assert client.failures == 0


def test_importing_it_loads_no_broker_client_and_starts_nothing() -> None:
    code = (
        "import json, sys, threading, tidegauge.fleet;"
        "tidegauge.fleet.DecisionClient('http://127.0.0.1:1');"
        "print(json.dumps([threading.active_count(), sorted(sys.modules)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    threads, modules = json.loads(done.stdout)
    assert threads == 1
    heavy = ("confluent_kafka", "quixstreams", "prometheus_client", "grpc", "click", "rich")
    assert [name for name in modules if name.partition(".")[0] in heavy] == []


def test_what_an_agent_does_takes_no_request(served, client, monkeypatch) -> None:
    """Nothing on the agent's path touches a socket: its thread is the only one that does."""
    asking = []
    ask = client._transport.get
    monkeypatch.setattr(
        client._transport,
        "get",
        lambda *values: (asking.append(threading.current_thread()), ask(*values))[1],  # type: ignore[func-returns-value]
    )
    with client.watch("r1") as watched:
        until_true(lambda: asking)
        for _ in range(1_000):
            watched.enforce()
    assert set(asking) == {client._thread}
