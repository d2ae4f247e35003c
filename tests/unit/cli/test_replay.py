"""``tidegauge replay``: every key of its document, and what each option changes."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import select
import sys
from pathlib import Path

import click
import orjson
import pytest

from support.requirements import needs
from tidegauge.cli.replay import RecordedRuns, print_groups
from tidegauge.cli.terminal import ByteProgress, total_bytes
from tidegauge.events import RunStarted
from tidegauge.policies import Policy
from tidegauge.testing import SteppedClock

NOT_MEASURED = {
    "stale_score": None,
    "stale_score_max": None,
    "frontier": None,
    "pending": None,
    "required": {"exploration": None, "exploitation": None},
    "errors": {"exploration": None, "exploitation": None},
    "exploration_error": None,
    "exploitation_error": None,
    "premature_halt": None,
    "cut_short": None,
    "recall_lag": None,
    "answers": 0,
    "answer_streak_max": 0,
    "turns_without_calls_max": 0,
}


NO_GROUP_NUMBERS = {
    "loop_split": {"with_loops": None, "without": None, "difference": None},
    "loop_action_share": {},
    "tide_cycle_action_share": {},
    "pass_at_k": {},
    "recall_lag": {"success": None, "failure": None},
    "loop_entropy": None,
    "other_entropy": None,
}


def test_the_whole_document(tidegauge, write) -> None:
    def step(outcome: str, error: bool, progress: float) -> dict[str, object]:
        return {
            "type": "step",
            "run": "r1",
            "action": "click",
            "args": {"id": 275},
            "outcome": outcome,
            "error": error,
            "progress": progress,
        }

    recording = write(
        {
            "type": "start",
            "run": "r1",
            "agent": "browser",
            "task": "find it",
            "task_group": "shop",
            "t_max": 5,
            "memory": "on",
        },
        step("page", False, 0.4),
        step("nothing", True, 0.2),
        step("nothing", True, 0),
        step("nothing", True, 0),
        {"type": "end", "run": "r1", "success": True},
        {"type": "start", "run": "r2"},
    )
    ran = tidegauge("replay", "--json", recording)
    assert (ran.code, ran.err) == (0, "")
    # states: find it, page, nothing, nothing: the last step closes a cycle, none repeats
    assert ran.document == {
        "runs": [
            {
                "run": "r1",
                "agent": "browser",
                "task_group": "shop",
                "memory": "on",
                "steps": 4,
                "success": True,
                "finished": True,
                "loop_steps": 1,
                "loop_ratio": 0.25,
                "loop_evidence_max": pytest.approx(1 / 3),
                "tide_loop_steps": 1,
                "tide_loop_ratio": 0.25,
                "tide_cycles": 1,
                "tide_cycle_steps": 1,
                "loops": [{"first_step": 3, "period": 1, "repeats": 1, "steps": 1}],
                "lost_in_loops": {"steps": 1, "tokens": None, "seconds": None},
                "failed_rounds_max": 3,
                "progress_auv": pytest.approx(0.4 * 4.5 / 5),
                "novelty": 0.5,
                "result_streak_max": 3,
                "stuck_streak_max": 3,
                "empty_streak": 3,
                "skipped_steps": 0,
                "stopped": None,
                "refused_calls": 0,
                **NOT_MEASURED,
                # over its states: none is visited more than twice
                "stale_score": 0,
                "stale_score_max": 0,
            },
            {
                "run": "r2",
                "agent": "",
                "task_group": "",
                "memory": None,
                "steps": 0,
                "success": None,
                "finished": False,
                "loop_steps": 0,
                "loop_ratio": None,
                "loop_evidence_max": 0,
                "tide_loop_steps": 0,
                "tide_loop_ratio": None,
                "tide_cycles": 0,
                "tide_cycle_steps": 0,
                "loops": [],
                "lost_in_loops": {"steps": 0, "tokens": None, "seconds": None},
                "failed_rounds_max": None,
                "progress_auv": None,
                "novelty": None,
                "result_streak_max": None,
                "stuck_streak_max": None,
                "empty_streak": None,
                "skipped_steps": 0,
                "stopped": None,
                "refused_calls": 0,
                **NOT_MEASURED,
            },
        ],
        "groups": [
            {
                "agent": "browser",
                "task_group": "shop",
                "memory": "on",
                "runs": 1,
                "success_rate": 1.0,
                "auv": pytest.approx(0.3),
                "auv_stderr": None,
                "success_at_t_max": 1.0,
                "loop_ratio": 0.25,
                "exploration_error": None,
                "exploitation_error": None,
                **NO_GROUP_NUMBERS,
                "loop_split": {
                    "with_loops": pytest.approx(0.3),
                    "without": None,
                    "difference": None,
                },
                "loop_action_share": {"click": 1.0},
                "tide_cycle_action_share": {"click": 1.0},
                "pass_at_k": {"1": 1.0},
            },
            {
                "agent": "",
                "task_group": "",
                "memory": None,
                "runs": 1,
                "success_rate": None,
                "auv": None,
                "auv_stderr": None,
                "success_at_t_max": None,
                "loop_ratio": None,
                "exploration_error": None,
                "exploitation_error": None,
                **NO_GROUP_NUMBERS,
            },
        ],
        "memory_index": [],
        "skipped_lines": 0,
    }


def test_the_loop_of_the_contract(tidegauge, write, walk) -> None:
    (run,) = tidegauge("replay", "--json", write(*walk("r", "ABC" * 4 + "AB"))).document["runs"]
    assert run["loops"] == [{"first_step": 3, "period": 3, "repeats": 3, "steps": 11}]
    assert (run["loop_steps"], run["loop_ratio"]) == (11, 11 / 14)
    tide = [run[f"tide_{name}"] for name in ("loop_steps", "loop_ratio", "cycles", "cycle_steps")]
    assert tide == [9, 9 / 14, 4, 12]


def test_loops_as_in_the_code_for_graphical_interfaces(tidegauge, write, walk) -> None:
    recording = write(*walk("r", "AABAB"))
    found = {
        code: tidegauge("replay", "--json", "--loop-code", code, recording).document
        for code in ("text", "gui")
    }
    assert {code: document["runs"][0]["tide_loop_steps"] for code, document in found.items()} == {
        "text": 3,
        "gui": 1,
    }
    assert tidegauge("replay", "--json", recording).document == found["text"]


def test_actions_of_loops_are_counted_by_step_and_by_round(tidegauge, write, walk) -> None:
    """A B is repeated three times, C C once: of the loop steps, a third are at A or B."""
    lines = walk("r", "ABABABABCC")
    for line, name in zip(lines[1:], "abababab" + "cc", strict=False):
        line["action"] = name
    [group] = tidegauge("replay", "--json", write(*lines)).document["groups"]
    assert group["loop_action_share"] == pytest.approx({"a": 3 / 7, "b": 3 / 7, "c": 1 / 7})
    assert group["tide_cycle_action_share"] == pytest.approx(dict.fromkeys("abc", 1 / 3))


def test_t_max_of_the_task_groups_of_tide(tidegauge, write, walk) -> None:
    lines = [
        *walk("a", "A" * 20, task_group="blocksworld", t_max=99),
        *walk("b", "B" * 21, task_group="blocksworld", t_max=99),
        *walk("c", "C" * 16, task_group="webshop"),
        *walk("d", "D" * 3, task_group="other", t_max=4),
    ]
    ends = [line for line in lines if line["type"] == "end"]
    for end in ends:
        end["success"] = True
    recording = write(*lines)
    groups = tidegauge("replay", "--json", "--t-max", "tide", recording).document["groups"]
    assert {group["task_group"]: group["success_at_t_max"] for group in groups} == {
        "blocksworld": 0.5,
        "webshop": 0,
        "other": 1,
    }
    assert {group["success_rate"] for group in groups} == {1}
    table = tidegauge("replay", "--t-max", "tide", recording).out
    assert "at t_max" in table.splitlines()[0]
    assert "50.0%" in table
    ran = tidegauge("replay", "--t-max", "tides", recording)
    assert (ran.code, ran.out) == (2, "")
    assert "'tides' is not a whole number; use 1 or more" in ran.err


def test_runs_are_listed_by_their_first_lines(tidegauge, write, walk) -> None:
    first, second = walk("first", "ABC", agent="a"), walk("second", "A", agent="b")
    first[1:1] = second  # the first run goes on after the second has ended
    document = tidegauge("replay", "--json", write(*first)).document
    assert [run["run"] for run in document["runs"]] == ["first", "second"]
    assert [group["agent"] for group in document["groups"]] == ["a", "b"]


def test_a_run_without_end_is_unfinished_and_in_no_rate(tidegauge, write, walk) -> None:
    lines = [*walk("a", "AB", t_max=4), *walk("b", "AAAA", t_max=4, ends=False)]
    document = tidegauge("replay", "--json", write(*lines)).document
    a, b = document["runs"]
    assert (a["finished"], b["finished"], b["success"], b["steps"]) == (True, False, None, 4)
    (group,) = document["groups"]
    assert (group["runs"], group["success_rate"]) == (2, 1.0)
    assert group["auv"] == (4 - 2 + 0.5) / 4
    assert group["loop_ratio"] == 3 / 6


def test_a_run_started_again_is_another_run(tidegauge, write, walk) -> None:
    lines = [*walk("r", "AAA", ends=False), *walk("r", "AB"), *walk("r", "A", success=False)]
    ran = tidegauge("replay", "--json", write(*lines))
    assert ran.faults == ["runs.jsonl:5: run 'r' starts again before its end"]
    document = ran.document
    assert document["skipped_lines"] == 0
    seen = [(run["run"], run["steps"], run["finished"], run["success"]) for run in document["runs"]]
    assert seen == [("r", 3, False, None), ("r", 2, True, True), ("r", 1, True, False)]
    (group,) = document["groups"]
    assert (group["runs"], group["success_rate"]) == (3, 0.5)


def test_several_files_are_one_recording(tidegauge, write, walk) -> None:
    lines = walk("r", "ABC" * 4)
    write(*lines[:6], name="1.jsonl")
    write(*lines[6:], name="2.jsonl")
    (run,) = tidegauge("replay", "--json", "1.jsonl", "2.jsonl").document["runs"]
    assert (run["loop_steps"], run["finished"]) == (9, True)


def test_standard_input(tidegauge, write, walk, tmp_path: Path) -> None:
    recording = tmp_path / write(*walk("r", "AAA"))
    piped = tidegauge("replay", "--json", "-", stdin=recording.read_bytes() + b"nope")
    assert [run["loop_steps"] for run in piped.document["runs"]] == [2]
    [fault] = piped.faults
    assert re.fullmatch(r"<stdin>:6: invalid JSON: .+ at column 1", fault)


def test_memory_index(tidegauge, write, walk) -> None:
    arms = [
        # three agents of one task group: the index takes them together
        *walk("1", "A", agent="x", task_group="g", memory="on", t_max=4),
        *walk("2", "AB", agent="y", task_group="g", memory="on", t_max=4),
        *walk("3", "ABC", agent="x", task_group="g", memory="off", t_max=4),
        *walk("4", "ABC", agent="z", task_group="g", memory="off", t_max=4, success=False),
        # an arm is missing
        *walk("5", "A", task_group="h", memory="on", t_max=4),
        # other arms, and none
        *walk("6", "A", task_group="i", memory="4k", t_max=4),
        *walk("7", "A", task_group="i", t_max=4),
        # nothing to compare: t_max was not given; one run has no standard error
        *walk("8", "A", task_group="j", memory="on"),
        *walk("9", "A", task_group="j", memory="off", t_max=4),
    ]
    on, off = [3.5 / 4, 2.5 / 4], [1.5 / 4, 0.0]
    document = tidegauge("replay", "--json", write(*arms)).document
    assert document["memory_index"] == [
        {
            "task_group": "g",
            "on": pytest.approx(sum(on) / 2),
            "off": pytest.approx(sum(off) / 2),
            "value": pytest.approx(sum(on) / 2 - sum(off) / 2),
            # the standard error of the mean of two is half their distance
            "stderr": pytest.approx((((on[0] - on[1]) / 2) ** 2 + (off[0] / 2) ** 2) ** 0.5),
        },
        {"task_group": "j", "on": None, "off": 3.5 / 4, "value": None, "stderr": None},
    ]
    assert len(document["groups"]) == 9


def test_t_max_overrides(tidegauge, write, walk) -> None:
    recording = write(*walk("a", "AB", t_max=2), *walk("b", "ABC"), *walk("c", "A")[1:])
    (group,) = tidegauge("replay", "--json", recording).document["groups"]
    assert group["auv"] == 0.5 / 2  # only one run says its t_max
    (group,) = tidegauge("replay", "--json", "--t-max", "4", recording).document["groups"]
    assert group["auv"] == pytest.approx((2.5 + 1.5 + 3.5) / 4 / 3)


def test_a_policy_ends_runs(tidegauge, write, walk) -> None:
    recording = write(*walk("a", "ABABABAB" * 3), *walk("b", "ABCD"), *walk("c", "ABCDEFGHI"))
    ran = tidegauge("replay", "--json", "--policy", "loop_repeats=2,steps=8", recording)
    assert ran.err == ""
    a, b, c = ran.document["runs"]
    # the second repetition of A B is complete with the sixth step
    assert a["stopped"] == {"step": 5, "reason": "loop_repeats"}
    assert (a["steps"], a["loop_steps"], a["success"], a["finished"]) == (6, 4, False, True)
    assert (b["stopped"], b["steps"], b["success"]) == (None, 4, True)
    assert c["stopped"] == {"step": 8, "reason": "steps"}


def test_thoughts_are_left_out(tidegauge, write) -> None:
    def round_of(thought: str) -> list[dict[str, str]]:
        think = {"type": "step", "run": "r", "action": "think", "args": thought, "outcome": ""}
        book = {"type": "step", "run": "r", "state": "", "action": "book", "outcome": "refused"}
        return [think, book]

    recording = write(*itertools.chain(*(round_of(f"thought {n}") for n in range(5))))
    (run,) = tidegauge("replay", "--json", recording).document["runs"]
    # they hide nothing: that only the booking is looked at needs no option
    assert (run["steps"], run["loop_steps"], run["tide_loop_steps"]) == (10, 4, 0)
    (run,) = tidegauge("replay", "--json", "--ignore-action", "think", recording).document["runs"]
    # the state that was reported after each thought stays: the same booking in the same state
    assert (run["steps"], run["loop_steps"]) == (5, 4)
    none = tidegauge(
        "replay", "--json", "--ignore-action=think", "--ignore-action=book", recording
    ).document["runs"]
    assert [run["steps"] for run in none] == [0]


def test_step_lines(tidegauge, write, walk, tmp_path: Path) -> None:
    def loops(name: str = "steps.jsonl") -> list[tuple[str, int, bool]]:
        lines = [orjson.loads(line) for line in (tmp_path / name).read_bytes().splitlines()]
        return [(line["run"], line["t"], line["loop"]) for line in lines]

    tidegauge("replay", write(*walk("r", "ABCABCAX")), "--steps-out", "steps.jsonl")
    assert loops() == [("r", t, t in (3, 4, 5, 6)) for t in range(8)]
    first = orjson.loads((tmp_path / "steps.jsonl").read_bytes().splitlines()[0])
    assert first == {
        "run": "r",
        "t": 0,
        "loop": False,
        "tide_loop": False,
        "loop_period": 0,
        "loop_repeats": 0,
        "case": None,
        "gain": None,
        "progress": None,
        "error": None,
        "exploration_error": None,
        "exploitation_error": None,
        "stale": 0,
        "frontier": None,
        "pending": None,
    }
    # half a repetition at the end of the run, of the recording, at a stop, at another start
    for ends in (True, False):
        tidegauge("replay", write(*walk("r", "ABCABCAB", ends=ends)), "--steps-out", "steps.jsonl")
        assert loops() == [("r", t, t >= 3) for t in range(8)]
    tidegauge(
        "replay",
        write(*walk("r", "ABCABCABX")),
        "--policy=steps=7",
        "--steps-out=steps.jsonl",
    )
    assert loops() == [("r", t, t >= 3) for t in range(8)]
    again = [*walk("r", "ABCABCA", ends=False), *walk("r", "AA")]
    tidegauge("replay", write(*again), "--steps-out", "steps.jsonl")
    assert loops() == [
        *[("r", t, t >= 3) for t in range(7)],
        *[("r", t, t == 1) for t in range(2)],
    ]


def test_a_step_line_waits_until_it_is_settled(tidegauge, write, walk, tmp_path: Path) -> None:
    a, b = walk("a", "XYXY"), walk("b", "PQRS")
    tidegauge(
        "replay",
        write(*(event for pair in zip(a, b, strict=True) for event in pair)),
        "--steps-out=steps.jsonl",
    )
    lines = [orjson.loads(line) for line in (tmp_path / "steps.jsonl").read_bytes().splitlines()]
    assert [(line["run"], line["t"]) for line in lines] == [
        *[("a", 0), ("b", 0), ("a", 1), ("b", 1)],
        # a's third step repeats the first of its cycle: the second decides
        *[("b", 2), ("a", 2), ("a", 3), ("b", 3)],
    ]
    assert [line["t"] for line in lines if line["loop"]] == [2, 3]


def test_a_recording_is_not_overwritten(tidegauge, write, walk, tmp_path: Path) -> None:
    recording = write(*walk("r", "AB"))
    (tmp_path / "link.jsonl").symlink_to(recording)
    ran = tidegauge("replay", recording, "--steps-out", "link.jsonl")
    assert (ran.code, "is also an input" in ran.err) == (2, True)
    assert len((tmp_path / recording).read_bytes().splitlines()) == 4


def test_steps_out_where_nothing_can_be_written(tidegauge, write, walk) -> None:
    ran = tidegauge("replay", write(*walk("r", "AB")), "--steps-out", "nowhere/steps.jsonl")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "nowhere/steps.jsonl" in ran.err


def test_the_table_is_plain_text(tidegauge, write, walk) -> None:
    lines = [
        *walk("1", "AAB", agent="browser", task_group="shop [red]", memory="on", t_max=4),
        *walk("2", "ABC", agent="browser", task_group="shop [red]", memory="on", t_max=4),
        *walk("3", "AB", agent="\x1b[31ma long name " * 9, success=None, ends=False),
    ]
    ran = tidegauge("replay", write(*lines, b"nope"))
    header, shop, other, total = ran.out.splitlines()
    assert header.split("  ")[0] == "agent"
    assert [cell.strip() for cell in shop.split("  ") if cell] == [
        *["browser", "shop [red]", "on", "2"],
        *["100.0%", "100.0%", "37.5% ± 0.0%", "16.7%", "1"],
    ]
    assert "a long name " * 2 not in other  # each is led by what was an escape
    assert other.count("a long name") == 9
    assert "\x1b" not in ran.out
    assert other.split()[-8:] == ["-", "-", "1", "-", "-", "-", "0.0%", "0"]
    assert total == "3 runs, 1 of them unfinished; 8 steps; 1 lines skipped"


def test_the_table_shows_stopped_runs(tidegauge, write, walk) -> None:
    lines = [*walk("1", "AAAAA"), *walk("2", "AB")]
    ran = tidegauge("replay", write(*lines), "--policy", "loop_repeats=2")
    assert ran.out.splitlines()[0].endswith("stopped")
    assert ran.out.splitlines()[1].split()[-1] == "1"


def test_nothing_follows_the_error_if_no_file_can_be_read(tidegauge) -> None:
    ran = tidegauge("replay", "missing.jsonl")
    assert (ran.code, ran.out) == (1, "")
    assert tidegauge("replay", "missing.jsonl", "--json").document["runs"] == []


def test_nothing_recorded(tidegauge, write) -> None:
    empty = write()
    assert tidegauge("replay", empty).out == (
        "0 runs, 0 of them unfinished; 0 steps; 0 lines skipped\n"
    )
    assert tidegauge("replay", empty, "--json").document == {
        "runs": [],
        "groups": [],
        "memory_index": [],
        "skipped_lines": 0,
    }


@contextlib.contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, name: str):
    """A terminal in the place of a standard stream; call it for what it has been shown."""
    reader, writer = pty.openpty()
    with open(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, name, stream)
        patch.setenv("TERM", "xterm")

        def shown() -> str:
            stream.flush()
            text = b""
            while select.select([reader], [], [], 0.05)[0]:
                text += os.read(reader, 100_000)
            return text.decode()

        yield shown
    os.close(reader)


def test_progress_is_shown_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    with (
        terminal(monkeypatch, "stderr") as shown,
        ByteProgress(2_000_000, clock=clock) as progress,
    ):
        progress.advance(500_000)
        clock.advance(0.9)
        progress.advance(500_000)
        assert shown() == ""
        clock.advance(0.2)
        progress.advance(500_000)
        assert "1.5/2.0 MB" in shown()
        click.echo("runs.jsonl:3: a fault", err=True)  # goes above the bar
        assert "runs.jsonl:3: a fault\r\n" in shown()


def test_on_a_terminal_the_table_fits_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RecordedRuns(Policy())
    runs.run_started(RunStarted(run="r", agent="a very long name " * 20))
    monkeypatch.setenv("COLUMNS", "100")
    with terminal(monkeypatch, "stdout") as shown:
        print_groups(runs, skipped_lines=0)
        lines = re.sub("\x1b\\[[0-9;]*m", "", shown()).splitlines()
    assert max(len(line) for line in lines) <= 100
    assert "very long name" in lines[3]


def test_progress_is_not_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SteppedClock()
    with ByteProgress(None, clock=clock) as progress:
        clock.advance(5)
        progress.advance(1)
    assert capsys.readouterr().err == ""


def test_how_much_there_is_to_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    a, pipe, missing = (str(tmp_path / name) for name in ("a", "pipe", "missing"))
    assert total_bytes([a, a, missing]) == 10
    assert total_bytes([a, "-"]) is None
    assert total_bytes([a, pipe]) is None
    assert total_bytes([a, str(tmp_path)]) is None


def test_the_line_of_a_step_shows_its_own_outcome_though_it_came_late(
    tidegauge, write, tmp_path: Path
) -> None:
    def overlapping(number: int) -> dict:
        return {"type": "step", "run": "r", "action": "go", "late_outcome": number}

    def outcome(number: int, place: str) -> dict:
        return {"type": "outcome", "run": "r", "late_outcome": number, "place": place, "exits": []}

    recorded = [overlapping(0), overlapping(1), outcome(1, "hall"), outcome(0, "attic")]
    tidegauge("replay", "--strict", write(*recorded), "--steps-out", "steps.jsonl")
    lines = [orjson.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [(line["t"], line["frontier"]) for line in lines] == [(0, None), (1, 0)]


@needs(os.path.exists("/dev/full"), "this platform has no /dev/full")
@pytest.mark.parametrize(
    "command",
    [("replay", "--steps-out", "/dev/full"), ("select", "--where", "steps", "-o", "/dev/full")],
)
def test_an_output_that_fails_is_named_and_not_the_input(tidegauge, write, command) -> None:
    steps = [{"type": "step", "run": "r", "action": "a" * 50_000} for _ in range(200)]
    name, *options = command
    ran = tidegauge(name, write({"type": "start", "run": "r"}, *steps), *options)
    assert ran.code == 1
    assert ran.err == "tidegauge: /dev/full: No space left on device\n"
