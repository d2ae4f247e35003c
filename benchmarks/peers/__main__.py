"""``python -m benchmarks.peers [handlers] [decorators]``: measure tidegauge and its peers.

All subjects take turns, so that what else the machine does hits all alike. What is added to a step
is the difference to the same round's step without; each number is the median of its rounds, and
as a multiple of a yardstick that was measured in the same run. Beside processor time, which is
noise on a shared machine, stand instructions, if valgrind is installed.

If both kinds are measured, the results are written into ``measured.json`` and the docs.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.peers.decorators import DECORATORS
from benchmarks.peers.handlers import HANDLERS
from benchmarks.peers.instructions import Counts, count, where
from benchmarks.peers.page import PEERS, write_page
from benchmarks.peers.subject import Subject, Turn, take_turn

FEW, STEPS, MANY = 10, 50, 200
CALLS = 500

Measured = dict[str, list[Turn]]
Row = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Measure, and print a table for each kind of subject."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("kind", nargs="*", help="handlers, decorators; default: both")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each subject (%(default)s)")
    options = parser.parse_args(arguments)
    kinds = options.kind or ["handlers", "decorators"]
    if unknown := set(kinds) - {"handlers", "decorators"}:
        parser.error(f"unknown: {', '.join(unknown)}")
    rounds = max(options.rounds, 1)
    counts = count(kinds, ours=False) if shutil.which("valgrind") else {}
    tables = {kind: MAKE[kind](rounds, counts) for kind in kinds}
    console = Console(width=None if sys.stdout.isatty() else 120)
    for kind, rows in tables.items():
        console.print(_shown(kind, rows))
    if len(tables) == len(MAKE) and counts:
        PEERS.write_text(json.dumps({"with": where(), "tables": tables}, indent=2) + "\n")
        write_page()
    return 0


def _measure(subjects: Sequence[Subject], lengths: Sequence[int], rounds: int) -> Measured:
    """Turns of every subject that is installed, round by round."""
    turns: Measured = {subject.name: [] for subject in subjects}
    taking_part = [subject for subject in subjects if not subject.missing]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=rounds * len(taking_part))
        for _ in range(rounds):
            for subject in taking_part:
                progress.update(task, description=f"{subject.name:<36}")
                progress.refresh()
                turns[subject.name].append(take_turn(subject, lengths))
                progress.advance(task)
    return turns


def _added(turns: Measured, name: str, without: str, steps: int) -> float:
    """Median seconds that a step has more than the same round's step without."""
    return statistics.median(
        turn.seconds[steps] - other.seconds[steps]
        for turn, other in zip(turns[name], turns[without], strict=True)
    )


def _fault(subject: Subject, turns: Measured) -> str | None:
    if subject.missing:
        return "not installed"
    return next((turn.fault for turn in turns[subject.name] if turn.fault), None)


def _handlers(rounds: int, counts: Counts) -> list[Row]:
    turns = _measure(HANDLERS, (FEW, STEPS, MANY), rounds)
    without, yardstick = HANDLERS[:2]
    floor = _added(turns, yardstick.name, without.name, STEPS)
    rows = []
    for subject in HANDLERS[1:]:
        row = _row(subject, turns, counts, yardstick)
        if "fault" not in row:
            few, added, many = (
                _added(turns, subject.name, without.name, steps) for steps in (FEW, STEPS, MANY)
            )
            row |= {"µs": f"{added * 1e6:,.0f}", "time": f"{added / floor:.2g}"}
            row["growth"] = f"{many / few:.1f}" if few > 0 else None
        rows.append(row)
    return rows


def _decorators(rounds: int, counts: Counts) -> list[Row]:
    turns = _measure(DECORATORS, (CALLS,), rounds)
    without, yardstick = DECORATORS[:2]
    bare = _added(turns, yardstick.name, without.name, CALLS)
    rows = []
    for subject in DECORATORS[1:]:
        row = _row(subject, turns, counts, yardstick)
        if "fault" not in row:
            added = _added(turns, subject.name, without.name, CALLS)
            row |= {"µs": f"{added * 1e6:,.1f}", "time": f"{added / bare:.2g}"}
        rows.append(row)
    return rows


MAKE = {"handlers": _handlers, "decorators": _decorators}


def _row(subject: Subject, turns: Measured, counts: Counts, yardstick: Subject) -> Row:
    row: Row = {"name": subject.label}
    if fault := _fault(subject, turns):
        return {**row, "fault": fault}
    if subject.name in counts:
        row["instructions"] = f"{counts[subject.name] / counts[yardstick.name]:.2g}"
    row["spans"] = f"{statistics.median(turn.spans for turn in turns[subject.name]):.1f}"
    return row


def _shown(kind: str, rows: list[Row]) -> Table:
    table = Table(title=f"{TITLES[kind]}, {_where()}")
    table.add_column("")
    for heading in HEADS.values():
        table.add_column(heading, justify="right")
    for row in rows:
        fault = f"[yellow]{row['fault']}[/]" if "fault" in row else None
        table.add_row(row["name"], *(row.get(key) or "" for key in HEADS), fault)
    return table


TITLES = {
    "handlers": f"Added to an agent's step, {STEPS} steps a run; x is the floor",
    "decorators": "A decorated call of a trivial function; x is a bare span",
}
HEADS = {
    "instructions": "x instructions",
    "µs": "µs",
    "time": "x time",
    "growth": f"{FEW} to {MANY} steps, x",
    "spans": "spans",
}


def _where() -> str:
    return f"Python {platform.python_version()}, {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
