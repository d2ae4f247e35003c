"""The names under which a server answers: a protection against web pages of others.

A browser lets a page read only from the host that it was loaded from, and says that host's name in
``Host``. DNS rebinding gets around that: the page's own name is made to point at 127.0.0.1, so that
a server here is, to the browser, the page's own. The name gives it away.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from tidegauge._net.head import RejectedRequestError
from tidegauge.errors import ConfigurationError

__all__ = ["AllowedHosts", "is_loopback"]

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]*)?", re.IGNORECASE)


class AllowedHosts:
    """Decides by a request's ``Host`` (and ``Origin``, where a browser sends one).

    Loopback names, the address listened on and the names listed are always allowed. Of others:

    - A server on a loopback address allows none: only this machine can reach it, so no honest
      client calls it anything else, and it is what rebinding aims at.
    - A server on any other address allows all until names are listed: Prometheus, probes and
      collectors reach it by names of services that it cannot know, and who may connect is decided
      by a token, by certificates or by the network.
    - Where names are listed, a server on such an address allows IP addresses beside them. No
      resolver is asked for one, so none can be rebound, and Kubernetes probes a pod by its address.

    Args:
        bound: the address listened on.
        listed: further names, without ports.

    Raises:
        ConfigurationError: a name listed is no host name.

    >>> local, service = AllowedHosts("127.0.0.1"), AllowedHosts("0.0.0.0", ["gauge.example"])
    >>> [local.allow(told) for told in ("localhost:9464", "[::1]:80", "evil.example", "")]
    [True, True, False, False]
    >>> [service.allow(told) for told in ("gauge.example", "10.0.0.7:9464", "evil.example")]
    [True, True, False]
    """

    def __init__(self, bound: str, listed: Iterable[str] = ()) -> None:
        names = set()
        for told in listed:
            name = _name(told.strip())
            if name is None:
                raise ConfigurationError(
                    f"{told!r} is not a host name; list names such as gauge.example, "
                    "without a scheme"
                )
            names.add(name)
        self._local = is_loopback(bound)
        self._names = frozenset({bound.lower(), "localhost", *names})
        self._any = not self._local and not names

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse a request with a ``Host`` or ``Origin`` that is not allowed.

        Raises:
            RejectedRequestError: it has.
        """
        if not self.allow(host or ""):
            raise RejectedRequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this host name is not allowed; list it in the setting allowed_hosts",
                "unauthorized",
            )
        if origin is not None and not self.allow_origin(origin):
            raise RejectedRequestError(
                HTTPStatus.FORBIDDEN,
                "pages of this origin are not allowed; list its host in the setting allowed_hosts",
                "unauthorized",
            )

    def allow(self, host: str) -> bool:
        """Whether a request with this ``Host`` is answered; ``""`` stands for none."""
        if self._any:
            return True
        name = _name(host)
        if name is None:
            return False
        return name in self._names or is_loopback(name) or (not self._local and _is_address(name))

    def allow_origin(self, origin: str) -> bool:
        """Whether a request from a page of this ``Origin`` is answered.

        >>> here = AllowedHosts("127.0.0.1")
        >>> [here.allow_origin(told) for told in ("http://localhost:3000", "null")]
        [True, False]
        """
        try:
            return self.allow(urlsplit(origin).netloc)
        except ValueError:
            return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.7", "::1", "0.0.0.0", "")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name(host: str) -> str | None:
    """The name in a ``Host``, without its port; ``None``, it is none."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1].strip("[]").rstrip(".").lower()
