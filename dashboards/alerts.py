"""All alerts, and Prometheus's groups of them."""

from __future__ import annotations

from typing import Any, Final

from dashboards.agent_alerts import AGENT_ALERTS, ONSETS
from dashboards.alert import Alert, PanelNumbers
from dashboards.process_alerts import PROCESS_ALERTS

ALERTS: Final = (*ONSETS, *AGENT_ALERTS, *PROCESS_ALERTS)
"""All alerts."""

_ONSET_INTERVAL: Final = "500ms"
"""Evaluation interval of the alerts on what runs do now, so that they fire soon after a scrape."""


def alerting_groups(panels: PanelNumbers) -> list[dict[str, Any]]:
    """The rule groups for Prometheus. What runs do now is evaluated twice a second."""
    onsets, others = (
        [_rule(alert, panels) for alert in alerts]
        for alerts in (ONSETS, (*AGENT_ALERTS, *PROCESS_ALERTS))
    )
    return [
        {"name": "tidegauge-onset", "interval": _ONSET_INTERVAL, "rules": onsets},
        {"name": "tidegauge-alerts", "rules": others},
    ]


def _rule(alert: Alert, panels: PanelNumbers) -> dict[str, Any]:
    annotations = alert.annotations(panels)
    annotations["summary"] += alert.details
    held = {"keep_firing_for": alert.keep_firing} if alert.keep_firing else {}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.pending,
        **held,
        "labels": {"severity": alert.severity},
        "annotations": annotations,
    }
