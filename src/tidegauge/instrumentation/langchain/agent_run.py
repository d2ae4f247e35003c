"""One run of an agent, as the callbacks of its invocation share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge._guard import guarded
from tidegauge.errors import RunStopped
from tidegauge.events import CallResult, RunStarted
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.parsing import (
    ModelAnswer,
    agent_identity,
    task_text,
    tool_answers,
)
from tidegauge.instrumentation.open_run import find_current_run
from tidegauge.instrumentation.recorder import RecordedRun, new_run_id
from tidegauge.instrumentation.run_map import RunScope
from tidegauge.instrumentation.turns import Turn, TurnCall, TurnTracker
from tidegauge.instrumentation.values import RunLabels, label, run_labels, text_digest, truth

__all__ = [
    "AgentRun",
    "ModelCall",
    "Scope",
    "Success",
    "WaitingKey",
    "branch_run",
    "child_run",
    "root_run",
    "waiting_key",
]

Success: TypeAlias = Callable[[Any], bool | None]

WaitingKey: TypeAlias = tuple[str, str, str, str | None]
"""Thread, agent, place in the graphs around it, and its task there."""

_MAX_MODEL_NODES: Final = 100
_AGENT, _NAME = "tidegauge_agent", "lc_agent_name"


class ModelCall(NamedTuple):
    """An open model call.

    Attributes:
        span: its span.
        chooses: whether its tool calls are the agent's action.
        node: the execution of a graph's node that it is made in; ``None`` outside of graphs.
    """

    span: Span
    chooses: bool
    node: object = None


class AgentRun:
    """One run.

    Attributes:
        root: callback id of its root chain, as an integer like the other ones here.
        key: where it waits when its graph is interrupted; ``None``, it has no thread to wait in.
        recorded: takes its steps and spans.
        traced: whether spans are made for its calls: they are recorded, or their time is.
        turns: tracks its turns and their calls.
        metadata: what came with its root chain.
        identity: distinguishes its agent from one that is invoked inside it.
        models: its open model calls, by callback id; a branch has those of the run around it, too.
        tools: its open tool calls, by callback id.
        interrupted: its graph is paused for a person.
        around: where it is invoked, inside another run.
        call: the step that it is of that run; ``None`` inside a tool, whose call that is.
        branch: whether it is a branch of the run around it.
        waiting: runs inside it that were interrupted, and are resumed or ended with it.
        fan_outs: what ran in parallel when it was interrupted, by task and name of the chain around
            it: the turn, its superstep and the first task of that.
        blockable: the middleware answers blocked calls (see ``TurnTracker.blocked``) and does not
            run them.
        graceful: the middleware ends the run when the policy stops it; nothing is raised then.
        watched_only: after a fault of ours, nothing is blocked or stopped any more.
        held: whether the map holds it.
        last_seen: when its model was last called, by the clock of the map that holds it.
        open_ids: callback ids that the map holds for it, oldest first.
    """

    __slots__ = (
        "_model_nodes",
        "_success",
        "around",
        "blockable",
        "branch",
        "call",
        "fan_outs",
        "graceful",
        "held",
        "identity",
        "interrupted",
        "key",
        "last_seen",
        "metadata",
        "models",
        "open_ids",
        "recorded",
        "root",
        "tools",
        "traced",
        "turns",
        "waiting",
        "watched_only",
    )

    def __init__(
        self,
        root: UUID,
        recorded: RecordedRun,
        metadata: Mapping[str, Any],
        *,
        key: WaitingKey | None = None,
        success: Success | None = None,
    ) -> None:
        self.recorded = recorded
        self.turns = TurnTracker(recorded)
        self.key = key
        self._enter(root, metadata)
        self.models: dict[int, ModelCall] = {}
        self.tools: dict[int, TurnCall] = {}
        self.around: Scope | None = None
        self.call: TurnCall | None = None
        self.branch = False
        self.waiting: list[AgentRun] = []
        self.fan_outs: dict[Hashable, tuple[Turn, int | None, str | None]] = {}
        self.blockable = False
        self.graceful = False
        self.watched_only = False
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[int, None] = OrderedDict()
        self._model_nodes: set[str] = set()
        self._success = success

    def _enter(self, root: UUID, metadata: Mapping[str, Any]) -> None:
        self.root = root.int
        self.metadata = metadata
        self.identity = agent_identity(metadata)
        self.traced = self.recorded.calls_wanted
        self.interrupted = False

    def suspend(self) -> None:
        """Its graph is paused for a person: its span is closed, its turns wait for the rest."""
        if not self.branch:
            self.models.clear()
        self.tools.clear()
        self.recorded.suspend("interrupt")
        if self.around is not None:
            self.around.run.waiting.append(self)

    def resume(self, root: UUID, metadata: Mapping[str, Any], context: Context | None) -> None:
        """Its graph continues, in another invocation.

        Args:
            root: callback id of the new root chain.
            metadata: what came with it.
            context: parent of the new span; ``None`` takes the caller's current context.
        """
        if self.around is not None and self in self.around.run.waiting:
            self.around.run.waiting.remove(self)
        self.recorded.resume(context)
        self._enter(root, metadata)

    def branch_off(self, around: Scope) -> None:
        """It is a branch: it is guided like the run around it."""
        outer = around.run
        self.branch, self.models = True, outer.models
        self.blockable, self.graceful = outer.blockable, outer.graceful
        self.watched_only = outer.watched_only

    def run_of(self, name: str, arguments: object, call_id: str | None) -> AgentRun:
        """The run that chose a call which is about to run in it: a run around a branch, maybe."""
        run = self
        while run.branch and run.around is not None:
            if run.turns.awaits(name, arguments, call_id):
                return run
            run = run.around.run
        return run if run.turns.awaits(name, arguments, call_id) else self

    def is_same_agent(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a chain with this metadata is part of this run's agent."""
        known = self.metadata
        if metadata.get(_AGENT) is known.get(_AGENT) and metadata.get(_NAME) is known.get(_NAME):
            return True  # inherited, as nearly always
        return agent_identity(metadata) == self.identity

    def enter_node(self, metadata: Mapping[str, Any]) -> None:
        """A chain begins; in a graph's node that asks the model, that is a new turn.

        Raised here, and not at the model call, a stop leaves no callback of that call half done:
        LangChain's async manager has then made coroutines for the other handlers already, which
        it would never await.
        """
        node = metadata.get("langgraph_node")
        if node is not None and label(node) in self._model_nodes:
            self.turns.next_turn()
            self.enforce()

    def take_turn(self, messages: object, metadata: Mapping[str, Any]) -> None:
        """The model is about to choose.

        Args:
            messages: what it is shown; only the answers at their end are looked at.
            metadata: what came with the model call.
        """
        node = label(metadata.get("langgraph_node"))
        if node is not None and len(self._model_nodes) < _MAX_MODEL_NODES:
            self._model_nodes.add(node)
        self.turns.next_turn(tool_answers(messages))
        self.enforce()

    def choose(self, answer: ModelAnswer, node: object) -> None:
        """The model chose calls: a step. None of them runs yet.

        Args:
            answer: the model's answer.
            node: the execution of a graph's node in which it chose; ``None`` outside of graphs.
        """
        self.turns.choose(
            answer.calls,
            tokens=answer.tokens,
            entropy=answer.entropy,
            node=node,
            blockable=self.blockable and not self.watched_only,
        )
        self.enforce()

    def stop_error(self) -> RunStopped | None:
        """The deliberate stop, if the policy stops the run; else ``None``."""
        return None if self.watched_only else self.recorded.stop_error(STOP)

    def enforce(self) -> None:
        """Raise the deliberate stop, unless the middleware ends the run gracefully."""
        if self.recorded.decision.action == "stop" and not self.watched_only and not self.graceful:
            self.recorded.enforce(STOP)

    def answer(self, result: CallResult, *, raised: bool = False) -> None:
        """Report its result to the run around it, when it is a step of that run.

        Args:
            result: what it returned.
            raised: it raised an exception, and may be tried again.
        """
        if self.call is not None and self.around is not None:
            self.around.run.turns.end(self.call, result, raised=raised)

    @guarded("langchain.success", default=None)
    def succeeded(self, output: object) -> bool | None:
        """Whether the task was solved, by its root chain's output; ``None``, not known."""
        return truth(self._success(output)) if self._success and not self.interrupted else None

    def end(self, **ending: Any) -> None:
        """Report the rest of its turns, and its end; see ``RecordedRun.end``."""
        try:
            self.turns.next_turn()
            while self.fan_outs:
                self.turns.report_loose(self.fan_outs.popitem()[1][0])
        finally:
            self.recorded.end(**ending)


