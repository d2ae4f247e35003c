"""The open runs of a callback handler, and which of them something happens in.

LangChain identifies chains, tools and model calls by ``UUID`` objects. The map holds the integers
that they represent, because a ``UUID`` is hashed in Python at every look-up.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from tidegauge._critical import here
from tidegauge._guard import guarded
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope, WaitingKey
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.control_flow import GraphHandler
from tidegauge.instrumentation.run_map import RunMap

__all__ = ["CallbackRuns", "RunHolder", "enclosing_scope", "find_agent_run"]


class CallbackRuns(RunMap[int, AgentRun]):
    """The open runs of one handler, and the scope of every open chain and tool in them.

    Runs that wait for a person are held among the others, and are ended as unknown like them when
    they wait for too long or too many others are open.
    """

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._waiting: dict[WaitingKey, AgentRun] = {}

    @property
    def waiting(self) -> int:
        """How many runs wait for a person."""
        return len(self._waiting)

    def scope_of(self, run_id: UUID | None) -> Scope | None:
        """The scope of an open chain or tool."""
        return None if run_id is None else self._scopes.get(run_id.int)

    def open_branch(self, branch: OpenChain, run: AgentRun) -> None:
        """A branch becomes a run, with all that is open in it."""
        before, branch.run = branch.run, run
        for key in tuple(before.open_ids):
            scope = self._scopes.get(key)
            if isinstance(scope, OpenChain) and scope.is_in(branch):
                before.open_ids.pop(key, None)
                if scope is not branch:
                    scope.run = run
                    run.open_ids[key] = None

    def wait(self, run: AgentRun) -> AgentRun | None:
        """A run's invocation has ended, but not the run: hold it until :meth:`take_waiting`.

        Returns:
            A run that waited at the same place and cannot be resumed any more.
        """
        with here.critical, self._lock:
            if run.key is None or not run.held:
                return None
            before = self._waiting.get(run.key)
            if before is not None:
                self._evict(before)
            self._scopes.pop(run.root, None)
            self._forget_ids(run)
            self._waiting[run.key] = run
            return before

    def take_waiting(self, key: WaitingKey) -> AgentRun | None:
        """The run that waits at this place, which is held no more: it is resumed or ended."""
        with here.critical, self._lock:
            run = self._waiting.get(key)
            if run is not None:
                self._evict(run)
            return run

    def is_idle(self, run: AgentRun) -> bool:
        """Whether a run that waited did so for too long: its record may be closed by now."""
        return self._clock() - run.last_seen > self._idle_seconds

    def _evict(self, run: Any) -> None:
        super()._evict(run)
        key = run.key
        if key is not None and self._waiting.get(key) is run:
            del self._waiting[key]


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
    scope = _find_scope(callbacks)
    return scope.run if scope is not None and scope.tool is None else None


def enclosing_scope() -> Scope | None:
    """Where the caller is, by the context that LangChain keeps for chains and tools.

    It knows what callbacks do not: the run around a chain that was given separate callbacks.
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
