"""Agents inside a tool whose metadata do not name them.

The metadata of ``create_agent(name=...)`` name it, unless the caller's config, with the caller's
name, is passed on to it. ``create_react_agent`` and ``StateGraph.compile`` name only the chain. So
inside a tool an agent is found by what it does. This is the rule:

- It is a compiled graph: a chain in which tasks of LangGraph begin.
- Its name may be any, also that of the agent around it: an agent may start itself. A graph without
  a name has that of the tool.
- One of its models may choose tools: it is offered some, it chooses some, or a call runs in the
  graph that a model chose. Middleware or a hook of ours in the graph shows it, too.

Of graphs inside one another the outermost one with a name is the agent, else the outermost one, as
it is outside of tools: a graph in it is part of it. A graph without such a model is part of the
tool, and so is any other chain. Where the steps are nodes, a graph without a name is part of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from tidegauge.errors import RunStopped
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope
from tidegauge.instrumentation.langchain.branches import OpenChain
from tidegauge.instrumentation.langchain.run_starts import UNNAMED
from tidegauge.runs.run_map import RunScope
from tidegauge.values.safe_reading import label


class NestedChain(RunScope[AgentRun]):
    """An open chain inside a tool, as a scope. It may become the root of a run.

    Attributes:
        key: its callback id, as an integer.
        name: its name.
        inputs: its input.
        metadata: what came with it.
        tags: its tags.
        parent: the chain inside the same tool that it is invoked in; ``None``, it is outermost.
        graph: whether it is a compiled graph, as far as is known.
        stop: the stop of what was invoked in it last; ``None``, that was not stopped.
    """

    key: int
    name: object
    inputs: object
    metadata: Mapping[str, Any]
    tags: object
    parent: NestedChain | None = None
    graph = False
    stop: RunStopped | None = None

    @classmethod
    def make(
        cls,
        run_id: UUID,
        name: object,
        inputs: object,
        metadata: Mapping[str, Any],
        scope: Scope,
        *,
        tags: object,
    ) -> NestedChain:
        """A chain that begins.

        Args:
            scope: the tool, or the chain in it, that it is invoked in.
        """
        chain = cls(scope.run, scope.tool)
        chain.key, chain.name, chain.inputs = run_id.int, name, inputs
        chain.metadata, chain.tags = metadata, tags
        if isinstance(scope, NestedChain):
            chain.parent = scope
            # Only a graph gives what runs in it another checkpoint namespace. When it begins,
            # nothing shows that it is a graph: it is known when its first task begins.
            if chain._task != scope._task:
                scope.graph = True
        return chain

    @property
    def _task(self) -> object:
        return self.metadata.get("langgraph_checkpoint_ns")

    @property
    def around(self) -> Scope:
        """The tool that it is in."""
        return RunScope(self.run, self.tool)

    def agent(self) -> NestedChain | None:
        """The agent that it is in, if one of its models may choose tools here."""
        # From the inside: of several with a name, the last one that is found is the outermost.
        named: NestedChain | None = None
        unnamed: NestedChain | None = None
        chain: NestedChain | None = self
        while chain is not None:
            if chain.graph:
                if not chain._has_name():
                    unnamed = None if chain.run.node_steps else chain
                else:
                    named = chain
            chain = chain.parent
        return named or unnamed

    @property
    def agent_name(self) -> str | None:
        """The name of the agent that it is: its own, or that of the tool."""
        if self._has_name() or self.tool is None:
            return label(self.name)
        return self.tool.name

    def _has_name(self) -> bool:
        # ``StateGraph.compile`` names a graph "LangGraph" if its caller does not (graph/state.py
        # of langgraph 1.2.24).
        return label(self.name) not in (None, "", UNNAMED)

    def claim(self, chain: NestedChain) -> bool:
        """Whether this is the first chain in it that makes it a run; threads may do so at once."""
        # LangChain calls models and tools of one graph in several threads, and so its handlers.
        return self.__dict__.setdefault("_claimed", chain) is chain

    def opened(self, parent: OpenChain | None) -> OpenChain:
        """It as a chain of a run.

        Args:
            parent: the chain of that run that it is invoked in; ``None``, it is its root.
        """
        if parent is None:
            return OpenChain.make(UUID(int=self.key), self.name, self.inputs, self.metadata)
        chain = object.__new__(OpenChain)
        chain.key = self.key
        chain.begin(parent, self.name, self.inputs, self.metadata, tags=self.tags)
        return chain
