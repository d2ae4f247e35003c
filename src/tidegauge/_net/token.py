"""Bearer tokens."""

from __future__ import annotations

import hmac

from tidegauge.errors import ConfigurationError

__all__ = ["BearerToken"]


class BearerToken:
    """The token that clients must show.

    Args:
        token: it; ``None``, none is asked for.

    Raises:
        ConfigurationError: it is empty. That is a secret that was not filled in, and no wish to
            be open to all.

    >>> BearerToken("secret").authorizes("Bearer secret"), BearerToken("secret").authorizes(None)
    (True, False)
    """

    def __init__(self, token: str | None) -> None:
        if token is not None and not token.strip():
            raise ConfigurationError("the token is empty; set one, or leave it out to ask for none")
        self._shown = None if token is None else f"bearer {token.strip()}".encode()

    def authorizes(self, authorization: str | None) -> bool:
        """Whether a client with this ``Authorization`` is let in. Takes the same time for all."""
        if self._shown is None:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        shown = f"{scheme.lower()} {token.strip()}".encode("latin-1", errors="replace")
        return hmac.compare_digest(shown, self._shown)
