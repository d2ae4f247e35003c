"""Every entry point takes every hostile value: it arrives unchanged, is counted, costs little."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from hostile.agents_at_work import steps_of
from hostile.entry_points import CONSUMED, ENTRIES, MAIN, NAMES, QUICK, settings_of
from hostile.harness import ONE_VALUE, cheapest, check
from hostile.values import HEAVY, LARGE_TEXTS, SHAPES, touched
from tidegauge import testing
from tidegauge.policies import PolicyFile, Threshold, read_policy, read_score, write_policy
from tidegauge.policies.learned_score import WORDS, LearnedWeights, Number
from tidegauge.policies.learning import LearnedGroup, score_document
from tidegauge.streaming_metrics.features import FEATURES

UNTOUCHABLE = ("lazy", "remote", "tensor")
"""Looking into these has effects outside: a query, a request, a wait."""


def policy_with_a_learned_score(folder: Path) -> Path:
    """Reads every feature of a run at every step, and never stops one."""
    number = Number(1.0, 0.0, 1.0, 5.0)
    numbers = {feature.name: number for feature in FEATURES}
    weights = LearnedWeights(0.0, numbers, dict.fromkeys(WORDS, [1.0] * 256))
    file = folder / "score.json"
    file.write_bytes(score_document([LearnedGroup("", None, 40, 20, 20, weights)], []))
    threshold = Threshold("learned", 1e9, "stop", learned=read_score(file))
    policy = folder / "policy.toml"
    policy.write_text(write_policy(PolicyFile((), (threshold,)), folder=str(folder)))
    return policy


def takes_a_shape_with_a_learned_score(entry: str, shape: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        policy = policy_with_a_learned_score(Path(folder))
        assert read_policy(policy).policy().reads_features
        takes_a_shape(entry, shape, policy=policy)


def takes_a_shape(entry: str, shape: str, **settings: Any) -> None:
    call = ENTRIES[entry]
    value = SHAPES[shape]()
    gc.freeze()  # the collector's own look at a large value is no cost of ours
    counted = []
    with testing.capture(**settings_of(entry), **settings) as seen:
        times = call("ordinary")  # the value is handed over once a step
        least, a_step = (400, 60) if shape in LARGE_TEXTS else (ONE_VALUE.cpu_ms, 10)
        cpu_ms = max(least, a_step * times)
        limit = ONE_VALUE._replace(cpu_ms=cpu_ms)

        def once() -> None:
            before = steps_of(seen)
            expected = call(value)
            counted.append((steps_of(seen) - before, expected))

        touched.clear()
        cheapest(once, limit)
        found = list(touched)
        if entry not in NAMES:
            assert all(steps == made for steps, made in counted), (
                f"steps (counted, made): {counted}"
            )
        assert call("ordinary") > 0
    if entry not in CONSUMED and any(part in shape for part in UNTOUCHABLE):
        assert not found, f"looked into the value: {sorted(set(found))}"


def _cases(entries: Iterable[str]) -> list[Any]:
    return [
        pytest.param(
            shape, entry, marks=[] if entry in QUICK and shape not in HEAVY else pytest.mark.slow
        )
        for shape in SHAPES
        for entry in entries
        if shape not in HEAVY or entry in MAIN
    ]


@pytest.mark.parametrize(("shape", "entry"), _cases(ENTRIES))
def test_takes(shape: str, entry: str) -> None:
    check(takes_a_shape, entry, shape)


@pytest.mark.parametrize(("shape", "entry"), _cases(["tool-argument", "tool-result", "act"]))
def test_takes_with_a_learned_score(shape: str, entry: str) -> None:
    check(takes_a_shape_with_a_learned_score, entry, shape)
