"""Listens for hooks on this machine: a Unix socket, or a loopback port with a token.

Both are in a folder that only its user can enter.

A hook sends a line ``tidegauge 1 AGENT TOKEN LENGTH`` (on a socket, the token is ``-``), then its
payload. The answer is a line ``tidegauge 1 LENGTH``, then what the hook prints.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, Final

from tidegauge.errors import ConfigurationError
from tidegauge.net.bounded_server import TimedSocket
from tidegauge.safety.guard import internal_errors, log
from tidegauge.safety.private_files import private

_SOCKET_FILE: Final = "watch.sock"
_PORT_FILE: Final = "watch.port"
"""Has the port and the token, on systems without such sockets."""

_PRIVATE: Final = 0o700
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_HEAD: Final = 256
_MAX_CONNECTIONS: Final = 64
_SECONDS: Final = 5.0
_SAID_SECONDS: Final = 60.0
_MAX_PATH: Final = 100
"""Bytes of a socket's path that every system takes."""


def watch_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the watcher: in the folder of the login session, else in the user's cache.

    >>> watch_folder({"XDG_RUNTIME_DIR": "/"})
    PosixPath('/tidegauge')
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "tidegauge"
    return Path(os.path.expanduser("~")) / ".cache" / "tidegauge"


def private_folder(folder: Path) -> Path:
    """Make a folder that only its user can enter, or check that it is one.

    Raises:
        ConfigurationError: it is a link or no folder, or belongs to another user.
        OSError: it cannot be made.
    """
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if not hasattr(os, "geteuid"):
        return folder
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{folder} is a link; remove it")
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{folder} belongs to user {found.st_uid}, who could read what agents do; remove it"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
    return folder


class HookEndpoint:
    """Listens from its construction on, and answers after :meth:`start`.

    Args:
        folder: where hooks find it; see :func:`watch_folder`.
        receive: takes the name of an agent and a payload, and returns what the hook prints.
        lost: takes the same, if the hook no longer waits for what it should print.
        sockets: whether to use a Unix socket; ``None``: if the system has them.

    Attributes:
        address: where it listens, for people.

    Raises:
        ConfigurationError: the folder is not safe, or another watcher is at work.
        OSError: it cannot listen.
    """

    def __init__(
        self,
        folder: Path,
        receive: Callable[[str, bytes], bytes],
        lost: Callable[[str, bytes], object] = lambda *_: None,
        *,
        sockets: bool | None = None,
    ) -> None:
        private_folder(folder)
        path = folder / _SOCKET_FILE
        if sockets is None:
            sockets = hasattr(socket, "AF_UNIX") and len(os.fsencode(path)) <= _MAX_PATH
        self._token = "-"  # noqa: S105 -- a socket needs none
        if sockets:
            _remove_unused(path)
            self._server = _Server(socket.AF_UNIX, str(path), self._serve)
            path.chmod(0o600)
            self._file, self.address = path, str(path)
        else:
            self._token = secrets.token_urlsafe(32)
            self._server = _Server(socket.AF_INET, ("127.0.0.1", 0), self._serve)
            port = self._server.server_address[1]
            self._file, self.address = folder / _PORT_FILE, f"127.0.0.1:{port}"
            self._file.unlink(missing_ok=True)
            with open(self._file, "x", encoding="ascii", opener=private) as file:
                file.write(f"{port} {self._token}\n")
        self._receive = receive
        self._lost = lost
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tidegauge-hooks", daemon=True
        )

    def start(self) -> None:
        """Answer hooks, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening. Hooks that wait are not answered."""
        with contextlib.suppress(OSError):
            self._file.unlink()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _serve(self, connection: socket.socket) -> None:
        timed = TimedSocket(connection)
        timed.allow(_SECONDS)
        reader = BufferedReader(timed)
        head = reader.readline(_MAX_HEAD).split()
        if len(head) != 5 or head[:2] != [b"tidegauge", b"1"] or not head[4].isdigit():
            return
        if not hmac.compare_digest(head[3], self._token.encode()):
            return
        length = int(head[4])
        if length > _MAX_BYTES:
            return
        payload = reader.read(length)
        if len(payload) < length:
            return
        agent = head[2].decode("ascii", "replace")
        answer = self._receive(agent, payload)
        connection.settimeout(_SECONDS)
        try:
            connection.sendall(b"tidegauge 1 %d\n%s" % (len(answer), answer))
        except OSError:
            self._lost(agent, payload)


class _Server(ThreadingTCPServer):
    """Gives each connection a thread, up to a limit; others are closed, and their hooks go on."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, family: int, address: Any, serve: Callable[[socket.socket], None]) -> None:
        self.address_family = family
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._serve = serve
        self._dropped, self._said_again = 0, 0.0
        super().__init__(address, BaseRequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)
            self._drop()

    def _drop(self) -> None:
        """A hook was not heard: say so, at most once a minute."""
        self._dropped += 1
        now = time.monotonic()
        if now >= self._said_again:
            self._said_again = now + _SAID_SECONDS
            what = "tidegauge: %d events of hooks were lost: more than %d came at once"
            log(logging.WARNING, what, self._dropped, _MAX_CONNECTIONS)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._serve(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; record any other error as internal."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            internal_errors.record("hooks.endpoint", error)


def _remove_unused(path: Path) -> None:
    """Remove the socket of a watcher that is gone.

    Raises:
        ConfigurationError: a watcher listens on it, or it is another file.
    """
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_socket():
        raise ConfigurationError(f"{path} is not a socket; remove it")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError:
            pass
    raise ConfigurationError(f"another 'tidegauge watch' listens on {path}; stop it first")
