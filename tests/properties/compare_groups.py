"""Metrics of groups, and those that read a run's entities and entropy: streams, batch versions."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from tidegauge.streaming_metrics.entropy_split import EntropySplit, GroupEntropySplit
from tidegauge.streaming_metrics.horizon import SuccessByHorizon
from tidegauge.streaming_metrics.loop_split import LoopActionShare, LoopSplit
from tidegauge.streaming_metrics.memory_index import MemoryIndex
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.pass_at_k import PassAtK
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.recall_lag import GroupRecallLag, RecallLag
from tidegauge.streaming_metrics.records import EntropySums, FinishedRun, IssuedStep, RecallCounts

from . import batch
from .counterpart import Counterpart
from .streams import MAX_STEPS, loop_spendings

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
    counts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), max_size=3).map(
        lambda counts: tuple(counts.items())
    )
    return runs(
        t_max=st.just(10),
        loop_steps=st.sampled_from([0, 0, 1, 5]),
        loop_actions=counts,
        tide_cycle_actions=counts,
    )


def attempts():
    return runs(task=st.sampled_from(["a", "b", "c", None]))


def runs_of_horizons():
    amount = st.sampled_from([None, 1, 2, 3, 4, 5, 8, 9, 100])
    return runs(operations=amount, height=amount)


def exploring_runs():
    left = st.sampled_from([None, 0, 0, 1, 3])
    return runs(
        frontier=left,
        pending=left,
        displaced_leads=left,
        t_max=st.sampled_from([None, 5, 10]),
        outcome=st.sampled_from(["failure", "failure", "stopped", "error"]),
        reason=st.sampled_from([None, None, "ValueError", "max_steps"]),
    )


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
        lambda given: [
            IssuedStep(t, b"s", b"a", uses=uses, mentions=mentions)
            for t, (uses, mentions) in enumerate(given)
        ]
    )


def recalling_runs():
    counts = st.lists(st.integers(0, 3), min_size=13, max_size=13).map(tuple)
    recall = counts.map(lambda lags: RecallCounts(7 * sum(lags), lags))
    return runs(recall=st.none() | recall)


def memory_index(runs):
    """AUV with memory minus AUV without (TIDE 3.3)."""
    arms = {run.memory for run in runs if run.memory is not None}
    fields = {arm: batch.auv([run for run in runs if run.memory == arm]) for arm in arms}
    return {
        "arms": sorted([arm, auv["runs"], auv["value"]] for arm, auv in fields.items()),
        **_difference(fields.get("on"), fields.get("off")),
    }


def loop_split(runs):
    """AUV of runs with a loop step minus AUV of the others (TIDE table 3)."""
    looping = batch.auv([run for run in runs if run.loop_steps > 0])
    straight = batch.auv([run for run in runs if run.loop_steps == 0])
    difference = _difference(looping, straight)
    return {
        "looping": looping["value"],
        "straight": straight["value"],
        "value": difference["value"],
    }


def _difference(left, right):
    if not left or not right or left["value"] is None or right["value"] is None:
        return {"value": None, "standard_error": None}
    errors = [left["standard_error"], right["standard_error"]]
    return {
        "value": left["value"] - right["value"],
        "standard_error": None if None in errors else sum(e * e for e in errors) ** 0.5,
    }


def loop_action_share(runs):
    """Loop steps by action."""
    names = [name for run in runs for name, count in run.loop_actions for _ in range(count)]
    once = [name for run in runs for name, count in run.tide_cycle_actions for _ in range(count)]
    return {
        "cycle_counts": dict(Counter(once)),
        "cycle_shares": [once.count(name) / len(once) for name in "abc"] if once else None,
        "loop_steps": len(names),
        "counts": dict(Counter(names)),
        "value": max(Counter(names).values()) / len(names) if names else None,
        "shares": [names.count(name) / len(names) for name in "abc"] if names else None,
    }


def pass_at_k(runs, k):
    """Every way to draw k runs of a task: how often is one of them solved?"""
    tasks = {}
    for run in runs:
        if run.task is not None and run.success is not None:
            tasks.setdefault(run.task, []).append(run.success)
    chances = [
        statistics.fmean(any(drawn) for drawn in combinations(attempts, k))
        for attempts in tasks.values()
        if len(attempts) >= k
    ]
    return {"value": statistics.fmean(chances) if chances else None, "tasks": len(chances)}


def horizon(runs):
    """Success rate by the next power of two."""
    reported = [
        run
        for run in runs
        if run.success is not None and (run.operations is not None or run.height is not None)
    ]

    def rates(amounts):
        by_bucket = {}
        for run, amount in zip(reported, amounts, strict=True):
            if amount is not None:
                bucket = next(2**power for power in range(21) if amount <= 2**power)
                by_bucket.setdefault(bucket, []).append(run.success)
        return [[bucket, statistics.fmean(by_bucket[bucket])] for bucket in sorted(by_bucket)]

    return {
        "value": statistics.fmean(run.success for run in reported) if reported else None,
        "by_operations": rates([run.operations for run in reported]),
        "by_height": rates([run.height for run in reported]),
    }


def premature_halts(runs):
    """Runs that failed with places or tasks left (LORE 4.4)."""
    known = [
        run
        for run in runs
        if run.success is not None and not (run.frontier is None and run.pending is None)
    ]
    left = [run for run in known if not run.success and (run.frontier or 0) + (run.pending or 0)]
    cut = {"policy": 0, "budget": 0, "error": 0}
    halts = []
    for run in left:
        if run.outcome == "stopped":
            cut["policy"] += 1
        elif run.reason == "max_steps" or (run.t_max is not None and run.steps >= run.t_max):
            cut["budget"] += 1
        elif run.outcome == "error":
            cut["error"] += 1
        else:
            halts.append(run)
    return {
        "runs": len(known),
        "halts": len(halts),
        "cut_short": {what: count for what, count in cut.items() if count},
        "frontier_left": sum(run.frontier or 0 for run in halts),
        "pending_left": sum(run.pending or 0 for run in halts),
        "displaced_leads": sum(run.displaced_leads or 0 for run in halts),
        "value": len(halts) / len(known) if known else None,
    }


def entropy_split(spendings):
    """Mean entropy over loop steps and over other steps (TIDE B.4)."""
    looped = {t for one in spendings for t in one.settled}
    reported = [(one.t in looped, one.entropy) for one in spendings if not one.issued]
    return _means([e for loop, e in reported if loop], [e for loop, e in reported if not loop])


def group_entropy_split(runs):
    """The same from the sums of runs."""
    reported = [run.entropy for run in runs if run.entropy is not None]
    loops = [e.loop_sum / e.loop_steps for e in reported for _ in range(e.loop_steps)]
    others = [e.other_sum / e.other_steps for e in reported for _ in range(e.other_steps)]
    return _means(loops, others)


def _means(loop, other):
    loop = [entropy for entropy in loop if entropy is not None]
    other = [entropy for entropy in other if entropy is not None]
    means = [statistics.fmean(part) if part else None for part in (loop, other)]
    return {
        "loop": means[0],
        "other": means[1],
        "value": None if None in means else means[0] - means[1],
        "steps": [len(loop), len(other)],
    }


def recall_lag(steps):
    """Equations 19 and 20 of TIDE, as they stand."""
    lags = []
    for t, step in enumerate(steps):
        for entity in set(step.uses):
            seen = [k for k in range(t) if entity in steps[k].mentions]
            if seen:
                lags.append(t - max(seen))
    return {
        "value": statistics.fmean(lags) if lags else None,
        "lags": len(lags),
        "total": sum(lags),
    }


def group_recall_lag(runs):
    """Mean lag over the runs of each kind, and the lags by bucket."""
    means, counts = [], []
    for success in (True, False, None):
        reported = [run.recall for run in runs if run.recall is not None and run.success is success]
        lags = sum(sum(recall.counts) for recall in reported)
        means.append(sum(recall.total for recall in reported) / lags if lags else None)
        counts.append([sum(column) for column in zip(*(r.counts for r in reported), strict=True)])
    reported = [run.recall for run in runs if run.recall is not None]
    lags = sum(sum(recall.counts) for recall in reported)
    return {
        "value": sum(recall.total for recall in reported) / lags if lags else None,
        "means": means,
        "counts": [column or [0] * 13 for column in counts],
    }


COUNTERPARTS: dict[type[Metric[Any]], Counterpart] = {
    MemoryIndex: Counterpart(
        runs_of_arms(),
        memory_index,
        seen={"arms": lambda m: sorted([arm, a.runs, a.value] for arm, a in m.arms.items())},
    ),
    LoopSplit: Counterpart(
        looping_runs(),
        loop_split,
        seen={"looping": lambda m: m.looping.value, "straight": lambda m: m.straight.value},
    ),
    LoopActionShare: Counterpart(
        looping_runs(),
        loop_action_share,
        seen={
            "shares": lambda m: [m.share(name) for name in "abc"] if m.loop_steps else None,
            "cycle_shares": lambda m: (
                [m.cycle_share(name) for name in "abc"] if m.cycle_counts else None
            ),
        },
    ),
    PassAtK: Counterpart(
        attempts(),
        pass_at_k,
        {"k": 2},
        seen={"tasks": lambda m: m.tasks(2)},
    ),
    SuccessByHorizon: Counterpart(
        runs_of_horizons(),
        horizon,
        seen={
            "by_operations": lambda m: [[b, r.value] for b, r in m.by_operations.items()],
            "by_height": lambda m: [[b, r.value] for b, r in m.by_height.items()],
        },
    ),
    PrematureHalts: Counterpart(exploring_runs(), premature_halts),
    EntropySplit: Counterpart(
        loop_spendings(),
        entropy_split,
        seen={"steps": lambda m: [m.sums.loop_steps, m.sums.other_steps]},
    ),
    GroupEntropySplit: Counterpart(
        runs_with_entropy(),
        group_entropy_split,
        seen={"steps": lambda m: [m.loop_steps, m.other_steps]},
    ),
    RecallLag: Counterpart(recalling_steps(), recall_lag),
    GroupRecallLag: Counterpart(
        recalling_runs(),
        group_recall_lag,
        seen={
            "means": lambda m: [m.mean(success=known) for known in (True, False, None)],
            "counts": lambda m: [
                list(m.recall(success=known).counts) for known in (True, False, None)
            ],
        },
    ),
}
