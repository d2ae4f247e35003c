"""The decisions server over real sockets: answers, waiting, limits."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from support.deciding import Deciding, deciding, until_true
from support.processes import PATIENCE

STOP = {
    "run": "r1",
    "known": True,
    "action": "stop",
    "reason": "loop_repeats",
    "message": "3 steps, repeated twice",
    "step": 4,
}


@pytest.fixture
def served():
    with deciding() as server:
        server.decide("r1", "stop", 4, reason="loop_repeats", message="3 steps, repeated twice")
        yield server


def test_what_holds_for_a_run(served) -> None:
    response = served.get("/v1/decisions/r1")
    assert (response.status, response.json) == (200, STOP)
    assert response.headers["Content-Type"] == "application/json"


def test_no_decision_is_to_go_on_and_no_error(served) -> None:
    response = served.get("/v1/decisions/nobody")
    assert response.status == 200
    assert response.json == {
        "run": "nobody",
        "known": False,
        "action": "go_on",
        "reason": None,
        "message": None,
        "step": None,
    }


@pytest.mark.parametrize("run", ["a/b", "né à côté", "100%", "?x=1&y", "a+b", "..", " "])
def test_ids_are_percent_encoded(served, run) -> None:
    from urllib.parse import quote, urlencode

    served.decide(run, "nudge")
    response = served.get(f"/v1/decisions/{quote(run, safe='')}").json
    assert (response["run"], response["action"]) == (run, "nudge")
    response = served.get(f"/v1/decisions?{urlencode({'id': run})}").json
    assert response["decisions"][run]["action"] == "nudge"


def test_several_runs_in_one_request(served) -> None:
    response = served.get("/v1/decisions?id=r1&id=r2").json["decisions"]
    assert {run: decision["action"] for run, decision in response.items()} == {
        "r1": "stop",
        "r2": "go_on",
    }


def test_a_trace_gets_the_decisions_of_its_runs(served) -> None:
    served.decide("t", "nudge", trace_id="t")
    served.decide("t-1", "stop", trace_id="t")
    assert served.get("/v1/decisions/t").json["run"] == "t-1"


def test_what_is_unchanged_is_not_sent_again(served) -> None:
    tag = served.get("/v1/decisions/r1").tag
    for shown in (tag, f'"other", W/{tag}', "*"):
        response = served.get("/v1/decisions/r1", If_None_Match=shown)
        assert (response.status, response.body, response.tag) == (304, b"", tag)
    assert served.get("/v1/decisions/r1", If_None_Match='"other"').status == 200
    served.decide("r1", "ended", 5)
    response = served.get("/v1/decisions/r1", If_None_Match=tag)
    assert (response.status, response.json["action"]) == (200, "ended")


def test_another_server_gives_the_same_tag(served) -> None:
    with deciding() as other:
        other.decide("r1", "stop", 4, reason="loop_repeats", message="3 steps, repeated twice")
        assert other.get("/v1/decisions/r1").tag == served.get("/v1/decisions/r1").tag


@pytest.mark.parametrize("path", ["/v1/decisions/r2?", "/v1/decisions?id=r9&id=r2&"])
def test_who_waits_is_answered_as_soon_as_it_changes(served, path) -> None:
    tag = served.get(path).tag
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.get, f"{path}wait=30", If_None_Match=tag)
        served.wait_until_asked("r2")
        served.decide("r3", "stop")  # somebody else's
        assert not asked.done()
        served.decide("r2", "stop", 7)
        response = asked.result(PATIENCE)
    assert response.status == 200
    assert b'"step":7' in response.body
    assert served.cache._waiting == {}


def test_who_waits_for_a_trace_is_answered_about_a_run_in_it(served) -> None:
    tag = served.get("/v1/decisions/t").tag
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(served.get, "/v1/decisions/t?wait=30", If_None_Match=tag)
        served.wait_until_asked("t")
        served.decide("t-1", "stop", trace_id="t")
        until_true(asked.done, PATIENCE / 3)  # and not when the time is over
        assert asked.result().json["run"] == "t-1"


def test_waiting_ends(served) -> None:
    tag = served.get("/v1/decisions/r1").tag
    assert served.get("/v1/decisions/r1?wait=0.01", If_None_Match=tag).status == 304
    assert served.get("/v1/decisions/r1?wait=30").status == 200  # knows nothing: answered at once


def test_a_shutdown_answers_those_who_wait() -> None:
    with ThreadPoolExecutor(1) as pool:
        with deciding() as server:
            tag = server.get("/v1/decisions/r1").tag
            asked = pool.submit(server.get, "/v1/decisions/r1?wait=30", If_None_Match=tag)
            server.wait_until_asked("r1")
        response = asked.result(PATIENCE)
    assert (response.status, response.headers["Connection"]) == (304, "close")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/decisions/",
        "/v1/decisions",
        "/v1/decisions?id=",
        "/v1/decisions/%ff",
        "/v1/decisions?id=%ff",
        "/v1/decisions/" + "x" * 513,
        "/v1/decisions?" + "&".join(f"id={number}" for number in range(65)),
        "/v1/decisions?" + "&".join(f"id={number}" for number in range(5_000)),
        "/v1/decisions/r1?wait=soon",
        "/v1/decisions/r1?wait=-1",
        "/v1/decisions/r1?wait=nan",
        "/v1/decisions/r1?wait=inf",
    ],
)
def test_what_cannot_be_asked(served, path) -> None:
    response = served.get(path)
    assert response.status == 400
    assert set(response.json) == {"error"}
    assert served.count("refused") == 1


def test_other_paths_and_methods(served) -> None:
    for path in ("/", "/v1", "/v1/decision", "/v1/decisionsr1", "/v2/decisions/r1"):
        assert served.get(path).status == 404
    assert served.get("/v1/decisions/r1", method="POST").status == 501
    head = served.get("/v1/decisions/r1", method="HEAD")
    assert (head.status, head.body, head.tag) == (200, b"", served.get("/v1/decisions/r1").tag)


def test_no_client_gets_half_of_what_was_decided() -> None:
    ready = threading.Event()
    with deciding(ready=ready.is_set) as server:
        assert server.get("/healthz").status == 200
        assert server.get("/readyz").status == 503
        response = server.get("/v1/decisions/r1")
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert server.count("not_ready") == 1
        ready.set()
        assert server.get("/readyz").status == 200
        assert server.get("/v1/decisions/r1").status == 200


@pytest.mark.parametrize("shown", [None, "Bearer wrong", "Bearer", "Basic secret", "secret", "é"])
def test_a_token_is_needed_where_there_is_one(shown) -> None:
    with deciding(token="secret") as server:
        headers = {} if shown is None else {"Authorization": shown}
        response = server.get("/v1/decisions/r1", **headers)
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert server.count("unauthorized") == 1
        assert server.get("/v1/decisions/r1", Authorization="bearer secret").status == 200
        assert server.get("/healthz").status == 200


def test_one_connection_takes_many_requests(served) -> None:
    connection = http.client.HTTPConnection(*served.address, timeout=PATIENCE)  # type: ignore[misc]
    with contextlib.closing(connection):
        sockets = set()
        for path in ("/v1/decisions/r1", "/v1/decisions/", "/v1/decisions/r1?wait=0", "/metrics"):
            connection.request("GET", path)
            connection.getresponse().read()
            assert connection.sock is not None
            sockets.add(connection.sock.getsockname())
    assert len(sockets) == 1


def test_a_body_is_not_taken_for_the_next_request(served) -> None:
    smuggled = b"GET /v1/decisions/r1 HTTP/1.1\r\n\r\n"
    with socket.create_connection(served.address, PATIENCE) as client:
        head = (
            f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(smuggled)}\r\n\r\n"
        )
        client.sendall(head.encode() + smuggled)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65_536):
                answer += part
    assert answer.count(b"HTTP/1.1 ") == 1


def test_slow_and_silent_clients_are_let_go() -> None:
    with deciding(request_seconds=0.1, idle_seconds=0.1) as server:
        for sent, answer in ((b"", b""), (b"GET /v1/decisions/r1 HTT", b"HTTP/1.1 408 ")):
            with socket.create_connection(server.address, PATIENCE) as client:
                client.sendall(sent)
                assert client.recv(13) == answer


def test_connections_have_a_highest_number() -> None:
    with deciding(max_connections=2) as server, contextlib.ExitStack() as stack:
        tag = server.get("/v1/decisions/r1").tag
        request = (
            "GET /v1/decisions/r1?wait=30 HTTP/1.1\r\nHost: localhost\r\n"
            f"If-None-Match: {tag}\r\n\r\n"
        )
        until_true(lambda: not server.server._connections)
        waiting = [stack.enter_context(_connected(server)) for _ in range(2)]
        for client in waiting:
            client.sendall(request.encode())
        until_true(lambda: len(server.cache._waiting.get("r1", ())) == 2)
        with _connected(server) as refused:
            assert refused.recv(65_536).startswith(b"HTTP/1.1 503 ")
        for client in waiting:
            client.close()
        server.decide("r1", "stop")  # wakes the threads of those who went away
        until_true(lambda: not server.server._connections)
        assert server.count("busy") == 1


def _connected(server: Deciding) -> socket.socket:
    return socket.create_connection(server.address, PATIENCE)


def test_the_metrics(served) -> None:
    served.cache.take(b"r1", b"{", "here")
    served.get("/v1/decisions/r1")
    page = served.get("/metrics")
    assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = page.body.decode().split("\n")
    for line in (
        "tidegauge_decisions_read_total 1.0",
        'tidegauge_decisions_skipped_total{reason="malformed"} 1.0',
        'tidegauge_decisions_skipped_total{reason="key"} 0.0',
        "tidegauge_decisions_runs 1.0",
        "tidegauge_decisions_dropped_runs_total 0.0",
        'tidegauge_decisions_requests_total{answer="sent"} 1.0',
        'tidegauge_decisions_requests_total{answer="busy"} 0.0',
        'tidegauge_internal_errors_total{where="fleet.decisions"} 0.0',
    ):
        assert line in lines


def test_what_is_skipped_is_logged_once_a_minute(served, caplog) -> None:
    for _ in range(100):
        served.cache.take(b"r1", b"{", "t.decisions[0] offset 7")
    assert len(caplog.messages) == 1
    assert "t.decisions[0] offset 7: malformed" in caplog.messages[0]
    assert served.cache.counts.skipped["malformed"] == 100


def test_who_follows_sees_what_holds_and_every_change(served) -> None:
    changes = []
    assert [record.run for record in served.cache.follow(changes.append)] == ["r1"]
    served.decide("r1", "nudge", 9)  # a stop stays
    served.decide("r2", "nudge", 1)
    served.decide("r2", "nudge", 1)
    served.decide("r1", "ended", 10)
    assert [(record.run, record.action) for record in changes] == [("r2", "nudge"), ("r1", "ended")]


def test_many_wait_and_are_all_answered(served) -> None:
    runs = [f"many-{number}" for number in range(30)]
    tags = [served.get(f"/v1/decisions/{run}").tag for run in runs]
    with ThreadPoolExecutor(len(runs)) as pool:
        asked = [
            pool.submit(served.get, f"/v1/decisions/{run}?wait=30", If_None_Match=tag)
            for run, tag in zip(runs, tags, strict=True)
        ]
        for run in runs:
            served.wait_until_asked(run)
        for run in runs:
            served.decide(run, "stop")
        for one in asked:
            assert one.result(PATIENCE).json["action"] == "stop"


def test_an_answer_has_room_for_all_that_can_be_asked(served) -> None:
    runs = [f"{number}" * 8 for number in range(10, 74)]
    for run in runs:
        served.decide(run, "stop", reason="\x00" * 500, message="\x00" * 5_000)
    body = served.get("/v1/decisions?" + "&".join(f"id={run}" for run in runs)).body
    assert len(body) < 1 << 20  # what a client reads
    assert len(orjson.loads(body)["decisions"]) == len(runs)
