"""Files, tasks and tests in the sessions of coding agents, counted by hand, live and recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.coding_sessions import FOLDER, SESSIONS, hook_payloads
from support.requirements import missing
from tidegauge.coding_agents.agents import AGENTS
from tidegauge.coding_agents.known_agent import Sessions
from tidegauge.coding_agents.sessions import HookSessions
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import Observation, extractor
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.recordings.line_replay import Line, Replay
from tidegauge.streaming_metrics.snapshot import RunReport

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[4] / "shared" / "data"))
OTHER_STEPS = ("denied", "stopped", "qwen-0.15/parallel", "qwen-0.24/parallel")
"""Refused calls are no steps of hooks; Qwen Code runs the calls of one answer one by one."""

CAPTURED = [
    path.parent
    for path in sorted(DATA.glob("coding_agents/*/*/hooks.jsonl"))
    if path.match("opencode/*/*") or not path.parent.as_posix().endswith(OTHER_STEPS)
] or [Path()]

WITH_HOOKS = ["claude", "codex", "gemini", "qwen", "opencode"]
RECORDED = ["codex sessions", "gemini", "qwen", "opencode", "openhands", "mini-swe-agent"]


def of_hooks(agent: str, payloads: Iterable[Any], **settings: Any) -> RunReport:
    """The last run that hooks report."""
    pipeline = Pipeline(Settings(**settings), serve=False)
    try:
        sessions = HookSessions(pipeline.recorder)
        for payload in payloads:
            assert sessions.receive(agent, orjson.dumps(payload)) == b""
        return pipeline.engine.snapshot().active[-1]
    finally:
        pipeline.shutdown()


def of_lines(lines: Iterable[Any]) -> RunReport:
    """The last run of the lines of a recording, which has no end."""
    pipeline = Pipeline(Settings(), serve=False)
    try:
        faults: list[object] = []
        replay = Replay(pipeline.recorder.sink, on_fault=faults.append)
        for number, line in enumerate(lines, start=1):
            if line["type"] != "end":
                replay.take(Line(number, orjson.dumps(line), 0), "session")
        assert not faults
        return pipeline.engine.snapshot().active[-1]
    finally:
        pipeline.shutdown()


def live(agent: str, **settings: Any) -> RunReport:
    """The run of an agent's session, as its hooks report it."""
    made = [hook_payloads(agent, one, f"c{n}") for n, one in enumerate(SESSIONS[agent])]
    return of_hooks(agent, (payload for pair in made for payload in pair), **settings)


def _sessions(agent: str) -> Sessions:
    found = AGENTS[agent].sessions
    assert found is not None
    return found


def recorded(name: str) -> RunReport:
    """The run of an agent's session, as its file has it."""
    transcript = _sessions(name.removesuffix(" sessions")).transcript("s")
    transcript.folder = FOLDER
    transcript.prompt("fix it")
    for number, made in enumerate(SESSIONS[name]):
        transcript.choose({str(number): Call(made.tool, made.arguments)})
        transcript.observe(str(number), CallResult(made.result, made.error))
    return of_lines(transcript.close())


@pytest.mark.parametrize(
    ("report_of", "name"),
    [*((live, name) for name in WITH_HOOKS), *((recorded, name) for name in RECORDED)],
)
def test_a_session_has_the_numbers_that_were_counted_by_hand(report_of: Any, name: str) -> None:
    report = report_of(name)
    assert report.steps == len(SESSIONS[name])
    assert report.place == "src"
    assert report.frontier == 2  # cart.py and tests: of three entries, one was read
    assert report.progress == 0.75  # three of four tests
    assert report.pending == 0
    # The last step is an error: it lists again what it knows, while two files are unread.
    if name == "mini-swe-agent":
        # Explored: read, edit, read, list. Without tasks, reading the same again is one, too.
        assert report.exploration_error == 2 / 4
        assert report.exploitation_error == 0.0
    else:
        # Explored: read, plan, edit, read, all done, list. Exploited: edit, read, all done.
        assert report.exploration_error == 1 / 6
        assert report.exploitation_error == 0.0


@pytest.mark.parametrize("agent", WITH_HOOKS)
def test_tasks_are_pending_until_they_are_ticked_off(agent: str) -> None:
    pipeline = Pipeline(Settings(), serve=False)
    try:
        sessions = HookSessions(pipeline.recorder)
        pending = []
        for number, made in enumerate(SESSIONS[agent]):
            for payload in hook_payloads(agent, made, f"c{number}"):
                sessions.receive(agent, orjson.dumps(payload))
            pending.append(pipeline.engine.snapshot().active[0].pending)
    finally:
        pipeline.shutdown()
    assert pending == [0, 0, 2, 2, 2, 2, 0, 0]


def test_extractors_that_a_user_has_configured_replace_these() -> None:
    def everywhere(call: Call, result: CallResult) -> Observation:
        return Observation(place=call.action, progress=0.1)

    report = live("codex", extractors=[extractor(everywhere)])
    assert (report.place, report.progress, report.pending) == ("Bash", 0.1, 0)


def test_a_call_without_a_result_shows_nothing() -> None:
    transcript = _sessions("codex").transcript("s")
    transcript.choose({"1": Call("exec_command", {"cmd": "ls src"})})
    *_, step, _ = transcript.close()
    assert "place" not in step


@pytest.mark.parametrize("captured", CAPTURED, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_captured_session_has_the_same_numbers_live_and_recorded(captured: Path) -> None:
    if captured == Path():
        missing("captures of coding agents are not here")
    agent = captured.parent.name.partition("-")[0]
    given = map(json.loads, (captured / "hooks.jsonl").read_text().splitlines())
    payloads = (one if agent == "opencode" else one["input"] for one in given)
    ends = ("Stop", "AfterAgent", "SessionEnd", "event:session.idle", "event:session.error")
    going_on = (
        one for one in payloads if not {one.get("hook_event_name"), one.get("hook")} & {*ends}
    )
    [transcript] = captured.glob("transcript.*")
    lines = [line for part in _sessions(agent).read(transcript) for line in part.lines]
    hooks, session = of_hooks(agent, going_on), of_lines(lines)
    assert hooks.steps == session.steps
    for name in ("place", "frontier", "pending", "progress", "exploration_error"):
        assert getattr(hooks, name) == getattr(session, name)
