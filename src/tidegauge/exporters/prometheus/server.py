"""The server of ``/metrics``: one daemon thread, started by configure()."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

from prometheus_client import (
    CollectorRegistry,
    make_asgi_app,
    make_wsgi_app,
    start_http_server,
)
from prometheus_client.exposition import choose_encoder

from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.families import PlaceLabel, read_families
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.streaming_metrics.engine import Engine

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["MetricsServer", "asgi_app", "wsgi_app"]

ASGIApplication: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


class MetricsServer:
    """Serves an engine's metrics over HTTP until :meth:`stop`, or until the process ends.

    Args:
        engine: what is shown.
        host: address to listen on; by default nobody else's machine can connect.
        port: port to listen on; 0 takes a free one.
        place_label: what is shown of a place; left out, places are not shown.
        certificate: file of the server's certificate; with ``key``, TLS is spoken.
        key: file of its private key.
        client_ca: file of certificates; only clients that show one signed by them are answered.

    Attributes:
        url: where the metrics are.

    Raises:
        OSError: the address cannot be listened on, or a file of TLS cannot be read.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        host: str = "127.0.0.1",
        port: int = 9464,
        place_label: PlaceLabel | None = None,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
    ) -> None:
        self._server, self._thread = start_http_server(
            port,
            addr=host,
            registry=_registry(engine, place_label),
            certfile=certificate,
            keyfile=key,
            client_cafile=client_ca,
            client_auth_required=client_ca is not None,
        )
        listening: Any = self._server.socket
        if isinstance(listening, ssl.SSLSocket):
            # In the thread of the request: a client that never shakes hands keeps nobody waiting.
            listening.do_handshake_on_connect = False  # type: ignore[attr-defined]
        self._server.set_app(wsgi_app(engine, place_label=place_label))
        address = f"[{host}]" if ":" in host else host
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://{address}:{self._server.server_port}/metrics"
        _servers.add(self)

    def stop(self) -> None:
        """Close the socket and end the thread; a second call does nothing."""
        _servers.discard(self)
        if self._thread.is_alive():  # not in a forked child, where waiting for it never ends
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes it, or half a second goes by
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def asgi_app(engine: Engine, *, place_label: PlaceLabel | None = None) -> ASGIApplication:
    """The metrics as an ASGI application, to be mounted into one of yours.

    Args:
        engine: what is shown.
        place_label: what is shown of a place; left out, places are not shown.
    """
    return make_asgi_app(_registry(engine, place_label))


def wsgi_app(engine: Engine, *, place_label: PlaceLabel | None = None) -> WSGIApplication:
    """The metrics as a WSGI application, to be mounted into one of yours.

    It answers a plain scrape by itself, and leaves the rest (filters, other methods) to
    prometheus_client. Not compressed: that would cost the agent's process more than writing the
    text does.

    Args:
        engine: what is shown.
        place_label: what is shown of a place; left out, places are not shown.
    """
    otherwise: WSGIApplication = make_wsgi_app(_registry(engine, place_label))

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = (environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""))
        if asked != ("GET", "") or environ["PATH_INFO"] not in ("", "/", "/metrics"):
            return otherwise(environ, start_response)
        _, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        openmetrics = content_type.startswith("application/openmetrics-text")
        families = read_families(engine, place_label=place_label)
        body = write_text(families, openmetrics=openmetrics)
        start_response("200 OK", [("Content-Type", content_type)])
        return [body]

    return application


def _registry(engine: Engine, place_label: PlaceLabel | None) -> CollectorRegistry:
    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(TidegaugeCollector(engine, place_label=place_label))
    return registry


_servers: Final[WeakSet[MetricsServer]] = WeakSet()


def _close_in_child() -> None:
    """A forked child has the socket but not the thread: it would keep the port and not answer."""
    for server in list(_servers):
        server.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
