"""Common parts of all dashboards: variables, links, time range and refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import table

from dashboards.panels import BAD, DATA_SOURCE, STOPPED, Panel
from dashboards.queries import QueryScope, new_events
from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.interventions import INTERVENTIONS
from tidegauge.streaming_metrics.loops import LOOPS
from tidegauge.streaming_metrics.run_counts import RUNS_STARTED

MATCHERS: Final = {"agent": '=~"$agent"', "task_group": '=~"$task_group"'}

NOW: Final = QueryScope("", MATCHERS)
"""The current value."""

STEPS: Final = QueryScope("$steps", MATCHERS)
"""For counters of steps: several minutes, because the steps of a loop are counted at once."""

SHOWN: Final = QueryScope("$__range", MATCHERS)
"""The whole time range shown."""

EVENTS: Final = QueryScope("$__interval", MATCHERS)
"""For bars: each bar covers its own interval, so that bars add up."""

RUNS: Final = QueryScope("$window", MATCHERS)
"""For counters of runs: the selected window, since runs end rarely."""

_TAG: Final = "tidegauge"
_ONSETS: Final = QueryScope("1m", MATCHERS)
"""For annotations: an onset, or a stop, is looked for in each minute."""


class Row(NamedTuple):
    """A heading and the panels below it.

    Attributes:
        heading: its text.
        panels: its panels.
        collapsed: whether they are hidden, and not queried, until someone opens the row: those of
            parts that not everyone runs.
    """

    heading: str
    panels: Sequence[Panel]
    collapsed: bool = False


def board(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    variables: Sequence[dashboard.QueryVariable] = (),
) -> models.Dashboard:
    """A dashboard of panels in rows.

    Args:
        uid: identifies the dashboard in Grafana; pushing it again replaces it.
        title: name of the dashboard.
        description: purpose of the dashboard.
        rows: the rows, from top to bottom.
        variables: variables that only this dashboard has.
    """
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([_TAG])
        .time("now-1h", "now")
        .refresh("10s")
        .timepicker(
            dashboard.TimePicker().refresh_intervals(["1s", "5s", "10s", "30s", "1m", "5m"])
        )
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .annotation(_annotation("Loop onsets", BAD, LOOPS, 'kind="loop"', title="{{agent}} loops"))
        .annotation(
            _annotation("Stops", STOPPED, INTERVENTIONS, 'action="stop"', title="{{agent}} stopped")
        )
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
        .with_variable(label_variable("agent", "Agent", RUNS_STARTED))
        .with_variable(
            label_variable("task_group", "Task group", RUNS_STARTED, f"agent{MATCHERS['agent']}")
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
    for row in rows:
        heading = dashboard.Row(row.heading)
        if row.collapsed:
            for panel in row.panels:
                heading = heading.with_panel(panel)
            built = built.with_row(heading)
            continue
        built = built.with_row(heading)
        for panel in row.panels:
            built = built.with_panel(panel)
    return _finished(built.build())


def _annotation(
    name: str, colour: str, metric: MetricDefinition, matcher: str, *, title: str
) -> dashboard.AnnotationQuery:
    """Marks in all panels over time, where a counter counted events."""
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATA_SOURCE)
        .enable(True)
        .icon_color(colour)
        .expr(f"{new_events(_ONSETS, metric, matcher, by=['agent'])} > 0")
        .step("60s")
        .title_format(title)
    )


def _window(
    name: str, shown: str, what: str, values: str, chosen: str
) -> dashboard.IntervalVariable:
    return (
        dashboard.IntervalVariable(name)
        .label(shown)
        .description(f"Time window of {what}.")
        .values(values)
        .current(models.VariableOption(selected=True, text=chosen, value=chosen))
    )


def _finished(result: models.Dashboard) -> models.Dashboard:
    """Number the panels, and remove SDK defaults that Grafana's schema does not have."""
    panels = list(result.panels or ())
    for row in result.panels or ():
        if isinstance(row, models.RowPanel):
            panels += row.panels
    for number, panel in enumerate(panels, start=1):
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
        label: label of the metric, and name of the variable.
        shown: text beside its drop-down.
        metric: the metric with the label.
        matchers: select the series.
        single: whether the user selects exactly one value.
    """
    series = QueryScope("").series(metric, *matchers)
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
