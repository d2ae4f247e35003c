"""``tidegauge watch``: the coding agents of this machine, measured live through their hooks."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.cli.command_settings import (
    COUNT,
    DETECT_POLLS_HELP,
    FILE,
    FLAG,
    GUARD,
    GUARD_HELP,
    GUARD_SHARE,
    GUARD_SHARE_HELP,
    POLICY,
    PORT,
    SECONDS,
    SWITCH,
    URL,
    SettingType,
    one_of,
    setting,
    settings_options,
)
from tidegauge.cli.server_settings import PRICES_HELP, RUNBOOKS_HELP, set_on_signal, usable_port
from tidegauge.cli.terminal import print_line, visible
from tidegauge.coding_agents.agents import SESSIONS, SETTINGS, titles
from tidegauge.errors import ConfigurationError
from tidegauge.safety.guard import guarded, log

if TYPE_CHECKING:
    from tidegauge.cli.live_runs import LoopOnset
    from tidegauge.coding_agents.sessions import HookSessions
    from tidegauge.coding_agents.tails import Tails
    from tidegauge.pipeline import Pipeline
    from tidegauge.policies import Rule


_COMMAND_SECONDS: Final = 10.0
"""A command that takes longer is killed."""

_AGAIN_SECONDS: Final = 60.0
"""The same session causes no notice for so long."""

_BETWEEN_SECONDS: Final = 1.0
"""Between two notices."""

_MAX_WAITING: Final = 16
_MAX_SESSIONS: Final = 1_000
_MAX_VALUE: Final = 128
_VARIABLE: Final = "TIDEGAUGE_LOOP_"
_FIELD: Final = re.compile(r"\{(agent|session|run|step|period)\}")


def parse_command(text: Any) -> str:
    """Check a command line.

    Raises:
        ValueError: it has no words, or a quote is not closed.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a command; use text")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a command: {error}") from None
    if not words:
        raise ValueError("the command is empty; use a program and its arguments")
    return text


def ring() -> None:
    """Ring the bell of the terminal, if there is one."""
    with contextlib.suppress(OSError, ValueError):  # it was closed
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None and stream.isatty():
                stream.write("\a")
                stream.flush()
                return


