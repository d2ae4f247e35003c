"""Streams for what is compared: runs of several arms and tasks, steps that recall."""

from __future__ import annotations

from hypothesis import strategies as st

from tidegauge.streaming_metrics.records import (
    EntropySums,
    FinishedRun,
    IssuedStep,
    RecallCounts,
)

from .streams import MAX_STEPS, amounts, looping_steps

successes = st.sampled_from([True, False, True, False, None])


def runs(**fields):
    """Finished runs whose fields are drawn apart from each other."""
    run = st.builds(FinishedRun, success=successes, steps=st.integers(1, 12), **fields)
    return st.lists(run, max_size=20)


def runs_of_arms():
    return runs(
        t_max=st.sampled_from([None, 10, 10, 10]),
        memory=st.sampled_from(["on", "off", "on", "off", "window-5", None]),
    )


def looping_runs():
    name = st.sampled_from("abc")
    return runs(
        t_max=st.just(10),
        loop_steps=st.sampled_from([0, 0, 1, 5]),
        loop_actions=st.dictionaries(name, st.integers(1, 4), max_size=3).map(
            lambda counts: tuple(counts.items())
        ),
    )


def attempts():
    return runs(task=st.sampled_from(["a", "b", "c", None]))


def runs_of_horizons():
    amount = st.sampled_from([None, 1, 2, 3, 4, 5, 8, 9, 100])
    return runs(operations=amount, height=amount)


def exploring_runs():
    left = st.sampled_from([None, 0, 0, 1, 3])
    return runs(frontier=left, pending=left, displaced_leads=left)


@st.composite
def looping_steps_with_entropy(draw):
    return [step._replace(entropy=draw(amounts())) for step in draw(looping_steps())]


def runs_with_entropy():
    count = st.integers(0, 3)
    sums = st.builds(
        lambda loops, others: EntropySums(loops / 4, loops, others * 1.5, others), count, count
    )
    return runs(entropy=st.none() | sums)


def recalling_steps():
    entities = st.sets(st.sampled_from(["key", "lamp", (1, 2)]), max_size=2).map(tuple)
    twice = entities.map(lambda some: some * 2)
    return st.lists(st.tuples(entities | twice, entities), max_size=MAX_STEPS).map(
        lambda told: [
            IssuedStep(t, b"s", b"a", uses=uses, mentions=mentions)
            for t, (uses, mentions) in enumerate(told)
        ]
    )


def recalling_runs():
    counts = st.lists(st.integers(0, 3), min_size=13, max_size=13).map(tuple)
    recall = counts.map(lambda lags: RecallCounts(7 * sum(lags), lags))
    return runs(recall=st.none() | recall)
