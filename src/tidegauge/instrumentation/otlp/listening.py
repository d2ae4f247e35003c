"""The address and the limits of a listener."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from tidegauge.errors import ConfigurationError

__all__ = ["Listening", "Tls"]


class Tls(NamedTuple):
    """Files of TLS.

    Args:
        certificate: of the server.
        key: its private key.
        client_ca: certificates; only clients that show one signed by them are answered.
    """

    certificate: str
    key: str
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """What the standard library speaks TLS with.

        Raises:
            ConfigurationError: the files cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:  # also what OpenSSL says of them
            raise ConfigurationError(f"the files of TLS cannot be used: {error}") from error
        return context


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal, and wait."""
    raise ValueError("the key is encrypted")


class Listening(NamedTuple):
    """The address and the limits of a listener.

    Args:
        host: address.
        port: 0 takes a free one.
        max_bytes: of one request, also after it was decompressed.
        max_connections: requests (gRPC) or connections (HTTP) at a time.
        request_seconds: for so long a request may take to arrive and to be decompressed (HTTP),
            or to be decompressed (gRPC).
        idle_seconds: for so long a connection may stay without one (HTTP).
        allowed_hosts: host names to accept in addition to those of
            :class:`~tidegauge._net.hosts.AllowedHosts` (HTTP).
    """

    host: str = "127.0.0.1"
    port: int = 0
    max_bytes: int = 16 * 1024 * 1024
    max_connections: int = 64
    request_seconds: float = 10.0
    idle_seconds: float = 60.0
    allowed_hosts: tuple[str, ...] = ()

    @property
    def host_in_url(self) -> str:
        """The host as it is written in a URL.

        >>> Listening("::1").host_in_url
        '[::1]'
        """
        return f"[{self.host}]" if ":" in self.host else self.host

    def url(self, port: int, tls: Tls | None = None) -> str:
        """Where it is, once its port is known."""
        return f"{'http' if tls is None else 'https'}://{self.host_in_url}:{port}"
