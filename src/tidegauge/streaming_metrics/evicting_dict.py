"""A dict that gives up its oldest entry in constant time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_SHARE: Final = 8
"""One of so many keys is found at a time: the dead entries passed on the way are shared by them."""

_NOTHING: Final[list[Any]] = []  # instead of a list for each dict that evicts nothing


class EvictingDict(dict[K, V]):
    """A dict, in the order in which its keys were put in, from which the oldest are evicted.

    ``del entries[next(iter(entries))]`` of a plain dict passes every entry deleted before, as they
    stay in its table until it is resized: a cost that grows with the size. Here the oldest keys
    are found an eighth of all at a time, so that an eviction costs O(1) amortised.
    :class:`collections.OrderedDict` does it as well, and takes twice the memory from the first
    entry on; this one takes what a dict does until the first eviction.

    A key that is deleted and put in again is the newest. Delete by :meth:`pop`, never by ``del``: a
    method for ``del`` would take the place of what C does for ``entries[key] = value``, too, which
    the step path needs.

    >>> entries = EvictingDict([("a", 1), ("b", 2), ("c", 3)])
    >>> entries.renew("a", 1)
    >>> entries.evict()
    >>> list(entries), entries.oldest()
    (['c', 'a'], 'c')
    """

    __slots__ = ("_gone", "_oldest")

    def __init__(self, entries: Iterable[tuple[K, V]] = ()) -> None:
        super().__init__(entries)
        self._oldest: list[K] = _NOTHING  # the next keys to be evicted, the very next one last
        self._gone: set[K] | None = None  # what was deleted since they were found

    def oldest(self) -> K:
        """The key that was put in first.

        Raises:
            KeyError: there is none.
        """
        while True:
            key = (self._oldest or self._find_oldest())[-1]
            if not self._gone or key not in self._gone:
                return key
            self._oldest.pop()

    def evict(self) -> None:
        """Delete the key that was put in first.

        Raises:
            KeyError: there is none.
        """
        oldest = self._oldest
        if oldest and not self._gone:  # as oldest() has it, in short: this is on the step path
            del self[oldest.pop()]
        else:
            del self[self.oldest()]
            self._oldest.pop()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self.items()),)  # a copy finds its oldest by itself

    def pop(self, key: K, /, *default: Any) -> Any:
        """As of a dict."""
        value = super().pop(key, *default)
        if self._oldest:
            self._note(key)
        return value

    def renew(self, key: K, value: V) -> None:
        """Delete a key that is there and put it in again, as the newest."""
        del self[key]
        self[key] = value
        if self._oldest:
            self._note(key)

    def popitem(self) -> tuple[K, V]:
        """As of a dict: the newest."""
        key, value = super().popitem()
        if self._oldest:
            self._note(key)
        return key, value

    def clear(self) -> None:
        """As of a dict."""
        super().clear()
        self._oldest, self._gone = _NOTHING, None

    def _find_oldest(self) -> list[K]:
        found = list(islice(self, len(self) // _SHARE + 1))
        if not found:
            raise KeyError("there is no entry to evict")
        found.reverse()
        self._oldest, self._gone = found, None
        return found

    def _note(self, key: K) -> None:
        """A key was deleted: if it is among the oldest it is no more, also when put in again."""
        if self._gone is None:
            self._gone = {key}
        elif len(self._gone) <= len(self) // _SHARE:
            self._gone.add(key)
        else:  # so many deletions pay for finding the oldest again
            self._oldest, self._gone = _NOTHING, None
