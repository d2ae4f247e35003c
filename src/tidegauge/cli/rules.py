"""``tidegauge rules``: Prometheus's recording rules and alerts, written to files."""

from __future__ import annotations

from pathlib import Path

import click

from tidegauge.cli.written import write_files

__all__ = ["rules"]


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the rule files here.",
)
@click.option("--runbooks", metavar="URL", help="Where docs/runbooks is served from.")
def rules(*, out: Path, runbooks: str | None) -> None:
    """Write Prometheus's recording rules and alerts.

    \b
    Examples:
      tidegauge rules --out /etc/prometheus/rules
      tidegauge rules --out rules --runbooks https://wiki.example/tidegauge
    """
    from tidegauge.dashboards import rule_files

    write_files(out, rule_files() if runbooks is None else rule_files(runbooks=runbooks))
