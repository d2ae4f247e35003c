"""The tables of the page, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = ["filled", "numbers_of", "shown"]

_BLOCK: Final = re.compile(r"(<!-- begin (\w+) (\w+) -->\n).*?(<!-- end -->)", re.S)


def filled(page: str, found: Mapping[str, Any]) -> str:
    """The page with every table made again; a block names a table and a set of recordings."""

    def table(block: re.Match[str]) -> str:
        name, of = block.group(2), block.group(3)
        if of not in found["sets"]:
            return block.group(0)
        return block.group(1) + TABLES[name](found["sets"][of]) + block.group(4)

    return _BLOCK.sub(table, page)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _families(one: Mapping[str, Any]) -> str:
    return _table(
        ("task group", "runs", "failed", "tasks", "steps"),
        [
            (row["name"], *(f"{row[name]:,}" for name in ("runs", "failed", "tasks", "steps")))
            for row in one["families"]
        ],
    )


def _groups(one: Mapping[str, Any]) -> str:
    names = ("steps_begun", "stagnation", "learned", "oracle")
    rows = [
        (
            row["task_group"],
            row["agent"],
            *(_percent(row[name]["saved"]) for name in names),
            _percent(row["stagnation"]["good_stopped"]),
            _percent(row["learned"]["good_stopped"]),
        )
        for row in one["groups"]
    ]
    means = one["means"]
    rows.append(
        (
            "**mean**",
            "",
            *(f"**{_percent(means[name]['saved'])}**" for name in names),
            f"**{_percent(means['stagnation']['good_stopped'])}**",
            f"**{_percent(means['learned']['good_stopped'])}**",
        )
    )
    heads = ("task group", "agent", "steps begun", "stagnation", "learned", "oracle")
    stopped = ("successful runs stopped: stagnation", "learned")
    return _table((*heads, *stopped), rows)


def _tried(one: Mapping[str, Any]) -> str:
    return _table(
        (
            "learned score",
            "steps saved",
            "times stagnation",
            "times steps begun",
            "successful runs stopped",
        ),
        [
            (
                label,
                _percent(row["saved"]),
                f"{row['times_stagnation']:.2f}",
                f"{row['times_steps_begun']:.2f}",
                _percent(row["good_stopped_mean"]),
            )
            for label, row in one["tried"].items()
        ],
    )


def _sizes(one: Mapping[str, Any]) -> str:
    return _table(
        ("guarantee", "runs", "groups", "successful runs stopped", "calibrations above alpha"),
        [
            (
                row["guarantee"],
                str(row["runs"]),
                str(row["groups"]),
                _percent(row["stopped"]),
                _percent(row["draws_above_alpha"]),
            )
            for row in one["calibration_size"]
        ],
    )


def _ratchet(one: Mapping[str, Any]) -> str:
    grown = one["ratchet"]
    shown_at = (1, 2, 4, 7, 10)
    return _table(
        ("recalibrated on", *(f"generation {at}" for at in shown_at)),
        [
            (name, *(_percent(grown[key][at - 1]) for at in shown_at))
            for name, key in (("what is left", "without"), ("a holdout", "holdout"))
        ],
    )


TABLES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "families": _families,
    "groups": _groups,
    "tasks": lambda one: _groups(one["by_task"]),
    "tried": _tried,
    "sizes": _sizes,
    "ratchet": _ratchet,
}


def shown(value: Any) -> set[str]:
    """Every form in which the page may show a number of the document."""
    if isinstance(value, bool) or value is None:
        return set()
    if isinstance(value, int):
        return {str(value), f"{value:,}"}
    if isinstance(value, float):
        return {f"{value:.1%}", f"{value:.0%}", f"{value:.2f}", f"{value:g}"}
    if isinstance(value, Mapping):
        return set().union(*map(shown, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(shown, value)) | {str(at) for at in range(1, len(value) + 1)}
    return set()


_NUMBER: Final = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?%?(?![\w])")


def numbers_of(page: str) -> list[str]:
    """Every number of the page, without code, links and names."""
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->", " ", page, flags=re.S)
    return [one.rstrip(",") for one in _NUMBER.findall(text)]
