"""What all dashboards share: their variables, the links between them, time and refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import table

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.dashboards.panels import DATA_SOURCE, Panel
from tidegauge.dashboards.queries import Scope

__all__ = ["EVENTS", "MATCHERS", "NOW", "RUNS", "SHOWN", "STEPS", "board", "label_variable"]

MATCHERS: Final = {"agent": '=~"$agent"', "task_group": '=~"$task_group"'}

NOW: Final = Scope("", MATCHERS)
"""What is so at this moment."""

STEPS: Final = Scope("$steps", MATCHERS)
"""What happens at every step: over some minutes, as a loop of ten steps is counted in one go."""

SHOWN: Final = Scope("$__range", MATCHERS)
"""All of the time that is shown."""

EVENTS: Final = Scope("$__interval", MATCHERS)
"""What is counted bar by bar: each bar's own time, so that bars add up."""

RUNS: Final = Scope("$window", MATCHERS)
"""What happens once a run: over the chosen window, or there is next to nothing to divide."""

_TAG: Final = "tidegauge"


def board(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[Panel]]],
    *,
    variables: Sequence[dashboard.QueryVariable] = (),
) -> models.Dashboard:
    """A dashboard of panels in rows, each row under its heading.

    Args:
        uid: by which Grafana knows it: a dashboard that is sent again replaces itself.
        title: its name.
        description: what it is for.
        rows: heading and panels of each.
        variables: those that only this one has.
    """
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([_TAG])
        .time("now-1h", "now")
        .refresh("5s")
        .timepicker(dashboard.TimePicker().refresh_intervals(["1s", "5s", "15s", "1m", "5m"]))
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("tidegauge")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(label_variable("agent", "Agent", catalog.RUNS_STARTED))
        .with_variable(
            label_variable(
                "task_group", "Task group", catalog.RUNS_STARTED, f"agent{MATCHERS['agent']}"
            )
        )
    )
    for variable in variables:
        built = built.with_variable(variable)
    built = built.with_variable(
        _window(
            "steps", "Steps over", "loop ratios and other shares of steps", "1m,5m,15m,1h", "5m"
        )
    ).with_variable(
        _window(
            "window",
            "Runs over",
            "success rates and other shares of runs",
            "5m,15m,1h,6h,1d,7d",
            "1h",
        )
    )
    for heading, panels in rows:
        built = built.with_row(dashboard.Row(heading))
        for panel in panels:
            built = built.with_panel(panel)
    return _finished(built.build())


def _window(
    name: str, shown: str, what: str, values: str, chosen: str
) -> dashboard.IntervalVariable:
    return (
        dashboard.IntervalVariable(name)
        .label(shown)
        .description(f"Over how long {what} are taken.")
        .values(values)
        .current(models.VariableOption(selected=True, text=chosen, value=chosen))
    )


def _finished(result: models.Dashboard) -> models.Dashboard:
    """With panels numbered, and without the SDK's defaults that Grafana's schema does not know."""
    for number, panel in enumerate(result.panels or (), start=1):
        panel.id_val = number
        if isinstance(panel, models.Panel) and isinstance(panel.options, table.Options):
            panel.options.footer = None
    variables = result.templating.list_val if result.templating else None
    for variable in variables or ():
        variable.auto = variable.auto_min = variable.auto_count = None
    return result


def label_variable(
    label: str, shown: str, metric: MetricDefinition, *matchers: str, single: bool = False
) -> dashboard.QueryVariable:
    """A variable that takes the values of a metric's label.

    Args:
        label: of the metric; also the variable's name.
        shown: beside its drop-down.
        metric: whose label.
        matchers: of the series that are looked at.
        single: whether one value is chosen, not any number.
    """
    series = Scope("").series(metric, *matchers)
    variable = (
        dashboard.QueryVariable(label)
        .label(shown)
        .datasource(DATA_SOURCE)
        .query({"query": f"label_values({series}, {label})", "refId": label})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if single:
        return variable
    return (
        variable.multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )
