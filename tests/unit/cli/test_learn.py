"""``tidegauge learn``, and what follows: a backtest, a policy, and a live agent that it stops."""

from __future__ import annotations

import builtins
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

import tidegauge as tg
from tidegauge.policies import PolicyFile, Threshold, read_policy, read_score, write_policy


def recorded(runs: int = 120, **started: Any) -> list[dict[str, Any]]:
    """Runs of which those that fail mostly have the same error, and no more steps."""
    chance, lines = random.Random(5), []
    for number in range(runs):
        name, success = f"r{number}", number % 2 == 0
        start = {"type": "start", "run": name, "agent": "a", "task_group": "g", **started}
        lines.append({"task": f"task {number}", **start})
        for step in range(8):
            error = chance.random() < (0.1 if success else 0.9)
            lines.append(
                {
                    "type": "step",
                    "run": name,
                    "action": f"go {chance.randrange(10**9)}",
                    "outcome": "error: no such page" if error else f"page {name} {step}",
                    "error": error,
                }
            )
        lines.append({"type": "end", "run": name, "success": success})
    return lines


def fail_always() -> None:
    with tg.run(agent="a", task_group="g") as run:
        for step in range(40):
            run.act(f"go {step}")
            run.observe("error: no such page", error=True)


def test_from_recorded_runs_to_a_live_agent_that_is_stopped(tidegauge, write, tmp_path: Path):
    runs = write(*recorded())
    ran = tidegauge("learn", runs, "--explain", "-o", "score.json")
    assert ran.code == 0, ran.err
    assert "learned" in ran.out
    assert "failed steps +" in ran.out
    assert ran.out.endswith("score.json written; weights: 1\n")
    document = orjson.loads((tmp_path / "score.json").read_bytes())
    assert document["weights"][0]["numbers"]["failed"]["weight"] > 0
    assert b"such page" not in (tmp_path / "score.json").read_bytes()
    learned = read_score(tmp_path / "score.json")
    assert 40 < len(learned.tasks) < 80

    ran = tidegauge("backtest", runs, "--score", "score.json", "--score", "stagnation", "--json")
    assert f"left out: {len(learned.tasks)} runs of tasks that the score" in ran.err
    saved = {one["score"]: one["steps_saved"] for one in ran.document["summary"]}
    assert set(saved) == {"learned", "stagnation", "steps", "steps_begun"}
    assert saved["learned"] is None or saved["learned"] > saved["stagnation"]

    ran = tidegauge("calibrate", runs, "--score", "score.json", "--action", "stop", "-o", "p.toml")
    assert ran.code == 0, ran.err
    (threshold,) = read_policy(tmp_path / "p.toml").thresholds
    assert (threshold.score, threshold.learned) == ("learned", learned)

    pipeline = tg.configure(policy=tmp_path / "p.toml", serve_metrics=False)
    try:
        with pytest.raises(tg.RunStopped) as stopped:
            fail_always()
    finally:
        pipeline.shutdown()
    assert stopped.value.reason == "learned"
    assert stopped.value.step < 12
    assert "failed" in stopped.value.message
    assert "features" not in str(stopped.value.metrics)

    ran = tidegauge("replay", runs, "--policy", "p.toml", "--json")
    stopped_runs = [run["success"] for run in ran.document["runs"] if "learned" in str(run)]
    assert stopped_runs.count(False) > 30 > 3 > stopped_runs.count(True)


def test_with_too_few_runs_it_says_what_is_needed_and_the_score_is_the_stagnation(tidegauge, write):
    ran = tidegauge("learn", write(*recorded(12)), "-o", "score.json")
    assert ran.code == 0
    assert "10 successful and 10 failed runs are needed" in ran.out
    assert "a threshold needs 19 successful runs" in ran.out
    assert ran.out.endswith("weights: 0\n")


def test_what_it_cannot_learn_from_is_one_clear_line(tidegauge, write, tmp_path: Path):
    unknown = [line for line in recorded(4) if line["type"] != "end"]
    ran = tidegauge("learn", write(*unknown), "-o", "score.json")
    assert (ran.code, ran.faults) == (
        2,
        ["tidegauge: no run with a known outcome; record runs with success true or false"],
    )
    ran = tidegauge("learn", write(*recorded(4)), "-o", "runs.jsonl")
    assert "also an input" in ran.err
    ran = tidegauge("learn", write(*recorded(4)), "--share", "0", "-o", "score.json")
    assert "--share is 0" in ran.err
    (tmp_path / "broken.json").write_text("{}")
    ran = tidegauge("calibrate", write(*recorded(4)), "--score", "broken.json", "-o", "p.toml")
    assert ran.code == 2
    assert "not a learned score" in ran.err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\x00" * 1_000,
        b"[]",
        b'{"format": 99, "weights": [], "tasks": []}',
        b'{"format": 2, "weights": [{"task_group": "g", "intercept": NaN}], "tasks": []}',
        b'{"format": 2, "weights": [{"task_group": "g", "intercept": 1e300}], "tasks": []}',
    ],
)
def test_a_damaged_score_is_one_line_and_an_exit_code_in_every_command(
    tidegauge, write, tmp_path: Path, content: bytes
):
    runs = write(*recorded(40))
    assert tidegauge("learn", runs, "-o", "score.json").code == 0
    score = read_score(tmp_path / "score.json")
    threshold = Threshold("learned", 1.0, "stop", learned=score)
    text = write_policy(PolicyFile((), (threshold,)), folder=str(tmp_path))
    (tmp_path / "policy.toml").write_text(text)
    assert tidegauge("replay", runs, "--policy", "policy.toml").code == 0

    (tmp_path / "score.json").write_bytes(content)
    for command in (
        ("replay", runs, "--policy", "policy.toml"),
        ("backtest", runs, "--policy", "policy.toml"),
        ("backtest", runs, "--score", "score.json"),
        ("calibrate", runs, "--score", "score.json", "-o", "p.toml"),
        ("serve", "--policy", "policy.toml"),
        ("watch", "--policy", "policy.toml"),
    ):
        ran = tidegauge(*command)
        assert ran.code == 2, command
        (line,) = ran.faults
        assert "score.json: " in line


def test_without_scikit_learn_it_says_what_to_install(tidegauge, write, monkeypatch):
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "sklearn":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    ran = tidegauge("learn", write(*recorded()), "-o", "score.json")
    assert ran.code == 2
    assert "pip install '.[learn]'" in ran.err
