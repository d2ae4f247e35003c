"""Tables of live runs on a terminal, as the demo and ``tidegauge watch`` show them."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from tidegauge.streaming_metrics.declaration import repeated_steps
from tidegauge.streaming_metrics.snapshot import RunReport

STATUS_STYLES: Final = {
    "waiting": "dim",
    "running": "cyan",
    "looping": "bold red",
    "stopped": "bold yellow",
    "solved": "bold green",
    "failed": "red",
    "ended": "dim",
}
RUN_NUMBERS: Final = (
    "steps",
    "loop",
    "result\nstreak",
    "failed\nrounds",
    "novelty",
)
"""The names of :func:`run_numbers`."""

WORK_NUMBERS: Final = ("frontier", "pending\ntasks", "progress")
"""The names of :func:`work_numbers`."""


def section_table(title: str) -> Table:
    """A table with a title, without columns."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )


def run_numbers(report: RunReport) -> tuple[str | Text, ...]:
    """The measurements of a run, in the order of :data:`RUN_NUMBERS`."""
    return (
        str(report.steps),
        _loop(report),
        _count(report.result_streak, report.result_streak_max, report.finished),
        _count(report.failed_rounds, report.failed_rounds_max, report.finished),
        _novelty(report.novelty),
    )


def work_numbers(report: RunReport) -> tuple[str, ...]:
    """What is left and what is done of a run, in the order of :data:`WORK_NUMBERS`."""
    progress = "" if report.progress is None else f"{report.progress:.0%}"
    counts = (report.frontier, report.pending)
    return (*("" if count is None else str(count) for count in counts), progress)


def lines_of(report: RunReport) -> int:
    """How many lines the row of a run has."""
    return max(1, len(_loop(report).split("\n")))


def _loop(report: RunReport) -> Text:
    """The current loop in words, a few on each line; of a finished run, its longest loop."""
    period, times = report.loop_period, report.loop_times
    if report.finished:
        period, times = report.longest_loop
    if not times:
        return Text("")
    words = repeated_steps(period, times).replace(", repeated ", ",\nrepeated\n")
    return Text(words, style="red")


def _count(now: int | None, maximum: int | None, finished: bool) -> Text:
    """The current count; for a finished run, its maximum."""
    value = maximum if finished else now
    if value is None:
        return Text("")
    return Text(str(value), style="red" if value >= 3 else "")


def _novelty(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.2f}", style="red" if value < 0.25 else "yellow" if value < 0.5 else "")
