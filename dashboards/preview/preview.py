"""Draws the dashboards as Grafana does, over a real Prometheus, and takes their pictures.

A fleet of scripted agents works for some minutes while a Prometheus scrapes it every second. Then
a page that draws dashboards with Grafana's own libraries is opened in a headless Chromium. Needs
prometheus, chromium, and the page built (``npm install && npm run build``).
"""

# ruff: noqa: T201 -- prints its progress
from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
import urllib.parse
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Final, NamedTuple

from fleet import RULES, T_MAX, Fleet
from pictures import served, take_picture
from prometheus import prometheus

import tidegauge
import tidegauge.dashboards

BOARDS: Final = Path(tidegauge.dashboards.__file__).parent
IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"

WIDTH: Final = 1500
CELL_HEIGHT: Final = 38
"""Of the grid that panels lie on, in pixels."""

LOST: Final = """
topk(1, (tidegauge_run_steps > 30) and on (run) (tidegauge_run_loop_repeats > 7))
and on () (sum(tidegauge_runs_looping) > 2)
"""
"""The longest run of those that have been in a loop for a while, once several runs are in one."""


class Day(NamedTuple):
    """What was scraped.

    Attributes:
        began: when the fleet began to work, in seconds since 1970.
        ended: when it was scraped last.
        run: the run to be shown on the dashboard of one run.
    """

    began: float
    ended: float
    run: str


class Picture(NamedTuple):
    """A dashboard to be drawn.

    Attributes:
        name: of the file.
        board: uid of the dashboard.
        seconds: how much of the day it shows, up to its end; 0 for all of it.
        rows: how many rows of panels it shows, from the top; 0 for all of them.
        controls: height of its variables, in pixels.
    """

    name: str
    board: str
    seconds: float = 0
    rows: int = 0
    controls: int = 60

    def address(self, site: str, prometheus: str, day: Day, theme: str) -> str:
        """The page that shows it."""
        asked = {
            "board": self.board,
            "prometheus": prometheus,
            "theme": theme,
            "from": f"{1000 * (day.ended - self.seconds if self.seconds else day.began):.0f}",
            "to": f"{1000 * day.ended:.0f}",
            "var-steps": "1m",
            "var-window": "5m",
            "var-run": day.run,
        }
        return f"{site}/?{urllib.parse.urlencode(asked)}"

    def height(self) -> int:
        """Of the page, in pixels."""
        listed = json.loads((BOARDS / f"{self.board}.json").read_text())["panels"]
        panels = [one for panel in listed for one in (panel, *panel.get("panels", ()))]
        rows = [panel["gridPos"]["y"] for panel in panels if panel["type"] == "row"]
        bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
        return self.controls + CELL_HEIGHT * int(rows[self.rows] if self.rows else bottom)


PICTURES: Final = (
    Picture("dashboard-fleet", "tidegauge-fleet", rows=3),
    Picture("dashboard-run", "tidegauge-run", seconds=60, rows=2, controls=100),
    Picture("dashboard-diagnosis", "tidegauge-diagnosis", rows=3),
)


def main() -> None:
    """Watch a fleet, then draw the dashboards."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=12, help="how long the fleet works")
    parser.add_argument("--data", type=Path, help="keep what was scraped here; draw it if it is")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    parser.add_argument("--all", action="store_true", help="draw all rows of each dashboard")
    parser.add_argument("--serve", action="store_true", help="then serve the page until Ctrl-C")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = asked.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        day = a_day(folder, asked.minutes)
        server = stack.enter_context(prometheus(folder))
        site = stack.enter_context(served(BOARDS))
        for picture in PICTURES:
            shown = picture._replace(rows=0) if asked.all else picture
            address = shown.address(site.url, server.url, day, asked.theme)
            file = asked.out / f"{picture.name}.png"
            take_picture(site, address, (WIDTH, shown.height()), file)
            print(f"{file.name}: {file.stat().st_size // 1024} KiB")
            if asked.serve:
                print(address)
        if asked.serve:
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


def a_day(folder: Path, minutes: float) -> Day:
    """The day that the folder holds; if it holds none, let a fleet work and scrape it."""
    kept = folder / "day.json"
    if kept.is_file():
        return Day(**json.loads(kept.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"the fleet works for {minutes:g} minutes")
    pipeline = tidegauge.configure(
        rules=RULES, t_max=T_MAX, metrics_port=0, capture_content=True, repetition=True
    )
    target = urllib.parse.urlsplit(str(pipeline.metrics_url)).netloc
    fleet, began = Fleet(60 * minutes), time.time()
    # Prometheus ends first: that the fleet goes home is not part of the day.
    with fleet.at_work() as workers, prometheus(folder, target) as server:
        failed, _ = wait(workers, timeout=60 * minutes, return_when=FIRST_COMPLETED)
        for worker in failed:
            worker.result()
        while not (lost := server.ask(LOST)):
            time.sleep(1)
        day = Day(began, time.time(), lost[0]["metric"]["run"])
    kept.write_text(json.dumps(day._asdict()))
    return day


if __name__ == "__main__":
    main()
