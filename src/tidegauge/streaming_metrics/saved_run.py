"""A run as plain data (JSON), so that another process can continue it.

It does not contain the settings of the engine (normaliser, declarations of tools, distances): both
processes must have the same. Nor does it contain clocks: the duration of a step that was open is
known only if its times are reported.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidegauge.events import RunOutcome, RunStarted, StepSignals, Task
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.metric import Stateful, plain_objects
from tidegauge.streaming_metrics.registry import KEPT, RUNS
from tidegauge.streaming_metrics.run import Issued, MeasuredRun
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.totals import Totals
from tidegauge.values.plain_objects import Kept, Plain, PlainObjects

VERSION: Final = 9
"""Increase it whenever the meaning of the state changes, as of its digests when texts are compared
in another way. Each metric has its own version."""


class _Saved(NamedTuple):
    """What is kept of a run, by its attributes."""

    metrics: tuple[Stateful, ...]
    latest: StepSignals
    totals: Totals
    open_steps: tuple[tuple[int, Issued], ...] = ()
    refused: Issued | None = None
    exact_previous: bytes | None = None
    finished: bool = False
    last_taken: int = -1
    lost: tuple[str, ...] = ()
    outcome: RunOutcome = "unknown"
    previous: bytes | None = None
    said: float | None = None
    skipping: bool = False
    steps: int = 0
    success: bool | None = None
    t_max: int | None = None
    tokens: float | None = None
    unguarded: bool = False


_VALUES: Final = tuple(_Saved._field_defaults)[2:]
"""The attributes that are kept as they are."""


@functools.cache
def _objects() -> PlainObjects:
    others = [
        Kept(RunStarted, lambda: RunStarted(run="")),
        Kept(Totals),
        Kept(Buckets, lambda: Buckets(())),
    ]
    kinds = [metric.kind for metric in RUNS if metric.kind is not None]
    return plain_objects(kinds, others, [_Saved, StepSignals, Issued, Task, Exemplar])


def save_run(run: MeasuredRun) -> dict[str, Any]:
    """The state of a run. Call it with the run's lock held."""
    saved = _Saved(
        tuple([run.metrics[one.kind] for one in RUNS if one.kind in run.metrics]),
        run.latest,
        run.all_totals(),
        tuple([(t, Issued(*one)._replace(now=None)) for t, one in run.open_steps.items()]),
        None if run.refused is None else run.refused._replace(now=None),
        *[getattr(run, name) for name in _VALUES],
    )
    return {
        "run": run.started.run,
        "version": VERSION,
        "started": _objects().write(run.started),
        "state": _objects().write(saved),
        "policy": run.saved_policy if run.policy is None else run.policy.state(),
    }


def saved_start(state: Mapping[str, Any]) -> RunStarted:
    """The start of the run in a state. Open the run with it, then load the state.

    Raises:
        ValueError: the state has another version or form.
    """
    version = state.get("version")
    if version not in (VERSION, _BEFORE):
        raise ValueError(
            f"The state of a run has version {version!r}; only {_BEFORE} and {VERSION} can be read."
        )
    try:
        if version == _BEFORE:
            before = _before(state["started"])
            return RunStarted(**{**before, "tasks": tuple(Task(*one) for one in before["tasks"])})
        started = _objects().read(state["started"])
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("The state of a run has another form.") from error
    if type(started) is not RunStarted or type(started.run) is not str:
        raise ValueError("The state of a run has another form.")
    return started


def load_run(run: MeasuredRun, state: Mapping[str, Any], *, goes_on: bool = True) -> None:
    """Continue a run from a state of :func:`save_run`. Call it with the run's lock held.

    Args:
        run: a run that was opened with :func:`saved_start`.
        state: the state.
        goes_on: whether the run counts from now on; else until ``Engine.restored`` is called.

    Raises:
        ValueError: the state has another version or form; the run is then unusable.
    """
    try:
        if state["version"] == _BEFORE:
            _load(run, _saved_before(run, state), _policy_before(state["policy"]))
        else:
            _load(run, _objects().read(state["state"]), state["policy"])
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("The state of a run has another form.") from error
    if goes_on:
        run.restore_ended()
    else:
        run.baseline = run.totals


