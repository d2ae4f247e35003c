"""Finds the run that the caller is in, by the context that LangChain keeps for its code."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.callback_runs import CallbackRuns
from tidegauge.instrumentation.langchain.control_flow import GraphHandler
from tidegauge.instrumentation.langchain.nested_agents import NestedChain
from tidegauge.runs.open_run import CurrentRun, add_finder
from tidegauge.runs.task_attempts import Attempts
from tidegauge.safety.guard import guarded
from tidegauge.values.safe_reading import entry


class RunHolder(GraphHandler):
    """A callback handler that holds runs.

    Args:
        runs: the map that holds them.
    """

    def __init__(self, runs: CallbackRuns) -> None:
        super().__init__()
        self._runs = runs


@guarded("langchain.find_agent_run", default=None, interrupting="skip")
def find_agent_run(callbacks: object) -> AgentRun | None:
    """The run whose next action is chosen here.

    Args:
        callbacks: ``config["callbacks"]`` of the node: a callback manager, which knows its
            handlers (given at the invocation or global) and the node's callback id.

    Returns:
        ``None`` without a handler of ours, and inside a tool of an agent, where the model's calls
        are not steps of that agent.
    """
    holder, scope = _find_scope(callbacks)
    if holder is not None and isinstance(scope, NestedChain):
        scope = holder._runs.open_agent(scope)
    return scope.run if scope is not None and scope.tool is None else None


def enclosing_scope() -> Scope | None:
    """Where the caller is, by the context that LangChain keeps for chains and tools.

    It knows what callbacks do not: the run around a chain that was given separate callbacks.
    """
    return _enclosing()[1]


def find_checkpointer() -> Any:
    """What stores the checkpoints of the graph around the caller, inside a node of it.

    LangGraph hands it to the nodes in their config. ``None``: there is none, or it is not known.
    """
    config = var_child_runnable_config.get()
    return entry(entry(config, "configurable"), "__pregel_checkpointer")


@guarded("langchain.find_current_run", default=None, interrupting="skip")
def _find_current_run() -> CurrentRun | None:
    holder, scope = _enclosing()
    if scope is None or scope.run.recorded.ended:
        return None
    if holder is not None and isinstance(scope, OpenChain):
        holder._runs.open_branches(scope)
    return scope.run.as_current(scope.tool, _find_attempts)


add_finder(var_child_runnable_config, _find_current_run)


@guarded("langchain.find_attempts", default=None)
def _find_attempts() -> Attempts | None:
    """The attempts of the task that the caller is in, outside of its tools."""
    scope = _enclosing()[1]
    return scope.attempts if isinstance(scope, OpenChain) else None


def _enclosing() -> tuple[RunHolder | None, Scope | None]:
    config = var_child_runnable_config.get()
    return (None, None) if config is None else _find_scope(config.get("callbacks"))


def _find_scope(callbacks: object) -> tuple[RunHolder | None, Scope | None]:
    parent = getattr(callbacks, "parent_run_id", None)
    if parent is None:
        return None, None
    for handler in getattr(callbacks, "handlers", ()):
        if isinstance(handler, RunHolder):
            scope = handler._runs.scope_of(parent)
            if scope is not None:
                return handler, scope
    return None, None
