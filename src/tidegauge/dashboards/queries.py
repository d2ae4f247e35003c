"""PromQL, built from the catalogue's definitions: no query spells a metric's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition

__all__ = ["GROUP", "Scope", "new_events", "quantile", "total", "wilson_interval"]

GROUP: Final = GROUP_LABELS
"""What alerts and recording rules tell apart: the labels of nearly every metric."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where queries look: which series, over how long, and how long ago.

    Args:
        window: over which rates are taken, such as ``5m`` or a variable of Grafana's.
        matchers: what comes after a label in a selector, such as ``=~"$agent"``, by label; one
            of a label that a metric does not have is left out.
        offset: how far back the window ends; empty for now.

    >>> from tidegauge import catalog
    >>> Scope("5m", {"agent": '=~"$agent"'}).rate(catalog.STEPS)
    'rate(tidegauge_steps_total{agent=~"$agent"}[5m])'
    """

    window: str
    matchers: Mapping[str, str] = field(default_factory=dict)
    offset: str = ""

    def series(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The selector of a metric; of a histogram, of its ``_bucket``, ``_sum`` or ``_count``."""
        own = [label + match for label, match in self.matchers.items() if label in metric.labels]
        inside = ",".join([*own, *matchers])
        return metric.name + suffix + (f"{{{inside}}}" if inside else "")

    def over_window(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """The same over the window: what functions such as ``rate`` take."""
        ago = f" offset {self.offset}" if self.offset else ""
        return f"{self.series(metric, *matchers, suffix=suffix)}[{self.window}]{ago}"

    def rate(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """What a counter grows by a second, a series each."""
        return f"rate({self.over_window(metric, *matchers, suffix=suffix)})"

    def increase(self, metric: MetricDefinition, *matchers: str, suffix: str = "") -> str:
        """What a counter grew by within the window, a series each."""
        return f"increase({self.over_window(metric, *matchers, suffix=suffix)})"


def total(expression: str, by: Sequence[str] = (), *, operator: str = "sum") -> str:
    """One value for each value of the labels ``by``; without any, one value.

    >>> total("up", ["job"]), total("up", operator="max")
    ('sum by (job) (up)', 'max(up)')
    """
    kept = f" by ({', '.join(by)}) " if by else ""
    return f"{operator}{kept}({expression})"


def quantile(scope: Scope, metric: MetricDefinition, share: float) -> str:
    """What this share of a histogram's observations stayed under."""
    buckets = total(scope.rate(metric, suffix="_bucket"), ["le"])
    return f"histogram_quantile({share}, {buckets})"


def new_events(
    scope: Scope, metric: MetricDefinition, *matchers: str, by: Sequence[str] = GROUP
) -> str:
    """How many events a counter tells of within the window, for alerts on single ones.

    ``increase`` does not see the event with which a series begins. What a series that is younger
    than the window counts is therefore taken as it is.

    >>> from tidegauge import catalog
    >>> print(new_events(Scope("10m"), catalog.DROPPED_EVENTS, by=["job"]))
    sum by (job) ((tidegauge_dropped_events_total unless tidegauge_dropped_events_total offset 10m)
      or increase(tidegauge_dropped_events_total[10m]))
    """
    series = scope.series(metric, *matchers)
    young = f"({series} unless {series} offset {scope.window})"
    return total(f"{young}\n  or {scope.increase(metric, *matchers)}", by)


def wilson_interval(successes: str, trials: str, *, upper: bool, z: float = 1.96) -> str:
    """A bound of the Wilson interval of a proportion: of few trials it is wide, never empty.

    Args:
        successes: expression of a number of successes.
        trials: expression of the number of trials, with the same labels.
        upper: the upper bound, else the lower one.
        z: how many standard deviations; 1.96 for 95 %.
    """
    n = f"({trials} > 0)"
    share = f"{successes} / {n}"
    half = f"{z} * sqrt(({share}) * (1 - {share}) / {n} + {z**2 / 4:.6g} / {n} ^ 2)"
    return (
        f"({share} + {z**2 / 2:.6g} / {n} {'+' if upper else '-'} {half}) / (1 + {z**2:.6g} / {n})"
    )
