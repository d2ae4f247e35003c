"""PromQL from the definitions of the catalog: no query contains a literal metric name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegauge.catalog import GROUP_LABELS, STARTED, MetricDefinition

GROUP: Final = GROUP_LABELS
"""Labels of alerts and recording rules: those of nearly every metric."""

PROCESS: Final = ("job", "instance")
"""Labels of a process, which Prometheus adds."""


@dataclass(frozen=True, slots=True)
class QueryScope:
    """The series, time window and offset of a query.

    Args:
        window: time window, such as ``5m`` or a Grafana variable.
        matchers: matchers by label, such as ``=~"$agent"``; ignored for metrics without the label.
        offset: how far back the window ends; empty for now.

    >>> from tidegauge.streaming_metrics.run_counts import STEPS
    >>> QueryScope("5m", {"agent": '=~"$agent"'}).rate(STEPS)
    'rate(tidegauge_steps_total{agent=~"$agent"}[5m])'
    """

    window: str
    matchers: Mapping[str, str] = field(default_factory=dict)
    offset: str = ""

    def series(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The selector of a metric; a histogram needs a suffix."""
        own = [label + match for label, match in self.matchers.items() if label in metric.labels]
        inside = ",".join([*own, *matchers])
        return metric.name + suffix + (f"{{{inside}}}" if inside else "")

    def over_window(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The range selector of a metric."""
        ago = f" offset {self.offset}" if self.offset else ""
        return f"{self.series(metric, *matchers, suffix=suffix)}[{self.window}]{ago}"

    def rate(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The rate of each series of a counter."""
        return f"rate({self.over_window(metric, *matchers, suffix=suffix)})"

    def increase(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The increase of each series of a counter within the window.

        In dashboards, where the window is a variable of Grafana, it is exact: ``increase`` would
        extrapolate, and miss the events with which a series begins. A series that had no sample in
        the five minutes before the window is taken at its value: a failed scrape makes none new.
        Only where a counter was reset, it is what ``increase`` finds.

        >>> from tidegauge import catalog
        >>> print(QueryScope("$w").increase(catalog.DROPPED_EVENTS))  # doctest: +ELLIPSIS
        ((last_over_time(tidegauge_dropped_events_total[$w]) unless ...[5m] offset $w))
          or (last_over_time(...[$w]) - last_over_time(...[5m] offset $w) >= 0
            unless resets(...[$w]) > 0)
          or increase(tidegauge_dropped_events_total[$w]))
        """
        within = self.over_window(metric, *matchers, suffix=suffix)
        if not self.window.startswith("$"):
            return f"increase({within})"
        series = self.series(metric, *matchers, suffix=suffix)
        before = f"last_over_time({series}[5m] offset {self.window})"
        last = f"last_over_time({within})"
        return (
            f"(({last} unless {before})\n  or ({last} - {before} >= 0"
            f"\n    unless resets({within}) > 0)\n  or increase({within}))"
        )


def total(expression: str, by: Sequence[str] = (), *, operator: str = "sum") -> str:
    """An aggregation by labels; without labels, one value.

    >>> total("up", ["job"]), total("up", operator="max")
    ('sum by (job) (up)', 'max(up)')
    """
    kept = f" by ({', '.join(by)}) " if by else ""
    return f"{operator}{kept}({expression})"


def quantile(scope: QueryScope, metric: MetricDefinition, share: float) -> str:
    """The quantile of a histogram's observations."""
    buckets = total(scope.rate(metric, suffix="_bucket"), ["le"])
    return f"histogram_quantile({share}, {buckets})"


def new_events(
    scope: QueryScope, metric: MetricDefinition, *matchers: str, by: Sequence[str] = GROUP
) -> str:
    """The number of events that a counter counted within the window.

    ``increase`` misses the events with which a series begins: it has no sample from before them.
    A series that began within the window is therefore taken at its value. It began then if its
    process was scraped at the beginning of the window and did not have it, or if the process is
    younger than the window. A gap in the scrapes proves neither: what was counted before it is
    not new.

    A window that is a variable of Grafana has no length here. Then a series counts as new if it had
    no sample at the beginning of the window.

    >>> from tidegauge import catalog
    >>> print(new_events(QueryScope("10m"), catalog.DROPPED_EVENTS, by=["job"]))
    sum by (job) (((tidegauge_dropped_events_total unless tidegauge_dropped_events_total offset 10m)
      and on (job, instance) (tidegauge_started_timestamp_seconds offset 10m
        or tidegauge_started_timestamp_seconds > time() - 600))
      or increase(tidegauge_dropped_events_total[10m]))
    """
    if scope.window.startswith("$"):
        return total(scope.increase(metric, *matchers), by)
    series, started = scope.series(metric, *matchers), STARTED.name
    young = (
        f"(({series} unless {series} offset {scope.window})"
        f"\n  and on ({', '.join(PROCESS)}) ({started} offset {scope.window}"
        f"\n    or {started} > time() - {_seconds(scope.window)}))"
    )
    return total(f"{young}\n  or {scope.increase(metric, *matchers)}", by)


def _seconds(window: str) -> int:
    return int(window[:-1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[window[-1]]


def wilson_interval(successes: str, trials: str, *, upper: bool, z: float = 1.96) -> str:
    """A bound of the Wilson interval of a proportion, which is valid for few trials, too.

    Args:
        successes: expression of the number of successes.
        trials: expression of the number of trials, with the same labels.
        upper: whether to give the upper bound; else the lower one.
        z: number of standard deviations; 1.96 for 95%.
    """
    n = f"({trials} > 0)"
    share = f"{successes} / {n}"
    half = f"{z} * sqrt(({share}) * (1 - {share}) / {n} + {z**2 / 4:.6g} / {n} ^ 2)"
    return (
        f"({share} + {z**2 / 2:.6g} / {n} {'+' if upper else '-'} {half}) / (1 + {z**2:.6g} / {n})"
    )
