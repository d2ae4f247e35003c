"""The plugin of opencode acts on answers, and changes nothing without a whole one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.requirements import needs
from tidegauge.coding_agents import installation
from tidegauge.coding_agents.endpoint import HookEndpoint

pytestmark = [
    pytest.mark.system,
    needs(shutil.which("node") is not None, "Node is not installed"),
    needs(hasattr(socket, "AF_UNIX"), "this platform has no Unix sockets"),
]

UNTOUCHED = {"error": None, "output": "README.md", "aborted": []}
PROGRAM = Path(__file__).with_name("opencode_program.mjs")
PLUGIN = Path(installation.__file__).with_name("opencode_plugin.js")


def run(
    folder: Path,
    receive: Callable[[str, bytes], bytes] | None = None,
    *arguments: str,
    sockets: bool = True,
) -> dict[str, Any]:
    """What happened in the program, with a watcher that answers so."""
    shutil.copy(PLUGIN, folder / "plugin.mjs")
    shutil.copy(PROGRAM, folder)
    node = shutil.which("node")
    assert node is not None
    endpoint = None
    if receive is not None:
        endpoint = HookEndpoint(folder / "tidegauge", receive, sockets=sockets)
        endpoint.start()
    try:
        ran = subprocess.run(
            [node, str(folder / PROGRAM.name), *arguments],
            env={"XDG_RUNTIME_DIR": str(folder), "HOME": str(folder)},
            capture_output=True,
            timeout=60,
            check=True,
        )
    finally:
        if endpoint is not None:
            endpoint.stop()
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def answering(**answers: dict[str, str]) -> Callable[[str, bytes], bytes]:
    """A watcher that answers the hooks before and after a tool."""

    def receive(agent: str, payload: bytes) -> bytes:
        assert agent == "opencode"
        assert json.loads(payload)["cwd"] == "/home/dev/shop"
        hook = json.loads(payload)["hook"].rpartition(".")[2]
        return json.dumps(answers[hook]).encode() if hook in answers else b""

    return receive


@pytest.mark.parametrize("sockets", [True, False])
def test_it_acts_on_answers(tmp_path: Path, sockets: bool) -> None:
    nudge = {"action": "nudge", "message": "look"}
    refusal = {"action": "refuse", "message": "no"}
    found = run(tmp_path, answering(before=refusal, after=nudge), sockets=sockets)
    assert (found["error"], found["output"]) == ("no", "README.md\n\nlook")
    assert found["aborted"] == []


@pytest.mark.parametrize("how", ["ends", "hangs"])
def test_it_stops_the_run_and_the_call(tmp_path: Path, how: str) -> None:
    found = run(tmp_path, answering(before={"action": "stop", "message": "end"}), how)
    assert (found["error"], found["aborted"]) == ("end", ["s1"])
    assert found["seconds"] < 5


def test_it_reports_what_the_captured_plugin_reported(tmp_path: Path) -> None:
    given: list[Any] = []

    def receive(_: str, payload: bytes) -> bytes:
        given.append(json.loads(payload))
        return b""

    found = run(tmp_path, receive)
    assert {**found, "seconds": 0} == {**UNTOUCHED, "seconds": 0}
    assert [event["hook"] for event in given] == [
        "tool.execute.before",
        "tool.execute.after",
        "chat.message",
        "event:session.idle",
    ]
    assert given[0]["input"] == {"tool": "bash", "sessionID": "s1", "callID": "c1"}
    assert given[0]["output"] == {"args": {"command": "ls"}}
    assert given[1]["output"]["metadata"] == {"exit": 0}


def test_without_a_watcher_nothing_changes(tmp_path: Path) -> None:
    assert {**run(tmp_path), "seconds": 0} == {**UNTOUCHED, "seconds": 0}


def test_a_slow_watcher_is_not_waited_for(tmp_path: Path) -> None:
    until = threading.Event()

    def receive(*_: object) -> bytes:
        until.wait(30)
        return b'{"action": "refuse", "message": "no"}'

    began = time.monotonic()
    found = run(tmp_path, receive)
    until.set()
    assert {**found, "seconds": 0} == {**UNTOUCHED, "seconds": 0}
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("answer", [b"{", b"[]", b"null", b"3", b'{"action": "refuse"}x', b"{}"])
def test_an_answer_that_is_none_changes_nothing(tmp_path: Path, answer: bytes) -> None:
    found = run(tmp_path, lambda *_: answer)
    assert {**found, "seconds": 0} == {**UNTOUCHED, "seconds": 0}
