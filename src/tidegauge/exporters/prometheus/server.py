"""The server of ``/metrics`` and of the live page; the metrics for a server of yours."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    make_asgi_app,
    make_wsgi_app,
)
from prometheus_client.exposition import choose_encoder

from tidegauge._critical import reset_after_fork
from tidegauge._net.hosts import AllowedHosts
from tidegauge.errors import ConfigurationError
from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.families import More, PlaceLabel, read_families
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.exporters.prometheus.wsgi_server import BoundedWsgiServer
from tidegauge.streaming_metrics.engine import Engine

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tidegauge.exporters.page import Page

__all__ = ["MetricsServer", "asgi_app", "wsgi_app"]

ASGIApplication: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
_Path: TypeAlias = str | os.PathLike[str]

_PATHS: Final = ("", "/", "/metrics")
_PATIENCE_SECONDS: Final = 10.0
"""How long a client may take to say what it wants: each that says nothing holds a thread."""


class MetricsServer:
    """Serves an engine's metrics over HTTP until :meth:`stop`, or until the process ends.

    Args:
        engine: what is shown.
        host: address to listen on; by default no other machine can connect.
        port: port to listen on; 0 takes a free one.
        place_label: what is shown of a place; left out, places are not shown.
        more: gives metrics other than the engine's.
        certificate: file of the server's certificate; with ``key``, enables TLS.
        key: file of the private key.
        client_ca: file of certificates; only clients with a certificate signed by one are accepted.
        probes: further paths, each with a check: 200 if it is true, else 503.
        page: the live page, served at ``/``; without it, ``/`` serves the metrics, too.
        allowed_hosts: host names to accept in addition to those that
            :class:`~tidegauge._net.hosts.AllowedHosts` always allows.

    Attributes:
        url: URL of the metrics.
        page_url: URL of the page; ``None``: without a page.

    Raises:
        ConfigurationError: the TLS files cannot be used, ``client_ca`` is set without them, or
            an allowed host is not a host name.
        OSError: the address cannot be listened on.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        host: str = "127.0.0.1",
        port: int = 9464,
        place_label: PlaceLabel | None = None,
        more: More | None = None,
        certificate: _Path | None = None,
        key: _Path | None = None,
        client_ca: _Path | None = None,
        probes: Mapping[str, Callable[[], bool]] | None = None,
        page: Page | None = None,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        self._server = BoundedWsgiServer(
            host,
            port,
            allowed_hosts=AllowedHosts(host, allowed_hosts),
            seconds=_PATIENCE_SECONDS,
            context=_tls(certificate, key, client_ca),
        )
        application = wsgi_app(engine, place_label=place_label, more=more)
        if probes:
            application = _with_probes(application, probes)
        if page is not None:
            application = page.before(application)
        self._server.set_app(application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tidegauge-metrics", daemon=True
        )
        self._thread.start()
        address = f"[{host}]" if ":" in host else host
        scheme = "https" if certificate else "http"
        root = f"{scheme}://{address}:{self._server.server_port}/"
        self.url = f"{root}metrics"
        self.page_url = root if page is not None else None
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        # The child has the socket but not the thread: it would keep the port and not answer.
        self.stop()

    def stop(self) -> None:
        """Close the socket and end the thread; a second call does nothing."""
        if self._thread.is_alive():  # not in a forked child, where waiting for it never ends
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes it, or half a second goes by
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def asgi_app(
    engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
) -> ASGIApplication:
    """The metrics as an ASGI application to mount into yours, which must check ``Host``.

    Args:
        engine: what is shown.
        place_label: what is shown of a place; left out, places are not shown.
        more: gives metrics other than the engine's.
    """
    collector = TidegaugeCollector(engine, place_label=place_label, more=more)
    otherwise = make_asgi_app(_registry(collector))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        asked = (scope["type"], scope.get("method"), scope.get("query_string", b""))
        if asked != ("http", "GET", b"") or path not in _PATHS:
            await otherwise(scope, receive, send)
            return
        accepted = [value for name, value in scope["headers"] if name == b"accept"]
        content_type, body = _text(b",".join(accepted).decode("latin-1"), engine, place_label, more)
        headers = [(b"content-type", content_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


def wsgi_app(
    engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
) -> WSGIApplication:
    """The metrics as a WSGI application to mount into yours, which must check ``Host``.

    It answers a plain scrape by itself, and leaves the rest (filters, other methods) to
    prometheus_client. Not compressed: that would cost the agent's process more than writing the
    text does.

    Args:
        engine: what is shown.
        place_label: what is shown of a place; left out, places are not shown.
        more: gives metrics other than the engine's.
    """
    collector = TidegaugeCollector(engine, place_label=place_label, more=more)
    otherwise: WSGIApplication = make_wsgi_app(_registry(collector))

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = (environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""))
        if asked != ("GET", "") or environ["PATH_INFO"] not in _PATHS:
            return otherwise(environ, start_response)
        content_type, body = _text(environ.get("HTTP_ACCEPT", ""), engine, place_label, more)
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


def _text(
    accepted: str, engine: Engine, place_label: PlaceLabel | None, more: More | None
) -> tuple[str, bytes]:
    """The content type that a client accepts, and the metrics in it."""
    content_type: str = choose_encoder(accepted)[1]
    openmetrics = content_type.startswith("application/openmetrics-text")
    families = read_families(engine, place_label=place_label, more=more)
    return content_type, write_text(families, openmetrics=openmetrics)


def _registry(collector: TidegaugeCollector) -> CollectorRegistry:
    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(collector)
    return registry


def _tls(
    certificate: _Path | None, key: _Path | None, client_ca: _Path | None
) -> ssl.SSLContext | None:
    if certificate is None or key is None:
        if (certificate, key, client_ca) != (None, None, None):
            raise ConfigurationError("TLS needs both a certificate and its key")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # also what OpenSSL says of them
        raise ConfigurationError(f"the files of TLS cannot be used: {error}") from error
    return context


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal, and wait."""
    raise ValueError("the key is encrypted")
