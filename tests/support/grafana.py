"""What Grafana asks of Prometheus for a panel: variables substituted, over the time shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from support.prometheus import Prometheus
from tidegauge.dashboards import dashboard_files

POINTS = 1000
"""About how many pixels a panel is wide, and so how many points it asks for."""

SCRAPE_SECONDS = 1.0
"""``timeInterval`` of the provisioned data source."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)


def seconds(text: str) -> float:
    """Of a duration such as ``5m``."""
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", text).groups()
    return float(number) * _UNITS[unit]


def panels() -> list[Any]:
    """Every panel of the dashboards, as a parameter of a test."""
    return [
        pytest.param(panel, id=f"{name}: {panel['title']}")
        for name, text in dashboard_files().items()
        if name.endswith(".json")
        for panel in shown_panels(json.loads(text))
    ]


def shown_panels(board: Any) -> list[dict[str, Any]]:
    """The panels of a dashboard, also those in collapsed rows."""
    found = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", ()))]
    return [panel for panel in found if panel["type"] != "row"]


def reasons_to_be_empty(panel: Any) -> set[str]:
    """Why a panel says that it may be empty: what follows that word, up to the full stop."""
    return set(re.findall(r"\b[Ee]mpty ([^.]+)\.", panel["description"]))


class Series(NamedTuple):
    """One series of an answer."""

    labels: dict[str, str]
    values: list[float]


class View:
    """A dashboard as it is opened: its own time range and choices.

    Args:
        board: its JSON.
        prometheus: the data source.
        now: when it is opened, in seconds of the epoch.
        chosen: values of variables that have no default, or another one.
    """

    def __init__(self, board: Any, prometheus: Prometheus, now: float, **chosen: str) -> None:
        self._prometheus = prometheus
        self._range = seconds(board["time"]["from"].removeprefix("now-"))
        self._end = now
        self._chosen: dict[str, str] = dict(chosen)
        for variable in board["templating"]["list"]:
            if variable["name"] in chosen or variable["type"] == "datasource":
                continue
            value = variable.get("current", {}).get("value", "")
            self._chosen[variable["name"]] = (
                variable["allValue"] if value == ["$__all"] else str(value)
            )

    def find(self, panel: Any, target: Any) -> list[Series]:
        """What a query of a panel finds; series that are NaN throughout are none."""
        if target.get("instant"):
            step, path, when = self._step(panel), "query", {"time": str(self._end)}
        else:
            step, path = self._step(panel), "query_range"
            end = math.floor(self._end / step) * step
            when = {"start": str(end - self._range), "end": str(end), "step": str(step)}
        query = self.substituted(target["expr"], step)
        found = self._prometheus.get(f"/api/v1/{path}", query=query, **when)["result"]
        series = [
            Series(each["metric"], [float(v) for _, v in each.get("values", [each.get("value")])])
            for each in found
        ]
        return [each for each in series if not all(map(math.isnan, each.values))]

    def values_of(self, variable: Any) -> list[str]:
        """What can be chosen of a variable that asks for the values of a label."""
        asked = variable["query"]["query"]
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", asked).groups()
        parameters = {"match[]": self.substituted(series, 1.0)}
        parameters |= {"start": str(self._end - self._range), "end": str(self._end)}
        found: list[str] = self._prometheus.get(f"/api/v1/label/{label}/values", **parameters)
        return found

    def substituted(self, query: str, step: float) -> str:
        """The query with Grafana's own variables and the chosen ones."""
        rate = max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)
        known: Mapping[str, str] = self._chosen | {
            "__interval": f"{step:g}s",
            "__rate_interval": f"{rate:g}s",
            "__range": f"{self._range:g}s",
        }
        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda name: known[name[1] or name[2]], query)

    def _step(self, panel: Any) -> float:
        least = seconds(panel["interval"]) if panel.get("interval") else SCRAPE_SECONDS
        wanted = self._range / panel.get("maxDataPoints", POINTS)
        return max(least, min(_STEPS, key=lambda step: abs(step - wanted)))
