"""``tidegauge replay``: measures recorded runs with the engine of live runs, and writes them."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
import orjson

from tidegauge.cli.command_settings import FLAG, OUT_FILE, setting, settings_options
from tidegauge.cli.recording_options import (
    InputErrors,
    MeasuredInputSettings,
    open_output,
    read_recordings,
    refuse_overwriting,
)
from tidegauge.cli.terminal import (
    NOT_MEASURED,
    TextTable,
    percent,
    print_json,
    print_line,
)
from tidegauge.events import Decision, Outcome, RunEnded, RunObserver, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import (
    AUV,
    Engine,
    GroupKey,
    GroupSnapshot,
    MemoryIndex,
    RunReport,
    SuccessRate,
    group_entry,
    run_entry,
)
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.packed_runs import PackedEngine
from tidegauge.streaming_metrics.registry import ABSENT_FIELDS
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.tide_loops import TideLoops

Comparison: TypeAlias = Normaliser | Literal["volatile"] | None

_MAX_ACTIONS: Final = 1_000
_PART: Final = 1_000
_MEASURED: Final = (
    *("case", "gain", "progress", "error", "exploration_error", "exploitation_error"),
    *("stale", "frontier", "pending"),
)
"""What a step's line has besides its run, its index and whether it loops."""


class RecordedRuns(EngineSink):
    """The live sink for recorded runs: it keeps the report of every run, and no run expires.

    :meth:`reports` and :meth:`groups` count runs without an end as unfinished, and so a run whose
    id starts again.

    Memory: about 1 kB a run, and the engine's state for 2,000 of those that are open at a time; of
    further ones a few hundred bytes (see ``PackedEngine``).

    Args:
        loop_code: how loops are read: as in TIDE's code for texts, or for graphical interfaces.
    """

    engine: PackedEngine

    def __init__(
        self,
        policy: Policy,
        *,
        loop_code: Literal["text", "gui"] = "text",
        normaliser: Comparison = "volatile",
        detect_polls: bool | None = None,
    ) -> None:
        engine = PackedEngine(
            before_packing=self._keep_unfinished,
            normaliser=normaliser,
            detect_polls=detect_polls,
            max_groups=sys.maxsize,
            max_actions=_MAX_ACTIONS,
            features=policy.reads_features,
            token_rate=policy.reads_token_rate,
            loop_code=loop_code,
            on_finished=self.run_finished,
        )
        super().__init__(engine, policy)
        self._reports: list[RunReport | None] = []  # in the order of the runs' first lines
        self._open: dict[str, int] = {}  # run id -> index among them

    def run_started(self, event: RunStarted) -> None:
        if event.run in self._open:
            # The engine ends it as unknown; here it counts as unfinished.
            run = self.engine.get(event.run)
            if run is not None:
                self._keep_unfinished(run)
            del self._open[event.run]
        super().run_started(event)
        self._open[event.run] = len(self._reports)
        self._reports.append(None)

    def reports(self) -> list[RunReport]:
        """Every run, in the order of their first lines."""
        for run in self.engine.at_hand():
            self._keep_unfinished(run)
        return [report for report in self._reports if report is not None]

    def groups(self) -> dict[GroupKey, GroupSnapshot]:
        """Every group of runs, in the order of their first lines."""
        found = {group.key: group for group in self.engine.snapshot().groups}
        return {report.group: found[report.group] for report in self.reports()}

    def _keep_unfinished(self, run: MeasuredRun) -> None:
        self._reports[self._open[run.started.run]] = _small(run.report())

    def run_finished(self, report: RunReport) -> None:
        super().run_finished(report)
        index = self._open.pop(report.run, None)
        if index is not None:
            self._reports[index] = _small(report)


def measured_as(settings: MeasuredInputSettings) -> RecordedRuns:
    """The sink for recorded runs that the settings describe."""
    return RecordedRuns(
        settings.rules(),
        loop_code=settings.loop_code,
        normaliser=None if settings.exact else "volatile",
        detect_polls=settings.detect_polls,
    )


