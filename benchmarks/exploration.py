"""What a step costs in a known graph of 10,000 places, with and without errors.

Gain asks whether any target is nearer than before. Its search starts from both ends of the move and
stops at the first target that is nearer, so that a step towards something near is cheap; the worst
case is a move away from the only target, far off, where every place has to be looked at.
"""

from __future__ import annotations

import random
import statistics
import time

from benchmarks.measure import Line
from tidegauge.events import Identity, Task
from tidegauge.streaming_metrics import Exploration, ObservedStep

SIDE = 100
STEPS = 300

Cell = tuple[int, int]


def _neighbours(cell: Cell) -> tuple[Cell, ...]:
    x, y = cell
    near = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
    return tuple((a, b) for a, b in near if 0 <= a < SIDE and 0 <= b < SIDE)


def _explored(*, but: set[Cell], tasks: tuple[Task, ...] = ()) -> Exploration:
    """A grid in which all is visited but a few cells, ending in its first corner."""
    run = Exploration(place=(0, 0), exits=_neighbours((0, 0)), reach="adjacent")
    t = 0
    rows: list[list[Cell]] = [[(x, y) for x in range(SIDE)] for y in range(SIDE)]
    for y, row in enumerate(rows):
        for cell in row if y % 2 == 0 else reversed(row):
            if cell not in but:
                here: Identity = cell
                found = tasks if cell == (SIDE // 2, SIDE // 2) else ()
                run.update(ObservedStep(t, place=here, exits=_neighbours(cell), tasks=found))
                t += 1
    return run


def _walk(run: Exploration, *, around: Cell) -> tuple[float, float]:
    """Median microseconds of a step near a cell, and the share of errors."""
    rng = random.Random(1)
    taken, errors = [], 0
    here = around
    run.update(ObservedStep(0, place=here))
    for t in range(STEPS):
        near = [c for c in _neighbours(here) if abs(c[0] - around[0]) + abs(c[1] - around[1]) < 4]
        here = rng.choice(near)
        step = ObservedStep(t, place=here)
        began = time.perf_counter()
        run.update(step)
        taken.append(time.perf_counter() - began)
        errors += bool(run.error)
    return statistics.median(taken) * 1e6, errors / STEPS


def measure() -> list[Line]:
    """Microseconds a step, by where the targets are."""
    everywhere = {(x, y) for x in range(3, SIDE - 3, 6) for y in range(3, SIDE - 3, 6)}
    near, near_errors = _walk(_explored(but=everywhere), around=(10, 10))
    far, far_errors = _walk(_explored(but={(SIDE - 1, SIDE - 1)}), around=(4, 4))
    done, done_errors = _walk(_explored(but=set()), around=(4, 4))
    return [
        Line("step with targets all around", near, "µs", note=f"{near_errors:.0%} errors"),
        Line("step with one target, 190 moves away", far, "µs", note=f"{far_errors:.0%} errors"),
        Line("step with nothing left to find", done, "µs", note=f"{done_errors:.0%} errors"),
    ]
