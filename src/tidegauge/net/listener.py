"""Where a server listens, its limits, and its TLS files."""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError

FilePath: TypeAlias = str | os.PathLike[str]


class Tls(NamedTuple):
    """The TLS files of a server.

    Args:
        certificate: the server's certificate.
        key: its private key.
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
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        max_bytes: limit of a request's body, before and after decompression.
        max_connections: limit of concurrent requests (gRPC) or connections (HTTP).
        request_seconds: time limit for a request to arrive and to be decompressed (HTTP), or to be
            decompressed (gRPC).
        idle_seconds: time limit of a connection without a request (HTTP).
        allowed_hosts: host names to accept in addition to those that
            :class:`~tidegauge.net.hosts.AllowedHosts` always allows (HTTP).
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
