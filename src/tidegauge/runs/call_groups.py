"""Calls that no answer of the model chose, and that are one step together."""

from __future__ import annotations

import time
from typing import Final, TypeAlias

from tidegauge.runs.turn_calls import MAX_CALLS, Turn, TurnCall

Order: TypeAlias = tuple[int, str, str]
"""Sorts the calls of a group that may begin in any order."""

NO_ORDER: Final[Order] = (-1, "", "")
"""The calls stay in the order in which they began."""


class CallGroup(Turn):
    """Calls that are one step, which is issued when all of them are known.

    They begin side by side, as the nodes of a superstep do, or one after the other until the model
    is asked again. At most :data:`MAX_CALLS` of them are held.

    Args:
        key: anything that distinguishes it from the groups before and after.

    Attributes:
        key: as given.
        began: when its first call began, by the monotonic clock; 0, its time is not measured.
        seconds: how long it took until its last call ended; ``None``, not measured.
    """

    __slots__ = ("began", "key", "loose", "seconds")

    def __init__(self, key: object = None) -> None:
        super().__init__([])
        self.loose = True
        self.key = key
        self.began = 0.0
        self.seconds: float | None = None

    def add(self, call: TurnCall) -> None:
        """Hold a call; beyond the limit it only belongs to the group."""
        call.turn = self
        if len(self.calls) < MAX_CALLS:
            self.calls.append(call)

    def begin_again(self, name: str, arguments: object, key: str) -> TurnCall | None:
        """A call begins: the one that raised, was interrupted or did not end; ``None``, a new one.

        Args:
            key: the same if it is tried again.
        """
        for call in self.calls:
            if call.id == key and call.name == name and (call.result is None or call.raised):
                if call.raised:
                    call.arguments = arguments
                call.result, call.raised = None, False
                return call
        return None

    def begin(
        self, name: str, arguments: object, key: str | None, order: Order = NO_ORDER
    ) -> TurnCall:
        """A new call begins.

        Args:
            arguments: its arguments; ``ABSENT``, not known before it ends.
            key: the same if it is tried again; ``None``, that is not known.
        """
        if not self.calls:
            self.began = time.monotonic()
        call = TurnCall(name, arguments, key)
        call.begun, call.order = True, order
        self.add(call)
        return call

    def measure(self) -> None:
        """A call of it has ended: so much time it took until now."""
        if self.began:
            self.seconds = time.monotonic() - self.began

    def sort(self) -> None:
        """Sort the calls."""
        self.calls.sort(key=_order)


def _order(call: TurnCall) -> Order:
    return call.order or NO_ORDER
