"""Dashboards are sent as Grafana takes them; no Grafana runs here, a server stands in for it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.cli.main import cli
from tidegauge.dashboards import PushError, dashboards, push


class StandIn:
    """Answers as Grafana does, and keeps what it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.url = ""

    def answer(self, body: Any) -> bytes:
        if self.status == 200:
            uid = body["dashboard"]["uid"]
            return json.dumps({"status": "success", "uid": uid, "url": f"/d/{uid}/x"}).encode()
        return json.dumps({"message": "Invalid API key"}).encode()


@pytest.fixture
def grafana() -> Iterator[StandIn]:
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append((self.path, dict(self.headers), body))
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(state.answer(body))

        def log_message(self, *_: object) -> None: ...

    with contextlib.closing(_server(Handler)) as server:
        state.url = f"http://127.0.0.1:{server.server_port}/grafana"
        yield state


class _Server(HTTPServer):
    def close(self) -> None:
        self.shutdown()
        self.server_close()


def _server(handler: type[BaseHTTPRequestHandler]) -> _Server:
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def test_the_command_sends_every_dashboard(
    grafana: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_GRAFANA_TOKEN", "secret")
    done = CliRunner().invoke(cli, ["dashboards", "--push", grafana.url])
    assert done.exit_code == 0, done.output
    assert "secret" not in done.output
    assert [body["dashboard"]["uid"] for _, _, body in grafana.asked] == [
        board["uid"] for board in dashboards()
    ]
    for path, headers, body in grafana.asked:
        assert path == "/grafana/api/dashboards/db"
        assert headers["Authorization"] == "Bearer secret"
        assert headers["Content-Type"] == "application/json"
        assert body["overwrite"] is True
        assert body["message"].startswith("tidegauge ")
        assert body["dashboard"]["panels"]
        assert "id" not in body["dashboard"]


def test_the_error_has_the_message_of_grafana(grafana: StandIn) -> None:
    grafana.status = 401
    with pytest.raises(PushError, match="401: Invalid API key"):
        push(dashboards()[0], grafana.url, "wrong")


def test_the_token_follows_no_redirect(grafana: StandIn) -> None:
    grafana.status, grafana.headers = 302, {"Location": f"{grafana.url}/elsewhere"}
    with pytest.raises(PushError, match="302"):
        push(dashboards()[0], grafana.url, "secret")
    assert len(grafana.asked) == 1


@pytest.mark.parametrize("url", ["file:///etc/passwd", "grafana.example", "http://127.0.0.1:9"])
def test_an_unreachable_grafana_or_a_wrong_url(url: str) -> None:
    with pytest.raises(PushError):
        push(dashboards()[0], url, "secret")


def test_without_a_token_nothing_is_sent(grafana: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGAUGE_GRAFANA_TOKEN", raising=False)
    done = CliRunner().invoke(cli, ["dashboards", "--push", grafana.url])
    assert done.exit_code == 2
    assert "TIDEGAUGE_GRAFANA_TOKEN" in done.output
    assert grafana.asked == []
