"""Which answers chant, and what reading one takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.chanting import PAGE, found_after, tables
from benchmarks.chanting_texts import BEGINNING, CHANTS, ORDINARY

from support.requirements import missing
from tidegauge.chanting import CHANTING, MOST, SHORTEST_CHANT, Chanting, chanting_in

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.parametrize("name", CHANTS)
def test_a_chant_is_found_within_400_tokens(name: str) -> None:
    after = found_after(CHANTS[name])
    assert after is not None
    assert after <= 400


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_text_does_not_come_near(name: str) -> None:
    assert chanting_in(BEGINNING + ORDINARY[name]) < CHANTING / 2


def test_the_tables_of_the_page_are_those_of_the_recorded_runs() -> None:
    if not DATA.is_dir():
        missing(f"recorded runs are not at {DATA}; TIDEGAUGE_DATA can name their folder")
    found = tables(DATA)
    assert found in PAGE.read_text(), (
        "docs/metrics/chanting.md is out of date. Run: python -m benchmarks chanting FOLDER"
    )
    success = next(line for line in found.splitlines() if line.startswith("| success"))
    assert success.split("|")[4].strip() == "0"


@pytest.mark.parametrize(
    "grown",
    [
        lambda i: f"{i} I will read it once more, then I try the same again.\n",
        lambda i: f"x{i * i} y{i * i * i} z{i * 7919 % 1000} ",
        lambda i: "",
        lambda i: " " * 100,
        lambda i: "a" * 100,
        lambda i: f"place {'abcdefghij'[i % 10] * (i % 31)} and then again the number {i}, ",
    ],
    ids=["counts", "new", "empty", "blank", "one word", "places"],
)
def test_its_memory_does_not_grow(grown: Callable[[int], str]) -> None:
    chanting = Chanting()
    for i in range(8_000):
        chanting.add(grown(i))
        held = len(chanting._read) + len(chanting._rest) + sum(map(len, chanting._parts))
        assert held <= 632 + 160 + 64
        assert len(chanting._parts) <= 64
        assert len(chanting._numbers) <= 32


def test_what_comes_after_the_limit_is_not_read() -> None:
    chanting = Chanting()
    for i in range(MOST // 8):
        chanting.add(f"{i:08x}")
    assert chanting.highest == 0
    chanting.add("again " * 1_000)
    assert chanting.highest == 0


def test_the_shortest_text_that_can_repeat_anything_is_not_left_out() -> None:
    for unit in ("!", "a b", "x ", "- ", "\n", "1,"):
        for size in range(SHORTEST_CHANT):
            chanting = Chanting()
            chanting.add((unit * SHORTEST_CHANT)[:size])
            assert chanting.highest == 0
