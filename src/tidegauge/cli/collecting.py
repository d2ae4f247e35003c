"""Python's collector of cycles, where it would look at much and find nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

__all__ = ["seldom_collected"]

_COLLECT_AFTER: Final = (50_000, 20, 50)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles seldom, and never among what has been made so far.

    What is made for a span is freed without that when it has been told; meanwhile the collector
    would look at all of it again and again.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
