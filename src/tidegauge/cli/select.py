"""``tidegauge select``: recorded runs, selected by their measurements."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tidegauge.cli.command_settings import COUNT, OUT_FILE, TEXT, setting, settings_options
from tidegauge.cli.recording_options import (
    InputErrors,
    InputSettings,
    TMax,
    open_output,
    read_recordings,
    refuse_overwriting,
    scores_setting,
    t_max_setting,
)
from tidegauge.cli.terminal import print_json, print_line
from tidegauge.diagnose.competency_scores import overall_scores, read_scores
from tidegauge.diagnose.recorded_run import FIELDS, Condition, fields_of
from tidegauge.errors import ConfigurationError
from tidegauge.events import RunStarted
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import RunReport
from tidegauge.streaming_metrics.packed_runs import PackedEngine

_OVERALL: Final = "overall_score"


@dataclass(frozen=True, kw_only=True)
class SelectSettings(InputSettings):
    """Settings of ``tidegauge select``."""

    where: str | None = setting(
        TEXT, None, "Which runs, as in 'auv > 0.8 and loop_ratio == 0'.", metavar="CONDITION"
    )
    top: int | None = setting(
        COUNT, None, "Of these, only the N runs with the best overall score; needs --scores."
    )
    out: Path | None = setting(
        OUT_FILE, None, "Write the runs to this file instead of standard output.", "-o"
    )
    scores: Path | None = scores_setting()
    t_max: TMax = t_max_setting()


@click.command()
@settings_options(SelectSettings)
def select(settings: SelectSettings) -> None:
    """Select recorded runs by their measurements.

    The lines of the runs that fulfill the condition are written unchanged, so the output is a
    recording, too; on standard output, what a terminal would act on is escaped. A run is written
    when it ends; runs without an end come last. With --top, the best run comes first.

    With --scores, each competency is a field, and so is overall_score: the mean of them.

    The fields are those of a run in 'replay --json', and auv, the run's share of its group's AUV:

    \b
      run agent task_group memory model outcome success finished stopped
      steps t_max tokens auv progress_auv novelty recall_lag premature_halt
      answers answer_streak_max turns_without_calls_max
      cut_short loop_ratio loop_steps loops lost_tokens lost_seconds
      tide_loop_ratio tide_loop_steps tide_cycles tide_cycle_steps refused_calls
      result_streak_max stuck_streak_max empty_streak failed_rounds_max
      loop_evidence_max skipped_steps stale_score stale_score_max
      frontier pending distinct_places backtracks
      exploration_error exploration_errors exploration_required
      exploitation_error exploitation_errors exploitation_required

    A condition consists of comparisons (also 0 < loop_ratio <= 0.5), in, and, or, not, numbers,
    quoted text and lists of these. A comparison with a value that was not measured is false; use
    'auv is None' to test for it.

    \b
    Examples:
      tidegauge select runs.jsonl --where "auv > 0.8 and not loops" -o best.jsonl
      tidegauge select runs.jsonl --where "success and steps <= 10" | wc -l
      tidegauge select *.jsonl --where "agent in ['browser', 'shell']" -o 2.jsonl
      tidegauge select runs.jsonl --scores scores.jsonl \\
                       --where "self_verification >= 3"
      tidegauge select runs.jsonl --scores scores.jsonl --top 20 -o best.jsonl

    Exit code 0: every file was read; 1: a file could not be read or written; 2: wrong usage, or
    an error in the input with --strict.
    """
    if settings.where is None and settings.top is None:
        raise ConfigurationError("nothing to select by; set --where, or --top with --scores")
    if settings.top is not None and settings.scores is None:
        raise ConfigurationError("--top needs scores; set --scores")
    scores = _scores_by_run(settings.scores)
    competencies = {name for of_run in scores.values() for name in of_run}
    condition = None
    if settings.where is not None:
        condition = Condition(settings.where, names={*FIELDS, *competencies})
    refuse_overwriting(settings.out, settings.files, "--out")
    errors = InputErrors(strict=settings.strict)
    absent = dict.fromkeys(competencies)

    def holds(fields: dict[str, Any]) -> bool:
        scored = scores.get(fields["run"], {})
        return condition is None or condition.holds({**absent, **scored, **fields})

    def overall(run: str) -> float | None:
        return scores.get(run, {}).get(_OVERALL)

    with ExitStack() as stack:
        write: Callable[[bytes], object] = print_json
        if settings.out is not None:
            write = stack.enter_context(open_output(settings.out)).write
        selected = SelectedRuns(holds, write, top=settings.top, rank=overall)
        read_recordings(settings, selected, errors, keep_line=selected.keep_line)
        selected.close()
    print_line(f"{selected.chosen} of {selected.seen} runs", err=True)
    errors.exit_if_unreadable()


def _scores_by_run(file: Path | None) -> dict[str, dict[str, Any]]:
    """The scores of each run, by competency, and its overall score."""
    found: dict[str, dict[str, Any]] = {}
    if file is not None:
        with file.open("rb") as lines:
            scores = read_scores(lines, str(file))
        for score in scores:
            found.setdefault(score.run, {})[score.competency] = score.score
        for run, overall in overall_scores(scores).items():
            found[run][_OVERALL] = overall
    return found


class SelectedRuns(EngineSink):
    """A sink that writes the recorded lines of the runs that fulfill a condition.

    Memory: the lines and the engine's state of the open runs, and with ``top`` the lines of as many
    runs.

    Args:
        top: write only so many runs, the best first, at the end. ``None``: all, in their order.
        rank: the rank of the run with an id, the best has the highest; ``None``: it has none, and
            is not among the top.

    Attributes:
        seen: number of runs read.
        chosen: number of runs written.
    """

    def __init__(
        self,
        holds: Callable[[dict[str, Any]], bool],
        write: Callable[[bytes], object],
        *,
        top: int | None = None,
        rank: Callable[[str], float | None] = lambda run: None,
    ) -> None:
        self.seen = 0
        self.chosen = 0
        self._top = top
        self._rank = rank
        self._best: list[tuple[float, int, list[bytes]]] = []  # a heap: rank, order, lines
        self._holds = holds
        self._write_lines = write
        super().__init__(PackedEngine(on_finished=self._finished), Policy())
        self._lines: dict[str, list[bytes]] = {}  # of the open runs
        self._ended: RunReport | None = None  # the run that the current line ended

    def run_started(self, event: RunStarted) -> None:
        """A run began; an open run with the same id did not finish."""
        self._decide_unfinished(event.run)
        super().run_started(event)
        self._ended = None
        self._lines[event.run] = []

    def keep_line(self, run: str, line: bytes) -> None:
        """Keep a line of a run."""
        self._lines[run].append(line)
        if self._ended is not None:
            self._decide(self._ended)
            self._ended = None

    def close(self) -> None:
        """Decide on the runs without an end."""
        for run in list(self._lines):
            self._decide_unfinished(run)
        for _, _, lines in sorted(self._best, reverse=True):
            self._write(lines)

    def _finished(self, report: RunReport) -> None:
        self._ended = report  # it is decided once its last line is kept

    def _decide_unfinished(self, run: str) -> None:
        state = self.engine.get(run)
        if state is not None:
            self._decide(state.report())

    def _decide(self, report: RunReport) -> None:
        lines = self._lines.pop(report.run, [])
        self.seen += 1
        if not self._holds(fields_of(report)):
            return
        if self._top is None:
            self._write(lines)
            return
        rank = self._rank(report.run)
        if rank is not None:
            heapq.heappush(self._best, (rank, -self.seen, lines))  # of equal ones, the first
            if len(self._best) > self._top:
                heapq.heappop(self._best)

    def _write(self, lines: list[bytes]) -> None:
        self.chosen += 1
        self._write_lines(b"".join(line + b"\n" for line in lines))
