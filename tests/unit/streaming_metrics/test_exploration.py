"""Exploration and exploitation errors: golden walks, and a batch version at every prefix."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import Task
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.records import ObservedStep

GOLDEN = Path(__file__).parents[2] / "golden" / "explore.jsonl"
WALKS = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def walk_of(data) -> tuple[dict, list[ObservedStep]]:
    """What the agent learns along a golden walk: a cell's exits and tasks when it stands there."""
    exits = {
        tuple(int(part) for part in cell.split(",")): tuple(map(tuple, found))
        for cell, found in data["exits"].items()
    }
    tasks: dict[tuple[int, int], tuple[Task, ...]] = {}
    for name, task in data["tasks"].items():
        place = tuple(task["at"])
        found = Task(name, tuple(map(tuple, task["requires"])))
        tasks[place] = (*tasks.get(place, ()), found)
    start = tuple(data["start"])
    steps = [
        ObservedStep(t, place=place, exits=exits[place], tasks=tasks.get(place, ()))
        for t, place in enumerate(tuple(step["to"]) for step in data["steps"])
    ]
    opening = {"place": start, "exits": exits[start], "tasks": tasks.get(start, ())}
    return {**opening, "goal": data["goal"]}, steps


@pytest.mark.parametrize("number", range(len(WALKS)))
def test_golden(number):
    data = WALKS[number]
    opening, steps = walk_of(data)
    run = Exploration(**opening)
    for step, expected in zip(steps, data["steps"], strict=True):
        run.update(step)
        assert {name: getattr(run, name) for name in expected if name != "to"} == {
            name: value for name, value in expected.items() if name != "to"
        }
    assert run.exploration_error_rate == data["exploration_error"]
    assert run.exploitation_error_rate == data["exploitation_error"]
    assert run.value == data["exploration_error"]


# --- the batch version: everything anew from the whole record of the run, at every prefix ---


@dataclass
class World:
    """What is known after some steps, from the definitions."""

    here: object
    visited: list[object]  # places reported, in order, the start included
    listed: dict[object, set[object]]
    walked: set[tuple[object, object]]
    mapped: bool
    tasks: dict[object, tuple[tuple[object, ...], ...]]
    at: dict[object, object]
    achieved: set[object]
    waiting_since: int | None
    waited: int | None

    @property
    def frontier(self) -> set[object]:
        return {z for exits in self.listed.values() for z in exits} - set(self.visited)

    @property
    def pending(self) -> dict[object, object]:
        return {
            task: self.at[task]
            for task, sets in self.tasks.items()
            if task not in self.achieved
            and (not sets or any(self.achieved.issuperset(needed) for needed in sets))
        }

    def case(self, goal) -> int:
        pending, frontier = self.pending, self.frontier
        if goal in pending:
            return 2
        return {(0, 0): 0, (0, 1): 1, (1, 0): 3, (1, 1): 4}[bool(pending), bool(frontier)]

    def targets(self, goal) -> set[object]:
        """May contain ``None``: somewhere, for a task without a place."""
        match self.case(goal):
            case 0:
                return set()
            case 2:
                return {self.pending[goal]}
            case _:
                return self.frontier | set(self.pending.values())

    def distances(self, start, directed) -> dict[object, int]:
        edges = {(a, b) for a, exits in self.listed.items() for b in exits} | self.walked
        if not directed:
            edges |= {(b, a) for a, b in edges}
        found, layer = {start: 0}, {start}
        while layer:
            layer = {b for a, b in edges if a in layer} - found.keys()
            found |= dict.fromkeys(layer, max(found.values()) + 1)
        return found


def world_after(opening, steps) -> World:
    start = ObservedStep(-1, **{k: opening[k] for k in ("place", "exits", "tasks") if k in opening})
    goal = opening.get("goal")
    world = World(None, [], {}, set(), False, {}, {}, set(), None, None)
    for clock, step in enumerate([start, *steps]):
        if step.place is not None:
            if world.here is not None:
                world.walked.add((world.here, step.place))
            world.here = step.place
            world.visited.append(step.place)
            if step.exits is not None:
                world.mapped = True
                world.listed.setdefault(step.place, set()).update(step.exits)
        for task, requires in step.tasks:
            if task not in world.achieved:
                world.tasks.setdefault(task, requires)
                world.at[task] = step.place if world.at.get(task) is None else world.at[task]
        was_pending = goal in world.pending
        world.achieved |= set(step.achieved)
        was_pending |= goal in world.pending
        while here := {t for t, at in world.pending.items() if at == world.here is not None}:
            world.achieved |= here
            was_pending |= goal in here or goal in world.pending
        if was_pending and world.waiting_since is None:
            world.waiting_since = clock
        if was_pending and goal in world.achieved and world.waited is None:
            world.waited = clock - world.waiting_since
    return world


