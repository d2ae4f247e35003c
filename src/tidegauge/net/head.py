"""The head of an HTTP/1.1 request: read by lines within limits, and rejected if it is ambiguous.

Its bearer token is checked here, too.

Parsers accept some of what RFC 9112 forbids, and they differ in it: lines that end in a bare LF,
headers that continue on the next line, white space before a colon, a repeated length. If a proxy
parses a request differently, an attacker can smuggle a second request in the difference. All of
this is rejected here, before any parser sees it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from io import BufferedReader
from typing import Any, Final

from tidegauge.errors import ConfigurationError

_MAX_BYTES: Final = 65_536
_MAX_HEADERS: Final = 100
_FIRST: Final = re.compile(rb"[A-Z]+ ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])\r\n")
_HEADER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")


class RejectedRequestError(Exception):
    """A request that is not served.

    Args:
        status: of the response.
        message: why the request is rejected.
        reason: the label it is counted with; ``None``: not counted, or counted already.
        headers: further headers of the response.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        reason: str | None = "malformed",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.headers = headers or {}


def read_head(reader: BufferedReader[Any]) -> list[bytes]:
    r"""The lines of a request's head, the empty one included; each ends in CRLF.

    Raises:
        RejectedRequestError: the lines are not the head of an HTTP/1.1 request, are ambiguous,
            or are too many.
        ConnectionError: the sender closed the connection.

    >>> from io import BytesIO
    >>> read_head(BufferedReader(BytesIO(b"GET / HTTP/1.1\r\nHost: here\r\n\r\nbody")))
    [b'GET / HTTP/1.1\r\n', b'Host: here\r\n', b'\r\n']
    """
    room = _MAX_BYTES
    lines: list[bytes] = []
    while not lines or lines[-1] != b"\r\n":
        line = reader.readline(room)
        room -= len(line)
        if room <= 0 or len(lines) > _MAX_HEADERS:
            raise RejectedRequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the request head is longer than {_MAX_BYTES} bytes or {_MAX_HEADERS} headers",
            )
        if not line.endswith(b"\n"):
            raise ConnectionError("the client closed the connection")
        if not lines:
            _check_first(line)
        elif line != b"\r\n" and not _HEADER.fullmatch(line):
            raise malformed("a line is not a header that ends in CRLF")
        lines.append(line)
    _check_framing(lines)
    return lines


def _check_first(line: bytes) -> None:
    found = _FIRST.fullmatch(line)
    if found is None:
        raise malformed("the first line is not an HTTP/1.1 request line")
    if found[2] not in (b"1.0", b"1.1"):
        raise RejectedRequestError(
            HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is supported"
        )
    if not found[1].startswith(b"/"):
        raise malformed("the request target is not a path")


def _check_framing(lines: Sequence[bytes]) -> None:
    """Reject heads on which parsers may disagree about the end of the body, or the host."""
    given: dict[bytes, bytes] = {}
    for line in lines[1:-1]:
        name, _, value = line.lower().partition(b":")
        if name in (b"content-length", b"transfer-encoding", b"host"):
            if name in given:
                raise malformed(f"more than one {name.decode()}")
            given[name] = value.strip()
    length = given.get(b"content-length", b"0")
    if not length.isdigit():
        raise malformed("content-length is not a number")
    if b"transfer-encoding" not in given:
        return
    if b"content-length" in given:
        raise malformed("both content-length and transfer-encoding")
    if lines[0].endswith(b"1.0\r\n"):
        raise malformed("transfer-encoding in HTTP/1.0")


def malformed(message: str) -> RejectedRequestError:
    """The error to raise for a request that HTTP/1.1 forbids."""
    return RejectedRequestError(HTTPStatus.BAD_REQUEST, message)


class BearerToken:
    """The token that clients must send.

    Args:
        token: the token; ``None``: clients need none.

    Raises:
        ConfigurationError: the token is empty: a secret was not filled in.

    >>> BearerToken("secret").authorizes("Bearer secret"), BearerToken("secret").authorizes(None)
    (True, False)
    """

    def __init__(self, token: str | None) -> None:
        if token is not None and not token.strip():
            raise ConfigurationError("the token is empty; set one, or omit it to require none")
        self._shown = None if token is None else f"bearer {token.strip()}".encode()

    def authorizes(self, authorization: str | None) -> bool:
        """Whether this ``Authorization`` has the token. Takes the same time for every value."""
        if self._shown is None:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        # Only what HTTP calls white space: to str.strip, some bytes of UTF-8 are, too.
        given = token.strip(" \t")
        shown = f"{scheme.lower()} {given}".encode("latin-1", errors="replace")
        return hmac.compare_digest(shown, self._shown)

    def check(self, authorization: str | None) -> None:
        """Reject a request without the token.

        Raises:
            RejectedRequestError: this ``Authorization`` does not have it.
        """
        if not self.authorizes(authorization):
            raise RejectedRequestError(
                HTTPStatus.UNAUTHORIZED,
                "send a valid bearer token",
                "unauthorized",
                {"WWW-Authenticate": "Bearer"},
            )
