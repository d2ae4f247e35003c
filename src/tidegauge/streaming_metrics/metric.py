"""The protocol of all metrics: ``update``, ``value``, ``reset``, ``state`` and ``load``.

A :class:`Metric` belongs to one run and is fed its steps; a :class:`GroupMetric` belongs to a
group of runs, is fed finished runs, and adds up: ``merge`` of two halves equals the whole.
"""

from __future__ import annotations

import abc
import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.records import FinishedRun, Record
from tidegauge.values.plain_objects import Kept, Plain, PlainObjects

R = TypeVar("R", bound=Record)

_TABLES: Final = (dict, list, set, deque)


class Stateful:
    """State in slots that can be reset, written as plain data and read back.

    A subclass keeps all of its state in ``__slots__``, in values that have a plain form
    (:mod:`~tidegauge.values.plain_objects`) or are ``Stateful`` themselves, and keeps each
    parameter of its constructor in a slot of the same name; the rest follows.
    """

    __slots__ = ()

    version: ClassVar[int] = 1
    """Increase it whenever the meaning of the slots changes."""

    holds: ClassVar[tuple[type, ...]] = ()
    """The classes of named tuples, and of what is ``Stateful``, in the containers of the slots."""

    unsaved: ClassVar[frozenset[str]] = frozenset()
    """Slots that :meth:`state` omits: parameters that are functions, which have no plain form, and
    clocks. :meth:`load` keeps those of the object."""

    computed: ClassVar[frozenset[str]] = frozenset()
    """Slots that :meth:`state` omits and :meth:`compute` sets."""

    def reset(self) -> None:
        """Forget everything but the parameters."""
        names = inspect.signature(type(self)).parameters
        parameters = {name: getattr(self, name) for name in names}
        self.__init__(**parameters)  # type: ignore[misc]

    def state(self) -> Plain:
        """The state as plain data (JSON)."""
        return self._plain().write(self)

    def load(self, state: Plain) -> None:
        """Replace the state by one of :meth:`state`; an invalid state changes nothing.

        Raises:
            ValueError: the state belongs to another metric, or has another version or form.
        """
        loaded = self._plain().read(state)
        if type(loaded) is not type(self):
            raise ValueError(f"a state of {type(loaded).__name__} is none of {type(self).__name__}")
        for name in (*self._slots(), *self.computed):
            setattr(self, name, getattr(loaded, name))

    def compute(self) -> None:
        """Set the slots that are :attr:`computed`, after the others were read."""

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
            if name not in cls.unsaved and name not in cls.computed
        )

    @classmethod
    @functools.cache
    def _plain(cls) -> PlainObjects:
        return plain_objects([cls])


def plain_objects(
    kinds: Iterable[type[Stateful]], others: Iterable[Kept] = (), records: Iterable[type] = ()
) -> PlainObjects:
    """Writes and reads objects of these classes and of those in their slots.

    Args:
        kinds: the classes.
        others: further classes.
        records: named tuples of these.
    """
    found: dict[type[Stateful], Callable[[], Any]] = {kind: kind for kind in kinds}
    kept, named, left = list(others), dict.fromkeys(records), list(found)
    while left:
        kind = left.pop()
        make = found[kind]
        new = make()
        ready = kind.compute if kind.computed else None
        kept.append(Kept(kind, make, kind.unsaved | kind.computed, kind.version, ready))
        for name in kind._slots():
            part = type(getattr(new, name, None))
            if issubclass(part, Stateful) and part not in found:
                # What has a parameter that is not saved is made as here.
                of_owner = functools.partial(lambda make, name: getattr(make(), name), make, name)
                found[part] = of_owner if part.unsaved else part
                left.append(part)
        for held in kind.holds:
            if not issubclass(held, Stateful):
                named[held] = None
            elif held not in found:
                found[held] = held
                left.append(held)
    return PlainObjects(kept, named, dicts=(EvictingDict,))


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
