"""What the preset does to recorded runs: how many successful runs it stops, and what that saves.

``python -m benchmarks preset FOLDER...`` (``make evidence DATA=FOLDER``) prints the table of
``docs/stop-rules-measured.md``, and each successful run that the preset would stop, step by step,
to be read by a person: was it stuck?
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import orjson
from scipy.stats import beta

from tidegauge.events import (
    ABSENT,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    Signals,
    Step,
    StepSink,
)
from tidegauge.policies import Rule, guard_rules
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.normalise import volatile

__all__ = ["CANDIDATES", "PRESET", "Stop", "StudiedRun", "Total", "studied", "table", "totals"]

PRESET: Final = "**the preset**"
_STOPPING: Final = tuple(rule for rule in guard_rules("stuck") if rule.action == "stop")

CANDIDATES: Final[Mapping[str, Sequence[Rule]]] = {
    "`loop_repeats` 3": (Rule("loop_repeats", 3),),
    "`loop_evidence` 1": (Rule("loop_evidence", 1),),
    PRESET: _STOPPING,
    "the preset, `empty_streak` 10": (*_STOPPING, Rule("empty_streak", 10)),
    "the preset, `result_streak` 8": (*_STOPPING, Rule("result_streak", 8)),
    "LORE's `failed_rounds` 3, `loop_repeats` 3": (
        Rule("failed_rounds", 3),
        Rule("loop_repeats", 3),
    ),
}
"""Sets of rules to compare: a run is stopped where the first of them holds."""

_LEAST: Final = 30
"""How many successful runs a family needs, so that its share says something."""
_MOST_SHOWN: Final = 200
_CONTEXT: Final = 8


class Stop(NamedTuple):
    """Where a set of rules ends a run.

    Attributes:
        signal: of the rule that holds first.
        ran: how many steps ran.
    """

    signal: str
    ran: int


class StudiedRun:
    """A recorded run.

    Attributes:
        started: how it started.
        success: whether it is known to have succeeded.
        steps: how many steps it took.
        stops: where each of the candidates stops it.
        texts: each of its steps, for people.
    """

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.success = False
        self.steps = 0
        self.stops: dict[str, Stop] = {}
        self.texts: list[str] = []


class _Study(StepSink):
    """A step sink that asks the rules of all candidates, and never intervenes."""

    def __init__(self, *, exact: bool) -> None:
        self._engine = Engine(
            clock=None,
            max_runs=sys.maxsize,
            max_groups=1,
            max_actions=1,
            normaliser=None if exact else volatile(),
        )
        self.runs: dict[str, StudiedRun] = {}

    def run_started(self, event: RunStarted) -> None:
        self._engine.run_started(event)
        self.runs[event.run] = StudiedRun(event)

    def step_issued(self, event: Step) -> Decision:
        signals = self._engine.step_issued(event)
        self._ask(signals, 1)
        calls = "; ".join(f"{call.action} {_shown(call.arguments)}" for call in event.calls)
        self.runs[event.run].texts.append(calls)
        return Decision(signals=signals)

    def step_observed(self, event: Outcome) -> Decision:
        signals = self._engine.step_observed(event)
        self._ask(signals, 0)
        for result in event.results:
            mark = {True: "failed: ", False: "", None: "failed? "}[result.error]
            self.runs[event.run].texts[-1] += f"\n        {mark}{_shown(result.outcome)}"
        return Decision(signals=signals)

    def run_ended(self, event: RunEnded) -> None:
        self.runs[event.run].success = bool(event.success)
        self._engine.run_ended(event)

    def _ask(self, signals: Signals | None, open_steps: int) -> None:
        if signals is None:
            return
        run = self.runs[signals.run]
        run.steps = signals.steps
        for name, rules in CANDIDATES.items():
            if name not in run.stops:
                for rule in rules:
                    value = rule.value(signals)
                    if value is not None and value >= rule.threshold:
                        run.stops[name] = Stop(rule.signal, signals.steps - open_steps)
                        break


def _shown(content: object) -> str:
    if content is ABSENT:
        return "(no result)"
    text = content if isinstance(content, str) else orjson.dumps(content, default=repr).decode()
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def studied(folders: Iterable[Path], *, exact: bool = False) -> list[StudiedRun]:
    """Every run of the recordings in these folders.

    Args:
        folders: with ``*.events.jsonl``.
        exact: whether texts are compared with their noise.
    """
    study = _Study(exact=exact)
    replay = Replay(study)
    for path in (path for folder in folders for path in sorted(folder.glob("*.events.jsonl"))):
        with path.open("rb") as stream:
            for line in read_lines(stream):
                replay.take(line, path.name)
    return list(study.runs.values())


class Total(NamedTuple):
    """What a set of rules does to all runs.

    Attributes:
        good: successful runs.
        good_stopped: how many of them are stopped.
        at_most: upper end of the 95% interval of that share (one-sided, Clopper and Pearson).
        worst: the largest share in a family.
        others: other runs.
        others_stopped: how many of them are stopped.
        saved: steps that are not taken, of all.
    """

    good: int
    good_stopped: int
    at_most: float
    worst: float
    others: int
    others_stopped: int
    saved: float


def totals(runs: Sequence[StudiedRun]) -> dict[str, Total]:
    """What each of the candidates does."""
    good = [run for run in runs if run.success]
    others = [run for run in runs if not run.success]
    families: dict[str, list[StudiedRun]] = {}
    for run in good:
        families.setdefault(run.started.task_group, []).append(run)
    found = {}
    for name in CANDIDATES:
        stopped = sum(name in run.stops for run in good)
        shares = [
            sum(name in run.stops for run in family) / len(family)
            for family in families.values()
            if len(family) >= _LEAST
        ]
        saved = sum(run.steps - run.stops[name].ran for run in runs if name in run.stops)
        found[name] = Total(
            len(good),
            stopped,
            float(beta.ppf(0.95, stopped + 1, len(good) - stopped)) if stopped < len(good) else 1.0,
            max(shares, default=0.0),
            len(others),
            sum(name in run.stops for run in others),
            saved / sum(run.steps for run in runs),
        )
    return found


def table(runs: Sequence[StudiedRun]) -> str:
    """The same, as Markdown."""
    rows = [
        "| rules | successful runs stopped | at most (95%) | worst family | others stopped | "
        "steps saved |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in totals(runs).items():
        rows.append(
            f"| {name} | {one.good_stopped} of {one.good} ({one.good_stopped / one.good:.2%}) "
            f"| {one.at_most:.2%} | {one.worst:.1%} "
            f"| {one.others_stopped} of {one.others:,} ({one.others_stopped / one.others:.1%}) "
            f"| {one.saved:.1%} |"
        )
    return "\n".join(rows) + "\n"


def successful_stopped(runs: Iterable[StudiedRun]) -> Iterable[str]:
    """Each successful run that the preset stops: its steps up to there, and what comes after."""
    for run in runs:
        stop = run.stops.get(PRESET)
        if not run.success or stop is None:
            continue
        lines = [
            f"{run.started.run}: by {stop.signal}, after {stop.ran} of {run.steps} steps",
            f"    task: {_shown(run.started.task or '')}",
        ]
        first = max(0, stop.ran - _CONTEXT)
        for number, text in enumerate(run.texts[first : stop.ran + 3], first):
            if number == stop.ran:
                lines.append("    -------- stopped here; what it did next:")
            lines.append(f"    {number}: {text}")
        yield "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    folders = [Path(one) for one in arguments]
    if not folders or not all(any(folder.glob("*.events.jsonl")) for folder in folders):
        print("usage: python -m benchmarks preset FOLDER..., with *.events.jsonl", file=sys.stderr)
        return 2
    runs = studied(folders)
    click.echo(f"{table(runs)}\nThe same, compared exactly:\n")
    click.echo(f"{table(studied(folders, exact=True))}\nSuccessful runs that the preset stops:\n")
    for text in successful_stopped(runs):
        click.echo(text)
    return 0
