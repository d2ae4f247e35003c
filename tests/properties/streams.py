"""Streams of records in which loops, repeats and returns are likely, and hostile ones."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegauge.events import Task
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep, ObservedStep

from .batch import loops

MAX_STEPS = 40


def text(*letters):
    return st.sampled_from([letter.encode() for letter in letters])


def amounts():
    """Tokens or seconds: whole halves, so that sums are exact in any order."""
    return st.none() | st.integers(0, 20).map(lambda halves: halves / 2)


@st.composite
def pairs(draw):
    """(state, action) pairs with planted periodic stretches, over small alphabets."""
    pair = st.tuples(text("A", "B", "C", "D"), st.just(b"go") | text("x", "y"))
    stretch = st.tuples(st.lists(pair, min_size=1, max_size=4), st.integers(1, 5))
    walked = [
        pair
        for cycle, times in draw(st.lists(stretch, max_size=8))
        for _ in range(times)
        for pair in cycle
    ]
    return walked[:MAX_STEPS]


def issued_steps():
    return pairs().map(
        lambda walked: [
            IssuedStep(t, state, action, action.decode()) for t, (state, action) in enumerate(walked)
        ]
    )


@st.composite
def looping_steps(draw):
    """Observed steps with what the loop metric said of each when it was issued."""
    walked = [IssuedStep(t, *pair) for t, pair in enumerate(draw(pairs()))]
    steps = []
    looped = 0
    for t in range(len(walked)):
        known = loops(walked[: t + 1])
        settled = known["loop_steps"] - looped
        looped = known["loop_steps"]
        step = ObservedStep(
            t,
            tokens=draw(amounts()),
            seconds=draw(amounts()),
            loop_matched=known["pending"] or settled,
            loop_settled=settled,
            loop_first_step=known["first_step"],
        )
        steps.append(step)
    return steps


def observed_steps():
    step = st.builds(
        ObservedStep,
        t=st.just(0),
        action=text("x", "y"),
        outcome=st.none() | text("a", "b", "c"),
        calls=st.sampled_from([1, 1, 1, 2, 0]),
        failed=st.sampled_from([True, True, False, None]),
        progress=st.none() | st.integers(0, 8).map(lambda eighths: eighths / 8),
    )
    repeated = st.lists(st.tuples(step, st.integers(1, 4)), max_size=20)
    return repeated.map(
        lambda runs: numbered([step for step, times in runs for _ in range(times)][:MAX_STEPS])
    )


def numbered(steps):
    return [step._replace(t=t) for t, step in enumerate(steps)]


def placed_steps():
    """Steps over places, some telling none, some achieving a task."""
    step = st.builds(
        ObservedStep,
        t=st.just(0),
        place=st.none() | st.sampled_from(["a/1", "a/2", "b/1", "b/2"]),
        achieved=st.sampled_from([(), (), (), ("task",)]),
    )
    return st.lists(step, max_size=MAX_STEPS).map(numbered)


@st.composite
def worlds(draw):
    """A small world, what is seen of it at the start, and a walk along its exits."""
    places = [f"p{n}" for n in range(draw(st.integers(2, 6)))]
    place = st.sampled_from(places)
    edges = draw(st.sets(st.tuples(place, place), max_size=8))
    exits = {here: {b for a, b in edges if a == here} for here in places}
    for here, there in edges:
        exits[there].add(here)
    task = st.sampled_from([f"t{n}" for n in range(4)])
    alternatives = st.lists(st.lists(task, max_size=2).map(tuple), max_size=2).map(tuple)
    tasks = draw(st.dictionaries(task, st.tuples(place, alternatives), max_size=4))

    def seen(here):
        found = tuple(Task(task, needs) for task, (at, needs) in tasks.items() if at == here)
        return {"place": here, "exits": tuple(sorted(exits[here] - {here})), "tasks": found}

    here = places[0]
    start = {**seen(here), "goal": draw(st.none() | task)}
    steps = []
    for t in range(draw(st.integers(0, MAX_STEPS))):
        here = draw(st.sampled_from(sorted(exits[here] | {here})))
        achieved = draw(st.sampled_from([(), (), (), (), ("t0",), ("t1",)]))
        steps.append(ObservedStep(t, achieved=achieved, **seen(here)))
    return start, steps


def finished_runs():
    run = st.builds(
        FinishedRun,
        success=st.none() | st.booleans(),
        steps=st.integers(1, 12),
        t_max=st.none() | st.integers(1, 10),
        loop_steps=st.integers(0, 12),
        cycle_steps=st.integers(0, 12),
    )
    return st.lists(run, max_size=20)


def hostile(takes, count, repeats=1):
    """Records of which nothing was ever seen before, or just ``repeats`` times."""
    for t in range(count):
        n = t // repeats
        new = b"%d" % n
        if takes is IssuedStep:
            yield IssuedStep(t, new, new, f"tool-{n}", uses=(n,), mentions=(n,))
        elif takes is ObservedStep:
            tasks = (
                Task(f"ready-{n}"),
                Task(f"blocked-{n}", ((f"never-{n}", f"no-{n}"), (f"not-{n}",))),
            )
            yield ObservedStep(
                t,
                new,
                new,
                failed=True,
                tokens=1.0,
                seconds=1.0,
                progress=n / count,
                entropy=n / 7,
                loop_matched=1,
                loop_settled=n % 2,
                loop_first_step=n,
                place=(n, 0),
                exits=((n, 1), (n, 2), (n + 1, 0)),
                tasks=tasks,
                achieved=(f"done-{n}",),
            )
        else:
            yield FinishedRun(True, n + 1, task=f"task-{n}", t_max=n + 2, operations=n, height=n)
