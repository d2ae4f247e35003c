"""Policies that are calibrated again and again on what was recorded under the one before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tidegauge.cli.main import cli
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.policies import read_policy
from tidegauge.testing import capture

ALPHA = 0.1
RUNS = 160


def live(record_to: Path, policy: Path | None, seed: int, **settings: object) -> tuple[int, int]:
    """So many runs, each of which succeeds unless it is stopped.

    Returns:
        How many were stopped, of how many that could be.
    """
    rng = np.random.default_rng(seed)
    stopped = 0
    with capture(record_to=record_to, policy=policy, **settings) as seen:
        sink, force = seen.pipeline.recorder.sink, seen.pipeline.settings.decides()
        for number in range(RUNS):
            run = f"{seed} {number}"
            sink.run_started(RunStarted(run=run, agent="asker", task_group="mix"))
            for step in range(int(rng.geometric(0.15))):
                asked = f"question {step}" if rng.random() < 0.8 else "what was asked before"
                if sink.step_issued(Step(run, (Call("ask", asked),))).stop:
                    stopped += 1
                    sink.run_ended(RunEnded(run=run, outcome="stopped"))
                    break
                answer = f"answer {rng.integers(4)}"
                sink.step_observed(Outcome(run, (CallResult(answer, False),)))
            else:
                sink.run_ended(RunEnded(run=run, success=True))
        thresholds = force.thresholds
        could = sum(not thresholds.holds_out(f"{seed} {number}") for number in range(RUNS))
    return stopped, could if thresholds else 0


def calibrate(recording: Path, policy: Path, *options: str) -> str:
    asked = ("calibrate", str(recording), "--alpha", str(ALPHA), "-o", str(policy), *options)
    ran = CliRunner().invoke(cli, asked)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_ten_generations_stop_no_more_successful_runs_than_the_bound(tmp_path: Path) -> None:
    """Each is learned from what was recorded under the one before, which stopped runs."""
    stopped = could = 0
    policy, thresholds = None, []
    for generation in range(11):
        recording = tmp_path / f"{generation}.jsonl"
        of, all_of = live(recording, policy, generation)
        stopped, could = stopped + of, could + all_of
        policy = tmp_path / f"{generation}.toml"
        output = calibrate(recording, policy, "--action", "stop", "--holdout", "0.25")
        assert ("left out: " in output) == (generation > 0)
        thresholds += [one.threshold for one in read_policy(policy).thresholds]
    assert len(thresholds) == 11
    assert stopped > 0
    # The chance of a threshold from some 40 runs varies, and so does the share that is seen of it.
    deviation = (ALPHA * (1 - ALPHA) * (1 / 42 / 10 + 1 / could)) ** 0.5
    assert stopped / could < ALPHA + 3 * deviation


@pytest.mark.parametrize(
    ("options", "settings", "acts", "held_out"),
    [
        (("--action", "stop"), {}, {True}, {False}),
        (("--action", "nudge"), {}, {True}, {False}),
        (("--action", "observe"), {}, {False}, {False}),
        (("--action", "stop"), {"observe_only": True}, {False}, {False}),
        (("--action", "stop", "--holdout", "1"), {}, {False}, {True}),
        (("--action", "stop", "--holdout", "0.5"), {}, {True, False}, {True, False}),
    ],
)
def test_a_recording_says_what_policy_was_in_force(
    tmp_path: Path, options, settings, acts, held_out
) -> None:
    policy = tmp_path / "policy.toml"
    live(tmp_path / "first.jsonl", None, 1)
    calibrate(tmp_path / "first.jsonl", policy, *options)
    live(tmp_path / "second.jsonl", policy, 2, **settings)
    ends = [
        line
        for line in map(json.loads, (tmp_path / "second.jsonl").read_bytes().splitlines())
        if line["type"] == "end"
    ]
    first = (tmp_path / "first.jsonl").read_text()
    assert '"policy"' not in first
    known = [end["policy"] for end in ends]
    assert len(known) == RUNS
    assert {one["acts"] for one in known} == acts
    assert {one["held_out"] for one in known} == held_out
    assert len({one["version"] for one in known}) == 1
    exceeded = [one for one in known if one["exceeded"]]
    assert 0 < len(exceeded) < RUNS / 2
    assert {tuple(one["exceeded"]) for one in exceeded} == {("stagnation",)}
    stops = {end["run"] for end in ends if end.get("outcome") == "stopped"}
    if "stop" in options and True in acts:
        assert stops == {
            end["run"] for end in ends if end["policy"]["acts"] and end["policy"]["exceeded"]
        }
    else:
        assert not stops
