"""The webhook takes what Alertmanager sends, and nothing else."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tidegauge.cli.demo_alerts import Notice, webhook

ALERT = {"status": "firing", "labels": {"alertname": "A", "agent": "a"}, "annotations": {}}


class Hook:
    def __init__(self, url: str, taken: list[Notice]) -> None:
        self.url = url
        self.taken = taken

    def post(self, body: bytes, *, url: str | None = None, **headers: str) -> int:
        request = urllib.request.Request(url or self.url, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture
def hook() -> Iterator[Hook]:
    taken: list[Notice] = []
    with webhook(taken.append) as url:
        yield Hook(url, taken)


def test_every_alert_of_a_notice_is_taken(hook: Hook) -> None:
    resolved = {**ALERT, "status": "resolved"}
    assert hook.post(json.dumps({"alerts": [ALERT, resolved]}).encode()) == 200
    assert hook.taken == [
        Notice("firing", {"alertname": "A", "agent": "a"}),
        Notice("resolved", {"alertname": "A", "agent": "a"}),
    ]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b'{"alerts": 1}', b'{"alerts": [{}]}', b'{"alerts": ["x"]}'],
)
def test_what_is_no_notice_is_refused(hook: Hook, body: bytes) -> None:
    assert hook.post(body) == 400
    assert hook.taken == []


def test_only_who_knows_the_address_is_heard(hook: Hook) -> None:
    body = json.dumps({"alerts": [ALERT]}).encode()
    for path in ("/", "/x", "/é"):
        elsewhere = urllib.request.quote(path)  # type: ignore[attr-defined]
        assert hook.post(body, url=f"http://{urlsplit(hook.url).netloc}{elsewhere}") == 400
    assert hook.taken == []


def test_a_body_is_not_read_beyond_its_limit(hook: Hook) -> None:
    address = urlsplit(hook.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as client:
        head = f"POST {address.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {10**9}\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.0 400")


def test_nobody_listens_afterwards() -> None:
    with webhook(lambda _: None) as url:
        pass
    address = urlsplit(url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=10)
