"""The open runs of recordings: those idle for longest are packed, so that memory is bounded."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import orjson

from tidegauge.safety.critical import here
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

MAX_OPEN: Final = 2_000
"""Open runs at hand, of which each takes about 17 kB; a packed one takes a few hundred bytes."""

_DICTIONARY_BYTES: Final = 32_768


class PackedRuns:
    """Packs open runs of an engine whose runs never expire, and unpacks those that go on.

    Recorded runs may have no end, and any of them may go on at any line. A run that was packed goes
    on exactly where it was.

    Args:
        engine: has the runs.
        before: called with a run that is packed.
        max_open: limit of the open runs that are not packed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        before: Callable[[MeasuredRun], object] = lambda run: None,
        max_open: int | None = None,
    ) -> None:
        self._engine = engine
        self._before = before
        self._max_open = MAX_OPEN if max_open is None else max_open
        self._open: OrderedDict[str, None] = OrderedDict()  # the one idle for longest first
        self._packed: dict[str, bytes] = {}
        self._dictionary = b""  # the state of the first run: the others are much like it

    def use(self, run: str) -> None:
        """A run has an event: it is at hand from now on."""
        if run in self._open:
            self._open.move_to_end(run)
        elif run in self._packed:
            self._unpack(run)
            self.began(run)

    def began(self, run: str) -> None:
        """A run began in the engine."""
        self._open[run] = None
        if len(self._open) > self._max_open:
            self._pack(self._open.popitem(last=False)[0])

    def ended(self, run: str) -> None:
        """A run has ended in the engine."""
        self._open.pop(run, None)

    def _pack(self, run: str) -> None:
        found = self._engine.get(run)
        if found is None:
            return
        self._before(found)
        with here.critical, found.lock:
            state = orjson.dumps(save_run(found))
        self._dictionary = self._dictionary or state[:_DICTIONARY_BYTES]
        packer = zlib.compressobj(1, zdict=self._dictionary)
        self._packed[run] = packer.compress(state) + packer.flush()
        self._engine.detach(run)

    def _unpack(self, run: str) -> None:
        unpacker = zlib.decompressobj(zdict=self._dictionary)
        state = orjson.loads(unpacker.decompress(self._packed.pop(run)))
        self._engine.restore(saved_start(state))
        found = self._engine.get(run)
        if found is not None:
            with here.critical, found.lock:
                load_run(found, state)
