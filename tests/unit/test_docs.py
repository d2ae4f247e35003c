"""What the documentation refers to exists, and what it shows is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegauge._version import __version__
from tidegauge.cli.worlds import survey_markdown
from tidegauge.worlds.survey import survey

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        ahead += [(page.parent / link).resolve() for link in links if "://" not in link]
    pages = {page.resolve() for page in ROOT.glob("docs/**/*.md")}
    assert pages - {page.resolve() for page in found} == set()


STARTS_OTHERWISE = {
    "evidence.md": "says first what was measured, and by which command",
    "performance.md": "says first by which command it is measured",
}


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted(ROOT.glob("docs/**/*.md"))
        if page.name not in STARTS_OTHERWISE
        and page.parent.name != "runbooks"  # these say first what their alert means
    ],
    ids=lambda page: page.name,
)
def test_a_page_says_first_what_its_reader_can_do(page: Path) -> None:
    first = page.read_text().split("\n\n")[1]
    assert re.search(r"\b[Yy]our?\b|^(Look up|Find) ", first), first
    assert len(first.split()) <= 75, f"{len(first.split())} words"


def test_the_survey_of_the_worlds_is_what_the_command_prints() -> None:
    table = survey_markdown(survey(range(20)))
    assert table in (ROOT / "docs" / "worlds.md").read_text(), (
        "write the table anew: tidegauge worlds --markdown"
    )


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
