"""The parts of payloads that several agents have in the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.coding_agents.hook_events import HookAnswer, HookEvent, Payload
from tidegauge.events import CallResult

_TRAILER: Final = re.compile(
    r"(?:^(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): [^\n]*(?:\n|\Z))+"
    r"(?:</untrusted_context>)?\s*\Z",
    re.M,
)
"""What the shell says after the output of a command."""

_MAX_TRAILER: Final = 2_000

_PROCESS_IDS: Final = re.compile(r"^(?:Process Group PGID|Background PIDs): .*(?:\n|\Z)", re.M)
_EXIT_CODE: Final = re.compile(r"^Exit Code: (\d+)$", re.M)


_SAVED: Final = re.compile(
    r"((?:<persisted-output>\n)?Output too large[^\n]{0,100}?"
    r"(?:For full output see|Full output saved to|Saved to): |"
    r"Tool output was too large and has been truncated\.\n"
    r"The full output has been saved to: |"
    r"\.\.\.output truncated\.\.\.\n\nFull output saved to: )[^\n]{1,4000}"
)
"""How long results begin of Claude Code, Copilot CLI and Gemini CLI, of Qwen Code, and opencode."""


def text_of(payload: Payload, name: str) -> str | None:
    """The text with this name; ``None``, there is none."""
    value = payload.get(name)
    return value if isinstance(value, str) and value else None


def read_event(payload: Payload, *, result: CallResult) -> HookEvent | None:
    """The event of a payload in the form that Codex, Qwen Code and Claude Code share.

    Args:
        payload: the payload.
        result: the result in it, which each agent gives in another form.
    """
    session = text_of(payload, "session_id")
    if session is None:
        return None
    model, inner = text_of(payload, "model"), text_of(payload, "agent_id")
    match payload.get("hook_event_name"):
        case "UserPromptSubmit":
            prompt = text_of(payload, "prompt")
            if prompt is None:
                return None
            return HookEvent("prompt", session, prompt=prompt, model=model, inner=inner)
        case "PreToolUse":
            kind: Any = "call"
        case "PostToolUse" | "PostToolUseFailure":
            kind = "result"
        case "Stop" | "SubagentStop" | "StopFailure":
            return HookEvent("end", session, inner=inner, reason=text_of(payload, "error"))
        case "SessionEnd":
            return HookEvent("end", session, reason=text_of(payload, "reason"))
        case _:
            return None
    return HookEvent(
        kind,
        session,
        tool=text_of(payload, "tool_name") or "",
        arguments=without_description(payload.get("tool_input")),
        call_id=text_of(payload, "tool_use_id"),
        chosen_id=text_of(payload, "tool_call_id") or text_of(payload, "tool_use_id"),
        result=result,
        model=model,
        inner=inner,
    )


def specific_answer(payload: Payload, answer: HookAnswer) -> Payload | None:
    """A refusal before a tool, or a text for the model after it, in the form that they share."""
    event = payload.get("hook_event_name")
    if event == "PreToolUse" and answer.action in ("refuse", "stop"):
        decision = {"permissionDecision": "deny", "permissionDecisionReason": answer.text}
    elif event in ("PostToolUse", "PostToolUseFailure"):
        decision = {"additionalContext": answer.text}
    else:
        return None
    return {"hookSpecificOutput": {"hookEventName": event, **decision}}


def without_description(arguments: Any) -> Any:
    """The arguments of a command without the words in which the model describes it to the user.

    >>> without_description({"command": "ls", "description": "List the files"})
    {'command': 'ls'}
    >>> without_description({"description": "Find it", "prompt": "Where is it?"})["description"]
    'Find it'
    """
    if not isinstance(arguments, Mapping) or not isinstance(arguments.get("command"), str):
        return arguments
    return {key: value for key, value in arguments.items() if key != "description"}


def without_saved_path(content: Any) -> Any:
    r"""A result without the path of the file, new at each call, to which its agent has saved it.

    >>> without_saved_path("...output truncated...\n\nFull output saved to: /tmp/tool_21\n\n7\n8")
    '...output truncated...\n\nFull output saved to: \n\n7\n8'
    """
    if not isinstance(content, str):
        return content
    found = _SAVED.match(content)
    return content if found is None else found[1] + content[found.end() :]


def without_process_ids(content: Any) -> CallResult:
    """The result of a tool of Gemini CLI or Qwen Code, whose shell reports the ids of processes.

    >>> without_process_ids("Output: none\\nExit Code: 1\\nProcess Group PGID: 1993\\n")
    CallResult(outcome='Output: none\\nExit Code: 1\\n', error=True)
    """
    content = without_saved_path(content)
    if not isinstance(content, str):
        return CallResult(content)
    trailer = _TRAILER.search(content, max(0, len(content) - _MAX_TRAILER))
    if trailer is None:
        return CallResult(content)
    codes = _EXIT_CODE.findall(trailer[0])
    text = content[: trailer.start()] + _PROCESS_IDS.sub("", trailer[0])
    return CallResult(text, codes[-1] != "0" if codes else None)
