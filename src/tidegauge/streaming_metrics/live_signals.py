"""The signals of a run, for policies: all of them, or each read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegauge.events import Signals
from tidegauge.streaming_metrics.registry import SIGNAL_READERS
from tidegauge.streaming_metrics.repetition import Repetition


def read_signals(run: Any) -> Signals:
    """All signals of a :class:`~tidegauge.streaming_metrics.run.MeasuredRun` now."""
    return Signals(
        **{name: read(run) for name, read in _READERS.items()},
        more={name: read(run) for name, read in _MORE_READERS.items()},
    )


class LiveSignals:
    """The signals of a run, each read on access. Used with the run's lock held."""

    __slots__ = ("_run",)

    def __init__(self, run: Any) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        read = _READERS.get(name) or _MORE_READERS.get(name)
        if read is None:
            raise AttributeError(f"there is no signal called {name}")
        return read(self._run)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "run": lambda run: run.started.run,
    "step": lambda run: max(run.steps - 1, 0),  # an answer may chant before the first step
    "action_digest": lambda run: run.latest.action_digest,
    "state_digest": lambda run: run.latest.state_digest,
    "agent": lambda run: run.started.agent,
    "tool": lambda run: run.latest.tool,
    "task_group": lambda run: run.started.task_group,
    "likeness": lambda run: measured.similarity if (measured := run.find(Repetition)) else None,
    **{name: read for name, read in SIGNAL_READERS.items() if name in Signals._fields},
}
_MORE_READERS: Final = {
    name: read for name, read in SIGNAL_READERS.items() if name not in Signals._fields
}
