"""Bounded names: the first label values from outside are kept, later ones become `other`."""

from __future__ import annotations

import threading
from typing import Final, Generic, TypeVar

from tidegauge.safety.critical import here

OTHER: Final = "other"
K = TypeVar("K")


class BoundedNames(Generic[K]):
    """The first ``limit`` names are kept, every later one becomes ``other``.

    >>> names = BoundedNames(limit=2, other="other")
    >>> [names.admit(name) for name in ("a", "b", "c", "a")]
    ['a', 'b', 'other', 'a']
    >>> names.refused
    1
    """

    __slots__ = ("_lock", "_names", "limit", "other", "refused")

    def __init__(self, *, limit: int, other: K) -> None:
        self.limit = limit
        self.other = other
        self.refused = 0
        self._lock = threading.Lock()
        self._names: dict[K, K] = {}

    def admit(self, name: K) -> K:
        """The name itself, or ``other``."""
        admitted = self._names.get(name)
        if admitted is not None:
            return admitted
        with here.critical, self._lock:
            if len(self._names) >= self.limit and name not in self._names:
                self.refused += 1
                return self.other
            self._names[name] = name
        return name
