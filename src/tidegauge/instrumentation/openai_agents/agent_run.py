"""One run of an agent, as the spans of the Agents SDK share it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from agents import get_current_trace
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge.events import RunStarted
from tidegauge.instrumentation.current import find_current_run, get_recorder
from tidegauge.instrumentation.openai_agents.rounds import Rounds, ToolCall
from tidegauge.instrumentation.openai_agents.stop import AgentRunStopped
from tidegauge.instrumentation.recorder import RecordedRun, new_run_id
from tidegauge.instrumentation.told import RunLabels

__all__ = ["AgentRun", "Scope", "open_child_run", "open_root_run"]


class AgentRun:
    """One run.

    Attributes:
        root: id of the span that it is.
        recorded: takes its steps and spans.
        traced: whether spans are made for its calls: they are recorded, or their time is.
        rounds: its rounds.
        models: spans of its open model calls, by the ids of the SDK's spans.
        asked: span of the model call that a hook told of, until a span of the SDK's takes it.
        hooked: our hooks take part in it: they tell what the model answered.
        inner: it happens inside another run of the SDK's.
        watched_only: after a fault of ours, nothing is decided any more.
        stopped: the deliberate stop was raised.
        success: whether the task was solved, as far as it was told.
        error: what went wrong with an agent, as its span told it.
        held: whether the map holds it.
        last_seen: when its model was last called, by the clock of the map that holds it.
        open_ids: ids of the spans that the map holds for it, oldest first.
    """

    __slots__ = (
        "asked",
        "error",
        "held",
        "hooked",
        "inner",
        "last_seen",
        "models",
        "open_ids",
        "recorded",
        "root",
        "rounds",
        "stopped",
        "success",
        "traced",
        "watched_only",
    )

    def __init__(self, root: str, recorded: RecordedRun, *, inner: bool = False) -> None:
        self.root = root
        self.inner = inner
        self.recorded = recorded
        self.traced = recorded.calls_wanted
        self.rounds = Rounds(recorded)
        self.models: dict[str, Span] = {}
        self.asked: Span | None = None
        self.hooked = False
        self.watched_only = False
        self.stopped = False
        self.success: bool | None = None
        self.error: str | None = None
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[str, None] = OrderedDict()

    def enforce(self) -> None:
        """Raise the deliberate stop, when the run is to stop."""
        if self.recorded.decision.stop and not self.watched_only:
            self.stopped = True
            self.recorded.enforce(AgentRunStopped)

    def end(self, **told: Any) -> None:
        """Report the rest of its rounds, and its end; see ``RecordedRun.end``."""
        try:
            self.rounds.turn()
        finally:
            self.recorded.end(**(told or self._ending()))

    def _ending(self) -> dict[str, Any]:
        if self.stopped:
            return {"outcome": "stopped"}
        if self.error is not None:
            return {"outcome": "error", "reason": self.error, "error": self.error}
        if self.success is None and self.recorded.decision.stop:
            return {"outcome": "unknown"}  # it was to stop, and nobody could stop it
        return {"success": self.success}


class Scope(NamedTuple):
    """Where something happens: in which run, and inside which of its tool calls, if any."""

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


def open_root_run(root: str, name: str, *, told: RunLabels, labels: RunLabels) -> AgentRun:
    """Open the run of an outermost ``Runner.run``.

    Args:
        root: id of its span.
        name: the agent that it starts with.
        told: what the metadata of the trace say; overrides ``labels``.
        labels: what the processor was given.
    """
    around = find_current_run()
    event = RunStarted(
        run=new_run_id(),
        agent=told.agent or name,
        task=told.task,
        task_group=told.task_group or labels.task_group or "",
        t_max=told.t_max or labels.t_max,
        memory=told.memory or labels.memory,
        parent=around.run.id if around else None,
        conversation=getattr(get_current_trace(), "group_id", None),
    )
    return AgentRun(root, get_recorder().start_run(event))


def open_child_run(root: str, name: str, *, around: Scope) -> AgentRun:
    """Open the run of an agent inside a run: as a tool, or in a guardrail.

    Args:
        root: id of its span.
        name: the agent.
        around: where it happens.
    """
    outer = around.run.recorded.event
    event = RunStarted(
        run=new_run_id(),
        agent=name,
        task_group=outer.task_group,
        memory=outer.memory,
        parent=outer.run,
        conversation=outer.conversation,
    )
    return AgentRun(root, get_recorder().start_run(event, around.context()), inner=True)
