"""tidegauge as a guard: its preset, through its public functions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import tidegauge
from benchmarks.guards.agents import Declared, Turn
from benchmarks.guards.play import Declarations

__all__ = ["PRESET", "Tidegauge"]

PRESET: Final[dict[str, Any]] = {"guard": "stuck"}


def _declaration(declared: Declared) -> tidegauge.ToolDeclaration:
    if isinstance(declared, tuple):
        return tidegauge.ToolDeclaration(key=lambda given: [given[name] for name in declared])
    return tidegauge.ToolDeclaration(
        poll=declared == "poll", mutates=declared == "mutates", thinks=declared == "thinks"
    )


class Tidegauge:
    """A run with these settings of :func:`tidegauge.configure`.

    Attributes:
        reason: the signal that stopped it; ``None``, it was not stopped.
    """

    def __init__(self, declared: Declarations, **settings: Any) -> None:
        tools = {tool: _declaration(one) for tool, one in declared.items()}
        settings = {"tools": tools, "serve_metrics": False, **settings}
        pipeline = tidegauge.configure(**settings)
        self._open = ExitStack()
        self._open.callback(pipeline.shutdown)
        self._run = self._open.enter_context(tidegauge.run(agent="benchmark"))
        self.reason: str | None = None

    def issue(self, number: int, turn: Turn) -> bool:
        """Report the calls of a turn."""
        try:
            calls = [(call.tool, call.arguments) for call in turn.calls]
            if turn.state is None:
                self._run.act_round(calls)
            else:
                self._run.act_round(calls, state=turn.state)
        except tidegauge.RunStopped as stop:
            self.reason = stop.reason
        return self.reason is not None

    def observe(self, number: int, turn: Turn) -> bool:
        """Report their results."""
        try:
            results = [(call.result, call.failed) for call in turn.calls]
            self._run.observe_round(results, step=number)
        except tidegauge.RunStopped as stop:
            self.reason = stop.reason
        return self.reason is not None

    def close(self) -> None:
        """End the run."""
        self._open.close()
