"""Where a server listens, its limits, its TLS files, and the host names that it accepts."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from tidegauge.errors import ConfigurationError
from tidegauge.net.head import RejectedRequestError

FilePath: TypeAlias = str | os.PathLike[str]


class Tls(NamedTuple):
    """The TLS files of a server.

    Args:
        client_ca: certificates; only clients with a certificate signed by one are accepted.
    """

    certificate: FilePath
    key: FilePath
    client_ca: FilePath | None = None

    @classmethod
    def from_files(
        cls, certificate: FilePath | None, key: FilePath | None, client_ca: FilePath | None = None
    ) -> Tls | None:
        """The files that are set; ``None``: none is, and the server does not use TLS."""
        if certificate is None or key is None:
            if (certificate, key, client_ca) != (None, None, None):
                raise ConfigurationError("TLS needs a certificate and its key; set both")
            return None
        return cls(certificate, key, client_ca)

    def context(self) -> ssl.SSLContext:
        """The context for :mod:`ssl`; ConfigurationError if the files cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:  # also what OpenSSL says of them
            raise ConfigurationError(f"the TLS files cannot be used: {error}") from error
        return context


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal, and wait."""
    raise ValueError("the key is encrypted")


class Listener(NamedTuple):
    """The address and the limits of a listener.

    Args:
        port: port to listen on; 0 takes a free one.
        max_bytes: limit of a request's body, before and after decompression.
        max_connections: limit of concurrent requests (gRPC) or connections (HTTP).
        request_seconds: time limit for a request to arrive and to be decompressed (HTTP), or to be
            decompressed (gRPC).
        idle_seconds: time limit of a connection without a request (HTTP).
        allowed_hosts: host names to accept in addition to those that
            :class:`~tidegauge.net.listener.AllowedHosts` always allows (HTTP).
        keep_alive: whether a connection serves more than one request (HTTP).
    """

    host: str = "127.0.0.1"
    port: int = 0
    max_bytes: int = 16 * 1024 * 1024
    max_connections: int = 64
    request_seconds: float = 10.0
    idle_seconds: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    keep_alive: bool = True

    @property
    def address(self) -> str:
        """Host and port.

        >>> Listener("::1", 4317).address
        '[::1]:4317'
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, port: int, tls: Tls | None = None) -> str:
        """The URL of the server's root, once its port is known."""
        return f"{'http' if tls is None else 'https'}://{self._replace(port=port).address}"

    def failed(self, serves: str, error: OSError | None = None) -> OSError:
        """The error to raise if the server cannot listen.

        >>> Listener(port=80).failed("metrics", PermissionError(13, "Permission denied"))
        OSError('cannot listen on 127.0.0.1:80 for metrics: Permission denied')
        """
        why = "" if error is None else f": {error.strerror or error}"
        return OSError(f"cannot listen on {self.address} for {serves}{why}")


_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]*)?", re.IGNORECASE)


class AllowedHosts:
    """Decides by a request's ``Host`` (and ``Origin``, where a browser sends one).

    A browser lets a page read only from the host that it was loaded from, and sends that host's
    name in ``Host``. DNS rebinding circumvents that: the page's host name is made to resolve to
    127.0.0.1, so that the browser takes a local server for the page's own. The unexpected name in
    ``Host`` reveals this.

    Loopback names, the address listened on and the listed names are always allowed. Other names:

    - A server on a loopback address allows none: only this machine can reach it, so legitimate
      clients use no other name, and such servers are the target of rebinding.
    - A server on any other address allows all names, unless some are listed: Prometheus, probes
      and collectors use names of services that the server cannot know. A token, certificates or
      the network decide who may connect.
    - If names are listed, a server on such an address also allows IP addresses. An IP address
      needs no resolver, so it cannot be rebound, and Kubernetes probes a pod by its address.

    Args:
        bound: the address listened on.
        listed: further names, without ports.

    Raises:
        ConfigurationError: a listed name is not a host name.

    >>> local, service = AllowedHosts("127.0.0.1"), AllowedHosts("0.0.0.0", ["gauge.example"])
    >>> [local.allow(host) for host in ("localhost:9464", "[::1]:80", "evil.example", "")]
    [True, True, False, False]
    >>> [service.allow(host) for host in ("gauge.example", "10.0.0.7:9464", "evil.example")]
    [True, True, False]
    """

    def __init__(self, bound: str, listed: Iterable[str] = ()) -> None:
        names = set()
        for host in listed:
            name = _name(host.strip())
            if name is None:
                raise ConfigurationError(
                    f"{host!r} is not a host name; list names such as gauge.example, "
                    "without a scheme"
                )
            names.add(name)
        self._local = is_loopback(bound)
        self._names = frozenset({bound.lower(), "localhost", *names})
        self._any = not self._local and not names

    def check(self, host: str | None, origin: str | None) -> None:
        """Reject a request with a ``Host`` or ``Origin`` that is not allowed.

        Raises:
            RejectedRequestError: one of them is not allowed.
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
        """Whether a request with this ``Host`` is accepted; ``""``: without ``Host``."""
        if self._any:
            return True
        name = _name(host)
        if name is None:
            return False
        return name in self._names or is_loopback(name) or (not self._local and _is_address(name))

    def allow_origin(self, origin: str) -> bool:
        """Whether a request from a page of this ``Origin`` is accepted.

        >>> here = AllowedHosts("127.0.0.1")
        >>> [here.allow_origin(origin) for origin in ("http://localhost:3000", "null")]
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


def is_any_address(host: str) -> bool:
    """Whether it stands for all addresses of this machine, so that no client can connect to it.

    >>> [is_any_address(host) for host in ("0.0.0.0", "::", "127.0.0.1", "gauge.example")]
    [True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name(host: str) -> str | None:
    """The name in a ``Host``, without its port; ``None``, it is malformed."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1].strip("[]").rstrip(".").lower()
