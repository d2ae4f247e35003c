"""Tables in every width: no name is cut, no number is lost, nothing is wider than the terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tidegauge.cli.terminal import TextTable

NAMES = ("task group", "agent", "score")
NUMBERS = ("successful runs", "of these stopped", "steps saved", "tokens saved", "delay")
WORDS = st.text("abcdefgh 作業-", min_size=1, max_size=12).map(str.strip).filter(bool)


def table(*rows: tuple[str, ...]) -> TextTable:
    made = TextTable(NAMES, NUMBERS)
    for row in rows:
        made.add(*row)
    return made


@given(
    st.lists(st.tuples(*[WORDS] * 3, *[st.integers(0, 10**7).map(str)] * 5), min_size=1, max_size=6)
)
def test_no_cell_is_cut_in_80_columns(rows: list[tuple[str, ...]]) -> None:
    lines = list(table(*rows).lines(80))
    assert max(map(cell_len, lines)) <= 80
    text = "\n".join(lines)
    for row in rows:
        for cell in row:
            if cell != "-":
                assert cell in text


@pytest.mark.parametrize("width", range(40, 120, 3))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [(f"group {n // 3}", f"agent-{n}", "stagnation", *["12.5%"] * 5) for n in range(7)]
    lines = list(table(*rows).lines(width))
    assert max(map(len, lines)) <= width
    assert sum(line.count("12.5%") for line in lines) == 35


def test_columns_without_a_value_make_room() -> None:
    row = ("shop", "browser", "-", "30 of 40", "4.8% [0-28%]", "39.2% [25-66%]", "-", "+1.1")
    head, headings, shop = table(row).lines(64)
    assert "score" not in head + headings
    assert "tokens" not in head + headings
    assert shop.split() == [part for cell in row if cell != "-" for part in cell.split()]
    assert "tokens saved" in next(iter(table(row).lines(None)))


def test_rows_that_share_a_name_share_its_line() -> None:
    rows = [("shop", agent, "-", "1", "2", "3", "4", "5") for agent in ("browser", "shell")]
    lines = list(table(*rows).lines(55))
    assert [line.strip() for line in lines].count("shop") == 1
    assert [re.split(r"\s+", line.strip())[0] for line in lines[-2:]] == ["browser", "shell"]


def test_numbers_that_are_too_wide_follow_in_a_further_table() -> None:
    row = ("shop", "browser", "x", *["1234567890"] * 5)
    first, second = "\n".join(table(row).lines(58)).split("\n\n")
    assert first.count("browser") == second.count("browser") == 1
    assert first.count("1234567890") + second.count("1234567890") == 5


def test_without_rows_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table().print()
    assert capsys.readouterr().out == ""
