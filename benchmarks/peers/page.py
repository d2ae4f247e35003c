"""The tables of ``docs/performance.md`` that are counted or measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.instructions import COMMITTED, Counts, ratios, verdict
from benchmarks.peers.marks import FLOOR, IMPORTS, KINDS

__all__ = ["PAGE", "PEERS", "filled", "write_page"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
PEERS: Final = Path(__file__).with_name("measured.json")

_BLOCK: Final = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end -->)", re.S)
_TABLES: Final = {
    "steps": ("handlers", "runs", "places", "decorators", "hooks", "engine", "caps", "repetition"),
    "received": ("received", "restored"),
    "imports": (),
}
"""Kinds of subjects by table; imports are no kind."""


def write_page() -> None:
    """Make every table again from the committed results."""
    PAGE.write_text(filled(PAGE.read_text()))


def filled(page: str) -> str:
    """The page with every table made again."""
    counted = json.loads(COMMITTED.read_text())
    measured = json.loads(PEERS.read_text())

    def table(block: re.Match[str]) -> str:
        name = block.group(2)
        if name in measured["tables"]:
            lines = _peers(measured["tables"][name])
        elif name == "counted":
            lines = f"{_where(counted['with'])}.\n"
        else:
            lines = _counts(counted["thousands"], _TABLES[name])
        return f"{block.group(1)}{lines}{block.group(3)}"

    return _BLOCK.sub(table, page)


def _counts(counts: Counts, kinds: Sequence[str]) -> str:
    names = [one.name for kind in kinds for one in KINDS[kind].subjects if one.name in counts]
    if not kinds:
        names = [one.name for one in IMPORTS]
    against, rows = ratios(counts), []
    for name in names:
        ratio, of, aim = verdict(name, counts)
        if not aim and name in against:
            ratio, of = f"{against[name]:.3g}", _yardstick(name)
        shown = f"{ratio} of {of}" if of else ""
        rows.append((name, f"{counts[name]:,.0f}", shown, aim.replace("missed", "**missed**")))
    return _table(("", "thousand instructions", "ratio", "aim"), rows)


def _yardstick(name: str) -> str:
    kinds = KINDS.values()
    return next(
        (kind.yardstick for kind in kinds for one in kind.subjects if one.name == name), FLOOR
    )


def _peers(rows: Iterable[dict[str, Any]]) -> str:
    heads = (
        "",
        "x in instructions",
        "x in processor time",
        "200 steps a run against 10",
        "spans a step",
    )
    cells = [
        tuple("" if row.get(key) is None else str(row[key]) for key in ROW)
        for row in rows
        if "fault" not in row
    ]
    filled_heads = [at for at in range(len(heads)) if any(row[at] for row in cells)]
    return _table(
        [heads[at] for at in filled_heads], [[row[at] for at in filled_heads] for row in cells]
    )


ROW: Final = ("name", "instructions", "time", "growth", "spans")
"""What a line about a peer has."""


def _where(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