def stale_of(path) -> int | None:
    if not path:
        return None
    visits = Counter(path)
    uses = Counter(frozenset(move) for move in pairwise(path) if len({*move}) > 1)
    cycles = len(uses) - len(visits) + 1
    return cycles + sum(max(n - 2, 0) for n in [*uses.values(), *visits.values()])


def last_step(opening, steps, earlier) -> dict[str, object]:
    """What the last of ``steps`` was, given what those before it were."""
    goal, step = opening.get("goal"), steps[-1]
    before, after = world_after(opening, steps[:-1]), world_after(opening, steps)
    placed = before.here is not None
    case = before.case(goal) if placed else None
    gain = None
    targets = before.targets(goal) if placed else set()
    if placed and step.place is not None:
        new, old = step.place, before.here
        if opening.get("reach") == "anywhere":
            known = set(before.visited) | before.frontier
            near = {z: 0 if z == new else 1 for z in known}
            far = {z: 0 if z == old else 1 for z in known}
        else:
            near = before.distances(new, opening.get("directed", False))
            far = before.distances(old, opening.get("directed", False))
        gain = new in targets or any(
            near.get(z, math.inf) < far.get(z, math.inf) for z in targets if z is not None
        )
        if not gain and None in targets:
            gain = None
    entered = step.place is not None and (
        step.place in before.frontier
        or (placed and before.mapped and step.place not in before.visited)
    )
    progress = entered or after.achieved != before.achieved
    path_before = earlier[-1]["path"] if earlier else [p for p in [before.here] if p is not None]
    if not placed and step.place is None:
        here = [] if step.state is None else [step.state]
    elif step.place is None:
        here = []
    else:
        here = [step.place]
    path = [*path_before, *here] if placed or step.place is None else here
    if progress and path:
        path = path[-1:]
    several = len(targets - {None}) > 1
    rose = (stale_of(path) or 0) > (stale_of(path_before) or 0) and placed
    error = not progress and case != 0 and gain is not None and (not gain or (several and rose))
    return {
        "case": case,
        "gain": gain,
        "progress": progress,
        "error": error if placed else None,
        "exploration_error": (error and case in (1, 4)) if placed else None,
        "exploitation_error": (error and case in (2, 3, 4)) if placed else None,
        "judged": placed and (step.place is not None or progress),
        "path": path,
    }


def expected(opening, steps) -> dict[str, object]:
    done: list[dict[str, Any]] = []
    for t in range(len(steps)):
        done.append(last_step(opening, steps[: t + 1], done))
    world = world_after(opening, steps)
    judged = [step for step in done if step["judged"]]
    explore = [step for step in judged if step["case"] in (1, 4)]
    exploit = [step for step in judged if step["case"] in (2, 3, 4)]

    def rate(required, kind):
        if not explore and not exploit:
            return None
        return sum(step[kind] for step in required) / len(required) if required else 0.0

    births: dict[object, int] = {}
    newest = visited_age = None
    for clock in range(len(steps) + 1):
        frontier = world_after(opening, steps[:clock]).frontier
        gone = [births.pop(z) for z in list(births) if z not in frontier]
        visited_age = clock - gone[0] if gone else None
        newest = clock if frontier - births.keys() else newest
        births |= dict.fromkeys(frontier - births.keys(), clock)
    waits = world.waited
    if waits is None and world.waiting_since is not None:
        waits = len(steps) - world.waiting_since
    names = ("case", "gain", "progress", "error", "exploration_error", "exploitation_error")
    reported = world.here is not None
    return {
        **{name: done[-1][name] for name in names},
        "frontier": len(world.frontier) if reported else None,
        "pending": len(world.pending) if reported or world.tasks or world.achieved else None,
        "stale": stale_of(done[-1]["path"]),
        "exploration_required": len(explore),
        "exploration_errors": sum(step["exploration_error"] for step in explore),
        "exploitation_required": len(exploit),
        "exploitation_errors": sum(step["exploitation_error"] for step in exploit),
        "unknown_gain": sum(
            step["gain"] is None and steps[t].place is not None
            for t, step in enumerate(done)
            if step["judged"]
        ),
        "exploration_error_rate": rate(explore, "exploration_error"),
        "exploitation_error_rate": rate(exploit, "exploitation_error"),
        "oldest_lead_age": len(steps) - min(births.values()) if births else None,
        "leads.displaced": sum(birth != newest for birth in births.values()),
        "leads.visited_age": visited_age,
        "goal_pending_age": waits,
        "tasks_never_closed": reported and not world.achieved and bool(world.tasks),
    }


