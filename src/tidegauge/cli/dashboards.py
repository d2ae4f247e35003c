"""``tidegauge dashboards`` and ``rules``: what Grafana and Prometheus read, as files or sent."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Final

import click

from tidegauge._version import __version__
from tidegauge.cli.command_settings import OUT_FOLDER, TEXT, URL, setting, settings_options
from tidegauge.cli.recording_options import write_files
from tidegauge.cli.terminal import print_line

_TOKEN: Final = "TIDEGAUGE_GRAFANA_TOKEN"  # noqa: S105 -- the name of the variable


@dataclass(frozen=True, kw_only=True)
class DashboardsSettings:
    """Settings of ``tidegauge dashboards``."""

    out: Path | None = setting(
        OUT_FOLDER,
        None,
        "Write the dashboards (JSON) and Grafana's provisioning files to this folder.",
    )
    push: str | None = setting(URL, None, "Send the dashboards to the Grafana at this address.")
    prometheus_url: str | None = setting(URL, None, "Address of Prometheus, as Grafana reaches it.")
    tempo_url: str | None = setting(URL, None, "Address of Tempo (traces), as Grafana reaches it.")
    mounted_at: str | None = setting(
        TEXT, None, "Folder of the JSON files, as Grafana sees it.", metavar="PATH"
    )
    runbooks: str | None = setting(
        URL, None, "Address that serves docs/runbooks.", envvar="TIDEGAUGE_RUNBOOKS"
    )
    grafana_url: str | None = setting(URL, None, "Address of Grafana, for links in alerts.")


@click.command()
@settings_options(DashboardsSettings)
def dashboards(settings: DashboardsSettings) -> None:
    """Write Grafana dashboards to files, or send them to Grafana.

    --push reads the token of a service account that may write dashboards from the variable
    TIDEGAUGE_GRAFANA_TOKEN.

    \b
    Examples:
      tidegauge dashboards --out grafana
      tidegauge dashboards --push https://grafana.example
                                      with a token in TIDEGAUGE_GRAFANA_TOKEN
    """
    if settings.out is None and settings.push is None:
        raise click.UsageError("nothing to do; set --out DIR, --push URL, or both")
    token = os.environ.get(_TOKEN, "")
    if settings.push is not None and not token:
        raise click.UsageError(f"--push needs a token; set the variable {_TOKEN}")
    from tidegauge import dashboards as builder

    if settings.out is not None:
        names = ("prometheus_url", "tempo_url", "mounted_at", "runbooks", "grafana_url")
        write_files(settings.out, builder.dashboard_files(**_given(settings, *names)))
    if settings.push is not None:
        for board in builder.dashboards():
            message = f"tidegauge {__version__}"
            address = builder.push(board, settings.push, token, message=message)
            print_line(f"{board['title']}: {address}")


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

    write_files(settings.out, rule_files(**_given(settings, "runbooks", "grafana_url")))


def _given(settings: object, *names: str) -> dict[str, str]:
    """The settings with these names that are set."""
    given = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}
