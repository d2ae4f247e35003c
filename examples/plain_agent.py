"""An agent without a framework that falls into a loop and is stopped.

Run it, then look at what it would have told Prometheus: the last lines it prints.
"""

from __future__ import annotations

import tidegauge
from tidegauge import testing

SHELVES = {"left": "look on the right shelf", "right": "look on the left shelf"}


@tidegauge.tool
def look(shelf: str) -> str:
    """What stands on a shelf."""
    return SHELVES[shelf]


@tidegauge.agent(task_group="library", t_max=20, success=lambda answer: answer is not None)
def searcher(task: str) -> str | None:
    """Follows every hint that it is given, for ever."""
    shelf = "left"
    for _ in range(100):
        hint = look(shelf)
        shelf = hint.split()[3]
    return None


def main() -> None:
    """Run it until it is stopped."""
    with testing.capture(stop_on_loop=2) as seen:
        try:
            searcher("find the atlas")
        except tidegauge.RunStopped as stop:
            print(f"stopped at step {stop.step}: {stop.message}")
        print(f"{len(seen.spans)} spans, the first of them {seen.tree()[0]!r}")


if __name__ == "__main__":
    main()
