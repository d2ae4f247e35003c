"""The open runs of recordings: those idle for longest are packed, so that memory is bounded."""

from __future__ import annotations

import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import orjson

from tidegauge.events import Decision, RunEnded, RunStarted
from tidegauge.safety.critical import here
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.run import Decider, MeasuredRun
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start
from tidegauge.streaming_metrics.snapshot import RunReport

MAX_OPEN: Final = 2_000
"""Open runs at hand, of which each takes about 17 kB; a packed one takes a few hundred bytes."""

_DICTIONARY_BYTES: Final = 32_768


class PackedEngine(Engine):
    """An engine without a clock whose runs never expire: those idle for longest are packed.

    Recorded runs may have no end, and any of them may go on at any line. A run that was packed goes
    on exactly where it was.

    Args:
        before_packing: called with a run that is packed.
        max_open: limit of the open runs that are not packed.
        **settings: others of the engine.
    """

    def __init__(
        self,
        *,
        before_packing: Callable[[MeasuredRun], object] = lambda run: None,
        max_open: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(clock=None, max_runs=sys.maxsize, **settings)
        self._before_packing = before_packing
        self._max_open = MAX_OPEN if max_open is None else max_open
        self._at_hand: OrderedDict[str, None] = OrderedDict()  # the one idle for longest first
        self._packed: dict[str, bytes] = {}
        self._dictionary = b""  # the state of the first run: the others are much like it

    def run_started(self, event: RunStarted) -> None:
        self._use(event.run)
        super().run_started(event)
        self._began(event.run)

    def issue(
        self, step: DigestedStep, decider: Decider | None = None, *, full: bool = False
    ) -> Decision:
        self._use(step.run)
        return super().issue(step, decider, full=full)

    def observe(
        self, outcome: DigestedOutcome, decider: Decider | None = None, *, full: bool = False
    ) -> Decision:
        self._use(outcome.run)
        return super().observe(outcome, decider, full=full)

    def run_ended(self, event: RunEnded) -> RunReport | None:
        self._use(event.run)
        self._at_hand.pop(event.run, None)
        return super().run_ended(event)

    def get(self, run: str) -> MeasuredRun | None:
        self._use(run)
        return super().get(run)

    def at_hand(self) -> list[MeasuredRun]:
        """The open runs that are not packed."""
        found = map(super().get, self._at_hand)
        return [run for run in found if run is not None]

    def _use(self, run: str) -> None:
        """A run is at hand from now on, if it is open."""
        if run in self._at_hand:
            self._at_hand.move_to_end(run)
        elif run in self._packed:
            self._unpack(run)
            self._began(run)

    def _began(self, run: str) -> None:
        self._at_hand[run] = None
        if len(self._at_hand) > self._max_open:
            self._pack(self._at_hand.popitem(last=False)[0])

    def _pack(self, run: str) -> None:
        found = super().get(run)
        if found is None:
            return
        self._before_packing(found)
        with here.critical, found.lock:
            state = orjson.dumps(save_run(found))
        self._dictionary = self._dictionary or state[:_DICTIONARY_BYTES]
        packer = zlib.compressobj(1, zdict=self._dictionary)
        self._packed[run] = packer.compress(state) + packer.flush()
        self.detach(run)

    def _unpack(self, run: str) -> None:
        unpacker = zlib.decompressobj(zdict=self._dictionary)
        state = orjson.loads(unpacker.decompress(self._packed.pop(run)))
        self.restore(saved_start(state))
        found = super().get(run)
        if found is not None:
            with here.critical, found.lock:
                load_run(found, state)
