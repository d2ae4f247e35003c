"""Draw docs/images/near-loops.svg: ``python -m docs.images.near_loops FOLDER`` of recorded runs.

With ``-`` as a second argument, it is written to standard output.

Each row is a stretch that was read by hand, drawn from the start of its run; each mark is the first
step at which a signal reaches its threshold.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Final

from benchmarks.recorded_signals import NEAR_LOOP_SIGNALS, SeenRun, Stretch, seen_runs, stretches

_LEFT: Final = 250
_STEP: Final = 21
_ROW: Final = 26
_TOP: Final = 62
_COLORS: Final = ("#d1242f", "#bf5b04", "#0969da", "#1a7f37", "#8250df")
_BANDS: Final = {"true_loop": "#f3b8b5", "borderline": "#f2dca2", "legit_repeat": "#b9dfc1"}
_NAMES: Final = {"true_loop": "loop", "borderline": "borderline", "legit_repeat": "with a reason"}


def drawing(runs: dict[str, SeenRun], labelled: list[Stretch]) -> str:
    """The picture as SVG."""
    ordered = sorted(labelled, key=lambda one: list(_BANDS).index(one.kind))
    longest = max(one.end for one in ordered) + 1
    width, height = _LEFT + longest * _STEP + 20, _TOP + len(ordered) * _ROW + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<title>Where signals first reach their thresholds in stretches read by hand</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for at, (name, threshold) in enumerate(NEAR_LOOP_SIGNALS):
        x = 16 + at * 170
        parts.append(_mark(x, 20, at))
        parts.append(_text(x + 12, 24, f"{name} {threshold:g}"))
    for at, (kind, color) in enumerate(_BANDS.items()):
        x = 10 + at * 170
        parts.append(f'<rect x="{x}" y="36" width="14" height="12" fill="{color}"/>')
        parts.append(_text(x + 20, 46, _NAMES[kind]))
    for row, one in enumerate(ordered):
        parts += _row(runs[one.run], one, _TOP + row * _ROW)
    bottom = height - 14
    for step in range(0, longest, 5):
        parts.append(_text(_x(step), bottom, str(step), anchor="middle"))
    parts.append(_text(_LEFT - 12, bottom, "step", anchor="end"))
    return "\n".join([*parts, "</svg>", ""])


def _row(run: SeenRun, stretch: Stretch, y: int) -> list[str]:
    name = stretch.run if len(stretch.run) <= 31 else f"…{stretch.run[-30:]}"
    last = min(run.steps - 1, stretch.end)
    parts = [
        _text(_LEFT - 16, y + 16, name, anchor="end"),
        f'<line x1="{_x(0)}" x2="{_x(last)}" y1="{y + 12}" y2="{y + 12}" stroke="#afb8c1"/>',
        f'<rect x="{_x(stretch.start) - _STEP // 2}" y="{y + 3}" '
        f'width="{(stretch.end - stretch.start + 1) * _STEP}" height="18" '
        f'fill="{_BANDS[stretch.kind]}"/>',
    ]
    taken: dict[int, int] = {}
    for at, setting in enumerate(NEAR_LOOP_SIGNALS):
        step = run.first.get(setting)
        if step is None or step > stretch.end:
            continue
        beside = taken[step] = taken.get(step, -1) + 1
        parts.append(_mark(_x(step) - 6 + 4 * beside, y + 6 + 3 * beside, at))
    return parts


def _x(step: int) -> int:
    return _LEFT + step * _STEP


def _mark(x: int, y: int, at: int) -> str:
    return f'<circle cx="{x}" cy="{y}" r="4.5" fill="{_COLORS[at]}" stroke="#fff"/>'


def _text(x: int, y: int, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#1f2328">{escape(text)}</text>'


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    drawn = drawing(seen_runs(folder), stretches(folder))
    if sys.argv[2:] == ["-"]:
        sys.stdout.write(drawn)
    else:
        Path(__file__).with_name("near-loops.svg").write_text(drawn)
