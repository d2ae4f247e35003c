"""The transcripts of runs that are going on: a step sink that hands each over when its run ends."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from tidegauge._critical import here, reset_after_fork
from tidegauge.diagnose.judges.transcript import CONTENT_CHARACTERS, ROOM, Transcript
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, Signals, Step

__all__ = ["Transcripts"]


class Transcripts:
    """Writes the transcripts of runs; a :class:`~tidegauge.events.StepSink`.

    Args:
        on_finished: takes the transcript of a run that ended.
        wanted: whether a run is to have one; left out, every run.
        max_runs: transcripts that are held; one more gives up the one begun first.
            ``None``, as many as there are runs.
        room: characters of the steps of each.
        content_characters: characters of one content.

    Attributes:
        given_up: transcripts of runs that were given up before their end.

    >>> finished = []
    >>> transcripts = Transcripts(finished.append)
    >>> transcripts.run_started(RunStarted(run="r1"))
    >>> transcripts.run_ended(RunEnded(run="r1"))
    >>> [transcript.run for transcript in finished]
    ['r1']
    """

    def __init__(
        self,
        on_finished: Callable[[Transcript], object],
        *,
        wanted: Callable[[RunStarted], bool] | None = None,
        max_runs: int | None = None,
        room: int = ROOM,
        content_characters: int = CONTENT_CHARACTERS,
    ) -> None:
        self.given_up = 0
        self._on_finished = on_finished
        self._wanted = wanted
        self._max_runs = max_runs
        self._room = room
        self._content_characters = content_characters
        self._open: OrderedDict[str, Transcript] = OrderedDict()
        self._lock = threading.Lock()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._open.clear()

    def run_started(self, event: RunStarted) -> None:
        """A run began; one of its id that was open is over."""
        if self._wanted is not None and not self._wanted(event):
            return
        transcript = Transcript(event, room=self._room, content_characters=self._content_characters)
        with here.critical, self._lock:
            before = self._open.pop(event.run, None)
            self._open[event.run] = transcript
            if self._max_runs is not None and len(self._open) > self._max_runs:
                self._open.popitem(last=False)
                self.given_up += 1
        if before is not None:
            self._on_finished(before)

    def step_issued(self, event: Step, index: int | None = None) -> Decision:
        """An action was issued; nothing is decided, the answer tells the step's index.

        Args:
            event: the step.
            index: its index, where somebody else counts.
        """
        transcript = self._open.get(event.run)
        if transcript is None:
            return Decision()
        index = transcript.issue(event, index)
        return Decision(signals=Signals(event.run, index, index + 1, b"", b""))

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        transcript = self._open.get(event.run)
        if transcript is not None:
            transcript.observe(event)
        return Decision()

    def run_ended(self, event: RunEnded) -> None:
        """A run ended: its transcript is handed over."""
        with here.critical, self._lock:
            transcript = self._open.pop(event.run, None)
        if transcript is not None:
            transcript.ended = event
            self._on_finished(transcript)

    def close(self) -> None:
        """Hand over the transcripts of the runs that did not end."""
        with here.critical, self._lock:
            left = list(self._open.values())
            self._open.clear()
        for transcript in left:
            self._on_finished(transcript)
