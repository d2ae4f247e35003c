"""Runs recorded by a configured pipeline: what is in the file, and what a replay makes of it."""

from __future__ import annotations

import enum
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegauge
from tidegauge.cli.main import cli
from tidegauge.cli.replay import RecordedRuns
from tidegauge.errors import ConfigurationError, RunStopped
from tidegauge.events import RunEnded, RunStarted, Task
from tidegauge.policies import Policy, Rule
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.recordings.step_events import RecordedStep, parse_line
from tidegauge.streaming_metrics import RunReport
from tidegauge.testing import capture

SECRET = "s3cret"
LADDER = [Rule("loop_repeats", 2, "nudge"), Rule("loop_repeats", 3, "block")]
FILES = ("react_webshop", "adapt_alfworld", "taubench_airline", "sweagent")
NOT_REPLAYED = {"place", "trace_id", "intervention", "intervention_step", "intervention_reason"} | {
    "saved_steps",
    "saved_tokens",
    "saved_seconds",
    "loop_since",  # the time of the process, where events have none
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def replayed(path: Path) -> dict[str, Any]:
    ran = CliRunner().invoke(cli, ["replay", "--json", "--strict", str(path)])
    assert (ran.exit_code, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def secretive_agent() -> None:
    """Goes in a loop, is stopped, and puts secrets wherever a value can be reported."""
    with tidegauge.run(
        agent="browser",
        task=f"{SECRET} goal",
        place=f"{SECRET}/hall",
        exits=[f"{SECRET}/attic"],
    ) as run:
        for _ in range(99):
            decision = run.act(
                "look",
                {"at": f"{SECRET} argument"},
                state=f"{SECRET} state",
                uses=[f"{SECRET} key"],
                mentions=[f"{SECRET} key"],
            )
            if not decision.block:
                run.observe(
                    f"{SECRET} result",
                    error=ValueError(f"{SECRET} error"),
                    place=(f"{SECRET}", 1),
                    exits=[f"{SECRET}/cellar"],
                    tasks=[Task(f"{SECRET} task", ((f"{SECRET} first",),))],
                    achieved=[f"{SECRET} first"],
                )


def test_no_content_is_in_the_file_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with (
        capture(record_to=path, rules=[*LADDER, Rule("loop_repeats", 6, "stop")]),
        pytest.raises(RunStopped),
    ):
        secretive_agent()
    text = path.read_text()
    assert SECRET not in text
    start, *steps, end = lines(path)
    assert start["task"].startswith("sha:")
    assert {step["action"] for step in steps} == {"look"}
    assert any(step.get("blocked") for step in steps)
    assert (end["outcome"], end["reason"]) == ("stopped", "loop_repeats")


def test_contents_are_in_the_file_when_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with capture(record_to=path, record_contents=True), tidegauge.run(task="the goal") as run:
        run.act("look", {"at": [1, 2]})
        run.observe({"found": None}, place=("floor", 3))
        run.act("look", "as text")
        run.observe(None)
    start, first, second, _ = lines(path)
    assert start["task"] == "the goal"
    assert (first["args"], first["outcome"]) == ({"at": [1, 2]}, {"found": None})
    assert first["place"] == ["floor", 3]
    assert (second["args"], second["outcome"]) == ("as text", "null")


def test_a_content_that_is_huge_is_a_digest_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with capture(record_to=path, record_contents=True), tidegauge.run() as run:
        for _ in range(2):
            run.act("look")
            run.observe("x" * 20_000_000)
    first, second = lines(path)[1:3]
    assert first["outcome"].startswith("sha:")
    assert first["outcome"] == second["outcome"]


def test_steps_that_overlap_have_lines_for_their_outcomes(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with capture(record_to=path), tidegauge.run() as run:
        for step in range(3):
            run.act("look", step)
        run.observe("second", step=1)
        run.observe("third", step=2)
    reported = [(line["type"], line.get("late_outcome")) for line in lines(path)]
    assert reported == [
        ("start", None),
        ("step", 0),  # whose outcome never came
        ("step", 1),
        ("step", 2),
        ("outcome", 1),
        ("outcome", 2),
        ("end", None),
    ]
    [run_] = replayed(path)["runs"]
    assert run_["steps"] == 3


def test_runs_that_were_evicted_or_started_again_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with capture(record_to=path, max_runs=1) as seen:
        sink = seen.pipeline.recorder.sink
        for run in ("a", "a", "b"):
            sink.run_started(RunStarted(run=run))
        assert sink.run_ended(RunEnded(run="a", success=True)) is None
        sink.run_ended(RunEnded(run="b", success=True))
    reported = [(line["type"], line["run"], line.get("success")) for line in lines(path)]
    assert reported == [
        ("start", "a", None),
        ("end", "a", None),
        ("start", "a", None),
        ("end", "a", None),
        ("start", "b", None),
        ("end", "b", True),
    ]


def test_what_is_recorded_and_what_is_lost_can_be_scraped(tmp_path: Path) -> None:
    with (
        capture(record_to=tmp_path / "runs.jsonl", serve_metrics=True, metrics_port=0) as seen,
        tidegauge.run() as run,
    ):
        run.act("look")
        writer = seen.pipeline._writer
        assert writer is not None
        writer.close()  # whatever comes now is lost
        run.act("look")
        assert seen.pipeline.metrics_url is not None
        with urllib.request.urlopen(seen.pipeline.metrics_url) as answer:
            text = answer.read().decode()
    assert "\ntidegauge_recorded_lines_total 1.0\n" in text
    dropped = re.findall(r'tidegauge_dropped_lines_total{reason="(\w+)"} ([\d.]+)', text)
    assert dropped == [("queue_full", "0.0"), ("write_failed", "0.0"), ("closed", "1.0")]


def test_a_path_that_cannot_be_written_is_reported_by_configure(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Cannot record to"):
        tidegauge.configure(record_to=tmp_path, serve_metrics=False)


@pytest.mark.parametrize("contents", [False, True], ids=["digests", "contents"])
def test_recorded_runs_that_are_lived_again_are_recorded_alike(
    recorded_runs: Path, tmp_path: Path, contents: bool
) -> None:
    """Real agents' runs are fed live; the replay of that has the numbers of their own replay."""
    path, live = tmp_path / "runs.jsonl", []
    with capture(record_to=path, record_contents=contents) as seen:
        engine, sink = seen.pipeline.engine, seen.pipeline.recorder.sink
        finished = engine._on_finished
        assert finished is not None
        engine._on_finished = lambda report: (live.append(report), finished(report))[1]  # type: ignore[func-returns-value]
        for name in FILES:
            with (recorded_runs / f"{name}.events.jsonl").open("rb") as stream:
                live_again(stream.readlines()[:2_000], sink)
        for report in engine.snapshot().active:
            sink.run_ended(RunEnded(run=report.run))
    # Recordings of digests have the similarity of actions, which is measured for them.
    runs = RecordedRuns(Policy())
    replay = Replay(runs)
    with path.open("rb") as stream:
        for line in read_lines(stream):
            replay.take(line, path.name)
    assert replay.skipped_lines == 0
    assert len(live) > 100
    of_texts = {} if contents else {"near_streak": None, "near_streak_max": None}
    assert numbers(runs.reports()) == [{**one, **of_texts} for one in numbers(live)]


def live_again(recorded: list[bytes], sink: Any) -> None:
    for line in recorded:
        event = parse_line(line)
        if isinstance(event, RecordedStep):
            sink.step_issued(event.issued)
            sink.step_observed(event.observed)
        elif isinstance(event, RunStarted):
            sink.run_started(event)
        else:
            sink.run_ended(event)


def numbers(reports: list[RunReport]) -> list[dict[str, object]]:
    return [
        {key: value for key, value in report.as_dict().items() if key not in NOT_REPLAYED}
        for report in sorted(reports, key=lambda report: report.run)
    ]


def test_an_action_whose_name_is_an_enum_is_recorded_by_a_text(tmp_path: Path) -> None:
    class Tool(enum.Enum):
        SEARCH = 1

        @property
        def value(self) -> int:  # orjson asks for it
            raise AssertionError("asked")

    for contents in (False, True):
        path = tmp_path / f"{contents}.jsonl"
        with capture(record_to=path, record_contents=contents), tidegauge.run() as run:
            run.act(Tool.SEARCH)  # type: ignore[arg-type]
            run.observe("r")
        assert "Tool:" in lines(path)[1]["action"]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("declared", [False, True])
def test_calls_that_wait_do_in_a_replay_too(tmp_path: Path, plain: bool, declared: bool) -> None:
    path = tmp_path / "runs.jsonl"
    tools = {"bash": tidegauge.ToolDeclaration(mutates=False)} if declared else {}
    looks = ["sleep 5; tail -1 build.log"] * 4 + ["cat build.log"] * 4
    with (
        capture(record_to=path, record_contents=plain, tools=tools, detect_polls=True) as seen,
        tidegauge.run() as run,
    ):
        for command in ["make > build.log &", *looks]:
            run.act("bash", {"command": command})
            run.observe("building...")
        measured = seen.pipeline.engine.get(run.id)
        assert measured is not None
        skipped = measured.report().skipped_steps
    assert ("build.log" in path.read_text()) is plain
    [found] = replayed(path)["runs"]
    assert found["skipped_steps"] == skipped == (0 if declared else 8)
    assert bool(found["loops"]) is declared
    off = CliRunner().invoke(cli, ["replay", "--json", "--detect-polls", "off", str(path)])
    assert json.loads(off.stdout)["runs"][0]["skipped_steps"] == 0
