"""The features of learned scores: what their definitions give from all steps so far, at every step,
and the score that is fitted to arrays is the one that a live policy reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.policies import LearnedScore
from tidegauge.policies.learned_score import WORDS
from tidegauge.policies.learning import BUCKETS, ExampleSink, FeatureTable, Fitted
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.clues import clues_of_calls, clues_of_results, text_words
from tidegauge.streaming_metrics.features import FEATURES
from tidegauge.streaming_metrics.fingerprint import words_of

TASK = "find red shoes in src/shop.py"

calls = st.sampled_from(
    [
        Call("bash", "ls src && cat src/shop.py"),
        Call("bash", "sed -i s/a/b/ src/shop.py"),
        Call("bash", "echo x > notes.txt"),
        Call("bash", "git checkout src/shop.py"),
        Call("bash", "pytest tests/test_shop.py"),
        Call("search", {"query": "red shoes"}),
        Call("edit", {"path": "src/shop.py", "text": "still wrong, sorry"}),
        Call("update_plan", [{"status": "completed"}, {"status": "pending"}]),
        Call("update_plan", [{"status": "pending"}, {"status": "pending"}]),
        Call("submit", "done"),
        Call("muse"),
    ]
)
outcomes = st.sampled_from(
    [
        "red shoes found",
        "<returncode>1</returncode> no such file 17",
        "FAILED tests/test_shop.py::test_red\n1 failed",
        "FAILED tests/test_shop.py::test_blue\n1 failed",
        "2 passed",
        "",
        {"page": ["blue", 3]},
    ]
)
steps = st.tuples(
    calls,
    outcomes,
    st.sampled_from([True, False, False, None]),
    st.sampled_from([None, "shop", "cart"]),
)
walks = st.lists(st.tuples(steps, st.sampled_from([1, 1, 2, 3])), min_size=1, max_size=8).map(
    lambda stretches: [step for step, times in stretches for _ in range(times)]
)


def happened(walk: list[Any], take: Callable[[Any, dict[str, float]], None]) -> Engine:
    """Each step of a run, and its features as an action is issued."""
    engine = Engine(clock=None, features=True)
    engine.run_started(RunStarted(run="r", agent="a", task=TASK, t_max=8))
    for call, outcome, error, place in walk:
        signals = engine.step_issued(Step("r", (call,)))
        assert signals is not None
        names = [feature.name for feature in FEATURES]
        take(signals, dict(zip(names, signals.features.values, strict=True)))
        engine.step_observed(Outcome("r", (CallResult(outcome, error),), place=place))
    return engine


def trailing(flags: list[bool]) -> int:
    return next((count for count, flag in enumerate(reversed(flags)) if not flag), len(flags))


def again(keys: list[Any]) -> int:
    """How many of them occurred before."""
    return len(keys) - len(set(keys))


def by_definition(walk: list[Any], signals: Any) -> dict[str, float]:
    """All features after the last action of a walk, whose result is not known yet."""
    done = walk[:-1]
    issued = [clues_of_calls([call]) for call, *_ in walk]
    seen = [clues_of_results([CallResult(outcome)]) for _, outcome, *_ in done]
    now, last = issued[-1], seen[-1] if seen else clues_of_results([])
    errors = [error for _, _, error, _ in done]
    known = [error for error in errors if error is not None]
    places = [place for *_, place in done if place is not None]
    named = [path for clues in issued for path in clues.paths]
    edited = [path for clues in issued if clues.edits for path in clues.paths]
    failing = [clues.failing for clues in seen if clues.failing is not None]
    lines = [clues.error for clues in seen if clues.error is not None]
    plans = [clues.open_tasks for clues in issued if clues.open_tasks is not None]
    edits = [clues.edits for clues in issued]
    tools = [call.action for call, *_ in walk]
    words = [words_of([call]) for call, *_ in walk]
    old = frozenset().union(*words[:-1])
    task = text_words(TASK.encode())
    n, m = len(issued), len(seen)
    log = math.log1p

    def share(part: float, whole: float) -> float:
        return part / whole if whole else 0.0

    return {
        "stagnation": signals.stagnation,
        "steps": n,
        "log_steps": log(n),
        "turns_used": min(n / 8, 2),
        "repetition": signals.repetition,
        "similarity": signals.similarity,
        "repeated": signals.repetition / n,
        "loop_repeats": log(signals.loop_repeats),
        "result_streak": log(signals.result_streak or 0),
        "failed_rounds": log(signals.failed_rounds or 0),
        "recurrence": log(signals.recurrence or 0),
        "staleness": 0.0 if signals.novelty is None else 1 - signals.novelty,
        "stale_score": log(signals.stale_score or 0),
        "failed": share(sum(known), len(known)),
        "failures": log(sum(known)),
        "failed_now": bool(errors and errors[-1]),
        "looks": sum(clues.looks for clues in issued) / n,
        "look_streak": log(trailing([clues.looks for clues in issued])),
        "edits": sum(edits) / n,
        "since_edit": log(trailing([not one for one in edits])),
        "edited_again": log(again(edited)),
        "most_edits": log(max((edited.count(path) for path in edited), default=0)),
        "undone": log(sum(clues.undoes for clues in issued)),
        "tests": log(sum(clues.tests for clues in issued)),
        "failing": log(len(failing)),
        "same_failing": log(again(failing)),
        "failing_now": last.failing is not None,
        "ends": log(sum(clues.ends for clues in issued)),
        "named_again": share(again(named), len(named)),
        "named": log(len(named)),
        "places_again": share(again(places), len(places)),
        "place_again": log(places[:-1].count(places[-1])) if places else 0.0,
        "has_plan": bool(plans),
        "open_tasks": log(plans[-1]) if plans else 0.0,
        "plan_grew": log(sum(b >= a for a, b in itertools.pairwise(plans))),
        "errors": share(sum(clues.errors > 0 for clues in seen), m),
        "errors_now": log(last.errors),
        "same_error": log(again(lines)),
        "successes": share(sum(clues.successes > 0 for clues in seen), m),
        "successes_now": log(last.successes),
        "returned": share(sum(bool(clues.returned) for clues in seen), m),
        "returned_now": bool(last.returned),
        "doubts": sum(clues.doubts for clues in issued) / n,
        "doubts_now": log(now.doubts),
        "hopes": sum(clues.hopes for clues in issued) / n,
        "hopes_now": log(now.hopes),
        "action_size": log(now.size),
        "result_size": log(last.size),
        "sizes": share(sum(log(clues.size) for clues in seen), m),
        "empty": share(sum(clues.size < 8 for clues in seen), m),
        "tools": log(len(set(tools))),
        "tool_again": log(tools[:-1].count(tools[-1])),
        "new_words": len(words[-1] - old) / len(words[-1]),
        "task_words": len(words[-1] & task) / len(task),
        "task_found": len(last.words & task) / len(task),
        "task_found_most": max((len(clues.words & task) / len(task) for clues in seen), default=0),
    }


@given(walks)
def test_the_features_are_what_their_definitions_give_at_every_step(walk):
    taken = 0

    def check(signals: Any, found: dict[str, float]) -> None:
        nonlocal taken
        taken += 1
        assert found == pytest.approx(
            {name: float(value) for name, value in by_definition(walk[:taken], signals).items()}
        )

    happened(walk, check)
    assert taken == len(walk)


def any_weights(seed: int) -> Fitted:
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(4, len(FEATURES)))
    kinds[2:] = np.abs(kinds[2:]) + 0.1
    kinds[0] *= rng.random(len(FEATURES)) < 0.8
    words = rng.normal(size=len(WORDS) * BUCKETS) * (rng.random() < 0.8)
    return Fitted(float(rng.normal()), kinds, words)


@examples(2)
@given(walks, st.integers(0, 10**6))
def test_a_live_run_has_the_score_that_the_arrays_give_at_every_step(walk, seed):
    score = any_weights(seed)
    kept: list[Any] = []
    sink = ExampleSink(kept.append)
    live = LearnedScore({("", None): score.weights()})
    read: list[float | None] = []
    sink.run_started(RunStarted(run="r", agent="a", task=TASK))
    for call, outcome, error, place in walk:
        signals: Any = sink.step_issued(Step("r", (call,))).signals
        read.append(live.read(signals))
        observed: Any = sink.step_observed(Outcome("r", (CallResult(outcome, error),), place=place))
        assert live.read(observed.signals) == read[-1]  # it is read when an action is issued
    sink.run_ended(RunEnded(run="r", success=True))
    assert list(score.scores(FeatureTable(kept))) == pytest.approx(read)
    assert live.explain(signals).count(",") <= 3


def test_texts_of_any_kind_and_size_cost_little_and_never_raise():
    hostile = [
        "a" * 50_000,
        "a/" * 50_000,
        "a-" * 50_000,
        "> " * 50_000,
        "=" * 50_000,
        "git " * 9_999,
    ]
    hostile += [
        "\ud800 \x00",
        '{"command": "' + "\\" * 9_999,
        "FAILED " * 9_999,
        "todo [ ] " * 9_999,
    ]
    for text in hostile:
        for action in ("bash", "todo", "edit"):
            clues = clues_of_calls([Call(action, text)])
            assert len(clues.paths) <= 12
        assert len(clues_of_results([CallResult(text)]).words) <= 200


def test_no_content_is_kept_of_a_run():
    walk = [(Call("bash", "cat secret-name.txt"), "secret-result", True, None)] * 3
    engine = happened(walk, lambda signals, found: None)
    run = engine.get("r")
    assert run is not None
    from tidegauge.streaming_metrics.saved_run import save_run

    assert b"secret" not in orjson.dumps(save_run(run))
    assert b"shoes" not in orjson.dumps(save_run(run))
