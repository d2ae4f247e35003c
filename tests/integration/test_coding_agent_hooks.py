"""Captured hooks of coding agents have the steps and loops that they must have."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.requirements import missing
from tidegauge.events import CallResult, Decision, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.receivers.hooks.agents import AGENTS
from tidegauge.receivers.hooks.sessions import HookSessions
from tidegauge.streaming_metrics.run_report import RunReport

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CAPTURED = DATA / "coding_agents"
EXPECTED: dict[str, Any] = (
    json.loads((CAPTURED / "expected.json").read_text())
    if (CAPTURED / "expected.json").exists()
    else {}
)
CASES = [name for name in EXPECTED if name.endswith("/hooks.jsonl")] or ["none"]


class Kept:
    """A sink around the live one that keeps steps, their flags and reports."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._engine = pipeline.engine
        self._sink = pipeline.recorder.sink
        pipeline.recorder.sink = self
        self.calls = 0
        self.reports: list[RunReport] = []

    def run_started(self, event: RunStarted) -> None:
        self._sink.run_started(event)

    def step_issued(self, event: Step) -> Decision:
        self.calls += len(event.calls)
        return self._sink.step_issued(event)

    def step_observed(self, event: Outcome) -> Decision:
        return self._sink.step_observed(event)

    def run_ended(self, event: RunEnded) -> Any:
        run = self._engine.get(event.run)
        assert run is not None
        self.reports.append(run.report())
        return self._sink.run_ended(event)


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
    for line in (CAPTURED / case).read_text().splitlines():
        captured = json.loads(line)
        now[0] = captured["t"]
        payload = captured if name == "opencode" else captured["input"]
        if name == "opencode":
            _without_added_context(payload)
        assert sessions.receive(name, json.dumps(payload).encode()) == b""
        denied = _denial(captured.get("answer") or {})
        event = agent.read(payload)
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
