"""A run as plain data (JSON), so that another process can continue it.

It does not contain the settings of the engine (normaliser, declarations of tools, distances): both
processes must have the same. Nor does it contain clocks: the duration of a step that was open is
known only if its times are reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.events import RunStarted, StepSignals, Task
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.plain import from_plain, to_plain
from tidegauge.streaming_metrics.registry import KEPT, RUNS
from tidegauge.streaming_metrics.run import Issued, MeasuredRun
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.totals import Totals

VERSION: Final = 8
"""Increase it whenever the meaning of the state changes, as of its digests when texts are compared
in another way."""

_VALUES: Final = (
    "exact_previous",
    "finished",
    "last_taken",
    "lost",
    "outcome",
    "previous",
    "said",
    "skipping",
    "steps",
    "success",
    "t_max",
    "tokens",
    "unguarded",
)


def save_run(run: MeasuredRun) -> dict[str, Any]:
    """The state of a run. Call it with the run's lock held."""
    return {
        "run": run.started.run,
        "version": VERSION,
        "started": to_plain(dataclasses.asdict(run.started)),
        "metrics": {
            metric.name: run.metrics[metric.kind].state()
            for metric in RUNS
            if metric.kind in run.metrics
        },
        "values": {name: to_plain(getattr(run, name)) for name in _VALUES},
        "latest": to_plain(tuple(run.latest)),
        "issued": [[t, _saved_step(Issued(*one))] for t, one in run.open_steps.items()],
        "refused": None if run.refused is None else _saved_step(run.refused),
        "totals": run.all_totals().state(),
        "policy": run.saved_policy if run.policy is None else run.policy.state(),
    }


def load_run(run: MeasuredRun, state: Mapping[str, Any]) -> None:
    """Continue a run from a state of :func:`save_run`. Call it with the run's lock held.

    Args:
        run: a run that was opened with :func:`saved_start`.
        state: the state.

    Raises:
        ValueError: the state has another version or form; the run is then unusable.
    """
    saved_start(state)  # checks the version
    try:
        _load(run, _upgraded(state) if state["version"] == _BEFORE else state)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("The state of a run has another form.") from error
    run.restore_ended()


def saved_start(state: Mapping[str, Any]) -> RunStarted:
    """The start of the run in a state. Open the run with it, then load the state.

    Raises:
        ValueError: the state has another version or form.
    """
    if state.get("version") not in (VERSION, _BEFORE):
        raise ValueError(
            f"The state of a run has version {state.get('version')!r}; "
            f"only {_BEFORE} and {VERSION} can be read."
        )
    try:
        started = from_plain(state["started"])
        started["tasks"] = tuple(Task(*task) for task in started["tasks"])
        return RunStarted(**started)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("The state of a run has another form.") from error


def _load(run: MeasuredRun, state: Mapping[str, Any]) -> None:
    run.metrics.clear()
    for metric in RUNS:
        data = state["metrics"].get(metric.name)
        if metric.kind is not None and (data is not None or metric.always):
            loaded = run.metrics[metric.kind] = metric.made(run)
            if data is not None:
                loaded.load(data)
    exploration = run.find(Exploration)
    if exploration is not None:
        exploration.stale_score = run.of(StaleScore)  # they share it
    for name in _VALUES:
        setattr(run, name, from_plain(state["values"][name]))
    run.show(StepSignals(*from_plain(state["latest"])))
    run.open_steps = {t: _loaded_step(one) for t, one in state["issued"]}
    run.refused = None if state["refused"] is None else _loaded_step(state["refused"])
    run.totals = Totals.loaded(state["totals"])
    for name, kind, total, kept_as in KEPT:
        if (
            kind in run.metrics and name not in state["metrics"]
        ):  # it begins again, its sum does not
            setattr(run.metrics[kind], kept_as, getattr(run.totals, total))
    run.policy, run.saved_policy = None, state["policy"]
    run.plan()


def _upgraded(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of the release before, as of this one.

    There, texts were compared in another way, and a loop was what TIDE calls one: what compares
    begins again.
    """
    run, step, action, seen, _, _, _, tool, _, stale_score, case = from_plain(state["latest"])
    latest = StepSignals(*(run, step, action, seen), tool=tool, stale_score=stale_score, case=case)
    return {
        **state,
        "metrics": {
            name: _with_recent(data) if name == "repetition" else _with_stale_score(data)
            for name, data in state["metrics"].items()
            if name not in _BEGUN_AGAIN
        },
        "values": {
            **state["values"],
            "previous": None,
            "exact_previous": None,
            "said": None,
            "last_taken": state["values"]["steps"] - 1,
            "skipping": False,
        },
        "latest": to_plain(tuple(latest)),
        "issued": [
            [t, to_plain((*one[:7], False, *one[10:12], False, False, False))]
            for t, one in ((t, from_plain(data)) for t, data in state["issued"])
        ],
        "refused": None,
        "totals": {
            name: value if name in _NOT_KEPT else state["totals"].get(name, value)
            for name, value in Totals().state().items()
        },
    }


def _with_stale_score(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A metric's state; the exploration's has that of the stale score in it."""
    fields = {
        name: _with_stale_score(data) if name == "stale_score" else data
        for name, data in state["fields"].items()
    }
    if state["metric"] != "StaleScore":
        return {**state, "fields": fields}
    return {**state, "version": 2, "fields": {**fields, "_acknowledged": False, "_result": None}}


def _with_recent(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the repetition, without what its last actions counted, which it did not keep."""
    fields = state["fields"]
    last = len(from_plain(fields["_similarity"]["fields"]["_recent"]))
    recent = to_plain({t - last: None for t in range(last)})  # before any step that is to come
    alike = fields["_similarity"]["fields"]["_current"]
    more = {"_recent": recent, "similarity": alike}
    return {**state, "version": 3, "fields": {**fields, **more}}


_BEFORE: Final = 5
_NOT_KEPT: Final = frozenset(
    {"loop_steps", "onsets", "lasting_loops", "loop_tokens", "loop_seconds"}
)
_BEGUN_AGAIN: Final = frozenset(
    {
        *("loops", "loop_cost", "entropy_split", "polling_allowance", "recurrence", "novelty"),
        "result_streak",
    }
)


def _saved_step(step: Issued) -> Any:
    return to_plain(tuple(step._replace(now=None)))


def _loaded_step(data: Any) -> Issued:
    return Issued(*from_plain(data))
