"""``tidegauge backtest``: every key of its document, its table, and what each option changes."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path

import orjson
import pytest

from support.recorded_walks import walk, walks
from tidegauge.cli.terminal import RunProgress
from tidegauge.testing import SteppedClock

ROW = {
    *("task_group", "agent", "score", "stop", "runs", "good", "good_stopped", "bad_stopped"),
    *("steps_saved", "tokens_saved", "delay"),
}
MORE_OF_ROW = {
    *("seconds_saved", "stopped_at", "with_threshold", "oracle", "net", "net_interval", "priced"),
    *(f"{name}_interval" for name in ("good_stopped", "bad_stopped")),
    *(f"{name}_saved_interval" for name in ("steps", "tokens", "seconds")),
}
SUMMARY = {"score", "stop", "good_stopped", "steps_saved", "groups", "task_groups", "oracle"}
MORE_OF_SUMMARY = {
    *("net", "net_interval", "priced_groups"),
    *("good_stopped_interval", "steps_saved_interval"),
    *("good_stopped_of_task_groups", "good_stopped_of_task_groups_interval"),
    *("steps_saved_of_task_groups", "steps_saved_of_task_groups_interval"),
}


@pytest.fixture
def recording(write) -> str:
    """Thirty good runs of up to 30 steps and ten bad ones of 60."""
    return write(*walks(range(1, 31), [60] * 10), *walk("unknown", 99, None))


def test_the_whole_document(tidegauge, recording) -> None:
    ran = tidegauge("backtest", recording, "--json", "--score", "tokens", "--repeats", "50")
    assert (ran.code, ran.err) == (0, "")
    document = ran.document
    assert document.keys() == {"alpha", "rows", "summary", "left_out", "skipped_lines"}
    assert document["alpha"] == 0.05
    assert [row["score"] for row in document["rows"]] == ["tokens", "steps", "steps_begun"]
    for row in document["rows"]:
        assert row.keys() == ROW | MORE_OF_ROW
        assert (row["task_group"], row["agent"]) == ("g", "a")
        assert (row["runs"], row["good"], row["with_threshold"]) == (40, 30, 1)
        assert row["bad_stopped"] == 1
        assert 0 <= row["good_stopped"] <= 0.1
        assert row["delay"] is None  # nothing was repeated
        for share in ("good_stopped", "steps_saved", "tokens_saved", "seconds_saved"):
            low, high = row[f"{share}_interval"]
            assert 0 <= low <= row[share] <= high <= 1
    assert [one["score"] for one in document["summary"]] == ["tokens", "steps", "steps_begun"]
    for one, row in zip(document["summary"], document["rows"], strict=True):
        assert one.keys() == SUMMARY | MORE_OF_SUMMARY
        assert (one["groups"], one["task_groups"]) == (1, 1)
        assert 0 < one["steps_saved"] < one["oracle"] == row["oracle"] < 1
        assert one["steps_saved_of_task_groups"] == one["steps_saved"]
        assert one["steps_saved"] == row["steps_saved"]
    assert (document["left_out"], document["skipped_lines"]) == ([], 0)


def test_the_table(tidegauge, recording) -> None:
    ran = tidegauge("backtest", recording, "--score", "tokens", "--repeats", "50")
    assert (ran.code, ran.err) == (0, "")
    heading, tokens, steps, begun, blank, *summary = ran.out.splitlines()
    assert heading.split("  ")[0] == "task group"
    for line, score in ((tokens, "tokens"), (steps, "steps"), (begun, "steps_begun")):
        assert line.split()[:8] == ["g", "a", score, "lost", "cause", "30", "of", "40"]
    assert blank == ""
    assert [line.split(":")[0] for line in summary] == ["tokens", "steps", "steps_begun"]
    # tokens are known when an action is issued, as steps begun; steps when it was completed
    assert "(alpha 0.05; mean of 1 groups); 1.0" in summary[0]
    assert " x steps completed alone; 1.00 x steps begun alone; " in summary[0]
    assert summary[0].endswith("an oracle saves that ends failing runs after their first step")
    assert "alone" not in summary[1] + summary[2]


def test_the_combined_score_is_judged_beside_step_count(tidegauge, recording) -> None:
    document = tidegauge("backtest", recording, "--json", "--repeats", "5").document
    assert [row["score"] for row in document["rows"]] == ["stagnation", "steps", "steps_begun"]
    document = tidegauge(
        "backtest", recording, "--json", "--repeats", "5", "--score", "steps"
    ).document
    assert [row["score"] for row in document["rows"]] == ["steps", "steps_begun"]


def test_a_group_of_too_few_runs_is_reported(tidegauge, write) -> None:
    recording = write(*walks([5] * 12, [9] * 3))
    document = tidegauge("backtest", recording, "--json").document
    assert document["rows"] == []
    assert document["left_out"] == [{"task_group": "g", "agent": "a", "good": 12}]
    assert document["summary"][0] == {
        "score": "stagnation",
        "stop": ["lost cause"],
        "good_stopped": None,
        "good_stopped_interval": None,
        "steps_saved": None,
        "steps_saved_interval": None,
        "groups": 0,
        "good_stopped_of_task_groups": None,
        "good_stopped_of_task_groups_interval": None,
        "steps_saved_of_task_groups": None,
        "steps_saved_of_task_groups_interval": None,
        "task_groups": 0,
        "oracle": None,
        "net": None,
        "net_interval": None,
        "priced_groups": 0,
    }
    ran = tidegauge("backtest", recording)
    assert "left out: g a, because 12 successful runs are too few" in ran.out
    assert "steps: no summary; it needs a group with 30 successful runs" in ran.out


def test_too_few_calibration_runs_for_alpha_are_reported(tidegauge, recording) -> None:
    ran = tidegauge("backtest", recording, "--calibration-runs", "18", "--repeats", "5")
    assert "no threshold in 3 rows: too few calibration runs for alpha 0.05" in ran.out
    assert "steps: 0.0% [0-0%] of the steps saved" in ran.out


def test_a_seed_gives_the_same_again(tidegauge, recording) -> None:
    options = ("backtest", recording, "--json", "--repeats", "20")
    first, again = tidegauge(*options), tidegauge(*options)
    assert first.out == again.out != tidegauge(*options, "--seed", "1").out


def test_an_agent_can_be_left_out(tidegauge, write) -> None:
    recording = write(*walks([10] * 25, [30] * 5), *walks([2] * 25, [30] * 5, name="b", agent="b"))
    options = ("backtest", recording, "--json", "--repeats", "5", "--score", "steps")
    own = tidegauge(*options).document["rows"]
    assert [row["good_stopped"] for row in own] == [0, 0, 0, 0]
    others = tidegauge(*options, "--leave-out", "agent").document["rows"]
    assert {row["agent"]: row["good_stopped"] for row in others} == {"a": 1, "b": 0}


def test_whole_tasks_are_left_out(tidegauge, write) -> None:
    """Two attempts at each of 25 tasks; a run is judged by thresholds from other tasks alone."""
    lines = walks([n // 2 + 1 for n in range(50)], [60] * 10)
    for line in lines:
        if line["type"] == "start" and "good" in line["run"]:
            line["task"] = f"task {int(line['run'].split()[-1]) // 2}"
    options = [*("--json", "--repeats", "200", "--score", "steps", "--calibration-runs", "24")]
    options += ["--alpha", "0.3"]
    runs = tidegauge("backtest", write(*lines), *options).document["rows"][0]
    tasks = tidegauge("backtest", write(*lines), *options, "--by-task").document["rows"][0]
    assert (runs["good"], tasks["good"]) == (50, 50)
    assert tasks["good_stopped"] not in (0, runs["good_stopped"])
    # One task is left, and is above the threshold of the other 24 with a chance of at most 0.3.
    assert tasks["good_stopped"] <= 0.3 + 3 * (0.21 / 200) ** 0.5


class TestPolicy:
    @pytest.fixture
    def policy(self, tidegauge, write) -> str:
        """A line at 19 steps, learned from the first runs."""
        learned = write(*walks(range(1, 20)), name="first.jsonl")
        options = ("--score", "steps", "--action", "stop", "-o", "policy.toml")
        assert tidegauge("calibrate", learned, *options).code == 0
        return "policy.toml"

    def test_the_runs_that_it_was_learned_from_are_left_out(self, tidegauge, write, policy) -> None:
        later = write(*walks(range(1, 20)), *walks([5, 25], [30], name="new"))
        ran = tidegauge("backtest", later, "--policy", policy, "--json")
        assert ran.code == 0
        assert ran.faults == ["left out: 19 runs that the policy was calibrated on"]
        row, begun = ran.document["rows"]
        assert begun["steps_saved"] == pytest.approx((6 + 11) / 60)
        assert (row["runs"], row["good"]) == (3, 2)
        assert (row["good_stopped"], row["bad_stopped"]) == (0.5, 1)
        assert row["steps_saved"] == pytest.approx((5 + 10) / 60)
        assert row["stopped_at"] == 20

    def test_a_combined_score_is_beside_step_count_of_the_same_runs(self, tidegauge, write) -> None:
        both = write(*walks(range(1, 20)), *walks([5, 25], [30], name="new"), name="both.jsonl")
        learned = write(*walks(range(1, 20)), name="first.jsonl")
        tidegauge("calibrate", learned, "-o", "policy.toml")
        rows = tidegauge("backtest", both, "--policy", "policy.toml", "--json").document["rows"]
        assert [row["score"] for row in rows] == ["stagnation", "steps", "steps_begun"]
        assert [row["runs"] for row in rows] == [3, 3, 3]
        later = write(*walks([5, 25], [30], name="new"), name="later.jsonl")
        rows = tidegauge("backtest", later, "--policy", "policy.toml", "--json").document["rows"]
        assert [row["score"] for row in rows] == ["stagnation"]  # nothing to learn the other from

    def test_rules_are_judged_as_if_each_stopped(self, tidegauge, write) -> None:
        Path("rules.toml").write_text(
            "format = 2\n[[rule]]\nsignal = 'steps'\nthreshold = 6\naction = 'nudge'\n"
        )
        recording = write(*walks([4, 8], [16]))
        document = tidegauge("backtest", recording, "--policy", "rules.toml", "--json").document
        [row] = document["rows"]
        assert document["alpha"] is None  # nothing was promised
        assert row["steps_saved"] == pytest.approx((2 + 10) / 28)
        assert (row["good_stopped"], row["bad_stopped"], row["stopped_at"]) == (0.5, 1, 6)

    def test_the_rules_that_hold_when_nothing_is_set(self, tidegauge, recording, tmp_path) -> None:
        ran = tidegauge("backtest", recording, "--policy", "default", "--json")
        [row] = ran.document["rows"]
        assert (row["good_stopped"], row["bad_stopped"], row["steps_saved"]) == (0, 0, 0)
        assert tidegauge("backtest", recording, "--policy", "default").code == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, "No such file or directory"),
            ("format = 3\n", "format 3 is not supported; use format 2, or calibrate again"),
            ("format =", "not valid TOML: "),
            ("format = 2\n[[threshold]]\nscore = 'stps'\nthreshold = 1\n", "unknown score 'stps'"),
            (
                "format = 2\n[[threshold]]\nscore = 'steps'\nscore_version = 0\nthreshold = 1\n",
                "score_version of steps is 0, but this tidegauge computes version 1; calibrate",
            ),
            ("format = 2\n", "has no threshold and no rule"),
        ],
    )
    def test_a_broken_one_is_one_line(self, tidegauge, recording, text, message) -> None:
        if text is not None:
            Path("broken.toml").write_text(text)
        ran = tidegauge("backtest", recording, "--policy", "broken.toml")
        assert (ran.code, ran.out) == (2, "")
        assert "broken.toml" in ran.faults[-1]
        assert message in ran.faults[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--score", "stps"), "unknown score 'stps'"),
        (("--alpha", "1"), "1 is out of range; use more than 0 and less than 1"),
        (("--repeats", "0"), "0 is out of range; use 1 to 5000"),
        (("--calibration-runs", "0"), "0 is out of range; use 1 or more"),
        (("--leave-out", "model"), "'model' is not"),
    ],
)
def test_what_cannot_work_is_rejected(tidegauge, recording, options, message) -> None:
    ran = tidegauge("backtest", recording, *options)
    assert ran.code == 2
    assert message in ran.faults[-1]


def test_faults_of_the_recording(tidegauge, write) -> None:
    recording = write(*walks(range(1, 31), [60] * 10), b"no json")
    ran = tidegauge("backtest", recording, "none.jsonl", "--json", "--repeats", "5")
    assert ran.code == 1
    assert ran.document["skipped_lines"] == 1
    assert len(ran.faults) == 2
    assert tidegauge("backtest", recording, "--strict").code == 2


def test_standard_input(tidegauge) -> None:
    lines = b"\n".join(map(orjson.dumps, walks(range(1, 31), [60] * 10)))
    ran = tidegauge("backtest", "-", "--json", "--repeats", "5", stdin=lines)
    assert (ran.code, len(ran.document["rows"])) == (0, 3)


def test_nothing_at_all(tidegauge, write) -> None:
    document = tidegauge("backtest", write(), "--json").document
    assert (document["rows"], document["left_out"]) == ([], [])


@pytest.mark.parametrize("command", [("backtest",), ("calibrate", "-o", "policy.toml")])
def test_errors_are_followed_by_no_empty_table(tidegauge, command) -> None:
    ran = tidegauge(*command, "missing.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.faults == ["missing.jsonl: No such file or directory"]
    assert not Path("policy.toml").exists()


def test_nothing_to_test_is_said_in_two_words(tidegauge, write) -> None:
    ran = tidegauge("backtest", write())
    assert (ran.code, ran.out) == (0, "no runs\n")


def test_progress_counts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    clock = SteppedClock()
    with open(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        with RunProgress(7_000, clock=clock) as progress:
            progress.advance(1_000)
            clock.advance(1.1)
            progress.advance(500)
            stream.flush()
            shown = b""
            while select.select([reader], [], [], 0.05)[0]:
                shown += os.read(reader, 100_000)
    os.close(reader)
    assert b"1500/7000" in shown


def test_each_group_moves_the_progress(tidegauge, write, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []
    monkeypatch.setattr(RunProgress, "advance", lambda self, size: received.append(size))
    recording = write(*walks([5] * 30, [9] * 3), *walks([5] * 7, name="b", agent="b"))
    tidegauge("backtest", recording, "--repeats", "2")
    assert received == [33, 7]


def test_a_seed_is_at_least_0(tidegauge, write) -> None:
    ran = tidegauge("backtest", write(*walks([3])), "--seed", "-1")
    assert ran.code == 2
    assert "--seed" in ran.err


def test_other_scores_than_those_of_the_calibration_are_reported(tidegauge, write) -> None:
    learned = write(*walks([n % 20 + 5 for n in range(60)]), name="first.jsonl")
    tidegauge("calibrate", learned, "--score", "steps", "-o", "policy.toml")
    same = write(*walks([n % 20 + 5 for n in range(40)], name="same"), name="same.jsonl")
    assert tidegauge("backtest", same, "--policy", "policy.toml").err == ""
    other = write(*walks([n % 5 + 5 for n in range(40)], name="other"), name="other.jsonl")
    ran = tidegauge("backtest", other, "--policy", "policy.toml")
    assert ran.code == 0
    assert ran.err.startswith("g a: the steps of 40 successful runs differs from that of the cal")


class TestGuardsOfOthers:
    @pytest.fixture
    def recording(self, write) -> str:
        """Thirty good runs, and ten others that do the same again from their sixth step on."""
        lines = walks([8] * 30, [20] * 10)
        for line in lines:
            if "bad" in line["run"] and line["type"] == "step" and int(line["action"][2:]) >= 5:
                line.update(action="again", args="same", outcome="nothing")
        return write(*lines)

    def test_each_has_a_row(self, tidegauge, recording) -> None:
        options = [
            recording,
            "--repeats",
            "5",
            "--other-guard",
            "identical_3",
            "--other-guard",
            "openhands",
        ]
        options += ["--other-guard", "loopbrake_exact"]
        document = tidegauge("backtest", *options, "--json").document
        rows = {row["score"]: row for row in document["rows"]}
        assert list(rows) == [
            *("stagnation", "steps", "steps_begun", "loopbrake_exact", "identical_3", "openhands")
        ]
        assert {
            name: row["stop"] for name, row in rows.items() if row["stop"] == ["waste"]
        }.keys() == {*("identical_3", "openhands", "loopbrake_exact")}
        assert [rows[name]["stopped_at"] for name in ("identical_3", "openhands")] == [7, 9]
        assert rows["loopbrake_exact"]["stopped_at"] == 7  # no successful run did anything twice
        assert {rows[name]["good_stopped"] for name in rows} == {0}
        assert rows["identical_3"]["steps_saved"] == pytest.approx(130 / 280)
        assert [one["score"] for one in document["summary"]] == list(rows)
        lines = {
            line.split(":")[0]: line for line in tidegauge("backtest", *options).out.splitlines()
        }
        assert "(mean of 1 groups)" in lines["openhands"]
        assert "(alpha 0.05; mean of 1 groups)" in lines["loopbrake_exact"]

    def test_all_of_them_beside_a_policy(self, tidegauge, recording) -> None:
        options = [recording, "--json", "--policy", "default"]
        rows = tidegauge("backtest", *options, "--other-guard", "all").document["rows"]
        assert {row["score"]: row["stop"] for row in rows} == {
            "identical_3": ["waste"],
            "identical_5": ["waste"],
            "openhands": ["waste"],
            "gemini_cli": ["waste"],
            "loopbrake_fixed": ["waste", "lost cause"],
            "rules": ["waste"],
        }
        ran = tidegauge("backtest", *options, "--other-guard", "loopbrake_max")
        assert (ran.code, ran.out) == (2, "")
        assert "loopbrake_max needs a threshold, which the policy has not; leave it out" in ran.err

    def test_an_unknown_one_is_rejected(self, tidegauge, recording) -> None:
        ran = tidegauge("backtest", recording, "--other-guard", "nobody")
        assert (ran.code, ran.out) == (2, "")
        assert "'nobody' is not one of 'all', 'identical_3'" in ran.err


class TestNetEffect:
    """Every run takes 10 tokens a step, at 1 $ per 100."""

    @pytest.fixture
    def prices(self, tmp_path: Path) -> str:
        path = tmp_path / "prices.toml"
        path.write_text('"m.1" = 10_000\n')
        return str(path)

    def test_it_is_what_is_saved_less_what_is_lost(self, tidegauge, write, prices) -> None:
        recording = write(*walks([10] * 25, [30] * 5, model="m.1"))
        options = [recording, "--json", "--repeats", "5", "--score", "steps", "--prices", prices]
        plain, lost, retried = (
            tidegauge("backtest", *options, *more).document["rows"][0]
            for more in ((), ("--success-value", "7"), ("--retry-cost", "0.5"))
        )
        # five good runs are left to test on; each of the five others is stopped after 11 steps
        assert (plain["good_stopped"], plain["bad_stopped"]) == (0, 1)
        assert plain["net"] == pytest.approx(5 * 19 * 0.1 / 10)
        assert lost["net"] == plain["net"]
        assert retried["net"] == pytest.approx(5 * (19 * 0.1 - 0.5) / 10)
        low, high = plain["net_interval"]
        assert low < plain["net"] < high
        assert plain["priced"] == 30

    def test_a_successful_run_that_is_stopped_loses_its_value(
        self, tidegauge, write, prices
    ) -> None:
        recording = write(
            *walks([2] * 25, [30] * 5, model="m.1"),
            *walks([10] * 25, [30] * 5, name="b", agent="b", model="m.1"),
        )
        options = [recording, "--json", "--repeats", "5", "--score", "steps", "--prices", prices]
        options += ["--leave-out", "agent", "--success-value", "7"]
        rows = tidegauge("backtest", *options).document["rows"]
        [row] = [row for row in rows if (row["agent"], row["score"]) == ("b", "steps")]
        assert row["good_stopped"] == row["bad_stopped"] == 1  # after 3 steps
        assert row["net"] == pytest.approx((25 * (7 * 0.1 - 7) + 5 * 27 * 0.1) / 30)

    def test_runs_without_tokens_or_price_are_absent_and_not_nothing(
        self, tidegauge, write, prices
    ) -> None:
        silent = walks([10] * 25, [30] * 5, name="b", agent="b", model="m.1")
        for line in silent:
            line.pop("tokens", None)
        other = walks([10] * 25, [30] * 5, name="c", agent="c", model="dear")
        recording = write(*walks([10] * 25, [30] * 5, model="m.1"), *silent, *other)
        options = [recording, "--repeats", "5", "--score", "steps", "--prices", prices]
        rows = tidegauge("backtest", *options, "--json").document["rows"]
        found = {row["agent"]: (row["net"], row["priced"]) for row in rows}
        assert found == {"a": (pytest.approx(0.95), 30), "b": (None, 0), "c": (None, 0)}
        lines = tidegauge("backtest", *options).out.splitlines()
        assert "net per run" in lines[0]
        assert "+0.9500 $ [+" in lines[1]
        assert lines[3].endswith("  -")
        assert lines[-1] == (
            "not in the net effect, of 90 runs: 30 report no tokens; "
            "30 have a model without a price (dear)"
        )

    def test_without_any_price_there_is_one_line(self, tidegauge, write, prices) -> None:
        recording = write(*walks([10] * 25, [30] * 5))
        ran = tidegauge("backtest", recording, "--repeats", "5", "--prices", prices)
        assert "net per run" not in ran.out
        assert ran.out.count("not in the net effect, of 30 runs: 30 have a model without") == 1

    def test_it_is_in_the_summary(self, tidegauge, write, prices) -> None:
        recording = write(
            *walks([10] * 40, [30] * 10, model="m.1"),
            *walks([10] * 40, [30] * 10, name="b", agent="b"),
        )
        options = [recording, "--repeats", "5", "--score", "steps", "--prices", prices]
        one = tidegauge("backtest", *options, "--json").document["summary"][0]
        assert (one["groups"], one["priced_groups"]) == (2, 1)
        assert one["net"] == pytest.approx(10 * 1.9 / 30)
        assert "; net effect per run: +0.6333 $ [" in tidegauge("backtest", *options).out
        assert "(mean of 1 groups)" in tidegauge("backtest", *options).out

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("m = -1", "'m' is -1; use $ per million tokens"),
            ("m = true", "'m' is True; use"),
            ("m = inf", "'m' is inf; use"),
            ("[m]\na = 1", "'m' is {'a': 1}; use"),
            ("m = ", "not valid TOML"),
            ("m = '\udcff'", "not valid TOML"),
        ],
    )
    def test_a_file_without_prices_is_rejected(
        self, tidegauge, recording, tmp_path: Path, text, said
    ) -> None:
        path = tmp_path / "wrong.toml"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        ran = tidegauge("backtest", recording, "--prices", path)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1

    def test_values_need_prices(self, tidegauge, recording) -> None:
        ran = tidegauge("backtest", recording, "--success-value", "2")
        assert (ran.code, ran.out) == (2, "")
        assert "--success-value and --retry-cost need --prices FILE" in ran.err
