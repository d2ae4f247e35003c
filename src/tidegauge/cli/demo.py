"""``tidegauge demo``: scripted agents in a small world, measured live; one of them is stopped."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

import click
import orjson

from tidegauge.cli.command_settings import FLAG, OUT_FILE, PORT, setting, settings_options
from tidegauge.cli.demo_alerts import Alerts
from tidegauge.cli.demo_view import DemoView
from tidegauge.cli.server_settings import usable_port
from tidegauge.cli.terminal import print_line
from tidegauge.errors import MissingExtraError
from tidegauge.pipeline import Pipeline, configure
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld

_TURN_SECONDS: Final = 0.6
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


class _Worker(NamedTuple):
    """An agent of the demo: its name, its script, and the numbers of its tasks."""

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


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Settings of ``tidegauge demo``."""

    seed: int = setting(click.INT, 1, "Seed of the archive and of the agents.")
    port: int = setting(
        PORT,
        9464,
        "Port of /metrics; if it is in use, a free port.",
        envvar="OTEL_EXPORTER_PROMETHEUS_PORT",
    )
    fast: bool = setting(FLAG, False, "Run without pauses; the demo ends before any alert.")
    serve: bool = setting(FLAG, False, "Keep serving the page and /metrics until Ctrl-C.")
    alerts: bool = setting(
        FLAG,
        True,
        "Start Prometheus and Alertmanager, if installed, and show their alerts.",
        "--alerts/--no-alerts",
    )
    browser: bool = setting(
        FLAG,
        True,
        "Open the live page in a browser, if this is a terminal on a desktop.",
        "--browser/--no-browser",
    )
    json: Path | None = setting(OUT_FILE, None, "Write every number of every run to this file.")
    record: Path | None = setting(
        OUT_FILE, None, "Write the step events to this file, for 'tidegauge replay'."
    )


@click.command()
@settings_options(DemoSettings)
def demo(settings: DemoSettings) -> None:
    """Run five scripted agents that solve tasks, loop or get lost; it takes half a minute.

    The agents are LangGraph agents whose chat model follows a script, so you need no key and no
    model. They search a small archive: one solves its tasks; one loops and is stopped at once; its
    twin loops, too, but is only observed; one retries a tool that is down; one reads at random.
    A live page shows the same in a browser. If Prometheus and Alertmanager are installed, the demo
    starts them, shows the alerts of the loop, and ends them.

    \b
    Examples:
      tidegauge demo                        a live table, then what the stop saved
      tidegauge demo --serve                then serve page and metrics on
      tidegauge demo --record demo.jsonl    then: tidegauge replay demo.jsonl
    """
    agents = _load_agents()
    pipeline = _configure(settings.port, settings.record)
    _print_addresses(pipeline, browser=settings.browser)
    world = DocumentWorld(settings.seed)
    planned = [
        (worker.agent, world.tasks[number].id) for worker in _WORKERS for number in worker.tasks
    ]
    view = DemoView(pipeline, planned, compared=(_STOPPED, _OBSERVED))
    pace = agents.Pace(0.0 if settings.fast else _TURN_SECONDS, threading.Event())

    def work(worker: _Worker) -> None:
        for number in worker.tasks:
            if pace.ended.is_set():
                return
            desk = Desk(world, world.tasks[number])
            draw = random.Random(f"{settings.seed}/{worker.script}/{number}")  # noqa: S311 -- reproducible
            agents.work(worker.agent, SCRIPTS[worker.script], desk, draw=draw, pace=pace)

    with contextlib.ExitStack() as stack:
        if settings.alerts and not settings.fast and pipeline.metrics_url is not None:
            stack.enter_context(_ended_in_order())
            view.alerts = stack.enter_context(Alerts(pipeline.metrics_url, view.live.onset))
        complete = False
        try:
            with ThreadPoolExecutor(len(_WORKERS)) as pool:
                working = [pool.submit(work, worker) for worker in _WORKERS]
                try:
                    view.follow(working)
                finally:
                    pace.ended.set()  # after Ctrl-C, agents end with their next turn
            for done in working:
                done.result()
            complete = True
        finally:
            view.summary(served_at=pipeline.metrics_url if settings.serve and complete else None)
            if settings.json is not None:
                document = view.document(settings.seed)
                settings.json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        if settings.serve:
            print_line()
            print_line(f"serving {pipeline.metrics_url or 'nothing'} until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                view.follow_alerts()


def _print_addresses(pipeline: Pipeline, *, browser: bool) -> None:
    """Print the addresses of the live page and the metrics, and open the page."""
    if pipeline.page_url is not None:
        print_line(f"live page: {pipeline.page_url}")
        if browser and sys.stdout.isatty() and has_browser():
            open_page(pipeline.page_url)
    print_line(f"metrics: {pipeline.metrics_url or 'not served'}")


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a closed terminal and ``kill`` end the demo as Ctrl-C does, with its servers."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Except signals that are ignored, as under nohup.
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
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
    """The module of the agents, which needs LangChain."""
    try:
        from tidegauge.cli import demo_agents
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("langchain", "langchain_core", "langgraph"):
            raise
        raise MissingExtraError(missing, extra="demo") from error
    return demo_agents


def _configure(port: int, record_file: Path | None) -> Pipeline:
    """Configure tidegauge, on a free port if the given one is in use."""
    host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1"
    port = usable_port(host, port)
    # The contents are made up, so the live page may show them.
    if record_file is not None:
        record_file.unlink(missing_ok=True)  # else it would be continued
    return configure(
        rules=_RULES,
        metrics_port=port,
        page_contents=True,
        record_to=record_file,
        record_contents=True,
    )


def has_browser(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Whether there is likely a graphical browser: not on a server, nor over SSH.

    >>> has_browser({"DISPLAY": ":0"}, "linux"), has_browser({}, "linux"), has_browser({}, "darwin")
    (True, False, True)
    >>> has_browser({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "10.0.0.7 50022"}, "linux")
    False
    """
    if "SSH_CONNECTION" in environ:
        return False
    return platform in ("darwin", "win32") or any(environ.get(name) for name in _DISPLAYS)


def open_page(url: str) -> None:
    """Open the page in the user's browser, without waiting and without output.

    In a separate process, because a browser may print, block, or read from the terminal.
    """
    command = [sys.executable, "-I", "-m", "webbrowser", url]
    threading.Thread(target=_run_silently, args=(command,), daemon=True).start()


def _run_silently(command: list[str]) -> None:
    subprocess.run(  # noqa: S603 -- a fixed command, and our own address
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a text browser gets no terminal
        check=False,
    )
