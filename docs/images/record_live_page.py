"""Take the pictures of the live page: ``python docs/images/record_live_page.py``.

Eight agents without a model run in this process; a headless Chromium opens the page in light and in
dark mode. Needs chromium.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright
from shown import write

import tidegauge
from tidegauge.policies import Rule

HERE: Final = Path(__file__).parent
AGENTS: Final = (
    "solver",
    "looper",
    "looper-twin",
    "retrier",
    "wanderer",
    "surveyor",
    "reader",
    "clerk",
)
TOOLS: Final = ("search_archive", "open_page", "read_document", "follow_link", "write_note")
RULES: Final = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 6, "stop", agent="looper"),
    Rule("result_streak", 5),
]
SECONDS: Final = 12.0  # at least; then until two runs loop for longer


def work(agent: str, ended: threading.Event) -> None:
    """Run after run; loopers repeat three steps after a while, the retrier makes no progress."""
    draw = random.Random(agent)  # noqa: S311 -- reproducible
    while not ended.is_set():
        with (
            contextlib.suppress(tidegauge.RunStopped),
            tidegauge.run(agent=agent, task="a fact", task_group="archive", t_max=50) as run,
        ):
            loops_from, last = draw.randint(8, 14), draw.randint(24, 44)
            for step in range(last):
                tool, asked = draw.choice(TOOLS), f"{step}"
                if agent.startswith("looper") and step >= loops_from:
                    tool, asked = TOOLS[step % 3], f"{step % 3}"
                elif agent == "wanderer":
                    asked = f"{draw.randint(0, 9)}"
                found = "down" if agent == "retrier" and step > 5 else f"{tool} {asked}"
                run.act(tool, {"what": asked}, tokens=draw.randint(80, 400))
                time.sleep(draw.uniform(0.2, 0.8))
                run.observe(found)
                if ended.is_set():
                    return
            run.finish(success=agent in ("solver", "surveyor", "reader"))


def main() -> None:
    """Run the agents, open the page, and write the pictures."""
    pipeline = tidegauge.configure(metrics_port=0, rules=RULES)
    ended = threading.Event()
    workers = [threading.Thread(target=work, args=(agent, ended)) for agent in AGENTS]
    for worker in workers:
        worker.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        pages = {}
        for scheme in ("light", "dark"):
            pages[scheme] = browser.new_page(
                color_scheme=scheme,  # type: ignore[arg-type]
                viewport={"width": 1400, "height": 900},
                reduced_motion="reduce",
            )
            pages[scheme].goto(str(pipeline.page_url))
        time.sleep(SECONDS)
        while sum(run.loop_repeats > 2 for run in pipeline.engine.snapshot().active) < 2:
            time.sleep(0.1)
        for scheme, page in pages.items():
            page.wait_for_timeout(600)  # until the page has polled again
            page.screenshot(path=HERE / f"live-page-{scheme}.png")
        browser.close()
    ended.set()
    for worker in workers:
        worker.join()
    write("live-page")


if __name__ == "__main__":
    main()
