"""The same alerts as Grafana's own, for those who have no Alertmanager.

A value and its line become a query and a threshold. The recording rules stay in Prometheus: two
of the alerts compare with what is recorded there.
"""

from __future__ import annotations

from typing import Any, Final

from grafana_foundation_sdk.builders import alerting, expr, prometheus
from grafana_foundation_sdk.models.alerting import RelativeTimeRange
from grafana_foundation_sdk.models.common import DataSourceRef

from tidegauge.dashboards.alert import RUNBOOKS, Alert
from tidegauge.dashboards.alerts import ALERTS

__all__ = ["alert_provisioning"]

_FOLDER: Final = "tidegauge"
_EXPRESSION: Final = "__expr__"
_LOOK_BACK_SECONDS: Final = 600


def alert_provisioning(data_source: str, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """The file ``provisioning/alerting/*.yaml``: one group, evaluated every ten seconds.

    Args:
        data_source: uid of the Prometheus.
        runbooks: where the pages with the steps to take lie.
    """
    group = {
        "orgId": 1,
        "name": "tidegauge",
        "folder": _FOLDER,
        "interval": "10s",
        "rules": [_provisioned(_rule(alert, data_source, runbooks)) for alert in ALERTS],
    }
    return {"apiVersion": 1, "groups": [group]}


def _rule(alert: Alert, data_source: str, runbooks: str) -> alerting.Rule:
    value = (
        prometheus.Dataquery()
        .ref_id("A")
        .datasource(DataSourceRef(type_val="prometheus", uid=data_source))
        .expr(alert.value)
        .instant()
    )
    line = expr.ExprTypeThresholdConditionsEvaluator().type("gt").params([alert.above])
    threshold = (
        expr.TypeThreshold()
        .ref_id("B")
        .datasource(DataSourceRef(type_val=_EXPRESSION, uid=_EXPRESSION))
        .expression("A")
        .conditions([expr.ExprTypeThresholdConditions().evaluator(line)])
    )
    lately = RelativeTimeRange(_LOOK_BACK_SECONDS, 0)
    annotations = {
        name: text.replace("$value", "$values.A.Value")
        for name, text in alert.annotations(runbooks).items()
    }
    return (
        alerting.Rule(alert.name)
        .uid(f"tidegauge-{alert.runbook}")
        .condition("B")
        .with_query(
            alerting.Query("A").datasource_uid(data_source).relative_time_range(lately).model(value)
        )
        .with_query(
            alerting.Query("B")
            .datasource_uid(_EXPRESSION)
            .relative_time_range(lately)
            .model(threshold)
        )
        .for_val(alert.held)
        .no_data_state("OK")  # no series: nobody runs, or nobody is in trouble
        .exec_err_state("Error")
        .labels({"severity": alert.severity})
        .annotations(annotations)
    )


def _provisioned(rule: alerting.Rule) -> dict[str, Any]:
    """The rule without what a file has elsewhere: its organisation, folder and group."""
    elsewhere = {"orgID", "folderUID", "ruleGroup"}
    return {key: value for key, value in rule.build().to_json().items() if key not in elsewhere}
