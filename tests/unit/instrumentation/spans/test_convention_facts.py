"""Every fact of a convention is in its file: what is made of these facts elsewhere is up to date.

`announce.py` and `redact.py` import nothing of tidegauge. Their tables are written into them, as
the docs' table is, by ``python tests/unit/instrumentation/spans/test_convention_facts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tidegauge import announce, redact
from tidegauge.foreign_spans.convention_reader import (
    CONVENTIONS,
    content_hint,
    looks_like_agent,
)
from tidegauge.foreign_spans.conventions import Convention

ROOT: Final = Path(__file__).parents[4]
BEGIN: Final = "# What follows is written from the conventions, by test_convention_facts.py.\n"
END: Final = "# End of what is written.\n"
TABLE: Final = "| convention | a span of it has | written by |\n| --- | --- | --- |\n"
SECRET: Final = "4929-1234"

by_name = pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda one: one.name)


def _literal(text: str) -> str:
    return repr(text) if '"' in text else f'"{text}"'


def _tuple(texts: tuple[str, ...]) -> str:
    inside = ", ".join(map(_literal, texts))
    return f"({inside},)" if len(texts) == 1 else f"({inside})"


def _lines(texts: Iterable[str]) -> str:
    return "".join([f"    {_literal(text)},\n" for text in texts])


def announce_tables() -> str:
    """What `announce.py` knows of the conventions."""
    kinds = {key: values for one in CONVENTIONS for key, values in one.announces.items()}
    lines = [f"    {_literal(key)}: {_tuple(kinds[key])},\n" for key in sorted(kinds)]
    names = [name for one in reversed(CONVENTIONS) for name in one.agent_names]
    return (
        f"_KINDS: Final = {{\n{''.join(lines)}}}\n"
        '"""Attributes that say what a span is, and their values for agents."""\n'
        f"_AGENT_NAMES: Final = (\n{_lines(dict.fromkeys(names))})\n"
    )


def redact_tables() -> str:
    """What `redact.py` knows of the conventions."""
    starts = {start for one in CONVENTIONS for start in one.contents}
    return f"_STARTS: Final = (\n{_lines(sorted(starts))})\n"


def docs_table() -> str:
    """The rows of the docs."""
    rows = [one for one in reversed(CONVENTIONS) if one.written_by]
    return "".join([f"| {one.name} | {one.shown} | {one.written_by} |\n" for one in rows])


def _between(begin: str, end: str, table: Callable[[], str]) -> Callable[[str], str]:
    def written(page: str) -> str:
        before, found, rest = page.partition(begin)
        assert found, f"no line {begin!r}"
        return before + begin + table() + rest[rest.index(end) :]

    return written


WRITTEN: Final[Mapping[Path, Callable[[str], str]]] = {
    ROOT / "src/tidegauge/announce.py": _between(BEGIN, END, announce_tables),
    ROOT / "src/tidegauge/redact.py": _between(BEGIN, END, redact_tables),
    ROOT / "docs/external-spans.md": _between(TABLE, "\nMessages are read", docs_table),
}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_what_is_written_from_the_conventions_is_up_to_date(path: Path) -> None:
    page = path.read_text()
    assert page == WRITTEN[path](page), (
        f"{path.name} is out of date. "
        "Run: .venv/bin/python tests/unit/instrumentation/spans/test_convention_facts.py"
    )


@by_name
def test_contents_of_it_are_redacted(convention: Convention) -> None:
    redaction = redact.Redaction(b"key")
    for start in convention.contents:
        sent = {f"{start}whatever": SECRET}
        assert SECRET not in str(redaction.attributes(sent)), f"redact.py does not know {start!r}"
    for marker in convention.markers if convention.written_by else ():
        known = marker.startswith(convention.contents)
        assert known, f"{convention.name}: {marker!r} begins like none of `contents`"


@by_name
def test_its_agents_are_announced(convention: Convention) -> None:
    for key, values in convention.announces.items():
        for value in values:
            said = {key: value}
            assert convention.encloses(said), f"{convention.name}: {said} encloses no run"
            assert announce._is_agent("run", said), f"announce.py does not know {said}"


@by_name
def test_its_hints_are_given(convention: Convention) -> None:
    for scope, hint in convention.hints.items():
        assert content_hint(scope) == hint, f"{convention.name}: no hint for {scope!r}"


@by_name
def test_what_looks_like_it_is_found(convention: Convention) -> None:
    for start in convention.looks_alike:
        assert looks_like_agent([f"{start}whatever"]), f"{convention.name}: {start!r} is not found"


@by_name
def test_the_docs_say_who_writes_it(convention: Convention) -> None:
    assert bool(convention.shown) == bool(convention.written_by), (
        f"{convention.name}: docs/external-spans.md needs both `shown` and `written_by`"
    )


if __name__ == "__main__":
    for path, written in WRITTEN.items():
        path.write_text(written(path.read_text()))
