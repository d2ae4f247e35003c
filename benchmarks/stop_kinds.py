"""What waste stops, lost-cause stops and the guards of other projects save on recorded runs.

``python -m benchmarks stop_kinds FOLDER`` prints the table of ``docs/stop-rules-measured.md``,
which ``tests/integration/test_recorded_guards.py`` checks. Scores have thresholds with alpha 0.05,
from 20 successful runs, 200 times; rules are the same for all runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidegauge.policies import SCORES, Guarantee, Policy, RunTrace, TraceSink
from tidegauge.policies.backtesting import BacktestSummary, backtest
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS
from tidegauge.policies.trace import RULES
from tidegauge.recordings.line_replay import Replay, read_lines

__all__ = ["compared", "compared_table"]

_EITHER: Final = "either"
_OWN: Final = ("stagnation", "repetition", "steps", "steps_begun")
_NAMES: Final = {RULES: "the default rules", _EITHER: "the default rules, or `stagnation`"}


def compared(folder: Path) -> list[BacktestSummary]:
    """The summaries of own scores and rules, and of the guards of others."""
    traces: list[RunTrace] = []
    sink = TraceSink(_OWN, on_trace=traces.append, rules=Policy(), guards=FOREIGN_GUARDS)
    for path in sorted(folder.glob("*.events.jsonl")):
        replay = Replay(sink)
        with path.open("rb") as stream:
            for line in read_lines(stream):
                replay.take(line, path.name)
    sink.close()
    for trace in traces:
        _add_either(trace)
    guards = FOREIGN_GUARDS.values()
    return backtest(
        traces,
        scores=[*_OWN, _EITHER, *(guard.name for guard in guards if guard.calibrated)],
        fixed=[RULES, *(guard.name for guard in guards if not guard.calibrated)],
        guarantee=Guarantee(0.05),
    ).summary


def _add_either(trace: RunTrace) -> None:
    """The score of a run that either stop ends: stagnation, but without limit once a rule held.

    Its threshold bounds the successful runs that are stopped for either reason.
    """
    rises = list(trace.rises["stagnation"])
    for held in trace.rises[RULES]:
        rises = [rise for rise in rises if rise.steps < held.steps]
        rises.append(held._replace(value=math.inf))
    trace.rises[_EITHER] = rises


def compared_table(summaries: Sequence[BacktestSummary]) -> str:
    """What each saves and breaks, as Markdown: own ones first, by kind of stop."""
    rows = [
        "| a stop for | rule or score | successful runs stopped | steps saved | of task groups |",
        "| --- | --- | --- | --- | --- |",
    ]
    found = {one.score: one for one in summaries}
    for name in (RULES, "repetition", "stagnation", "steps_begun", "steps", _EITHER):
        rows.append(_row(_stop(name), _NAMES.get(name, f"`{name}`"), found[name]))
    for guard in FOREIGN_GUARDS.values():
        rows.append(_row(" and ".join(guard.stops), f"`{guard.name}`", found[guard.name]))
    return "\n".join(rows) + "\n"


def _stop(name: str) -> str:
    if name in SCORES:
        return SCORES[name].stop
    return "waste" if name == RULES else "both"


def _row(stop: str, name: str, one: BacktestSummary) -> str:
    assert one.good_stopped is not None
    assert one.steps_saved is not None
    assert one.steps_saved_of_task_groups is not None
    saved = one.steps_saved
    return (
        f"| {stop} | {name} | {one.good_stopped.value:.1%} "
        f"| {saved.value:.1%} [{100 * saved.low:.0f} to {100 * saved.high:.0f}] "
        f"| {one.steps_saved_of_task_groups.value:.1%} |"
    )


def main(arguments: list[str]) -> int:
    """Print the table."""
    if len(arguments) != 1:
        print("usage: python -m benchmarks stop_kinds FOLDER", file=sys.stderr)
        return 2
    print(compared_table(compared(Path(arguments[0]))))
    return 0
