"""What is known of a coding agent, in one record: its hooks, its settings file, and its sessions.

Each agent has a file that makes its :class:`KnownAgent`; ``agents.py`` lists them all. Here is also
what several agents' hooks have in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidegauge.coding_agents.session_files import LinesTail, SessionPart, SessionTail, read_records
from tidegauge.coding_agents.session_transcript import SessionTranscript
from tidegauge.events import CallResult

Payload: TypeAlias = Mapping[str, Any]
"""The JSON object that an agent gives its hook, or reads from it."""

Kind: TypeAlias = Literal["prompt", "call", "result", "end"]
Action: TypeAlias = Literal["allow", "nudge", "refuse", "stop"]

_MOVED: Final = {".config": "XDG_CONFIG_HOME", ".local/share": "XDG_DATA_HOME"}
"""Folders that users can move, with all that agents have in them."""


_SAVED: Final = re.compile(
    r"((?:<persisted-output>\n)?Output too large[^\n]{0,100}?"
    r"(?:For full output see|Full output saved to|Saved to): |"
    r"Tool output was too large and has been truncated\.\n"
    r"The full output has been saved to: |"
    r"\.\.\.output truncated\.\.\.\n\nFull output saved to: )[^\n]{1,4000}"
)
"""How long results begin of Claude Code, Copilot CLI and Gemini CLI, of Qwen Code, and opencode."""


class HookEvent(NamedTuple):
    """One event of a session.

    Args:
        kind: the user has asked for something; a tool is about to run; it has ended; the agent has
            done what it was asked for, or its session has ended.
        call_id: id of the call; ``None``, the agent gives none.
        result: the result, without the parts that change with every call.
        inner: id of a sub-agent of the session; ``None``, it is the session's own agent.
        reason: why the run ended, in a word.
        folder: where the session was started; relative paths start there.
        chosen_id: id of the call in the answer of the model; ``None``, the agent gives none.
        transcript: the file of the session; ``None``, the agent names none.
    """

    kind: Kind
    session: str
    tool: str = ""
    arguments: object = None
    call_id: str | None = None
    result: CallResult = CallResult()
    prompt: str | None = None
    model: str | None = None
    inner: str | None = None
    agent: str | None = None
    reason: str | None = None
    folder: str | None = None
    chosen_id: str | None = None
    transcript: str | None = None


class HookAnswer(NamedTuple):
    """What an agent's hook is answered.

    Args:
        action: go on; go on, and the model reads the text; the call is not run, and the model reads
            the text in place of its result; the run ends, and the user reads the text.
    """

    action: Action
    text: str = ""


ALLOW: Final = HookAnswer("allow")


class Hook(NamedTuple):
    """How the hooks of an agent are read and answered.

    Args:
        read: the event of a payload; ``None``, it is none that counts.
        write: what the hook prints for an answer other than ``allow``; ``None``, this hook can
            not say it.
        stops: whether a hook can end a run.
        nudges: whether the model reads a nudge, as the docs say it.
    """

    read: Callable[[Payload], HookEvent | None]
    write: Callable[[Payload, HookAnswer], Payload | None]
    stops: bool = False
    nudges: str = "yes"


class Folder(NamedTuple):
    """A folder of an agent: the one that a variable names, else one in the home directory.

    >>> Folder(".codex", "CODEX_HOME", "sessions").find(Path("/home/dev"), {}).as_posix()
    '/home/dev/.codex/sessions'

    Args:
        path: the folder in the home directory.
        variable: the environment variable that names another one; ``None``, there is none.
        part: a folder in either.
    """

    path: str
    variable: str | None = None
    part: str = ""

    def find(self, home: Path, environ: Mapping[str, str]) -> Path:
        """The folder of the user with this home directory and environment."""
        named = environ.get(self.variable) if self.variable is not None else None
        if named:
            return Path(named) / self.part
        for folder, variable in _MOVED.items():
            if self.path.startswith(f"{folder}/") and environ.get(variable):
                return Path(environ[variable], self.path[len(folder) + 1 :], self.part)
        return home / self.path / self.part


class HookSettings(NamedTuple):
    """Where an agent has its hooks.

    Args:
        folder: the folder of its settings.
        file: the file of its hooks, in the folder.
        before: events with a tool; a hook names the tools for which it runs.
        other: events without.
        timeout: time limit of a hook in the unit of the agent.
        tools: what stands for all tools.
        own: makes the text of a file that is ours alone, from its settings and the command of the
            hook; ``None``, the file is the agent's, in JSON, and has groups of hooks by event.
        note: what else the user must do.
    """

    folder: Folder
    file: str
    before: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    timeout: int = 5
    tools: str = ".*"
    own: Callable[[HookSettings, str], str] | None = None
    note: str | None = None


class Sessions(NamedTuple):
    """The files in which an agent writes its sessions, or which have a format.

    Args:
        transcript: reads their records.
        files: patterns of their names, below a folder.
        folder: where the agent keeps them. There, and where a user says so, they are followed, by
            the name in the first pattern; ``None``, they are not followed.
        reader: reads a session; ``None``, its file has a record a line.
        tail: follows a session.
        begins: how its file begins; empty, like any text.
        whole: whether its file is one JSON object.
        is_session: whether a folder is a session.
        tokens: whether an answer of the model is in the file before its calls run.
        note: what the docs say of them.
    """

    transcript: type[SessionTranscript]
    files: tuple[str, ...]
    folder: Folder | None = None
    reader: Callable[[Path], Iterator[SessionPart]] | None = None
    tail: type[SessionTail] = LinesTail
    begins: bytes = b""
    whole: bool = False
    is_session: Callable[[Path], bool] = lambda folder: False
    tokens: bool = False
    note: str = ""

    def read(self, path: Path) -> Iterator[SessionPart]:
        """The lines of a session, part by part.

        Raises:
            SessionError: it is no session of this agent.
            OSError: it cannot be read.
        """
        return read_records(path, self.transcript) if self.reader is None else self.reader(path)

    @property
    def followed(self) -> str:
        """The pattern of the names that are followed."""
        return PurePath(self.files[0]).name


class KnownAgent(NamedTuple):
    """A coding agent, or a format of sessions.

    Args:
        name: its name in commands; a label of its runs.
        title: its name for people.
        versions: those that were run; empty, its hooks are read by its documentation.
        settings: where its hooks are installed; ``None``, its user does that.
    """

    name: str
    title: str
    versions: str = ""
    hook: Hook | None = None
    settings: HookSettings | None = None
    sessions: Sessions | None = None


def read_event(payload: Payload, *, result: CallResult) -> HookEvent | None:
    """The event of a payload in the form that Codex, Qwen Code, Copilot CLI and Claude Code share.

    Args:
        result: the result in it, which each agent gives in another form.
    """
    texts = {name: value for name, value in payload.items() if value and isinstance(value, str)}
    session = texts.get("session_id")
    if session is None:
        return None
    model, inner = texts.get("model"), texts.get("agent_id")
    arguments = payload.get("tool_input")
    if type(arguments) is dict and "command" in arguments:
        arguments = without_description(arguments)
    match texts.get("hook_event_name"):
        case "UserPromptSubmit":
            prompt = texts.get("prompt")
            if prompt is None:
                return None
            return HookEvent("prompt", session, prompt=prompt, model=model, inner=inner)
        case "PreToolUse":
            kind: Kind = "call"
        case "PostToolUse" | "PostToolUseFailure":
            kind = "result"
        case "Stop" | "SubagentStop" | "StopFailure":
            return HookEvent("end", session, inner=inner, reason=texts.get("error"))
        case "SessionEnd":
            return HookEvent("end", session, reason=texts.get("reason"))
        case _:
            return None
    return HookEvent(
        kind,
        session,
        tool=texts.get("tool_name", ""),
        arguments=arguments,
        call_id=texts.get("tool_use_id"),
        chosen_id=texts.get("tool_call_id") or texts.get("tool_use_id"),
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
