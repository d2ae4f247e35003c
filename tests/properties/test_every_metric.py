"""What holds for every metric there is: none escapes, the classes are found by introspection."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pkgutil
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge import streaming_metrics
from tidegauge.events import Task
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import GroupMetric, Metric, Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.streaming_metrics.tide_loops import TideLoops

from . import batch, streams
from .counterpart import Counterpart

CAP = 8


def counterparts() -> dict[type[Metric[Any]], Counterpart]:
    """The counterparts of every module ``compare_*.py`` beside this one."""
    found: dict[type[Metric[Any]], Counterpart] = {}
    for path in sorted(Path(__file__).parent.glob("compare_*.py")):
        found |= importlib.import_module(f".{path.stem}", __package__).COUNTERPARTS
    return found


COUNTERPARTS = counterparts()


def every_metric() -> list[type[Metric[Any]]]:
    """Every class that can be made, of every module of the package."""
    found: set[type[Metric[Any]]] = set()
    for module in pkgutil.walk_packages(streaming_metrics.__path__, "tidegauge.streaming_metrics."):
        for item in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(item) and issubclass(item, Metric) and not inspect.isabstract(item):
                found.add(item)
    return sorted(found, key=lambda metric: metric.__name__)


METRICS = every_metric()
REGISTERED = [kind for kind in METRICS if kind in COUNTERPARTS]
GROUPS = [kind for kind in REGISTERED if issubclass(kind, GroupMetric)]


def each(kinds):
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


def fed(kind, parameters, records):
    metric = kind(**parameters)
    for record in records:
        metric.update(record)
    return metric


def test_every_metric_has_a_batch_counterpart():
    missing = [kind.__name__ for kind in METRICS if kind not in COUNTERPARTS]
    assert not missing, (
        f"{missing} have no batch version. Add tests/properties/compare_NAME.py with COUNTERPARTS, "
        "as in compare_groups.py."
    )


@each(REGISTERED)
@given(data=st.data())
def test_streaming_equals_batch_at_every_prefix(kind, data):
    counterpart = COUNTERPARTS[kind]
    parameters, records = data.draw(counterpart.streams())
    metric = kind(**parameters)
    assert counterpart.differences(metric, [], parameters) == []
    for count, record in enumerate(records, 1):
        metric.update(record)
        found = counterpart.differences(metric, records[:count], parameters)
        assert found == [], f"after record {count} of {records}"


@examples(4)
@given(streams.issued_steps())
def test_each_step_is_a_loop_step_or_not(steps):
    loops, tide = Loops(), TideLoops()
    looped: set[int] = set()
    flags: list[bool] = []
    for count, step in enumerate(steps, 1):
        loops.update(step)
        tide.update(step)
        assert not looped & set(loops.settled)
        looped.update(loops.settled)
        assert [t in looped for t in range(count)] == batch.loop_flags(steps[:count])
        if loops.period:
            names = [step.name for step in steps[:count]]
            assert loops.cycle_names == names[-loops.period :]
            assert loops.repeats_step == step.t - loops.period
        flags.append(False)
        for settled in range(tide.settled):
            flags[-1 - settled] = True
        if tide.settled:
            assert tide.cycle_names == [step.name for step in steps[:count]][-tide.settled :]
        assert flags == batch.tide_loop_flags(steps[:count])
        assert all(t in looped for t, flag in enumerate(flags) if flag)


@given(streams.issued_steps(), st.integers(1, 4))
def test_cycles_longer_than_the_cap_are_not_seen_by_tide(steps, max_period):
    loops = TideLoops(max_period=max_period)
    for count, step in enumerate(steps, 1):
        loops.update(step)
        expected = batch.tide_loops(steps[:count], max_period)
        assert {name: getattr(loops, name) for name in expected} == expected


@each(GROUPS)
@given(data=st.data())
def test_halves_add_up_to_the_whole(kind, data):
    counterpart = COUNTERPARTS[kind]
    parameters, records = data.draw(counterpart.streams())
    cut = data.draw(st.integers(0, len(records)))
    left, right = fed(kind, parameters, records[:cut]), fed(kind, parameters, records[cut:])
    before = copy.deepcopy(right.state())
    left.merge(right)
    assert right.state() == before
    assert counterpart.differences(left, records, parameters) == []


@each(REGISTERED)
@given(data=st.data())
def test_a_metric_moves_to_another_process_in_the_middle(kind, data):
    parameters, records = data.draw(COUNTERPARTS[kind].streams())
    cut = data.draw(st.integers(0, len(records)))
    stays = fed(kind, parameters, records[:cut])
    carried = json.loads(json.dumps(stays.state()))
    moves = kind(**parameters)
    moves.load(carried)
    assert moves.state() == stays.state()
    for record in records[cut:]:
        stays.update(record)
        moves.update(record)
        assert moves.value == stays.value
    assert moves.state() == stays.state()


@each(REGISTERED)
@given(data=st.data())
def test_reset_leaves_nothing_but_the_parameters(kind, data):
    parameters, records = data.draw(COUNTERPARTS[kind].streams())
    metric = fed(kind, parameters, records)
    metric.reset()
    assert metric.state() == kind(**parameters).state()
    for record in records:
        metric.update(record)
    assert metric.state() == fed(kind, parameters, records).state()


@each(METRICS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda name, root, tables: _renamed(f"{name.rpartition('.')[0]}.99", root, tables),
        lambda name, root, tables: _renamed("Another.1", root, tables),
        lambda name, root, tables: [root, {**tables, name: {}}],
        lambda name, root, tables: [root, {**tables, name: {**tables[name], "unknown": [1]}}],
        lambda name, root, tables: [5, tables],
        lambda name, root, tables: {},
    ],
    ids=["version", "metric", "no fields", "other fields", "another value", "nothing"],
)
def test_a_state_that_does_not_fit_is_refused(kind, spoil):
    source = fed(kind, {}, streams.hostile(kind.takes, 5))
    target = fed(kind, {}, streams.hostile(kind.takes, 3))
    before = copy.deepcopy(target.state())
    root, tables = source.state()
    [name] = root
    with pytest.raises(ValueError, match=r"state"):
        target.load(spoil(name, root, tables))
    assert target.state() == before


def _renamed(new: str, root: Any, tables: Any) -> Any:
    [name] = root
    others = {other: rows for other, rows in tables.items() if other != name}
    return [{new: 0}, {**others, new: tables[name]}]


@each(METRICS)
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_memory_is_bounded_under_a_hostile_stream(kind, repeats):
    metric = kind()
    shrink(metric)
    sizes = []
    for t, record in enumerate(streams.hostile(kind.takes, 1_500, repeats)):
        metric.update(record)
        if t in (499, 1_499):
            sizes.append(entries(metric))
    assert sizes[1] <= sizes[0] + 2 * CAP, f"{sizes[0]} entries grew to {sizes[1]}"
    json.dumps(metric.state())


UNHASHABLE: Any = ["no", "name"]
SPOILT = [
    IssuedStep(9, b"s", b"a", uses=(1, UNHASHABLE), mentions=(1,)),
    IssuedStep(9, b"s", b"a", uses=(1,), mentions=(1, UNHASHABLE)),
    ObservedStep(9, b"a", b"o", place=UNHASHABLE, exits=("new",)),
    ObservedStep(9, b"a", b"o", place="new", exits=("newer", UNHASHABLE)),
    ObservedStep(9, b"a", b"o", place="new", achieved=("done-1", UNHASHABLE)),
    ObservedStep(9, b"a", b"o", place="new", tasks=(Task("t"), Task(UNHASHABLE))),
    ObservedStep(9, b"a", b"o", place="new", tasks=(Task("t"), Task("u", (("v", UNHASHABLE),)))),
]


@each([kind for kind in METRICS if kind.takes in (IssuedStep, ObservedStep)])
@pytest.mark.parametrize("before", [0, 4])
def test_a_record_that_cannot_be_taken_changes_nothing(kind, before):
    for record in [one for one in SPOILT if type(one) is kind.takes]:
        metric = fed(kind, {}, streams.hostile(kind.takes, before))
        state = copy.deepcopy(metric.state())
        try:
            metric.update(record)
        except TypeError:
            assert metric.state() == state


NEW_IN_ALL: dict[type, Callable[[int], Any]] = {
    IssuedStep: lambda t: IssuedStep(
        t, b"%d" % t, b"%d" % t, f"{t}", uses=(t,), mentions=(t,), words=frozenset({t})
    ),
    ObservedStep: lambda t: ObservedStep(t, b"%d" % t, b"%d" % t, place=t),
}


@each([kind for kind in METRICS if kind.takes in NEW_IN_ALL])
def test_a_step_past_the_caps_costs_what_one_before_costs(kind):
    """Slices of a new and of a long run in turns, so that other processes slow down both.

    With these caps an eviction that passes the entries deleted before it costs some 20 steps.
    """
    cap, record = 30_000, NEW_IN_ALL[kind.takes]
    early, late = kind(), kind()
    shrink(early, cap)
    shrink(late, cap)
    for t in range(70_000):
        late.update(record(t))
    ratios = []
    for begin in range(0, 10_000, 500):
        taken = []
        for metric, first in ((early, begin), (late, 70_000 + begin)):
            steps = [record(t) for t in range(first, first + 500)]
            began = time.thread_time()
            for step in steps:
                metric.update(step)
            taken.append(time.thread_time() - began)
        ratios.append(taken[1] / taken[0])
    assert statistics.median(ratios) < 7


def shrink(metric: Stateful, cap: int = CAP) -> None:
    """Set every cap to a few, also those of the parts."""
    for name in metric._slots():
        value = getattr(metric, name)
        if name.startswith("max_"):
            setattr(metric, name, cap)
        elif isinstance(value, Stateful):
            shrink(value, cap)


def entries(value: Any) -> int:
    """How many things are kept, at any depth."""
    if isinstance(value, Stateful):
        return sum(entries(getattr(value, name)) for name in value._slots())
    if isinstance(value, dict):
        return sum(entries(key) + entries(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return sum(map(entries, value))
    return 1