Scope: TypeAlias = RunScope[AgentRun]


def root_run(
    inputs: object,
    metadata: Mapping[str, Any],
    *,
    labels: RunLabels,
    name: object,
    model: str | None,
    around: Scope | None,
) -> RunStarted:
    """The run of a chain that a handler was given to.

    Args:
        inputs: its input; looked at for the task only.
        metadata: what came with it; overrides ``labels``.
        labels: what the handler was given.
        name: its name, for an agent that has no other.
        model: name of the model that decides.
        around: where it is invoked, when LangChain's callbacks show that it is inside a run.
    """
    given = run_labels(metadata)
    if around is not None:
        parent: str | None = around.run.recorded.id
    else:
        outer = find_current_run()
        parent = outer.run.id if outer else None
    return RunStarted(
        run=new_run_id(),
        agent=given.agent or labels.agent or _name(metadata, name),
        task=given.task or task_text(inputs),
        task_group=given.task_group or labels.task_group or "",
        t_max=given.t_max or labels.t_max,
        model=model,
        memory=given.memory or labels.memory,
        parent=parent,
        conversation=_conversation(metadata),
    )


def child_run(
    inputs: object, metadata: Mapping[str, Any], *, name: object, around: Scope
) -> RunStarted:
    """The run of an agent that is invoked inside another one's.

    Args:
        inputs: its root chain's input.
        metadata: its metadata; labels that are the same as in the run around it are inherited, and
            not this run's.
        name: the chain's name.
        around: where it is invoked.
    """
    outer = around.run.recorded.event
    given = run_labels(metadata, around.run.metadata)
    return RunStarted(
        run=new_run_id(),
        agent=given.agent or _name(metadata, name),
        task=given.task or task_text(inputs),
        task_group=given.task_group or outer.task_group,
        t_max=given.t_max,
        memory=given.memory or outer.memory,
        parent=outer.run,
        conversation=outer.conversation or _conversation(metadata),
    )


