"""Captured hooks of coding agents have the steps and loops that they must have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.requirements import missing
from tidegauge.cli.watch import default_rules
from tidegauge.coding_agents.agents import AGENTS
from tidegauge.coding_agents.codex import CodexTranscript
from tidegauge.coding_agents.known_agent import HookEvent
from tidegauge.coding_agents.sessions import HookSessions, SessionLimits
from tidegauge.events import CallResult, Decision, RunEnded, RunObserver, RunStarted, Step
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.snapshot import RunReport

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CAPTURED = DATA / "coding_agents"
EXPECTED: dict[str, Any] = (
    json.loads((CAPTURED / "expected.json").read_text())
    if (CAPTURED / "expected.json").exists()
    else {}
)
CASES = [name for name in EXPECTED if name.endswith("/hooks.jsonl")] or ["none"]


class Kept(RunObserver):
    """Counts calls, and keeps reports."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._engine = pipeline.engine
        self._active: dict[str, MeasuredRun] = {}
        pipeline.observe(self)
        self.calls = 0
        self.reports: list[RunReport] = []

    def run_started(self, event: RunStarted) -> None:
        run = self._engine.get(event.run)
        assert run is not None
        self._active[event.run] = run

    def step_issued(self, event: Step, decision: Decision) -> None:
        self.calls += len(event.calls)

    def run_ended(self, event: RunEnded) -> None:
        self.reports.append(self._active.pop(event.run).report())


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline(Settings(observe_only=True), serve=False)
    yield made
    made.shutdown()


@pytest.mark.parametrize("case", CASES)
def test_captured_hooks_have_their_steps_and_loops(case: str, pipeline: Pipeline) -> None:
    if case == "none":
        missing(f"the captured hooks are not at {CAPTURED}; TIDEGAUGE_DATA can name their folder")
    now = [0.0]
    sessions = HookSessions(pipeline.recorder, clock=lambda: now[0])
    kept = Kept(pipeline)
    name = case.partition("/")[0].partition("-")[0]
    agent = AGENTS[name]
    assert agent.hook is not None
    for line in (CAPTURED / case).read_text().splitlines():
        captured = json.loads(line)
        now[0] = captured["t"]
        payload = captured if name == "opencode" else captured["input"]
        if name == "opencode":
            _without_added_context(payload)
        assert sessions.receive(name, json.dumps(payload).encode()) == b""
        denied = _denial(captured.get("answer") or {})
        event = agent.hook.read(payload)
        if denied and event is not None and event.kind == "call" and "ignored" not in case:
            # The hook of the capture refused it: that is the result of the call.
            sessions.take(agent, event._replace(kind="result", result=CallResult(denied, True)))
    sessions.close()
    (report,) = kept.reports
    expected = EXPECTED[case]
    assert (report.steps, kept.calls) == (expected["steps"], expected["calls"])
    flags = ["."] * report.steps
    for first, period, repeats, _ in report.loops:
        flags[first : first + period * repeats] = "x" * (period * repeats)
    assert "".join(flags) == expected["flags"]
    loop = expected["loop"]
    if loop is not None:
        assert report.loops[0][:2] == (loop["first_step"], loop["period"])


def _denial(answer: Any) -> str | None:
    specific = answer.get("hookSpecificOutput", {})
    return (
        answer.get("reason") or answer.get("stopReason") or specific.get("permissionDecisionReason")
    )


def _without_added_context(payload: Any) -> None:
    """The plugin of the capture logs a result after it has added its own line to it."""
    if payload["hook"] == "tool.execute.after":
        output = payload["output"]
        output["output"] = output["metadata"].get("output", output["output"])


UNSEEN = CAPTURED / "unseen"
ACTED_ON = {
    "codex-thrash-act": {"nudge", "refuse"},
    "codex-mcp": {"nudge", "refuse"},
    "codex-pollready-act": set(),
    "codex-healthy3": set(),
}


@pytest.mark.parametrize("name", ACTED_ON)
def test_what_watch_does_in_a_session_of_codex(name: str) -> None:
    """Its calls as hooks report them, with the rules of ``tidegauge watch --act``."""
    if not (UNSEEN / name).is_dir():
        missing(f"sessions of coding agents are not at {UNSEEN}; TIDEGAUGE_DATA names the folder")
    [path] = (UNSEEN / name).iterdir()
    transcript = CodexTranscript(path.stem)
    lines = [
        line for text in path.read_text().splitlines() for line in transcript.take(json.loads(text))
    ]
    steps = [line for line in [*lines, *transcript.close()] if line["type"] == "step"]
    pipeline = Pipeline(Settings(rules=default_rules()), serve=False)
    kept = Kept(pipeline)
    sessions = HookSessions(pipeline.recorder, SessionLimits(beside_seconds=0.02))
    answers = []
    for number, call in enumerate(call for step in steps for call in step["calls"]):
        given = {"command": call["args"]["cmd"]} if "cmd" in call["args"] else call["args"]
        shared = {"agent": None, "session": "s1", "tool": call["action"], "call_id": f"c{number}"}
        event = HookEvent("call", **shared, arguments=given)
        answers.append(sessions.take(AGENTS["codex"], event).action)
        if answers[-1] == "allow":
            # What was refused at that time had been the same again.
            result = str(call["outcome"])
            result = "building...\n" if result.startswith("Command blocked") else result
            ended = event._replace(kind="result", result=CallResult(result))
            answers.append(sessions.take(AGENTS["codex"], ended).action)
    sessions.close()
    pipeline.shutdown()
    assert len(steps) == kept.calls >= 4
    assert set(answers) - {"allow"} == ACTED_ON[name]
