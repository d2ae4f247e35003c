"""How fast the machine is now: limits of processor time mean a quiet machine."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable

__all__ = ["seconds_of", "slowness"]

_QUIET_SECONDS = 0.010
"""What the reference takes on the quiet machine for which limits are written."""


def seconds_of(call: Callable[[], object]) -> float:
    """The processor time that a call takes, without the collector of cycles.

    That goes through all objects that other tests have left in the process.
    """
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        call()
        return time.process_time() - start
    finally:
        gc.enable()


def slowness() -> float:
    """How many times slower than on a quiet machine this process is now; at least 1.

    Processor time is no constant: caches and memory are shared with whatever else runs. So the
    reference is of the kind that is limited: it goes through many small objects and makes text.
    """
    return max(1.0, min(_reference() for _ in range(3)) / _QUIET_SECONDS)


@functools.cache
def _objects() -> list[list[object]]:
    return [[str(number), {number: number}] for number in range(40_000)]


def _reference() -> float:
    objects = _objects()
    start = time.process_time()
    seen = set()
    texts = []
    for one in objects:
        seen.add(id(one))
        texts.append(f"{type(one).__name__}:{one[0]}")
    "".join(texts)
    return time.process_time() - start
