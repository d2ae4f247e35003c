"""``tidegauge calibrate``: the table, the file, and what each option changes."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.recorded_walks import walk, walks
from tidegauge.policies import SCORES, Threshold, read_policy, run_mark

GOOD = range(1, 20)  # as many runs as alpha 0.05 needs, the longest of 19 steps


@pytest.fixture
def recording(write) -> str:
    return write(*walks(GOOD, bad=[30, 40]), *walk("r unknown", 99, None))


def cells(text: str) -> list[list[str]]:
    """The cells of a table's lines."""
    return [[cell for cell in line.split("  ") if cell] for line in text.splitlines()]


def test_the_table_and_the_file(tidegauge, recording, tmp_path: Path) -> None:
    began = int(time.time())
    ran = tidegauge("calibrate", recording, "--score", "steps", "-o", "policy.toml")
    assert (ran.code, ran.err) == (0, "")
    assert [[cell.strip() for cell in line] for line in cells(ran.out)] == [
        ["task group", "agent", "score", "successful runs", "threshold", "false stops, at most"],
        ["g", "a", "steps", "19", "19", "5.0%"],
        [
            "on average over calibrations: at most 0.05 of the successful runs exceed a threshold; "
            "--guarantee pac bounds this one"
        ],
        ["the smallest group has 19 successful runs; from 39 on, its threshold can be lower"],
        ["policy.toml written; thresholds: 1, action: observe"],
    ]
    text = (tmp_path / "policy.toml").read_text()
    assert text.startswith("# Written by tidegauge calibrate --alpha 0.05 --guarantee marginal; ")
    document = tomllib.loads(text)
    assert began <= document.pop("calibrated").timestamp() <= time.time()
    assert document.pop("calibrated_on") == sorted(run_mark(f"r good {n}") for n in range(19))
    assert document == {
        "format": 2,
        "threshold": [
            {
                "score": "steps",
                "score_version": SCORES["steps"].version,
                "agent": "a",
                "task_group": "g",
                "threshold": 19,
                "action": "observe",
                "runs": 19,
                "alpha": 0.05,
                "scores": list(GOOD),
            }
        ],
    }


def test_the_combined_score_is_the_one_unless_another_is_given(tidegauge, recording) -> None:
    ran = tidegauge("calibrate", recording, "-o", "policy.toml")
    assert ran.code == 0
    [line] = read_policy("policy.toml").thresholds
    assert (line.score, line.threshold) == ("stagnation", 19 + 0.5)  # its steps; a streak of one


def test_runs_of_unknown_outcome_count_if_that_is_asked_for(tidegauge, write) -> None:
    recorded = write(
        *(line for n in GOOD for line in walk(f"r {n}", n, None)), *walk("b", 50, False)
    )
    ran = tidegauge("calibrate", recorded, "--score", "steps", "-o", "policy.toml")
    assert "thresholds: 0" in ran.out
    assert ran.err.startswith("no run is known to be successful; name some with --successful")
    asked = ("--score", "steps", "--assume-success")
    ran = tidegauge("calibrate", recorded, *asked, "-o", "policy.toml")
    assert (ran.code, ran.err) == (0, "")
    [line] = read_policy("policy.toml").thresholds
    assert (line.threshold, line.runs) == (19, 19)


def test_too_few_good_runs_give_no_line_and_say_so(tidegauge, write) -> None:
    ran = tidegauge("calibrate", write(*walks(range(1, 19), [50])), "-o", "policy.toml")
    assert (ran.code, ran.err) == (0, "")
    assert "18" in ran.out.splitlines()[1]
    assert ran.out.splitlines()[1].endswith("too few: needs 19")
    assert ran.out.splitlines()[2] == "policy.toml written; thresholds: 0, action: observe"
    found = read_policy("policy.toml")
    assert found.thresholds == ()


def test_a_score_that_no_run_has_measured_is_reported(tidegauge, recording) -> None:
    ran = tidegauge("calibrate", recording, "--score", "oldest_lead_age", "-o", "policy.toml")
    assert ran.out.splitlines()[1].endswith("not measured")
    assert read_policy("policy.toml").thresholds == ()


