"""An agent without a framework: it falls into a loop, is told, has its calls blocked, is stopped.

The model is a script that heeds nothing it is told. Whatever a real one needs goes where ``model``
is called: the advice before it chooses, the answer of a blocked call in place of its result.
"""

from __future__ import annotations

import tidegauge
from tidegauge import testing

SHELVES = {"left": "look on the right shelf", "right": "look on the left shelf"}


def model(messages: list[str]) -> str:
    """Follows the last hint that it was given, for ever; returns the shelf to look on."""
    hints = [message for message in messages if message.startswith("look on")]
    return hints[-1].split()[3] if hints else "left"


@tidegauge.tool(on_block=lambda decision: decision.advice)
def look(shelf: str) -> str:
    """What stands on a shelf."""
    return SHELVES[shelf]


@tidegauge.agent(task_group="library", t_max=20, success=lambda answer: answer is not None)
def searcher(task: str) -> str | None:
    """The loop of every agent: the model chooses, the tool is called, the model is told."""
    messages = [task]
    for _ in range(100):
        if advice := tidegauge.get_current_run().nudge():
            print(f"the model is told:\n  {advice.splitlines()[0]}")
            messages.append(advice)
        result = look(model(messages))
        if not result.startswith("look on"):
            print(f"a call is answered, not run:\n  {result.splitlines()[1]}")
        messages.append(result)
    return None


def main() -> None:
    """Run it until it is stopped."""
    with testing.capture(nudge_on_loop=1, block_on_loop=2, stop_on_loop=3) as seen:
        try:
            searcher("find the atlas")
        except tidegauge.RunStopped as stop:
            print(f"stopped at step {stop.step}: {stop.message}")
        print(f"{len(seen.spans)} spans, the first of them {seen.tree()[0]!r}")


if __name__ == "__main__":
    main()
