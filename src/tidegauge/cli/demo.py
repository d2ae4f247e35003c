"""``tidegauge demo``: agents at work in a small world, measured live, one of them stopped."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegauge.cli.demo_summary import Saving, demo_document, summary_lines
from tidegauge.cli.demo_watch import Watch
from tidegauge.cli.live_table import agents_table, runs_table
from tidegauge.errors import MissingExtraError
from tidegauge.pipeline import Pipeline, configure
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld

__all__ = ["demo"]

_TURN_SECONDS: Final = 0.6
_NEWS_SECONDS: Final = 0.1
_REFRESHES_PER_SECOND: Final = 8
_MAX_NEWS: Final = 8
_TABLE_LINES: Final = 24
_PLAIN_WIDTH: Final = 120


class _Worker(NamedTuple):
    """One agent of the demo: its name, the script that it follows, and the tasks it is given."""

    agent: str
    script: str
    tasks: tuple[int, ...]


_STOPPED: Final = "looper"
_OBSERVED: Final = "looper-twin"
_WORKERS: Final = (
    _Worker("solver", "solver", (0, 1, 2)),
    _Worker(_STOPPED, "looper", (1,)),
    _Worker(_OBSERVED, "looper", (1,)),  # the same script and draw, under another name
    _Worker("retrier", "retrier", (1,)),
    _Worker("wanderer", "wanderer", (1,)),
)
_RULES: Final = (*DEFAULT_RULES, Rule("loop_repeats", 1, "stop", agent=_STOPPED))


@click.command()
@click.option("--seed", default=1, show_default=True, help="The archive and the agents' draws.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9464,
    show_default=True,
    envvar="OTEL_EXPORTER_PROMETHEUS_PORT",
    help="Where /metrics is served; a free port when it is taken.",
)
@click.option("--fast", is_flag=True, help="Without the agents' pauses.")
@click.option("--serve", is_flag=True, help="Go on serving /metrics until Ctrl-C.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every number of every run to this file.",
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the step events to this file, for 'tidegauge replay'.",
)
def demo(
    *,
    seed: int,
    port: int,
    fast: bool,
    serve: bool,
    json_file: Path | None,
    record_file: Path | None,
) -> None:
    """Watch agents make progress, get lost and loop: everything at once, in half a minute.

    Five LangGraph agents, whose chat model follows a script, look for facts in a small archive:
    one solves its tasks; one falls into a loop and is stopped at its onset; its twin loops on,
    only observed; one retries a tool that is down; one reads at random. No key, no server, no
    model.

    \b
    Examples:
      tidegauge demo                        a live table, then what the stop saved
      tidegauge demo --serve                the same, and /metrics until Ctrl-C
      tidegauge demo --record demo.jsonl    then: tidegauge replay demo.jsonl
    """
    agents = _load_agents()
    pipeline = _configure(port)
    url = pipeline.metrics_url or "not served"
    click.echo(f"metrics: {url}")
    show = _Show(pipeline, DocumentWorld(seed))
    pace = agents.Pace(0.0 if fast else _TURN_SECONDS, threading.Event())

    def work(worker: _Worker) -> None:
        for number in worker.tasks:
            if pace.ended.is_set():
                return
            desk = Desk(show.world, show.world.tasks[number])
            draw = random.Random(f"{seed}/{worker.script}/{number}")  # noqa: S311 -- reproducible
            agents.work(worker.agent, SCRIPTS[worker.script], desk, draw=draw, pace=pace)

    complete = False
    try:
        with ThreadPoolExecutor(len(_WORKERS)) as pool:
            working = [pool.submit(work, worker) for worker in _WORKERS]
            try:
                show.follow(working)
            finally:
                pace.ended.set()  # after Ctrl-C, agents leave with their next turn
        for done in working:
            done.result()
        complete = True
    finally:
        show.summary(served_at=url if serve and complete else None)
        if json_file is not None:
            json_file.write_bytes(orjson.dumps(show.document(seed), option=orjson.OPT_INDENT_2))
        if record_file is not None:
            show.watch.write(record_file)
    if serve:
        click.echo(f"\nserving {url} until Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


class _Show:
    """What is seen of the demo.

    Args:
        pipeline: what was configured; its sink is watched from now on.
        world: where the agents work.
    """

    def __init__(self, pipeline: Pipeline, world: DocumentWorld) -> None:
        self.world = world
        self.watch = Watch(pipeline.recorder.sink, pipeline.engine)
        pipeline.recorder.sink = self.watch
        self._pipeline = pipeline
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._console = Console()
        if not self._console.is_terminal:
            self._console = Console(width=_PLAIN_WIDTH)

    def follow(self, working: Sequence[Future[None]]) -> None:
        """Show what happens until all are done: a live table, or plain lines."""
        if self._console.is_terminal:
            with Live(
                get_renderable=self._frame,
                console=self._console,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
            ):
                wait(working)
            return
        while wait(working, timeout=_NEWS_SECONDS).not_done:
            self._tell_news()
        self._tell_news()

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
        stopped, observed = ended.get(_STOPPED), ended.get(_OBSERVED)
        if stopped is None or observed is None or stopped.stop is None:
            return None
        return Saving(stopped, observed)

    def _tables(self) -> Group:
        planned = [
            (worker.agent, self.world.tasks[number].id)
            for worker in _WORKERS
            for number in worker.tasks
        ]
        groups = self._pipeline.engine.snapshot().groups
        return Group(
            runs_table(planned, self.watch.runs, width=self._console.width),
            "",
            agents_table([worker.agent for worker in _WORKERS], groups),
        )

    def _frame(self) -> Group:
        self._news.extend(self.watch.news())
        room = max(self._console.height - _TABLE_LINES, 0)
        news = list(self._news)[-room:] if room else []
        return Group(self._tables(), "", *[Text(line, style="dim", no_wrap=True) for line in news])

    def _tell_news(self) -> None:
        for line in self.watch.news():
            click.echo(line)


def _load_agents() -> ModuleType:
    """The module of the agents, which needs LangChain.

    Raises:
        MissingExtraError: LangChain is not installed.
    """
    try:
        from tidegauge.cli import demo_agents
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("langchain", "langchain_core", "langgraph"):
            raise
        raise MissingExtraError(missing, extra="demo") from error
    return demo_agents


def _configure(port: int) -> Pipeline:
    """Set tidegauge up, on a free port when the one asked for cannot be had."""
    host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        click.echo(f"port {port}: {error.strerror}; taking a free one")
        port = 0
    return configure(rules=_RULES, metrics_port=port)
