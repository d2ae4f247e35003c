"""Streams of records in which loops, repeats and returns are likely, and hostile ones."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from tidegauge.events import Task
from tidegauge.streaming_metrics.known_noise import numbers_in
from tidegauge.streaming_metrics.records import (
    Answered,
    FinishedRun,
    IssuedStep,
    LoopSpending,
    ObservedStep,
)

from .batch import loops

MAX_STEPS = 40


def amounts():
    """Tokens or seconds: whole halves, so that sums are exact in any order."""
    return st.sampled_from([None, 0.0, 0.5, 3.0, 10.5])


@st.composite
def pairs(draw):
    """(state, action) pairs with planted periodic stretches, over small alphabets."""
    pair = st.sampled_from(list(product([b"A", b"B", b"C", b"D"], [b"go", b"x"])))
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
            IssuedStep(t, state, action, action.decode())
            for t, (state, action) in enumerate(walked)
        ]
    )


@st.composite
def spending_steps(draw):
    """Steps that spend tokens, at times that never go back and are not always known."""
    gaps = st.sampled_from([0.0, 0.4, 1.0, 19.5, 59.0, 60.0, 61.0, None])
    tokens = st.none() | st.integers(0, 1_000)
    steps, now = [], draw(st.sampled_from([0.0, 7.5]))
    for t, (gap, spent) in enumerate(draw(st.lists(st.tuples(gaps, tokens), max_size=30))):
        now += gap or 0.0
        time = None if gap is None else now
        steps.append(IssuedStep(t, b"", b"", time=time, choice_tokens=spent))
    return steps


@st.composite
def loop_spendings(draw):
    """What steps spend: at their issue, and later, in any order, as results; and what loops."""
    walked = [IssuedStep(t, *pair) for t, pair in enumerate(draw(pairs()))]
    spendings, waiting, looped = [], [], set()
    for t in range(len(walked)):
        known = loops(walked[: t + 1])
        first = known["first_step"]
        settled = tuple(sorted(set(range(first, t + 1)) - looped)) if first >= 0 else ()
        looped.update(settled)
        since = t + 1 - known["pending"] if known["pending"] else None
        spendings.append(LoopSpending(t, True, settled, since, first, draw(amounts())))
        waiting.append(t)
        for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
            if waiting:
                late = waiting.pop(draw(st.sampled_from([-1, 0])))
                spendings.append(
                    LoopSpending(
                        *(late, False, (), None, -1, draw(amounts()), draw(amounts())),
                        entropy=draw(amounts()),
                        looped=late in looped,
                    )
                )
    return spendings


def steps_of(**fields):
    """Runs of steps, some repeated, of every combination of the fields' values."""
    steps = [
        ObservedStep(0, **dict(zip(fields, values, strict=True)))
        for values in product(*fields.values())
    ]
    stretch = st.tuples(st.sampled_from(steps), st.sampled_from([1, 1, 2, 4]))
    return st.lists(stretch, max_size=20).map(
        lambda stretches: [
            step._replace(t=t)
            for t, step in enumerate(
                [step for step, times in stretches for _ in range(times)][:MAX_STEPS]
            )
        ]
    )


def observed_steps():
    return steps_of(
        action=[b"x", b"y"],
        outcome=[b"a", b"b", b"c", None],
        calls=[1, 2, 0],
        failed=[True, False, None],
        progress=[None, 0.0, 0.25, 0.5, 1.0],
        changed=[False, False, True],
        empty=[False, True],
        negative=[False, True],
    )


