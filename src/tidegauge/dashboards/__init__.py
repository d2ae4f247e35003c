"""Dashboards, recording rules and alerts, generated from the catalog.

:func:`dashboard_files` and :func:`rule_files` give everything as text, :func:`push` sends
dashboards to Grafana.

Needs ``pip install '.[dashboards]'``.
"""

import warnings

from tidegauge.errors import MissingExtraError

try:
    import yaml  # noqa: F401 -- its absence raises the error below

    with warnings.catch_warnings():
        # The SDK recommends dashboards of schema v2, which files and older Grafana versions lack.
        warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
        import grafana_foundation_sdk.builders.bargauge  # loads all modules that warn
        import grafana_foundation_sdk.builders.dashboard  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(str(error.name), extra="dashboards") from error

from tidegauge.dashboards.alert import Alert
from tidegauge.dashboards.alerts import ALERTS
from tidegauge.dashboards.generated_files import dashboard_files, dashboards, rule_files
from tidegauge.dashboards.push import PushError, push
from tidegauge.dashboards.ratios import RATIOS, Ratio

__all__ = [
    "ALERTS",
    "RATIOS",
    "Alert",
    "PushError",
    "Ratio",
    "dashboard_files",
    "dashboards",
    "push",
    "rule_files",
]
