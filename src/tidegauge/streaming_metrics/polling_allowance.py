"""Polling allowance: which steps only wait, or only think, and so prove no standstill.

A call count is not evidence. A poller repeats itself because that is its task: one that is
declared, and a call that :mod:`~tidegauge.streaming_metrics.polls` takes for a poll. Within its
allowance its steps are *skipped*: for every signal, it is as if they had not been there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import ClassVar, Final
from zlib import crc32

from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.declaration import Declaration
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.polls import Polling

POLL_STEPS: Final = 60
"""Steps that a poller may wait when nothing else was declared, and that may only think."""

FOUND: Final = ToolDeclaration(poll=True)
"""What stands for a declaration where a poll was found; it is this very object."""

_MAX_RESULTS: Final = 256
_MAX_STARTED: Final = 64


class PollingAllowance(Stateful):
    """Says of each step whether it is skipped.

    A step is skipped when each of its calls is one of a poller that has waited for no longer than
    its allowance, or one that only thinks. A result that is new for the poller restarts the
    allowance, and so does any other call. After :data:`POLL_STEPS` consecutive steps that only
    think, further ones are steps like any other: so many thoughts prepare nothing.

    O(1) a step. Memory: the last 256 results of pollers, 256 calls that wait, and checksums of 64
    names of what was started.

    >>> allowance = PollingAllowance()
    >>> for _ in range(4):
    ...     print(allowance.skips([ToolDeclaration(poll=2)], None))
    ...     allowance.observe(b"job", b"running")
    True
    True
    True
    False
    """

    version: ClassVar[int] = 4
    unsaved: ClassVar[frozenset[str]] = frozenset({"_since"})  # on another clock, it starts again
    __slots__ = (
        "_made",
        "_rested",
        "_seen",
        "_since",
        "_started",
        "_thoughts",
        "_waited",
        "skipped",
    )

    def __init__(self) -> None:
        self.skipped = 0  # steps so far
        self._waited = 0
        self._thoughts = 0  # consecutive steps that only think
        self._since: float | None = None
        self._seen: EvictingDict[bytes, None] = EvictingDict()  # digests of a poller and its result
        self._rested = False  # whether the step before only waited
        self._started: list[int] = []  # checksums of names, the oldest first
        self._made: EvictingDict[bytes, None] = EvictingDict()  # calls that wait and did not fail

    def resolved(
        self,
        action: bytes,
        declared: Sequence[ToolDeclaration | None],
        polled: Sequence[Polling | None],
    ) -> Sequence[ToolDeclaration | None]:
        """Take an issued step: what is declared of its calls, or found.

        Args:
            action: its digest.
            declared: what is declared of the tool of each of its calls; ``None``, nothing.
            polled: what each of its calls does, where nothing is declared; empty, it is not known.
        """
        rested, self._rested = self._rested, False
        if not polled:
            return declared
        self._rested = not [one for one in polled if one is None or not one.rests]
        made = action in self._made
        found = [
            given
            if given is not None or one is None or not self._polls(one, made, rested)
            else FOUND
            for given, one in zip(declared, polled, strict=True)
        ]
        for one in polled:
            if one is not None and one.starts is not None:
                self._start(map(_checksum, one.starts))
        return found

    def _polls(self, one: Polling, made: bool, rested: bool) -> bool:
        started = self._started
        if one.waits:
            return made or bool(started)
        looks = one.looks or ()
        return (made and rested) or any(_checksum(name) in started for name in looks)

    def _start(self, names: Iterable[int]) -> None:
        new = list(names)
        self._started = [name for name in self._started if name not in new][-_MAX_STARTED:] + new
        del self._started[:-_MAX_STARTED]

    def skips(self, declared: Sequence[ToolDeclaration | None], now: float | None) -> bool:
        """Whether an issued step is skipped.

        Args:
            declared: what :meth:`resolved` gave.
            now: seconds; ``None``, not known: then an allowance in time is never used up.
        """
        polls = [one.poll for one in declared if one is not None and one.poll]
        others = [one for one in declared if one is None or not (one.poll or one.thinks)]
        self._thoughts = 0 if polls or others else self._thoughts + 1
        if polls:
            self._waited += 1
            if self._since is None:
                self._since = now
        elif others:
            self._restart()
        skips = not others and self._thoughts <= POLL_STEPS
        skips = skips and not [poll for poll in polls if not self._within(poll, now)]
        self.skipped += skips
        return skips

    def observe(self, action: bytes, outcome: bytes | None, *, failed: bool = False) -> None:
        """Take the result of a call that polls, or may: one that is new restarts the allowance.

        Args:
            action: digest of the step.
            outcome: digest of its result; ``None``, not known.
            failed: whether it failed, as far as is known.
        """
        if outcome is None:
            return
        if not _remember(self._seen, action + outcome):
            self._restart()
        if not failed:
            _remember(self._made, action)

    def _within(self, poll: bool | int | timedelta, now: float | None) -> bool:
        if isinstance(poll, timedelta):
            since = self._since
            return now is None or since is None or now - since <= poll.total_seconds()
        return self._waited <= (POLL_STEPS if poll is True else poll)

    def _restart(self) -> None:
        self._waited = 0
        self._since = None


def _remember(known: EvictingDict[bytes, None], key: bytes) -> bool:
    """Whether a key is known; from now on it is."""
    if key in known:
        known.renew(key, None)
        return True
    if len(known) >= _MAX_RESULTS:
        known.evict()
    known[key] = None
    return False


def _checksum(name: str) -> int:
    """A name as it is kept: it may be a content, and states leave the process."""
    return crc32(name.encode("utf-8", "surrogatepass"))


DECLARATION: Final = Declaration(
    name="polling_allowance",
    kind=PollingAllowance,
    brought_by=("declared",),
    absent={"skipped_steps": 0},
    report=lambda run, allowance: {"skipped_steps": allowance.skipped},
    document=lambda report: {"skipped_steps": report.skipped_steps},
)
"""A run asks it before its metrics take a step."""
