"""One run of an agent, as the callbacks of its invocation share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge._guard import guarded
from tidegauge.errors import RunStopped
from tidegauge.events import CallResult
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.langchain.parsing import (
    ModelAnswer,
    agent_identity,
)
from tidegauge.instrumentation.langchain.rounds import Rounds, ToolCall
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.values import label, truth

__all__ = ["AgentRun", "ModelCall", "Scope", "Success", "WaitingKey"]

Success: TypeAlias = Callable[[Any], bool | None]

WaitingKey: TypeAlias = tuple[str, str, str, str | None]
"""Thread, agent, place in the graphs around it, and its task there."""

_MAX_MODEL_NODES: Final = 100


class ModelCall(NamedTuple):
    """An open model call.

    Attributes:
        span: its span.
        chooses: whether its tool calls are the agent's action.
        place: the execution of a graph's node that it is made in; ``None`` outside of graphs.
    """

    span: Span
    chooses: bool
    place: object = None


class AgentRun:
    """One run.

    Attributes:
        root: callback id of its root chain, as an integer like the other ones here.
        key: where it waits when its graph is interrupted; ``None``, it has no thread to wait in.
        recorded: takes its steps and spans.
        traced: whether spans are made for its calls: they are recorded, or their time is.
        rounds: its rounds.
        metadata: what came with its root chain.
        identity: tells its agent from one that is invoked inside it.
        models: its open model calls, by callback id.
        tools: its open tool calls, by callback id.
        interrupted: its graph is paused for a person.
        around: where it is invoked, inside another run.
        call: the step that it is of that run; ``None`` inside a tool, whose call that is.
        waiting: runs inside it that were interrupted, and are resumed or ended with it.
        blockable: whoever sets it answers calls that are blocked (see ``Rounds.blocked``) in place
            of running them.
        graceful: whoever sets it ends the run when it is to stop; nothing is raised then.
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
        "call",
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
        "rounds",
        "tools",
        "traced",
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
        self.rounds = Rounds(recorded)
        self.key = key
        self._enter(root, metadata)
        self.models: dict[int, ModelCall] = {}
        self.tools: dict[int, ToolCall] = {}
        self.around: Scope | None = None
        self.call: ToolCall | None = None
        self.waiting: list[AgentRun] = []
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
        """Its graph is paused for a person: its span is closed, its rounds wait for the rest."""
        self.models.clear()
        self.tools.clear()
        self.recorded.suspend("interrupt")
        if self.around is not None:
            self.around.run.waiting.append(self)

    def resume(self, root: UUID, metadata: Mapping[str, Any], context: Context | None) -> None:
        """Its graph goes on, in another invocation.

        Args:
            root: callback id of the new root chain.
            metadata: what came with it.
            context: parent of the new span; ``None`` takes the caller's current context.
        """
        if self.around is not None and self in self.around.run.waiting:
            self.around.run.waiting.remove(self)
        self.recorded.resume(context)
        self._enter(root, metadata)

    def enter_node(self, metadata: Mapping[str, Any]) -> None:
        """A chain begins; in a graph's node that asks the model, that is a new turn.

        Raised here, and not at the model call, a stop leaves no callback of that call half done:
        LangChain's async manager has then made coroutines for the other handlers already, which
        it would never await.
        """
        if label(metadata.get("langgraph_node")) in self._model_nodes:
            self.rounds.turn()
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
        self.rounds.turn(messages)
        self.enforce()

    def issue(self, answer: ModelAnswer, place: object) -> None:
        """The model chose calls: a step. None of them runs yet.

        Args:
            answer: what the model said.
            place: the execution of a graph's node in which it did; ``None`` outside of graphs.
        """
        self.rounds.issue(
            answer.calls,
            entropy=answer.entropy,
            place=place,
            blockable=self.blockable and not self.watched_only,
        )
        self.enforce()

    def stop_error(self) -> RunStopped | None:
        """The deliberate stop, when the run is to stop; else ``None``."""
        return None if self.watched_only else self.recorded.stop_error(STOP)

    def enforce(self) -> None:
        """Raise the deliberate stop, when the run is to stop and nobody ends it gracefully."""
        if self.recorded.decision.stop and not self.watched_only and not self.graceful:
            self.recorded.enforce(STOP)

    def answer(self, result: CallResult, *, raised: bool = False) -> None:
        """Tell the run around it what it brought back, when it is a step of that run.

        Args:
            result: what it brought back.
            raised: it raised an exception, and may be tried again.
        """
        if self.call is not None and self.around is not None:
            self.around.run.rounds.end(self.call, result, raised=raised)

    @guarded("langchain.success", default=None)
    def succeeded(self, output: object) -> bool | None:
        """Whether the task was solved, by its root chain's output; ``None``, not known."""
        return truth(self._success(output)) if self._success and not self.interrupted else None

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
