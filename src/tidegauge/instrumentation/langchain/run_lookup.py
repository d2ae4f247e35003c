"""The open runs of a callback handler, and which of them something happens in.

LangChain identifies chains, tools and model calls by ``UUID`` objects. The map holds the integers
that they represent, because a ``UUID`` is hashed in Python at every look-up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from tidegauge._critical import here
from tidegauge._guard import guarded
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.control_flow import GraphHandler
from tidegauge.instrumentation.langchain.nested_agents import NestedChain
from tidegauge.instrumentation.open_run import CurrentRun, add_finder
from tidegauge.instrumentation.run_map import RunMap
from tidegauge.instrumentation.task_attempts import Attempts
from tidegauge.instrumentation.values import entry

__all__ = [
    "CallbackRuns",
    "RunHolder",
    "enclosing_scope",
    "find_agent_run",
    "find_checkpointer",
]

_MAX_POSTPONED: Final = 10_000


class CallbackRuns(RunMap[int, AgentRun]):
    """The open runs of one handler, and the scope of every open chain and tool in them."""

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._postponed: OrderedDict[int, Callable[[str | None], None]] = OrderedDict()

    def scope_of(self, run_id: UUID | None) -> Scope | None:
        """The scope of an open chain or tool."""
        if run_id is None:
            return None
        if self._postponed:
            self.open_postponed(run_id)
        return self._scopes.get(run_id.int)

    def leave_chain(self, run_id: UUID) -> Scope | None:
        """A chain has ended: its scope. A run that nothing happened in is opened first."""
        if self._postponed:
            self.open_postponed(run_id)
        return self.leave(run_id.int)

    def open_branch(self, branch: OpenChain, run: AgentRun) -> None:
        """A branch becomes a run, with all that is open in it."""
        before, branch.run = branch.run, run
        for key in tuple(before.open_ids):
            scope = self._scopes.get(key)
            if isinstance(scope, OpenChain) and scope.is_in(branch):
                before.open_ids.pop(key, None)
                choice = before.choices.pop(key, None)
                if choice is not None:
                    run.choices[key] = choice
                if scope is not branch:
                    scope.run = run
                    run.open_ids[key] = None

    def open_nested(self, agent: NestedChain, root: OpenChain, run: AgentRun) -> None:
        """An agent inside a tool becomes a run, with all that is open in it.

        Args:
            agent: its root chain, which is in the tool.
            root: the same, in the run.
            run: the run.
        """
        before, opened = agent.run, {agent.key: root}
        before.open_ids.pop(agent.key, None)
        for key in tuple(before.open_ids):
            chain = self._scopes.get(key)
            if not isinstance(chain, NestedChain) or chain.parent is None:
                continue
            parent = opened.get(chain.parent.key)
            if parent is not None:
                before.open_ids.pop(key, None)
                opened[key] = chain.opened(run, parent)
                self.enter(key, opened[key])

    def postpone(self, root: UUID, opening: Callable[[str | None], None]) -> None:
        """Open a run later: when its graph reports its checkpoint, or something happens in it.

        Args:
            root: callback id of its root chain.
            opening: opens it. Takes the id of the checkpoint; ``None``, not reported.
        """
        with here.critical, self._lock:
            self._postponed[root.int] = opening
            if len(self._postponed) > _MAX_POSTPONED:
                self._postponed.popitem(last=False)

    def open_postponed(self, root: UUID, checkpoint: str | None = None) -> None:
        """Open a run that was postponed, if it was."""
        with here.critical, self._lock:
            opening = self._postponed.pop(root.int, None)
        if opening is not None:
            opening(checkpoint)


class RunHolder(GraphHandler, ABC):
    """A callback handler that holds runs.

    Args:
        runs: the map that holds them.
    """

    def __init__(self, runs: CallbackRuns) -> None:
        super().__init__()
        self._runs = runs

    @abstractmethod
    def open_agent(self, chain: NestedChain) -> Scope:
        """A model may choose tools in a chain inside a tool: the agent that it is in becomes a run.

        Returns:
            Where the chain is now: unchanged if it is in no agent.
        """

    @abstractmethod
    def open_branches(self, chain: OpenChain) -> None:
        """A step begins in a chain: the branches that it is in become runs."""


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
        scope = holder.open_agent(scope)
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
        holder.open_branches(scope)
    return scope.run.as_current(scope.tool, _find_attempts)


add_finder(_find_current_run)


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
