"""The table that ``replay`` prints: one row a group."""

from __future__ import annotations

import sys
from collections import Counter

from rich.table import Table

from tidegauge.cli.document import loop_ratio
from tidegauge.cli.plain_table import (
    NOT_MEASURED,
    add_row,
    open_table,
    percent,
    print_table,
    printable,
)
from tidegauge.cli.recorded import RecordedRuns
from tidegauge.streaming_metrics import AUV, GroupKey, GroupSnapshot

__all__ = ["print_groups"]


def print_groups(runs: RecordedRuns, *, skipped_lines: int) -> None:
    """Print the groups and a line about the whole: plain text unless on a terminal."""
    reports = runs.reports()
    loops = Counter(report.group for report in reports if report.loop_steps)
    stops = Counter(report.group for report in reports if report.intervention == "stop")
    groups = runs.groups()
    if groups:
        print_table(_table(groups, loops, stops))
    unfinished = sum(not report.finished for report in reports)
    steps = sum(report.steps for report in reports)
    sys.stdout.write(
        f"{len(reports)} runs, {unfinished} of them unfinished; {steps} steps; "
        f"{skipped_lines} lines skipped\n"
    )


def _table(
    groups: dict[GroupKey, GroupSnapshot], loops: Counter[GroupKey], stops: Counter[GroupKey]
) -> Table:
    numbers = ("runs", "success", "AUV", "loop ratio", "runs with a loop")
    table = open_table(
        ("agent", "task group", "memory"), (*numbers, "stopped") if stops else numbers
    )
    for key, group in groups.items():
        row = [
            *(printable(name) for name in key),
            str(group.runs_started),
            percent(group.finished.success_rate.value),
            _auv(group.finished.auv),
            percent(loop_ratio(group)),
            str(loops[key]),
        ]
        if stops:
            row.append(str(stops[key]))
        add_row(table, *row)
    return table


def _auv(auv: AUV) -> str:
    if auv.value is None:
        return NOT_MEASURED
    error = auv.standard_error
    return f"{auv.value:.3f}" if error is None else f"{auv.value:.3f} ± {error:.3f}"
