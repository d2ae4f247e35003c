"""``tidegauge watch``: the coding agents of this machine, measured live through their hooks."""

from __future__ import annotations

import contextlib
import os
import threading
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
from tidegauge.cli.loop_notices import LoopNotices, parse_command, ring
from tidegauge.cli.page_settings import PRICES_HELP, RUNBOOKS_HELP
from tidegauge.cli.price_file import read_prices
from tidegauge.cli.server_settings import set_on_signal, usable_port
from tidegauge.cli.terminal import print_line
from tidegauge.coding_agents.agents import SESSIONS, SETTINGS, titles

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegauge.coding_agents.sessions import HookSessions
    from tidegauge.coding_agents.tails import Tails
    from tidegauge.pipeline import Pipeline
    from tidegauge.policies import Rule

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
