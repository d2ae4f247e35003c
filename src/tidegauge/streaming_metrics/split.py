"""One number per key: AUV by memory arm, success rate by horizon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

from tidegauge.streaming_metrics.metric import GroupMetric, Stateful
from tidegauge.streaming_metrics.records import FinishedRun

K = TypeVar("K", bound=str | int)
M = TypeVar("M", bound=GroupMetric)


class Split(Stateful, Generic[K, M]):
    """A group metric for each key, up to ``max_keys``; all further keys share one more.

    Args:
        make: makes the metric of a new key. Not part of :meth:`state`.
        other: the shared key beyond the cap.
        max_keys: keys distinguished.

    >>> from tidegauge.streaming_metrics.success import SuccessRate
    >>> rates = Split(SuccessRate, other="other", max_keys=2)
    >>> for model, success in [("a", True), ("b", False), ("a", False), ("c", True)]:
    ...     rates.update(model, FinishedRun(success, steps=1))
    >>> {model: rate.value for model, rate in rates.parts.items()}
    {'a': 0.5, 'b': 0.0, 'other': 1.0}
    """

    unsaved: ClassVar[frozenset[str]] = frozenset({"make"})
    __slots__ = ("_parts", "make", "max_keys", "other")

    def __init__(self, make: Callable[[], M], *, other: K, max_keys: int) -> None:
        self.make = make
        self.other = other
        self.max_keys = max_keys
        self._parts: dict[K, M] = {}

    def update(self, key: K, run: FinishedRun) -> None:
        """Take a finished run of that key."""
        self._part(key).update(run)

    def add(self, key: K, part: M) -> None:
        """Take in the runs of that key which another metric has seen."""
        self._part(key).merge(part)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``, key by key."""
        for key, part in other._parts.items():
            self.add(key, part)

    @property
    def parts(self) -> Mapping[K, M]:
        """The metric of each key that had a run."""
        return MappingProxyType(self._parts)

    def state(self) -> dict[str, Any]:
        """All that is kept, as plain data that JSON can carry."""
        parts = [[key, part.state()] for key, part in self._parts.items()]
        return {"max_keys": self.max_keys, "other": self.other, "parts": parts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave.

        Raises:
            ValueError: the state is not of that form.
        """
        if set(state) != {"max_keys", "other", "parts"}:
            raise ValueError("the state of a split has other fields")
        parts = {}
        for key, data in state["parts"]:
            parts[key] = self.make()
            parts[key].load(data)
        self.max_keys, self.other, self._parts = state["max_keys"], state["other"], parts

    def _part(self, key: K) -> M:
        parts = self._parts
        if key not in parts:
            if len(parts) - (self.other in parts) >= self.max_keys:
                key = self.other
            parts.setdefault(key, self.make())
        return parts[key]
