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


def test_the_survey_of_the_worlds_is_what_the_command_prints() -> None:
    table = survey_markdown(survey(range(20)))
    assert table in (ROOT / "docs" / "worlds.md").read_text(), (
        "write the table anew: tidegauge worlds --markdown"
    )


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
