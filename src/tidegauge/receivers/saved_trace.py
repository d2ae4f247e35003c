"""What an assembly holds of a trace as plain data (JSON), so that another process can continue it.

Objects refer to one another, and are read without running any of the data. Only those of given
classes have a plain form, with every attribute that is not named here. An attribute that has the
value of a new object is left out, and an attribute that is missing on the way back gets that value:
so a later release can read the state of an earlier one that did not have the attribute.

Plain data are ``None``, truth values, numbers and texts as they are; everything else is a list that
begins with its kind.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer

from tidegauge.events import ABSENT, CallResult, RunStarted
from tidegauge.foreign_spans.dedupe import Interval, SeenModel
from tidegauge.foreign_spans.external_run import Earliest, ExternalRun, Node
from tidegauge.foreign_spans.matching import SpanCall, SpanTurn, SpanTurns
from tidegauge.foreign_spans.span import (
    UNKNOWN_ARGUMENTS,
    AgentSpan,
    ModelSpan,
    ReadSpan,
    RunInfo,
    SpanData,
    ToolSpan,
)
from tidegauge.receivers.span_events import WaitingEvents
from tidegauge.receivers.trace_state import OpenTrace, ParentlessRuns
from tidegauge.runs.recorder import RecordedRun, Recorder
from tidegauge.runs.turn_calls import ChosenCall, OpenTurns
from tidegauge.tracer import SpanFactory

Plain: TypeAlias = Any
_PLAIN: Final = frozenset({type(None), bool, str})
_LEAST: Final = -(1 << 63)  # of the integers that JSON has everywhere
_MOST: Final = (1 << 64) - 1
_LOCK: Final = type(threading.Lock())


class _Kind(IntEnum):
    OBJECT = 0
    LIST = 1
    TUPLE = 2
    DICT = 3
    SET = 4
    DEQUE = 5
    ORDERED = 6
    INTEGER = 7
    CONSTANT = 8
    RECORD = 9
    NOT_FINITE = 10
    SHARED = 11


_LISTS: Final[dict[type, _Kind]] = {list: _Kind.LIST, tuple: _Kind.TUPLE, deque: _Kind.DEQUE}


class Kept(NamedTuple):
    """A class whose objects have a plain form.

    Args:
        kind: the class.
        new: makes a new object, whose values are the defaults.
        omitted: attributes that are not kept: they are as in a new object.
    """

    kind: type
    new: Callable[[], object]
    omitted: Collection[str] = ()


class PlainObjects:
    """Writes and reads objects of given classes.

    Args:
        objects: the classes of objects that others refer to. Their order is part of the plain form.
        records: the classes of named tuples. Their order is part of the plain form, too.
        constants: values that are one object everywhere.
        shared: those of the named tuples that several objects have, each with the function that
            leaves out what need not be kept of one. Each is written once.

    >>> class Place:
    ...     def __init__(self) -> None:
    ...         self.name, self.near = "", set()
    >>> here, there = Place(), Place()
    >>> here.name, here.near, there.near = "here", {there}, {here}
    >>> plain = PlainObjects([Kept(Place, Place)], [], [])
    >>> data = plain.write({"start": here})
    >>> again = plain.read(data)["start"]
    >>> [there] = again.near
    >>> again.name, there.name, there.near == {again}
    ('here', '', True)
    """

    def __init__(
        self,
        objects: Sequence[Kept],
        records: Sequence[type],
        constants: Sequence[object],
        shared: Collection[type] = (),
    ) -> None:
        self._numbers = {kept.kind: number for number, kept in enumerate(objects)}
        self._kinds = [kept.kind for kept in objects]
        self._defaults = [_defaults(kept) for kept in objects]
        self._written = [
            {name: one for name, one in defaults.items() if name not in kept.omitted}
            for kept, defaults in zip(objects, self._defaults, strict=True)
        ]
        self._records = {kind: (number, _trailing(kind)) for number, kind in enumerate(records)}
        self._shared = shared
        self._record_kinds: list[Any] = list(records)
        self._constants = list(constants)

    def write(self, root: object) -> Plain:
        """The plain form of a value, and of all that it refers to.

        Raises:
            TypeError: something has no plain form.
        """
        writer = _Writer(self._numbers, self._written, self._records, self._constants, self._shared)
        written = writer.value(root)
        return [written, writer.objects(), writer.shared]

    def read(self, plain: Plain, **attributes: Mapping[str, Any]) -> Any:
        """The value that :meth:`write` was called with.

        Args:
            plain: its plain form.
            attributes: by the name of a class, what its objects have that is not kept.

        Raises:
            ValueError: it has another form.
        """
        try:
            root, rows, shared = plain
            made = [self._kinds[row[0]].__new__(self._kinds[row[0]]) for row in rows]
            reader = _Reader(made, self._record_kinds, self._constants)
            for one in shared:
                reader.shared.append(reader.value(one))
            for one, (number, fields) in zip(made, rows, strict=True):
                for name, default in self._defaults[number].items():
                    if name in fields:
                        value = reader.value(fields[name])
                    else:
                        value = default() if callable(default) else default
                    object.__setattr__(one, name, value)
                for name, value in attributes.get(type(one).__name__, {}).items():
                    object.__setattr__(one, name, value)
            return reader.value(root)
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"the state of spans has another form: {error}") from error


class _Writer:
    def __init__(
        self,
        numbers: Mapping[type, int],
        defaults: Sequence[Mapping[str, Any]],
        records: Mapping[type, tuple[int, Sequence[Any]]],
        constants: Sequence[object],
        shared: Collection[type],
    ) -> None:
        self.shared: list[Plain] = []  # the records that several objects have
        self._shared_kinds = shared
        self._shared: dict[int, int] = {}
        self._numbers = numbers
        self._defaults = defaults
        self._records = records
        self._constants = {id(one): number for number, one in enumerate(constants)}
        self._found: list[object] = []
        self._places: dict[int, int] = {}

    def objects(self) -> list[Plain]:
        """All objects that were met."""
        rows: list[Plain] = []
        while len(rows) < len(self._found):  # each may lead to others
            one = self._found[len(rows)]
            number = self._numbers[type(one)]
            fields = {}
            for name, default in self._defaults[number].items():
                value = getattr(one, name, default)
                if not _is_default(value, default):
                    fields[name] = self.value(value)
            rows.append([number, fields])
        return rows

    def value(self, value: Any) -> Plain:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if _LEAST <= value <= _MOST else [_Kind.INTEGER, f"{value:x}"]
        if kind is float:
            return value if math.isfinite(value) else [_Kind.NOT_FINITE, repr(value)]
        if kind in self._numbers:
            place = self._places.get(id(value))
            if place is None:
                place = self._places[id(value)] = len(self._found)
                self._found.append(value)
            return [_Kind.OBJECT, place]
        if kind in self._shared_kinds:
            place = self._shared.get(id(value))
            if place is None:
                self.shared.append(self._record(value))
                place = self._shared[id(value)] = len(self.shared) - 1
            return [_Kind.SHARED, place]
        if kind in self._records:
            return self._record(value)
        constant = self._constants.get(id(value))
        if constant is not None:
            return [_Kind.CONSTANT, constant]
        if kind is dict or kind is OrderedDict:
            plain: list[Plain] = [_Kind.DICT if kind is dict else _Kind.ORDERED]
            self._add_all(value, plain)
            self._add_all(value.values(), plain)
            return plain
        if kind is set:
            ordered: list[Plain] = []
            self._add_all(value, ordered)
            return [_Kind.SET, *sorted(ordered, key=repr)]  # equal sets have one form
        if kind not in _LISTS:
            raise TypeError(f"no plain form for {kind.__name__}")
        plain = [_LISTS[kind]]
        if kind is deque:
            plain.append(value.maxlen)
        self._add_all(value, plain)
        return plain

    def _record(self, value: Any) -> Plain:
        number, defaults = self._records[type(value)]
        length = len(value)
        for default in defaults:  # from the last one
            last = value[length - 1]
            if last is not default and (type(last) is not type(default) or last != default):
                break
            length -= 1
        plain = [_Kind.RECORD, number]
        self._add_all(value[:length], plain)
        return plain

    def _add_all(self, values: Iterable[Any], plain: list[Plain]) -> None:
        for value in values:
            kind = type(value)
            if kind in _PLAIN or (kind is int and _LEAST <= value <= _MOST):
                plain.append(value)
            else:
                plain.append(self.value(value))


class _Reader:
    def __init__(
        self, objects: Sequence[Any], records: Sequence[Any], constants: Sequence[object]
    ) -> None:
        self.shared: list[Any] = []
        self._objects = objects
        self._records = records
        self._constants = constants

    def value(self, plain: Plain) -> Any:
        if type(plain) is not list:
            return plain
        kind = plain[0]
        if kind == _Kind.OBJECT:
            return self._objects[plain[1]]
        if kind == _Kind.SHARED:
            return self.shared[plain[1]]
        if kind == _Kind.RECORD:
            return self._records[plain[1]](*self._all(plain[2:]))
        if kind == _Kind.LIST:
            return self._all(plain[1:])
        if kind == _Kind.TUPLE:
            return tuple(self._all(plain[1:]))
        if kind == _Kind.SET:
            return set(self._all(plain[1:]))
        if kind == _Kind.DEQUE:
            return deque(self._all(plain[2:]), maxlen=plain[1])
        if kind in (_Kind.DICT, _Kind.ORDERED):
            half = len(plain) // 2 + 1
            pairs = zip(self._all(plain[1:half]), self._all(plain[half:]), strict=True)
            return dict(pairs) if kind == _Kind.DICT else OrderedDict(pairs)
        if kind == _Kind.INTEGER:
            return int(plain[1], 16)
        if kind == _Kind.NOT_FINITE:
            return float(plain[1])
        if kind == _Kind.CONSTANT:
            return self._constants[plain[1]]
        raise ValueError(f"unknown kind {kind!r} in the state of spans")

    def _all(self, plain: Sequence[Plain]) -> list[Any]:
        value_of = self.value
        return [value_of(value) if type(value) is list else value for value in plain]


def _defaults(kept: Kept) -> dict[str, Any]:
    """The values of a new object by attribute; a function, it makes one."""
    new = kept.new()
    names = [
        *(name for base in reversed(kept.kind.__mro__) for name in getattr(base, "__slots__", ())),
        *getattr(new, "__dict__", ()),
    ]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(names):
        value = getattr(new, name, None)
        if isinstance(value, _LOCK):
            found[name] = threading.Lock
        elif type(value) is deque:
            found[name] = _NewDeque(value.maxlen)
        elif type(value) in (list, dict, set, OrderedDict):
            found[name] = type(value)
        else:
            found[name] = value
    return found


def _trailing(kind: Any) -> list[Any]:
    """The defaults of a named tuple's last fields, from the last one."""
    return list(reversed(kind._field_defaults.values()))


