"""Grafana dashboards, recording rules and alerts, as files of this package.

:func:`dashboard_files` and :func:`rule_files` give everything as text, :func:`push` sends
dashboards to Grafana.
"""

from tidegauge.dashboards.packaged_files import dashboard_files, dashboards, rule_files
from tidegauge.dashboards.push import PushError, push

__all__ = ["PushError", "dashboard_files", "dashboards", "push", "rule_files"]
