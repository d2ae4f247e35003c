"""Agents of frameworks, each in an environment of its own, traced live over OTLP.

``make test-frameworks`` runs these; they download the frameworks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from support.receiving import served
from support.requirements import missing
from support.scripted_model import answers, chooses, turns
from support.scripted_openai import serving

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / ".venv-frameworks"
FRAMEWORKS = ("openai_agents", "google_adk", "crewai", "smolagents", "pydantic_ai", "vercel_ai")
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
STABILITY = "OTEL_SEMCONV_STABILITY_OPT_IN"
ENDS_WITH_A_CALL = {"smolagents": "final_answer"}
"""Frameworks whose agents end with a call of this tool, which is a step, too."""


IN_TURN = ("crewai",)
"""Frameworks that stop an agent at its fifth equal call: it makes two calls in turn."""


def command(name: str) -> list[str]:
    """The program of a framework; installs what it needs, once."""
    place = PLACE / name
    if (HERE / name).is_dir():
        if shutil.which("npm") is None:
            missing("npm is not installed")
        if not (place / "node_modules").exists():
            shutil.copytree(HERE / name, place, dirs_exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--no-fund"], cwd=place, check=True)
        shutil.copy(HERE / name / "program.mjs", place)
        return ["node", str(place / "program.mjs")]
    python = place / "bin" / "python"
    ready = place / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        needs = HERE / f"{name}.requirements.txt"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", needs], check=True)
        ready.touch()
    return [str(python), str(HERE / f"{name}_program.py")]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_loop_of_an_agent_is_seen_live(name: str) -> None:
    samples = samples_of(name)
    final = name in ENDS_WITH_A_CALL
    assert total(samples, "tidegauge_steps_total") == 8 + final
    # What comes before the first call is not its result: it is no part of the repeats.
    assert total(samples, "tidegauge_loop_steps_total") == (5 if name in IN_TURN else 6)
    assert total(samples, "tidegauge_internal_errors_total") == 0


@pytest.mark.parametrize(
    ("environment", "loop_steps"),
    [
        ({CAPTURE: "true", STABILITY: ""}, 6),
        ({CAPTURE: "EVENT_ONLY"}, 6),
        ({CAPTURE: "false", STABILITY: ""}, 0),  # no arguments and no results
    ],
)
def test_contents_in_log_records_are_seen_live(
    environment: dict[str, str], loop_steps: int
) -> None:
    samples = samples_of("openai_v2", **environment)
    assert total(samples, "tidegauge_steps_total") == 8
    assert total(samples, "tidegauge_loop_steps_total") == loop_steps
    assert total(samples, "tidegauge_receiver_dropped_contents_total") == 0
    assert total(samples, "tidegauge_internal_errors_total") == 0


def samples_of(name: str, **environment: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """What the receiver shows of an agent that calls one tool eight times."""
    program = command(name)
    final = ENDS_WITH_A_CALL.get(name)

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) < 8:
            again = turns(messages) % 2 and name in IN_TURN
            return chooses(("search", {"query": "door" if again else "key"}))
        return chooses((final, {"answer": "no key"})) if final else answers("no key")

    with serving() as models, served() as receiver:
        models.model("gpt-4o", script)
        found = {"MODEL_URL": models.url, "RECEIVER_URL": receiver.http}
        quiet = {
            "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "true",
            CAPTURE: "SPAN_ONLY",
            STABILITY: "gen_ai_latest_experimental",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_TRACING_ENABLED": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",
            "OPENAI_API_KEY": "none",
            **environment,
        }
        done = subprocess.run(
            program,
            env={**os.environ, **quiet, **found},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=PLACE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        deadline = time.monotonic() + 20
        while total(samples := receiver.samples(), "tidegauge_runs_finished_total") < 1:
            assert time.monotonic() < deadline, samples
            time.sleep(0.1)
    return samples


def total(samples: dict[tuple[str, tuple[str, ...]], float], name: str) -> float:
    """The sum of all series of a metric."""
    return sum(value for (metric, _), value in samples.items() if metric == name)