def test_alpha_says_how_many_may_cross(tidegauge, recording) -> None:
    options = ("--score", "steps", "-o", "policy.toml")
    tidegauge("calibrate", recording, "--alpha", "0.5", *options)
    [line] = read_policy("policy.toml").thresholds
    assert (line.threshold, line.alpha) == (10, 0.5)
    for alpha in ("0", "1", "-0.1", "nan"):
        ran = tidegauge("calibrate", recording, "--alpha", alpha, *options)
        assert ran.code == 2
        assert "is out of range; use more than 0 and less than 1" in ran.faults[-1]


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        ("agent,task_group", [("a", "g", 19), ("b", "g", 38), ("a", "mail", 57)]),
        ("agent", [("a", None, 57), ("b", None, 38)]),
        ("task_group", [(None, "g", 38), (None, "mail", 57)]),
        ("none", [(None, None, 54)]),  # the second highest of 57
    ],
)
def test_what_has_a_line_of_its_own(tidegauge, write, by, lines) -> None:
    recording = write(
        *walks(GOOD),
        *walks((2 * steps for steps in GOOD), name="b", agent="b"),
        *walks((3 * steps for steps in GOOD), name="m", task_group="mail"),
    )
    options = ("--score", "steps", "--alpha", "0.05", "--by", by, "-o", "policy.toml")
    ran = tidegauge("calibrate", recording, *options)
    policy = read_policy("policy.toml")
    assert [(line.agent, line.task_group, line.threshold) for line in policy.thresholds] == lines
    assert sum(line.runs for line in policy.thresholds) == 57
    rows = "\n".join(ran.out.splitlines()[: 1 + len(lines)])
    assert rows.count("any") == sum(one.count(None) for one in lines)


def test_by_takes_what_there_is(tidegauge, recording) -> None:
    ran = tidegauge("calibrate", recording, "--by", "agent,model", "-o", "policy.toml")
    assert ran.code == 2
    assert "'model' is not a label; use agent, task_group, both, or none" in ran.faults[-1]


def test_several_scores_share_alpha(tidegauge, write) -> None:
    recording = write(*walks(range(1, 40)))
    scores = ("--score", "steps", "--score", "tokens", "--score", "steps")
    ran = tidegauge("calibrate", recording, *scores, "-o", "policy.toml")
    assert ran.out.splitlines()[-1] == "policy.toml written; thresholds: 2, action: observe"
    assert "the 2 scores share it: 0.025 each" in ran.out.splitlines()
    lines = read_policy("policy.toml").thresholds
    assert [(line.score, line.threshold) for line in lines] == [("steps", 39), ("tokens", 390)]
    assert {line.alpha for line in lines} == {0.025}


def test_pac_bounds_this_calibration(tidegauge, write) -> None:
    options = ("--score", "steps", "--guarantee", "pac", "-o", "policy.toml")
    ran = tidegauge("calibrate", write(*walks(range(1, 45))), *options)
    assert ran.out.splitlines()[1].endswith("too few: needs 45")
    ran = tidegauge("calibrate", write(*walks(range(1, 47))), *options)
    assert [line.threshold for line in read_policy("policy.toml").thresholds] == [46]
    assert "for each group, with confidence 0.9: at most 0.05 of the" in ran.out
    assert "has 46 successful runs; from 77 on, its threshold can be lower" in ran.out
    tidegauge("calibrate", write(*walks(range(1, 47))), *options, "--confidence", "0.5")
    assert [line.threshold for line in read_policy("policy.toml").thresholds] == [45]


def test_attempts_at_one_task_count_once(tidegauge, write) -> None:
    lines = walks(range(1, 39))
    for line in lines:  # 19 tasks, each attempted twice
        if line["type"] == "start":
            line["task"] = f"task {int(line['run'].split()[-1]) // 2}"
    options = ("--score", "steps", "-o", "policy.toml")
    tidegauge("calibrate", write(*lines), *options)
    assert [line.threshold for line in read_policy("policy.toml").thresholds] == [38]
    ran = tidegauge("calibrate", write(*lines), *options, "--by-task")
    assert "the smallest group has 19 tasks; from 39 on" in ran.out
    fewer = write(*[line for line in lines if line["run"] not in ("r good 36", "r good 37")])
    ran = tidegauge("calibrate", fewer, *options, "--by-task")
    assert ran.out.splitlines()[1].endswith("too few: needs 19")


