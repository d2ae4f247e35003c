"""What the pictures show, as texts: ``python docs/images/shown.py`` writes it to ``shown.json``.

The scripts that take a picture write its entry with :func:`write`. A test compares the entries with
what the code shows now: if they differ, the picture is out of date, and must be taken again.
"""

from __future__ import annotations

import html
import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import tidegauge
from tidegauge import testing

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ENTRIES: Final = HERE / "shown.json"
PACKAGE: Final = Path(tidegauge.__file__).parent


def page(file: Path) -> list[str]:
    """The headings, labels and buttons of an HTML page."""
    text = file.read_text(encoding="utf-8")
    found = re.findall(r"<(h1|h2|dt|th|option|a|button|span)\b[^>]*>([^<]+)<", text)
    return [html.unescape(words).strip() for _, words in found]


def panels(name: str, rows: int) -> list[str]:
    """The titles of the first rows of a dashboard, and of their panels."""
    board = json.loads((PACKAGE / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    titles: list[str] = []
    for panel in board["panels"]:
        rows -= panel["type"] == "row"
        if rows < 0:
            break
        titles.append(panel["title"])
    return titles


def spans() -> list[str]:
    """The spans of the team whose traces are shown by backends."""
    sys.path.append(str(ROOT / "examples" / "backends"))
    team = importlib.import_module("team_agent")
    with testing.capture(capture_content=True, stop_on_loop=3) as seen:
        team.run_twice()
    return sorted(seen.tree())  # parallel tools start in any order


LIVE_PAGE: Final = PACKAGE / "exporters" / "page" / "static" / "index.html"
REPORT: Final = PACKAGE / "diagnose" / "report" / "static" / "report.html"

SHOWS: Final[dict[str, Callable[[], list[str]]]] = {
    "live-page": lambda: page(LIVE_PAGE),
    "report": lambda: page(REPORT),
    "dashboard-fleet": lambda: panels("tidegauge-fleet", 3),
    "dashboard-run": lambda: panels("tidegauge-run", 2),
    "dashboard-diagnosis": lambda: panels("tidegauge-diagnosis", 3),
    "phoenix": spans,
    "mlflow": spans,
}
"""The pictures of a name start with it: ``live-page`` is in light and in dark."""


def write(*names: str) -> None:
    """Say that the pictures of these names were taken now."""
    entries = json.loads(ENTRIES.read_text(encoding="utf-8")) if ENTRIES.exists() else {}
    entries |= {name: SHOWS[name]() for name in names}
    ENTRIES.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(*(sys.argv[1:] or SHOWS))
