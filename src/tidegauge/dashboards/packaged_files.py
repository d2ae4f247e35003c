"""The files of this package, with a user's settings in them.

``make dashboards`` generates them from the catalog, with the defaults of all settings.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any, Final

from tidegauge.catalog import RUNBOOKS

MOUNTED_AT: Final = "/var/lib/grafana/dashboards"
"""Default folder of the dashboards in Grafana."""

PROMETHEUS_URL: Final = "http://prometheus:9090"
"""Default URL of Prometheus for Grafana."""

TEMPO_URL: Final = "http://tempo:3200"
"""URL of Tempo in the file with Tempo. By default there is no Tempo."""

GRAFANA_URL: Final = "http://localhost:3000"
"""Default URL of Grafana, in links to dashboards."""

DEFAULTS: Final = (MOUNTED_AT, PROMETHEUS_URL, TEMPO_URL, GRAFANA_URL, RUNBOOKS)
"""What settings replace. In YAML it is between double quotes."""

WITH_TEMPO: Final = "datasources-with-tempo.yaml"
"""Takes the place of the data sources if there is a Tempo."""

_BOARDS: Final = ("tidegauge-fleet.json", "tidegauge-run.json", "tidegauge-diagnosis.json")
_SOURCES: Final = "provisioning/datasources/tidegauge.yaml"
_DEFAULT: Final = re.compile("|".join(map(re.escape, DEFAULTS)))


def dashboards() -> list[dict[str, Any]]:
    """All dashboards, as Grafana's JSON."""
    return [json.loads(_text(name)) for name in _BOARDS]


def dashboard_files(
    *,
    mounted_at: str = MOUNTED_AT,
    prometheus_url: str = PROMETHEUS_URL,
    tempo_url: str | None = None,
    runbooks: str = RUNBOOKS,
    grafana_url: str = GRAFANA_URL,
) -> dict[str, str]:
    """Dashboards as JSON, and Grafana's provisioning tree, by path.

    Args:
        mounted_at: the folder of the JSON files in Grafana.
        prometheus_url: URL of Prometheus for Grafana.
        tempo_url: URL of Tempo for Grafana; exemplars then link to traces.
        runbooks: URL of the folder of runbooks.
        grafana_url: URL of Grafana for people who get an alert.
    """
    chosen = _links(runbooks, grafana_url) | {
        MOUNTED_AT: mounted_at,
        PROMETHEUS_URL: prometheus_url,
        TEMPO_URL: tempo_url or "",
    }
    sources = _SOURCES if tempo_url is None else WITH_TEMPO
    return {name: _text(name) for name in _BOARDS} | {
        "provisioning/dashboards/tidegauge.yaml": _yaml(
            "provisioning/dashboards/tidegauge.yaml", chosen
        ),
        _SOURCES: _yaml(sources, chosen),
        "provisioning/alerting/tidegauge.yaml": _yaml(
            "provisioning/alerting/tidegauge.yaml", chosen
        ),
    }


def rule_files(*, runbooks: str = RUNBOOKS, grafana_url: str = GRAFANA_URL) -> dict[str, str]:
    """Prometheus's rule files, by name.

    Args:
        runbooks: URL of the folder of runbooks.
        grafana_url: URL of Grafana for people who get an alert.
    """
    chosen = _links(runbooks, grafana_url)
    names = ("tidegauge-recording.yaml", "tidegauge-alerts.yaml")
    return {name: _yaml(f"rules/{name}", chosen) for name in names}


def _links(runbooks: str, grafana_url: str) -> dict[str, str]:
    return {RUNBOOKS: runbooks.rstrip("/"), GRAFANA_URL: grafana_url.rstrip("/")}


def _text(name: str) -> str:
    return files("tidegauge.dashboards").joinpath(name).read_text(encoding="utf-8")


def _yaml(name: str, chosen: dict[str, str]) -> str:
    """A file with chosen texts in the place of defaults, all at once: one may contain another."""
    return _DEFAULT.sub(lambda default: _quoted(chosen[default[0]]), _text(name))


def _quoted(text: str) -> str:
    r"""A text as it is written between YAML's double quotes.

    >>> print(_quoted('a "b"\n'))
    a \"b\"\U0000000a
    """
    return "".join(
        f"\\U{ord(one):08x}" if not one.isprintable() else f"\\{one}" if one in '"\\' else one
        for one in text
    )
