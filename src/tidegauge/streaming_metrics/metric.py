"""The protocol of all metrics: ``update``, ``value``, ``reset``, ``state`` and ``load``.

A :class:`Metric` belongs to one run and is fed its steps; a :class:`GroupMetric` belongs to a
group of runs, is fed finished runs, and adds up: ``merge`` of two halves equals the whole.
"""

from __future__ import annotations

import abc
import copy
import functools
import inspect
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from tidegauge.streaming_metrics.plain import WITHOUT_KIND, from_plain, to_plain
from tidegauge.streaming_metrics.records import FinishedRun, Record

R = TypeVar("R", bound=Record)

_TABLES: Final = (dict, list, set, deque)


class Stateful:
    """State in slots that can be reset, written as plain data and read back.

    A subclass keeps all of its state in ``__slots__``, in values that have a plain form
    (:mod:`~tidegauge.streaming_metrics.plain`) or are ``Stateful`` themselves, and keeps each
    parameter of its constructor in a slot of the same name; the rest follows.
    """

    __slots__ = ()

    version: ClassVar[int] = 1
    """Increase it whenever the meaning of the slots changes."""

    unsaved: ClassVar[frozenset[str]] = frozenset()
    """Slots that :meth:`state` omits: parameters that are functions, which have no plain form, and
    what :meth:`load` computes. :meth:`load` keeps those of the object."""

    def reset(self) -> None:
        """Forget everything but the parameters."""
        names = inspect.signature(type(self)).parameters
        parameters = {name: getattr(self, name) for name in names}
        self.__init__(**parameters)  # type: ignore[misc]

    def state(self) -> dict[str, Any]:
        """The state as plain data (JSON)."""
        fields: dict[str, Any] = {}
        for name in self._slots():
            value = getattr(self, name)
            fields[name] = value.state() if isinstance(value, Stateful) else to_plain(value)
        return {"metric": type(self).__name__, "version": self.version, "fields": fields}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one of :meth:`state`; an invalid state changes nothing.

        Raises:
            ValueError: the state belongs to another metric, or has another version or form.
        """
        expected = (type(self).__name__, self.version)
        found = (state.get("metric"), state.get("version"))
        fields = state.get("fields")
        if found != expected or not isinstance(fields, Mapping):
            raise ValueError(f"a state of {found} does not fit {expected}")
        if fields.keys() != self._slot_names():
            raise ValueError(f"the state of {type(self).__name__} has other fields")
        loaded: dict[str, Any] = {}
        for name, data in fields.items():
            part = getattr(self, name)
            if isinstance(part, Stateful):
                part = loaded[name] = copy.copy(part)
                part.load(data)
            else:
                loaded[name] = data if type(data) in WITHOUT_KIND else from_plain(data)
        for name, value in loaded.items():
            setattr(self, name, value)

    @property
    def entries(self) -> int:
        """How many entries its tables have together: they grow with the run."""
        found = 0
        for name in self._slots():
            value = getattr(self, name)
            if isinstance(value, _TABLES):
                found += len(value)
            elif isinstance(value, Stateful):
                found += value.entries
        return found

    @classmethod
    @functools.cache
    def _slots(cls) -> tuple[str, ...]:
        return tuple(
            name
            for base in reversed(cls.__mro__)
            for name in getattr(base, "__slots__", ())
            if name not in cls.unsaved
        )

    @classmethod
    @functools.cache
    def _slot_names(cls) -> frozenset[str]:
        return frozenset(cls._slots())


class Metric(Stateful, abc.ABC, Generic[R]):
    """A number that is up to date after each record."""

    __slots__ = ()

    takes: ClassVar[type]
    """The record that :meth:`update` takes."""

    @abc.abstractmethod
    def update(self, step: R) -> bool | None:
        """Take one record. Returns true if trouble begins with it, which the run counts."""

    @property
    @abc.abstractmethod
    def value(self) -> float | None:
        """The number now; ``None`` until it is measured."""


class GroupMetric(Metric[FinishedRun]):
    """A number over finished runs that can be merged across groups, hours and processes."""

    __slots__ = ()
    takes: ClassVar[type] = FinishedRun

    @abc.abstractmethod
    def merge(self, other: Self) -> None:
        """Add the runs of ``other``, as if each had been passed to :meth:`update` here."""
