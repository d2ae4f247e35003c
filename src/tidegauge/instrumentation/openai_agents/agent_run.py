"""One run of an agent, as the spans of the Agents SDK share it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeAlias

from agents import AgentsException, get_current_trace
from opentelemetry.trace import Span

from tidegauge.errors import RunStopped
from tidegauge.events import RunStarted
from tidegauge.runs.current import get_recorder
from tidegauge.runs.open_run import find_current_run
from tidegauge.runs.recorder import RecordedRun, new_run_id
from tidegauge.runs.request_metadata import RunLabels, request_labels, run_labels
from tidegauge.runs.run_map import RunScope
from tidegauge.runs.turns import TurnTracker
from tidegauge.tracer import CallFailure


class AgentRunStopped(RunStopped, AgentsException):
    """A policy ended the run.

    As an exception of the SDK's own it is not wrapped on its way out, and carries ``run_data``:
    the input, the items and the responses of all turns before the one that was stopped.
    """


class AgentRun:
    """One run.

    Attributes:
        root: id of the span that it is.
        traced: whether spans are made for its calls: they are recorded, or their time is.
        models: spans of its open model calls, by the ids of the SDK's spans.
        asked: span of the model call that a hook opened, until a span of the SDK's takes it.
        hooked: our hooks take part in it: they report what the model answered.
        inner: it happens inside another run of the SDK's.
        watched_only: after a fault of ours, nothing is decided any more.
        stopped: the deliberate stop was raised.
        success: whether the task was solved, as far as it is known.
        error: what went wrong with an agent, as its span reports it.
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
        "stopped",
        "success",
        "traced",
        "turns",
        "watched_only",
    )

    def __init__(self, root: str, recorded: RecordedRun, *, inner: bool = False) -> None:
        self.root = root
        self.inner = inner
        self.recorded = recorded
        self.traced = recorded.calls_wanted
        self.turns = TurnTracker(recorded, sequential=True)
        self.models: dict[str, Span] = {}
        self.asked: Span | None = None
        self.hooked = False
        self.watched_only = False
        self.stopped = False
        self.success: bool | None = None
        self.error: CallFailure | None = None
        self.held = False
        self.last_seen = 0.0
        self.open_ids: OrderedDict[str, None] = OrderedDict()

    def enforce(self, calls: int = 0) -> None:
        """Raise the deliberate stop, if the policy stops the run."""
        if self.recorded.decision.action == "stop" and not self.watched_only:
            self.stopped = True
            self.recorded.enforce(AgentRunStopped, calls=calls)

    def end(self, **ending: Any) -> None:
        """Report the rest of its turns, and its end; see ``RecordedRun.end``."""
        try:
            self.turns.next_turn(ends=True)
        finally:
            self.recorded.end(**(ending or self._ending()))

    def _ending(self) -> dict[str, Any]:
        if self.stopped:
            return {"outcome": "stopped"}
        if self.error is not None:
            return {"outcome": "error", "reason": self.error.kind, "error": self.error}
        if self.success is None and self.recorded.decision.stop:
            return {"outcome": "unknown"}  # the policy stopped it, and nothing could enforce that
        return {"success": self.success}


Scope: TypeAlias = RunScope[AgentRun]


def open_root_run(
    root: str, name: str, metadata: Mapping[str, Any], *, labels: RunLabels
) -> AgentRun:
    """Open the run of an outermost ``Runner.run``.

    Args:
        metadata: those of the trace; override ``labels``.
    """
    given = run_labels(metadata)
    around = find_current_run()
    event = RunStarted(
        run=new_run_id(),
        agent=given.agent or name,
        task=given.task,
        task_group=given.task_group or labels.task_group or "",
        t_max=given.t_max or labels.t_max,
        memory=given.memory or labels.memory,
        parent=around.run.id if around else None,
        conversation=getattr(get_current_trace(), "group_id", None),
    )
    request = request_labels(metadata, metadata.get("tags"))
    return AgentRun(root, get_recorder().start_run(event, request=request))


def open_child_run(root: str, name: str, *, around: Scope) -> AgentRun:
    """Open the run of an agent inside a run: as a tool, or in a guardrail."""
    outer = around.run.recorded.event
    event = RunStarted(
        run=new_run_id(),
        agent=name,
        task_group=outer.task_group,
        memory=outer.memory,
        parent=outer.run,
        conversation=outer.conversation,
    )
    request = around.run.recorded.request
    recorded = get_recorder().start_run(event, around.context(), request=request)
    return AgentRun(root, recorded, inner=True)
