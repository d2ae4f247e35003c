"""``tidegauge demo``: agents at work in a small world, measured live, one of them stopped."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

import click
import orjson

from tidegauge.cli.demo_alerts import Alerts
from tidegauge.cli.demo_page import has_browser, open_page
from tidegauge.cli.demo_show import Show
from tidegauge.errors import MissingExtraError
from tidegauge.pipeline import Pipeline, configure
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld

__all__ = ["demo"]

_TURN_SECONDS: Final = 0.6


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
@click.option(
    "--fast", is_flag=True, help="Without the agents' pauses, and so over before any alert."
)
@click.option("--serve", is_flag=True, help="Go on serving the page and /metrics until Ctrl-C.")
@click.option(
    "--alerts/--no-alerts",
    default=True,
    help="Start Prometheus and Alertmanager, where they are installed, and show their alerts.",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    help="Open the live page, when this is a terminal of a desktop.",
)
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
    alerts: bool,
    browser: bool,
    json_file: Path | None,
    record_file: Path | None,
) -> None:
    """Watch agents make progress, get lost and loop: everything at once, in half a minute.

    Five LangGraph agents, whose chat model follows a script, look for facts in a small archive:
    one solves its tasks; one falls into a loop and is stopped at its onset; its twin loops on,
    only observed; one retries a tool that is down; one reads at random. No key, no model.
    A live page shows the same in a browser. Where Prometheus and Alertmanager are installed,
    they are started for as long as it lasts, and the alert of the loop is shown as it comes.

    \b
    Examples:
      tidegauge demo                        a live table, then what the stop saved
      tidegauge demo --serve                the same, and page and /metrics until Ctrl-C
      tidegauge demo --record demo.jsonl    then: tidegauge replay demo.jsonl
    """
    agents = _load_agents()
    pipeline = _configure(port)
    _tell_addresses(pipeline, browser=browser)
    world = DocumentWorld(seed)
    planned = [
        (worker.agent, world.tasks[number].id) for worker in _WORKERS for number in worker.tasks
    ]
    show = Show(pipeline, planned, compared=(_STOPPED, _OBSERVED))
    pace = agents.Pace(0.0 if fast else _TURN_SECONDS, threading.Event())

    def work(worker: _Worker) -> None:
        for number in worker.tasks:
            if pace.ended.is_set():
                return
            desk = Desk(world, world.tasks[number])
            draw = random.Random(f"{seed}/{worker.script}/{number}")  # noqa: S311 -- reproducible
            agents.work(worker.agent, SCRIPTS[worker.script], desk, draw=draw, pace=pace)

    with contextlib.ExitStack() as stack:
        if alerts and not fast and pipeline.metrics_url is not None:
            stack.enter_context(_ended_in_order())
            show.alerts = stack.enter_context(Alerts(pipeline.metrics_url, show.watch.onset))
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
            show.summary(served_at=pipeline.metrics_url if serve and complete else None)
            if json_file is not None:
                json_file.write_bytes(orjson.dumps(show.document(seed), option=orjson.OPT_INDENT_2))
            if record_file is not None:
                show.watch.write(record_file)
        if serve:
            click.echo(f"\nserving {pipeline.metrics_url or 'nothing'} until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                show.follow_alerts()


def _tell_addresses(pipeline: Pipeline, *, browser: bool) -> None:
    """Say where the live page and the metrics are, and open the page."""
    if pipeline.page_url is not None:
        click.echo(f"live page: {pipeline.page_url}")
        if browser and sys.stdout.isatty() and has_browser():
            open_page(pipeline.page_url)
    click.echo(f"metrics: {pipeline.metrics_url or 'not served'}")


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a closed terminal and ``kill`` end the demo as Ctrl-C does: it has servers to end."""
    told = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Not those that are ignored, as under nohup.
    ours = [number for number in told if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


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
    # What these agents read and ask is made up: the live page may show it.
    return configure(rules=_RULES, metrics_port=port, page_contents=True)
