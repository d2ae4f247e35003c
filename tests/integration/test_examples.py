"""The examples run as they are told to be run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "plain_agent.py",
            [
                "the model is told:\n  You make no progress: the same 2 steps repeated once",
                "a call is answered, not run:\n  You make no progress: the same 2 steps",
                "stopped at step 8: the same 2 steps repeated 3 times, since step 3",
                "7 spans, the first of them 'invoke_agent searcher'",
            ],
        ),
        ("langchain_agent.py", ["stopped at step 4: the same step repeated 3 times, since step 2"]),
        (
            "openai_agents_agent.py",
            ["stopped at step 4: the same step repeated 3 times, since step 2"],
        ),
    ],
)
def test_example(name: str, told: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for text in told:
        assert text in ran.stdout
