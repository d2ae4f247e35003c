"""A dict that gives up its oldest entry in constant time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeVar

__all__ = ["EvictingDict"]

K = TypeVar("K")
V = TypeVar("V")

_SHARE: Final = 8
"""One of so many keys is found at a time: the dead entries passed on the way are shared by them."""


class EvictingDict(dict[K, V]):
    """A dict, in the order in which its keys were put in, from which the oldest are evicted.

    ``del entries[next(iter(entries))]`` of a plain dict passes every entry deleted before, as they
    stay in its table until it is resized: a cost that grows with the size. Here the oldest keys
    are found an eighth of all at a time, so that an eviction costs O(1) amortised.
    :class:`collections.OrderedDict` does it as well, and takes twice the memory from the first
    entry on; this one takes what a dict does until the first eviction.

    A key that is deleted and put in again is the newest.

    >>> entries = EvictingDict([("a", 1), ("b", 2), ("c", 3)])
    >>> entries["a"] = entries.pop("a")
    >>> entries.evict()
    >>> list(entries), entries.oldest()
    (['c', 'a'], 'c')
    """

    __slots__ = ("_oldest",)

    def __init__(self, entries: Iterable[tuple[K, V]] = ()) -> None:
        super().__init__(entries)
        # The next keys to be evicted, in reverse: a dict gives up its last entry in O(1). What is
        # deleted from this dict is deleted there as well.
        self._oldest: dict[K, None] | None = None

    def oldest(self) -> K:
        """The key that was put in first.

        Raises:
            KeyError: there is none.
        """
        oldest = self._oldest or self._find_oldest()
        key, _ = oldest.popitem()  # not next(reversed(...)), which passes dead entries as well
        oldest[key] = None
        return key

    def evict(self) -> None:
        """Delete the key that was put in first.

        Raises:
            KeyError: there is none.
        """
        oldest = self._oldest or self._find_oldest()
        super().__delitem__(oldest.popitem()[0])

    def __delitem__(self, key: K, /) -> None:
        super().__delitem__(key)
        if self._oldest:
            self._oldest.pop(key, None)

    def pop(self, key: K, /, *default: Any) -> Any:
        """As of a dict."""
        value = super().pop(key, *default)
        if self._oldest:
            self._oldest.pop(key, None)
        return value

    def popitem(self) -> tuple[K, V]:
        """As of a dict: the newest."""
        key, value = super().popitem()
        if self._oldest:
            self._oldest.pop(key, None)
        return key, value

    def clear(self) -> None:
        """As of a dict."""
        super().clear()
        self._oldest = None

    def _find_oldest(self) -> dict[K, None]:
        some = list(islice(self, len(self) // _SHARE + 1))
        self._oldest = dict.fromkeys(reversed(some))
        return self._oldest
