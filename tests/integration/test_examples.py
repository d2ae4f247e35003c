"""The examples run as their texts say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "plain_agent.py",
            [
                "nudge:\n  You make no progress: 2 steps, repeated once",
                "blocked:\n  This call was not run: 2 steps, repeated twice",
                "stopped at step 8: 2 steps, repeated 3 times, since step 3",
                "7 spans, the first of them 'invoke_agent searcher'",
            ],
        ),
        ("langchain_agent.py", ["stopped at step 4: 1 step, repeated 4 times, since step 2"]),
        (
            "openai_agents_agent.py",
            ["stopped at step 4: 1 step, repeated 4 times, since step 2"],
        ),
    ],
)
def test_example(name: str, expected: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for text in expected:
        assert text in ran.stdout
