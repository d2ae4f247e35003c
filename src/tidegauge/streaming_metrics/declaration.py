"""What a metric declares in addition to its class, and what it can read from its run.

:mod:`~tidegauge.streaming_metrics.registry` lists the declarations. Everything that needs to
know which metrics exist reads that list: runs and groups, reports, exporters, ``replay --json``,
policies (for their signals), the table in the docs and the generic tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from tidegauge.catalog import MetricDefinition
from tidegauge.events import Identity, RunStarted, Signals, StepSignals
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.limits import BoundedNames
from tidegauge.streaming_metrics.metric import GroupMetric, Stateful
from tidegauge.streaming_metrics.records import FinishedRun

M = TypeVar("M", bound=Stateful)
A = TypeVar("A")
N = TypeVar("N", bound=Stateful)
G = TypeVar("G", bound=GroupMetric)

Labels: TypeAlias = tuple[str, ...]

MetricValue: TypeAlias = float | Buckets | Mapping[Labels, float] | None
"""A value, or one for each value of the metric's own labels; ``None``: not measured."""

PlaceLabel: TypeAlias = Callable[[Identity], str]
"""Converts a place to a label value: a digest, because places are contents."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of an engine that its runs use.

    Args:
        onset_at: length at which a result streak or failed rounds count as an onset.
        stale_at: stale score from which a run counts as stale.
        max_period: longest cycle that TIDE's loop ratio detects, in steps.
        max_distinct: distinct results and (action, result) pairs that a run remembers.
        directed: whether exits lead one way only.
        detect_polls: whether calls that wait are taken for polls; ``None``, as a run's start says.
        repetition: whether runs measure the similarity of their actions.
        features: whether runs have the features of learned scores.
        token_rate: whether runs measure how many tokens they spend in a minute.
        loop_code: how TIDE's loops are read, see
            :class:`~tidegauge.streaming_metrics.tide_loops.GuiLoops`.
        asks_distance: whether a user function gives the distances between places.
    """

    onset_at: int = 3
    stale_at: int = 5
    max_period: int = 10_000
    max_distinct: int = 10_000
    directed: bool = False
    detect_polls: bool | None = None
    repetition: bool = False
    features: bool = False
    token_rate: bool = False
    loop_code: Literal["text", "gui"] = "text"
    asks_distance: bool = False


class RunView(Protocol):
    """A run as its metrics see it. Used with the run's lock held."""

    started: RunStarted
    settings: RunSettings
    t_max: int | None
    steps: int
    tokens: float | None
    totals: Any
    metrics: dict[type[Stateful], Any]
    actions: BoundedNames[str]
    latest: StepSignals
    ended: FinishedRun | None

    def of(self, kind: type[N], /) -> N:
        """The run's metric of that class, which every run has."""

    def find(self, kind: type[N], /) -> N | None:
        """The run's metric of that class; ``None`` if no step has needed it yet."""

    def bring(self, kind: type[N], /) -> N | None:
        """The run's metric of that class, created if necessary; ``None``, it was lost."""

    @property
    def completed_steps(self) -> int:
        """How many steps have their result."""

    def count_onset(self, kind: str, step: int) -> None:
        """Count and log the onset of a loop."""


class GroupView(Protocol):
    """A group of runs as exporters read it: finished runs, active runs, and sums over both."""

    finished: Any
    totals: Any
    active: list[Any]
    stale_at: int

    @property
    def runs_started(self) -> int:
        """Runs that began here."""

    @property
    def placed(self) -> bool:
        """Whether a run of the group has reported a place."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over steps, kept by runs and groups: a number, counts by a key, or a histogram.

    Args:
        name: the attribute of the totals.
        zero: returns the initial value.
        kept_as: the attribute of the metric, if the metric adds it up itself: it is read when the
            totals are.
    """

    name: str
    zero: Callable[[], Any]
    kept_as: str | None = None


def zero() -> int:
    """The initial value of an integer sum."""
    return 0


def zero_amount() -> float:
    """The initial value of a float sum."""
    return 0.0


