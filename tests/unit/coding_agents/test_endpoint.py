"""The endpoint of hooks, and the hook itself: on this machine only, and never in the way."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.hook_payloads import patient_hook
from support.requirements import missing, needs
from tidegauge.coding_agents import endpoint as module
from tidegauge.coding_agents import hook_client
from tidegauge.coding_agents.endpoint import HookEndpoint, private_folder, watch_folder
from tidegauge.errors import ConfigurationError

CLIENT = Path(hook_client.__file__)
needs_sockets = needs(hasattr(socket, "AF_UNIX"), "this platform has no Unix sockets")

Listen = Callable[..., HookEndpoint]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the watcher, where the hook looks for it."""
    return tmp_path_factory.mktemp("run") / "tidegauge"


@pytest.fixture
def listen(folder: Path) -> Iterator[Listen]:
    with contextlib.ExitStack() as closing:

        def start(
            receive: Callable[[str, bytes], bytes], *, sockets: bool | None = None
        ) -> HookEndpoint:
            endpoint = HookEndpoint(folder, receive, sockets=sockets)
            closing.callback(endpoint.stop)
            endpoint.start()
            return endpoint

        yield start


def hook(
    folder: Path, event: bytes = b'{"x": 1}', client: Path = CLIENT
) -> subprocess.CompletedProcess[bytes]:
    """Run the hook as agents do."""
    return subprocess.run(
        [sys.executable, "-SE", str(client), "codex"],
        input=event,
        env={"XDG_RUNTIME_DIR": str(folder.parent), "HOME": str(folder.parent)},
        capture_output=True,
        timeout=30,
        check=False,
    )


def silent(ran: subprocess.CompletedProcess[bytes]) -> bool:
    return (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.parametrize("sockets", [pytest.param(True, marks=needs_sockets), False])
def test_the_hook_prints_the_answer(listen: Listen, folder: Path, sockets: bool) -> None:
    given: list[tuple[str, bytes]] = []

    def receive(agent: str, payload: bytes) -> bytes:
        given.append((agent, payload))
        return b'{"decision": "deny"}'

    listen(receive, sockets=sockets)
    ran = hook(folder, b'{"session_id": "s1"}', patient_hook(folder))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b'{"decision": "deny"}', b"")
    assert given == [("codex", b'{"session_id": "s1"}')]


@needs_sockets
def test_the_hook_prints_nothing_without_a_watcher(listen: Listen, folder: Path) -> None:
    assert silent(hook(folder))
    listen(lambda *_: b"{}").stop()
    assert silent(hook(folder))
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "watch.sock"))
    assert silent(hook(folder))


@needs_sockets
def test_the_hook_waits_for_a_slow_watcher_for_a_moment_only(listen: Listen, folder: Path) -> None:
    until = threading.Event()

    def receive(*_: object) -> bytes:
        until.wait(120)
        return b"{}"

    listen(receive)
    began = time.monotonic()
    assert silent(hook(folder)), "it does not wait for the answer"
    assert time.monotonic() - began < 20
    until.set()


@needs_sockets
def test_it_knows_when_a_hook_did_not_wait(folder: Path) -> None:
    until, lost = threading.Event(), threading.Event()

    def receive(*_: object) -> bytes:
        until.wait(20)
        return b"{}"

    endpoint = HookEndpoint(folder, receive, lambda *_: lost.set())
    endpoint.start()
    try:
        assert silent(hook(folder))
        assert not lost.is_set()
        until.set()
        assert lost.wait(20)
    finally:
        endpoint.stop()


@needs_sockets
@pytest.mark.parametrize(
    "answer", [b"", b"tidegauge 1 9\n{}", b"tidegauge 1 x\n{}", b"{}", b"\n\n", b"\xff" * 70_000]
)
def test_the_hook_prints_nothing_if_the_answer_is_none(folder: Path, answer: bytes) -> None:
    private_folder(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "watch.sock"))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                while connection.recv(65_536):
                    pass
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert silent(hook(folder))
        thread.join()


@needs_sockets
def test_a_huge_event_is_read_and_not_handed_on(listen: Listen, folder: Path) -> None:
    given: list[int] = []

    def receive(_: str, payload: bytes) -> bytes:
        given.append(len(payload))
        return b"{}"

    listen(receive)
    assert silent(hook(folder, b"x" * (hook_client.MAX_BYTES + 1)))
    assert given == []
    assert hook(folder, b"x" * 3_000_000, patient_hook(folder)).stdout == b"{}"
    assert given == [3_000_000]


@needs_sockets
def test_a_fault_of_the_hook_is_silent(listen: Listen, folder: Path) -> None:
    listen(lambda *_: b"{}")
    assert silent(hook(folder, b""))
    ran = subprocess.run(
        [sys.executable, "-SE", str(CLIENT)],  # without the agent's name
        input=b"{}",
        env={"XDG_RUNTIME_DIR": str(folder.parent)},
        capture_output=True,
        check=False,
    )
    assert silent(ran)
    (folder / "watch.sock").unlink()
    (folder / "watch.port").write_text("not a port")
    assert silent(hook(folder))


