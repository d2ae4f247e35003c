"""pass@k: unbiased, bounded, and reported for tasks with enough runs only."""

from __future__ import annotations

import random
import statistics

import pytest

from tidegauge.streaming_metrics.pass_at_k import PassAtK, pass_at_k
from tidegauge.streaming_metrics.records import FinishedRun


def passed(*runs, **parameters):
    metric = PassAtK(**parameters)
    for task, success in runs:
        metric.update(FinishedRun(success, steps=1, task=task))
    return metric


def test_edges_of_the_estimate():
    assert pass_at_k(5, 0, 5) == 0
    assert pass_at_k(5, 1, 5) == 1
    assert pass_at_k(5, 5, 1) == 1
    assert pass_at_k(100, 3, 100) == 1


def test_many_runs_are_exact():
    assert pass_at_k(2_000, 1, 1_000) == pytest.approx(0.5, rel=1e-12)


def test_unbiased():
    # one run in five is solved: the mean estimate of pass@3 is 1 - 0.8 ** 3
    drawn = random.Random(3)
    estimates = [
        pass_at_k(10, sum(drawn.random() < 0.2 for _ in range(10)), 3) for _ in range(4_000)
    ]
    assert statistics.fmean(estimates) == pytest.approx(1 - 0.8**3, abs=0.015)


def test_tasks_count_alike_however_often_they_were_run():
    metric = passed(*[("easy", True)] * 98, ("hard", False), ("hard", False))
    assert metric.value == 0.5


def test_tasks_with_too_few_runs_are_left_out():
    metric = passed(("a", True), ("b", True), ("b", False), ("b", False))
    assert metric.at(3) == 1
    assert metric.at(4) is None
    assert (metric.tasks(), metric.tasks(2), metric.tasks(4)) == (2, 1, 0)


def test_unknown_runs_are_left_out():
    metric = passed((None, True), ("a", None))
    assert (metric.value, metric.tasks()) == (None, 0)


def test_tasks_are_bounded_and_the_rest_is_counted():
    metric = passed(*((f"task {n}", True) for n in range(10)), ("task 0", False), max_tasks=4)
    assert (metric.tasks(), metric.dropped_runs, metric.tasks(2)) == (4, 6, 1)
    more = passed(("task 3", True), ("task 9", True), ("new", True), max_tasks=4)
    more.merge(metric)
    assert (more.tasks(), more.dropped_runs) == (4, 6 + 2)


def test_merging_into_nothing_does_not_share_what_is_kept():
    source, target = passed(("a", True)), PassAtK()
    target.merge(source)
    target.update(FinishedRun(False, steps=1, task="a"))
    target.update(FinishedRun(False, steps=1, task="b"))
    assert (source.at(1), source.tasks()) == (1, 1)
    assert target.at(2) == 1


def test_a_larger_merge_into_nothing_keeps_the_cap():
    target = PassAtK(max_tasks=2)
    target.merge(passed(*((f"task {n}", True) for n in range(5))))
    assert (target.tasks(), target.dropped_runs) == (2, 3)


def test_no_task_text_is_kept():
    assert "secret" not in str(passed(("secret task", True)).state())
