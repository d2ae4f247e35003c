"""``tidegauge report``: what is in the page, read back out of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import pty
import re
import select
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest

from tidegauge.cli.report_page import redacted_line
from tidegauge.recordings.encoding import ContentEncoder
from tidegauge.streaming_metrics.normalise import volatile

EVIL = "</script><script>document.title='taken'</script></template><!-- data -->"


class Read:
    """A page taken apart."""

    def __init__(self, file: str) -> None:
        self.text = Path(file).read_text(encoding="utf-8")
        self.data: dict[str, Any] = orjson.loads(self.unpacked("data"))
        self.lines = self.unpacked("lines").split(b"\n")

    def unpacked(self, name: str) -> bytes:
        found = re.search(rf'<template id="{name}">(.*?)</template>', self.text, re.DOTALL)
        assert found is not None
        return gzip.decompress(base64.b64decode(found[1]))


def test_every_number_is_the_one_of_replay(tidegauge, write, walk) -> None:
    write(
        *walk("a", "xyz", agent="one", task_group="g", t_max=9, memory="on"),
        *walk("b", "xyxyxy", success=False, agent="one", task_group="g", t_max=9, memory="off"),
        *walk("c", "xx", ends=False, agent="two"),
    )
    done = tidegauge("report", "runs.jsonl", "-o", "report.html")
    assert done.code == 0
    assert re.fullmatch(r"report.html: 3 runs, \d\.\d MB\n", done.out)
    page = Read("report.html").data
    replayed = tidegauge("replay", "runs.jsonl", "--json").document
    for run, entry in zip(page["runs"], replayed["runs"], strict=True):
        nested = {"loops", "lost_in_loops", "required", "errors", "stopped"}
        assert {key: run[key] for key in entry if key not in nested} == {
            key: value for key, value in entry.items() if key not in nested
        }
        assert entry["lost_in_loops"] == {
            "steps": run["loop_steps"],
            "tokens": run["lost_tokens"],
            "seconds": run["lost_seconds"],
        }
        assert [list(loop) for loop in run["listed_loops"]] == [
            [loop["first_step"], loop["period"], loop["repeats"], loop["steps"]]
            for loop in entry["loops"]
        ]
    for group, entry in zip(page["groups"], replayed["groups"], strict=True):
        assert {key: group[key] for key in entry} == entry
    assert page["memory_index"] == replayed["memory_index"]
    assert page["groups"][0]["curve"] == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert page["runs"][2]["auv"] is None
    assert [group["unfinished"] for group in page["groups"]] == [0, 0, 1]


def test_the_steps_are_those_of_steps_out(tidegauge, write, walk) -> None:
    write(*walk("a", "xyxyxyz"), *walk("b", "ppp"))
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    tidegauge("replay", "runs.jsonl", "--steps-out", "steps.jsonl")
    expected = [orjson.loads(line) for line in Path("steps.jsonl").read_bytes().splitlines()]
    for run in Read("report.html").data["runs"]:
        steps = [line for line in expected if line["run"] == run["run"]]
        assert run["step"]["loop"] == [line["loop"] for line in steps]
        assert run["step"]["stale"] == [line["stale"] for line in steps]


def test_the_recorded_lines_are_in_the_page_run_by_run(tidegauge, write, walk) -> None:
    one, other = walk("a", "xy"), walk("b", "z")
    write(one[0], other[0], b"no json", one[1], other[1], one[2], other[2], one[3])
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    page = Read("report.html")
    assert [orjson.loads(line) for line in page.lines] == one + other
    assert [run["line_count"] for run in page.data["runs"]] == [4, 3]
    assert page.data["runs"][0]["step"]["line"] == [1, 2]
    assert page.data["skipped_lines"] == 1


def test_outcomes_that_came_late_are_found(tidegauge, write) -> None:
    write(
        {"type": "step", "run": "r", "late_outcome": 4, "action": "a"},
        {"type": "step", "run": "r", "late_outcome": 5, "action": "b"},
        {"type": "outcome", "run": "r", "late_outcome": 5, "outcome": "B", "error": True},
        {"type": "outcome", "run": "r", "late_outcome": 4, "outcome": "A", "error": False},
        {"type": "end", "run": "r"},
    )
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    [run] = Read("report.html").data["runs"]
    assert run["step"]["line"] == [0, 1]
    assert run["step"]["outcome_line"] == [3, 2]
    assert run["step"]["failed"] == [False, True]


def test_a_policy_marks_where_it_steps_in(tidegauge, write, walk) -> None:
    write(*walk("a", "xyxyxyxyxy"))
    tidegauge("report", "runs.jsonl", "-o", "report.html", "--policy", "loop_repeats=2")
    page = Read("report.html")
    [run] = page.data["runs"]
    assert run["interventions"] == [[5, "stop", "loop_repeats"]]
    assert (run["stopped"], run["steps"]) == ("loop_repeats", 6)
    assert len(page.lines) == 12  # those after the stop too: it is the run as it was recorded


def test_places_are_shown_where_they_are_known(tidegauge, write) -> None:
    step = {"type": "step", "run": "r", "action": "go"}
    write(
        {"type": "start", "run": "r", "place": "hall", "exits": ["attic"]},
        {**step, "place": "attic", "exits": ["hall"]},
        {**step, "place": "hall", "exits": ["attic"]},
        {**step, "place": "hall", "exits": ["attic"]},
        {"type": "end", "run": "r", "success": True},
    )
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    [run] = Read("report.html").data["runs"]
    assert (run["walk"], run["places"]) == ([0, 1, 0], ["hall", "attic"])
    assert run["step"]["frontier"] == [0, 0, 0]
    assert run["step"]["progress"] == [True, False, False]


def test_nothing_a_recording_says_becomes_markup(tidegauge, write) -> None:
    write(
        {"type": "start", "run": EVIL, "agent": EVIL, "task": EVIL, "task_group": EVIL},
        {"type": "step", "run": EVIL, "action": EVIL, "args": EVIL, "outcome": EVIL},
        {"type": "end", "run": EVIL, "success": False},
    )
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    text = Read("report.html").text
    assert "title='taken'" not in text
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            tags.append(tag)

    Tags().feed(text)
    assert tags.count("template") == 3
    assert tags.count("script") == text.count("<script>")


def test_the_page_asks_nobody_and_runs_only_its_own(tidegauge, write, walk) -> None:
    write(*walk("a", "xyz"))
    tidegauge("report", "runs.jsonl", "-o", "report.html")
    text = Read("report.html").text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy[1]
    # the chart library is packed, and a script only once the page is open
    assert len(rules["script-src"].split()) == text.count("<script>") + 1
    library = Read("report.html").unpacked("library")
    digest = base64.b64encode(hashlib.sha256(library).digest()).decode()
    assert f"'sha256-{digest}'" in rules["script-src"].split()
    assert len(text) < len(library) / 2
    assert not re.search(r"<(?:link|iframe|img|script [^>]*src)", text.split("<script>", 1)[0])


def test_without_contents_no_word_is_left_but_the_numbers_are(tidegauge, write) -> None:
    secret = "hunter2"
    events: list[dict[str, Any]] = [
        {"type": "start", "run": "r", "agent": "one", "task": f"use {secret}", "place": secret,
         "exits": [[secret, 3]], "goal": secret, "tasks": [{"id": secret, "requires": [[secret]]}],
         "t_max": 9, "note": secret}
    ]  # fmt: skip
    for state in ("a", "b", "a", "b", "a", "b"):
        events.append(
            {"type": "step", "run": "r", "state": f"{secret} {state}", "action": "ask",
             "args": {"q": secret}, "outcome": f"{secret} of {state}", "error": False,
             "mentions": [secret], "uses": [secret], "achieved": [secret], "place": [secret, 3]}
        )  # fmt: skip
    events.append(
        {
            "type": "step",
            "run": "r",
            "calls": [{"action": "say", "args": secret, "outcome": secret}],
        }
    )
    events.append({"type": "end", "run": "r", "success": False, "reason": secret})
    write(*events)
    tidegauge("report", "runs.jsonl", "-o", "report.html", "--no-contents")
    page = Read("report.html")
    assert page.data["contents"] is False
    assert page.data["map"] is None
    assert secret.encode() not in orjson.dumps(page.data) + b"".join(page.lines)
    Path("digests.jsonl").write_bytes(b"\n".join(page.lines))
    whole = tidegauge("replay", "runs.jsonl", "--json").document["runs"]
    assert tidegauge("replay", "digests.jsonl", "--json").document["runs"] == whole
    [cloud] = page.data["clouds"]
    assert {text for text, _ in cloud["phrases"]} == {"ask", "say"}


def test_digested_recordings_have_the_numbers_of_what_they_stand_for(
    tidegauge, recorded_runs: Path
) -> None:
    shown = ContentEncoder(bytes.hex, plain=False, normaliser=volatile())
    for file in sorted(recorded_runs.glob("*.events.jsonl"))[:2]:
        lines = file.read_bytes().splitlines()
        Path("digests.jsonl").write_bytes(
            b"".join(redacted_line(line, shown) + b"\n" for line in lines)
        )
        whole = tidegauge("replay", str(file), "--json").document
        assert tidegauge("replay", "digests.jsonl", "--json").document == whole


def test_scores_are_joined_to_their_runs(tidegauge, write, walk, tmp_path: Path) -> None:
    write(*walk("a", "x"), *walk("b", "x"))
    (tmp_path / "scores.jsonl").write_bytes(
        b'{"run":"b","competency":"self_verification","score":3,"reason":"looks twice",'
        b'"steps":[0]}\n'
        b'{"run":"gone","competency":"self_verification","score":1}\n'
    )
    tidegauge("report", "runs.jsonl", "-o", "report.html", "--scores", "scores.jsonl")
    assert Read("report.html").data["scores"] == [
        {"runs": [1], "competency": "self_verification", "score": 3, "reason": "looks twice",
         "steps": [0]}
    ]  # fmt: skip


def test_nothing_recorded_is_a_page_too(tidegauge, write) -> None:
    write()
    assert tidegauge("report", "runs.jsonl", "-o", "report.html").code == 0
    page = Read("report.html")
    assert page.data["runs"] == []


def test_its_stages_are_shown_on_a_terminal(
    tidegauge, write, walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*walk("a", "x"))
    reader, writer = pty.openpty()
    with open(writer, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "120")
        tidegauge("report", "runs.jsonl", "-o", "report.html")
        terminal.flush()
        shown = b""
        while select.select([reader], [], [], 0.05)[0]:
            shown += os.read(reader, 100_000)
    os.close(reader)
    for number, stage in enumerate(
        ("runs and their graphs", "words", "map of actions", "the page")
    ):
        assert f"{number} of 4 done: {stage}".encode() in shown


def test_a_page_that_cannot_be_written(tidegauge, write, walk) -> None:
    name = write(*walk("a", "x"))
    assert tidegauge("report", name, "-o", name).code == 2
    assert tidegauge("report", name, "-o", "no/such/folder.html").code == 1
    assert tidegauge("report", "gone.jsonl", name, "-o", "report.html").code == 1
    assert tidegauge("report", name).code == 2


@pytest.mark.parametrize("missing", ["sklearn", "plotly", "networkx", "HanTa"])
def test_a_missing_extra_says_what_to_install(
    tidegauge, write, walk, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    write(*walk("a", "x"))
    for name in list(sys.modules):
        if name.startswith(("tidegauge.diagnose.report", "tidegauge.cli.report_page", "HanTa.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = tidegauge("report", "runs.jsonl", "-o", "report.html")
    assert done.code == 2
    assert (
        done.err == f"tidegauge: {missing} is not installed: pip install '.[report]' in a clone\n"
    )


@pytest.mark.parametrize("depth", [253, 300, 900])
def test_what_is_nested_deep_is_shown_and_costs_nothing_else(tidegauge, write, depth: int) -> None:
    value = b"[" * depth + b'"deep"' + b"]" * depth  # deeper than orjson writes
    write(
        {"type": "start", "run": "r"},
        b'{"type":"step","run":"r","action":"go","args":%b,"state":%b}' % (value, value),
    )
    done = tidegauge("report", "runs.jsonl", "-o", "report.html")
    assert (done.code, done.err) == (0, "")
    [run] = Read("report.html").data["runs"]
    assert run["steps"] == 1
