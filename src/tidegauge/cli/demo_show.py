"""What is seen of the demo: a live table on a terminal, lines elsewhere, and the end of both."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegauge.cli.demo_alerts import Alerts
from tidegauge.cli.demo_summary import Saving, demo_document, summary_lines
from tidegauge.cli.demo_watch import Watch
from tidegauge.cli.live_table import agents_table, runs_table
from tidegauge.pipeline import Pipeline

__all__ = ["Show"]

_NEWS_SECONDS: Final = 0.1
_REFRESHES_PER_SECOND: Final = 8
_MAX_NEWS: Final = 8
_TABLE_LINES: Final = 24
_PLAIN_WIDTH: Final = 120


class Show:
    """What is seen of the demo.

    Args:
        pipeline: what was configured; its sink is watched from now on.
        planned: the agent and the task of every run that there will be.
        compared: the agent that is stopped, and its twin that is not.

    Attributes:
        alerts: shown as they come; ``None``, there are none.
    """

    alerts: Alerts | None = None

    def __init__(
        self,
        pipeline: Pipeline,
        planned: Sequence[tuple[str, str]],
        *,
        compared: tuple[str, str],
    ) -> None:
        self.watch = Watch(pipeline.recorder.sink, pipeline.engine)
        pipeline.recorder.sink = self.watch
        self._pipeline = pipeline
        self._planned = planned
        self._compared = compared
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._console = Console()
        if not self._console.is_terminal:
            self._console = Console(width=_PLAIN_WIDTH)

    def follow(self, working: Sequence[Future[None]]) -> None:
        """Show what happens until all are done: a live table, or plain lines; and alerts."""
        terminal = self._console.is_terminal
        shown = self._live_table() if terminal else contextlib.nullcontext()
        with shown:
            all_done = False
            while not all_done:
                all_done = not wait(working, timeout=_NEWS_SECONDS).not_done
                if not terminal:
                    self._tell_news()
                self._tell_alerts()

    def follow_alerts(self) -> None:
        """Show alerts, until Ctrl-C."""
        nothing = threading.Event()
        while not nothing.wait(_NEWS_SECONDS):
            self._tell_alerts()

    def summary(self, *, served_at: str | None) -> None:
        """Print the tables as they are in the end, and what they come to."""
        self._console.print(self._tables(), "")
        snapshot = self._pipeline.engine.snapshot()
        for line in summary_lines(snapshot, self._saving(), served_at=served_at):
            self._console.print(line, highlight=False, soft_wrap=True)

    def document(self, seed: int) -> dict[str, Any]:
        """All numbers, for ``--json``."""
        snapshot = self._pipeline.engine.snapshot()
        return demo_document(snapshot, self.watch.runs, self._saving(), seed=seed)

    def _saving(self) -> Saving | None:
        ended = {run.agent: run for run in self.watch.runs if run.report.outcome != "unknown"}
        stopped, observed = (ended.get(agent) for agent in self._compared)
        if stopped is None or observed is None or stopped.stop is None:
            return None
        return Saving(stopped, observed)

    def _tables(self) -> Group:
        groups = self._pipeline.engine.snapshot().groups
        return Group(
            runs_table(self._planned, self.watch.runs, width=self._console.width),
            "",
            agents_table(list(dict.fromkeys(agent for agent, _ in self._planned)), groups),
        )

    def _live_table(self) -> Live:
        return Live(
            get_renderable=self._frame,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )

    def _frame(self) -> Group:
        self._news.extend(self.watch.news())
        room = max(self._console.height - _TABLE_LINES, 0)
        news = list(self._news)[-room:] if room else []
        return Group(self._tables(), "", *[Text(line, style="dim", no_wrap=True) for line in news])

    def _tell_news(self) -> None:
        for line in self.watch.news():
            click.echo(line)

    def _tell_alerts(self) -> None:
        for line in self.alerts.news() if self.alerts is not None else ():
            self._console.print(line, soft_wrap=True)  # in a terminal, above the table