class LoopNotices:
    """Delivers notices, at most one each second, and one each minute for the same session.

    The threads that answer hooks only put a notice into a queue; a separate thread delivers them.

    Args:
        command: a program and its arguments; no shell reads them. ``{agent}``, ``{session}``,
            ``{run}``, ``{step}`` and ``{period}`` are replaced; the same are environment variables,
            ``TIDEGAUGE_LOOP_AGENT`` and so on. ``None``, no command is run.
        bell: rings the bell; ``None``, there is none.
        command_seconds: time limit of the command.
        again_seconds: how long the same session causes no further notice.
        between_seconds: time between two notices.

    Raises:
        ConfigurationError: the program is not found.
    """

    def __init__(
        self,
        command: str | None,
        bell: Callable[[], object] | None = None,
        *,
        command_seconds: float = _COMMAND_SECONDS,
        again_seconds: float = _AGAIN_SECONDS,
        between_seconds: float = _BETWEEN_SECONDS,
    ) -> None:
        self._words = shlex.split(command) if command is not None else []
        if self._words and shutil.which(self._words[0]) is None:
            raise ConfigurationError(f"the program {self._words[0]!r} is not found; give its path")
        self._bell = bell
        self._command_seconds = command_seconds
        self._again_seconds = again_seconds
        self._between_seconds = between_seconds
        self._latest: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: queue.Queue[LoopOnset | None] = queue.Queue(_MAX_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name="tidegauge-notices", daemon=True)
        self._thread.start()

    @guarded("watch.notices", default=None)
    def add(self, onset: LoopOnset) -> None:
        """An agent begins to loop. Does not wait; if too many notices wait, this one is lost."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(onset)

    def close(self) -> None:
        """Deliver nothing more; a command that still runs is killed."""
        self._stop.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(2 * _BETWEEN_SECONDS)

    def _deliver(self) -> None:
        while (onset := self._waiting.get()) is not None and not self._stop.is_set():
            if self._is_due(onset):
                self._notify(onset)
                self._stop.wait(self._between_seconds)

    def _is_due(self, onset: LoopOnset) -> bool:
        """Whether the session has caused no notice for a while."""
        now, key = time.monotonic(), (onset.agent, onset.session or onset.run)
        before = self._latest.get(key)
        if before is not None and now - before < self._again_seconds:
            return False
        self._latest[key] = now
        self._latest.move_to_end(key)
        if len(self._latest) > _MAX_SESSIONS:
            self._latest.popitem(last=False)
        return True

    @guarded("watch.notices", default=None)
    def _notify(self, onset: LoopOnset) -> None:
        if self._bell is not None:
            self._bell()
        if self._words:
            given = {name: _plain(value) for name, value in onset._asdict().items()}
            failed = self._run(
                [_FIELD.sub(lambda field: given[field[1]], word) for word in self._words],
                {f"{_VARIABLE}{name.upper()}": value for name, value in given.items()},
            )
            if failed is not None:
                log(logging.WARNING, "the command of --notify-command %s", failed)

    def _run(self, words: Sequence[str], variables: dict[str, str]) -> str | None:
        """Run the command; returns what went wrong."""
        try:
            process = subprocess.Popen(  # noqa: S603 -- the command that the user has given
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"could not be run: {error}"
        until = time.monotonic() + self._command_seconds
        while (code := process.poll()) is None:
            if self._stop.wait(0.05) or time.monotonic() >= until:
                _kill(process)
                stopped = self._stop.is_set()
                return None if stopped else f"took longer than {self._command_seconds:g} s: killed"
        return f"ended with exit code {code}" if code else None


def _plain(value: object) -> str:
    """A value for an argument: short, printable, and no option."""
    return visible(str(value), _MAX_VALUE).lstrip("-")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with what it has started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


_HOST: Final = "127.0.0.1"
_IDLE_CHECK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0
_WITHOUT_HOOKS: Final = [
    name for name, kind in SESSIONS.items() if kind.folder is not None and name not in SETTINGS
]


def parse_folders(text: Any) -> str:
    """Check a list of folders, each after the agent whose sessions are in it.

    Raises:
        ValueError: it has another form, or an agent is unknown.
    """
    from tidegauge.coding_agents.tails import read_folders

    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no list of folders; use text")
    read_folders(text)
    return text


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """Settings of ``tidegauge watch``."""

    act: bool = setting(
        FLAG, False, "Nudge, refuse and stop agents as the policy decides; off, only show it."
    )
    policy: str | None = setting(
        POLICY,
        None,
        "Rules such as loop_repeats=1:nudge,loop_repeats=2:block, or the file of a policy (.toml). "
        "TIDEGAUGE_POLICY can name it, too. By default, the third of equal steps is nudged, the "
        "fourth refused, and the seventh stops the run; of several steps in turn, the second "
        "round, the third and the sixth.",
    )
    guard: Any = setting(GUARD, None, GUARD_HELP)
    guard_share: float = setting(GUARD_SHARE, 1.0, GUARD_SHARE_HELP)
    detect_polls: bool | None = setting(SWITCH, None, DETECT_POLLS_HELP)
    contents: bool = setting(
        FLAG, False, "Show prompts, arguments and results; off, show digests of them."
    )
    notify: bool = setting(FLAG, False, "Ring the bell of the terminal when an agent loops.")
    notify_command: str | None = setting(
        SettingType("COMMAND", parse_command),
        None,
        "Run this when an agent loops, such as \"notify-send '{agent} loops'\". No shell reads it. "
        "{agent}, {session}, {run}, {step} and {period} are replaced; the variables "
        "TIDEGAUGE_LOOP_AGENT and so on have the same values. Time limit: 10 seconds.",
    )
    metrics_port: int = setting(
        PORT, 9464, "/metrics; / is the live page. If it is in use, a free port."
    )
    page: bool = setting(SWITCH, True, "Serve the live page at /; off, / serves the metrics, too.")
    prices: str | None = setting(FILE, None, PRICES_HELP)
    runbooks: str | None = setting(URL, None, RUNBOOKS_HELP)
    record_to: str | None = setting(
        FILE, None, "Record the runs as step events in this file, for replay."
    )
    transcripts: bool = setting(
        SWITCH,
        True,
        "Read the files of the agents, too: tokens, and, without --act, sessions that hooks do not "
        "report; off, hooks only.",
    )
    transcripts_in: str | None = setting(
        SettingType("AGENT=FOLDER,...", parse_folders),
        None,
        "More folders with such files, such as codex=/srv/codex,openhands=/srv/conversations.",
    )
    spans: str = setting(
        one_of("off", "all", "troubled"),
        "off",
        "Export a span for each run and call of hooks over OTLP, to OTEL_EXPORTER_OTLP_ENDPOINT; "
        "troubled, only of runs that looped, stalled, failed or were stopped. Without contents, "
        "unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is SPAN_ONLY.",
    )
    idle_seconds: float = setting(SECONDS, 3_600.0, "End a run without an event for this long.")
    max_runs: int = setting(COUNT, 1_000, "Limit of open runs.")


@click.command(
    help=f"""
    Watch the coding agents of this machine: what they do, whether they loop, what that costs.

    Install the hooks once with 'tidegauge hook install'. Then every session of
    {titles(SETTINGS)} is shown
    here while this command runs. Without it, the hooks do nothing. Sessions without hooks, also of
    {titles(_WITHOUT_HOOKS)}, are only observed, in the files that the agents
    write. Nothing leaves this machine, unless you ask for --spans.

    \b
    Examples:
      tidegauge watch           what agents do, and what the policy would do
      tidegauge watch --act     nudge agents that loop, and refuse repeated calls
      tidegauge watch --act --policy loop_repeats=3:nudge
      tidegauge watch --notify  ring the bell when an agent loops

    A setting is taken from its flag, else from the variable TIDEGAUGE_WATCH_ and its name
    (TIDEGAUGE_WATCH_METRICS_PORT), else from the file.

    SIGTERM and Ctrl-C: end all runs, exit code 0. Exit code 1: cannot listen; 2: wrong usage, or
    another watcher is at work.
    """
)
@settings_options(WatchSettings, "TIDEGAUGE_WATCH")
def watch(settings: WatchSettings) -> None:
    """The command."""
    from tidegauge.cli.watch_view import WatchView
    from tidegauge.coding_agents.endpoint import HookEndpoint, watch_folder
    from tidegauge.coding_agents.sessions import HookSessions, SessionLimits

    stop = set_on_signal()
    with contextlib.ExitStack() as closing:
        pipeline = _pipeline(settings)
        closing.callback(pipeline.shutdown)
        policy = replace(pipeline.settings, observe_only=False).decides()
        notices = None
        if settings.notify or settings.notify_command is not None:
            notices = LoopNotices(settings.notify_command, ring if settings.notify else None)
            closing.callback(notices.close)
        on_loop = None if notices is None else notices.add
        view = WatchView(pipeline, policy, contents=settings.contents, on_loop=on_loop)
        limits = SessionLimits(settings.max_runs, settings.idle_seconds)
        sessions = HookSessions(
            pipeline.recorder,
            limits,
            tokens=settings.transcripts,
            traced=settings.spans != "off",
        )
        closing.callback(sessions.close)
        tails = _tails(settings, pipeline, sessions)
        pipeline.add_metrics(lambda: sessions.metrics(() if tails is None else tails.active))
        endpoint = HookEndpoint(watch_folder(), sessions.receive, sessions.lost)
        closing.callback(endpoint.stop)
        endpoint.start()
        if pipeline.page is not None:
            pipeline.page.invite(
                "Install the hooks of your coding agents once, then work with one of them:",
                "tidegauge hook install",
            )
        _print_start(pipeline, settings, endpoint.address)
        _end_idle_runs(sessions, stop)
        if tails is not None:
            closing.callback(_following(tails, stop))
        # Calls and their turns refer to one another: Python's collector frees them, as often as it
        # does by default.
        view.follow(stop)
    view.summary()


def _tails(settings: WatchSettings, pipeline: Pipeline, sessions: HookSessions) -> Tails | None:
    """What reads the files of sessions; ``None``, hooks alone report."""
    if not settings.transcripts:
        return None
    from tidegauge.coding_agents.tails import Tails, default_folders, read_folders

    return Tails(
        pipeline.recorder.sink,
        [*default_folders(), *read_folders(settings.transcripts_in or "")],
        is_reported=sessions.is_reported,
        began=sessions.counts.began,
        idle_seconds=settings.idle_seconds,
    )


def _following(tails: Tails, stop: threading.Event) -> Callable[[], None]:
    """Read the files of sessions, in a thread. Returns what ends that."""

    def follow() -> None:
        while not stop.wait(_LOOK_SECONDS):
            tails.look()

    def end() -> None:
        stop.set()
        thread.join()
        tails.close()

    thread = threading.Thread(target=follow, name="tidegauge-transcripts", daemon=True)
    thread.start()
    return end


def _print_start(pipeline: Pipeline, settings: WatchSettings, address: str) -> None:
    print_line(f"hooks: {address}")
    if pipeline.page_url is not None:
        print_line(f"live page: {pipeline.page_url}")
    print_line(f"metrics: {pipeline.metrics_url or 'not served'}")
    if settings.transcripts:
        print_line("sessions without hooks: only observed, in the files of the agents")
    does = "nudges, refuses and stops agents" if settings.act else "only observes agents"
    print_line(f"this command {does}; end it with Ctrl-C")


def _end_idle_runs(sessions: HookSessions, stop: threading.Event) -> None:
    """End idle runs from time to time, in a thread."""

    def end() -> None:
        while not stop.wait(_IDLE_CHECK_SECONDS):
            sessions.end_idle()

    threading.Thread(target=end, name="tidegauge-idle", daemon=True).start()


def _pipeline(settings: WatchSettings) -> Pipeline:
    from tidegauge.errors import ConfigurationError
    from tidegauge.pipeline import configure
    from tidegauge.policies import DEFAULT_RULES, parse_rules
    from tidegauge.policies.prices import read_prices
    from tidegauge.tracer import otlp_asked_for

    if settings.spans != "off" and not otlp_asked_for("traces"):
        raise ConfigurationError(
            f"--spans {settings.spans} has no address to send them to; "
            "set OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    policy = settings.policy
    is_file = policy is not None and policy.endswith(".toml")
    if policy is not None and not is_file:
        rules = parse_rules(policy)
    elif is_file or os.environ.get("TIDEGAUGE_POLICY"):
        rules = DEFAULT_RULES
    else:
        rules = default_rules()
    return configure(
        observe_only=not settings.act,
        metrics_host=_HOST,
        metrics_port=usable_port(_HOST, settings.metrics_port),
        otlp_metrics=False,  # nothing but spans leaves the machine, if they are asked for
        page=settings.page,
        page_contents=settings.contents,
        prices={} if settings.prices is None else read_prices(settings.prices),
        runbooks=settings.runbooks,
        max_runs=settings.max_runs,
        # The sessions end idle runs first, and give the reason.
        idle_seconds=settings.idle_seconds * 2 or 1.0,
        export="troubled" if settings.spans == "troubled" else "all",
        detect_polls=settings.detect_polls,
        record_to=settings.record_to,
        guard=settings.guard,
        guard_share=settings.guard_share,
        policy=policy if is_file else None,
        rules=rules,
    )


def default_rules() -> tuple[Rule, ...]:
    """The rules without ``--policy``: by the fourth identical step, they have acted twice."""
    from tidegauge.policies import DEFAULT_RULES, Rule

    return (
        Rule("loop_repeats", 1, "nudge"),
        Rule("loop_repeats", 2, "block"),
        Rule("loop_repeats", 5, "stop"),
        *(rule for rule in DEFAULT_RULES if rule.signal != "loop_repeats"),
    )
