"""Open spans as a tree, and the runs in it: what encloses what, and where a run begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from opentelemetry.trace import SpanContext

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, RunOutcome, RunStarted
from tidegauge.foreign_spans.agent_names import agent_in_name
from tidegauge.foreign_spans.convention_reader import (
    CONVENTIONS,
    OUR_SCOPE,
    may_enclose_run,
    read_span,
)
from tidegauge.foreign_spans.conventions.genai import tool_result
from tidegauge.foreign_spans.json_values import STOPPED, control_flow, error_type, labels
from tidegauge.foreign_spans.matching import SpanTurns
from tidegauge.foreign_spans.span import (
    NO_INFO,
    AgentSpan,
    Attributes,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.runs.recorder import RecordedRun, Recorder

MAX_DEPTH: Final = 1_000
"""How many spans around another are looked at."""

_MAX_INSIDE: Final = 1_000

_RUN_BYTES: Final = 6_000
_ENDED_BYTES: Final = 2_000
"""What a run takes without its turns and what is measured of it, and at most one that has ended."""

_TOOL: Final = "execute_tool "
_WRAPPING: Final = tuple(scope for one in CONVENTIONS for scope in one.wraps)


class OpenSpan(Protocol):
    """A span that is still open: its attributes so far, which may change."""

    @property
    def attributes(self) -> Attributes | None:
        """Its attributes so far."""


class Earliest(NamedTuple):
    """Of the spans that came before the span around them, the one that started first.

    Attributes:
        start: when, in nanoseconds.
        clock: the clock of that time.
        service: the process that made it.
    """

    start: int
    clock: str
    service: str

    @classmethod
    def of(cls, span: SpanData) -> Earliest:
        """What is kept of a span: its contents are not."""
        return cls(span.start, clock_of(span.resource), service_of(span.resource))


class Node:
    """A span's place among the others.

    Attributes:
        live: gives its attributes; the ended span itself, where that is at hand.
        run: the run that it is the root of.
        known: whether anything is known of it but that others are inside it.
        announced: what is known of it before it has ended: which agent it is.
        earliest: the span inside it that started first, of those that came before it.
        since: when the first model call inside it began, of those that came before it, in
            nanoseconds.
        until: when the last of the calls that wait for it ended.
        turns: how many model calls that chose tools wait for it.
        chose_until: when the last of these has ended, in nanoseconds.
        chose_by: the clock of that time, and the instrumentation that showed the call.
        beside: whether it is known to be at work at the same time as the run around it, so that
            it is not inside that run.
        in_tool: whether an agent inside it began while the run around it waited for a tool.
        joined: whether calls inside it were taken for calls of the run around it.
        ahead: whether a tool inside it has ended that the run around it has not chosen, so that it
            is not inside that run, or in a tool whose model call has not ended.
        agent_inside: the agent of the last run that ended inside it, as far as is known in no
            other run; empty, there was none. Over the wire only.
    """

    __slots__ = (
        *("_ended", "_reading", "agent_inside", "ahead", "announced", "beside", "chose_by"),
        *("chose_until", "earliest", "in_tool", "joined", "known", "live", "name", "parent", "run"),
        *("scope", "since", "span_id", "trace_id", "turns", "until"),
    )

    def __init__(
        self,
        trace_id: int,
        span_id: int,
        parent: Node | None,
        *,
        name: str,
        scope: str,
        live: OpenSpan | None,
        known: bool = True,
    ) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent = parent
        self.name = name
        self.scope = scope
        self.live = live
        self.run: ExternalRun | None = None
        self.known = known
        self.announced: AgentSpan | None = None
        self.earliest: Earliest | None = None
        self.since: int | None = None
        self.until = 0
        self.turns = 0
        self.chose_until = 0
        self.chose_by = ("", "")
        self.beside = False
        self.joined = False
        self.in_tool = False
        self.agent_inside = ""
        self.ahead = False
        self._ended: SpanData | None = None
        self._reading: object = None

    @property
    def attributes(self) -> Attributes:
        """What is known of it so far."""
        return (self.live.attributes if self.live is not None else None) or {}

    def reading(self) -> object:
        """What it is, by what is known of it so far; an ended span is read once."""
        live = self.live
        if isinstance(live, SpanData):
            if self._ended is not live:
                self._ended, self._reading = live, read_span(live)
            return self._reading
        if live is None and self.announced is not None:
            return self.announced
        ids = (self.trace_id, self.span_id, None)
        return read_span(SpanData(*ids, self.name, self.scope, self.attributes, 0, 0))

    def let_go(self) -> None:
        """It has ended: children that outlive it do not need what it said."""
        self.live = self._ended = self._reading = None

    def info(self) -> RunInfo:
        """What is known of its run so far."""
        reading = self.reading()
        return reading.info if isinstance(reading, AgentSpan) else NO_INFO

    def lineage(self) -> Iterator[Node]:
        """The spans around it, innermost first, without our own."""
        node = self.parent
        for _ in range(MAX_DEPTH):
            if node is None:
                return
            if node.scope != OUR_SCOPE:
                yield node
            node = node.parent
        if node is not None:
            span_faults.repair("depth")

    def way_out(self) -> tuple[ExternalRun | None, list[Node]]:
        """The innermost run around it, and the spans between, innermost first.

        Without a run, these are all spans around it.
        """
        inner: list[Node] = []
        node = self.parent
        for _ in range(MAX_DEPTH):
            if node is None:
                return None, inner
            if node.scope != OUR_SCOPE:
                if node.run is not None:
                    return node.run, inner
                inner.append(node)
            node = node.parent
        if node is not None:
            span_faults.repair("depth")
        return None, inner

    def enclosing_run(self) -> ExternalRun | None:
        """The innermost run that it is in."""
        return self.run if self.run is not None else self.way_out()[0]


def root_of(around: Sequence[Node], scope: str) -> Node | None:
    """The root of the run of a call in none so far.

    Of a span that nothing is known of, it is taken to be one; an agent inside it goes before. Over
    the wire, nothing is known of the spans around a call until they have ended.

    Args:
        around: the spans around the call, innermost first.
        scope: the instrumentation that shows the call.
    """
    if around and not around[-1].known:
        return next((node for node in reversed(around) if _surely_agent(node)), around[-1])
    enclosing = [(node, may_enclose_run(node.name, node.attributes, node.scope)) for node in around]
    known = [node for node, encloses in enclosing if encloses]
    if known:
        return known[-1]
    perhaps = [node for node, encloses in enclosing if encloses is None and node.scope == scope]
    return perhaps[-1] if perhaps else None


def tool_around(
    around: Sequence[Node], waiting: Collection[str], *, unknown: bool = False
) -> Node | None:
    """The outermost tool call around another call, inside their run.

    Args:
        around: the spans between the call and its run, innermost first.
        waiting: names of the tools that the run waits for: a span without attributes before it
            ends is one of them, if it has such a name.
        unknown: whether a span that nothing is known of counts as a tool call.
    """
    for node in reversed(around):
        if not node.known:
            if unknown or node.in_tool:
                return node
            continue
        attributes = node.attributes
        # By name: OpenInference for LangChain sets attributes at the end, and the GenAI conventions
        # (the Vercel AI SDK 7 among those who follow them) name the operation first.
        if node.name.startswith(_TOOL) or (not attributes and node.name in waiting):
            return node
        if attributes and isinstance(node.reading(), ToolSpan):
            return node
    return None


def child_root(
    around: Sequence[Node], tool: Node | None, info: RunInfo, agent: str | None
) -> Node | None:
    """The root of a run inside the run around it; ``None``, the call belongs to that one.

    Args:
        around: the spans between the call and the run around it, innermost first.
        tool: the outermost tool call among them.
        info: what the call shows of its run.
        agent: the agent of the run around it.
    """
    inside = around
    if tool is not None:  # one that nothing is known of may be the agent in the tool
        inside = around[: around.index(tool) + (not tool.known)]
    for node in reversed(inside):
        reading = node.reading()
        if isinstance(reading, AgentSpan) and reading.sure:
            name = reading.info.agent
            if tool is not None or (name is not None and name != agent):
                return node
    if info.agent is None or info.agent == agent:
        return None
    if tool is not None:
        # deepagents (0.7), by OpenInference: the calls in the tool `task` name the sub-agent, whose
        # span is a chain's.
        return inside[-1] if inside else None
    names = (info.agent, f"invoke_agent {info.agent}", f"execute_task {info.agent}")
    named = (node for node in reversed(inside) if node.name in names or not node.known)
    return next(named, None)


def _surely_agent(node: Node) -> bool:
    reading = node.reading() if node.known or node.announced is not None else None
    return isinstance(reading, AgentSpan) and reading.sure


class RunDefaults(NamedTuple):
    """Labels of runs whose spans have none; ``None``: not given."""

    agent: str | None = None
    task_group: str | None = None
    t_max: int | None = None
    memory: str | None = None
    model: str | None = None

    def labels(self) -> dict[str, str]:
        """Those that spans can have, too."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        given.pop("model", None)
        return {name: str(value) for name, value in given.items()}


