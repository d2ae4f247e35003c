"""Batch versions of what is compared: arms, looping and other runs, attempts, horizons, lags."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import combinations

from . import batch


def memory_index(runs):
    """AUV with memory minus AUV without (TIDE 3.3)."""
    arms = {run.memory for run in runs if run.memory is not None}
    told = {arm: batch.auv([run for run in runs if run.memory == arm]) for arm in arms}
    return {
        "arms": sorted([arm, auv["runs"], auv["value"]] for arm, auv in told.items()),
        **_difference(told.get("on"), told.get("off")),
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
    return {
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
    told = [
        run
        for run in runs
        if run.success is not None and (run.operations is not None or run.height is not None)
    ]

    def rates(amounts):
        by_bucket = {}
        for run, amount in zip(told, amounts, strict=True):
            if amount is not None:
                bucket = next(2**power for power in range(21) if amount <= 2**power)
                by_bucket.setdefault(bucket, []).append(run.success)
        return [[bucket, statistics.fmean(by_bucket[bucket])] for bucket in sorted(by_bucket)]

    return {
        "value": statistics.fmean(run.success for run in told) if told else None,
        "by_operations": rates([run.operations for run in told]),
        "by_height": rates([run.height for run in told]),
    }


def premature_halts(runs):
    """Runs that failed with places or tasks left (LORE 4.4)."""
    known = [
        run
        for run in runs
        if run.success is not None and not (run.frontier is None and run.pending is None)
    ]
    halts = [run for run in known if not run.success and (run.frontier or 0) + (run.pending or 0)]
    return {
        "runs": len(known),
        "halts": len(halts),
        "frontier_left": sum(run.frontier or 0 for run in halts),
        "pending_left": sum(run.pending or 0 for run in halts),
        "displaced_leads": sum(run.displaced_leads or 0 for run in halts),
        "value": len(halts) / len(known) if known else None,
    }


def entropy_split(steps):
    """Mean entropy over loop steps and over other steps (TIDE B.4)."""
    looping = [False] * len(steps)
    for t, step in enumerate(steps):
        if step.loop_settled:
            looping[t + 1 - step.loop_settled : t + 1] = [True] * step.loop_settled
    told = [(flag, s.entropy) for flag, s in zip(looping, steps, strict=True)]
    return _means([e for loop, e in told if loop], [e for loop, e in told if not loop])


def group_entropy_split(runs):
    """The same from the sums of runs."""
    told = [run.entropy for run in runs if run.entropy is not None]
    loops = [e.loop_sum / e.loop_steps for e in told for _ in range(e.loop_steps)]
    others = [e.other_sum / e.other_steps for e in told for _ in range(e.other_steps)]
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
        told = [run.recall for run in runs if run.recall is not None and run.success is success]
        lags = sum(sum(recall.counts) for recall in told)
        means.append(sum(recall.total for recall in told) / lags if lags else None)
        counts.append([sum(column) for column in zip(*(r.counts for r in told), strict=True)])
    told = [run.recall for run in runs if run.recall is not None]
    lags = sum(sum(recall.counts) for recall in told)
    return {
        "value": sum(recall.total for recall in told) / lags if lags else None,
        "means": means,
        "counts": [column or [0] * 13 for column in counts],
    }
