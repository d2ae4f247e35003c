"""How our stop passes through LangGraph, and which other exceptions are not failures.

LangGraph steers with exceptions: whatever subclasses its ``GraphBubbleUp`` passes through tool
nodes that turn errors into messages and through the retry middleware, and surfaces where the
agent was invoked. So does the deliberate stop. Without LangGraph it is a plain ``RunStopped``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from langchain_core.callbacks import BaseCallbackHandler

from tidegauge.errors import RunStopped
from tidegauge.values import class_name
from tidegauge.values.safe_reading import first, is_a, part

STOP: type[RunStopped] = RunStopped
"""What is raised to stop a run, in the form that LangGraph lets through where it is installed."""

_interrupts: tuple[type[BaseException], ...] = ()
_control_flow: tuple[type[BaseException], ...] = (RunStopped,)
_hand_offs: tuple[type[BaseException], ...] = ()
_commands: tuple[type[object], ...] = ()
_sends: tuple[type[object], ...] = ()

try:
    from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
    from langgraph.types import Command, Send
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "langgraph":
        raise
else:

    class GraphRunStopped(RunStopped, GraphBubbleUp):
        """The deliberate stop, in the form that LangGraph lets through."""

    STOP = GraphRunStopped
    _interrupts = (GraphInterrupt,)
    _control_flow = (RunStopped, GraphBubbleUp)
    _hand_offs = (ParentCommand,)
    _commands = (Command,)
    _sends = (Send,)

if TYPE_CHECKING:
    GraphHandler = BaseCallbackHandler
    """Base class of a handler that a graph reports interrupts to; older graphs report none."""
else:
    try:
        from langgraph.callbacks import GraphCallbackHandler as GraphHandler
    except ModuleNotFoundError:
        GraphHandler = BaseCallbackHandler

COMMANDS: Final = _commands
"""LangGraph's ``Command``, where it is installed."""
SENDS: Final = _sends
"""LangGraph's ``Send``, where it is installed."""
_HAND_OFFS: Final = _hand_offs
_SENDS: Final = _sends
_INTERRUPTS: Final = _interrupts
_CONTROL_FLOW: Final = _control_flow
_RETRY: Final = "retry:attempt:"
_MAX_TAGS: Final = 100
_args: Final = BaseException.__dict__["args"].__get__


def is_interrupt(error: BaseException) -> bool:
    """Whether a graph pauses for a person with this: the run is neither solved nor failed."""
    return is_a(error, _INTERRUPTS)


def resumes(inputs: object) -> bool:
    """Whether a graph that is invoked with this continues from its thread's last checkpoint."""
    return inputs is None or is_a(inputs, COMMANDS)


def fans_out(output: object) -> bool:
    """Whether a chain of a graph returned several ``Send``, which start tasks at once."""
    if is_a(output, COMMANDS):
        output = cast("Any", output).goto
    sends = part(output, slice(2))
    return len(sends) == 2 and is_a(sends[1], _SENDS)


def hand_off(error: BaseException) -> object:
    """The command with which an agent hands over to another node of the graph around it."""
    return first(_args(error)) if is_a(error, _HAND_OFFS) else None


def is_failure(error: BaseException) -> bool:
    """Whether something went wrong: no control flow, and no cancellation."""
    return is_a(error, Exception) and not is_a(error, _CONTROL_FLOW)


def may_pass(error: BaseException) -> bool:
    """Whether a graph may try a task again that raised this: a failure, or a timeout's cancel."""
    return is_failure(error) or is_a(error, asyncio.CancelledError)


def is_again(tags: object) -> bool:
    """Whether LangChain's ``with_retry`` tries again what has these tags."""
    return any(type(tag) is str and tag.startswith(_RETRY) for tag in part(tags, slice(_MAX_TAGS)))


def enforce_again(stop: RunStopped) -> NoReturn:
    """Raise a stop again, without what the first exception refers to."""
    raise STOP(
        stop.run,
        step=stop.step,
        reason=stop.reason,
        message=stop.message,
        metrics=stop.metrics,
        state=stop.state,
    )


def ending(error: BaseException | None) -> dict[str, Any]:
    """How a run ended, from the error of its root chain: what ``RecordedRun.end`` takes.

    >>> ending(RunStopped("r1", step=3, reason="steps", message="more than 3 steps"))
    {'outcome': 'stopped', 'reason': 'steps'}
    >>> ending(GeneratorExit())  # a stream that was not read to its end
    {'reason': 'GeneratorExit'}
    """
    if error is None:
        return {}
    if is_a(error, RunStopped):
        return {"outcome": "stopped", "reason": cast("RunStopped", error).reason}
    reason = class_name(type(error))
    if not is_failure(error):
        return {"reason": reason}
    return {"outcome": "error", "reason": reason, "error": error}
