"""What a command that serves lets others reach: under which names, and whether they are asked."""

from __future__ import annotations

import click

from tidegauge._net.hosts import is_loopback

__all__ = ["host_names", "warn_if_exposed"]


def host_names(listed: str | None) -> tuple[str, ...]:
    """The names in the setting ``allowed_hosts``.

    >>> host_names("gauge.example, gauge.internal")
    ('gauge.example', 'gauge.internal')
    """
    return tuple(name.strip() for name in (listed or "").split(",") if name.strip())


def warn_if_exposed(host: str, what: str, protection: str) -> None:
    """Say on standard error what other machines can do that show nothing.

    Args:
        host: the address listened on; on loopback there is nothing to say.
        what: they can do.
        protection: what to do about it.
    """
    if not is_loopback(host):
        click.echo(
            f"warning: {host} is reachable from other machines, and any of them can {what}; "
            f"{protection}",
            err=True,
        )
