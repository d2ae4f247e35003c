"""Push dashboards to Grafana over its HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final

from tidegauge.errors import TidegaugeError

_TIMEOUT_SECONDS: Final = 10
_MAX_ANSWER_BYTES: Final = 65_536


class PushError(TidegaugeError):
    """Grafana is unreachable or rejected a dashboard."""


def push(board: Mapping[str, Any], url: str, token: str, *, message: str = "") -> str:
    """Create or replace one dashboard, and return its URL.

    Args:
        board: the dashboard as Grafana's JSON; one with the same uid is replaced.
        url: URL of Grafana, such as ``https://grafana.example``.
        token: token of a service account that may write dashboards.
        message: message of the new version.

    Raises:
        PushError: Grafana is unreachable or rejected the dashboard.
    """
    base = url.rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in ("http", "https"):
        raise PushError(f"The Grafana URL {url!r} has no scheme; use http:// or https://.")
    body = {"dashboard": dict(board), "overwrite": True, "message": message}
    request = urllib.request.Request(  # noqa: S310 -- the scheme is checked above
        f"{base}/api/dashboards/db",
        data=json.dumps(body, sort_keys=True).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    try:
        with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as response:
            answer = json.loads(response.read(_MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise PushError(f"{base} answered {error.code}: {_reason(error)}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise PushError(f"Grafana at {base} is unreachable: {reason}") from error
    path = answer.get("url") if isinstance(answer, dict) else None
    return urllib.parse.urljoin(f"{base}/", path) if isinstance(path, str) else base


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it would carry the token to another host."""

    def redirect_request(  # noqa: PLR0917 -- as urllib calls it
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _reason(error: urllib.error.HTTPError) -> str:
    """Grafana's message, else the reason phrase of HTTP."""
    try:
        answer: Any = json.loads(error.read(_MAX_ANSWER_BYTES))
        return str(answer["message"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return error.reason or "no reason given"
