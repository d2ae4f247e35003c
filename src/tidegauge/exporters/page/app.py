"""The page as a WSGI application, in front of another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import orjson

from tidegauge._guard import guarded
from tidegauge.exporters.page.files import file
from tidegauge.exporters.page.live import Asked, LiveReading

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from tidegauge.exporters.page.runs import Digest
    from tidegauge.streaming_metrics.chronicle import Chronicle
    from tidegauge.streaming_metrics.engine import Engine

__all__ = ["Page"]

_FOLDER: Final = "/page/"
_HEADERS: Final = [
    # Scripts and styles are files of ours, and nothing is asked of anybody else.
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
_MAX_QUERY: Final = 1_000
_MAX_FIND: Final = 100
_MAX_NUMBER: Final = 2**53


class Page:
    """Answers for ``/`` and ``/page/...``, and leaves every other path to another application.

    Args:
        engine: what is shown.
        chronicle: the one that the engine was given.
        digest: makes what is shown in place of a digest.
    """

    def __init__(self, engine: Engine, chronicle: Chronicle, *, digest: Digest) -> None:
        self._live = LiveReading(engine, chronicle, digest=digest)

    def before(self, otherwise: WSGIApplication) -> WSGIApplication:
        """The application; the server checks ``Host``.

        Args:
            otherwise: answers for the other paths.
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
            return _say(start_response, "400 Bad Request", "what is asked for cannot be read")
        body = self._read(asked)
        if body is None:
            return _say(start_response, "500 Internal Server Error", "reading failed; see the log")
        return _answer(start_response, "200 OK", "application/json", body)

    @guarded("page", default=None, interrupting="run")
    def _read(self, asked: Asked) -> bytes:
        return orjson.dumps(self._live.read(asked))


def _asked(query: str) -> Asked | None:
    if len(query) > _MAX_QUERY:
        return None
    told = dict(parse_qsl(query))
    try:
        numbers = {name: int(told[name]) for name in _NUMBERS if name in told}
    except ValueError:
        return None
    if any(not 0 <= number <= _MAX_NUMBER for number in numbers.values()):
        return None
    return Asked(**numbers, find=told.get("find", "")[:_MAX_FIND])


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
