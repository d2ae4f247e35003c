"""``tidegauge demo``: agents at work in a small world, measured live, one of them stopped."""

from __future__ import annotations

import random
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegauge.cli.demo_watch import Watch, WatchedRun
from tidegauge.cli.live_table import agents_table, runs_table
from tidegauge.errors import MissingExtraError
from tidegauge.pipeline import Pipeline, configure
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.streaming_metrics.snapshot import GroupSnapshot
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld

if TYPE_CHECKING:
    from tidegauge.cli import demo_agents

__all__ = ["demo"]


class Worker(NamedTuple):
    """One agent of the demo: its name, the script that it follows, and the tasks it is given."""

    agent: str
    script: str
    tasks: tuple[int, ...]


STOPPED: Final = "looper"
OBSERVED: Final = "looper-observed"
WORKERS: Final = (
    Worker("solver", "solver", (0, 1, 2)),
    Worker(STOPPED, "looper", (1,)),
    Worker(OBSERVED, "looper", (1,)),  # the twin: the same script and draw under another name
    Worker("retrier", "retrier", (1,)),
    Worker("wanderer", "wanderer", (1,)),
)
RULES: Final = (*DEFAULT_RULES, Rule("loop_repeats", 1, "stop", agent=STOPPED))

_TURN_SECONDS: Final = 0.6
_REFRESH_SECONDS: Final = 0.125
_NEWS_LINES: Final = 6


@dataclass(frozen=True, slots=True)
class Saving:
    """What stopping a run at its loop's onset saved, against its twin that was only observed.

    Args:
        stopped: the run that was stopped.
        observed: its twin.
    """

    stopped: WatchedRun
    observed: WatchedRun

    @property
    def steps(self) -> int:
        """Actions that were run in the one and not in the other."""
        run = self.stopped.report.intervention_step or 0  # the step stopped at was not run
        return self.observed.report.steps - run

    @property
    def tokens(self) -> float:
        """Tokens spent on choosing actions."""
        return (self.observed.report.tokens or 0) - (self.stopped.report.tokens or 0)

    @property
    def seconds(self) -> float:
        """Time from start to end."""
        return self.observed.seconds - self.stopped.seconds


@click.command()
@click.option("--seed", default=1, show_default=True, help="The world and the agents' draws.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9464,
    show_default=True,
    envvar="OTEL_EXPORTER_PROMETHEUS_PORT",
    help="Where /metrics is served; a free port when it is taken.",
)
@click.option("--fast", is_flag=True, help="Without the agents' pauses: a second instead of 25.")
@click.option("--serve", is_flag=True, help="Go on serving /metrics until Ctrl-C.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the runs' reports and the totals to this file.",
)
@click.option(
    "--record", "record_file", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the step events to this file, for 'tidegauge replay'.",
)
def demo(
    seed: int,
    port: int,
    fast: bool,
    serve: bool,
    json_file: Path | None,
    record_file: Path | None,
) -> None:
    """Watch agents make progress, get lost and loop: everything at once.

    Five LangGraph agents, whose chat model follows a script, answer questions from a small
    archive. One solves its tasks, one falls into a loop and is stopped at its onset, its twin
    loops on and is only observed, one retries a tool that is down, one reads at random. Nothing
    leaves this machine: no key, no server, no model.
    """
    agents = _load_agents()
    pipeline = _configure(port)
    watch = Watch(pipeline.recorder.sink, pipeline.engine)
    pipeline.recorder.sink = watch
    console = Console()
    click.echo(f"metrics: {pipeline.metrics_url}")
    show = _Show(console, pipeline, watch, DocumentWorld(seed))
    pace = agents.Pace(0.0 if fast else _TURN_SECONDS, threading.Event())
    interrupted = False
    try:
        _work(agents, seed, pace, show)
    except KeyboardInterrupt:
        interrupted = True
    show.summary()
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(show.document(seed), option=orjson.OPT_INDENT_2))
    if record_file is not None:
        watch.write(record_file)
    if interrupted:
        raise KeyboardInterrupt
    if serve:
        _serve(pipeline)