class ExternalRun:
    """One run.

    Attributes:
        root: the span that it ends with; ``None``, it has.
        agent: the name that its spans know its agent by, as far as is known.
        called: the name that its first call has given; empty, none.
        service: the name of the process that made its spans.
        scopes: the instrumentations that have shown it.
        last_seen: when a span of it ended last, by the clock of the grouping.
        around: the run that it happens in, if any.
        children: the open runs inside it, without those inside these.
        inside: the last run inside it of each agent, by its name.
        earlier: ids of runs inside it that ended before it was known.
        handed_over: it is a step of that run: it was handed over to, by no tool.
        chose_until: when the last of its model calls that chose tools has ended, in nanoseconds;
            0, there was none.
        chose_by: the clock of that time, and the instrumentation that showed the call.
        accompanied: whether another run was at work in its trace at the same time.
        direct: whether its root is around such calls with nothing in between, or with spans that
            end before the tools that were chosen; where no models are shown, around tools.
        unsure: the spans that may be inside this run, or at work beside it, and whose calls wait.
        incomplete: whether spans between its root and its calls never arrive.
        size: bytes of memory that it took when that was last counted, about.
    """

    __slots__ = (
        *("_opened_as", "accompanied", "agent", "around", "called", "children", "chose_by"),
        *("chose_until", "direct", "earlier", "handed_over", "incomplete", "inside", "last_seen"),
        *("recorded", "root", "scopes", "service", "size", "traces", "turns", "unsure"),
    )

    def __init__(
        self,
        recorded: RecordedRun,
        root: Node,
        agent: str,
        around: ExternalRun | None = None,
        service: str = "",
    ) -> None:
        self.recorded = recorded
        self.turns = SpanTurns(recorded)
        self.root: Node | None = root
        self.agent = agent
        self.called = ""
        self.service = service
        self.scopes: set[str] = set()
        self.traces = {root.trace_id}
        self.last_seen = 0.0
        self.around = around
        self.children: list[ExternalRun] = []
        if around is not None:
            around.children.append(self)
        self.inside: dict[str, ExternalRun] = {}
        self._opened_as = agent
        if around is not None and agent and len(around.inside) < _MAX_INSIDE:
            around.inside[agent] = self
        self.earlier: list[str] = []
        self.handed_over = False
        self.chose_until = 0
        self.chose_by = ("", "")
        self.accompanied = False
        self.direct = False
        self.unsure: list[Node] = []
        self.incomplete = False
        self.size = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that it takes, about, with what is measured of it."""
        ended_inside = _ENDED_BYTES * (len(self.inside) + len(self.earlier))
        return _RUN_BYTES + ended_inside + self.turns.held_bytes + self.recorded.held_bytes

    def handed_on(self) -> ExternalRun:
        """The run inside it that hands over to the next agent; itself, if there is none."""
        last = next(reversed(self.inside.values()), None)
        if last is None or last.chose_until < self.chose_until or not last.turns.hands_over():
            return self  # it may have chosen since
        return last.handed_on()

    def hands_over(self) -> bool:
        """Whether its last step is the call that hands over to another agent.

        In a graph of agents, the other agent's visit is a step of the graph, too, whose result is
        what that agent found.
        """
        if self.root is None or not _is_wrapper(self.root):
            return False
        return self.turns.goes_on() or not self.turns.shows_calls

    def report_result(self, span: SpanData, reading: object) -> None:
        """Report its result to the run around it, when it is a step of that run."""
        if self.around is None or not self.handed_over:
            return
        asked: object = ABSENT
        answered: object = ABSENT
        if isinstance(reading, AgentSpan):
            asked, answered = reading.asked, reading.answered
        step = ToolSpan(
            NO_INFO,
            self.recorded.event.agent,
            asked,
            None,
            tool_result(span, answered),
            span.failed and not control_flow(span),
        )
        self.around.turns.tool(span, step, alone=True)

    def end(self, **ending: Any) -> None:
        """Report the rest of its turns, and its end; see ``RecordedRun.end``."""
        if self.around is not None and self in self.around.children:
            self.around.children.remove(self)
        around = None if self.turns.hands_over() else self.around
        if around is not None and around.inside.get(self._opened_as) is self:
            del around.inside[self._opened_as]
        name = self.agent if self.agent != self.recorded.event.agent else ""
        ending |= {"agent_name": name or None, "children": tuple(self.earlier)}
        self.turns.settle(then=partial(self.recorded.end, **ending))


def open_run(
    run_id: str,
    root: Node,
    info: RunInfo,
    model: str | None,
    *,
    recorder: Recorder,
    defaults: RunDefaults,
    resource: Mapping[str, Any],
    inner: Sequence[Node] = (),
    around: ExternalRun | None = None,
    shown: str | None = None,
) -> ExternalRun:
    """Make a run, without spans of ours. Its first report opens it.

    Args:
        info: what the first call in it shows of it.
        model: name of the model that was called first.
        defaults: labels of runs whose spans have none.
        inner: the spans between the root and that call, innermost first.
        shown: the name of the only agent that the process has shown before.
    """
    known = root.info()
    for node in reversed(inner):
        known = known.filled_from(node.info())
    known = info.filled_from(known)
    name = root.info().agent or ("" if _is_wrapper(root) else agent_in_name(root.name))
    name = name or known.agent or ""
    service = service_of(resource)
    outer = around.recorded.event if around is not None else None
    given = dict(known.labels)
    if outer is None:
        given = {**labels(resource), **defaults.labels(), **given}
    elif given.get("agent") == outer.agent:
        del given["agent"]  # inherited with the rest of the metadata
    t_max = given.get("t_max", "")
    event = RunStarted(
        run=run_id,
        agent=given.get("agent") or name or shown or service,
        task=given.get("task") or known.task,
        task_group=given.get("task_group") or (outer.task_group if outer else ""),
        t_max=int(t_max) if t_max.isdecimal() and int(t_max) > 0 else None,
        model=defaults.model or model,
        memory=given.get("memory") or (outer.memory if outer else None),
        parent=outer.run if outer else None,
        conversation=known.conversation or (outer.conversation if outer else None),
        trace_id=f"{root.trace_id:032x}",
        span_id=f"{root.span_id:016x}",
    )
    recorded = recorder.make_run(event)
    theirs = SpanContext(root.trace_id, root.span_id, is_remote=False)
    run = ExternalRun(recorded, root, name, around, service)
    run.called = info.agent or ""
    run.turns.report_first(partial(recorded.start, None, theirs))
    return run


def _is_wrapper(root: Node) -> bool:
    """Whether a root that names no agent is not one itself, but goes around the agents of a task.

    Others, such as LangGraph's, are agents that their users named.
    """
    return root.scope.endswith(_WRAPPING)


def ending(span: SpanData) -> dict[str, Any]:
    """How a run ended, from its root: what ``RecordedRun.end`` takes."""
    if not span.failed:
        return {}
    kind = error_type(span)
    outcome: RunOutcome | None = "error"
    if control_flow(span):
        outcome = "stopped" if kind in STOPPED else None
    return {"outcome": outcome, "reason": kind}


def service_of(resource: Mapping[str, Any]) -> str:
    """The name of the process, where its user gave it one."""
    name = str(resource.get("service.name") or "")
    return "" if name.startswith("unknown_service") else name
