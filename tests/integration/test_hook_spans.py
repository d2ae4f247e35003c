"""Runs and calls that the hooks of coding agents report, as spans."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from support.genai_registry import faults
from support.hook_payloads import PAYLOADS
from support.requirements import missing
from tidegauge.coding_agents.sessions import HookSessions, SessionLimits
from tidegauge.policies import Rule
from tidegauge.runs.current import get_recorder
from tidegauge.testing import Capture, capture

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CAPTURED = DATA / "coding_agents"
CASES = sorted(str(file.relative_to(CAPTURED)) for file in CAPTURED.glob("*/*/hooks.jsonl"))
RULES = (Rule("loop_repeats", 1, "nudge"), Rule("loop_repeats", 2, "block"))


class Hooks:
    """Gives payloads to the sessions of the pipeline that is captured."""

    def __init__(self, agent: str, *, traced: bool = True) -> None:
        self.agent, self.shape = agent, PAYLOADS[agent]
        limits = SessionLimits(beside_seconds=0.01)
        self.sessions = HookSessions(get_recorder(), limits, traced=traced)

    def give(self, kind: str, *args: Any, **fields: Any) -> bytes:
        payload = {**self.shape(kind, *args), **fields}
        return self.sessions.receive(self.agent, orjson.dumps(payload))

    def call(self, call_id: str, result: Any = "found", arguments: Any = None) -> None:
        self.give("call", call_id, result, arguments)
        self.give("result", call_id, result, arguments)


def seconds(span: ReadableSpan) -> float:
    return ((span.end_time or 0) - (span.start_time or 0)) / 1e9


def tools(seen: Capture) -> list[ReadableSpan]:
    return [span for span in seen.spans if span.name.startswith("execute_tool")]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("contents", [False, True], ids=["without contents", "contents"])
@pytest.mark.parametrize("agent", PAYLOADS)
def test_spans_follow_the_conventions(agent: str, contents: bool) -> None:
    with capture(capture_content=contents) as seen:
        hooks = Hooks(agent)
        hooks.give("prompt")
        for number in range(3):
            hooks.call(f"c{number}")
        hooks.give("end")
    assert faults(seen.spans, contents=contents) == []
    assert len(tools(seen)) == 3
    text = json.dumps([attributes(span) for span in seen.spans])
    assert ("missing.yaml" in text, "Read it" in text) == (contents, contents)


def test_a_run_is_a_span_with_those_of_its_calls_below_it() -> None:
    with capture() as seen:
        hooks = Hooks("codex")
        for _ in range(2):
            hooks.give("prompt")
            hooks.call("c0", "new", {"command": "a"})
            hooks.give("end")
    assert seen.tree() == ["invoke_agent codex", "  execute_tool Bash"] * 2
    roots = [attributes(span) for span in seen.spans if span.name == "invoke_agent codex"]
    assert [root["gen_ai.conversation.id"] for root in roots] == ["s1", "s1"]
    assert [root["tidegauge.steps"] for root in roots] == [1, 1]
    assert all(span.parent is None for span in seen.spans if "invoke" in span.name)


def test_a_call_lasts_from_its_hook_before_to_its_hook_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000_000_000_000]
    monkeypatch.setattr("tidegauge.coding_agents.sessions.time.time_ns", lambda: now[0])
    with capture() as seen:
        hooks = Hooks("codex")
        hooks.give("prompt")
        hooks.give("call", "c0", "", {"command": "a"})
        now[0] += 1_000
        hooks.give("call", "c1", "", {"command": "b"})
        now[0] += 5_000
        hooks.give("result", "c1", "b", {"command": "b"})
        now[0] += 9_000
        hooks.give("result", "c0", "a", {"command": "a"})
        hooks.give("end")
    spans = {attributes(span)["gen_ai.tool.call.id"]: span for span in tools(seen)}
    first, second = spans["c0"], spans["c1"]
    assert (second.start_time or 0) - (first.start_time or 0) == 1_000
    assert round(seconds(second) * 1e9) == 5_000
    assert round(seconds(first) * 1e9) == 15_000
    assert {attributes(span)["tidegauge.step.index"] for span in spans.values()} == {0}


def test_repeated_calls_are_linked_and_refused_ones_have_no_span() -> None:
    with capture(rules=RULES) as seen:
        hooks = Hooks("codex")
        hooks.give("prompt")
        for number in range(3):
            hooks.call(f"c{number}")
        assert b"deny" in hooks.give("call", "c3")
        hooks.give("end")
    spans = tools(seen)
    assert len(spans) == 3
    assert [attributes(span).get("tidegauge.loop.repeats") for span in spans] == [None, None, 1]
    [link] = spans[2].links
    assert spans[1].context is not None
    assert link.context.span_id == spans[1].context.span_id


def test_what_a_call_failed_with_is_shown_with_contents_alone() -> None:
    for contents in (False, True):
        with capture(capture_content=contents) as seen:
            hooks = Hooks("generic")
            hooks.give("prompt")
            hooks.call("c0", "no such file")
            hooks.give("end")
        [span] = tools(seen)
        assert attributes(span)["error.type"] == "tool_error"
        assert span.status.description == ("no such file" if contents else None)


def test_a_call_without_a_result_ends_with_its_run() -> None:
    with capture(capture_content=True) as seen:
        hooks = Hooks("codex")
        hooks.give("prompt")
        hooks.give("call", "c0")
        hooks.give("end")
    [span] = tools(seen)
    assert "gen_ai.tool.call.result" not in attributes(span)
    assert span.status.is_unset


def test_a_sub_agent_is_below_the_run_around_it() -> None:
    with capture() as seen:
        hooks = Hooks("codex")
        hooks.give("prompt")
        hooks.give("call", "c0", "", {"command": "a"}, agent_id="inner")
        hooks.give("result", "c0", "b", {"command": "a"}, agent_id="inner")
        hooks.sessions.close()
    assert seen.tree() == ["invoke_agent codex", "  invoke_agent codex", "    execute_tool Bash"]


def test_without_asking_there_are_none() -> None:
    with capture() as seen:
        hooks = Hooks("codex", traced=False)
        hooks.give("prompt")
        hooks.call("c0")
        hooks.give("end")
    assert list(seen.spans) == []


def payloads(case: str) -> tuple[str, list[bytes]]:
    agent = case.partition("/")[0].partition("-")[0]
    captured = [json.loads(line) for line in (CAPTURED / case).read_text().splitlines()]
    return agent, [orjson.dumps(one if agent == "opencode" else one["input"]) for one in captured]


@pytest.mark.parametrize("contents", [False, True], ids=["without contents", "contents"])
@pytest.mark.parametrize("case", CASES or ["none"])
def test_captured_hooks(case: str, contents: bool) -> None:
    if not CASES:
        missing(f"the captured hooks are not at {CAPTURED}; TIDEGAUGE_DATA can name their folder")
    agent, given = payloads(case)
    with capture(capture_content=contents, observe_only=True) as seen:
        sessions = HookSessions(get_recorder(), traced=True)
        for payload in given:
            sessions.receive(agent, payload)
        sessions.close()
    assert faults(seen.spans, contents=contents) == []
    steps = sum(attributes(span).get("tidegauge.steps", 0) for span in seen.spans)
    indexes = {
        (span.parent and span.parent.span_id, attributes(span)["tidegauge.step.index"])
        for span in tools(seen)
    }
    assert len(indexes) == steps > 0
