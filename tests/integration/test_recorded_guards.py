"""What the docs say of waste stops, lost-cause stops and guards of others, over recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.stop_kinds import compared, compared_table

pytestmark = pytest.mark.slow

STOP_RULES = Path(__file__).parents[2] / "docs" / "stop-rules-measured.md"


def test_the_table_of_the_docs_is_what_they_do(recorded_runs: Path) -> None:
    found = compared(recorded_runs)
    assert compared_table(found) in STOP_RULES.read_text()
    saved = {one.score: one.steps_saved.value for one in found if one.steps_saved is not None}
    broken = {one.score: one.good_stopped.value for one in found if one.good_stopped is not None}
    for guard in ("openhands", "gemini_cli"):
        assert saved["rules"] > saved[guard] > 0
    for guard in ("identical_3", "loopbrake_fixed"):  # they save more, and stop more of the good
        assert saved[guard] > saved["rules"]
        assert broken[guard] > broken["rules"]
    for score in ("loopbrake_fuzzy", "loopbrake_max", "steps", "steps_begun"):
        assert saved["stagnation"] > saved[score] > 0
