"""The server of ``/metrics``: one daemon thread, started by configure()."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.exposition import choose_encoder

from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.families import read_families
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.streaming_metrics.engine import Engine

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["MetricsServer"]


class MetricsServer:
    """Serves an engine's metrics over HTTP until :meth:`stop`, or until the process ends.

    Args:
        engine: what is shown.
        host: address to listen on; by default nobody else's machine can connect.
        port: port to listen on; 0 takes a free one.

    Attributes:
        url: where the metrics are.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, engine: Engine, *, host: str = "127.0.0.1", port: int = 9464) -> None:
        registry = CollectorRegistry(support_collectors_without_names=True)
        registry.register(TidegaugeCollector(engine))
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self._server.set_app(_application(engine, make_wsgi_app(registry)))
        address = f"[{host}]" if ":" in host else host
        self.url = f"http://{address}:{self._server.server_port}/metrics"
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


def _application(engine: Engine, otherwise: WSGIApplication) -> WSGIApplication:
    """Answers a plain scrape by itself, and leaves the rest (filters, other methods).

    Not compressed: that would cost the agent's process more than writing the text does.
    """

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = (environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""))
        if asked != ("GET", "/metrics", ""):
            return otherwise(environ, start_response)
        _, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        openmetrics = content_type.startswith("application/openmetrics-text")
        body = write_text(read_families(engine), openmetrics=openmetrics)
        start_response("200 OK", [("Content-Type", content_type)])
        return [body]

    return application


_servers: Final[WeakSet[MetricsServer]] = WeakSet()


def _close_in_child() -> None:
    """A forked child has the socket but not the thread: it would keep the port and not answer."""
    for server in list(_servers):
        server.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