@st.composite
def numbered_results(draw):
    """Results with numbers in them, which change, come back, rise, or stay."""
    texts = [
        *("port {0}, {1} rows", "row {1}", "{0}", "no number", "id a{0}, {1} of 9", "{1} {0} {1}"),
        "{0} a{1} {2}",
    ]
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        action = draw(st.sampled_from([b"x", b"y"]))
        text = draw(st.sampled_from(texts))
        shuffled = draw(st.permutations(range(12)))
        late, turns = [30, 20, *range(10)], [*range(10, 19), 5, 30, 6]
        second = draw(st.sampled_from([[7], [1, 2], [*range(12)], late, turns, shuffled]))
        changed = draw(st.sampled_from([False] * 9 + [True]))
        for i in range(draw(st.integers(1, 12) | st.just(12))):
            result = text.format(shuffled[i], second[i % len(second)], i // 6).encode()
            steps.append(
                ObservedStep(
                    *(len(steps), action, result), changed=changed, numbers=numbers_in(result)
                )
            )
    return steps


def chosen(t, words, similarity=None):
    """An action of which only the words matter."""
    return IssuedStep(t, b"", b"", words=frozenset(words), similarity=similarity)


def chosen_actions():
    """Actions of few words, some of no word, of some of which the likeness is given."""
    words = st.frozensets(st.integers(1, 6), max_size=5)
    reported = st.none() | st.none() | st.sampled_from([0.0, 0.5, 1.0])
    return st.lists(st.tuples(words, reported), max_size=MAX_STEPS).map(
        lambda actions: [chosen(t, *one) for t, one in enumerate(actions)]
    )


@st.composite
def moments(draw):
    """When actions are issued and when their outcomes come: late, out of order or never."""
    waiting, found = [], []
    for step in draw(chosen_actions()):
        found.append(("issue", step, draw(st.sampled_from([False, False, False, True]))))
        waiting.append(step.t)
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
            if waiting:
                t = waiting.pop(draw(st.sampled_from([-1, -1, 0])))
                found.append(("observe", t, draw(st.booleans())))
    return found


def placed_steps():
    """Steps over places, some telling none, some achieving a task."""
    return steps_of(
        place=["a/1", "a/2", "b/1", "b/2", None],
        achieved=[(), (), (), ("task",)],
        changed=[False, False, True],
        empty=[False, True],
        negative=[False, True],
    )


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
    steps = range(1, 13)
    counts = [
        (taken, loop_steps, cycle_steps)
        for taken in steps
        for loop_steps in {0, taken // 2}
        for cycle_steps in {0, taken}
    ]
    run = st.builds(
        lambda success, t_max, counts: FinishedRun(
            success,
            counts[0],
            t_max=t_max,
            loop_steps=counts[1],
            tide_loop_steps=counts[1] // 2,
            tide_cycle_steps=counts[2],
        ),
        st.sampled_from([True, True, False, None]),
        st.sampled_from([None, 1, 4, 10]),
        st.sampled_from(counts),
    )
    return st.lists(run, max_size=20)


def hostile(takes, count, repeats=1):
    """Records of which nothing was ever seen before, or just ``repeats`` times."""
    for t in range(count):
        n = t // repeats
        new = b"%d" % n
        if takes is IssuedStep:
            words = frozenset(range(5 * n, 5 * n + 5))
            yield IssuedStep(t, new, new, f"tool-{n}", uses=(n,), mentions=(n,), words=words)
        elif takes is Answered:
            yield Answered(new, new, n)
        elif takes is LoopSpending:
            yield LoopSpending(t, True, (t,) if n % 2 else (), t - 3, n, 1.0, entropy=n / 7)
            yield LoopSpending(t, False, tokens=1.0, entropy=n / 7, looped=n % 2 == 0)
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
                looped=n % 2 == 0,
                place=(n, 0),
                exits=((n, 1), (n, 2), (n + 1, 0)),
                tasks=tasks,
                achieved=(f"done-{n}",),
            )
        else:
            yield FinishedRun(
                n % 2 == 0,
                n + 1,
                task=f"task-{n}",
                t_max=n + 2,
                operations=n,
                height=n,
                memory=f"arm-{n}",
                frontier=n,
                pending=n,
                loop_actions=((f"tool-{n}", n),),
            )
