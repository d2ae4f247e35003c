"""Embedding matcher: states that look alike, such as screenshots, are one state."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import xxhash

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.events import ABSENT
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import guarded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")

_FIRST_ROWS: Final = 64
_ROUNDING: Final = 1e-6  # of a cosine of 32-bit vectors: a vector is to match itself


class EmbeddingMatcher(Generic[T]):
    """Gives an item the id of the first earlier one whose embedding is near enough.

    What it gives is a state: pass it to ``run.act(..., state=matcher(screenshot))``. Two items
    are near when the cosine of their vectors is at least ``threshold``. A new item is compared
    with those that got an id of their own, not with those that got an earlier one's: a screen
    that changes little by little does become another state.

    - Only directions count, not lengths. Vectors of zeros have none: they are one state.
    - A vector with NaN or infinity in it, and an empty one, is near to nothing, itself included.
    - A vector of another size means another embedder: everything before it is forgotten and
      counted as dropped.
    - Where the embedder fails, nothing is raised: the fault is counted as an internal error, and
      the step goes on as one without a state.

    A call costs what the embedder does, and one product of the kept vectors with the new one:
    about a millisecond for 10,000 vectors of 512 numbers, which take 20 MB. Safe to share
    between threads; ids are digests of vectors, equal in every process.

    Source: TIDE (arXiv 2602.02196), appendix C.3. Needs ``pip install '.[embeddings]'``.

    Args:
        embed: gives an item's vector: anything that numpy makes an array of. It is flattened.
        threshold: least cosine of vectors that are one state.
        max_vectors: vectors kept; past it the oldest is dropped.

    Attributes:
        dropped_vectors: how many were dropped.

    Raises:
        ConfigurationError: a threshold outside of (0, 1], or no vector to be kept.
        MissingExtraError: numpy is not installed.

    >>> matcher = EmbeddingMatcher(lambda pixels: pixels)
    >>> first = matcher([1.0, 0.0, 0.0])
    >>> matcher([2.0, 0.01, 0.0]) == first, matcher([0.0, 1.0, 0.0]) == first
    (True, False)
    """

    def __init__(
        self,
        embed: Callable[[T], npt.ArrayLike],
        *,
        threshold: float = 0.999,
        max_vectors: int = 10_000,
    ) -> None:
        if not 0 < threshold <= 1:
            raise ConfigurationError("threshold must be above 0 and at most 1")
        if max_vectors < 1:
            raise ConfigurationError("max_vectors must be at least 1")
        if find_spec("numpy") is None:  # it is imported with the first vector
            raise MissingExtraError("numpy", extra="embeddings")
        self.embed: Final = embed
        self.threshold: Final = threshold
        self.max_vectors: Final = max_vectors
        self.dropped_vectors = 0
        self._reset_after_fork()
        reset_after_fork(self)
        self._rows: npt.NDArray[np.float32] | None = None  # directions; made by the first vector
        self._ids: list[bytes] = []  # of the rows in use
        self._oldest = 0  # row that is replaced next, once all of them are in use

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    @guarded("embedding_matcher", default=ABSENT, interrupting="skip")
    def __call__(self, item: T) -> bytes:
        """The item's state; ``ABSENT`` where the embedder failed."""
        return self.match(self.embed(item))

    def match(self, vector: npt.ArrayLike) -> bytes:
        """The state of an item whose vector is at hand.

        Raises:
            ValueError: numpy makes no array of numbers of it.
        """
        import numpy as np

        # In 64 bits, and scaled before it is squared: large numbers would become infinite.
        wide = np.asarray(vector, dtype=np.float64).ravel()
        if not wide.size or not np.isfinite(wide).all():
            return os.urandom(16)
        largest = np.abs(wide).max()
        if not largest:
            return _digest(b"zero")
        wide = wide / largest
        direction = (wide / np.linalg.norm(wide)).astype(np.float32)
        with here.critical, self._lock:
            return self._nearest(direction) or self._keep(direction)

    def _nearest(self, direction: npt.NDArray[np.float32]) -> bytes | None:
        """Id of the oldest kept vector that is near enough."""
        rows, used = self._rows, len(self._ids)
        if rows is None or rows.shape[1] != direction.size:
            return None
        near = (rows[:used] @ direction >= self.threshold - _ROUNDING).nonzero()[0]
        if not near.size:
            return None
        older = near[near >= self._oldest]  # rows before it hold what came after
        return self._ids[int(older[0] if older.size else near[0])]

    def _keep(self, direction: npt.NDArray[np.float32]) -> bytes:
        identity = _digest(direction.tobytes())
        rows = self._room_for(direction)
        if len(self._ids) < self.max_vectors:
            rows[len(self._ids)] = direction
            self._ids.append(identity)
            return identity
        rows[self._oldest] = direction
        self._ids[self._oldest] = identity
        self._oldest = (self._oldest + 1) % self.max_vectors
        self.dropped_vectors += 1
        return identity

    def _room_for(self, direction: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        import numpy as np

        rows = self._rows
        if rows is None or rows.shape[1] != direction.size:
            rows = np.empty((min(_FIRST_ROWS, self.max_vectors), direction.size), np.float32)
            self.dropped_vectors += len(self._ids)
            self._ids, self._oldest = [], 0
        elif len(self._ids) == len(rows) < self.max_vectors:
            more = min(2 * len(rows), self.max_vectors)
            rows = np.concatenate([rows, np.empty((more - len(rows), direction.size), np.float32)])
        self._rows = rows
        return rows


def _digest(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)
