"""Recording rules: every ratio, by agent and task group and for all of them together.

Names are as Prometheus has them, level:metric:operation. What is "usual" is recorded as well,
every two minutes: alerts compare with it, and a day's worth of samples is not read every second.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidegauge.dashboards.queries import GROUP, Scope
from tidegauge.dashboards.ratios import LOOP_RATIO, RATIOS, SUCCESS_RATE, Ratio, memory_index, ratio

__all__ = ["USUAL_LOOP_RATIO", "USUAL_SUCCESS_RATE", "recorded", "recording_groups"]

_PREFIX: Final = "tidegauge"
_BY_GROUP: Final = "_".join(GROUP)

USUAL: Final = Scope("1d", offset="1h")
"""What is usual is a day's worth, up to an hour ago: trouble of now is not what is usual."""


class Record(NamedTuple):
    """A recording rule."""

    name: str
    expression: str


def recorded(of: Ratio) -> str:
    """The series in which a ratio is recorded, by agent and task group.

    >>> recorded(LOOP_RATIO)
    'agent_task_group:tidegauge_loop_ratio:rate5m'
    """
    return f"{_BY_GROUP}:{_PREFIX}_{of.name}:rate{of.window}"


USUAL_LOOP_RATIO: Final = Record(
    f"{_BY_GROUP}:{_PREFIX}_{LOOP_RATIO.name}:p95_{USUAL.window}",
    f"quantile_over_time(0.95, {recorded(LOOP_RATIO)}[{USUAL.window}] offset {USUAL.offset})",
)
"""What the loop ratio of a group stays under for all but one twentieth of a day."""

USUAL_SUCCESS_RATE: Final = Record(
    f"{_BY_GROUP}:{_PREFIX}_{SUCCESS_RATE.name}:rate{USUAL.window}",
    ratio(SUCCESS_RATE, USUAL, GROUP),
)
"""The success rate of a group over a day."""


def recording_groups() -> list[dict[str, Any]]:
    """The groups of recording rules, as Prometheus reads them."""
    ratios = [
        record
        for of in RATIOS
        for record in (
            Record(recorded(of), ratio(of, Scope(of.window), GROUP)),
            Record(f"fleet:{_PREFIX}_{of.name}:rate{of.window}", ratio(of, Scope(of.window))),
        )
    ]
    memory = [
        Record(f"{_BY_GROUP}:{_PREFIX}_memory_index:rate1h", memory_index(Scope("1h"), GROUP)),
        Record(f"fleet:{_PREFIX}_memory_index:rate1h", memory_index(Scope("1h"))),
    ]
    usual = [USUAL_LOOP_RATIO, USUAL_SUCCESS_RATE]
    return [
        {"name": "tidegauge-ratios", "rules": [_rule(record) for record in [*ratios, *memory]]},
        {"name": "tidegauge-usual", "interval": "2m", "rules": [_rule(record) for record in usual]},
    ]


def _rule(record: Record) -> dict[str, str]:
    return {"record": record.name, "expr": record.expression}
