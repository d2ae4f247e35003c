"""The messages of the middleware, to the model and to the caller of the agent.

The last message of an agent that was stopped carries the stop in its ``response_metadata``, where
:func:`stopped_by` finds it again: in the agent's result, in a checkpoint, after a trip over a wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage

from tidegauge.errors import RunStopped
from tidegauge.events import Decision

_KEY: Final = "tidegauge"
_NOT_RUN: Final = "This call was not run: the run was stopped."


def nudge_message(decision: Decision) -> HumanMessage:
    """The advice of a nudge, marked as ours in the history."""
    text = decision.advice or decision.message or ""
    return HumanMessage(text, additional_kwargs={"lc_source": _KEY})


def refused_message(call: ToolCall, text: str | None = None) -> ToolMessage:
    """The answer to a call that was not run.

    Args:
        call: the call.
        text: the answer; ``None``, that the run was stopped.
    """
    return ToolMessage(
        text or _NOT_RUN, tool_call_id=call["id"] or "", name=call["name"], status="error"
    )


def stop_text(stop: RunStopped) -> str:
    """What the last message of a stopped run says, unless the application has its own words."""
    return f"This run was stopped before it finished: {stop.message}."


def stopped_message(stop: RunStopped, text: str) -> AIMessage:
    """The last message of a run that was stopped.

    >>> stop = RunStopped("r1", step=6, reason="steps", message="more than 6 steps")
    >>> message = stopped_message(stop, stop_text(stop))
    >>> message.content
    'This run was stopped before it finished: more than 6 steps.'
    >>> message.response_metadata["tidegauge"]["reason"]
    'steps'
    """
    details = {
        "run": stop.run,
        "step": stop.step,
        "reason": stop.reason,
        "message": stop.message,
        "metrics": _plain(stop.metrics),
        "state": _plain(stop.state),
    }
    return AIMessage(text, response_metadata={_KEY: details})


def stopped_by(result: object) -> RunStopped | None:
    """The stop that ended a run gracefully, from what the agent returned.

    Args:
        result: the agent's result or state, its messages, or the last of them. Only the last
            message counts: a thread that was stopped and went on was not stopped any more.

    Returns:
        ``None`` when the agent came to its own end.

    >>> stop = RunStopped("r1", step=6, reason="steps", message="more than 6 steps")
    >>> state = {"messages": [HumanMessage("find it"), stopped_message(stop, "Stopped.")]}
    >>> stopped_by(state).reason
    'steps'
    >>> stopped_by({"messages": [AIMessage("found")]}) is None
    True
    """
    last = _last_message(result)
    details = last.response_metadata.get(_KEY) if isinstance(last, AIMessage) else None
    if not isinstance(details, Mapping) or "reason" not in details:
        return None
    return RunStopped(
        str(details.get("run", "")),
        step=int(details.get("step", 0)),
        reason=str(details["reason"]),
        message=str(details.get("message", "")),
        metrics=details.get("metrics"),
        state=details.get("state"),
    )


def unanswered_calls(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    """The calls of the model's last message that no message after it answers."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [call for call in message.tool_calls if call["id"] not in answered]
    return []


def _last_message(result: object) -> object:
    value = getattr(result, "value", result)  # LangGraph's GraphOutput holds the state as value
    if isinstance(value, Mapping):
        value = value.get("messages")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[-1] if value else None
    return value


def _plain(value: object) -> Any:
    """As a checkpointer can store it: places and tasks may be anything that can be hashed."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value)
