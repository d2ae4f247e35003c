"""The table that ``replay`` prints: one row a group."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegauge.cli.document import loop_ratio
from tidegauge.cli.recorded import RecordedRuns
from tidegauge.streaming_metrics import AUV, GroupKey, GroupSnapshot

__all__ = ["print_table"]

_WIDE: Final = 10_000
_NOT_MEASURED: Final = "-"


def print_table(runs: RecordedRuns, *, skipped_lines: int) -> None:
    """Print the groups and a line about the whole: plain text unless on a terminal."""
    reports = runs.reports()
    loops = Counter(report.group for report in reports if report.loop_steps)
    stops = Counter(report.group for report in reports if report.intervention == "stop")
    groups = runs.groups()
    if groups:
        width = None if sys.stdout.isatty() else _WIDE
        console = Console(file=sys.stdout, width=width, markup=False, highlight=False)
        console.print(_table(groups, loops, stops))
    unfinished = sum(not report.finished for report in reports)
    steps = sum(report.steps for report in reports)
    sys.stdout.write(
        f"{len(reports)} runs, {unfinished} of them unfinished; {steps} steps; "
        f"{skipped_lines} lines skipped\n"
    )


def _table(
    groups: dict[GroupKey, GroupSnapshot], loops: Counter[GroupKey], stops: Counter[GroupKey]
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("agent", "task group", "memory"):
        table.add_column(name, overflow="fold")
    for name in ("runs", "success", "AUV", "loop ratio", "runs with a loop"):
        table.add_column(name, justify="right")
    if stops:
        table.add_column("stopped", justify="right")
    for key, group in groups.items():
        row = [
            *(_printable(name) for name in key),
            str(group.runs_started),
            _percent(group.finished.success_rate.value),
            _auv(group.finished.auv),
            _percent(loop_ratio(group)),
            str(loops[key]),
        ]
        if stops:
            row.append(str(stops[key]))
        table.add_row(*(Text(cell) for cell in row))
    return table


def _percent(share: float | None) -> str:
    return _NOT_MEASURED if share is None else f"{share:.1%}"


def _auv(auv: AUV) -> str:
    if auv.value is None:
        return _NOT_MEASURED
    error = auv.standard_error
    return f"{auv.value:.3f}" if error is None else f"{auv.value:.3f} ± {error:.3f}"


def _printable(name: str) -> str:
    """A name from a recording, without what could steer the terminal."""
    if not name:
        return _NOT_MEASURED
    return "".join(letter if letter.isprintable() else "�" for letter in name)
