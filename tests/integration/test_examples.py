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
        ("plain_agent.py", "stopped at step 6: the same 2 steps repeated twice, since step 3"),
        ("langchain_agent.py", "stopped at step 4: the same step repeated 3 times, since step 2"),
    ],
)
def test_example(name: str, told: str) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert told in ran.stdout
