"""A run whose agent looks at what was decided elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, cast, get_args

from tidegauge.errors import RunStopped
from tidegauge.events import GO_ON, Decision, Intervention

__all__ = ["WatchedRun"]

_ACTIONS: Final = frozenset(get_args(Intervention))


class WatchedRun:
    """A run that is asked for; made by :meth:`~tidegauge.fleet.DecisionClient.watch`.

    A context manager: when it is left, nobody asks for the run any more.

    Args:
        run: the id that is asked for; ``None``, there is none, and nothing is ever told.
        forget: called when it is closed.

    Attributes:
        run: the id that is asked for.
        decision: what is to happen with it, as far as it is known: to go on until something else
            is told. A stop stays.
    """

    def __init__(self, run: str | None, forget: Callable[[WatchedRun], object]) -> None:
        self.run = run
        self.decision: Decision = GO_ON
        self._forget = forget
        self._decided = (run or "", 0)

    def enforce(self) -> None:
        """Raise the deliberate stop, when the run is to stop: call it between an agent's turns.

        Raises:
            RunStopped: it is. Its run may be one inside of this one.
        """
        decision = self.decision
        if decision.action == "stop":
            run, step = self._decided
            raise RunStopped(
                run,
                step=step,
                reason=decision.reason or "decided elsewhere",
                message=decision.message or "it was decided elsewhere",
            )

    def close(self) -> None:
        """Ask for it no more; a second call does nothing."""
        self._forget(self)

    def __enter__(self) -> WatchedRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, told: Mapping[str, Any]) -> bool:
        """Take what the server told; whether it is another decision.

        Args:
            told: its answer for this run.
        """
        action, step = told["action"], told.get("step")
        if action not in _ACTIONS:  # ended: nothing is left to be decided
            action = "go_on"
        decision = Decision(cast("Intervention", action), told.get("reason"), told.get("message"))
        if self.decision.stop or decision == self.decision:
            return False
        self._decided = (str(told["run"]), step if isinstance(step, int) else 0)
        self.decision = decision  # last: whoever sees it finds the rest
        return True
