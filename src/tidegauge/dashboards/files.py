"""Everything as files: a name and its text, written by whoever asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tidegauge.dashboards.alert import RUNBOOKS
from tidegauge.dashboards.alerts import alerting_groups
from tidegauge.dashboards.diagnosis import diagnosis
from tidegauge.dashboards.fleet import fleet
from tidegauge.dashboards.grafana_alerts import alert_provisioning
from tidegauge.dashboards.rules import recording_groups
from tidegauge.dashboards.run import run

__all__ = ["MOUNTED_AT", "PROMETHEUS_URL", "dashboard_files", "dashboards", "rule_files"]

MOUNTED_AT: Final = "/var/lib/grafana/dashboards"
"""Where Grafana looks for the dashboards, unless told otherwise."""

PROMETHEUS_URL: Final = "http://prometheus:9090"
"""Where Grafana looks for Prometheus, unless told otherwise."""

_PROMETHEUS: Final = "tidegauge-prometheus"
_TEMPO: Final = "tidegauge-tempo"


def dashboards() -> list[Dashboard]:
    """The dashboards, the first one first."""
    return [fleet(), run(), diagnosis()]


def dashboard_files(
    *,
    mounted_at: str = MOUNTED_AT,
    prometheus_url: str = PROMETHEUS_URL,
    tempo_url: str | None = None,
    runbooks: str = RUNBOOKS,
) -> dict[str, str]:
    """Dashboards as JSON, and Grafana's provisioning tree, by path.

    Args:
        mounted_at: the folder in which Grafana finds the JSON files.
        prometheus_url: where Grafana reaches Prometheus.
        tempo_url: where it reaches Tempo: the dots on the graphs then lead to traces.
        runbooks: where the pages with the steps to take lie.
    """
    provisioned = {
        "dashboards": _provider(mounted_at),
        "datasources": _data_sources(prometheus_url, tempo_url),
        "alerting": alert_provisioning(_PROMETHEUS, runbooks),
    }
    return {f"{board.uid}.json": _json(board) for board in dashboards()} | {
        f"provisioning/{kind}/tidegauge.yaml": _yaml(content)
        for kind, content in provisioned.items()
    }


def rule_files(*, runbooks: str = RUNBOOKS) -> dict[str, str]:
    """Prometheus's rule files, by name.

    Args:
        runbooks: where the pages with the steps to take lie.
    """
    return {
        "tidegauge-recording.yaml": _yaml({"groups": recording_groups()}),
        "tidegauge-alerts.yaml": _yaml({"groups": alerting_groups(runbooks)}),
    }


def _provider(mounted_at: str) -> dict[str, Any]:
    provider = {
        "name": "tidegauge",
        "folder": "tidegauge",
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": mounted_at},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _data_sources(prometheus_url: str, tempo_url: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"httpMethod": "POST", "timeInterval": "1s"}
    sources: list[dict[str, Any]] = [
        {
            "name": "tidegauge Prometheus",
            "uid": _PROMETHEUS,
            "type": "prometheus",
            "access": "proxy",
            "url": prometheus_url,
            "jsonData": options,
        }
    ]
    if tempo_url is not None:
        options["exemplarTraceIdDestinations"] = [{"name": "trace_id", "datasourceUid": _TEMPO}]
        sources.append(
            {
                "name": "tidegauge Tempo",
                "uid": _TEMPO,
                "type": "tempo",
                "access": "proxy",
                "url": tempo_url,
            }
        )
    return {"apiVersion": 1, "datasources": sources}


def _json(board: Dashboard) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block, so that queries can be read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(content: Mapping[str, Any]) -> str:
    plain = json.loads(JSONEncoder().encode(content))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