class _NewDeque(NamedTuple):
    maxlen: int | None

    def __call__(self) -> deque[Any]:
        return deque(maxlen=self.maxlen)


def _is_default(value: Any, default: Any) -> bool:
    if default is threading.Lock:
        return True
    if callable(default):
        return not value
    return value is default or (type(value) is type(default) and bool(value == default))


VERSION: Final = 1
"""Increase it whenever the meaning of an attribute changes; a new attribute needs nothing."""


_NOWHERE: Final = SpanFactory(NoOpTracer(), NoOpLogger("tidegauge"))
_NO_SINK: Final[Any] = None
_RECORDER: Final = Recorder(_NO_SINK, _NOWHERE)


def _new_run() -> ExternalRun:
    return ExternalRun(_new_recorded(), _new_node(), "")


def _new_node() -> Node:
    return Node(0, 0, None, name="", scope="", live=None)


def _new_recorded() -> RecordedRun:
    return RecordedRun(_RECORDER, RunStarted(run=""))


_OBJECTS: Final = PlainObjects(
    [
        Kept(Node, _new_node, ("_ended", "_reading")),
        Kept(ExternalRun, _new_run, ("size",)),
        # What a decision was based on is for agents in this process.
        Kept(SpanTurns, lambda: SpanTurns(_new_recorded()), ("_reports", "_last", "_by_id")),
        Kept(SpanTurn, lambda: SpanTurn([], 0, ""), ("decision", "issued", "seen")),
        Kept(SpanCall, lambda: SpanCall("", None), ("span",)),
        Kept(OpenTurns, OpenTurns),
        Kept(
            RecordedRun,
            _new_recorded,
            (
                *("_recorder", "spans", "_extractors", "_delivered", "decision", "nudge"),
                *("request", "counts_usage"),
            ),
        ),
        Kept(RunStarted, lambda: RunStarted(run="")),
        Kept(OpenTrace, OpenTrace, ("pending",)),  # these are read again
        Kept(ParentlessRuns, ParentlessRuns),
        Kept(WaitingEvents, WaitingEvents),
    ],
    [
        SpanData,
        ReadSpan,
        RunInfo,
        AgentSpan,
        ModelSpan,
        ToolSpan,
        ChosenCall,
        CallResult,
        SeenModel,
        Interval,
        Earliest,
    ],
    [ABSENT, UNKNOWN_ARGUMENTS],
    shared=(SeenModel,),
)


def write_trace(held: dict[str, Any]) -> Any:
    """The plain form of what an assembly holds of a trace.

    Raises:
        TypeError: something has no plain form.
    """
    return [VERSION, _OBJECTS.write(held)]


def read_trace(plain: Any, recorder: Recorder) -> dict[str, Any]:
    """What :func:`write_trace` was called with; its runs report to a recorder.

    Raises:
        ValueError: it has another version or form.
    """
    version, data = plain if isinstance(plain, list) and len(plain) == 2 else (None, None)
    if version != VERSION:
        raise ValueError(
            f"the state of a trace has version {version!r}; only {VERSION} can be read"
        )
    given = {
        "_recorder": recorder,
        "_extractors": (),
        "counts_usage": recorder.on_model_call is not None,
    }
    held = _OBJECTS.read(data, RecordedRun=given)
    if not isinstance(held, dict):
        raise ValueError("the state of a trace has another form")
    return held
