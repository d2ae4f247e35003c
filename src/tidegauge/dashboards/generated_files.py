"""Dashboards, Grafana's provisioning and Prometheus's rules as files: names and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml
from grafana_foundation_sdk.builders import alerting, expr, prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.alerting import RelativeTimeRange
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from tidegauge.catalog import RUNBOOKS
from tidegauge.dashboards.alert import GRAFANA_URL, Alert, Links
from tidegauge.dashboards.alerts import ALERTS, alerting_groups
from tidegauge.dashboards.diagnosis_dashboard import diagnosis
from tidegauge.dashboards.fleet_dashboard import fleet
from tidegauge.dashboards.ratios import recording_groups
from tidegauge.dashboards.run_dashboard import run

MOUNTED_AT: Final = "/var/lib/grafana/dashboards"
"""Default folder of the dashboards in Grafana."""

PROMETHEUS_URL: Final = "http://prometheus:9090"
"""Default URL of Prometheus for Grafana."""

_PROMETHEUS: Final = "tidegauge-prometheus"
_TEMPO: Final = "tidegauge-tempo"


def dashboards() -> list[Dashboard]:
    """All dashboards."""
    return [fleet(), run(), diagnosis()]


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
    boards = dashboards()
    links = Links(_panels(boards), runbooks, grafana_url)
    provisioned = {
        "dashboards": _provider(mounted_at),
        "datasources": _data_sources(prometheus_url, tempo_url),
        "alerting": alert_provisioning(_PROMETHEUS, links),
    }
    return {f"{board.uid}.json": _json(board) for board in boards} | {
        f"provisioning/{kind}/tidegauge.yaml": _yaml(content)
        for kind, content in provisioned.items()
    }


def rule_files(*, runbooks: str = RUNBOOKS, grafana_url: str = GRAFANA_URL) -> dict[str, str]:
    """Prometheus's rule files, by name.

    Args:
        runbooks: URL of the folder of runbooks.
        grafana_url: URL of Grafana for people who get an alert.
    """
    links = Links(_panels(dashboards()), runbooks, grafana_url)
    return {
        "tidegauge-recording.yaml": _yaml({"groups": recording_groups()}),
        "tidegauge-alerts.yaml": _yaml({"groups": alerting_groups(links)}),
    }


def _panels(boards: Sequence[Dashboard]) -> dict[tuple[str, str], int]:
    """The number of each panel, by the uid of its dashboard and its title."""
    return {
        (str(board.uid), str(panel.title)): panel.id_val or 0
        for board in boards
        for entry in board.panels or ()
        for panel in ((entry,) if isinstance(entry, Panel) else entry.panels)
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
    """Write multi-line text as a block, so that queries are readable."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(content: Mapping[str, Any]) -> str:
    plain = json.loads(JSONEncoder().encode(content))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


_FOLDER: Final = "tidegauge"
_EXPRESSION: Final = "__expr__"
_LOOK_BACK_SECONDS: Final = 600


def alert_provisioning(data_source: str, links: Links) -> dict[str, Any]:
    """The file ``provisioning/alerting/*.yaml``: the alerts for those who run no Alertmanager.

    The recording rules stay in Prometheus: two alerts compare with recorded series.

    Args:
        data_source: uid of the Prometheus data source.
        links: where the links of annotations lead.
    """
    group = {
        "orgId": 1,
        "name": "tidegauge",
        "folder": _FOLDER,
        "interval": "10s",
        "rules": [_provisioned(alert, data_source, links) for alert in ALERTS],
    }
    return {"apiVersion": 1, "groups": [group]}


def _rule(alert: Alert, data_source: str, annotations: Mapping[str, str]) -> alerting.Rule:
    value = (
        prometheus.Dataquery()
        .ref_id("A")
        .datasource(DataSourceRef(type_val="prometheus", uid=data_source))
        .expr(alert.value)
        .instant()
    )
    line = expr.ExprTypeThresholdConditionsEvaluator().type("gt").params([alert.threshold])
    threshold = (
        expr.TypeThreshold()
        .ref_id("B")
        .datasource(DataSourceRef(type_val=_EXPRESSION, uid=_EXPRESSION))
        .expression("A")
        .conditions([expr.ExprTypeThresholdConditions().evaluator(line)])
    )
    window = RelativeTimeRange(_LOOK_BACK_SECONDS, 0)
    return (
        alerting.Rule(alert.name)
        .uid(f"tidegauge-{alert.runbook}")
        .condition("B")
        .with_query(
            alerting.Query("A").datasource_uid(data_source).relative_time_range(window).model(value)
        )
        .with_query(
            alerting.Query("B")
            .datasource_uid(_EXPRESSION)
            .relative_time_range(window)
            .model(threshold)
        )
        .for_val(alert.pending)
        .no_data_state("OK")  # no series: no run, or no run in trouble
        .exec_err_state("Error")
        .labels({"severity": alert.severity})
        .annotations(dict(annotations))
    )


def _provisioned(alert: Alert, data_source: str, links: Links) -> dict[str, Any]:
    """The rule in the form of provisioning files.

    They set organisation, folder and group elsewhere. The SDK follows the HTTP API, where
    ``keepFiringFor`` has another name.
    """
    board, panel = alert.panel[0], links.panels[alert.panel]
    annotations = {
        name: text.replace("$value", "$values.A.Value")
        for name, text in alert.annotations(links).items()
    }
    annotations |= {"__dashboardUid__": board, "__panelId__": str(panel)}
    rule = _rule(alert, data_source, annotations).build().to_json()
    elsewhere = {"orgID", "folderUID", "ruleGroup"}
    return {
        **{key: value for key, value in rule.items() if key not in elsewhere},
        **({"keepFiringFor": alert.keep_firing} if alert.keep_firing else {}),
        "dashboardUid": board,
        "panelId": panel,
    }
