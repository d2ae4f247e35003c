"""One run of an agent, as the callbacks of its invocation share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge._guard import guarded
from tidegauge.events import RunStarted
from tidegauge.instrumentation.current import current_run, get_recorder
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.parsing import (
    RunLabels,
    agent_identity,
    run_labels,
    task_text,
)
from tidegauge.instrumentation.langchain.rounds import Rounds, ToolCall
from tidegauge.instrumentation.recorder import RecordedRun, new_run_id

__all__ = ["AgentRun", "ModelCall", "Scope", "Success", "open_child_run", "open_root_run"]

Success: TypeAlias = Callable[[Any], bool | None]

_MAX_MODEL_NODES: Final = 100


class ModelCall(NamedTuple):
    """An open model call. ``chooses`` says whether its tool calls are the agent's action."""

    span: Span
    chooses: bool


class AgentRun:
    """One run.

    Attributes:
        root: callback id of its root chain, as an integer like the other ones here.
        recorded: takes its steps and spans.
        traced: whether its spans are recorded; without, none are made for its calls.
        rounds: its rounds.
        metadata: what came with its root chain.
        identity: tells its agent from one that is invoked inside it.
        models: its open model calls, by callback id.
        tools: its open tool calls, by callback id.
        interrupted: a node paused the graph for a person.
        watched_only: after a fault of ours, nothing is stopped any more.
        held: whether the map holds it.
        last_seen: when its model was last called, by the clock of the map that holds it.
        open_ids: callback ids that the map holds for it, oldest first.
    """

    __slots__ = (
        "_model_nodes",
        "_success",
        "held",
        "identity",
        "interrupted",
        "last_seen",
        "metadata",
        "models",
        "open_ids",
        "recorded",
        "root",
        "rounds",
        "tools",
        "traced",
        "watched_only",
    )

    def __init__(
        self,
        root: UUID,
        recorded: RecordedRun,
        metadata: Mapping[str, Any],
        success: Success | None = None,
    ) -> None:
        self.root = root.int
        self.recorded = recorded
        self.traced = recorded.span.is_recording()
        self.rounds = Rounds(recorded)
        self.metadata = metadata
        self.identity = agent_identity(metadata)
        self.models: dict[int, ModelCall] = {}
        self.tools: dict[int, ToolCall] = {}
        self.interrupted = False
        self.watched_only = False
        self.held = False
        self.last_seen = 0.0
        self.open_ids: dict[int, None] = {}
        self._model_nodes: set[str] = set()
        self._success = success

    def enter_node(self, metadata: Mapping[str, Any]) -> None:
        """A chain begins; in a graph's node that asks the model, that is a new turn.

        Raised here, and not at the model call, a stop leaves no callback of that call half done:
        LangChain's async manager has then made coroutines for the other handlers already, which
        it would never await.
        """
        if metadata.get("langgraph_node") in self._model_nodes:
            self.rounds.turn()
            self.enforce()

    def take_turn(self, messages: Sequence[Any], metadata: Mapping[str, Any]) -> None:
        """The model is about to choose.

        Args:
            messages: what it is shown; only the answers at their end are looked at.
            metadata: what came with the model call.
        """
        node = metadata.get("langgraph_node")
        if node is not None and len(self._model_nodes) < _MAX_MODEL_NODES:
            self._model_nodes.add(node)
        self.rounds.turn(messages)
        self.enforce()

    def enforce(self) -> None:
        """Raise the deliberate stop, when the run is to stop."""
        if self.recorded.decision.stop and not self.watched_only:
            self.recorded.enforce(STOP)

    @guarded("langchain.success", default=None)
    def succeeded(self, output: object) -> bool | None:
        """Whether the task was solved, by its root chain's output; ``None``, not known."""
        return self._success(output) if self._success and not self.interrupted else None

    def end(self, **told: Any) -> None:
        """Report the rest of its rounds, and its end; see ``RecordedRun.end``."""
        try:
            self.rounds.turn()
        finally:
            self.recorded.end(**told)


class Scope(NamedTuple):
    """Where a callback happens: in which run, and inside which of its tool calls, if any."""

    run: AgentRun
    tool: ToolCall | None = None

    @property
    def tool_span(self) -> Span | None:
        """The span of the tool call; ``None`` when there is none."""
        if self.tool is None or not self.tool.span.get_span_context().is_valid:
            return None
        return self.tool.span

    def context(self) -> Context | None:
        """Parent context for the spans of what happens here."""
        context, span = self.run.recorded.context, self.tool_span
        return context if span is None else trace.set_span_in_context(span, context)


def open_root_run(
    root: UUID,
    inputs: object,
    metadata: Mapping[str, Any],
    *,
    labels: RunLabels,
    name: str | None,
    model: str | None,
    success: Success | None,
) -> AgentRun:
    """Open the run of an outermost chain.

    Args:
        root: its callback id.
        inputs: its input; looked at for the task only.
        metadata: what came with it; overrides ``labels``.
        labels: what the handler was given.
        name: its name, for an agent that has no other.
        model: name of the model that decides.
        success: tells from its output whether the task was solved.
    """
    told = run_labels(metadata)
    around = current_run.get()
    event = RunStarted(
        run=new_run_id(),
        agent=told.agent or labels.agent or metadata.get("lc_agent_name") or name or "",
        task=told.task or task_text(inputs),
        task_group=told.task_group or labels.task_group or "",
        t_max=told.t_max or labels.t_max,
        model=model,
        memory=told.memory or labels.memory,
        parent=around.run.id if around else None,
        conversation=_text(metadata.get("thread_id")),
    )
    return AgentRun(root, get_recorder().start_run(event), metadata, success)


def open_child_run(
    root: UUID, inputs: object, metadata: Mapping[str, Any], *, name: str | None, around: Scope
) -> AgentRun:
    """Open the run of an agent that is invoked inside a tool.

    Args:
        root: callback id of its root chain.
        inputs: that chain's input.
        metadata: what came with it; what is also said of the run around it is inherited, and no
            label of this one.
        name: the chain's name.
        around: the tool call that it happens in.
    """
    outer = around.run.recorded.event
    told = run_labels(metadata, around.run.metadata)
    event = RunStarted(
        run=new_run_id(),
        agent=told.agent or metadata.get("lc_agent_name") or name or "",
        task=told.task or task_text(inputs),
        task_group=told.task_group or outer.task_group,
        t_max=told.t_max,
        memory=told.memory or outer.memory,
        parent=outer.run,
        conversation=outer.conversation,
    )
    return AgentRun(root, get_recorder().start_run(event, around.context()), metadata)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
