"""The open chains of a run, and which of them are branches.

A **branch** is a chain that runs beside others: a task of LangGraph that is not the only one of its
superstep, or a chain whose parent has another one open (``asyncio.gather``, ``batch``,
``RunnableParallel``, parallel tasks of the functional API). A graph that ``Send`` started is one
also alone. What happens in a branch is a sequence by itself, so a branch becomes a run at its first
step. Which chains are branches is decided then: the tasks of a superstep are known before they
start anything, and siblings that begin while a model answers are known when it has answered. The
steps of a branch that no sibling was known of stay in the run around it.

All branches that run beside one another are one step of the run around them: the **fan-out**. It
has a call for each branch that became a run, in the order of the tasks, and is reported when the
last of them has ended.

A node that an edge starts is no branch by what its model chooses: another node may run that. A
graph in it makes it one, or a tool that it calls and that no model chose. The steps of a
``RunnableSequence`` are none either, though all of them are open while it streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config
from opentelemetry.trace import Span

from tidegauge.errors import RunStopped
from tidegauge.events import ABSENT
from tidegauge.instrumentation.langchain.agent_run import AgentRun
from tidegauge.runs.call_groups import CallGroup
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.run_map import RunScope
from tidegauge.runs.task_attempts import MAX_FIRST_TURNS, Attempts, FailedRun, FirstTurns
from tidegauge.runs.turn_calls import TurnCall
from tidegauge.values.safe_reading import entry, label, last, part

_SEQUENCE: Final = "seq:step:"
"""How the tag begins that ``RunnableSequence`` gives to each of its steps, which are all open while
it streams (``runnables/base.py`` of langchain-core 1.8.3)."""
_SENT: Final = "__pregel_push"
"""Where the path of a task begins that ``Send`` started, or that code calls. The last item of the
path is true for the latter (``pregel/_algo.py`` of langgraph 1.2.24). Of a task that an edge
started, it begins otherwise and ends with the name of the node."""
_MAX_CHILDREN: Final = 10_000
_MAX_PATH: Final = 10
_MAX_TAGS: Final = 100
_MAX_TASKS: Final = 1_000
_MAX_CHANNELS: Final = 10_000
_TRIGGERS: Final = ("branch:to:", "join:")
_SENDS: Final = "__pregel_tasks"


class OpenChain(RunScope[AgentRun]):
    """A chain outside of tools, as a scope.

    Attributes:
        run: the run that it belongs to now: another one when a branch that it is in becomes a run.
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
        within: the chain that is the task that it belongs to; ``None``, outside of graphs.
        stop: the stop of what was invoked in it last; ``None``, that was not stopped.
        node: the span of the node that it is, and the run that has it; ``None``, it has no span.
    """

    run: Any = None
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
    fan_out: CallGroup | None = None
    _around: OpenChain | None = None  # the task around it; not itself: no cycles
    _is_task = False
    stop: RunStopped | None = None
    node: tuple[RecordedRun, Span] | None = None
    _attempts: Attempts | None = None  # of the task that it is, once they are asked for
    _made: FirstTurns  # of the task that it is, before that
    _over = False  # whether the task that it is is not tried again
    _tasks: dict[str, OpenChain] | None = None  # those in it that are open, or may be tried again
    _children: dict[int, object]  # open ones, with their tags
    _began = 0  # chains in it that are no tasks
    _order = -1  # among these, or among the tasks of the functional API
    _own_superstep: int | None = None  # of the task that it is
    _superstep: int | None = None  # of the tasks in it
    _first: str | None = None  # the task that was the first in this superstep
    _counted = False  # whether the tasks in this superstep were counted
    _sends = False  # whether several tasks are about to begin in it

    @classmethod
    def make(
        cls, run_id: UUID, name: object, inputs: object, metadata: Mapping[str, Any]
    ) -> OpenChain:
        """The root chain of a run that is not open yet."""
        chain = object.__new__(cls)
        chain.key, chain.name, chain.inputs, chain.metadata = run_id.int, name, inputs, metadata
        chain._children = {}
        task = metadata.get("langgraph_checkpoint_ns")
        chain.task = task if type(task) is str else None
        return chain

    @property
    def within(self) -> OpenChain | None:
        """The task that it is in; a task is in itself."""
        return self if self._is_task else self._around

    @property
    def attempts(self) -> Attempts | None:
        """Those of the task that it belongs to; ``None``, outside of graphs.

        They are made when they are asked for: most tasks are not tried again.
        """
        task = self if self._is_task else self._around
        if task is None:
            return None
        if task._attempts is None:
            graph = task.parent
            outer = None if graph is None or graph.within is None else graph.attempts
            attempts = Attempts(outer, task._own_superstep)
            attempts.chain = task.key
            # Calls of one task may begin in several threads at once, also while it ends.
            attempts = task.__dict__.setdefault("_attempts", attempts)
            if task._over:
                attempts.close(failed=False)
        else:
            attempts = task._attempts
        while True:  # others may choose meanwhile
            try:
                made_before = task._made.pop(0)
            except IndexError:
                return attempts
            attempts.made(*made_before)

    @property
    def memory(self) -> Attempts | FirstTurns | None:
        """What remembers the turns of the task that it belongs to: not yet its attempts, mostly."""
        task = self if self._is_task else self._around
        if task is None:
            return None
        graph = task.parent
        nested = graph is not None and (graph._is_task or graph._around is not None)
        if nested or task._attempts is not None or len(task._made) >= MAX_FIRST_TURNS:
            return self.attempts
        return task._made

    @property
    def tool_span(self) -> Span | None:
        """The span of the node that it is in, if nodes of its run have spans."""
        run: AgentRun | None = self.run
        if run is None or not run.node_spans:
            return None
        chain: OpenChain | None = self
        while chain is not None and chain.node is None and chain.own is None:
            chain = chain.parent
        if chain is None or chain.node is None or chain.node[0] is not run.recorded:
            return None
        return chain.node[1]

    def branches(self, *, agent: bool = False, calls: bool = False) -> list[OpenChain]:
        """The branches that it is in, or is, and that are no runs yet; outermost first.

        Args:
            agent: whether it is another agent.
            calls: whether it calls a tool that no model chose.
        """
        if self.sent or (calls and self.plain):
            self._find_siblings()
        found: list[OpenChain] = []
        chain: OpenChain | None = self
        while chain is not None and chain.own is None:
            direct = chain.task == self.task and not agent
            if chain.parent is not None and chain.parent.parallel:
                if calls or not (chain.plain and direct):
                    found.append(chain)
            elif chain.sent and not direct:
                found.append(chain)
            chain = chain.parent
        found.reverse()
        return found

    def chooser(self) -> AgentRun:
        """The run whose model is asked in it: not that of a branch which an edge started."""
        chain = self
        while chain.own is None and chain.parent is not None:
            chain = chain.parent
        around, run = chain.parent, cast("AgentRun", self.run)
        # In a graph of own nodes, the node that asks the model and the one that runs its calls are
        # two. Were the first a run, the calls would begin outside of it.
        if around is None or not run.branch or not chain.plain or chain.task != self.task:
            return run
        return cast("AgentRun", around.run)

    def claim(self, chain: OpenChain) -> bool:
        """Whether this is the first chain in it that makes it a run; threads may do so at once."""
        return self.__dict__.setdefault("_claimed", chain) is chain

    def is_in(self, chain: OpenChain) -> bool:
        """Whether it is this chain, or is invoked in it."""
        found: OpenChain | None = self
        while found is not None and found is not chain:
            found = found.parent
        return found is chain

    def begin(
        self,
        parent: OpenChain,
        name: object,
        inputs: object,
        metadata: Mapping[str, Any],
        *,
        tags: object,
    ) -> None:
        """It begins in its parent.

        Args:
            tags: LangChain's tags of it, which mark the steps of a sequence.
        """
        self.name, self.inputs, self.metadata = name, inputs, metadata
        self.run, self.parent, self._children = parent.run, parent, {}
        task = metadata.get("langgraph_checkpoint_ns")
        self.task = task = task if type(task) is str else None
        superstep, children = None, parent._children
        if parent.plain:
            parent._find_siblings()
        if task is not None and task != parent.task:
            # LangGraph gives each task a checkpoint namespace with the task's id, which chains in
            # it inherit (pregel/_algo.py of langgraph 1.2.24). So the first chain with another one
            # than its parent's is the task.
            path = metadata.get("langgraph_path")
            if type(path) is tuple and 2 <= len(path) <= _MAX_PATH:
                superstep = metadata.get("langgraph_step")
                if type(superstep) is not int:
                    superstep = None
                if type(path[0]) is not str or path[0] != _SENT:
                    self.plain = True
                elif path[-1] is True:
                    # The functional API calls one task after the other in one superstep. They are
                    # no branches because of that: of them, those are that are open at once.
                    self._order, superstep = (path[-2] if type(path[-2]) is int else -1), None
                else:
                    self.sent = True
            self._is_task, self._own_superstep, self._made = True, superstep, []
            tasks = parent._tasks
            if tasks or parent.run.interrupted_tasks:
                self._begin_attempt(parent)
            elif tasks is None:
                # In one step: the tasks of a superstep begin in several threads.
                parent.__dict__.setdefault("_tasks", {})[task] = self
            else:
                tasks[task] = self
        else:
            self._around = within = parent if parent._is_task else parent._around
            if within is not None and within._attempts is not None and within._attempts.failed:
                within._attempts.caught()
            self._order = parent._began
            parent._began += 1
        if superstep is not None and superstep == parent._superstep:
            # All tasks of a superstep run at once, also if the first is over before the second
            # begins. The same task begins again if it is tried again.
            if task != parent._first:
                parent.parallel = True
        elif not children:
            # Nothing is open, so what ran at once before is over.
            if parent.fan_out is not None:
                parent.report_fan_out()
            if parent.parallel or parent._sends:
                parent.parallel, parent._sends = parent._sends, False
            parent._superstep, parent._first, parent._counted = superstep, task, False
        if len(children) < _MAX_CHILDREN:
            children[self.key] = tags
        if len(children) > 1 and not parent.parallel:
            # Open chains run at once, but for a sequence that streams: each of its steps is open,
            # and has another tag. With equal tags they are of several sequences, or of none.
            steps = [_step_of_sequence(other) for other in tuple(children.values())]
            step = _step_of_sequence(tags)
            alike = steps.count(step) > 1
            parent.parallel = alike and (step is None or not _is_in_one_of(children))

    def _find_siblings(self) -> None:
        """Find out, inside the first task of a superstep, whether others run in it."""
        graph = self.parent
        if graph is None or graph.parallel or self.task != graph._first or graph._counted:
            return
        count = _count_of_tasks(self.task)
        if count is not None:
            graph._counted = True
            if count > 1:
                graph.parallel = True

    def _begin_attempt(self, graph: OpenChain) -> None:
        """A task begins where others are open, or were interrupted: the first time, or again.

        LangGraph runs the same task again (``pregel/_retry.py`` of langgraph 1.2.24), so its
        checkpoint namespace is the same. After a timeout, it may begin again before the end of its
        last attempt is reported. After an interrupt, it begins again when its graph is resumed, and
        is the same task: the ids of tasks are made of that of the checkpoint.
        """
        task = self.task or ""
        tasks: dict[str, OpenChain] = graph.__dict__.setdefault("_tasks", {})
        before = tasks.get(task)
        if before is not None:
            graph._children.pop(before.key, None)
            attempts = before.attempts
            assert attempts is not None  # noqa: S101 -- before is a task
        else:
            if tasks and self._own_superstep is not None:
                graph._close_tasks(self._own_superstep, failed=False)
            elif len(tasks) >= _MAX_TASKS:  # of the functional API
                graph._close_tasks(failed=False)
            attempts = graph.run.interrupted_tasks.pop(task, None)
            if attempts is not None:
                attempts.outer = graph.attempts
        if attempts is not None:
            attempts.begin_again()
            attempts.chain = self.key
            self._attempts = attempts
        tasks[task] = self

    def end_attempt(self, *, failed: bool = False, interrupted: bool = False) -> None:
        """It ends, and so do the tasks in it. If it is a task that failed, it may be tried again.

        Args:
            interrupted: whether it is paused for a person: it begins again when that is over.
        """
        if self._tasks:
            self._close_tasks(failed=failed)
        graph, attempts = self.parent, self._attempts
        if graph is None or not self._is_task or failed:
            return
        if attempts is not None and attempts.chain != self.key:
            return  # the next attempt has begun
        task = self.task or ""
        if graph._tasks is not None:
            graph._tasks.pop(task, None)
        if not interrupted:
            self._over = True
            if self._attempts is not None:
                self._attempts.close(failed=False)
        elif len(graph.run.interrupted_tasks) < _MAX_TASKS:
            attempts = cast("Attempts", self.attempts)  # a task has them
            attempts.interrupt()
            graph.run.interrupted_tasks[task] = attempts

    def fail(self, end: Callable[[], None]) -> bool:
        """Its run failed. Returns whether the next attempt of its task may continue it."""
        run, attempts = cast("AgentRun", self.own), self.attempts
        if attempts is None or run.call is None:
            return False
        whole = run.branch and attempts.chain == self.key
        return attempts.fail(FailedRun(run, run.call, whole, end))

    def is_continued(self) -> bool:
        """Whether it is a new attempt of a task that was a run as a whole, which goes on."""
        attempts = self._attempts
        return (
            attempts is not None
            and attempts.chain == self.key
            and any(failed.whole for failed in attempts.before)
        )

    def _close_tasks(self, superstep: int | None = None, *, failed: bool) -> None:
        """The tasks in it are over, but for those of this superstep."""
        tasks = self._tasks or {}
        for task, chain in tuple(tasks.items()):
            if superstep is None or chain._own_superstep != superstep:
                tasks.pop(task, None)
                chain._close(failed=failed)

    def _close(self, *, failed: bool) -> None:
        """The task that it is is over."""
        self._over = True
        if self._attempts is not None:
            self._attempts.close(failed=failed)

    def end(self, *, succeeded: bool = False) -> None:
        """It has ended, and so has the run that it is the root of: leave its parent.

        Args:
            succeeded: whether its attempt ends here, too, as nearly always; else see
                :meth:`end_attempt`.
        """
        parent = self.parent
        if parent is None:
            return
        if succeeded:
            attempts = self._attempts
            if self._tasks or (attempts is not None and attempts.chain != self.key):
                self.end_attempt()
            elif self._is_task:
                if parent._tasks is not None:
                    parent._tasks.pop(cast("str", self.task), None)
                self._over = True
                if self._attempts is not None:
                    self._attempts.close(failed=False)
        parent._children.pop(self.key, None)
        if parent.fan_out is not None and parent._superstep is None and not parent._children:
            parent.report_fan_out()

    def fans_out(self) -> None:
        """It returned several ``Send``: tasks of the graph around it, in the next superstep.

        It is the chain of an edge, or a node that returns a command. So the superstep is known to
        have several tasks before the first of them begins: its first step is that of a branch.
        """
        chain = self
        while chain.parent is not None and chain.task == chain.parent.task:
            chain = chain.parent
        if chain.parent is not None:
            chain.parent._sends = True

    def join_fan_out(self, name: str, arguments: object) -> TurnCall:
        """Make it a call of the fan-out of its parent. A task that is tried again is one call.

        Args:
            arguments: what the agent received. A node that an edge starts receives the state, which
                does not say what it is asked: it is compared by what it does, unless it asks
                an agent with a name.
        """
        if self.plain and "_claimed" in self.__dict__:
            arguments = ABSENT  # until it ends
        parent = cast("OpenChain", self.parent)  # a branch has one
        turn = parent.__dict__.setdefault("fan_out", CallGroup())
        task = (self.task or "") if self.task != parent.task else ""
        place = (*self._place(), task)
        call: TurnCall = parent.run.turns.join(turn, name, task or None, arguments, place)
        return call

    def _place(self) -> tuple[int, str]:
        """Its place among the chains beside it: by number, or by name."""
        if self.plain:
            return -1, label(self.metadata["langgraph_path"][1]) or ""
        index = self.metadata["langgraph_path"][1] if self.sent else self._order
        return (index if type(index) is int else -1), ""

    def report_fan_out(self) -> None:
        """What ran beside one another in it is over: one step of its run."""
        turn = self.__dict__.pop("fan_out", None)
        if turn is not None:
            self.run.turns.report_group(turn, self.attempts)

    def interrupt(self) -> None:
        """Its graph is paused for a person, and so is the run around a branch."""
        self.run.interrupted = True
        if self.own is not None and self.own.branch and self.parent is not None:
            self.parent.run.interrupted = True

    def end_fan_out(self) -> None:
        """It ends: so does the fan-out in it, or is kept until its graph is resumed."""
        if self.run.interrupted:
            turn = self.__dict__.pop("fan_out", None)
            if turn is not None:
                turn.began = math.nan  # waiting for a person is no time of a step
                kept = turn, self._superstep, self._first
                self.run.fan_outs[self.task, label(self.name)] = kept
        else:
            self.report_fan_out()

    def resume_fan_out(self) -> None:
        """It begins: take what was kept when its graph was interrupted."""
        kept = self.run.fan_outs.pop((self.task, label(self.name)), None)
        if kept is not None:
            self.fan_out, self._superstep, self._first = kept
            self.parallel = True


def _is_in_one_of(chains: Mapping[int, object]) -> bool:
    """Whether the caller is in one of these chains, and invokes another with the config around it.

    Then LangChain reports the inner chain as a sibling, with the same tags.
    """
    config = var_child_runnable_config.get()
    caller = None if config is None else getattr(config.get("callbacks"), "parent_run_id", None)
    return caller is not None and caller.int in chains


def _count_of_tasks(task: str | None) -> int | None:
    """How many tasks run in the superstep of the task that the caller is in.

    LangGraph hands each task the channels of its graph. Those that start nodes hold something in
    the superstep which they start, from before its first task until after its last one; that of
    ``Send`` holds one for each task.

    Args:
        task: the task; ``None`` is returned if the caller is in another one.
    """
    configurable = entry(var_child_runnable_config.get(), "configurable")
    if task is None or entry(configurable, "checkpoint_ns") != task:
        return None
    given = part(getattr(entry(configurable, "__pregel_read"), "args", None), slice(2))
    channels = last(given)
    if type(channels) is not dict:
        return None
    nodes: set[str] = set()
    sent = 0
    for name, channel in islice(channels.items(), _MAX_CHANNELS):
        if type(name) is not str:
            continue
        if name == _SENDS and channel.is_available():
            sends = channel.get()
            sent = len(sends) if type(sends) is list else 1
        elif name.startswith(_TRIGGERS) and channel.is_available():
            nodes.add(name.rpartition(":")[2])
    return len(nodes) + sent


def _step_of_sequence(tags: object) -> str | None:
    """Which step of a sequence a chain is: while it streams, all of its steps are open."""
    for tag in part(tags, slice(_MAX_TAGS)):
        if type(tag) is str and tag.startswith(_SEQUENCE):
            return tag
    return None
