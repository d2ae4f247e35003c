"""Take the pictures of the report: ``python docs/images/record_report.py``.

Scripted agents walk through grids and read documents, 20 tasks each, and are recorded; a headless
Chromium opens the report of these recordings. Needs chromium.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import orjson
from click.testing import CliRunner
from playwright.sync_api import sync_playwright
from shown import write

from tidegauge.cli.main import cli
from tidegauge.worlds import GridWorld
from tidegauge.worlds.document_world import SCRIPTS, Desk, DocumentWorld, play
from tidegauge.worlds.grid import GRID_AGENTS
from tidegauge.worlds.task_graph import Recording

HERE: Final = Path(__file__).parent
TASKS: Final = 20
T_MAX: Final = 40


def grid_runs() -> list[dict[str, Any]]:
    """Every agent of the grid, in the same worlds."""
    events: list[dict[str, Any]] = []
    for name, agent in GRID_AGENTS.items():
        for seed in range(TASKS):
            world = GridWorld(seed=seed)
            recording = Recording(f"grid/{name}-{seed:02}", agent=name, **world.start())
            walk = world.walk(recording)
            agent(walk, random.Random(seed))  # noqa: S311 -- reproducible
            recording.finish(success=walk.solved)
            recording.events[0]["task_group"] = "grid"
            events += recording.events
    return events


def document_runs() -> list[dict[str, Any]]:
    """Every script at the desk; every other run of the wanderer has a memory, which helps it."""
    events: list[dict[str, Any]] = []
    for name, script in SCRIPTS.items():
        for seed in range(TASKS):
            world = DocumentWorld(seed=seed)
            task = world.tasks[seed % len(world.tasks)]
            desk = Desk(world, task)
            run = f"documents/{name}-{seed:02}"
            events.append(
                {"type": "start", "run": run, "agent": name, "task_group": "documents",
                 "task": f"What is the {task.fact} of {task.station}?", "t_max": T_MAX}
            )  # fmt: skip
            for call, outcome, failed in play(script(task, random.Random(seed)), desk):  # noqa: S311
                events.append(
                    {"type": "step", "run": run, "action": call.action, "args": call.arguments,
                     "outcome": outcome, "error": failed}
                )  # fmt: skip
            events.append({"type": "end", "run": run, "success": desk.solved})
    return events


def main() -> None:
    """Record the runs, open the report, and write the pictures."""
    folder = Path(tempfile.mkdtemp())
    recording, page_file = folder / "runs.jsonl", folder / "report.html"
    events = grid_runs() + document_runs()
    recording.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    made = CliRunner().invoke(cli, ["report", str(recording), "-o", str(page_file)])
    if made.exit_code:
        raise SystemExit(made.output)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        looper = next(i for i, run in enumerate(_ids(events)) if run == "documents/looper-00")
        for name, view, scheme in (
            ("overview", "overview", "light"),
            ("patterns", "patterns", "dark"),
            ("run", f"run/{looper}", "light"),
        ):
            context = browser.new_context(
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": 1400, "height": 1000},
            )
            page = context.new_page()
            page.goto(f"file://{page_file}#{view}")
            page.wait_for_selector("#opening", state="hidden")
            page.wait_for_timeout(1_000)
            page.screenshot(path=HERE / f"report-{name}.png")
            context.close()
        browser.close()
    write("report")


def _ids(events: list[dict[str, Any]]) -> list[str]:
    return [event["run"] for event in events if event["type"] == "start"]


if __name__ == "__main__":
    main()
