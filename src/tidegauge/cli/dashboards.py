"""``tidegauge dashboards``: Grafana's dashboards, written to files or sent to a Grafana."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from tidegauge._version import __version__
from tidegauge.cli.written import write_files

__all__ = ["dashboards"]

_TOKEN: Final = "TIDEGAUGE_GRAFANA_TOKEN"  # noqa: S105 -- the variable's name, no token


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the dashboards' JSON and Grafana's provisioning tree here.",
)
@click.option("--push", "push_url", metavar="URL", help="Send the dashboards to this Grafana.")
@click.option("--prometheus-url", metavar="URL", help="Where Grafana reaches Prometheus.")
@click.option("--tempo-url", metavar="URL", help="Where Grafana reaches Tempo, for the traces.")
@click.option("--mounted-at", metavar="PATH", help="Where Grafana finds the JSON files.")
@click.option("--runbooks", metavar="URL", help="Where docs/runbooks is served from.")
def dashboards(*, out: Path | None, push_url: str | None, **settings: str | None) -> None:
    """Write Grafana's dashboards, or send them to a Grafana.

    The token of a service account that may write dashboards is read from the variable
    TIDEGAUGE_GRAFANA_TOKEN.

    \b
    Examples:
      tidegauge dashboards --out grafana
      TIDEGAUGE_GRAFANA_TOKEN=… tidegauge dashboards --push https://grafana.example
    """
    if out is None and push_url is None:
        raise click.UsageError("say where to: --out DIR or --push URL")
    token = os.environ.get(_TOKEN, "")
    if push_url is not None and not token:
        raise click.UsageError(f"--push needs a token in the variable {_TOKEN}")
    from tidegauge import dashboards as built

    if out is not None:
        chosen = {name: value for name, value in settings.items() if value is not None}
        write_files(out, built.dashboard_files(**chosen))
    if push_url is not None:
        for board in built.dashboards():
            where = built.push(board, push_url, token, message=f"tidegauge {__version__}")
            click.echo(f"{board.title}: {where}")
