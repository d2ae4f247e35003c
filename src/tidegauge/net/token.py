"""Bearer tokens."""

from __future__ import annotations

import hmac
from http import HTTPStatus

from tidegauge.errors import ConfigurationError
from tidegauge.net.head import RejectedRequestError


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
