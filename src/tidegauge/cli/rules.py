"""``tidegauge rules``: Prometheus recording rules and alerts, written to files."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

import click

from tidegauge.cli.command_settings import OUT_FOLDER, URL, setting, settings_options
from tidegauge.cli.recording_options import write_files


@dataclass(frozen=True, kw_only=True)
class RulesSettings:
    """Settings of ``tidegauge rules``."""

    out: Path = setting(OUT_FOLDER, MISSING, "Write the rule files to this folder.")
    runbooks: str | None = setting(
        URL, None, "Address that serves docs/runbooks.", envvar="TIDEGAUGE_RUNBOOKS"
    )
    grafana_url: str | None = setting(URL, None, "Address of Grafana, for links in alerts.")


@click.command()
@settings_options(RulesSettings)
def rules(settings: RulesSettings) -> None:
    """Write Prometheus recording rules and alerts.

    \b
    Examples:
      tidegauge rules --out /etc/prometheus/rules
      tidegauge rules --out rules --runbooks https://wiki.example/tidegauge
    """
    from tidegauge.dashboards import rule_files

    given = {"runbooks": settings.runbooks, "grafana_url": settings.grafana_url}
    write_files(settings.out, rule_files(**{k: v for k, v in given.items() if v is not None}))
