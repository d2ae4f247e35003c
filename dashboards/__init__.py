"""Generates dashboards, recording rules and alerts from the catalog: ``make dashboards``.

What it writes is data of the package :mod:`tidegauge.dashboards`, which needs nothing of this.
"""

import warnings

with warnings.catch_warnings():
    # The SDK recommends dashboards of schema v2, which files and older Grafana versions lack.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    import grafana_foundation_sdk.builders.bargauge  # loads all modules that warn
    import grafana_foundation_sdk.builders.dashboard  # noqa: F401
