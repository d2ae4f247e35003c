"""The output of ``tidegauge watch``: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegauge.cli.live_runs import (
    ACTIONS_DONE,
    RUN_NUMBERS,
    STATUS_STYLES,
    WORK_NUMBERS,
    LiveRun,
    LiveRuns,
    LoopOnset,
    lines_of,
    run_numbers,
    section_table,
    work_numbers,
)
from tidegauge.cli.terminal import open_console, print_line, visible
from tidegauge.events import RunStarted
from tidegauge.pipeline import Pipeline
from tidegauge.policies import Policy

_NEWS_SECONDS: Final = 0.1
_REFRESHES_PER_SECOND: Final = 4
_MAX_NEWS: Final = 8
_HEAD_LINES: Final = 12
_FEWEST_ROWS: Final = 3
_UNLIMITED: Final = 1_000
_ROOM_FOR_NOVELTY: Final = 90  # columns of a terminal; novelty is the last of the numbers
_ROOM_FOR_WORK: Final = 110
_MAX_RUNS: Final = 200
_MAX_NAME: Final = 40
_SHORT_ID: Final = 8


class WatchView:
    """Shows runs while they are at work.

    Args:
        policy: what it would do is shown, of runs that it does not act on.
        contents: whether prompts are shown.
        on_loop: called at every onset of a loop; it must not wait.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        policy: Policy,
        *,
        contents: bool,
        on_loop: Callable[[LoopOnset], object] | None = None,
    ) -> None:
        self._contents = contents
        self._acts = not pipeline.settings.observe_only
        self._policy = policy
        self._live = LiveRuns(
            pipeline.engine,
            task=self._name,
            planned=self._planned,
            on_loop=on_loop,
            most=_MAX_RUNS,
        )
        pipeline.observe(self._live)
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._console = open_console()

    def follow(self, stop: threading.Event) -> None:
        """Show runs until the event is set."""
        if not self._console.is_terminal:
            while not stop.wait(_NEWS_SECONDS):
                self._print_news()
            return
        with Live(
            get_renderable=self._frame,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        ):
            stop.wait()

    def summary(self) -> None:
        """Print the rest of the news, and what was done in all."""
        if not self._console.is_terminal:
            self._print_news()
        totals, planned = self._live.totals, self._live.planned_totals
        counted = f"{totals['runs']} runs, {totals['steps']} steps"
        done = ", ".join(f"{word}: {totals[name]}" for name, word in ACTIONS_DONE.items())
        would = ", ".join(f"{word}: {planned[name]}" for name, word in ACTIONS_DONE.items())
        if not self._acts:
            print_line(f"{counted}; would have been {would}")
            return
        print_line(f"{counted}; {done}")
        if planned:
            print_line(f"without hooks, they would have been {would}")

    def _planned(self, event: RunStarted) -> Policy | None:
        """The policy that does not act on a run."""
        return None if self._acts and not event.observe_only else self._policy

    def _name(self, event: RunStarted) -> str:
        text = (event.conversation or "")[:_SHORT_ID]
        if self._contents and event.task:
            text = event.task.partition("\n")[0]
        return visible(text, _MAX_NAME)

    def _print_news(self) -> None:
        for line in self._live.news():
            print_line(line)

    def _frame(self) -> Group:
        self._news.extend(self._live.news())
        room = max(_FEWEST_ROWS, self._console.height - _HEAD_LINES - len(self._news))
        shown: list[LiveRun] = []
        for run in reversed(self._live.runs):
            room -= lines_of(run.report)
            if room < 0:
                break
            shown.append(run)
        lines = [Text(line, style="dim", no_wrap=True) for line in self._news]
        return Group(self._table(shown[::-1]), "", *lines)

    def _table(self, runs: Sequence[LiveRun]) -> Table:
        table = self._made_table(runs, ", ")
        unlimited = self._console.options.update_width(_UNLIMITED)
        fits = self._console.measure(table, options=unlimited).maximum <= self._console.width
        return table if fits else self._made_table(runs, ",\n")

    def _made_table(self, runs: Sequence[LiveRun], between: str) -> Table:
        """The table, with this between the actions of the policy."""
        table = section_table("runs")
        table.add_column("agent", no_wrap=True)
        table.add_column("session", no_wrap=True)
        wide = self._console.width >= _ROOM_FOR_WORK
        shown = len(RUN_NUMBERS) - (self._console.width < _ROOM_FOR_NOVELTY)
        for name in (*RUN_NUMBERS[:shown], *(WORK_NUMBERS if wide else ())):
            table.add_column(name, justify="right", no_wrap=True)
        planned = self._acts and any(run.planned is not None for run in runs)
        head = "policy" if self._acts else "policy\nwould have"
        table.add_column("policy\n(would)" if planned else head, no_wrap=True)
        table.add_column("state", no_wrap=True)
        for run in runs:
            done = [
                f"{word} {run.interventions[action]}"
                for action, word in ACTIONS_DONE.items()
                if run.interventions[action]
            ]
            did = between.join(done)
            if did and planned and run.planned is not None:
                did = f"({did})"
            status = run.status
            style = STATUS_STYLES.get(status, "")
            cells = (*run_numbers(run.report)[:shown], *(work_numbers(run.report) if wide else ()))
            table.add_row(run.agent, run.task, *cells, did, Text(status, style=style))
        return table
