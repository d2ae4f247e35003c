"""What hooks report, and what they are answered, in one form for all agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidegauge.events import CallResult

Payload: TypeAlias = Mapping[str, Any]
"""The JSON object that an agent gives its hook, or reads from it."""

Kind: TypeAlias = Literal["prompt", "call", "result", "end"]
Action: TypeAlias = Literal["allow", "nudge", "refuse", "stop"]


class HookEvent(NamedTuple):
    """One event of a session.

    Args:
        kind: the user has asked for something; a tool is about to run; it has ended; the agent has
            done what it was asked for, or its session has ended.
        session: id of the session.
        tool: name of the tool.
        arguments: its arguments.
        call_id: id of the call; ``None``, the agent gives none.
        result: the result, without the parts that change with every call.
        prompt: what the user asked for.
        model: name of the model.
        inner: id of a sub-agent of the session; ``None``, it is the session's own agent.
        agent: name of the agent, if the payload has it.
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
        text: the text.
    """

    action: Action
    text: str = ""


ALLOW: Final = HookAnswer("allow")


class HookAgent(NamedTuple):
    """How the hooks of one agent are read and answered.

    Args:
        name: name of the agent; a label of its runs.
        read: the event of a payload; ``None``, it is none that counts.
        write: what the hook prints for an answer other than ``allow``; ``None``, this hook can
            not say it.
        stops: whether a hook can end a run.
    """

    name: str
    read: Callable[[Payload], HookEvent | None]
    write: Callable[[Payload, HookAnswer], Payload | None]
    stops: bool = False
