"""A span of another instrumentation, and what it is for a run: plain records, no SDK.

The in-process processor makes a :class:`SpanData` of each span of the SDK, a receiver of each span
that comes over the wire.

What is behind the processor never meets an object of the user's. A span of another SDK may hold
anything, and ``str()``, ``==`` and even ``isinstance`` run code of what they are given. So the
attributes are copied once, by the real types of their values, before anything reads them. What
OpenTelemetry does not allow as an attribute is left out, as its own SDK does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, CallResult
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.values.attributes import exact_text

Attributes: TypeAlias = Mapping[str, Any]

UNKNOWN_ARGUMENTS: Final[list[object]] = []
"""Arguments that were not captured. A list that holds itself equals nothing when it is digested,
itself included: calls whose arguments are not known are never taken for the same call."""
UNKNOWN_ARGUMENTS.append(UNKNOWN_ARGUMENTS)


_NOTHING: Final[Attributes] = {}


class SpanData(NamedTuple):
    """A span that has ended.

    Args:
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
        calls: the tool calls that it chose; ``None``, the span does not show them.
        tokens: tokens of both directions together; ``None``, not known.
        answers: (id of a call, its result) at the end of what the model was shown.
        parts: the tokens apart, where they were read in another process.
    """

    info: RunInfo = RunInfo()
    calls: tuple[ChosenCall, ...] | None = None
    tokens: int | None = None
    answers: tuple[tuple[str, CallResult], ...] = ()
    model: str | None = None
    failed: bool = False
    parts: tuple[int | None, ...] = ()


class ToolSpan(NamedTuple):
    """A tool call that has ended.

    Args:
        arguments: its arguments; absent, not captured.
        id: the model's id of the call.
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


MAX_READ: Final = 1 << 20
"""Characters that are looked into; a longer text is only ever passed on."""

_MAX_ITEMS: Final = 10_000
_MAX_DEPTH: Final = 64
_INT_BITS: Final = 64


class LiveAttributes:
    """The attributes of a span that is still open, as plain data."""

    __slots__ = ("_span",)

    def __init__(self, span: Any) -> None:
        self._span = span

    @property
    def attributes(self) -> Attributes:
        """Those that it has so far."""
        return plain_attributes(self._span.attributes, count=False)


def plain_attributes(attributes: Mapping[str, Any] | None, *, count: bool = True) -> Attributes:
    """Attributes without those that OpenTelemetry does not allow.

    Args:
        count: whether those that are left out are counted.

    >>> plain_attributes({"a": 1, "b": ("x", {"y": None}), "c": object()})
    {'a': 1, 'b': ['x', {'y': None}]}
    """
    found: dict[str, Any] = {}
    if attributes is None:
        return found
    copy = getattr(attributes, "copy", None)  # at once, where the SDK has it: a span may be open
    held = dict(attributes) if copy is None else copy()
    for name, value in held.items():
        kind = type(value)
        if (kind is str or kind is bool or kind is float) and type(name) is str:
            found[name] = value
            continue
        plain = plain_value(value)
        if plain is not ABSENT:
            found[plain_name(name)] = plain
        elif count:
            span_faults.repair("unreadable")
    return found


def plain_name(name: object) -> str:
    """A name as a plain text; what is none is empty."""
    return name if type(name) is str else exact_text(name)


def plain_value(value: object) -> Any:
    """A copy of a value in plain data: lists, mappings, and leaves; absent, it is none.

    A container of a leaf that is not plain data equals nothing.

    >>> plain_value((1, {"a": None})), plain_value(1 << 70), plain_value(object())
    ([1, {'a': None}], ABSENT, ABSENT)
    """
    try:
        return _copy(value, [_MAX_ITEMS, MAX_READ], 0)
    except (_TooLargeError, RuntimeError):  # or changed while it was read
        return ABSENT


class _TooLargeError(Exception):
    """The value has too many items, too many characters, or too many levels."""


def _copy(value: Any, room: list[int], depth: int) -> Any:
    """The copy of a value; ``room`` is what is left of the items and of the characters."""
    kind = type(value)
    if kind is str:
        return _text(value, room, depth)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if value.bit_length() <= _INT_BITS else _unknown(depth)
    if kind is list or kind is tuple:
        _enter(len(value), room, depth)
        return [_copy(item, room, depth + 1) for item in list(value)]
    if kind is dict:
        _enter(len(value), room, depth)
        found: dict[str, Any] = {}
        for name, item in list(value.items()):
            if not issubclass(type(name), str):
                return _unknown(depth)
            found[_text(name, room, depth + 1)] = _copy(item, room, depth + 1)
        return found
    if kind is bytes:
        if depth:
            _take(len(value), room)
        return value
    return _of_subclass(kind, value, room, depth)


def _of_subclass(kind: type, value: Any, room: list[int], depth: int) -> Any:
    """The same of a class that is made of a plain one, such as a member of an enumeration."""
    if issubclass(kind, str):
        return _text(value, room, depth)
    if issubclass(kind, int):
        return _copy(int.__int__(value), room, depth)
    if issubclass(kind, float):
        return float.__float__(value)
    return _unknown(depth)


def _text(value: Any, room: list[int], depth: int) -> str:
    """A text; only one that is an attribute by itself may be of any length."""
    if depth or type(value) is not str:
        _take(str.__len__(value), room)
    return value if type(value) is str else str.__str__(value)


def _enter(items: int, room: list[int], depth: int) -> None:
    room[0] -= 1 + items
    if room[0] < 0 or depth >= _MAX_DEPTH:
        raise _TooLargeError


def _take(characters: int, room: list[int]) -> None:
    room[1] -= characters
    if room[1] < 0:
        raise _TooLargeError


def _unknown(depth: int) -> Any:
    """The replacement of a leaf that is not plain data."""
    return UNKNOWN_ARGUMENTS if depth else ABSENT
