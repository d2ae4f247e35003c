"""Which run something happens in, where no callback tells: inside a graph's nodes, inside tools."""

from __future__ import annotations

from langchain_core.runnables.config import var_child_runnable_config

from tidegauge._guard import guarded
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.instrumentation.langchain.control_flow import GraphHandler
from tidegauge.instrumentation.langchain.run_map import RunMap

__all__ = ["RunHolder", "enclosing_scope", "find_agent_run"]


class RunHolder(GraphHandler):
    """A callback handler that holds runs.

    Args:
        runs: the map that holds them.
    """

    def __init__(self, runs: RunMap) -> None:
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
        are no steps of that agent.
    """
    scope = _find_scope(callbacks)
    return scope.run if scope is not None and scope.tool is None else None


def enclosing_scope() -> Scope | None:
    """Where the caller is, by the context that LangChain keeps for chains and tools.

    It tells what callbacks do not: the run around a chain that was given callbacks of its own.
    """
    config = var_child_runnable_config.get()
    return None if config is None else _find_scope(config.get("callbacks"))


def _find_scope(callbacks: object) -> Scope | None:
    parent = getattr(callbacks, "parent_run_id", None)
    if parent is None:
        return None
    for handler in getattr(callbacks, "handlers", ()):
        if isinstance(handler, RunHolder):
            scope = handler._runs.scope_of(parent)
            if scope is not None:
                return scope
    return None
