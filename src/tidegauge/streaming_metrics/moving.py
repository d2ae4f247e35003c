"""A run that moves: all that is known of it as plain data, and back.

For a run that is held by another process from now on, is kept for later, or is looked at. What the
engine was set up with (normaliser, declarations of tools, distances) does not move: both ends are
to have the same. Clocks don't either: of a step that was under way, the time it takes is known only
where its times are told.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegauge.events import RunStarted, Signals, Task
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.patience import Patience
from tidegauge.streaming_metrics.plain import from_plain, to_plain
from tidegauge.streaming_metrics.repetition import Repetition
from tidegauge.streaming_metrics.totals import Buckets, Exemplar, Totals

if TYPE_CHECKING:
    from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["VERSION", "load_run", "run_started", "state_of_run"]

VERSION: Final = 2
"""Raised whenever what is moved changes its meaning."""

_METRICS: Final = (
    "entropy_split",
    "failed_rounds",
    "loop_cost",
    "loops",
    "novelty",
    "progress_auv",
    "recall_lag",
    "recurrence",
    "result_streak",
    "stale_score",
)
_OPTIONAL: Final = ("exploration", "navigation", "patience", "repetition")
_VALUES: Final = (
    "_previous",
    "_saved_from",
    "_tells_entropy",
    "crossed",
    "finished",
    "first_would_stop",
    "lost",
    "nudged",
    "outcome",
    "premature_halt",
    "steps",
    "stopped",
    "success",
    "t_max",
    "tokens",
    "watch_only",
)


def state_of_run(run: RunState) -> dict[str, Any]:
    """Plain data that JSON can carry, for everything that is known of a run; lock held."""
    return {
        "run": run.started.run,
        "version": VERSION,
        "started": to_plain(dataclasses.asdict(run.started)),
        "metrics": {name: getattr(run, name).state() for name in _METRICS},
        "optional": {
            name: part.state() for name in _OPTIONAL if (part := getattr(run, name)) is not None
        },
        "values": {name: to_plain(getattr(run, name)) for name in _VALUES},
        "issued": [
            [t, to_plain(tuple(one._replace(now=None)))] for t, one in run.open_steps.items()
        ],
        "refused": None if run.refused is None else to_plain(tuple(run.refused._replace(now=None))),
        "signals": None if run.signals is None else to_plain(tuple(run.signals)),
        "totals": _totals_state(run.totals),
    }


def run_started(state: Mapping[str, Any]) -> RunStarted:
    """How the run of that state began: what it is to be opened with before it is loaded.

    Raises:
        ValueError: the state is of another version, or not of that form.
    """
    if state.get("version") != VERSION:
        raise ValueError(f"a run's state of version {state.get('version')!r} is not of {VERSION}")
    try:
        told = from_plain(state["started"])
        told["tasks"] = tuple(Task(*task) for task in told["tasks"])
        return RunStarted(**told)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("a run's state of another form") from error


def load_run(run: RunState, state: Mapping[str, Any]) -> None:
    """Make a run that was just opened go on from where the state is.

    Raises:
        ValueError: the state is of another version, or not of that form; the run is of no use then.
    """
    from tidegauge.streaming_metrics.run_state import Issued

    run_started(state)  # says so if it is none
    try:
        for name in _METRICS:
            getattr(run, name).load(state["metrics"][name])
        for name in _OPTIONAL:
            _load_optional(run, name, state["optional"].get(name))
        for name in _VALUES:
            setattr(run, name, from_plain(state["values"][name]))
        issued = OrderedDict((t, Issued(*from_plain(one))) for t, one in state["issued"])
        refused = state["refused"]
        run.open_steps = issued
        run.refused = None if refused is None else Issued(*from_plain(refused))
        signals = state["signals"]
        run.signals = None if signals is None else Signals(*from_plain(signals))
        run.totals = _loaded_totals(state["totals"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("a run's state of another form") from error
    if run.exploration is not None:
        run.exploration.stale_score = run.stale_score  # one and the same


def _load_optional(run: RunState, name: str, state: Mapping[str, Any] | None) -> None:
    if state is None:
        setattr(run, name, None)
        return
    if getattr(run, name) is None:
        if name in ("exploration", "navigation"):
            run.explore()
        else:
            setattr(run, name, Patience() if name == "patience" else Repetition())
    part: Stateful = getattr(run, name)
    part.load(state)
    if isinstance(part, Patience):
        part.restart_clock()


def _totals_state(totals: Totals) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in Totals.__slots__:
        value = getattr(totals, name)
        told[name] = _buckets_state(value) if isinstance(value, Buckets) else to_plain(value)
    return told


def _loaded_totals(state: Mapping[str, Any]) -> Totals:
    totals = Totals()
    for name in Totals.__slots__:
        data = state[name]
        buckets = isinstance(data, dict) and "bounds" in data
        setattr(totals, name, _loaded_buckets(data) if buckets else from_plain(data))
    totals.exemplars = {key: Exemplar(*one) for key, one in totals.exemplars.items()}
    return totals


def _buckets_state(buckets: Buckets) -> dict[str, Any]:
    return {
        "bounds": list(buckets.bounds),
        "counts": list(buckets.counts),
        "total": buckets.total,
        "exemplars": to_plain(dict(buckets.exemplars)),
    }


def _loaded_buckets(data: Mapping[str, Any]) -> Buckets:
    buckets = Buckets(tuple(data["bounds"]))
    buckets.counts = list(data["counts"])
    buckets.total = data["total"]
    known: dict[int, Any] = from_plain(data["exemplars"])
    buckets.exemplars = {bucket: Exemplar(*one) for bucket, one in known.items()}
    return buckets
