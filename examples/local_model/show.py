"""The output: a line for each step, the interventions of tidegauge, and the map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from rich.console import Console
from rich.text import Text

from tidegauge.instrumentation.langchain import stopped_by
from tidegauge.streaming_metrics import Engine, RunReport
from tidegauge.worlds import Walk

__all__ = ["Show", "walked_map"]

_COLUMNS: Final = {
    "step": 4,
    "action": 8,
    "tool's response": 61,
    "stale": 5,
    "loop": 5,
    "streak": 6,
}
_INDENT: Final = " " * 5
_WARY: Final = {"stale": 10, "streak": 3}


class Show:
    """Prints a run while it is active.

    Args:
        console: receives the output.
        engine: measures the run.
    """

    def __init__(self, console: Console, engine: Engine) -> None:
        self._console = console
        self._engine = engine
        self._report: RunReport | None = None
        self._action = ""

    def task(self, model: str, task: str) -> None:
        """Print the model, its task, and the headings of the steps."""
        self._console.print(f"[bold]{model}[/], on this machine: {task}", highlight=False)
        self._console.print()
        self._line([Text(name, style="dim") for name in _COLUMNS])

    def message(self, message: BaseMessage) -> None:
        """Print one message that was added to the graph's state."""
        if isinstance(message, ToolMessage):
            self._outcome(message)
        elif not isinstance(message, AIMessage):
            self._note("nudge", message.text, style="yellow")
        elif message.tool_calls:
            (call,) = message.tool_calls
            self._action = call["name"]
        elif stopped_by(message):
            self._note("stop", message.text, style="bold red")
        else:
            self._note("says", message.text, style="")

    def end(self, walk: Walk, *, seconds: float) -> None:
        """Print the map as far as the agent has seen it, and the cost of the run."""
        report = self._report
        if report is None:
            return
        self._console.print()
        self._console.print(walked_map(walk))
        self._console.print(
            f"{len(walk.achieved)} of {len(walk.world.tasks)} tasks achieved; "
            f"cells seen and never entered (?): {len(walk.unseen)}; "
            f"{walk.moves} of {walk.world.budget} moves, {report.tokens or 0:,.0f} tokens, "
            f"{seconds:.0f} s",
            highlight=False,
        )

    def _outcome(self, answer: ToolMessage) -> None:
        (report,) = self._engine.snapshot().active
        self._report = report
        stale, streak = report.stale_score or 0, report.result_streak or 0
        repeats = report.loop_repeats
        self._line(
            [
                Text(f"{report.steps - 1:>3}", style="dim"),
                Text(self._action, style="cyan"),
                Text(answer.text, style="bold red" if answer.status == "error" else ""),
                Text(f"{stale:>5}", style="red" if stale >= _WARY["stale"] else ""),
                Text(f"{report.loop_period} \u00d7 {repeats}" if repeats else "", style="red"),
                Text(f"{streak:>6}", style="red" if streak >= _WARY["streak"] else ""),
            ]
        )

    def _note(self, kind: str, text: str, *, style: str) -> None:
        width = self._console.width - len(_INDENT) - len("nudge  ")
        for number, line in enumerate(Text(text).wrap(self._console, width)):
            label = kind if number == 0 else ""
            self._console.print(Text(f"{_INDENT}{label:<7}{line.plain}", style=style))

    def _line(self, cells: Sequence[Text]) -> None:
        for cell, width in zip(cells, _COLUMNS.values(), strict=True):
            cell.truncate(width, overflow="ellipsis", pad=True)
        self._console.print(Text("  ").join(cells), no_wrap=True, crop=True)


def walked_map(walk: Walk) -> Text:
    """The rows of the map that the agent has seen.

    ``@`` is where it is, ``.`` where it was, ``?`` a cell that it saw and never entered, ``T`` a
    task that it found, and ``t`` a task that it achieved.
    """
    tasks = {cell: task for task, cell in walk.found.items()}

    def sign(cell: tuple[int, int]) -> tuple[str, str]:
        if cell == walk.here:
            return "@ ", "bold cyan"
        if cell in walk.unseen:
            return "? ", "bold yellow"
        if cell in tasks:
            achieved = tasks[cell].id in walk.achieved
            return ("t ", "green") if achieved else ("T ", "bold")
        return (". " if cell in walk.known else "  "), "dim"

    rows = range(min(y for _, y in walk.known), max(y for _, y in walk.known) + 1)
    columns = range(walk.world.columns)
    return Text("\n").join([Text.assemble(_INDENT, *[sign((x, y)) for x in columns]) for y in rows])
