"""The page about performance says what was counted and measured."""

from __future__ import annotations

import re

from benchmarks.peers.marks import AIMS, IMPORTS, KINDS
from benchmarks.peers.page import PAGE, filled


def test_the_tables_are_those_of_the_results() -> None:
    page = PAGE.read_text()
    assert filled(page) == page, "make bench-instructions, or make bench-peers, writes the page"


def test_another_figure_would_be_noticed() -> None:
    page = PAGE.read_text()
    begin = page.index("<!-- begin steps -->")
    changed = page[:begin] + re.sub(r"\d(?=\.\d\d of)", "9", page[begin:], count=1)
    assert changed != page
    assert filled(changed) == page


def test_every_aim_is_one_of_a_subject_that_is_counted() -> None:
    names = [one.name for kind in KINDS.values() for one in kind.subjects[1:]]
    names += [one.name for one in IMPORTS]
    assert len(names) == len(set(names))
    assert AIMS.keys() | {aim.of for aim in AIMS.values()} <= set(names)
