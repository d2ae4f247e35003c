"""All files: dashboards, Grafana's provisioning and Prometheus's rules, as names and texts."""

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

from dashboards.alert import Alert, PanelNumbers
from dashboards.alerts import ALERTS, alerting_groups
from dashboards.diagnosis_dashboard import diagnosis
from dashboards.fleet_dashboard import fleet
from dashboards.ratios import recording_groups
from dashboards.run_dashboard import run
from tidegauge.dashboards.packaged_files import (
    DEFAULTS,
    MOUNTED_AT,
    PROMETHEUS_URL,
    TEMPO_URL,
    WITH_TEMPO,
)

_PROMETHEUS: Final = "tidegauge-prometheus"
_TEMPO: Final = "tidegauge-tempo"


def dashboards() -> list[Dashboard]:
    """All dashboards."""
    return [fleet(), run(), diagnosis()]


def files() -> dict[str, str]:
    """All files of the package ``tidegauge.dashboards``, by path, with the defaults of settings."""
    boards = dashboards()
    panels = _panels(boards)
    contents = {
        "provisioning/dashboards/tidegauge.yaml": _provider(),
        "provisioning/datasources/tidegauge.yaml": _data_sources(),
        "provisioning/alerting/tidegauge.yaml": alert_provisioning(panels),
        WITH_TEMPO: _data_sources(with_tempo=True),
        "rules/tidegauge-recording.yaml": {"groups": recording_groups()},
        "rules/tidegauge-alerts.yaml": {"groups": alerting_groups(panels)},
    }
    return {f"{board.uid}.json": _json(board) for board in boards} | {
        name: _yaml(content) for name, content in contents.items()
    }


def _panels(boards: Sequence[Dashboard]) -> PanelNumbers:
    return {
        (str(board.uid), str(panel.title)): panel.id_val or 0
        for board in boards
        for entry in board.panels or ()
        for panel in ((entry,) if isinstance(entry, Panel) else entry.panels)
    }


def _provider() -> dict[str, Any]:
    provider = {
        "name": "tidegauge",
        "folder": "tidegauge",
        "type": "file",
        "allowUiUpdates": False,
        "options": {"path": MOUNTED_AT},
    }
    return {"apiVersion": 1, "providers": [provider]}


def _data_sources(*, with_tempo: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = {"httpMethod": "POST", "timeInterval": "1s"}
    sources: list[dict[str, Any]] = [
        {
            "name": "tidegauge Prometheus",
            "uid": _PROMETHEUS,
            "type": "prometheus",
            "access": "proxy",
            "url": PROMETHEUS_URL,
            "jsonData": options,
        }
    ]
    if with_tempo:
        options["exemplarTraceIdDestinations"] = [{"name": "trace_id", "datasourceUid": _TEMPO}]
        sources.append(
            {
                "name": "tidegauge Tempo",
                "uid": _TEMPO,
                "type": "tempo",
                "access": "proxy",
                "url": TEMPO_URL,
            }
        )
    return {"apiVersion": 1, "datasources": sources}


def _json(board: Dashboard) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"


class _Dumper(yaml.SafeDumper):
    """Write multi-line text as a block, so that queries are readable.

    Text with a replaceable default is in double quotes, between which any text can be written.
    """


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if any(default in text for default in DEFAULTS):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(content: Mapping[str, Any]) -> str:
    plain = json.loads(JSONEncoder().encode(content))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


_FOLDER: Final = "tidegauge"
_EXPRESSION: Final = "__expr__"
_LOOK_BACK_SECONDS: Final = 600


def alert_provisioning(panels: PanelNumbers) -> dict[str, Any]:
    """The alerts in Grafana's form, for those who run no Alertmanager.

    The recording rules stay in Prometheus: two alerts compare with recorded series.
    """
    group = {
        "orgId": 1,
        "name": "tidegauge",
        "folder": _FOLDER,
        "interval": "10s",
        "rules": [_provisioned(alert, panels) for alert in ALERTS],
    }
    return {"apiVersion": 1, "groups": [group]}


def _rule(alert: Alert, annotations: Mapping[str, str]) -> alerting.Rule:
    value = (
        prometheus.Dataquery()
        .ref_id("A")
        .datasource(DataSourceRef(type_val="prometheus", uid=_PROMETHEUS))
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
            alerting.Query("A").datasource_uid(_PROMETHEUS).relative_time_range(window).model(value)
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


def _provisioned(alert: Alert, panels: PanelNumbers) -> dict[str, Any]:
    """The rule in the form of provisioning files.

    They set organisation, folder and group elsewhere. The SDK follows the HTTP API, where
    ``keepFiringFor`` has another name.
    """
    board, panel = alert.panel[0], panels[alert.panel]
    annotations = {
        name: text.replace("$value", "$values.A.Value")
        for name, text in alert.annotations(panels).items()
    }
    annotations |= {"__dashboardUid__": board, "__panelId__": str(panel)}
    rule = _rule(alert, annotations).build().to_json()
    elsewhere = {"orgID", "folderUID", "ruleGroup"}
    return {
        **{key: value for key, value in rule.items() if key not in elsewhere},
        **({"keepFiringFor": alert.keep_firing} if alert.keep_firing else {}),
        "dashboardUid": board,
        "panelId": panel,
    }
