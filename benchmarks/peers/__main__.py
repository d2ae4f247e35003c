"""``python -m benchmarks.peers [handlers] [decorators]``: measure tidegauge and its peers.

All subjects take turns, so that what else the machine does hits all alike. What is added to a step
is the difference to the same round's step without; each number is the median of its rounds, and
as a multiple of a yardstick that was measured in the same run.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.peers.decorators import DECORATORS
from benchmarks.peers.handlers import HANDLERS
from benchmarks.peers.subject import Subject, Turn, take_turn

FEW, STEPS, MANY = 10, 50, 200
CALLS = 500

Measured = dict[str, list[Turn]]


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
    console = Console(width=None if sys.stdout.isatty() else 120)
    if "handlers" in kinds:
        console.print(_handler_table(_measure(HANDLERS, (FEW, STEPS, MANY), rounds)))
    if "decorators" in kinds:
        console.print(_decorator_table(_measure(DECORATORS, (CALLS,), rounds)))
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


def _handler_table(turns: Measured) -> Table:
    without, yardstick = HANDLERS[0], HANDLERS[1]
    table = Table(title=f"Added to an agent's step, {STEPS} steps a run, {_where()}")
    table.add_column("")
    for heading in ("µs", "x floor", f"{FEW} to {MANY} steps", "spans a step"):
        table.add_column(heading, justify="right")
    floor = _added(turns, yardstick.name, without.name, STEPS)
    for subject in HANDLERS:
        if fault := _fault(subject, turns):
            table.add_row(subject.label, "", "", "", "", f"[yellow]{fault}[/]")
            continue
        if subject is without:
            bare = statistics.median(turn.seconds[STEPS] for turn in turns[subject.name])
            table.add_row(subject.label, f"({bare * 1e6:,.0f} a step)", "", "", "")
            continue
        few, added, many = (
            _added(turns, subject.name, without.name, steps) for steps in (FEW, STEPS, MANY)
        )
        table.add_row(
            subject.label,
            f"{added * 1e6:,.0f}",
            f"{added / floor:.1f}",
            f"{many / few:.1f} x" if few > 0 else "",
            f"{statistics.median(turn.spans for turn in turns[subject.name]):.1f}",
        )
    return table


def _decorator_table(turns: Measured) -> Table:
    without, yardstick = DECORATORS[0], DECORATORS[1]
    table = Table(title=f"A decorated call of a trivial function, {_where()}")
    table.add_column("")
    for heading in ("µs", "x bare span", "spans a call"):
        table.add_column(heading, justify="right")
    bare = _added(turns, yardstick.name, without.name, CALLS)
    for subject in DECORATORS[1:]:
        if fault := _fault(subject, turns):
            table.add_row(subject.label, "", "", "", f"[yellow]{fault}[/]")
            continue
        added = _added(turns, subject.name, without.name, CALLS)
        table.add_row(
            subject.label,
            f"{added * 1e6:,.1f}",
            f"{added / bare:.1f}",
            f"{statistics.median(turn.spans for turn in turns[subject.name]):.1f}",
        )
    return table


def _where() -> str:
    return f"Python {platform.python_version()}, {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
