"""What the demo's alerts need: programs that are ended with it, and a webhook."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Notice", "Server", "free_address", "listening", "running"]

_HOST: Final = "127.0.0.1"
_PATIENCE_SECONDS: Final = 5.0
_MAX_BODY: Final = 1_000_000
_POLL_SECONDS: Final = 0.05


class Notice(NamedTuple):
    """One alert, as Alertmanager tells it.

    Attributes:
        status: ``firing`` or ``resolved``.
        labels: of the alert, ``alertname`` among them.
    """

    status: str
    labels: Mapping[str, str]


class Server(NamedTuple):
    """A program that is to run until it is ended.

    Attributes:
        process: of the program.
        log: what it prints.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            ChildProcessError: it has ended by itself; its last words say why.
        """
        if self.process.poll() is not None:
            said = self.log.read_text(encoding="utf-8", errors="replace").strip()
            raise ChildProcessError(f"{self.log.stem} ended: {said.rpartition(chr(10))[2]}")


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[Server]:
    """Start a program, and end it when the block ends.

    Args:
        command: of the program.
        log: where its output goes.

    Raises:
        OSError: it cannot be started.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 -- found on the PATH, our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo: it ends the program then
        )
    try:
        yield Server(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def listening(take: Callable[[Notice], object]) -> Iterator[str]:
    """Listen for Alertmanager's notices until the block ends; gives the webhook's address.

    The address has a secret in it: nobody else on this machine can have notices shown.

    Args:
        take: is given each, in a thread of the listener's.
    """
    secret = f"/{secrets.token_urlsafe()}"

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            known = secrets.compare_digest(self.path.encode(), secret.encode())
            if not known or not length.isdecimal() or int(length) > _MAX_BODY:
                self.send_error(400)
                return
            try:
                notices = _notices(json.loads(self.rfile.read(int(length))))
            except (ValueError, TypeError, KeyError, AttributeError):
                self.send_error(400)
                return
            for notice in notices:
                take(notice)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal is the demo's."""

    class Listener(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Nothing: what a client broke is no news."""

    server = Listener((_HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}{secret}"
    finally:
        server.shutdown()
        server.server_close()


def free_address() -> str:
    """An address of this machine, host and port, where nobody listens now."""
    with socket.create_server((_HOST, 0)) as probe:
        return f"{_HOST}:{probe.getsockname()[1]}"


def _notices(body: Any) -> list[Notice]:
    """The alerts of a request of Alertmanager's."""
    return [
        Notice(str(alert["status"]), {str(k): str(v) for k, v in alert["labels"].items()})
        for alert in body["alerts"]
    ]
