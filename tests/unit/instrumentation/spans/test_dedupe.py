"""One model call, shown by several instrumentations, in traces of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tidegauge.foreign_spans.dedupe import Interval, SeenModel
from tidegauge.foreign_spans.grouping import RecentModels
from tidegauge.foreign_spans.span import ModelSpan


def run(*scopes: str) -> Any:
    return SimpleNamespace(scopes=set(scopes), traces={1})


def seen(scope: str, start: int = 0, place: int = 0) -> SeenModel:
    when = Interval(start, start + 10)
    return SeenModel(scope, when, ModelSpan(calls=(), tokens=5), place=place)


def test_the_run_in_which_another_instrumentation_shows_a_call() -> None:
    models, first, last = RecentModels(), run("one"), run("one")
    models.add(seen("one"), first, 1)
    assert models.run_of(seen("one"), 1) is None
    assert models.run_of(seen("other", start=50), 1) is None
    assert models.run_of(seen("other"), 1) is first
    models.add(seen("one"), last, 1)
    assert models.run_of(seen("other"), 1) is last
    near = run("one")
    models.add(seen("one", start=-1), near, 1)
    models.add(seen("one", start=3), run("one"), 1)
    assert models.run_of(seen("other", start=-2), 1) is near
    near.scopes.add("other")
    last.scopes.add("other")  # it shows that run already
    assert models.run_of(seen("other"), 1) is first


def test_of_equal_calls_that_of_the_same_thread_is_taken_before_a_nearer_one() -> None:
    models, mine, nearer, unknown = RecentModels(), run("one"), run("one"), run("one")
    models.add(seen("one", place=7), mine, 1)
    models.add(seen("one", start=4, place=8), nearer, 1)
    models.add(seen("one", start=2), unknown, 1)
    assert models.run_of(seen("other", start=4, place=7), 1) is mine
    assert models.run_of(seen("other", start=5, place=9), 1) is nearer
    assert models.run_of(seen("other", start=1), 1) is unknown


def test_of_all_that_were_seen_the_last_thousand_are_known() -> None:
    models = RecentModels()
    models.add(seen("one"), run("one"), 1)
    for number in range(1, 1_000):
        models.add(seen("other", start=100 * number), run("other"), 1)
    assert models.run_of(seen("other"), 1) is not None
    models.add(seen("other", start=100_000), run("other"), 1)
    assert models.run_of(seen("other"), 1) is None
    assert models.run_of(seen("one", start=100_000), 1) is not None
    models.clear()
    assert models.run_of(seen("one", start=100_000), 1) is None
