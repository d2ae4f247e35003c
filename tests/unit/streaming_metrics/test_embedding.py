"""Embedding matcher: nearness, order, bounds, and vectors that are none."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tidegauge
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.events import ABSENT
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics.embedding import EmbeddingMatcher


def matcher_of(**parameters):
    return EmbeddingMatcher(lambda vector: vector, **parameters)


def turned(degrees):
    """A direction in the plane."""
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def test_near_vectors_are_one_state():
    # cos 2.5 degrees is .99905, cos 2.6 is .99897
    matcher = matcher_of()
    first = matcher(turned(0))
    assert matcher(turned(2.5)) == first
    assert matcher(turned(-2.5)) == first
    assert matcher(turned(2.6)) != first


def test_the_threshold_is_the_callers():
    strict, loose = matcher_of(threshold=1.0), matcher_of(threshold=0.5)
    assert strict(turned(0)) != strict(turned(0.2))
    assert loose(turned(0)) == loose(turned(59)) != loose(turned(61))


def test_a_vector_is_near_itself_at_any_threshold():
    drawn = np.random.default_rng(5).standard_normal((200, 512))
    matcher = matcher_of(threshold=1.0)
    ids = [matcher(vector) for vector in drawn]
    assert len(set(ids)) == 200
    assert [matcher(vector) for vector in drawn] == ids
    assert len(matcher._ids) == 200


def test_lengths_mean_nothing():
    matcher = matcher_of()
    assert len({matcher(turned(30) * size) for size in (1, 1e-300, 1e300, 5)}) == 1
    assert matcher(-turned(30)) != matcher(turned(30))


def test_the_first_that_is_near_enough_gives_its_id():
    matcher = matcher_of()
    first, second = matcher(turned(0)), matcher(turned(4))
    assert first != second
    assert matcher(turned(2)) == first  # near to both
    assert matcher(turned(3)) == second


def test_small_changes_do_not_add_up():
    matcher = matcher_of()
    states = [matcher(turned(degrees)) for degrees in range(0, 90, 2)]
    assert len(set(states)) == 23
    assert states[0] == states[1] != states[2]


def test_the_oldest_is_dropped():
    matcher = matcher_of(max_vectors=3)
    ids = [matcher(turned(degrees)) for degrees in (0, 30, 60)]
    assert matcher(turned(90)) not in ids
    assert matcher.dropped_vectors == 1
    assert matcher(turned(31)) == ids[1]
    again = matcher(turned(1))  # the first is forgotten: this one is new, and 30 goes
    assert again != ids[0]
    assert matcher.dropped_vectors == 2
    assert matcher(turned(60)) == ids[2]
    assert matcher(turned(31)) not in ids


def test_the_older_of_two_gives_its_id_also_after_the_rows_are_used_again():
    matcher = matcher_of(max_vectors=3)
    for degrees in (0, 30, 34):
        matcher(turned(degrees))
    newest = matcher(turned(38))  # takes the row of 0
    assert matcher(turned(36)) == matcher(turned(34)) != newest


def test_the_older_of_two_gives_its_id_also_after_another_size():
    matcher = matcher_of(max_vectors=2)
    for degrees in (0, 30, 60):
        matcher(turned(degrees))
    older, newer = matcher([*turned(0), 0]), matcher([*turned(4), 0])
    assert matcher([*turned(2), 0]) == older != newer


def test_memory_is_bounded():
    matcher = matcher_of(max_vectors=100)
    for vector in np.random.default_rng(1).standard_normal((1_000, 64)):
        matcher(vector)
    assert matcher._rows.shape == (100, 64)
    assert matcher._rows.dtype == np.float32
    assert matcher.dropped_vectors == 900


def test_rows_grow_with_what_is_kept():
    matcher = matcher_of()
    for vector in np.random.default_rng(1).standard_normal((65, 8)):
        matcher(vector)
    assert len(matcher._rows) == 128


def test_zeros_are_one_state_and_near_nothing_else():
    matcher = matcher_of()
    assert matcher([0.0, 0.0]) == matcher([0.0, -0.0]) != matcher([1e-320, 0.0])


@pytest.mark.parametrize("vector", [[1.0, np.nan], [np.inf, 1.0], [], [[]]])
def test_vectors_that_are_none_are_near_nothing(vector):
    matcher = matcher_of()
    ordinary = matcher([1.0, 0.0])
    assert matcher(vector) != matcher(vector)
    assert matcher([1.0, 0.0]) == ordinary


def test_another_size_starts_over():
    matcher = matcher_of()
    before = matcher([1.0, 0.0])
    matcher([0.0, 1.0])
    other = matcher([1.0, 0.0, 0.0])
    assert matcher.dropped_vectors == 2
    assert matcher([1.0, 0.0, 0.0]) == other != before
    assert matcher([1.0, 0.0]) == before  # an id is the vector's digest
    assert matcher.dropped_vectors == 3


def test_batches_of_one_lists_and_integers_will_do():
    matcher = matcher_of()
    forms: list[Any] = [
        [3, 4],
        (3.0, 4.0),
        np.array([[3, 4]], dtype=np.uint8),
        np.float16([0.6, 0.8]),  # type: ignore[arg-type]
    ]
    assert len({matcher(form) for form in forms}) == 1


def test_ids_are_equal_in_every_matcher():
    assert matcher_of()([1.0, 2.0]) == matcher_of()([1.0, 2.0])


@pytest.mark.parametrize("item", [None, "no vector", [1.0, "x"], [[1.0], [2.0, 3.0]]])
def test_a_fault_costs_the_state_and_not_the_agent(item, faults_are_swallowed):
    def embed(item):
        if item is None:
            raise RuntimeError("no model")
        return item

    assert EmbeddingMatcher(embed)(item) is ABSENT
    assert internal_errors.counts() == {"embedding_matcher": 1}


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.01}, {"threshold": np.nan}, {"max_vectors": 0}]
)
def test_settings_that_cannot_work(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        matcher_of(**wrong)


def test_threads_share_one():
    matcher = matcher_of(max_vectors=50)
    vectors = np.random.default_rng(2).standard_normal((40, 16))
    reported = [[] for _ in range(4)]

    def feed(ids):
        ids.extend(matcher(vector) for vector in vectors)

    threads = [threading.Thread(target=feed, args=(ids,)) for ids in reported]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reported[0] == reported[1] == reported[2] == reported[3]
    assert len(matcher._ids) == len(set(matcher._ids)) == 40


def test_screens_that_flicker_are_a_loop():
    noise = np.random.default_rng(3)
    screens = [turned(degrees) for degrees in (0, 45, 90)] * 4
    matcher = matcher_of()
    with testing.capture() as seen:
        with tidegauge.run(agent="clicker") as run:
            for screen in screens:
                pixels = screen + noise.normal(0, 1e-3, 2)
                run.act("click", {"x": 1}, state=matcher(pixels))
                run.observe("clicked")
        totals = seen.pipeline.engine.snapshot().groups[0].totals
    assert totals.loop_steps == {"click": 9}


def test_numpy_is_not_imported_before_it_is_needed():
    code = (
        "import sys, tidegauge, tidegauge.streaming_metrics.embedding as e;"
        "m = e.EmbeddingMatcher(list); assert 'numpy' not in sys.modules;"
        "m([1.0]); assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
