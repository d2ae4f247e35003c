"""Nudges and a graceful end for graphs that are not made by ``create_agent``.

Both functions take a graph's state with ``messages``. They are nodes, or the ``pre_model_hook`` and
``post_model_hook`` of ``create_react_agent`` and ``create_supervisor``. The handler of such a graph
gets ``on_stop="end"``, so that it raises nothing.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage

from tidegauge.instrumentation.langchain.messages import (
    nudge_message,
    refused_message,
    stop_text,
    stopped_message,
    unanswered_calls,
)
from tidegauge.instrumentation.langchain.run_lookup import enclosing_scope
from tidegauge.safety.guard import guarded


@guarded("langchain.nudge_hook", default={}, interrupting="skip")
def nudge_hook(state: Any) -> dict[str, Any]:
    """Show the model the nudge that is pending: in its next request, not in the state.

    For ``pre_model_hook``, which reads ``llm_input_messages``. In a node of your own, show the
    model what ``tidegauge.get_current_run().nudge()`` returns.
    """
    messages = list(state["messages"])
    scope = enclosing_scope()
    if scope is not None and not scope.run.watched_only and not unanswered_calls(messages):
        nudge = scope.run.recorded.take_nudge()
        if nudge is not None:
            messages.append(nudge_message(nudge))
    return {"llm_input_messages": messages}


@guarded("langchain.stop_hook", default={}, interrupting="skip")
def stop_hook(state: Any) -> dict[str, Any]:
    """The messages that end the agent, if the policy stops its run; else an empty update.

    The calls that the model chose last are answered as not run, and a last message says why the run
    was stopped: :func:`stopped_by` finds it. For ``post_model_hook``, or for the node of your own
    to which a conditional edge leads when ``tidegauge.get_current_run().decision.stop`` is set.
    """
    scope = enclosing_scope()
    stop = None if scope is None else scope.run.stop_error()
    if stop is None:
        return {}
    calls = unanswered_calls(state["messages"])
    if scope is not None and calls:
        scope.run.recorded.refused(len(calls))
    refused: list[BaseMessage] = [refused_message(call) for call in calls]
    return {"messages": [*refused, stopped_message(stop, stop_text(stop))]}