def no_counts() -> dict[Any, int]:
    """The initial value of counts by a key."""
    return {}


def nothing() -> None:
    """The initial value of a sum that is created with its first value."""


def counts(found: Mapping[str, int], *, known: Iterable[str]) -> MetricValue:
    """Counts by the value of one label; 0 for known values that have no count."""
    return {**{(value,): 0 for value in known}, **{(value,): n for value, n in found.items()}}


def over_active_runs(
    name: str, *, worst: Literal["max", "min"] = "max"
) -> Callable[[GroupView], MetricValue]:
    """Reads the mean of a field of reports over the active runs of a group, and the worst value.

    Runs that have not measured it are left out; without any, it is absent.
    """
    of_all = max if worst == "max" else min

    def read(group: GroupView) -> MetricValue:
        values = [value for run in group.active if (value := getattr(run, name)) is not None]
        if not values:
            return None
        return {("mean",): sum(values) / len(values), (worst,): of_all(values)}

    return read


def times(count: int) -> str:
    """The number of times, in words.

    >>> times(2), times(3)
    ('twice', '3 times')
    """
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def loop_in_words(signals: Signals) -> str:
    """A run's current loop, in words."""
    return (
        f"{repeated_steps(signals.loop_period, signals.loop_times or signals.loop_repeats)}, "
        f"since step {signals.loop_first_step}"
    )


def repeated_steps(period: int, times_repeated: int) -> str:
    """A loop in the words of every surface: its period, and how often people say it was repeated.

    >>> repeated_steps(3, 4), repeated_steps(1, 1)
    ('3 steps, repeated 4 times', '1 step, repeated once')
    """
    return f"{period} step{'s' if period > 1 else ''}, repeated {times(times_repeated)}"


@dataclass(frozen=True, slots=True)
class GroupHistogram:
    """A number of finished runs that a group keeps as a histogram.

    Args:
        name: its key in the group.
        metric: its definition in the catalog.
        bounds: upper bounds of the buckets.
        read: reads it from a finished run; ``None`` if the run does not count.
    """

    name: str
    metric: MetricDefinition
    bounds: tuple[float, ...]
    read: Callable[[FinishedRun], float | None]


@dataclass(frozen=True, slots=True)
class Attribute:
    """Reads an attribute of one of a run's metrics; ``None``, the run does not have the metric.

    A policy reads it without a call: most of what it does at a step is to read signals.

    Args:
        kind: the class of the metric.
        name: the attribute.
    """

    kind: type[Stateful]
    name: str

    def __call__(self, run: RunView) -> Any:
        """The attribute now."""
        metric = run.metrics.get(self.kind)
        return None if metric is None else getattr(metric, self.name)


StopKind: TypeAlias = Literal["waste", "lost cause"]
"""Why a run should end: its steps do the same again, which helps no run, whether it would succeed
or not; or it has come to where runs do not succeed, whatever it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A number of a run that policy rules compare with thresholds.

    Args:
        name: its name in rules and in :class:`~tidegauge.events.Signals`.
        read: reads it from a run; ``None``, not measured.
        help: what it measures, for the docs.
        message: what happened, in words, from the signals and the threshold.
        threshold: valid thresholds: a whole number from 1, any number above 0, or a share.
        falls: whether a rule holds when the signal is at or below the threshold.
        blocks: whether a rule for it can block a repeated call.
        score: whether it is a score, which grows with trouble.
        reads_words: whether it depends on the words of actions, which are read only when needed.
        moment: when it can change: as a step is issued, as its result is observed, at both, or only
            when the model answers without a call.
        of_skipped: whether it counts also the steps that wait or only think. For all other signals
            it is as if these steps had not been there.
        stop: why a run that reaches the threshold should end, see :data:`StopKind`.
    """

    name: str
    read: Callable[[RunView], float | None]
    help: str
    message: Callable[[Signals, float], str]
    threshold: Literal["whole", "positive", "share"] = "whole"
    falls: bool = False
    blocks: bool = False
    score: bool = True
    reads_words: bool = False
    moment: Literal["issued", "observed", "both", "answered"] = "both"
    of_skipped: bool = False
    stop: StopKind = "waste"


