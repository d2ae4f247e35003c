"""The live page as an exporter: a WSGI application in front of another one, and its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import orjson

from tidegauge.catalog import RUNBOOKS
from tidegauge.exporters.page.live import Asked, Invitation, LiveReading
from tidegauge.exporters.reading import MAX_LABEL, Reader
from tidegauge.safety.guard import guarded

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tidegauge.exporters.page.runs import Digest
    from tidegauge.streaming_metrics.step_history import EventLog

_FOLDER: Final = "/page/"
_HEADERS: Final = [
    # Scripts and styles are our files; the page sends no requests elsewhere.
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]
_PLAIN: Final = "text/plain; charset=utf-8"
_NUMBERS: Final = ("first", "rows", "run", "after")
_TEXTS: Final = ("find", "trouble", "agent", "group", "sort")
_MAX_QUERY: Final = 4_000
_MAX_FIND: Final = MAX_LABEL
_MAX_NUMBER: Final = 2**53


class Page:
    """Serves ``/`` and ``/page/...``; every other path goes to another application.

    Args:
        digest: converts digests to the form that may be shown.
        trace_url: address of the page of a trace, with ``{trace_id}`` in it.
        prices: $ per million tokens, by model.
        runbooks: address of the folder of runbooks.
    """

    def __init__(
        self,
        event_log: EventLog,
        *,
        digest: Digest,
        trace_url: str | None = None,
        prices: Mapping[str, float] | None = None,
        runbooks: str = RUNBOOKS,
    ) -> None:
        self._event_log = event_log
        self._digest = digest
        self._trace_url = trace_url
        self._prices = prices
        self._runbooks = runbooks
        self._invitation: Invitation | None = None
        self._live: LiveReading | None = None

    def start(self, reader: Reader) -> None:
        """Show the runs of the reader's engine."""
        self._live = LiveReading(
            reader.engine,
            self._event_log,
            digest=self._digest,
            trace_url=self._trace_url,
            prices=self._prices,
            runbooks=self._runbooks,
        )
        self._live.invitation = self._invitation

    def invite(self, words: str, lines: str) -> None:
        """Show, while the page is empty, where runs are received and what to type."""
        self._invitation = Invitation(words, lines)
        if self._live is not None:
            self._live.invitation = self._invitation

    def close(self) -> None:
        """Answer requests for runs with 503."""
        self._live = None

    def before(self, otherwise: WSGIApplication) -> WSGIApplication:
        """The application; the server must check ``Host``.

        Args:
            otherwise: serves the other paths.
        """

        def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if path not in ("", "/") and not path.startswith(_FOLDER):
                return otherwise(environ, start_response)
            if environ["REQUEST_METHOD"] != "GET":
                more = [("Allow", "GET")]
                return _say(start_response, "405 Method Not Allowed", "GET only", more)
            name = path.removeprefix(_FOLDER) if path.startswith(_FOLDER) else "index.html"
            if name == "live":
                return self._poll(environ.get("QUERY_STRING", ""), start_response)
            found = file(name)
            if found is None:
                return _say(start_response, "404 Not Found", "no such file")
            return _answer(start_response, "200 OK", *found)

        return application

    def _poll(self, query: str, start_response: StartResponse) -> Iterable[bytes]:
        asked = _asked(query)
        if asked is None:
            return _say(start_response, "400 Bad Request", "the query is invalid")
        live = self._live
        if live is None:
            return _say(start_response, "503 Service Unavailable", "the page is closed")
        body = self._read(live, asked)
        if body is None:
            return _say(start_response, "500 Internal Server Error", "reading failed; see the log")
        return _answer(start_response, "200 OK", "application/json", body)

    @guarded("page", default=None, interrupting="run")
    def _read(self, live: LiveReading, asked: Asked) -> bytes:
        return orjson.dumps(live.read(asked))


def _asked(query: str) -> Asked | None:
    if len(query) > _MAX_QUERY:
        return None
    given = dict(parse_qsl(query))
    try:
        numbers: dict[str, Any] = {name: int(given[name]) for name in _NUMBERS if name in given}
    except ValueError:
        return None
    if any(not 0 <= number <= _MAX_NUMBER for number in numbers.values()):
        return None
    texts: dict[str, Any] = {name: given[name][:_MAX_FIND] for name in _TEXTS if name in given}
    return Asked(**numbers, **texts)


def _say(
    start_response: StartResponse, status: str, text: str, more: list[tuple[str, str]] | None = None
) -> Iterable[bytes]:
    return _answer(start_response, status, _PLAIN, f"{text}\n".encode(), more)


def _answer(
    start_response: StartResponse,
    status: str,
    content_type: str,
    body: bytes,
    more: list[tuple[str, str]] | None = None,
) -> Iterable[bytes]:
    length = ("Content-Length", str(len(body)))
    start_response(status, [("Content-Type", content_type), length, *_HEADERS, *(more or ())])
    return [body]


_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_OURS: Final = (
    "index.html",
    "page.css",
    "page.js",
    "charts.js",
    "chosen.js",
    "fleet.js",
    "events.js",
    "runs.js",
    "text.js",
    "icon.svg",
    # dist/uPlot.iife.min.js and dist/uPlot.min.css of npm's package uplot, version 1.6.32
    "uplot.js",
    "uplot.css",
)
_SHARED: Final = ("theme.css", "theme.js")  # with the report


def file(name: str) -> tuple[str, bytes] | None:
    """Content type and bytes of one of the page's files; ``None`` if it does not exist."""
    if name not in (*_OURS, *_SHARED):
        return None
    return _TYPES[name[name.rindex(".") :]], _read(name)


@cache
def _read(name: str) -> bytes:
    if name in _OURS:
        return files(__package__).joinpath("static", name).read_bytes()
    return files("tidegauge._web").joinpath(name).read_bytes()
