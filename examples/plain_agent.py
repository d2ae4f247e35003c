"""An agent without a framework: it loops, is nudged, has its calls blocked, and is stopped.

The model is a script that ignores all advice. For a real one, replace ``model``: it gets the advice
before it chooses, and the answer to a blocked call instead of a result.
"""

from __future__ import annotations

import tidegauge
from tidegauge import testing

SHELVES = {"left": "look on the right shelf", "right": "look on the left shelf"}


def model(messages: list[str]) -> str:
    """Follow the last hint, forever: return the shelf to look on."""
    hints = [message for message in messages if message.startswith("look on")]
    return hints[-1].split()[3] if hints else "left"


@tidegauge.tool(on_block=lambda decision: decision.advice)
def look(shelf: str) -> str:
    """Return what is on a shelf."""
    return SHELVES[shelf]


@tidegauge.agent(task_group="library", t_max=20, success=lambda answer: answer is not None)
def searcher(task: str) -> str | None:
    """The loop of every agent: the model chooses, the tool runs, the model gets the result."""
    messages = [task]
    for _ in range(100):
        if advice := tidegauge.get_current_run().nudge():
            print(f"nudge:\n  {advice.splitlines()[0]}")
            messages.append(advice)
        result = look(model(messages))
        if not result.startswith("look on"):
            print(f"blocked:\n  {result.splitlines()[0]}")
        messages.append(result)
    return None


def main() -> None:
    """Run the agent until it is stopped."""
    with testing.capture(nudge_on_loop=1, block_on_loop=2, stop_on_loop=3) as seen:
        try:
            searcher("find the atlas")
        except tidegauge.RunStopped as stop:
            print(f"stopped at step {stop.step}: {stop.message}")
        print(f"{len(seen.spans)} spans, the first of them {seen.tree()[0]!r}")


if __name__ == "__main__":
    main()