@dataclass(frozen=True, slots=True)
class Measured(Generic[A]):
    """A metric of the catalog, and how to read it.

    Args:
        metric: its definition.
        read: reads it from a group, an arm of a memory experiment, or a run's report.
    """

    metric: MetricDefinition
    read: Callable[[A], MetricValue]


Feed: TypeAlias = Callable[[Any, Any, Any], None]
"""Passes a step to a metric that needs more than ``update(step)``: takes run, metric and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration(Generic[M]):
    """What a metric of a run contributes. Its functions are called with the run's lock held.

    Args:
        name: the metric's name in states, in the list of lost metrics and in counted errors.
        kind: its class; ``None`` if it keeps only sums.
        make: creates it for a run; the default is ``kind()``.
        issued: whether it takes each issued step, with ``update``; the name of another method, or a
            function that has the run, too.
        observed: the same for each observed step.
        takes_skipped: whether it takes also the steps that wait or only think.
        brought_by: fields of steps. A run gets the metric with the first step that has one of
            them; if empty, from the start.
        brought_by_start: whether a run with this start has it from the start in any case.
        feeds: a metric that gets its steps from this one instead; they are lost together.
        sums: the sums it adds to the totals of runs and groups.
        absent: the fields it adds to reports, each with its value for "not measured".
        report: returns these fields.
        document: returns the keys it adds to a run of ``replay --json``, from the report.
        ended: returns the fields it adds to the :class:`FinishedRun` that groups take.
        signals: its signals for policy rules.
        details: its further fields of :class:`~tidegauge.events.Signals`.
        of_group: metrics of the catalog that are read from a group.
        of_run: metrics of the catalog that are read from the report of a single run.
        histograms: its numbers that groups keep as histograms.
    """

    name: str
    kind: type[M] | None = None
    make: Callable[[RunView], M] | None = None
    issued: bool | str | Feed = False
    observed: bool | str | Feed = False
    takes_skipped: bool = False
    brought_by: tuple[str, ...] = ()
    brought_by_start: Callable[[RunStarted, RunSettings], bool] | None = None
    feeds: type[Stateful] | None = None
    sums: tuple[Sum, ...] = ()
    absent: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[RunView, M], Mapping[str, Any]] | None = None
    document: Callable[[Any], Mapping[str, Any]] | None = None
    ended: Callable[[RunView, M], Mapping[str, Any]] | None = None
    signals: tuple[Signal, ...] = ()
    details: Mapping[str, Callable[[RunView], Any]] = field(default_factory=dict)
    of_group: tuple[Measured[GroupView], ...] = ()
    of_run: tuple[Measured[Any], ...] = ()
    histograms: tuple[GroupHistogram, ...] = ()

    @property
    def always(self) -> bool:
        """Whether every run has the metric from the start."""
        return not self.brought_by and self.brought_by_start is None

    def made(self, run: RunView) -> M:
        """The metric for a run."""
        if self.make is not None:
            return self.make(run)
        if self.kind is None:
            raise TypeError(f"{self.name} keeps nothing of a run")
        return self.kind()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeclaration(Generic[G]):
    """What a metric of a group contributes.

    Args:
        name: the metric's name.
        kind: its class.
        make: creates it; the default is ``kind()``.
        loops: whether it needs the loops of a run: runs that lost them are ignored.
        of_group: metrics of the catalog that are read from a group, all arms added up.
        of_arm: the same, read from each arm of a memory experiment.
        document: returns the keys it adds to a group of ``replay --json``.
        histograms: its numbers that groups keep as histograms.
    """

    name: str
    kind: type[G]
    make: Callable[[], G] | None = None
    loops: bool = False
    of_group: tuple[Measured[GroupView], ...] = ()
    of_arm: tuple[Measured[GroupView], ...] = ()
    document: Callable[[G], Mapping[str, Any]] | None = None
    histograms: tuple[GroupHistogram, ...] = ()

    def made(self) -> G:
        """The metric for a group."""
        return self.kind() if self.make is None else self.make()
