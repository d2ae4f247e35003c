"""What agents give their hooks: payloads as they were captured, and a session of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tidegauge.coding_agents import hook_client

__all__ = ["PAYLOADS", "Shape", "patient_hook"]

Payload = Mapping[str, Any]
Shape = Callable[..., dict[str, Any]]
"""Makes the payload of ``prompt``, ``call``, ``result`` or ``end``."""

COMMAND: Final = {"command": "cat missing.yaml"}
FAILED: Final = "cat: missing.yaml: No such file or directory\n"


def _named(event: str, **more: Any) -> dict[str, Any]:
    common = {"session_id": "s1", "transcript_path": "/t", "cwd": "/shop"}
    return {**common, "hook_event_name": event, **more}


def _codex(kind: str, call_id: str = "c1", result: Any = FAILED, arguments: Any = None) -> Any:
    tool = {"tool_name": "Bash", "tool_input": arguments or COMMAND, "tool_use_id": call_id}
    match kind:
        case "prompt":
            return _named("UserPromptSubmit", prompt="Read it", model="fake-model", turn_id="t1")
        case "call":
            return _named("PreToolUse", **tool)
        case "result":
            return _named("PostToolUse", **tool, tool_response=result)
        case _:
            return _named("Stop", stop_hook_active=False, last_assistant_message="Done.")


def _gemini(kind: str, call_id: str = "", result: Any = FAILED, arguments: Any = None) -> Any:
    tool = {"tool_name": "run_shell_command", "tool_input": arguments or COMMAND}
    process = abs(hash(call_id)) % 9_999
    text = f"Output: {result}Exit Code: 1\nProcess Group PGID: {process}\n"
    match kind:
        case "prompt":
            return _named("BeforeAgent", prompt="Read it")
        case "call":
            return _named("BeforeTool", **tool)
        case "result":
            wrapped = f"<untrusted_context>\n{text}</untrusted_context>"
            response = {"llmContent": wrapped, "returnDisplay": result}
            return _named("AfterTool", **tool, tool_response=response)
        case _:
            return _named("AfterAgent", prompt="Read it", prompt_response="Done.")


def _qwen(kind: str, call_id: str = "c1", result: Any = FAILED, arguments: Any = None) -> Any:
    tool = {
        "tool_name": "run_shell_command",
        "tool_input": arguments or COMMAND,
        "tool_use_id": call_id,
    }
    text = f"Command: c\nOutput: {result}Exit Code: 1\nProcess Group PGID: {len(call_id) + 7}"
    match kind:
        case "prompt":
            return _named("UserPromptSubmit", prompt="Read it")
        case "call":
            return _named("PreToolUse", **tool)
        case "result":
            return _named("PostToolUseFailure", **tool, error=text, is_interrupt=False)
        case _:
            return _named("Stop", stop_hook_active=False)


def _claude(kind: str, call_id: str = "c1", result: Any = FAILED, arguments: Any = None) -> Any:
    payload = _codex(kind, call_id, result, arguments)
    if kind == "result":
        payload["tool_response"] = {"stdout": "", "stderr": result}
    return payload


def _copilot(kind: str, call_id: str = "", result: Any = FAILED, arguments: Any = None) -> Any:
    tool = {"tool_name": "Bash", "tool_input": arguments or COMMAND}
    shell = abs(hash(call_id)) % 9_999
    text = f"{result}<shellId: {shell} completed with exit code 1>"
    match kind:
        case "prompt":
            return _named("UserPromptSubmit", prompt="Read it")
        case "call":
            return _named("PreToolUse", **tool)
        case "result":
            given = {"result_type": "success", "text_result_for_llm": text}
            return _named("PostToolUse", **tool, tool_result=given)
        case _:
            return _named("Stop", stop_reason="end_turn", stop_hook_active=False)


def _opencode(kind: str, call_id: str = "c1", result: Any = FAILED, arguments: Any = None) -> Any:
    given = {"sessionID": "s1"}
    tool = {**given, "tool": "bash", "callID": call_id}
    match kind:
        case "prompt":
            message = {"role": "user", "model": {"providerID": "fake", "modelID": "fake-model"}}
            parts = [{"type": "text", "text": "Read it"}]
            return {
                "hook": "chat.message",
                "input": given,
                "output": {"message": message, "parts": parts},
            }
        case "call":
            output: Any = {"args": arguments or COMMAND}
            return {"hook": "tool.execute.before", "input": tool, "output": output}
        case "result":
            output = {"title": "", "metadata": {"exit": 1}, "output": result}
            return {
                "hook": "tool.execute.after",
                "input": {**tool, "args": arguments or COMMAND},
                "output": output,
            }
        case _:
            return {"hook": "event:session.idle", "input": given, "output": None}


def _generic(kind: str, call_id: str = "c1", result: Any = FAILED, arguments: Any = None) -> Any:
    tool = {"tool": "shell", "arguments": arguments or COMMAND, "call_id": call_id}
    payload = {"event": kind, "session": "s1", "agent": "mine"}
    match kind:
        case "prompt":
            return {**payload, "prompt": "Read it", "model": "fake-model"}
        case "call":
            return {**payload, **tool}
        case "result":
            return {**payload, **tool, "result": result, "error": True}
        case _:
            return payload


PAYLOADS: Final[Mapping[str, Shape]] = {
    "codex": _codex,
    "gemini": _gemini,
    "qwen": _qwen,
    "claude": _claude,
    "opencode": _opencode,
    "copilot": _copilot,
    "generic": _generic,
}
"""By the agent's name. ``call_id`` and ``result`` are those of a call."""


def patient_hook(folder: Path) -> Path:
    """The hook, written to a folder, with time for the answer of a watcher on a slow machine."""
    text = Path(hook_client.__file__).read_text()
    for name in ("ANSWER_SECONDS", "ALL_SECONDS"):
        given = f"\n{name} = {getattr(hook_client, name)}\n"
        assert given in text
        text = text.replace(given, f"\n{name} = 120.0\n")
    path = folder / "patient_hook.py"
    path.write_text(text)
    return path