class _Numbers(Mapping[str, Any]):
    """The numbers of a report in a fifth of the memory of a dictionary."""

    __slots__ = ("_values",)

    def __init__(self, numbers: Mapping[str, Any]) -> None:
        self._values = tuple([numbers[name] for name in _POSITIONS])

    def __getitem__(self, name: str) -> Any:
        return self._values[_POSITIONS[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(_POSITIONS)

    def __len__(self) -> int:
        return len(_POSITIONS)


_POSITIONS: Final = {name: position for position, name in enumerate(ABSENT_FIELDS)}


def _small(report: RunReport) -> RunReport:
    return replace(report, numbers=_Numbers(report.numbers))


def document(runs: RecordedRuns, *, skipped_lines: int) -> dict[str, Any]:
    """Every group, the memory index of every task group and the skipped lines, as plain data."""
    groups = list(runs.groups().values())
    return {
        "groups": [group_entry(group) for group in groups],
        "memory_index": _memory_index(groups),
        "skipped_lines": skipped_lines,
    }


def document_text(runs: RecordedRuns, *, skipped_lines: int) -> Iterator[bytes]:
    """The document of ``replay --json``: :func:`document`, after the entry of every run.

    It comes in parts of a thousand runs, so that it is never in memory as a whole.
    """
    reports = runs.reports()
    yield b'{"runs":['
    for first in range(0, len(reports), _PART):
        part = [run_entry(report) for report in reports[first : first + _PART]]
        yield (b"," if first else b"") + orjson.dumps(part)[1:-1]
    yield b"]," + orjson.dumps(document(runs, skipped_lines=skipped_lines))[1:] + b"\n"


def _memory_index(groups: list[GroupSnapshot]) -> list[dict[str, Any]]:
    """The memory index of each task group with runs of both arms, over all agents."""
    indexes: dict[str, MemoryIndex] = {}
    for group in groups:
        index = indexes.setdefault(group.key.task_group, MemoryIndex())
        index.add(group.key.memory, group.finished.of(AUV))
    return [
        {
            "task_group": task_group,
            "on": index.arms["on"].value,
            "off": index.arms["off"].value,
            "value": index.value,
            "stderr": index.standard_error,
        }
        for task_group, index in indexes.items()
        if {"on", "off"} <= index.arms.keys()
    ]


def print_groups(runs: RecordedRuns, *, skipped_lines: int) -> None:
    """Print a row for each group, and a line about all runs."""
    reports = runs.reports()
    loops = Counter(report.group for report in reports if report.loop_steps)
    stops = Counter(report.group for report in reports if report.intervention == "stop")
    _table(runs.groups(), loops, stops).print()
    unfinished = sum(not report.finished for report in reports)
    steps = sum(report.steps for report in reports)
    print_line(
        f"{len(reports)} runs, {unfinished} of them unfinished; {steps} steps; "
        f"{skipped_lines} lines skipped"
    )


def _table(
    groups: dict[GroupKey, GroupSnapshot], loops: Counter[GroupKey], stops: Counter[GroupKey]
) -> TextTable:
    numbers = ("runs", "success", "at t_max", "AUV", "loop ratio", "runs with a loop")
    table = TextTable(
        ("agent", "task group", "memory"), (*numbers, "stopped") if stops else numbers
    )
    for key, group in groups.items():
        row = [
            *key,
            str(group.runs_started),
            percent(group.finished.of(SuccessRate).value),
            percent(group.finished.of(AUV).success_at_t_max),
            _auv(group.finished.of(AUV)),
            percent(group.loop_ratio),
            str(loops[key]),
        ]
        if stops:
            row.append(str(stops[key]))
        table.add(*row)
    return table


def _auv(auv: AUV) -> str:
    if auv.value is None:
        return NOT_MEASURED
    error = auv.standard_error
    return percent(auv.value) if error is None else f"{percent(auv.value)} ± {percent(error)}"


class StepLines(RunObserver):
    """Emits a line for every step of a replay.

    Whether a step loops is known once its repetition is complete or broken off, so its line waits
    until then. Lines of one run come in order, runs interleave. At most as many wait as the longest
    period of a loop.
    """

    def __init__(self, engine: Engine, emit: Callable[[dict[str, Any]], object]) -> None:
        self._engine = engine
        self._emit = emit
        self._waiting: dict[str, deque[dict[str, Any]]] = {}

    def run_started(self, event: RunStarted) -> None:
        self._release(event.run)  # of a run that is open under the same id
        self._waiting[event.run] = deque()

    def step_issued(self, event: Step, decision: Decision) -> None:
        """An action was issued: from here it is known whether it completes a repetition."""
        run = self._engine.get(event.run)
        if run is not None:
            waiting = self._waiting.setdefault(event.run, deque())
            waiting.append(_line(event.run, run.steps - 1))
            for line in islice(reversed(waiting), run.of(TideLoops).settled):
                line["tide_loop"] = True
            if not run.skipping:
                loops = run.of(Loops)
                waiting[-1].update(loop_period=loops.period, loop_repeats=loops.repeats)
                for line in reversed(waiting) if loops.settled else ():
                    if line["t"] < loops.settled[0]:
                        break
                    line["loop"] = line["loop"] or line["t"] in loops.settled

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        """A result was observed: from here all else about its step is known."""
        run = self._engine.get(event.run)
        if run is not None:
            step = run.steps - 1 if event.step is None else event.step
            for line in reversed(self._waiting.get(event.run) or ()):
                if line["t"] == step:  # else its line is written: steps overlapped
                    line.update(_measured(run))
                    break
            since = run.of(Loops).pending_since
            pending = 0 if since is None else run.steps - since
            self._release(event.run, but=max(pending, run.of(TideLoops).pending))

    def run_ended(self, event: RunEnded) -> None:
        """A run ended: no waiting step can become a loop step."""
        self._release(event.run)
        self._waiting.pop(event.run, None)

    def close(self) -> None:
        """Emit the waiting lines of the runs without an end."""
        for run in self._waiting:
            self._release(run)

    def _release(self, run: str, but: int = 0) -> None:
        waiting = self._waiting.get(run) or deque()
        while len(waiting) > but:
            self._emit(waiting.popleft())


def _line(run: str, step: int) -> dict[str, Any]:
    """A step that was issued; its result is not known."""
    looping = {"loop": False, "tide_loop": False, "loop_period": 0, "loop_repeats": 0}
    return {"run": run, "t": step, **looping, **dict.fromkeys(_MEASURED)}


def _measured(run: MeasuredRun) -> dict[str, Any]:
    """The measurements after the step; those that its run does not support are ``None``."""
    exploration = run.find(Exploration)
    if exploration is None:
        return {"stale": run.of(StaleScore).current}
    measured = {name: getattr(exploration, name) for name in _MEASURED}
    if exploration.case is None:
        measured["progress"] = None
    return measured


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(MeasuredInputSettings):
    """Settings of ``tidegauge replay``."""

    json: bool = setting(FLAG, False, "Print one JSON document instead of a table.")
    steps_out: Path | None = setting(
        OUT_FILE, None, "Write a JSON line for every step to this file."
    )


@click.command()
@settings_options(ReplaySettings)
def replay(settings: ReplaySettings) -> None:
    """Measure recorded runs with the engine that measures live ones.

    A FILE has one JSON object per line (docs/replay.md describes the format); - is standard input.
    Several files are read as one recording, in this order. Prints a table by agent, task group and
    memory.

    \b
    Examples:
      tidegauge replay runs.jsonl
      tidegauge replay 1.jsonl 2.jsonl --json | jq '.runs[] | select(.success)'
      tidegauge replay runs.jsonl --ignore-action think --steps-out steps.jsonl
      tidegauge replay runs.jsonl --policy loop_repeats=3,failed_rounds=3

    A line that is not valid is reported on standard error as FILE:LINE: reason, counted and
    skipped. Exit code 0: every file was read, lines may have been skipped; 1: a file could not be
    read or written; 2: wrong usage, or an error in the input with --strict.
    """
    refuse_overwriting(settings.steps_out, settings.files, "--steps-out")
    runs = measured_as(settings)
    errors = InputErrors(strict=settings.strict)
    with ExitStack() as stack:
        observers: list[StepLines] = []
        if settings.steps_out is not None:
            out = stack.enter_context(open_output(settings.steps_out))
            lines = StepLines(
                runs.engine,
                lambda line: out.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)),
            )
            stack.callback(lines.close)
            observers.append(lines)
        skipped = read_recordings(settings, runs, errors, *observers)
    if settings.json:
        for text in document_text(runs, skipped_lines=skipped):
            print_json(text)
    else:
        errors.exit_if_nothing_read(len(runs.reports()))
        print_groups(runs, skipped_lines=skipped)
    errors.exit_if_unreadable()