def _load(run: MeasuredRun, saved: _Saved, policy: Plain) -> None:
    kinds = type(saved), type(saved.latest), type(saved.totals), type(saved.steps)
    if kinds != (_Saved, StepSignals, Totals, int):
        raise TypeError(f"{kinds} are not those of a run")
    loaded = {type(metric): metric for metric in saved.metrics}
    opened = run.metrics
    run.metrics = {}
    for metric in RUNS:
        kind = metric.kind
        if kind is None or not (metric.always or kind in loaded):
            continue
        found = loaded.get(kind)
        if found is None or kind.unsaved:
            new = opened[kind] if kind in opened else metric.made(run)
            for name in kind.unsaved if found is not None else ():
                setattr(found, name, getattr(new, name))
            found = found or new
        run.metrics[kind] = found
    exploration = run.find(Exploration)
    if exploration is not None:
        exploration.stale_score = run.of(StaleScore)  # they share it
    for name in _VALUES:
        setattr(run, name, getattr(saved, name))
    run.show(saved.latest)
    run.open_steps = {t: one[:] for t, one in saved.open_steps}  # plain tuples
    run.refused = saved.refused
    run.totals = saved.totals
    for _, kind, total, kept_as in KEPT:
        if kind in run.metrics and kind not in loaded:  # it begins again, its sum does not
            setattr(run.metrics[kind], kept_as, getattr(run.totals, total))
    run.policy, run.saved_policy = None, policy
    run.plan()


# What follows reads states of the release before.

_BEFORE: Final = 5
_BEGUN_AGAIN: Final = frozenset(
    {
        *("loops", "loop_cost", "entropy_split", "polling_allowance", "recurrence", "novelty"),
        "result_streak",
    }
)
"""There, texts were compared in another way, and a loop was what TIDE calls one: what compares
begins again."""

_NOT_KEPT: Final = frozenset(
    {"loop_steps", "onsets", "lasting_loops", "loop_tokens", "loop_seconds"}
)


def _saved_before(run: MeasuredRun, state: Mapping[str, Any]) -> _Saved:
    metrics: list[Stateful] = []
    for metric in RUNS:
        data = state["metrics"].get(metric.name)
        if metric.kind is not None and data is not None and metric.name not in _BEGUN_AGAIN:
            metrics.append(_into(metric.made(run), data))
            if metric.name == "repetition":
                _add_recent(metrics[-1])
    name, step, action, seen, _, _, _, tool, _, stale_score, case = _before(state["latest"])
    latest = StepSignals(name, step, action, seen, tool=tool, stale_score=stale_score, case=case)
    totals = Totals()
    for name, data in state["totals"].items():
        if name in Totals.__slots__ and name not in _NOT_KEPT:
            setattr(totals, name, _before(data))
    values = {name: _before(data) for name, data in state["values"].items() if name != "previous"}
    issued = [(t, _before(data)) for t, data in state["issued"]]
    return _Saved(
        tuple(metrics),
        latest,
        totals,
        tuple([(t, Issued(*[*one[:7], False, *one[10:12]])) for t, one in issued]),
        last_taken=values["steps"] - 1,
        **values,
    )


def _add_recent(repetition: Any) -> None:
    """What the last actions counted was not kept: absent until there are as many new ones."""
    last = len(repetition._similarity._recent)
    repetition._recent = {t - last: None for t in range(last)}  # before any step that is to come
    repetition.similarity = repetition._similarity._current


def _policy_before(data: Any) -> Plain:
    if data is None:
        return None
    name = f"{data['metric']}.{data['version']}"
    columns = {field: [_objects().write(_before(one))[0]] for field, one in data["fields"].items()}
    return [{name: 0}, {name: columns}]


def _into(metric: Any, data: Any) -> Any:
    for name, value in data["fields"].items():
        part = getattr(metric, name)
        setattr(metric, name, _into(part, value) if isinstance(part, Stateful) else _before(value))
    return metric


def _before(data: Any) -> Any:
    """A value of a state of the release before."""
    if type(data) is list:
        return list(map(_before, data))
    if type(data) is not dict:
        return data
    if "bounds" in data:
        buckets = Buckets(tuple(data["bounds"]))
        buckets.counts, buckets.total = data["counts"], data["total"]
        buckets.exemplars = {n: Exemplar(*one) for n, one in _before(data["exemplars"]).items()}
        return buckets
    [(kind, body)] = data.items()
    if kind == "~bytes":
        return bytes.fromhex(body)
    if kind == "~int":
        return int(body, 16)
    if kind == "~deque":
        return deque(map(_before, body[1]), maxlen=body[0])
    if kind in ("~tuple", "~set"):
        return (tuple if kind == "~tuple" else set)(map(_before, body))
    dicts: dict[str, Any] = {"~dict": dict, "~ordered": OrderedDict, "~evicting": EvictingDict}
    return dicts[kind]([(_before(key), _before(value)) for key, value in body])
