"""The pictures of the page, as SVG: points with intervals, bars, and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

__all__ = ["bars", "intervals", "lines"]

_COLORS: Final = ("#0969da", "#bf5b04", "#1a7f37", "#8250df", "#d1242f")
_LEFT: Final = 220
_WIDTH: Final = 760
_ROW: Final = 22


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            'font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#1f2328">{escape(text)}</text>'
    )


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for at, name in enumerate(names):
        x = 12 + at * 150
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{_COLORS[at]}"/>')
        parts.append(_text(x + 18, 22, name))
    return parts


def _axis(low: float, high: float, bottom: int, marks: Sequence[float], form: str) -> list[str]:
    parts = []
    for mark in marks:
        x = _LEFT + (mark - low) / (high - low) * (_WIDTH - _LEFT - 30)
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="34" y2="{bottom}" stroke="#d1d9e0"/>')
        parts.append(_text(x, bottom + 16, format(mark, form), "middle"))
    return parts


def intervals(title: str, rows: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> str:
    """A point with its interval for each row and series; the axis is that of an AUC."""
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    low, high = 0.0, 1.0
    height = 60 + len(rows) * _ROW * max(1, len(series)) // 2 + 20
    parts = [
        *_legend(series),
        *_axis(low, high, height - 24, (0, 0.25, 0.5, 0.75, 1), ".2f"),
    ]

    def x(value: float) -> float:
        return _LEFT + (min(max(value, low), high) - low) / (high - low) * (_WIDTH - _LEFT - 30)

    step = _ROW * max(1, len(series)) / 2
    for at, (name, row) in enumerate(rows.items()):
        y = 50 + at * step
        parts.append(_text(_LEFT - 12, y + 4, name, "end"))
        for of, (value, least, most) in row.items():
            index = series.index(of)
            own = y + 7 * (index - (len(series) - 1) / 2)
            parts.append(
                f'<line x1="{x(least):.1f}" x2="{x(most):.1f}" y1="{own:.1f}" y2="{own:.1f}" '
                f'stroke="{_COLORS[index]}" stroke-width="2"/>'
            )
            parts.append(
                f'<circle cx="{x(value):.1f}" cy="{own:.1f}" r="4" fill="{_COLORS[index]}"/>'
            )
    return _svg(height, title, parts)


def bars(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A bar for each row and series, of shares from 0 to 1."""
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    step = 9 * len(series) + 10
    height = 44 + len(rows) * step + 30
    parts = [*_legend(series), *_axis(0, 1, height - 24, (0, 0.2, 0.4, 0.6, 0.8, 1), ".0%")]
    for at, (name, row) in enumerate(rows.items()):
        y = 40 + at * step
        parts.append(_text(_LEFT - 12, y + step / 2, name, "end"))
        for of, value in row.items():
            index = series.index(of)
            width = value * (_WIDTH - _LEFT - 30)
            parts.append(
                f'<rect x="{_LEFT}" y="{y + 9 * index}" width="{width:.1f}" height="8" '
                f'fill="{_COLORS[index]}"/>'
            )
    return _svg(height, title, parts)


def lines(title: str, series: Mapping[str, Sequence[float]], *, most: float, bound: float) -> str:
    """Lines over generations, of shares, and a dashed line at the bound."""
    height, top, left = 300, 40, 60
    parts = _legend(list(series))

    def y(share: float) -> float:
        return height - 40 - share / most * (height - 40 - top)

    for mark in [most * part / 4 for part in range(5)]:
        parts.append(
            f'<line x1="{left}" x2="{_WIDTH - 20}" y1="{y(mark):.0f}" y2="{y(mark):.0f}" '
            'stroke="#d1d9e0"/>'
        )
        parts.append(_text(left - 8, y(mark) + 4, f"{mark:.0%}", "end"))
    parts.append(
        f'<line x1="{left}" x2="{_WIDTH - 20}" y1="{y(bound):.0f}" y2="{y(bound):.0f}" '
        'stroke="#1f2328" stroke-dasharray="5 4"/>'
    )
    for index, values in enumerate(series.values()):
        width = (_WIDTH - left - 40) / max(len(values) - 1, 1)
        points = " ".join(
            f"{left + 10 + at * width:.1f},{y(one):.1f}" for at, one in enumerate(values)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_COLORS[index]}" stroke-width="2"/>'
        )
        for at in range(len(values)):
            if not index:
                parts.append(_text(left + 10 + at * width, height - 18, str(at + 1), "middle"))
    return _svg(height, title, parts)
