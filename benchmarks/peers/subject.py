"""What is measured, and how: each in a separate process, forked for that turn.

Most instrumentation patches what it instruments, and some of it cannot be taken back. A fork is
undone completely, and costs nothing of what is timed: it is warmed up first.

What is timed is the processor time of the process, all threads together: it counts what batch
processors do in theirs, and not the turns that other processes of a shared machine take.
"""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.scripted_agent import Discard
from tidegauge.sampling import TroubledSpanProcessor

__all__ = [
    "Prepare",
    "Setup",
    "Subject",
    "Turn",
    "provider_for",
    "sampling_provider_for",
    "take_turn",
]

Prepare: TypeAlias = Callable[[int], Callable[[], object]]
"""Makes a run of so many steps, ready to be called."""

Setup: TypeAlias = Callable[[Discard], AbstractContextManager[Prepare]]
"""Instruments; spans go to the exporter it is given."""

_WARM_UP = 20
_STEPS_AT_LEAST = 100
"""Shorter runs are repeated up to so many steps."""

_DEADLINE = 300.0
_NEVER = 3_600_000.0
"""Milliseconds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One thing to measure.

    Args:
        name: what it is called in the table.
        setup: instruments.
        package: its distribution, when that is a peer's.
        units: of what is counted, in one step of a run: a wave of spans has many.
    """

    name: str
    setup: Setup
    package: str | None = None
    units: int = 1

    @property
    def missing(self) -> bool:
        """Whether its distribution is not installed."""
        if self.package is not None:
            try:
                importlib.metadata.version(self.package)
            except importlib.metadata.PackageNotFoundError:
                return True
        return False

    @property
    def label(self) -> str:
        """Its name with the version that is measured."""
        if self.package is None or self.missing:
            return self.name
        return f"{self.name} {importlib.metadata.version(self.package)}"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of a subject gave.

    Args:
        seconds: processor seconds a step, by the length of the run.
        spans: spans a step.
        fault: why there are none, in a line.
    """

    seconds: dict[int, float]
    spans: float = 0.0
    fault: str | None = None


def provider_for(exporter: Discard) -> TracerProvider:
    """A provider as an application has it: batches, and no exporter's own cost.

    It exports batches that are full, and the rest at its end: no clock decides what is measured.
    """
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=200_000, schedule_delay_millis=_NEVER)
    )
    return provider


def sampling_provider_for(exporter: Discard) -> TracerProvider:
    """The same, and the spans of a run wait until it is known how it went."""
    provider = TracerProvider()
    provider.add_span_processor(TroubledSpanProcessor(exporter))
    return provider


def take_turn(subject: Subject, lengths: Sequence[int]) -> Turn:
    """Measure a subject once, on runs of these lengths, in a separate process."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(subject, lengths, sender), daemon=True)
    gc.collect()
    process.start()
    sender.close()
    try:
        turn: Turn = receiver.recv() if receiver.poll(_DEADLINE) else Turn({}, fault="too slow")
    except EOFError:
        turn = Turn({}, fault="its process died")
    process.kill()
    process.join()
    return turn


def _measure(subject: Subject, lengths: Sequence[int], sender: Connection) -> None:
    try:
        turn = _timed(subject, lengths)
    except Exception as error:  # noqa: BLE001 -- a peer's fault is a line in the table
        turn = Turn({}, fault=traceback.format_exception_only(error)[-1].strip())
    sender.send(turn)


def _timed(subject: Subject, lengths: Sequence[int]) -> Turn:
    # Some put more attributes on a span than it holds: the cost of the warnings is not theirs.
    logging.disable(logging.WARNING)
    exporter = Discard()
    seconds: dict[int, float] = {}
    taken = _WARM_UP
    with subject.setup(exporter) as prepare:
        prepare(_WARM_UP)()
        for steps in lengths:
            run = prepare(steps)
            times = max(_STEPS_AT_LEAST // steps, 1)
            gc.collect()
            began = time.process_time()
            for _ in range(times):
                run()
            seconds[steps] = (time.process_time() - began) / (times * steps)
            taken += times * steps
    return Turn(seconds, exporter.spans / taken)
