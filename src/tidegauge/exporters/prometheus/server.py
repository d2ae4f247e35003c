"""The server of ``/metrics`` and of the live page; the metrics for a server of yours."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from prometheus_client import (
    CollectorRegistry,
    make_asgi_app,
    make_wsgi_app,
)
from prometheus_client.exposition import choose_encoder

from tidegauge.exporters.prometheus.collector import TidegaugeCollector, write_text
from tidegauge.exporters.reading import Reader
from tidegauge.net.bounded_server import BoundedHandler, BoundedServer, Request, Response
from tidegauge.net.listener import FilePath, Listener, Tls, is_any_address
from tidegauge.safety.critical import reset_after_fork
from tidegauge.safety.guard import guarded, log

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tidegauge.exporters.page import Page
import contextlib
import json
import os
import secrets
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_PREFIX: Final = "tidegauge-"
_FLAGS: Final = ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")  # those that the platform has


class TargetFile:
    """The file in which Prometheus finds this process, until :meth:`close`.

    It appears at once with its content, and every user can read it. Its name is used only once.
    The process holds a lock on it, which the system releases however the process ends: files
    without a lock belong to processes that were killed, and are removed when another file of the
    folder is added or closed. So process ids and ports can be used again, and containers on one
    machine can share a folder. Windows has no such locks; there, such files stay.

    Args:
        folder: the folder; it is created.
        address: host and port, as Prometheus reaches them.

    Raises:
        OSError: the file cannot be written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> target = TargetFile(folder, "127.0.0.1:9464")
    >>> [file.read_text() for file in Path(folder).iterdir()]
    ['[{"targets": ["127.0.0.1:9464"]}]']
    >>> target.close(); os.listdir(folder)
    []
    """

    def __init__(self, folder: str | os.PathLike[str], address: str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o755)  # whatever the umask: Prometheus may be another user
        _remove_abandoned(self._folder)
        self._path = self._folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(8)}.json"
        new = self._path.with_suffix(".new")
        self._descriptor = -1
        reset_after_fork(self)
        self._descriptor = _open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            if sys.platform != "win32":
                os.fchmod(self._descriptor, 0o644)
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._descriptor, json.dumps([{"targets": [address]}]).encode())
            new.rename(self._path)
        except BaseException:
            self._release()
            new.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Remove the file; a second call does nothing. In a forked child, it stays."""
        if self._descriptor < 0:
            return
        self._release()
        self._path.unlink(missing_ok=True)
        _remove_abandoned(self._folder)

    def _reset_after_fork(self) -> None:
        self._release()  # the parent keeps the lock

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    if sys.platform == "win32":
        return
    for path in folder.glob(f"{_PREFIX}*.json"):
        with contextlib.suppress(OSError):  # locked, removed by another process, or not ours
            descriptor = _open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    for name in _FLAGS:
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o644)


ASGIApplication: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_PATHS: Final = ("", "/", "/metrics")
_MAX_CONNECTIONS: Final = 256
_REQUEST_SECONDS: Final = 10.0
"""Time limit of a request, because every silent client occupies a thread."""


