"""Every number of docs/evidence.md is in the document that its command writes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from benchmarks.evidence import evidence
from benchmarks.evidence.page import filled, numbers_of, shown
from benchmarks.evidence.recorded import families
from benchmarks.evidence.stops import (
    BY_RUN,
    BY_TASK,
    Calibration,
    Moments,
    judge,
    splits,
)
from click.testing import CliRunner

DOCS = Path(__file__).parents[2] / "docs"

SETTINGS = {"0.5", "0.9", "95%", "10", "5", "20", "0.05", "2", "1"}
"""What is no result: the level of chance and of intervals, steps, and numbers of parts."""


def document() -> dict[str, Any]:
    return orjson.loads((DOCS / "evidence.json").read_bytes())


def test_every_number_of_the_page_is_in_the_document():
    page = (DOCS / "evidence.md").read_text()
    known = shown(document()) | SETTINGS
    unknown = sorted({number for number in numbers_of(page) if number not in known})
    assert len(numbers_of(page)) > 100
    assert not unknown, f"not in evidence.json: {unknown}"


def test_every_table_of_the_page_is_that_of_the_document():
    page = (DOCS / "evidence.md").read_text()
    assert filled(page, document()) == page


def test_a_number_that_was_changed_by_hand_is_noticed():
    page = "It saves 34.7% of 1,234 steps, `not 5` [nor](6), and 0.61."
    assert numbers_of(page) == ["34.7%", "1,234", "0.61"]
    assert shown({"a": 0.347, "b": [1234, {"c": 0.6149}]}) >= {"34.7%", "1,234", "0.61"}


def recorded(folder: Path) -> Path:
    """Eighty runs of forty tasks, of which half fail and take longer."""
    chance = random.Random(2)
    lines: list[dict[str, Any]] = []
    for number in range(80):
        name, success = f"r{number}", number % 2 == 0
        start = {"type": "start", "run": name, "agent": "a", "task_group": "g"}
        lines.append({**start, "task": f"t{number // 2}"})
        for _ in range(chance.randrange(3, 6) if success else chance.randrange(4, 14)):
            lines.append(
                {
                    "type": "step",
                    "run": name,
                    "action": "go",
                    "args": f"{chance.random()}",
                    "outcome": f"page {chance.randrange(9)}",
                    "error": chance.random() < 0.3,
                }
            )
        lines.append({"type": "end", "run": name, "success": success})
    (folder / "x.events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return folder


@pytest.mark.parametrize("how", [BY_RUN, BY_TASK])
def test_no_task_is_on_two_sides_of_a_split(tmp_path: Path, how: Calibration):
    (family,) = families([recorded(tmp_path)])
    for half in splits(family, "a", halves=3, draws=3, how=how):
        for split in half:
            sides = [set(family.tasks[side]) for side in split]
            assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]
            assert len(sides[1]) == how.size
            assert not family.failed[split.calibrate].any()


def test_a_threshold_is_the_highest_of_twenty_and_stops_what_is_above_it(tmp_path: Path):
    (family,) = families([recorded(tmp_path)])
    begun = Moments(family.scores["steps_begun"], family.run, family.taken)
    ((split,),) = splits(family, "a", halves=1, draws=1)
    most = max(family.steps[split.calibrate])
    test = family.steps[split.test]
    judged = judge(family, begun, split, BY_RUN)
    assert judged.saved == pytest.approx(sum(max(one - most, 0) for one in test) / sum(test))
    good = family.steps[split.test & ~family.failed]
    assert judged.good_stopped == pytest.approx(sum(one > most for one in good) / len(good))


@pytest.mark.slow
def test_another_data_set_is_dropped_in_without_code(tmp_path: Path):
    recorded(tmp_path)
    (tmp_path / "evidence.md").write_text("<!-- begin groups mine -->\n<!-- end -->\n")
    ran = CliRunner().invoke(
        evidence,
        ["--data", f"mine={tmp_path}", "--out", str(tmp_path), "--halves", "2", "--draws", "2"],
    )
    assert ran.exit_code == 0, ran.output
    written = orjson.loads((tmp_path / "evidence.json").read_bytes())
    (group,) = written["sets"]["mine"]["groups"]
    assert group["oracle"]["saved"] > group["learned"]["saved"] > 0
    assert "| g | a |" in (tmp_path / "evidence.md").read_text()
    assert (tmp_path / "images" / "evidence-stops-mine.svg").exists()
    assert "use NAME=FOLDER" in CliRunner().invoke(evidence, ["--data", str(tmp_path)]).output