@needs_sockets
def test_the_hook_costs_little_more_than_python(listen: Listen, folder: Path) -> None:
    listen(lambda *_: b"{}")

    def seconds(*command: str) -> float:
        def once() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-SE", *command],
                input=b"{}",
                env={"XDG_RUNTIME_DIR": str(folder.parent)},
                capture_output=True,
                check=True,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

        return min(once() for _ in range(5))

    assert seconds(str(CLIENT), "codex") - seconds("-c", "pass") < 0.05


def test_the_hook_needs_nothing_of_tidegauge() -> None:
    code = f"import runpy, sys; runpy.run_path({str(CLIENT)!r}); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-SE", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded <= sys.stdlib_module_names | {"__main__"}
    assert "json" not in loaded


@needs_sockets
def test_only_the_user_can_connect(listen: Listen, folder: Path) -> None:
    listen(lambda *_: b"")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "watch.sock").stat().st_mode & 0o777 == 0o600


def test_the_port_has_a_token_that_only_the_user_can_read(listen: Listen, folder: Path) -> None:
    given: list[bytes] = []

    def receive(_: str, payload: bytes) -> bytes:
        given.append(payload)
        return b"{}"

    listen(receive, sockets=False)
    assert (folder / "watch.port").stat().st_mode & 0o777 == 0o600
    port = int((folder / "watch.port").read_text().split()[0])
    for head in (
        b"tidegauge 1 codex - 2\n",
        b"tidegauge 1 codex - x\n",
        b"tidegauge 1 codex -\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head + b"{}")
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert given == []


@needs_sockets
def test_requests_are_limited_in_size_time_and_number(
    listen: Listen, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100)
    monkeypatch.setattr(module, "_SECONDS", 0.3)
    monkeypatch.setattr(module, "_MAX_CONNECTIONS", 2)
    given: list[bytes] = []

    def receive(_: str, payload: bytes) -> bytes:
        given.append(payload)
        return b"{}"

    listen(receive)
    with contextlib.ExitStack() as open_ones:

        def connect() -> socket.socket:
            connection = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(10)
            connection.connect(str(folder / "watch.sock"))
            return connection

        large = connect()
        with contextlib.suppress(OSError):
            large.sendall(b"tidegauge 1 codex - 101\n" + b"x" * 101)
        with contextlib.suppress(OSError):
            assert large.recv(100) == b""
        slow = [connect(), connect()]
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            assert connect().recv(100) == b"", "there is no room"
        for one in slow:
            assert one.recv(100) == b"", "it was too slow"
    assert given == []


@needs_sockets
def test_a_second_watcher_says_so_and_a_stale_socket_is_replaced(
    listen: Listen, folder: Path
) -> None:
    first = listen(lambda *_: b"")
    with pytest.raises(ConfigurationError, match="another 'tidegauge watch' listens"):
        listen(lambda *_: b"")
    first.stop()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "watch.sock"))
    listen(lambda *_: b"{}")
    assert hook(folder, client=patient_hook(folder)).stdout == b"{}"


@needs_sockets
def test_another_file_in_its_place_is_not_removed(listen: Listen, folder: Path) -> None:
    private_folder(folder)
    (folder / "watch.sock").write_text("mine")
    with pytest.raises(ConfigurationError, match="is not a socket; remove it"):
        listen(lambda *_: b"")
    assert (folder / "watch.sock").read_text() == "mine"


def test_a_long_path_takes_a_port(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / "tidegauge"
    endpoint = HookEndpoint(folder, lambda *_: b"{}")
    endpoint.start()
    try:
        assert hook(folder, client=patient_hook(folder)).stdout == b"{}"
    finally:
        endpoint.stop()
    assert not (folder / "watch.port").exists()


def test_the_folder_must_be_the_users_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "geteuid"):
        missing("this platform has no owners of files")
    folder.mkdir(mode=0o777)
    assert private_folder(folder).stat().st_mode & 0o777 == 0o700
    (folder / "link").symlink_to(folder)
    with pytest.raises(ConfigurationError, match="is a link; remove it"):
        private_folder(folder / "link")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(ConfigurationError, match="belongs to user"):
        private_folder(folder)


def test_the_folder_is_that_of_the_login_session_if_there_is_one(tmp_path: Path) -> None:
    assert watch_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "tidegauge"
    home = Path(os.path.expanduser("~"))
    for environ in ({}, {"XDG_RUNTIME_DIR": str(tmp_path / "none")}):
        assert watch_folder(environ) == home / ".cache" / "tidegauge"
