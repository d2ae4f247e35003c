"""Pending tasks: sets recomputed from the definitions at every prefix."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.events import Task
from tidegauge.streaming_metrics.pending_tasks import PendingTasks

IDS = st.integers(0, 4)
REQUIRES = st.lists(st.lists(IDS, max_size=3).map(tuple), max_size=3).map(tuple)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("discover"), IDS, REQUIRES, st.none() | st.sampled_from("ABC")),
        st.tuples(st.just("visit"), st.sampled_from("ABC")),
        st.tuples(st.just("achieve"), IDS),
    ),
    max_size=30,
)


class Batch:
    """Everything anew from sets."""

    def __init__(self) -> None:
        self.requires: dict[int, tuple[tuple[int, ...], ...]] = {}
        self.at: dict[int, str | None] = {}
        self.achieved: set[int] = set()

    @property
    def pending(self) -> dict[int, str | None]:
        return {
            task: self.at[task]
            for task, sets in self.requires.items()
            if task not in self.achieved
            and (not sets or any(self.achieved.issuperset(needed) for needed in sets))
        }

    def apply(self, event):
        match event:
            case "discover", task, requires, place:
                if task not in self.achieved:
                    self.requires.setdefault(task, requires)
                    self.at[task] = self.at.get(task) or place
                return None
            case "visit", place:
                before = len(self.achieved)
                while ready := {t for t, at in self.pending.items() if at == place}:
                    self.achieved |= ready
                return len(self.achieved) - before
            case _, task:
                news = task not in self.achieved
                self.achieved.add(task)
                return news


def apply(tasks: PendingTasks, event):
    match event:
        case "discover", task, requires, place:
            tasks.discover([Task(task, requires)], place)
            return None
        case "visit", place:
            return tasks.visit(place)
        case _, task:
            return tasks.achieve(task)


def check(tasks: PendingTasks, batch: Batch) -> None:
    pending = batch.pending
    assert tasks.pending == pending
    assert tasks.achieved == batch.achieved
    assert tasks.discovered == len(batch.requires.keys() - batch.achieved)
    assert tasks.goal_pending == (0 in pending)
    assert tasks.goal_place == pending.get(0)
    assert tasks.placeless == sum(place is None for place in pending.values())
    where = {place for place in pending.values() if place is not None}
    assert {place: set(found) for place, found in tasks.places.items()} == {
        place: {task for task, at in pending.items() if at == place} for place in where
    }


@given(EVENTS, st.integers(0, 30))
def test_equals_the_definition_at_every_prefix(events, cut):
    tasks, batch = PendingTasks(goal=0), Batch()
    for index, event in enumerate(events):
        if index == cut:
            state = json.loads(json.dumps(tasks.state()))
            tasks = PendingTasks()
            tasks.load(state)
        assert apply(tasks, event) == batch.apply(event)
        check(tasks, batch)
    requirements = sum(map(len, tasks._waiting.values()))
    assert tasks.requirements == requirements


def test_alternatives_are_or_of_ands():
    tasks = PendingTasks(goal="goal")
    tasks.discover([Task("goal", (("a", "b"), ("c",)))], "home")
    tasks.achieve("a")
    assert not tasks.goal_pending
    tasks.achieve("c")
    assert tasks.goal_pending
    assert tasks.goal_place == "home"
    assert tasks.goal_was_pending
    assert tasks.visit("home") == 1
    assert not tasks.goal_pending


def test_a_task_is_given_the_place_it_lacked_and_keeps_it():
    tasks = PendingTasks()
    tasks.discover([Task("free"), Task("blocked", (("free",),))], None)
    assert tasks.placeless == 1
    for place in (None, "A", "B"):
        tasks.discover([Task("free"), Task("blocked")], place)
    assert (tasks.pending, tasks.placeless) == ({"free": "A"}, 0)
    tasks.visit("A")
    assert tasks.pending == {}
    assert tasks.achieved == {"free", "blocked"}


def test_a_chain_at_one_place_is_achieved_by_one_visit():
    tasks = PendingTasks()
    tasks.discover([Task(n + 1, ((n,),)) for n in range(500)], "desk")
    assert tasks.visit("desk") == 0
    tasks.achieve(0)
    assert tasks.visit("desk") == 500
    assert (tasks.requirements, tasks.discovered) == (0, 0)


def test_caps_bound_hostile_streams():
    tasks = PendingTasks(max_tasks=20, max_requirements=30)
    for n in range(1_000):
        tasks.discover([Task(("t", n), ((("p", n), ("q", n)), (("r", n),)))], n)
        tasks.achieve(("other", n))
        assert tasks.discovered + len(tasks.achieved) <= 20
        assert tasks.requirements <= 30
    assert tasks.dropped_tasks > 1_000
    wide = PendingTasks(max_requirements=30)
    wide.discover([Task("wide", (tuple(range(1_000)),))], "here")
    assert (wide.discovered, wide.dropped_tasks) == (0, 1)


def test_reset_keeps_the_parameters_only():
    tasks = PendingTasks(goal="g", max_tasks=5)
    tasks.discover([Task("g", ()), Task("h", (("g",),))], None)
    tasks.reset()
    assert tasks.state() == PendingTasks(goal="g", max_tasks=5).state()
