"""The traces that the pages on backends show: one agent, sent over OTLP."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.otlp_receiver import http_receiver
from support.processes import without_otel

AGENT = Path(__file__).parents[2] / "examples" / "backends" / "team_agent.py"


@pytest.mark.parametrize("arguments", [[], ["--openinference"]])
def test_the_team_s_traces(arguments: list[str]) -> None:
    with http_receiver() as receiver:
        ran = subprocess.run(
            [sys.executable, AGENT, *arguments],
            env=without_otel(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    assert "stopped at step 4: 1 step, repeated 4 times" in ran.stdout
    assert Counter(span.name for span in receiver.spans) == {
        "invoke_agent lead": 2,
        "invoke_agent researcher": 1,
        "chat scripted-model": 10,
        "execute_tool search": 5,
        "execute_tool look_up": 1,
        "execute_tool research": 1,
        "execute_tool fetch": 2,
    }
    assert [span.name for span in receiver.spans if span.raw.status.code == 2] == [
        "execute_tool fetch"
    ]
    kinds = Counter(span.attributes.get("openinference.span.kind") for span in receiver.spans)
    assert kinds == ({"AGENT": 3, "LLM": 10, "TOOL": 9} if arguments else {None: 22})
