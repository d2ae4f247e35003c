"""What is read of each agent's payloads, and what is answered in its form."""

from __future__ import annotations

from typing import Any

import pytest

from support.hook_payloads import COMMAND, FAILED, PAYLOADS
from tidegauge.coding_agents.agents import AGENTS
from tidegauge.coding_agents.gemini import without_process_ids
from tidegauge.coding_agents.known_agent import HookAnswer, without_saved_path
from tidegauge.events import CallResult

HOOKS = {name: agent.hook for name, agent in AGENTS.items() if agent.hook is not None}
NUDGE, REFUSE, STOP = (
    HookAnswer("nudge", "look"),
    HookAnswer("refuse", "no"),
    HookAnswer("stop", "end"),
)

RESULTS = {
    "codex": CallResult(FAILED),
    "gemini": CallResult(
        f"<untrusted_context>\nOutput: {FAILED}Exit Code: 1\n</untrusted_context>", True
    ),
    "qwen": CallResult(f"Command: c\nOutput: {FAILED}Exit Code: 1\n", True),
    "claude": CallResult({"stdout": "", "stderr": FAILED}),
    "opencode": CallResult(FAILED, True),
    "copilot": CallResult(f"{FAILED}<exit code 1>", True),
    "generic": CallResult(FAILED, True),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_events_are_read(name: str) -> None:
    agent, shape = HOOKS[name], PAYLOADS[name]
    kinds = ("prompt", "call", "result", "end")
    prompt, call, result, end = (agent.read(shape(kind)) for kind in kinds)
    assert prompt is not None
    assert call is not None
    assert result is not None
    assert end is not None
    assert [one.kind for one in (prompt, call, result, end)] == list(kinds)
    assert {one.session for one in (prompt, call, result, end)} == {"s1"}
    assert prompt.prompt == "Read it"
    assert call.arguments == result.arguments == COMMAND
    assert call.tool == result.tool != ""
    assert call.call_id == result.call_id == (None if name in ("gemini", "copilot") else "c1")
    assert result.result == RESULTS[name]


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("hostile", [{}, {"hook_event_name": 3}, {"session_id": []}])
def test_other_payloads_are_no_events(name: str, hostile: dict[str, Any]) -> None:
    assert HOOKS[name].read(hostile) is None


@pytest.mark.parametrize("name", PAYLOADS)
def test_fields_of_other_types_are_left_out(name: str) -> None:
    for kind in ("prompt", "call", "result", "end"):
        payload = PAYLOADS[name](kind)
        for field in payload:
            for value in (None, 3, [], {}, "x"):
                HOOKS[name].read({**payload, field: value})
                HOOKS[name].write({**payload, field: value}, REFUSE)


def deny(event: str, text: str) -> dict[str, Any]:
    reason = {"permissionDecision": "deny", "permissionDecisionReason": text}
    return {"hookSpecificOutput": {"hookEventName": event, **reason}}


def context(event: str, text: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


OURS = (
    {"action": "refuse", "message": "no"},
    {"action": "nudge", "message": "look"},
    {"action": "stop", "message": "end"},
)
ENDED = {"continue": False, "stopReason": "end"}
NO, END = deny("PreToolUse", "no"), deny("PreToolUse", "end")
ANSWERS = {
    "codex": (NO, context("PostToolUse", "look"), END),
    "qwen": (NO, context("PostToolUseFailure", "look"), END),
    "claude": (NO, context("PostToolUse", "look"), ENDED),
    "copilot": (NO, {"additionalContext": "look"}, END),
    "gemini": ({"decision": "deny", "reason": "no"}, context("AfterTool", "look"), ENDED),
    "opencode": OURS,
    "generic": OURS,
}
"""What an agent's hook prints when a call is refused, a result nudged, and the run stopped."""


@pytest.mark.parametrize("name", HOOKS)
def test_answers(name: str) -> None:
    agent, shape = HOOKS[name], PAYLOADS[name]
    refused, nudged, stopped = ANSWERS[name]
    assert agent.write(shape("call"), REFUSE) == refused
    assert agent.write(shape("result"), NUDGE) == nudged
    assert agent.write(shape("call"), STOP) == stopped
    assert agent.write(shape("end"), REFUSE) is None


LONG = {
    "gemini": "Output too large. Showing first 8,000 and last 32,000 characters. For full output "
    "see: {}\n<untrusted_context>\nOutput: 1\n2",
    "qwen": "Tool output was too large and has been truncated.\nThe full output has been saved to: "
    "{}\nTo read the complete output, use the read_file tool.",
    "opencode": "...output truncated...\n\nFull output saved to: {}\n\n28002\n28003",
    "copilot": "Output too large to read at once (164.9 KB). Saved to: {}\nConsider tools.\n1",
    "claude": "<persisted-output>\nOutput too large (4.8MB). Full output saved to: {}\n\nPreview",
}


@pytest.mark.parametrize(("name", "text"), LONG.items(), ids=LONG)
def test_long_results_lose_the_path_of_their_file(name: str, text: str) -> None:
    one, other = (text.format(f"/home/dev/.tmp/tool {number}.txt") for number in (1, 2))
    assert without_saved_path(one) == without_saved_path(other) == text.format("")
    assert without_saved_path(f"> {one}") == f"> {one}", "printed by a command"
    if name == "claude":
        return  # the hooks have the output itself
    given = [HOOKS[name].read(PAYLOADS[name]("result", "c1", shown)) for shown in (one, other)]
    assert given[0] == given[1] or name in ("gemini", "qwen")  # whose shell adds to it, here


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name != "generic"])
def test_how_a_model_describes_a_command_does_not_count(name: str) -> None:
    agent, shape = HOOKS[name], PAYLOADS[name]
    for kind in ("call", "result"):
        described = {**COMMAND, "description": "Look for the port"}
        event = agent.read(shape(kind, "c1", FAILED, described))
        assert event is not None
        assert event.arguments == COMMAND
    kept = {"prompt": "find it", "description": "Find the port"}
    event = agent.read(shape("call", "c1", FAILED, kept))
    assert event is not None
    assert event.arguments == kept