def branch_run(
    inputs: object, metadata: Mapping[str, Any], *, name: object, around: Scope
) -> RunStarted:
    """The run of a branch of an agent's run, named after its node, else after its chain.

    Args:
        inputs: the input of its chain.
        metadata: what came with its chain.
        name: name of its chain.
        around: where it branches off.
    """
    node = label(metadata.get("langgraph_node")) or label(name) or ""
    outer = around.run.recorded.event
    return RunStarted(
        run=new_run_id(),
        agent=node,
        task=task_text(inputs),
        task_group=outer.task_group,
        memory=outer.memory,
        parent=outer.run,
        conversation=outer.conversation or _conversation(metadata),
    )


def waiting_key(event: RunStarted, metadata: Mapping[str, Any]) -> WaitingKey | None:
    """Where a run waits when its graph is interrupted; ``None``, it has no thread to wait in.

    A graph inside another one is given by its place there, and by its task: one node or tool may
    invoke the same agent several times.
    """
    thread = _conversation(metadata)
    if thread is None:
        return None
    place = label(metadata.get("langgraph_checkpoint_ns"))
    task = text_digest(event.task) if place and event.task is not None else None
    return thread, event.agent, place or "", task


def _name(metadata: Mapping[str, Any], name: object) -> str:
    return label(metadata.get("lc_agent_name")) or label(name) or ""


def _conversation(metadata: Mapping[str, Any]) -> str | None:
    return label(metadata.get("thread_id"))
