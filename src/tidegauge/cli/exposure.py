"""How far a serving command lets others in: host names, TLS, and a warning where it is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tidegauge._net.hosts import is_loopback
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.instrumentation.otlp.listening import Tls

__all__ = ["host_names", "tls_files", "warn_if_exposed"]


def host_names(listed: str | None) -> tuple[str, ...]:
    """The names in the setting ``allowed_hosts``.

    >>> host_names("gauge.example, gauge.internal")
    ('gauge.example', 'gauge.internal')
    """
    return tuple(name.strip() for name in (listed or "").split(",") if name.strip())


def tls_files(settings: Mapping[str, Any]) -> Tls | None:
    """The files in the settings ``tls_...``; ``None``: without TLS.

    Raises:
        ConfigurationError: the certificate or its key is missing.
    """
    from tidegauge.instrumentation.otlp.listening import Tls

    certificate, key = settings["tls_certificate"], settings["tls_key"]
    client_ca = settings["tls_client_ca"]
    if (certificate, key, client_ca) == (None, None, None):
        return None
    if certificate is None or key is None:
        raise ConfigurationError("tls_certificate and tls_key go together")
    return Tls(certificate, key, client_ca)


def warn_if_exposed(host: str, what: str, protection: str) -> None:
    """Warn on standard error about what other machines can do without credentials.

    Args:
        host: the address listened on; there is no warning for a loopback address.
        what: what other machines can do.
        protection: how to prevent it.
    """
    if not is_loopback(host):
        click.echo(
            f"warning: {host} is reachable from other machines, and any of them can {what}; "
            f"{protection}",
            err=True,
        )
