"""What the signals say of recorded runs: which successful and failed runs they touch, and when.

``python -m benchmarks recorded_signals FOLDER`` prints the tables of
``docs/stop-rules-measured.md`` and ``docs/loops-in-recorded-runs.md``, which
``tests/integration/test_recorded_runs.py`` checks. Runs are compared as live ones are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from tidegauge.events import Answer, Decision, Outcome, RunEnded, Signals, Step
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.normalise import volatile
from tidegauge.streaming_metrics.registry import SIGNALS

__all__ = [
    "CONDITIONS",
    "NEAR_LOOP_SIGNALS",
    "SeenRun",
    "Stretch",
    "conditions_table",
    "near_loops_table",
    "seen_runs",
    "stretches",
]

CONDITIONS: Final[Mapping[str, Sequence[float]]] = {
    "loop_repeats": (1, 2, 3),
    "loop_evidence": (0.5, 1, 2),
    "stuck_streak": (3, 4, 5, 6),
    "failed_rounds": (3, 4, 5, 6, 7),
    "result_streak": (3, 4, 5, 6, 8),
    "near_streak": (3, 4, 5, 8),
    "empty_streak": (5, 8, 10),
    "stale_score": (5, 8, 10),
    "recurrence": (1, 2, 3),
    "novelty": (0.25, 0.1),
    "repetition": (2, 3, 4),
    "repetition_recent": (4, 5, 6, 8),
    "stagnation": (20, 25, 30),
}
"""Signals and the thresholds to compare."""

NEAR_LOOP_SIGNALS: Final = (
    ("loop_evidence", 1.0),
    ("loop_repeats", 2.0),
    ("stuck_streak", 4.0),
    ("recurrence", 2.0),
    ("repetition_recent", 5.0),
)
"""The settings of the table of near-loops."""


class Stretch(NamedTuple):
    """A stretch of a run that was read by hand; steps count from 0."""

    run: str
    start: int
    end: int
    kind: str


@dataclass(slots=True)
class SeenRun:
    """A recorded run.

    Attributes:
        steps: its steps.
        success: whether it succeeded; ``None``, not known.
        first: the step at which each (signal, threshold) was first reached.
    """

    steps: int = 0
    success: bool | None = None
    first: dict[tuple[str, float], int] = field(default_factory=dict)


class _Watching:
    """Follows the signals of every run."""

    def __init__(self) -> None:
        self._engine = Engine(
            clock=None,
            max_runs=sys.maxsize,
            normaliser=volatile(),
            repetition=True,
            open_unknown_runs=True,
        )
        self.run_started = self._engine.run_started
        self.runs: dict[str, SeenRun] = {}

    def step_issued(self, event: Step) -> Decision:
        return self._follow(self._engine.step_issued(event))

    def step_observed(self, event: Outcome) -> Decision:
        return self._follow(self._engine.step_observed(event))

    def answered(self, event: Answer) -> Decision:
        return self._engine.answered(self._engine.digester.answer(event))

    def run_ended(self, event: RunEnded) -> None:
        self._engine.run_ended(event)
        self.runs.setdefault(event.run, SeenRun()).success = event.success

    def _follow(self, signals: Signals | None) -> Decision:
        if signals is not None:
            run = self.runs.setdefault(signals.run, SeenRun())
            run.steps = signals.steps
            for name, thresholds in CONDITIONS.items():
                value = getattr(signals, name)
                if value is None:
                    continue
                for at in thresholds:
                    if value <= at if SIGNALS[name].falls else value >= at:
                        run.first.setdefault((name, at), signals.step)
        return Decision(signals=signals)


def seen_runs(folder: Path) -> dict[str, SeenRun]:
    """Every run of the recordings of a folder, by its id."""
    watching = _Watching()
    replay = Replay(watching)
    for path in sorted(folder.glob("*.events.jsonl")):
        with path.open("rb") as stream:
            for line in read_lines(stream):
                replay.take(line, path.name)
    return watching.runs


def stretches(folder: Path) -> list[Stretch]:
    """The stretches that were read by hand."""
    labels = map(orjson.loads, (folder / "loop_labels.jsonl").read_bytes().splitlines())
    return [Stretch(*(label[name] for name in Stretch._fields)) for label in labels]


def conditions_table(runs: Iterable[SeenRun]) -> str:
    """The share of successful and failed runs that each condition touches, as Markdown."""
    all_runs = list(runs)
    rows = [
        "| signal | threshold | successful runs touched | failed runs touched | default rule |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, thresholds in CONDITIONS.items():
        for at in thresholds:
            shares = [_touched(all_runs, name, at, success) for success in (True, False)]
            default = "yes" if Rule(name, at) in DEFAULT_RULES else ""
            rows.append(f"| `{name}` | {at:g} | {shares[0]} | {shares[1]} | {default} |")
    return "\n".join(rows) + "\n"


def _touched(runs: Iterable[SeenRun], name: str, at: float, success: bool) -> str:
    known = [run for run in runs if run.success is success]
    touched = sum((name, at) in run.first for run in known)
    return f"{touched} of {len(known)} ({touched / len(known):.1%})"


def near_loops_table(runs: Mapping[str, SeenRun], labelled: Iterable[Stretch]) -> str:
    """At which step of which stretch each setting holds for the first time, as Markdown.

    A number is the step; ``-``, the setting does not hold up to the stretch's end, and ``before``,
    it held before the stretch began.
    """
    titles = [f"`{name}` {at:g}" for name, at in NEAR_LOOP_SIGNALS]
    rows = [
        f"| run | steps | kind | {' | '.join(titles)} |",
        "| --- | --- | --- |" + " --- |" * len(titles),
    ]
    for one in sorted(labelled, key=lambda one: ("true", "border", "legit").index(_kind(one))):
        cells = [_reached(runs[one.run], one, setting) for setting in NEAR_LOOP_SIGNALS]
        kind = {"true": "loop", "border": "borderline", "legit": "with a reason"}[_kind(one)]
        where = f"| `{_short(one.run)}` | {one.start} to {one.end} | {kind} |"
        rows.append(f"{where} {' | '.join(cells)} |")
    shares = [_touched(runs.values(), name, at, True) for name, at in NEAR_LOOP_SIGNALS]
    rows.append("| all successful runs | | | " + " | ".join(shares) + " |")
    shares = [_touched(runs.values(), name, at, False) for name, at in NEAR_LOOP_SIGNALS]
    rows.append("| all failed runs | | | " + " | ".join(shares) + " |")
    return "\n".join(rows) + "\n"


def _kind(stretch: Stretch) -> str:
    return {"true_loop": "true", "borderline": "border", "legit_repeat": "legit"}[stretch.kind]


def _short(run: str) -> str:
    group, _, name = run.partition("/")
    return f"{group}/{name if len(name) <= 20 else '…' + name[-19:]}".replace("|", "\\|")


def _reached(run: SeenRun, stretch: Stretch, setting: tuple[str, float]) -> str:
    step = run.first.get(setting)
    if step is None or step > stretch.end:
        return "-"
    return str(step) if step >= stretch.start else "before"


def main(arguments: list[str]) -> int:
    """Print both tables."""
    if len(arguments) != 1:
        print("usage: python -m benchmarks recorded_signals FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    runs = seen_runs(folder)
    print(conditions_table(runs.values()))
    print(near_loops_table(runs, stretches(folder)))
    return 0
