"""Stop rules on real agents' recorded runs: what the combined score saves, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.cli.main import cli
from tidegauge.events import RunStarted
from tidegauge.policies import read_policy
from tidegauge.recordings.step_events import RecordedStep, parse_line
from tidegauge.testing import capture

pytestmark = pytest.mark.slow

ALPHA = 0.05


def command(*arguments: object) -> str:
    ran = CliRunner().invoke(cli, [str(one) for one in arguments])
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def document(recorded_runs: Path) -> dict[str, Any]:
    """Every recording there is, each line learned from 20 good runs drawn 200 times."""
    files = sorted(recorded_runs.glob("*.events.jsonl"))
    asked = ("--alpha", ALPHA, "--calibration-runs", 20, "--repeats", 200, "--json", "--strict")
    return json.loads(command("backtest", *files, *asked))


def summary(document: dict[str, Any], score: str) -> dict[str, Any]:
    [found] = [one for one in document["summary"] if one["score"] == score]
    return found


def test_good_runs_are_stopped_no_more_often_than_promised(document) -> None:
    for score in ("stagnation", "steps"):
        assert summary(document, score)["groups"] == 11
        assert summary(document, score)["good_stopped"] <= ALPHA
    for row in document["rows"]:
        assert row["with_threshold"] == 1
        # in one group the mean over 200 draws of 20 runs varies around its expectation
        assert row["good_stopped"] <= ALPHA + 0.015


def test_the_combined_score_saves_more_than_step_count(document) -> None:
    combined, beside = (summary(document, score) for score in ("stagnation", "steps"))
    assert combined["steps_saved"] >= 1.5 * beside["steps_saved"] > 0


def test_in_no_group_it_is_much_worse_than_step_count(document) -> None:
    saved = {
        score: {
            (row["task_group"], row["agent"]): row["steps_saved"]
            for row in document["rows"]
            if row["score"] == score
        }
        for score in ("stagnation", "steps")
    }
    assert len(saved["steps"]) == 11
    for group, share in saved["stagnation"].items():
        assert share >= saved["steps"][group] - 0.05, group


def test_every_run_that_is_known_to_have_ended_well_or_badly_is_in_it(
    document, recorded_runs: Path
) -> None:
    known: dict[tuple[str, str], list[bool]] = {}
    for path in recorded_runs.glob("*.events.jsonl"):
        group: dict[str, tuple[str, str]] = {}
        for line in path.read_bytes().splitlines():
            event = json.loads(line)
            if event["type"] == "start":
                group[event["run"]] = (event.get("task_group", ""), event.get("agent", ""))
            elif event["type"] == "end" and event.get("success") is not None:
                known.setdefault(group[event["run"]], []).append(event["success"])
    found = {
        (row["task_group"], row["agent"]): (row["runs"], row["good"]) for row in document["rows"]
    }
    left_out = {(one["task_group"], one["agent"]) for one in document["left_out"]}
    assert found == {
        group: (len(ended), sum(ended)) for group, ended in known.items() if group not in left_out
    }


def test_agents_that_were_left_out_are_judged_too(recorded_runs: Path) -> None:
    """Of one task group there are seven agents, each judged by lines of the six others."""
    asked = ("--leave-out", "agent", "--repeats", 20, "--json")
    decoded = json.loads(command("backtest", recorded_runs / "intercode_bash.events.jsonl", *asked))
    assert len({row["agent"] for row in decoded["rows"]}) == 7
    assert all(0 < row["steps_saved"] < 1 for row in decoded["rows"])


def test_digests_calibrate_to_the_lines_of_contents(recorded_runs: Path, tmp_path: Path) -> None:
    """Real runs lived again are recorded with and without contents, and learned from."""
    source = recorded_runs / "react_webshop.events.jsonl"
    lines = {}
    for contents in (True, False):
        path = tmp_path / f"{contents}.jsonl"
        with capture(record_to=path, record_contents=contents) as seen:
            sink = seen.pipeline.recorder.sink
            for line in source.read_bytes().splitlines():
                event = parse_line(line)
                if isinstance(event, RecordedStep):
                    sink.step_issued(event.issued)
                    sink.step_observed(event.observed)
                elif isinstance(event, RunStarted):
                    sink.run_started(event)
                else:
                    sink.run_ended(event)  # type: ignore[arg-type]
        out = tmp_path / f"{contents}.toml"
        command("calibrate", path, "--score", "stagnation", "--score", "repetition", "-o", out)
        lines[contents] = [
            (one.score, one.threshold, one.runs) for one in read_policy(out).thresholds
        ]
    out = tmp_path / "source.toml"
    command("calibrate", source, "--score", "stagnation", "--score", "repetition", "-o", out)
    expected = [(one.score, one.threshold, one.runs) for one in read_policy(out).thresholds]
    assert lines[False] == lines[True] == expected
    assert len(expected) == 2