class TestRunsUnderAPolicy:
    """Runs that a policy could end are left out: what it stopped is not known to be successful."""

    @staticmethod
    def lines(steps: Iterable[int], *, acts: bool, name: str) -> list[dict[str, Any]]:
        lines = walks(steps, name=name)
        for line in lines:
            if line["type"] == "end":
                line["policy"] = {"version": "a", "acts": acts, "held_out": not acts}
        return lines

    def test_only_the_others_are_learned_from(self, tidegauge, write) -> None:
        recording = write(
            *self.lines([3] * 50, acts=True, name="acted on"),
            *self.lines(range(1, 20), acts=False, name="held out"),
        )
        ran = tidegauge("calibrate", recording, "--score", "steps", "-o", "policy.toml")
        found = read_policy("policy.toml")
        assert [(line.threshold, line.runs) for line in found.thresholds] == [(19, 19)]
        assert len(found.calibrated_on) == 19
        assert (
            "left out: 50 successful runs that a policy could end when they were recorded"
            in ran.out.splitlines()
        )

    def test_without_others_nothing_is_learned(self, tidegauge, write, tmp_path: Path) -> None:
        recording = write(*self.lines([3] * 50, acts=True, name="acted on"))
        ran = tidegauge("calibrate", recording, "-o", "policy.toml")
        assert (ran.code, ran.out) == (2, "")
        assert "a policy could end all 50 runs" in ran.faults[-1]
        assert not (tmp_path / "policy.toml").exists()

    def test_one_that_was_stopped_by_mistake_is_known(self, tidegauge, write) -> None:
        recording = write(
            *self.lines([25], acts=True, name="stopped"),
            *self.lines(range(1, 20), acts=False, name="held out"),
        )
        options = ("--score", "steps", "--successful", "stopped good 0", "-o", "policy.toml")
        tidegauge("calibrate", recording, *options)
        [line] = read_policy("policy.toml").thresholds
        assert (line.threshold, line.runs) == (25, 20)


def test_a_threshold_for_all_agents_names_those_it_was_learned_on(tidegauge, write) -> None:
    recording = write(*walks(GOOD), *walks(GOOD, name="b", agent="b"))
    options = ("--score", "steps", "--by", "task_group", "--action", "stop", "-o", "policy.toml")
    tidegauge("calibrate", recording, *options)
    [line] = read_policy("policy.toml").thresholds
    assert (line.agents, line.task_groups) == (("a", "b"), ())
    assert [line.acts_on(agent, "g") for agent in "abc"] == [True, True, False]


def test_a_run_that_was_stopped_by_mistake_raises_the_line(tidegauge, write) -> None:
    recording = write(*walks(GOOD), *walk("stopped", 25, False))
    options = ("--score", "steps", "--alpha", "0.05", "-o", "policy.toml")
    tidegauge("calibrate", recording, *options)
    assert read_policy("policy.toml").thresholds[0].threshold == 19
    tidegauge("calibrate", recording, *options, "--successful", "stopped")
    found = read_policy("policy.toml")
    assert (found.thresholds[0].threshold, found.thresholds[0].runs) == (25, 20)
    assert run_mark("stopped") in found.calibrated_on


def test_successful_takes_runs_that_there_are(tidegauge, recording, tmp_path: Path) -> None:
    good = ("--successful", "r bad 0", "--successful", "r none")
    ran = tidegauge("calibrate", recording, *good, "-o", "policy.toml")
    assert ran.code == 2
    assert "no run has the id r none" in ran.faults[-1]
    assert not (tmp_path / "policy.toml").exists()


@pytest.mark.parametrize("action", ["nudge", "stop"])
def test_action_and_holdout_are_in_the_file(tidegauge, recording, action) -> None:
    options = ("--action", action, "--holdout", "0.25", "-o", "policy.toml")
    ran = tidegauge("calibrate", recording, *options)
    found = read_policy("policy.toml")
    assert ([line.action for line in found.thresholds], found.holdout) == ([action], 0.25)
    assert ran.out.splitlines()[-1] == f"policy.toml written; thresholds: 1, action: {action}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--score", "stps"), "unknown score 'stps'; use one of stagnation, steps, "),
        (("--action", "block"), "'block' is not one of 'observe', 'nudge', 'stop'"),
        (("--holdout", "2"), "2"),
    ],
)
def test_what_cannot_work_is_rejected(
    tidegauge, recording, options, message, tmp_path: Path
) -> None:
    ran = tidegauge("calibrate", recording, *options, "-o", "policy.toml")
    assert ran.code == 2
    assert message in ran.faults[-1]
    assert not (tmp_path / "policy.toml").exists()


