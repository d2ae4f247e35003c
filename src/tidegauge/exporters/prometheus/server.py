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

from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.targets import TargetFile
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.exporters.reading import Reader
from tidegauge.net.bounded_server import BoundedHandler, BoundedServer, Request, Response
from tidegauge.net.hosts import is_any_address
from tidegauge.net.listener import FilePath, Listener, Tls
from tidegauge.safety.critical import reset_after_fork
from tidegauge.safety.guard import guarded, log

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tidegauge.exporters.page import Page

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
            :class:`~tidegauge.net.hosts.AllowedHosts` always allows.
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
    """The metrics as an ASGI application to mount into yours, which must check ``Host``.

    Args:
        reader: reads the metrics.
    """
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

    Args:
        reader: reads the metrics.
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
