"""Runs and agents as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from tidegauge.cli.demo_watch import WatchedRun
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.snapshot import GroupSnapshot

__all__ = ["agents_table", "runs_table"]

_STYLES: Final = {
    "waiting": "dim",
    "running": "cyan",
    "looping": "bold red",
    "stopped": "bold yellow",
    "solved": "bold green",
    "failed": "red",
    "left": "dim",
}
_TIMES: Final = "\u00d7"
_NUMBERS: Final = (
    "steps",
    f"period {_TIMES}\nrepeats",
    "result\nstreak",
    "failed\nrounds",
    "novelty",
)
_COSTS: Final = ("tokens", "seconds")
_ROOM_FOR_COSTS: Final = 98  # columns of a terminal
_BAR_WIDTH: Final = 20


def runs_table(
    planned: Sequence[tuple[str, str]], runs: Iterable[WatchedRun], *, width: int
) -> Table:
    """A row for each planned run, with what is known of it now.

    Args:
        planned: (agent, task) of every run.
        runs: those that have started.
        width: columns that there are; in less than 98, tokens and seconds are left out.
    """
    costs = width >= _ROOM_FOR_COSTS
    numbers = (*_NUMBERS, *_COSTS) if costs else _NUMBERS
    table = _table("runs")
    table.add_column("agent", no_wrap=True)
    table.add_column("task", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    started = {(run.agent, run.task): run for run in runs}
    for agent, task in planned:
        run = started.get((agent, task))
        if run is None:
            table.add_row(agent, task, *[""] * len(numbers), "waiting", style="dim")
            continue
        report, status = run.report, run.status
        table.add_row(
            agent,
            task,
            str(report.steps),
            _loop(report),
            _count(report.result_streak, report.result_streak_max, report.finished),
            _count(report.failed_rounds, report.failed_rounds_max, report.finished),
            _novelty(report.novelty),
            *(_spent(run) if costs else ()),
            Text(status, style=_STYLES.get(status, "")),
        )
    return table


def agents_table(agents: Sequence[str], groups: Iterable[GroupSnapshot]) -> Table:
    """A row for each agent: its success up to now, and between which bounds it can still end.

    Args:
        agents: their names, in the order of the rows.
        groups: one for each agent, of one snapshot.
    """
    table = _table("agents")
    table.add_column("agent", no_wrap=True)
    for name in ("runs", "solved", "loop\nratio", "AUV\nso far", "will end\nwithin"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(Text("0" + "1".rjust(_BAR_WIDTH - 1), style="dim"), no_wrap=True)
    by_agent: Mapping[str, GroupSnapshot] = {group.key.agent: group for group in groups}
    for agent in agents:
        group = by_agent.get(agent)
        if group is None:
            table.add_row(agent, *[""] * 6, style="dim")
            continue
        finished, bounds, loop_steps = group.finished, group.auv_bounds(), group.totals.loop_steps
        ratio = sum(loop_steps.values()) / group.totals.steps if group.totals.steps else 0.0
        table.add_row(
            agent,
            f"{finished.runs} of {group.runs_started}",
            str(finished.finished.get("success", 0)),
            Text(f"{ratio:.2f}", style="red" if ratio else ""),
            "" if finished.auv.value is None else f"{finished.auv.value:.2f}",
            "" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}",
            Text() if bounds is None else _bar(*bounds),
        )
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )


def _spent(run: WatchedRun) -> tuple[str, str]:
    tokens = run.report.tokens
    return "" if tokens is None else f"{tokens:,.0f}", f"{run.seconds:.1f}"


def _loop(report: RunReport) -> Text:
    """Period and repeats of the current loop; of a finished run, of its longest."""
    period, repeats = report.loop_period, report.loop_repeats
    if report.finished and report.loops:
        _, period, repeats = max(report.loops, key=lambda loop: loop[1] * loop[2])
    if not repeats:
        return Text("")
    return Text(f"{period} {_TIMES} {repeats}", style="red")


def _count(now: int | None, maximum: int | None, finished: bool) -> Text:
    """A count as it is now; of a finished run, its maximum."""
    value = maximum if finished else now
    if value is None:
        return Text("")
    return Text(str(value), style="red" if value >= 3 else "")


def _novelty(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.2f}", style="red" if value < 0.25 else "yellow" if value < 0.5 else "")


def _bar(lower: float, upper: float) -> Text:
    """What is certain, what is still open, and what is lost, as one bar."""
    certain, possible = round(lower * _BAR_WIDTH), round(upper * _BAR_WIDTH)
    return Text.assemble(
        ("━" * certain, "green"),
        ("─" * (possible - certain), "cyan"),
        (" " * (_BAR_WIDTH - possible), ""),
    )