def test_a_recording_is_not_overwritten(tidegauge, recording) -> None:
    before = Path(recording).read_bytes()
    ran = tidegauge("calibrate", recording, "-o", f"./{recording}")
    assert ran.code == 2
    assert "runs.jsonl is also an input; choose another file" in ran.faults[-1]
    assert Path(recording).read_bytes() == before


def test_a_policy_is_written_anew(tidegauge, recording) -> None:
    for score in ("tokens", "steps"):
        assert tidegauge("calibrate", recording, "--score", score, "-o", "p.toml").code == 0
    assert [line.score for line in read_policy("p.toml").thresholds] == ["steps"]


def test_a_file_that_cannot_be_written_is_one_line(tidegauge, recording) -> None:
    ran = tidegauge("calibrate", recording, "-o", "missing/policy.toml")
    assert ran.code == 1
    assert len(ran.faults) == 1
    assert "missing/policy.toml" in ran.faults[0]


def test_a_recording_that_cannot_be_read_is_reported_and_the_others_count(
    tidegauge, recording
) -> None:
    ran = tidegauge("calibrate", "none.jsonl", recording, "-o", "policy.toml")
    assert (ran.code, ran.faults) == (1, ["none.jsonl: No such file or directory"])
    assert len(read_policy("policy.toml").thresholds) == 1
    ran = tidegauge("calibrate", "none.jsonl", recording, "--strict", "-o", "strict.toml")
    assert (ran.code, ran.faults) == (2, ["none.jsonl: No such file or directory"])
    assert not Path("strict.toml").exists()


def test_a_faulty_line_is_reported_and_fatal_when_strict(tidegauge, write) -> None:
    recording = write(*walks(GOOD), b"no json", *walk("late", 3, True))
    ran = tidegauge("calibrate", recording, "--score", "steps", "-o", "policy.toml")
    assert ran.code == 0
    [fault] = ran.faults
    assert fault.startswith("runs.jsonl:")
    assert "invalid JSON" in fault
    assert read_policy("policy.toml").thresholds[0].runs == 20
    ran = tidegauge("calibrate", recording, "--strict", "-o", "strict.toml")
    assert (ran.code, ran.faults) == (2, [fault])
    assert not Path("strict.toml").exists()


def test_standard_input(tidegauge) -> None:
    lines = b"\n".join(map(orjson.dumps, walks(GOOD)))
    ran = tidegauge("calibrate", "-", "--score", "steps", "-o", "policy.toml", stdin=lines)
    assert ran.code == 0
    [line] = read_policy("policy.toml").thresholds
    assert line == Threshold(
        "steps", 19, "observe", "a", "g", runs=19, alpha=0.05, calibrated=line.calibrated
    )


def test_steps_that_are_ignored_have_no_part_in_it(tidegauge, recording) -> None:
    options = ("--score", "steps", "--ignore-action", "do0", "-o", "policy.toml")
    tidegauge("calibrate", recording, *options)
    assert read_policy("policy.toml").thresholds[0].threshold == 18


def test_a_name_that_steers_the_terminal_does_not(tidegauge, write) -> None:
    ran = tidegauge("calibrate", write(*walks(GOOD, agent="\x1b[31mred")), "-o", "policy.toml")
    assert "\x1b" not in ran.out
    assert read_policy("policy.toml").thresholds[0].agent == "\x1b[31mred"


@pytest.mark.parametrize("holdout", ["nan", "inf", "-inf"])
def test_a_share_is_a_number(tidegauge, recording, tmp_path: Path, holdout: str) -> None:
    ran = tidegauge("calibrate", recording, "--holdout", holdout, "-o", "policy.toml")
    assert ran.code == 2
    assert "--holdout" in ran.err
    assert not (tmp_path / "policy.toml").exists()
