"""The open chains of a run, and which of them are branches.

A **branch** is a chain that runs beside others: a task of LangGraph that is not the only one of its
superstep, or a chain whose parent has another one open (``asyncio.gather``, ``batch``,
``RunnableParallel``, parallel tasks of the functional API). A graph that ``Send`` started is one
also alone. What happens in a branch is a sequence by itself, so a branch becomes a run at its first
step. Which chains are branches is decided then: several ``Send`` are known before they start
anything, and siblings that begin while a model answers are known when it has answered. The steps
of a branch that no sibling was known of stay in the run around it.

All branches that run beside one another are one step of the run around them: the **fan-out**. It
has a call for each branch that became a run, in the order of the tasks, and is reported when the
last of them has ended.

A chain of a plain node in which a model chooses is no branch: another node runs what it chose, so
its turns belong to the run around it. The steps of a ``RunnableSequence`` are none either, though
all of them are open while it streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import UUID

from tidegauge.events import made
from tidegauge.instrumentation.langchain.agent_run import AgentRun
from tidegauge.instrumentation.run_map import RunScope
from tidegauge.instrumentation.turns import Turn, TurnCall
from tidegauge.instrumentation.values import first, label, last, part

__all__ = ["OpenChain"]

_SEQUENCE: Final = "seq:step:"
_SENT: Final = "__pregel_push"
_MAX_CHILDREN: Final = 10_000
_MAX_TAGS: Final = 100


class OpenChain(RunScope[AgentRun]):
    """A chain outside of tools, as a scope: ``run`` is the run that it belongs to now.

    Attributes:
        key: its callback id, as an integer.
        name: its name.
        inputs: its input.
        metadata: what came with it.
        parent: the chain that it is invoked in; ``None``, it is outermost.
        own: the run of which it is the root; ``None``, it is part of another one.
        task: the task of LangGraph that it belongs to; ``None``, outside of graphs.
        sent: whether it is such a task, started by ``Send``.
        plain: whether it is such a task, started by an edge of the graph.
        parallel: whether the chains that are open in it run beside one another.
    """

    key: int
    name: object
    inputs: object
    metadata: Mapping[str, Any]
    parent: OpenChain | None = None
    task: str | None
    own: AgentRun | None = None
    sent = False
    plain = False
    parallel = False
    _children: dict[int, str | None]  # open ones, with their steps of a sequence
    _place: tuple[int, str] = (-1, "")  # among the chains beside it
    _began = 0  # chains in it that are no tasks
    _superstep: int | None = None  # of the tasks in it
    _first: str | None = None  # the task that was the first in this superstep
    _sends = False  # whether several tasks are about to begin in it
    _fan_out: Turn | None = None

    @classmethod
    def make(
        cls,
        run_id: UUID,
        name: object,
        inputs: object,
        metadata: Mapping[str, Any],
        within: OpenChain | AgentRun,
    ) -> OpenChain:
        """A chain that begins.

        Args:
            run_id: its callback id.
            name: its name.
            inputs: its input.
            metadata: what came with it.
            within: the chain that it is invoked in, or the run that it is the root of.
        """
        chain = made(cls, (None, None))
        chain.key, chain.name, chain.inputs, chain.metadata = run_id.int, name, inputs, metadata
        if isinstance(within, OpenChain):
            chain.parent = within
        else:
            chain.own = within
        task = metadata.get("langgraph_checkpoint_ns")
        chain.task = task if type(task) is str else None
        chain._children = {}
        return chain

    @property
    def run(self) -> AgentRun:
        """The run that something belongs to that happens in it now."""
        chain: Any = self
        while chain.own is None:
            chain = chain.parent
        run: AgentRun = chain.own
        return run

    def branches(self, *, chosen: bool = False) -> list[OpenChain]:
        """The branches that it is in, or is, and that are no runs yet; outermost first.

        Args:
            chosen: whether a model has chosen calls here, which another node may run.
        """
        found: list[OpenChain] = []
        chain: OpenChain | None = self
        while chain is not None and chain.own is None:
            direct = chain.task == self.task
            if chain.parent is not None and chain.parent.parallel:
                if not (chosen and chain.plain and direct):
                    found.append(chain)
            elif chain.sent and not direct:
                found.append(chain)
            chain = chain.parent
        found.reverse()
        return found

    def claim(self, chain: OpenChain) -> bool:
        """Whether this is the first chain in it that makes it a run; threads may do so at once."""
        return self.__dict__.setdefault("_claimed", chain) is chain

    def own_from(self, chain: OpenChain, run: AgentRun) -> None:
        """It is the root of a run now: so are the chains in it that lead to where that was decided.

        Args:
            chain: where it was decided.
            run: the run.
        """
        before, self.own = self.run, run
        step: OpenChain | None = chain
        while step is not None:
            if before.open_ids.pop(step.key, self) is None and step is not self:
                run.open_ids[step.key] = None
            step = None if step is self else step.parent

    def begin(self, tags: object) -> None:
        """It begins in its parent.

        Args:
            tags: LangChain's tags of it, which mark the steps of a sequence.
        """
        parent = self.parent
        if parent is None:
            return
        superstep = None
        if self.task is not None and self.task != parent.task:
            superstep = self._begin_task()
        else:
            self._place = parent._began, ""
            parent._began += 1
        children = parent._children
        same = superstep is not None and superstep == parent._superstep
        if same and self.task != parent._first:
            parent.parallel = True
        elif not same and not children:
            parent.report_fan_out()
            parent.parallel, parent._sends = parent._sends, False
            parent._superstep, parent._first = superstep, self.task
        step = _step_of_sequence(tags)
        if len(children) < _MAX_CHILDREN:
            children[self.key] = step
        if len(children) > 1 and not parent.parallel:
            parent.parallel = list(children.values()).count(step) > 1

    def _begin_task(self) -> int | None:
        """A task of LangGraph begins. Returns its superstep, in which it begins once."""
        path = part(self.metadata.get("langgraph_path"), slice(4))
        if label(first(path)) != _SENT:
            self.plain = True
            self._place = (-1, label(last(path)) or "")
        elif last(path) is True:  # the functional API: one task after the other in one superstep
            return None
        else:
            self.sent = True
            index = first(path[1:])
            self._place = (index if type(index) is int else -1, "")
        superstep = self.metadata.get("langgraph_step")
        return superstep if type(superstep) is int else None

    def end(self) -> None:
        """It has ended, and so has the run that it is the root of: leave its parent."""
        parent = self.parent
        if parent is not None:
            parent._children.pop(self.key, None)
            if parent._superstep is None and not parent._children:
                parent.report_fan_out()

    def fans_out(self) -> None:
        """It returned several ``Send``: tasks of the graph around it, in the next superstep."""
        chain = self
        while chain.parent is not None and chain.task == chain.parent.task:
            chain = chain.parent
        if chain.parent is not None:
            chain.parent._sends = True

    def join_fan_out(self, name: str, arguments: object) -> TurnCall:
        """Make it a call of the fan-out of its parent. A task that is tried again is one call.

        Args:
            name: name of the agent.
            arguments: what the agent received.
        """
        parent = cast("OpenChain", self.parent)  # a branch has one
        if parent._fan_out is None:
            parent._fan_out = Turn([], loose=True)
        task = self.task if self.task != parent.task else None
        place = (*self._place, task or "")
        return parent.run.turns.join(parent._fan_out, name, arguments, place)

    def report_fan_out(self) -> None:
        """What ran beside one another in it is over: one step of its run."""
        turn, self._fan_out = self._fan_out, None
        if turn is not None:
            self.run.turns.report_loose(turn)

    def interrupt(self) -> None:
        """Its graph is paused for a person, and so is the run around a branch."""
        self.run.interrupted = True
        if self.own is not None and self.own.branch and self.parent is not None:
            self.parent.run.interrupted = True

    def end_fan_out(self) -> None:
        """It ends: so does the fan-out in it, or is kept until its graph is resumed."""
        turn, run = self._fan_out, self.run
        if turn is not None and run.interrupted:
            self._fan_out = None
            run.fan_outs[self.task, label(self.name)] = turn, self._superstep, self._first
        else:
            self.report_fan_out()

    def resume_fan_out(self) -> None:
        """It begins: take what was kept when its graph was interrupted."""
        kept = self.run.fan_outs.pop((self.task, label(self.name)), None)
        if kept is not None:
            self._fan_out, self._superstep, self._first = kept
            self.parallel = True


def _step_of_sequence(tags: object) -> str | None:
    """Which step of a sequence a chain is: while it streams, all of its steps are open."""
    for tag in part(tags, slice(_MAX_TAGS)):
        if type(tag) is str and tag.startswith(_SEQUENCE):
            return tag
    return None
