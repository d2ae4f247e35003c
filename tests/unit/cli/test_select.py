"""``tidegauge select``: the runs that are wanted, as they were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest


def test_chosen_runs_come_out_as_they_went_in(tidegauge, write, walk, tmp_path: Path) -> None:
    odd = b'{ "type":"end","run" : "good", "success":true, "note": [1, 2.50] }'
    good = [*walk("good", "abc", ends=False, t_max=30), odd]
    looping = walk("looping", "abababab", success=False, t_max=30)
    interleaved = [line for pair in zip(looping, good, strict=False) for line in pair]
    write(*interleaved, *good[len(looping) :], *looping[len(good) :])
    done = tidegauge("select", "runs.jsonl", "--where", "auv > 0.8 and loop_ratio == 0")
    assert done.code == 0
    assert done.err == "1 of 2 runs\n"
    want = [line if isinstance(line, bytes) else orjson.dumps(line) for line in good]
    assert done.out.encode() == b"".join(line + b"\n" for line in want)
    again = tidegauge(
        "select", "-", "--where", "loop_ratio > 0", stdin=Path("runs.jsonl").read_bytes()
    )
    assert [orjson.loads(line)["run"] for line in again.out.splitlines()] == ["looping"] * 10


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("success", ["a"]),
        ("success is None", ["c"]),
        ("not finished", ["c"]),
        ("loops == 1 and agent == 'one'", ["b"]),
        ("auv is None", ["c"]),
        ("auv == 0", ["b"]),
        ("auv > 0", ["a"]),
        ("steps > 100", []),
    ],
)
def test_fields(tidegauge, write, walk, where: str, chosen: list[str]) -> None:
    write(
        *walk("a", "xyz", agent="one", t_max=9),
        *walk("b", "xyxyxy", success=False, agent="one", t_max=9),
        *walk("c", "xyz", ends=False, agent="two", t_max=9),
    )
    done = tidegauge("select", "runs.jsonl", "--where", where)
    runs = [orjson.loads(line)["run"] for line in done.out.splitlines()]
    assert sorted(set(runs)) == chosen
    assert done.err == f"{len(chosen)} of 3 runs\n"


def test_an_out_file_replays_to_the_same_numbers(tidegauge, write, walk) -> None:
    write(*walk("a", "xyz", t_max=9), *walk("b", "xyxyxy", success=False, t_max=9))
    assert tidegauge("select", "runs.jsonl", "--where", "loops", "-o", "loops.jsonl").out == ""
    whole = tidegauge("replay", "runs.jsonl", "--json").document["runs"]
    assert tidegauge("replay", "loops.jsonl", "--json").document["runs"] == whole[1:]


def test_scores_are_fields(tidegauge, write, walk, tmp_path: Path) -> None:
    write(*walk("a", "x"), *walk("b", "x"), *walk("c", "x"))
    scores = [("a", "self_verification", 4), ("b", "self_verification", 2), ("b", "planning", 1)]
    (tmp_path / "scores.jsonl").write_bytes(
        b"".join(
            orjson.dumps({"run": run, "competency": name, "score": score}) + b"\n"
            for run, name, score in scores
        )
    )
    chosen = ["select", "runs.jsonl", "--scores", "scores.jsonl", "--where"]
    assert '"a"' in tidegauge(*chosen, "self_verification >= 3").out
    assert tidegauge(*chosen, "planning is None").err == "2 of 3 runs\n"


def test_the_best_runs_by_the_mean_of_their_competencies(tidegauge, write, walk, tmp_path) -> None:
    write(*(event for run in "abcd" for event in walk(run, "xyz" if run != "d" else "x")))
    scores = [
        *[("a", "planning", 1), ("a", "reading", 4), ("b", "planning", 3), ("b", "reading", None)],
        *[("c", "planning", None), ("d", "planning", 3)],
    ]
    write(
        *({"run": run, "competency": name, "score": score} for run, name, score in scores),
        name="scores.jsonl",
    )

    def best(*options: str) -> list[str]:
        done = tidegauge("select", "runs.jsonl", "--scores", "scores.jsonl", *options)
        assert done.code == 0
        return list(dict.fromkeys(orjson.loads(line)["run"] for line in done.out.splitlines()))

    assert best("--top", "9") == ["b", "d", "a"]  # c has no score
    assert best("--top", "1") == ["b"]  # of equal ones, the first
    assert best("--top", "1", "--where", "steps < 3") == ["d"]
    assert best("--where", "overall_score == 2.5") == ["a"]
    done = tidegauge("select", "runs.jsonl", "--top", "2")
    assert (done.code, done.faults) == (2, ["tidegauge: --top needs scores; set --scores"])
    assert tidegauge("select", "runs.jsonl").code == 2


@pytest.mark.parametrize("where", ["speed > 3", "auv >", "agent > 3", "auv.real > 1"])
def test_a_wrong_condition_is_one_line_and_nothing_is_written(
    tidegauge, write, walk, where: str
) -> None:
    write(*walk("a", "xyz"))
    done = tidegauge("select", "runs.jsonl", "--where", where)
    assert (done.code, done.out) == (2, "")
    [line] = done.faults
    assert line.startswith("tidegauge: ")


def test_an_unknown_field_lists_those_that_there_are(tidegauge, write, walk) -> None:
    write(*walk("a", "xyz"))
    done = tidegauge("select", "runs.jsonl", "--where", "speed > 3")
    assert (
        "Unknown field 'speed'; use agent, answer_streak_max, answers, auv, backtracks" in done.err
    )


def test_help_names_every_field(tidegauge) -> None:
    from tidegauge.diagnose.recorded_run import FIELDS

    words = tidegauge("select", "--help").out.split()
    assert set(FIELDS) <= set(words)


def test_restarts_ignored_lines_and_faults(tidegauge, write, walk) -> None:
    first, second = walk("a", "xy", ends=False), walk("a", "xyz")
    write(b"no json", *first, *second, {"type": "end", "run": "a"}, *walk("b", "z"))
    done = tidegauge("select", "runs.jsonl", "--where", "finished and run == 'a'")
    assert done.code == 0
    assert [orjson.loads(line) for line in done.out.splitlines()] == second
    assert len(done.faults) == 4
    assert done.faults[-1] == "1 of 3 runs"
    again = tidegauge("select", "runs.jsonl", "--where", "not finished")
    assert [orjson.loads(line) for line in again.out.splitlines()] == first
    assert tidegauge("select", "runs.jsonl", "--where", "finished", "--strict").code == 2


def test_what_is_read_is_not_written(tidegauge, write, walk) -> None:
    name = write(*walk("a", "xyz"))
    done = tidegauge("select", name, "--where", "success", "-o", name)
    assert done.code == 2
    assert "--out" in done.err
    assert Path(name).stat().st_size


def test_a_missing_file_is_reported(tidegauge, write, walk) -> None:
    write(*walk("a", "xyz"))
    done = tidegauge("select", "gone.jsonl", "runs.jsonl", "--where", "success")
    assert done.code == 1
    assert done.faults == ["gone.jsonl: No such file or directory", "1 of 1 runs"]


def test_over_recorded_runs_the_engine_decides(tidegauge, recorded_runs: Path) -> None:
    file = str(recorded_runs / "intercode_bash.events.jsonl")
    done = tidegauge("select", file, "--where", "loop_ratio >= 0.5", "-o", "looping.jsonl")
    runs: list[dict[str, Any]] = tidegauge("replay", file, "--json").document["runs"]
    want = {run["run"] for run in runs if run["loop_ratio"] and run["loop_ratio"] >= 0.5}
    kept = Path("looping.jsonl").read_bytes().splitlines()
    assert {orjson.loads(line)["run"] for line in kept} == want
    assert done.err == f"{len(want)} of {len(runs)} runs\n"
    # Each of its lines is one of the recording, unchanged.
    assert set(kept) <= set(Path(file).read_bytes().splitlines())
