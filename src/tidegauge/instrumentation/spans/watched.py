"""One run that the spans of others tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from opentelemetry.trace import SpanContext

from tidegauge.events import ABSENT, RunOutcome, RunStarted
from tidegauge.instrumentation.current import get_recorder
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.spans.genai import tool_result
from tidegauge.instrumentation.spans.nodes import Node
from tidegauge.instrumentation.spans.rounds import SpanRounds
from tidegauge.instrumentation.spans.span import NOT_TOLD, About, AgentSpan, SpanData, ToolSpan
from tidegauge.instrumentation.spans.values import control_flow, error_type, labels

__all__ = ["RunDefaults", "WatchedRun", "ending", "open_run"]

_STOPPED: Final = ("RunStopped", "GraphRunStopped")


class RunDefaults(NamedTuple):
    """What runs are known by where their spans don't say; ``None``: not said."""

    agent: str | None = None
    task_group: str | None = None
    t_max: int | None = None
    memory: str | None = None
    model: str | None = None

    def labels(self) -> dict[str, str]:
        """Those that spans can tell too."""
        told = {name: value for name, value in self._asdict().items() if value is not None}
        told.pop("model", None)
        return {name: str(value) for name, value in told.items()}


class WatchedRun:
    """One run.

    Attributes:
        recorded: takes its steps.
        rounds: its rounds.
        root: the span that it ends with; ``None``, it has.
        agent: the name that its spans know its agent by.
        scopes: the instrumentations that have shown it.
        traces: the traces that it is in.
        last_seen: when a span of it ended last, by the clock of the grouping.
        around: the run that it happens in, if any.
        handed_over: it is a step of that run: it was handed over to, by no tool.
    """

    __slots__ = (
        "agent",
        "around",
        "handed_over",
        "last_seen",
        "recorded",
        "root",
        "rounds",
        "scopes",
        "traces",
    )

    def __init__(
        self, recorded: RecordedRun, root: Node, agent: str, around: WatchedRun | None = None
    ) -> None:
        self.recorded = recorded
        self.rounds = SpanRounds(recorded)
        self.root: Node | None = root
        self.agent = agent
        self.scopes: set[str] = set()
        self.traces = {root.trace_id}
        self.last_seen = 0.0
        self.around = around
        self.handed_over = False

    def answer(self, span: SpanData, told: object) -> None:
        """Tell the run around it what it brought back, when it is a step of that run.

        Args:
            span: its root.
            told: what that tells.
        """
        if self.around is None or not self.handed_over:
            return
        asked: object = ABSENT
        answered: object = ABSENT
        if isinstance(told, AgentSpan):
            asked, answered = told.asked, told.answered
        step = ToolSpan(
            NOT_TOLD,
            self.recorded.event.agent,
            asked,
            None,
            tool_result(span, answered),
            span.failed and not control_flow(span),
        )
        self.around.rounds.tool(span, step, alone=True)

    def end(self, **told: Any) -> None:
        """Report the rest of its rounds, and its end; see ``RecordedRun.end``."""
        self.rounds.settle(then=partial(self.recorded.end, **told))


def open_run(
    run_id: str,
    root: Node,
    about: About,
    model: str | None,
    *,
    defaults: RunDefaults,
    resource: Mapping[str, Any],
    inner: Sequence[Node] = (),
    around: WatchedRun | None = None,
) -> WatchedRun:
    """Make a run, without spans of ours: they are somebody else's. Its first report opens it.

    Args:
        run_id: what it is called by.
        root: the span that it ends with.
        about: what the first call in it tells of it.
        model: name of the model that was called first.
        defaults: what holds where the spans don't say.
        resource: attributes of the process that made the spans.
        inner: the spans between the root and that call, innermost first.
        around: the run that it happens in.
    """
    told = root.about()
    for node in reversed(inner):
        told = told.filled_from(node.about())
    told = about.filled_from(told)
    name = root.about().agent or _plain(root.name) or told.agent or ""
    outer = around.recorded.event if around is not None else None
    said = dict(told.labels)
    if outer is None:
        said = {**labels(resource), **defaults.labels(), **said}
    elif said.get("agent") == outer.agent:
        del said["agent"]  # inherited with the rest of the metadata
    t_max = said.get("t_max", "")
    event = RunStarted(
        run=run_id,
        agent=said.get("agent") or name or _service(resource),
        task=said.get("task") or told.task,
        task_group=said.get("task_group") or (outer.task_group if outer else ""),
        t_max=int(t_max) if t_max.isdecimal() and int(t_max) > 0 else None,
        model=defaults.model or model,
        memory=said.get("memory") or (outer.memory if outer else None),
        parent=outer.run if outer else None,
        conversation=told.conversation or (outer.conversation if outer else None),
        trace_id=f"{root.trace_id:032x}",
    )
    recorded = get_recorder().make_run(event)
    theirs = SpanContext(root.trace_id, root.span_id, is_remote=False)
    watched = WatchedRun(recorded, root, name, around)
    watched.rounds.report_first(partial(recorded.start, None, theirs))
    return watched


def ending(span: SpanData) -> dict[str, Any]:
    """How a run ended, from its root: what ``RecordedRun.end`` takes."""
    if not span.failed:
        return {}
    kind = error_type(span)
    outcome: RunOutcome | None = "error"
    if control_flow(span):
        outcome = "stopped" if kind in _STOPPED else None
    return {"outcome": outcome, "reason": kind}


def _service(resource: Mapping[str, Any]) -> str:
    """The name of the process, where its user gave it one."""
    name = str(resource.get("service.name") or "")
    return "" if name.startswith("unknown_service") else name


def _plain(name: str) -> str:
    """A span's name without its operation.

    >>> _plain("invoke_agent helper"), _plain("helper.workflow"), _plain("helper")
    ('helper', 'helper', 'helper')
    """
    for operation in ("invoke_agent", "invoke_workflow", "execute_task"):
        name = name.removeprefix(operation)
    return name.removesuffix(".workflow").strip()