class MetricsServer:
    """Serves metrics over HTTP from :meth:`start` to :meth:`close`, or to the end of the process.

    Args:
        host: address to listen on; by default no other machine can connect.
        port: port to listen on; 0 takes a free one.
        certificate: file of the server's certificate; with ``key``, enables TLS.
        key: file of the private key.
        client_ca: file of certificates; only clients with a certificate signed by one are accepted.
        probes: further paths, each with a check: 200 if it is true, else 503.
        page: the live page, served at ``/``; without it, ``/`` serves the metrics, too.
        allowed_hosts: host names to accept in addition to those that
            :class:`~tidegauge.net.listener.AllowedHosts` always allows.
        targets: folder of files for ``file_sd_configs``, where Prometheus finds the server. It
            serves also if its file cannot be written.

    Attributes:
        url: URL of the metrics; empty before the start.
        page_url: URL of the page; ``None``: without a page.

    Raises:
        ConfigurationError: the TLS files cannot be used, or ``client_ca`` is set without them.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 9464,
        certificate: FilePath | None = None,
        key: FilePath | None = None,
        client_ca: FilePath | None = None,
        probes: Mapping[str, Callable[[], bool]] | None = None,
        page: Page | None = None,
        allowed_hosts: Iterable[str] = (),
        targets: FilePath | None = None,
    ) -> None:
        self._listener = Listener(
            host,
            port,
            max_connections=_MAX_CONNECTIONS,
            request_seconds=_REQUEST_SECONDS,
            idle_seconds=_REQUEST_SECONDS,
            allowed_hosts=tuple(allowed_hosts),
            keep_alive=False,  # between scrapes it occupies no thread of the agent's process
        )
        self._tls = Tls.from_files(certificate, key, client_ca)
        self._probes = probes
        self._page = page
        self._targets = targets
        self._target: TargetFile | None = None
        self._server: _Server | None = None
        self.url = ""
        self.page_url: str | None = None

    def start(self, reader: Reader) -> None:
        """Listen, and serve what the reader reads.

        Raises:
            ConfigurationError: an allowed host is not a host name.
            OSError: the server cannot listen on the address.
        """
        application = wsgi_app(reader)
        if self._probes:
            application = _with_probes(application, self._probes)
        if self._page is not None:
            application = self._page.before(application)
        self._server = server = _Server(self._listener, application, self._tls)
        server.start()
        self.url = f"{server.url}/metrics"
        self.page_url = f"{server.url}/" if self._page is not None else None
        reset_after_fork(self)
        self._add_target(server.server_port)

    @guarded("metrics_targets", default=None)
    def _add_target(self, port: int) -> None:
        if self._targets is None:
            return
        host = self._listener.host
        listener = Listener(socket.gethostname() if is_any_address(host) else host, port)
        try:
            self._target = TargetFile(self._targets, listener.address)
        except OSError as error:
            log(
                logging.WARNING,
                "tidegauge: Prometheus does not find %s, because its file cannot be written: %s; "
                "make the folder metrics_targets writable, or set another",
                *(self.url, error),
            )

    def _reset_after_fork(self) -> None:
        self._target = None  # the parent's
        self.close()

    def close(self) -> None:
        """Remove the target, close the socket and end the thread; a second call does nothing."""
        if self._target is not None:
            self._remove_target(self._target)
        if self._server is not None:
            self._server.stop(grace=0.5)

    @guarded("metrics_targets", default=None)
    def _remove_target(self, target: TargetFile) -> None:
        target.close()


class _Server(BoundedServer):
    where = "metrics_server"
    serves = "metrics"

    def __init__(self, listener: Listener, application: WSGIApplication, tls: Tls | None) -> None:
        self.application = application
        super().__init__(listener, _Handler, tls)


class _Handler(BoundedHandler):
    """Calls the WSGI application. It gets requests without a body, which GET needs none of."""

    server: _Server

    def answer(self, request: Request) -> Response:
        request.check_no_body()
        status, headers = HTTPStatus.OK, dict[str, str]()

        def start_response(line: str, given: list[tuple[str, str]], _: Any = None) -> Any:
            nonlocal status
            status = HTTPStatus(int(line.partition(" ")[0]))
            headers.update(given)

        body = b"".join(self.server.application(_environ(request), start_response))
        headers.pop("Content-Length", None)
        content_type = headers.pop("Content-Type", "text/plain; charset=utf-8")
        return Response(status, body, content_type, headers)


def _environ(request: Request) -> WSGIEnvironment:
    """The part of a WSGI environment that our applications and prometheus_client read."""
    headers = {f"HTTP_{k.upper().replace('-', '_')}": v for k, v in request.headers.items()}
    return {
        **headers,
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query,
    }


def asgi_app(reader: Reader) -> ASGIApplication:
    """The metrics as an ASGI application to mount into yours, which must check ``Host``."""
    otherwise = make_asgi_app(_registry(reader))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        asked = (scope["type"], scope.get("method"), scope.get("query_string", b""))
        if asked != ("http", "GET", b"") or path not in _PATHS:
            await otherwise(scope, receive, send)
            return
        accepted = [value for name, value in scope["headers"] if name == b"accept"]
        content_type, body = _text(b",".join(accepted).decode("latin-1"), reader)
        headers = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


def wsgi_app(reader: Reader) -> WSGIApplication:
    """The metrics as a WSGI application to mount into yours, which must check ``Host``.

    It answers a plain scrape by itself, and leaves the rest (filters, other methods) to
    prometheus_client. Not compressed: that would cost the agent's process more than writing the
    text does.
    """
    otherwise: WSGIApplication = make_wsgi_app(_registry(reader))

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = (environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""))
        if asked != ("GET", "") or environ["PATH_INFO"] not in _PATHS:
            return otherwise(environ, start_response)
        content_type, body = _text(environ.get("HTTP_ACCEPT", ""), reader)
        start_response("200 OK", [("Content-Type", content_type)])
        return [body]

    return application


def _with_probes(
    metrics: WSGIApplication, probes: Mapping[str, Callable[[], bool]]
) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            return metrics(environ, start_response)
        status, body = ("200 OK", b"ok\n") if probe() else ("503 Service Unavailable", b"no\n")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [body]

    return application


def _text(accepted: str, reader: Reader) -> tuple[str, bytes]:
    """The content type that a client accepts, and the metrics in it."""
    content_type: str = choose_encoder(accepted)[1]
    openmetrics = content_type.startswith("application/openmetrics-text")
    return content_type, write_text(reader.families(), openmetrics=openmetrics)


def _registry(reader: Reader) -> CollectorRegistry:
    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(TidegaugeCollector(reader))
    return registry
