"""What is reported of one run: every number, as plain fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from tidegauge.events import RunOutcome
from tidegauge.streaming_metrics.registry import ABSENT_FIELDS, RUNS


class GroupKey(NamedTuple):
    """What runs are grouped by. ``memory`` is empty where no arm was reported."""

    agent: str
    task_group: str
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The measurements of one run, so far or in total. ``None``: not measured.

    In addition to the fields below, it has those that metrics declare, such as ``loop_ratio``.

    Attributes:
        agent_name: the agent's name, where it is another than ``agent``, by which it was counted.
        unguarded: whether its policy was switched off after an internal error.
        lost: the metrics that have no value after the error.
        numbers: the fields of the metrics, by name.
    """

    run: str
    group: GroupKey
    agent: str
    agent_name: str | None
    task_group: str
    memory: str | None
    model: str | None
    trace_id: str | None
    steps: int
    t_max: int | None
    finished: bool
    success: bool | None
    outcome: RunOutcome
    tokens: float | None
    unguarded: bool
    lost: tuple[str, ...]
    numbers: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name not in ABSENT_FIELDS:  # also while it is made or copied
            raise AttributeError(f"a run's report has no field {name}")
        return self.numbers[name]

    def replaced(self, **values: Any) -> RunReport:
        """The same report with other values in these fields."""
        own = {name: value for name, value in values.items() if name in _OWN}
        others = {name: value for name, value in values.items() if name not in _OWN}
        return replace(self, **own, numbers={**self.numbers, **others})

    def as_dict(self) -> dict[str, Any]:
        """Every field by name."""
        return {**{name: getattr(self, name) for name in _OWN}, **self.numbers}


_OWN: Final = tuple(one.name for one in fields(RunReport) if one.name != "numbers")


def run_entry(report: RunReport) -> dict[str, Any]:
    """A run's numbers as plain data: an entry of the document of ``replay --json``.

    ``None`` is what was not measured.
    """
    entry: dict[str, Any] = {
        "run": report.run,
        "agent": report.agent,
        "task_group": report.task_group,
        "memory": report.memory,
        "steps": report.steps,
        "success": report.success,
        "finished": report.finished,
    }
    if report.agent_name is not None:
        entry["agent_name"] = report.agent_name
    for metric in RUNS:
        if metric.document is not None:
            entry.update(metric.document(report))
    return entry
