"""A learned score: its file, in policies, and what makes it refuse."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

import tidegauge
from support.requirements import needs
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import (
    LearnedScore,
    Policy,
    PolicyFile,
    Threshold,
    read_policy,
    read_score,
    score_of,
    write_policy,
)
from tidegauge.policies.learned_score import LearnedWeights, Number
from tidegauge.policies.learning import (
    ExampleSink,
    FeatureTable,
    LearnedGroup,
    fit,
    learn,
    score_document,
)
from tidegauge.policies.prices import read_prices
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.features import FEATURES, Features
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

FAILURES = LearnedWeights(-1.0, {"failures": Number(2.0, 0.0, 1.0, 5.0)}, {})


def document(**changed: Any) -> dict[str, Any]:
    number = {"weight": 2.0, "mean": 0.0, "scale": 1.0, "limit": 5.0}
    weights = {
        "task_group": "g",
        "runs": 40,
        "failed": 20,
        "intercept": -1.0,
        "numbers": {"failures": number},
        "words": {"task": [0.0, 1.5], "action": [], "result": []},
    }
    return {"format": 2, "weights": [weights], "tasks": ["00ff"], **changed}


def write(path: Path, content: object) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
    return path


def failing(sink: EngineSink, steps: int, group: str = "g") -> list[Any]:
    """A run whose steps all fail; gives the decisions as each action is issued."""
    sink.run_started(RunStarted(run="r", agent="a", task_group=group))
    decided = []
    for step in range(steps):
        decided.append(sink.step_issued(Step("r", (Call("go", step),))).action)
        sink.step_observed(Outcome("r", (CallResult(f"error {step}", True),)))
    return decided


def test_a_run_is_stopped_once_the_score_exceeds_its_threshold_and_the_message_says_why():
    # log(1 + failures) x 2 - 1 is above 2 from the fourth failure on.
    learned = LearnedScore({("g", None): FAILURES}, version="1")
    policy = Policy([], thresholds=[Threshold("learned", 2.0, "stop", learned=learned)])
    sink = EngineSink(Engine(clock=None, features=policy.reads_features), policy)
    assert failing(sink, 5) == ["go_on"] * 4 + ["stop"]
    decision = sink.step_issued(Step("r", (Call("go", 9),)))
    assert decision.reason == "learned"
    sink.run_ended(RunEnded(run="r", success=False))
    sink.run_started(RunStarted(run="r", agent="a", task_group="g"))
    messages = []
    for step in range(5):
        messages.append(sink.step_issued(Step("r", (Call("go", step),))).message)
        sink.step_observed(Outcome("r", (CallResult("error", True),)))
    assert messages[-1] == "learned 2.219 is above 2 (failed steps +3.2)"


def test_in_other_task_groups_the_score_is_the_stagnation():
    learned = LearnedScore({("g", None): FAILURES})
    policy = Policy([], thresholds=[Threshold("learned", 3.0, "stop", learned=learned)])
    sink = EngineSink(Engine(clock=None, features=True), policy)
    assert "stop" in failing(sink, 9, group="other")
    signals = sink.engine.get("r").signals()
    assert learned.read(signals) == signals.stagnation
    assert "failed rounds" in learned.explain(signals)


def test_an_agent_has_its_own_weights_if_there_are_any():
    own, others = FAILURES, FAILURES._replace(intercept=5.0)
    learned = LearnedScore({("g", "a"): own, ("g", None): others})
    assert learned.of("a", "g") is own
    assert learned.of("b", "g") is others
    assert learned.of("a", "h") is None


def test_the_words_count_by_bucket_and_by_the_root_of_their_number(tmp_path: Path):
    learned = read_score(write(tmp_path / "score.json", document()))
    weights = learned.of("a", "g")
    assert weights is not None
    engine = Engine(clock=None, features=True)
    engine.run_started(RunStarted(run="r", task="find red shoes"))
    features = engine.step_issued(Step("r", (Call("go"),))).features
    buckets = {word % 2 for word in features.task}
    expected = 1.5 / len(buckets) ** 0.5 if 1 in buckets else 0.0
    assert weights.parts(features)["task"] == pytest.approx(expected)


def test_without_features_the_score_is_not_measured():
    learned = LearnedScore({("", None): FAILURES})
    engine = Engine(clock=None, repetition=True)
    engine.run_started(RunStarted(run="r"))
    assert learned.read(engine.step_issued(Step("r", (Call("go"),)))) is None


def test_a_run_that_moves_to_another_worker_is_stopped_at_the_same_step():
    learned = LearnedScore({("g", None): FAILURES}, version="1")
    policy = Policy([], thresholds=[Threshold("learned", 2.0, "stop", learned=learned)])
    sink = EngineSink(Engine(clock=None, features=True), policy)
    assert failing(sink, 3) == ["go_on"] * 3
    state = orjson.loads(orjson.dumps(save_run(sink.engine.get("r"))))
    other = EngineSink(Engine(clock=None, features=True), policy)
    other.run_started(saved_start(state))
    load_run(other.engine.get("r"), state)
    decided = []
    for step in range(2):
        decided.append(other.step_issued(Step("r", (Call("go", step),))).action)
        other.step_observed(Outcome("r", (CallResult("error", True),)))
    assert decided == ["go_on", "stop"]


def test_a_file_that_changes_during_a_run_changes_no_decision(tmp_path: Path):
    score = read_score(write(tmp_path / "score.json", document()))
    text = write_policy(
        PolicyFile((), (Threshold("learned", 2.0, "stop", learned=score),)), folder=str(tmp_path)
    )
    (tmp_path / "policy.toml").write_text(text)
    with testing.capture(policy=tmp_path / "policy.toml"):
        with pytest.raises(tidegauge.RunStopped) as stopped:
            fails_while(lambda: (tmp_path / "score.json").write_bytes(b"{"))
        assert (stopped.value.reason, stopped.value.step) == ("learned", 4)


def fails_while(happens: Callable[[], object]) -> None:
    with tidegauge.run(task_group="g") as run:
        for step in range(9):
            run.act(f"go {step}")
            run.observe(f"error {step}", error=True)
            if step == 1:
                happens()


class TestPolicyFile:
    def test_a_policy_names_the_file_from_its_own_folder(self, tmp_path: Path, monkeypatch):
        (tmp_path / "scores").mkdir()
        score = read_score(write(tmp_path / "scores" / "score.json", document()))
        threshold = Threshold("learned", 2.0, "stop", agent="a", learned=score)
        text = write_policy(PolicyFile((), (threshold,)), folder=str(tmp_path))
        assert 'file = "scores/score.json"' in text
        assert f'score_version = "{score.version}"' in text
        (tmp_path / "policy.toml").write_text(text)
        monkeypatch.chdir("/")
        assert read_policy(tmp_path / "policy.toml").thresholds == (threshold,)
        policy = read_policy(tmp_path / "policy.toml").policy()
        assert policy.reads_features
        assert policy.reads_words

    def test_another_score_in_the_same_file_is_rejected(self, tmp_path: Path):
        score = read_score(write(tmp_path / "score.json", document()))
        threshold = Threshold("learned", 2.0, learned=score)
        text = write_policy(PolicyFile((), (threshold,)), folder=str(tmp_path))
        (tmp_path / "policy.toml").write_text(text)
        write(tmp_path / "score.json", document(tasks=[]))
        with pytest.raises(ConfigurationError, match="calibrate again"):
            read_policy(tmp_path / "policy.toml")
        (tmp_path / "score.json").unlink()
        with pytest.raises(ConfigurationError, match=r"score\.json: No such file"):
            read_policy(tmp_path / "policy.toml")

    def test_policies_with_different_scores_have_different_versions(self):
        versions = {
            Policy([], thresholds=[Threshold("learned", 2.0, learned=score)]).version
            for score in (LearnedScore({}, version="1"), LearnedScore({}, version="2"))
        }
        assert len(versions) == 2

    def test_a_learned_threshold_needs_its_file_and_no_other_has_one(self):
        with pytest.raises(ConfigurationError, match="needs its file"):
            Threshold("learned", 2.0)
        with pytest.raises(ConfigurationError, match="has no file"):
            Threshold("steps", 2.0, learned=LearnedScore({}))


def changed(**item: Any) -> dict[str, Any]:
    """A document whose only weights have something else."""
    return document(weights=[{**document()["weights"][0], **item}])


def number(**field: Any) -> dict[str, Any]:
    """One whose only number has something else."""
    return changed(numbers={"failures": {"weight": 1, "mean": 0, "scale": 1, "limit": 5, **field}})


NO_SCORE = "not a learned score; write one with tidegauge learn"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (orjson.dumps(document())[:-20], "not valid JSON"),
        (orjson.dumps(document()).replace(b"-1.0", b"NaN"), "not valid JSON"),
        (orjson.dumps(document()).replace(b"-1.0", b"1e999"), "not valid JSON"),
        (orjson.dumps(document()).replace(b"-1.0", b"9" * 400), "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        ([], NO_SCORE),
        ({}, NO_SCORE),
        ("text", NO_SCORE),
        (document(format=3), "format 3 is not supported"),
        (document(format=True), "format True is not supported"),
        (document(format="9" * 5_000), "is not supported"),
        (document(weights=[{}]), NO_SCORE),
        (document(weights={"g": 1}), NO_SCORE),
        (document(weights=document()["weights"] * 2), "two weights for"),
        (document(tasks="00ff"), NO_SCORE),
        (document(tasks=[["00ff"]]), NO_SCORE),
        (changed(numbers={"luck": {}}), NO_SCORE),
        (
            changed(numbers={"\x1b\n": {"weight": 1, "mean": 0, "scale": 1, "limit": 1}}),
            r"no feature '\\x1b\\n'; learn again",
        ),
        (changed(intercept="1"), NO_SCORE),
        (changed(intercept=True), NO_SCORE),
        (changed(intercept=1e200), "1e+200 is no weight"),
        (changed(task_group=None), NO_SCORE),
        (changed(agent=1), NO_SCORE),
        (changed(words={"task": "00"}), NO_SCORE),
        (changed(words={"task": [0.0, None]}), NO_SCORE),
        (changed(words={"task": [0.0] * 70_000}), "more than 65536 buckets"),
        (number(weight=1e200), "no weight"),
        (number(mean=-1e200), "no weight"),
        (number(scale=0), NO_SCORE),
        (number(scale=1e-200), NO_SCORE),
        (number(limit=-1), NO_SCORE),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: object, says: str):
    with pytest.raises(ConfigurationError, match=says.replace("+", r"\+")) as raised:
        read_score(write(tmp_path / "score.json", content))
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300 + len(str(tmp_path))


def test_a_file_that_is_too_large_or_no_file_is_not_read(tmp_path: Path):
    with (tmp_path / "large.json").open("wb") as stream:
        stream.truncate((64 << 20) + 1)
    with pytest.raises(ConfigurationError, match="larger than 64 MiB"):
        read_score(tmp_path / "large.json")
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_score(os.devnull)


@needs(hasattr(os, "mkfifo"), "this platform has no named pipes")
def test_nobody_waits_for_the_writer_of_a_pipe(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_score, read_prices):
        with pytest.raises(ConfigurationError, match="not a regular file"):
            read(tmp_path / "pipe")


def test_the_largest_weights_give_a_number(tmp_path: Path):
    numbers = {
        feature.name: {"weight": 1e12, "mean": -1e12, "scale": 1e-12, "limit": 1e12}
        for feature in FEATURES
    }
    content = changed(numbers=numbers, words={"task": [1e12], "action": [1e12], "result": [1e12]})
    learned = read_score(write(tmp_path / "score.json", content))
    engine = Engine(clock=None, features=True)
    engine.run_started(RunStarted(run="r", task="find red shoes", task_group="g"))
    assert math.isfinite(learned.read(engine.step_issued(Step("r", (Call("go"),)))))


def test_a_run_of_many_steps_that_are_all_new_keeps_no_more_and_costs_no_more():
    engine = Engine(clock=None, features=True)
    engine.run_started(RunStarted(run="r", task="find red shoes"))
    sizes = []
    for step in range(4_000):
        texts = [f"word{step}x{number}" for number in range(40)]
        path = f"src/file{step}.py"
        engine.step_issued(Step("r", (Call("edit", {"path": path, "text": " ".join(texts)}),)))
        error = f"FAILED tests/test_{step}.py::test\nError: {texts[0]}"
        engine.step_observed(Outcome("r", (CallResult(error, True),), place=f"page {step}"))
        if step in (1_500, 3_999):
            features = engine.get("r").of(Features)
            sizes.append(len(orjson.dumps(features.state())))
    assert sizes[1] < 1.1 * sizes[0]


def test_a_folder_is_no_score(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="Is a directory"):
        read_score(tmp_path)


class TestLearn:
    def recorded(self, runs: int = 80) -> list[Any]:
        """Runs that fail mostly by the same error, which successful ones hardly have."""
        chance, kept = random.Random(3), []
        sink = ExampleSink(kept.append)
        for number in range(runs):
            name, success = f"r{number}", number % 2 == 0
            sink.run_started(RunStarted(run=name, agent="a", task_group="g", task=f"t{number}"))
            for _ in range(6):
                error = chance.random() < (0.2 if success else 0.8)
                sink.step_issued(Step(name, (Call("go", chance.random()),)))
                text = "error: no such page" if error else f"page {chance.random()}"
                sink.step_observed(Outcome(name, (CallResult(text, error),)))
            sink.run_ended(RunEnded(run=name, success=success))
        return kept

    def test_it_finds_what_distinguishes_failed_runs_on_tasks_that_it_has_not_seen(self):
        examples = self.recorded()
        groups, tasks = learn(examples)
        (group,) = groups
        assert group.weights is not None
        learned = LearnedScore({("g", None): group.weights}, tasks)
        unseen = [one for one in examples if not learned.learned_from(one.run, one.task)]
        assert 0 < len(unseen) < len(examples) - 20
        assert group.left == sum(one.success for one in unseen)
        score = score_of(learned)
        assert score.learned is learned
        last = [
            (group.weights.intercept + sum(group.weights.parts(one.moments[-1]).values()), one)
            for one in unseen
        ]
        good = [value for value, one in last if one.success]
        bad = [value for value, one in last if not one.success]
        assert sum(b > g for b in bad for g in good) > 0.9 * len(bad) * len(good)
        assert any("failed steps" in part for part in group.weights.largest())

    def test_half_a_standard_deviation_of_the_stagnation_is_added(self):
        table = FeatureTable(self.recorded())
        runs = np.ones(len(table.examples))
        without = fit(table, runs, added=0.0).scores(table)
        added = fit(table, runs).scores(table) - without
        stagnation = table.numbers[:, 0]
        assert FEATURES[0].name == "stagnation"
        assert np.corrcoef(added, stagnation)[0, 1] == pytest.approx(1)
        assert added.std() == pytest.approx(without.std() / 2)

    def test_a_stop_counts_by_the_steps_that_it_saves(self):
        table = FeatureTable(self.recorded())
        runs = np.ones(len(table.examples))
        alike, by_left = (fit(table, runs, by_left=one).scores(table) for one in (False, True))
        early, late = table.step <= 2, table.step >= 5
        assert (by_left - alike)[early].mean() > (by_left - alike)[late].mean()

    def test_the_file_has_the_weights_of_the_fit(self, tmp_path: Path):
        table = FeatureTable(self.recorded())
        weights = fit(table, np.ones(len(table.examples))).weights()
        group = LearnedGroup("g", "a", 80, 40, 0, weights)
        content = score_document([group], ["00ff"])
        learned = read_score(write(tmp_path / "score.json", content))
        assert learned.of("a", "g") == weights

    def test_with_too_few_runs_there_are_no_weights(self):
        (group,), _ = learn(self.recorded(runs=24))
        assert group.weights is None

    def test_runs_that_a_policy_could_end_are_left_out(self):
        from tidegauge.events import PolicyInForce

        kept: list[Any] = []
        sink = ExampleSink(kept.append)
        for name, acts in (("r1", True), ("r2", False)):
            sink.run_started(RunStarted(run=name))
            sink.step_issued(Step(name, (Call("go"),)))
            in_force = PolicyInForce("1", acts, not acts)
            sink.run_ended(RunEnded(run=name, success=False, policy=in_force))
        assert [one.run for one in kept] == ["r2"]
        assert sink.could_be_ended == 1
