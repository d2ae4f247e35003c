"""Bad recordings: each fault one line, what is good is measured, the exit code says so."""

from __future__ import annotations

import os

import pytest

GOOD = [
    {"type": "start", "run": "r"},
    {"type": "step", "run": "r", "action": "go", "state": "A"},
    {"type": "end", "run": "r", "success": True},
]
BAD = [
    b"nope",
    b"[]",
    b'"text"',
    b'{"type":"start"}',
    b'{"type":"step","run":"r"}',
    b'{"type":"step","run":"r","action":1}',
    b'{"type":"step","run":"r","action":"go","tokens":NaN}',
    b'{"type":"step","run":"r","action":"go","tokens":-Infinity}',
    b'{"type":"step","run":"r","action":"\xff\xfe"}',
    b"\x00" * 100,
    b'{"a":' * 100_000,
    b'{"type":"step","run":"never started and so long' + b"!" * (16 << 20),
    b'{"type":"end","run":"unknown"}',
]


def test_every_kind_of_bad_line_is_reported_and_skipped(tidegauge, write) -> None:
    start, step, end = GOOD
    recording = write(start, *BAD, step, end)
    ran = tidegauge("replay", "--json", recording)
    assert ran.code == 0
    assert len(ran.faults) == len(BAD)
    for number, fault in enumerate(ran.faults, start=2):
        assert fault.startswith(f"runs.jsonl:{number}: ")
        assert len(fault) < 150
    assert ran.document["skipped_lines"] == len(BAD)
    (run,) = ran.document["runs"]
    assert (run["steps"], run["success"]) == (1, True)


def test_a_flood_is_summed_up_file_by_file(tidegauge, write) -> None:
    write(*[b"nope"] * 50, *GOOD, name="1.jsonl")
    write(*[b"nope"] * 21, name="2.jsonl")
    write(*[b"nope"] * 20, name="3.jsonl")
    ran = tidegauge("replay", "--json", "1.jsonl", "2.jsonl", "3.jsonl")
    reported = [fault.split(":")[0] for fault in ran.faults]
    assert reported == ["1.jsonl"] * 21 + ["2.jsonl"] * 21 + ["3.jsonl"] * 20
    assert ran.faults[20] == "1.jsonl: 30 more lines with errors"
    assert ran.faults[41] == "2.jsonl: 1 more lines with errors"
    assert ran.document["skipped_lines"] == 91
    assert len(ran.document["runs"]) == 1


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tidegauge, write, tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")  # stands for what may not be read: root may all
    ran = tidegauge("replay", "--json", "missing.jsonl", "folder", "circle", write(*GOOD))
    assert ran.code == 1
    assert ran.faults == [
        "missing.jsonl: No such file or directory",
        "folder: Is a directory",
        "circle: Too many levels of symbolic links",
    ]
    assert [run["success"] for run in ran.document["runs"]] == [True]
    assert ran.document["skipped_lines"] == 0


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([*GOOD[:1], b"nope", *GOOD[1:]], "runs.jsonl:2: invalid JSON: "),
        ([*GOOD[:2], *GOOD], "runs.jsonl:3: run 'r' starts again before its end"),
        ([*GOOD, GOOD[1]], "runs.jsonl:4: the run 'r' has already ended"),
    ],
)
def test_strict_makes_the_first_fault_fatal(tidegauge, write, lines, fault: str) -> None:
    ran = tidegauge("replay", "--json", "--strict", write(*lines, b"never read"))
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.faults) == 1
    assert ran.faults[0].startswith(fault)


def test_strict_wants_every_file(tidegauge, write) -> None:
    ran = tidegauge("replay", "--strict", "missing.jsonl", write(*GOOD))
    assert (ran.code, ran.out) == (2, "")
    assert ran.faults == ["missing.jsonl: No such file or directory"]


def test_strict_has_nothing_to_say_of_a_good_file(tidegauge, write) -> None:
    ran = tidegauge("replay", "--strict", "--json", write(*GOOD))
    assert (ran.code, ran.err) == (0, "")


def test_a_name_that_is_no_text(tidegauge, write) -> None:
    name = os.fsdecode(b"\xff.jsonl")
    ran = tidegauge("replay", name)
    assert ran.code == 1
    assert ran.faults[0].endswith(".jsonl: No such file or directory")