def test_copilot_reads_nothing_with_the_error_of_a_call() -> None:
    failed = {**PAYLOADS["copilot"]("result"), "hook_event_name": "PostToolUseFailure"}
    event = HOOKS["copilot"].read({**failed, "error": "no such file"})
    assert event is not None
    assert event.result == CallResult("no such file", True)
    assert HOOKS["copilot"].write(failed, NUDGE) is None


def test_a_prompt_between_rounds_is_none_of_the_users() -> None:
    assert HOOKS["qwen"].read({**PAYLOADS["qwen"]("prompt"), "prompt": ""}) is None


def test_a_command_of_opencode_that_was_refused_has_a_result() -> None:
    state = {"status": "error", "input": COMMAND, "error": "not allowed"}
    part = {"type": "tool", "tool": "bash", "callID": "c1", "state": state}
    given = {"sessionID": "s1", "part": part}
    event = HOOKS["opencode"].read({"hook": "event:message.part.updated", "input": given})
    assert event is not None
    assert (event.kind, event.call_id) == ("result", "c1")
    assert event.result == CallResult("not allowed", True)
    state["status"] = "completed"
    assert HOOKS["opencode"].read({"hook": "event:message.part.updated", "input": given}) is None


def test_a_sub_agent_has_its_own_calls() -> None:
    event = HOOKS["claude"].read({**PAYLOADS["claude"]("call"), "agent_id": "a7"})
    assert event is not None
    assert event.inner == "a7"


def test_what_a_command_prints_is_neither_its_exit_code_nor_a_process_id() -> None:
    printed = "Exit Code: 7\nProcess Group PGID: 1\nmore\n"
    ended = "Exit Code: 0\nSignal: 0\nProcess Group PGID: 9"
    found = without_process_ids(f"Output: {printed}{ended}")
    assert found == CallResult(f"Output: {printed}Exit Code: 0\nSignal: 0\n", False)
    assert without_process_ids(printed) == CallResult(printed)
    huge = "Error: none\n" * 500_000 + "end"
    assert without_process_ids(huge) == CallResult(huge)