def measured(run: Exploration, names) -> dict[str, object]:
    return {
        name: getattr(run.leads, name[6:]) if name.startswith("leads.") else getattr(run, name)
        for name in names
    }


PLACES = st.sampled_from("ABCDEF")
IDS = st.sampled_from(["g", "t1", "t2", "t3"])
TASKS = st.lists(
    st.builds(Task, IDS, st.lists(st.lists(IDS, max_size=2).map(tuple), max_size=2).map(tuple)),
    max_size=2,
).map(tuple)
EXITS = st.none() | st.lists(PLACES, max_size=3, unique=True).map(tuple)
# most steps report their place, few report tasks: so that every case comes up
FREE_STEPS = st.lists(
    st.builds(
        ObservedStep,
        t=st.just(0),
        changed=st.just(False),
        negative=st.just(False),
        outcome=st.none(),
        state=st.sampled_from([None, b"x", b"y"]),
        place=st.one_of(PLACES, PLACES, PLACES, st.none()),
        exits=st.one_of(EXITS, st.just(())),
        tasks=st.one_of(st.just(()), st.just(()), TASKS),
        achieved=st.one_of(st.just(()), st.just(()), st.lists(IDS, max_size=1).map(tuple)),
    ),
    min_size=1,
    max_size=12,
)
OPENINGS = st.fixed_dictionaries(
    {
        "goal": st.sampled_from([None, "g"]),
        "reach": st.sampled_from(["adjacent", "adjacent", "anywhere"]),
        "directed": st.booleans(),
        "tasks": st.one_of(st.just(()), TASKS),
    },
    optional={"place": PLACES, "exits": EXITS},
).filter(lambda opening: "place" in opening or "exits" not in opening)


@st.composite
def walks(draw):
    """Walks that follow exits in a fixed world, as the paper's agents do."""
    size = draw(st.integers(2, 7))
    pairs = draw(st.sets(st.tuples(*[st.integers(0, size - 1)] * 2), min_size=1, max_size=14))
    exits = {
        place: tuple(
            sorted({b for a, b in pairs if a == place} | {a for a, b in pairs if b == place})
        )
        for place in range(size)
    }
    tasks = {place: draw(TASKS) for place in draw(st.sets(st.integers(0, size - 1), max_size=3))}
    here, steps = 0, []
    opening = {"place": 0, "exits": exits[0], "tasks": tasks.get(0, ()), "goal": "g"}
    for t in range(draw(st.integers(1, 25))):
        here = draw(st.sampled_from(exits[here] or (here,)))
        steps.append(ObservedStep(t, place=here, exits=exits[here], tasks=tasks.get(here, ())))
    return opening, steps


ACHIEVED_TWICE = [
    ObservedStep(0, state=b"y", achieved=("t1",)),
    ObservedStep(1, state=b"y", achieved=("t1",)),  # no progress: it was done before
    ObservedStep(2, state=b"y"),
]


@examples(4)
@given(st.one_of(walks(), st.tuples(OPENINGS, FREE_STEPS)))
@example(({"tasks": ()}, ACHIEVED_TWICE))
def test_equals_the_batch_version_at_every_prefix(walk):
    opening, steps = walk
    run = Exploration(**opening)
    for t, step in enumerate(steps):
        run.update(step)
        wanted = expected(opening, steps[: t + 1])
        assert measured(run, wanted) == wanted


