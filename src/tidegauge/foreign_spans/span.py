"""A span of another instrumentation, and what it is for a run: plain records, no SDK.

The in-process processor makes a :class:`SpanData` of each span of the SDK, a receiver of each span
that comes over the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.events import ABSENT, CallResult
from tidegauge.runs.turn_calls import ChosenCall

Attributes: TypeAlias = Mapping[str, Any]

UNKNOWN_ARGUMENTS: Final[list[object]] = []
"""Arguments that were not captured. A list that holds itself equals nothing when it is digested,
itself included: calls whose arguments are not known are never taken for the same call."""
UNKNOWN_ARGUMENTS.append(UNKNOWN_ARGUMENTS)


_NOTHING: Final[Attributes] = {}


class SpanData(NamedTuple):
    """A span that has ended.

    Args:
        trace_id: its trace.
        span_id: its id.
        parent_id: id of its parent; ``None``, it has none.
        name: its name.
        scope: name of the instrumentation that made it.
        attributes: its attributes; JSON texts or structures, as they came.
        start: nanoseconds since the epoch.
        end: nanoseconds since the epoch.
        failed: whether its status is an error.
        description: of its status.
        events: (name, attributes) of its events.
        resource: attributes of the process that made it, where they came with it.
        remote: whether its parent is known to be in another process.
        size: bytes of memory that it takes, about, if it came over the wire.
        read: what it is, where it was read in another process; ``None``, it was not read yet.
        event: whether it is no span, but an event of the span with its ids that came apart from
            it, as a log record: its name, attributes, size, and as start and end its time.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    scope: str
    attributes: Attributes
    start: int
    end: int
    failed: bool = False
    description: str | None = None
    events: Sequence[tuple[str, Attributes]] = ()
    resource: Attributes = _NOTHING
    remote: bool = False
    size: int = 0
    read: ReadSpan | None = None
    event: bool = False


_PROCESS: Final = ("host.id", "host.name", "service.name", "service.instance.id")


def clock_of(resource: Attributes) -> str:
    """The clock of a process: that of its host, else its own; empty, not known.

    >>> clock_of({"host.name": "a", "service.name": "search"}), clock_of({"service.name": "search"})
    ('a', 'search/')
    """
    host_id, host, service, instance = map(resource.get, _PROCESS)
    if host_id or host:
        return str(host_id or host)
    return f"{service or ''}/{instance or ''}" if service or instance else ""


class RunInfo(NamedTuple):
    """What any span may show of the run that it belongs to; ``None``: not known.

    Args:
        agent: name of the agent.
        conversation: id of the conversation or thread.
        task: the task, in words.
        labels: labels that the user gave, by the names of ``tidegauge.run()``'s arguments.
    """

    agent: str | None = None
    conversation: str | None = None
    task: str | None = None
    labels: Mapping[str, str] = {}

    def filled_from(self, other: RunInfo) -> RunInfo:
        """With what ``other`` knows and this does not.

        >>> RunInfo(agent="a").filled_from(RunInfo("b", task="find the key"))
        RunInfo(agent='a', conversation=None, task='find the key', labels={})
        """
        return RunInfo(
            self.agent or other.agent,
            self.conversation or other.conversation,
            self.task or other.task,
            {**other.labels, **self.labels},
        )


class AgentSpan(NamedTuple):
    """An agent, a chain or a workflow.

    Args:
        info: of its run.
        sure: it says that it is an agent, and not less.
        asked: how its input ends; absent, not captured.
        answered: how its output ends; absent, not captured.
        early: it may end before what it has started.
    """

    info: RunInfo = RunInfo()
    sure: bool = True
    asked: object = ABSENT
    answered: object = ABSENT
    early: bool = False


class ModelSpan(NamedTuple):
    """A model call.

    Args:
        info: of its run.
        calls: the tool calls that it chose; ``None``, the span does not show them.
        tokens: tokens of both directions together; ``None``, not known.
        answers: (id of a call, its result) at the end of what the model was shown.
        model: name of the model.
        failed: whether the call failed.
    """

    info: RunInfo = RunInfo()
    calls: tuple[ChosenCall, ...] | None = None
    tokens: int | None = None
    answers: tuple[tuple[str, CallResult], ...] = ()
    model: str | None = None
    failed: bool = False


class ToolSpan(NamedTuple):
    """A tool call that has ended.

    Args:
        info: of its run.
        name: the tool's name.
        arguments: its arguments; absent, not captured.
        id: the model's id of the call.
        result: what it returned.
        raised: whether it raised, and so may be tried again.
    """

    info: RunInfo
    name: str
    arguments: object = ABSENT
    id: str | None = None
    result: CallResult = CallResult()
    raised: bool = False


class Announcement(NamedTuple):
    """Another span of the trace, which is still open, is an agent.

    Args:
        span_id: id of the agent's span.
        parent_id: id of its parent; ``None``, it has none.
        name: its name.
        agent: name of the agent; ``None``, not known yet.
    """

    span_id: int
    parent_id: int | None
    name: str
    agent: str | None = None


CALLS: Final = (ModelSpan, ToolSpan)
"""The spans that are calls, for ``isinstance``: a union takes longer."""

KnownSpan: TypeAlias = AgentSpan | ModelSpan | ToolSpan | Announcement
NO_INFO: Final = RunInfo()


class ReadSpan(NamedTuple):
    """What was read of a span where its attributes and events were at hand.

    Args:
        reading: what it is; ``None``, nothing of an agent's run.
        error: name of the exception that it ended with.
        failure: text of its failure.
    """

    reading: KnownSpan | None = None
    error: str | None = None
    failure: str | None = None