@examples(2)
@given(st.one_of(walks(), st.tuples(OPENINGS, FREE_STEPS)), st.integers(0, 12))
def test_state_in_the_middle_changes_nothing_and_reset_forgets(walk, cut):
    opening, steps = walk
    run, moved = Exploration(**opening), Exploration()
    for step in steps[:cut]:
        run.update(step)
    moved.load(json.loads(json.dumps(run.state())))
    for step in steps[cut:]:
        run.update(step)
        moved.update(step)
        assert moved.state() == run.state()
    moved.reset()
    opened = Exploration(**opening)
    for name in ("graph", "pending_tasks", "leads"):
        assert getattr(moved, name).state() == getattr(opened, name).state()
    for step in steps:
        moved.update(step)
    if len(steps) > cut:
        assert moved.exploration_errors == run.exploration_errors
        assert moved.stale == run.stale


def fed(steps, **opening) -> Exploration:
    run = Exploration(**opening)
    for t, step in enumerate(steps):
        run.update(ObservedStep(t, **step))
    return run


def test_nothing_supplied_measures_the_stale_score_only():
    run = fed([{"state": state} for state in [b"a", b"b", b"a", b"b", b"a"]])
    assert (run.stale, run.stale_max) == (3, 3)
    absent = (run.value, run.exploitation_error_rate, run.case, run.gain, run.error, run.frontier)
    assert absent == (None,) * 6
    assert (run.pending, run.oldest_lead_age, run.goal_pending_age) == (None, None, None)
    assert not run.tasks_never_closed


def test_rates_are_absent_while_nothing_was_required():
    assert Exploration(place="A", exits=("B",)).value is None
    run = fed([{"place": "B"}, {"place": "A"}, {"place": "B"}], place="A")
    assert (run.case, run.gain, run.error, run.value) == (0, False, False, None)


def test_a_step_that_reports_no_place_is_not_judged():
    run = fed([{}, {"state": b"x"}], place="A", exits=("B",))
    assert (run.case, run.gain, run.error, run.exploration_required) == (1, None, False, 0)
    assert (run.stale, run.unknown_gain, run.oldest_lead_age) == (0, 0, 2)
    run.update(ObservedStep(2, achieved=("t",)))
    assert (run.progress, run.exploration_required, run.exploration_error_rate) == (True, 1, 0.0)


def test_a_place_that_no_exit_led_to_is_new_once_exits_were_reported():
    run = fed([{"place": "Z"}], place="A", exits=("B",))
    assert (run.gain, run.progress, run.error) == (False, True, False)
    run = fed([{"place": "Z"}], place="A")
    assert not run.progress


def test_tasks_without_a_place_are_closed_by_being_reported():
    todo = (Task("first"), Task("second", (("first",),)))
    run = fed([{"tasks": todo}, {"place": "A"}], place="A", exits=())
    assert (run.case, run.pending, run.gain, run.error) == (3, 1, None, False)
    assert (run.unknown_gain, run.tasks_never_closed) == (1, True)
    run.update(ObservedStep(2, achieved=("first",)))
    assert (run.pending, run.progress, run.tasks_never_closed) == (1, True, False)
    assert (run.exploitation_required, run.exploitation_errors) == (2, 0)


def test_a_goal_without_a_place_makes_gain_unknown():
    run = fed([{"tasks": (Task("g"),)}, {"place": "A"}], place="A", exits=("B",), goal="g")
    assert (run.case, run.gain, run.error, run.goal_pending_age) == (2, None, False, 1)


def test_only_a_target_without_a_place_makes_gain_unknown():
    goal = (Task("g", (("t",),)),)
    steps = [{"place": "B", "exits": ()}, {"achieved": ("t",), "tasks": (Task("note"),)}]
    run = fed([*steps, {"place": "B"}], place="A", exits=("B",), tasks=goal, goal="g")
    assert (run.case, run.pending, run.gain, run.error) == (2, 2, False, True)


def test_goal_pending_age_stops_when_the_goal_is_achieved():
    goal = (Task("g", (("t",),)),)
    steps = [{"place": "B", "exits": ("A",)}, {"achieved": ("t",)}, {"place": "B"}, {}]
    run = fed(steps, place="A", exits=("B",), tasks=goal, goal="g")
    assert (run.case, run.goal_pending_age) == (2, 2)
    run.update(ObservedStep(4, place="A"))
    run.update(ObservedStep(5, place="B"))
    assert (run.case, run.goal_pending_age) == (0, 3)


def test_goal_achieved_at_once_waited_for_nothing():
    run = fed([{"place": "B", "tasks": (Task("g"),)}, {}], place="A", exits=("B",), goal="g")
    assert run.goal_pending_age == 0


def test_anywhere_gain_is_landing_on_a_target():
    steps: list[Any] = [{"place": "B"}, {"place": "A"}, {"place": "C"}]
    run = Exploration(place="A", exits=("B", "C"), reach="anywhere")
    gains = []
    for t, step in enumerate(steps):
        run.update(ObservedStep(t, **step))
        gains.append(run.gain)
    assert gains == [True, False, True]


def test_distance_function_replaces_the_search():
    def distance(a, b):
        return abs(a - b)

    run = Exploration(place=0, exits=(100,), distance=distance)
    assert "distance" not in run.state()[1]["Exploration.1"]
    run.update(ObservedStep(0, place=50))
    assert run.gain is True
    run.update(ObservedStep(1, place=0))
    assert (run.gain, run.error) == (False, True)
    run.reset()
    assert run.distance is distance
    assert run.exploration_errors == 0


def test_a_distance_that_fails_leaves_the_run_as_it_was():
    def broken(a, b):
        raise ZeroDivisionError

    run = Exploration(place=0, exits=(100,), distance=broken)
    before = run.state()
    with pytest.raises(ZeroDivisionError):
        run.update(ObservedStep(0, place=50))
    assert run.state() == before


def test_an_unfinished_search_is_no_error_and_is_counted():
    there = [{"place": n, "exits": (n + 1,)} for n in range(1, 101)]
    back = [{"place": n} for n in range(99, 50, -1)]
    exact = fed(there + back, place=0, exits=(1,))
    assert (exact.gain, exact.error, exact.exploration_errors) == (False, True, 49)
    capped = fed(there + back, place=0, exits=(1,), max_visited=20)
    assert (capped.gain, capped.error) == (None, False)
    assert capped.exploration_required == exact.exploration_required
    assert capped.exploration_errors + capped.unknown_gain == 49


def test_caps_bound_a_hostile_run():
    run = Exploration(place=0, exits=(1,), max_places=50, max_edges=200, max_tasks=20)
    for t in range(2_000):
        exits = tuple(range(t * 10, t * 10 + 30))
        run.update(ObservedStep(t, place=t, exits=exits, tasks=(Task(("t", t), (("no",),)),)))
        assert len(run.graph.observed) + len(run.graph.frontier) <= 50
        assert run.graph.edges <= 200
        assert run.pending_tasks.discovered <= 20
    assert run.graph.dropped_places > 0
    assert run.pending_tasks.dropped_tasks > 0
    sizes = {name: len(json.dumps(getattr(run, name).state())) for name in ("graph", "leads")}
    assert max(sizes.values()) < 10_000
    assert (run.case, run.gain, run.progress, run.error) == (0, False, False, False)


def test_a_place_that_was_dropped_is_neither_new_nor_wrong():
    run = fed([{"place": "E"}], place="A", exits=("B", "C", "D", "E"), max_places=4)
    assert run.graph.dropped_places == 2
    assert (run.case, run.gain, run.progress, run.error) == (1, None, False, False)
    run.update(ObservedStep(1, place="A"))
    assert (run.gain, run.error, run.unknown_gain) == (None, False, 2)
    run.update(ObservedStep(2, place="D"))
    assert (run.gain, run.progress, run.frontier) == (True, True, 2)


def test_leads_of_an_exploration():
    run = fed([{"place": "B", "exits": ("D",)}], place="A", exits=("B", "C"))
    assert (run.leads.visited_age, run.leads.displaced, run.oldest_lead_age) == (1, 1, 1)
    run.update(ObservedStep(1, place="B"))
    run.update(ObservedStep(2, place="C"))
    assert (run.leads.visited_age, run.leads.displaced, run.oldest_lead_age) == (3, 0, 2)
