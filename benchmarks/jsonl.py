"""What recording to a file adds to a step, compared with its metrics."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Line, medians
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.recordings import ContentEncoder, LineWriter, RunLines
from tidegauge.streaming_metrics import Engine

STEPS = 2_000


def _steps() -> list[tuple[Step, Outcome]]:
    return [
        (
            Step(run="r", calls=(Call("read_document", {"id": t, "page": 1}),)),
            Outcome(run="r", results=(CallResult(f"{t:06d} " + "text " * 40, False),)),
        )
        for t in range(STEPS)
    ]


class _Subject:
    """A run through a sink that records, or one that does not."""

    def __init__(self, writer: LineWriter | None, *, plain: bool = False) -> None:
        self._writer = writer
        self._plain = plain
        self._steps = _steps()
        self._keyed = hashlib.blake2b(key=os.urandom(16), digest_size=8)

    def __call__(self) -> None:
        recording = None
        if self._writer is not None:
            while self._writer.pending:  # so that nothing is measured but this
                time.sleep(0.001)
            contents = ContentEncoder(self._digest, plain=self._plain)
            recording = RunLines(self._writer, contents)
        sink = EngineSink(Engine(), Policy(), recording=recording)
        sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
        issue, observe = sink.step_issued, sink.step_observed
        for step, outcome in self._steps:
            issue(step)
            observe(outcome)
        sink.run_ended(RunEnded(run="r"))

    def _digest(self, digest: bytes) -> str:
        hashed = self._keyed.copy()
        hashed.update(digest)
        return hashed.hexdigest()


def measure() -> list[Line]:
    """Microseconds a step, and the ratio to a step that is not recorded."""
    with tempfile.TemporaryDirectory() as folder:
        writer = LineWriter(Path(folder) / "runs.jsonl", max_lines=10 * STEPS)
        taken = medians(
            {
                "bare": _Subject(None),
                "digests": _Subject(writer),
                "contents": _Subject(writer, plain=True),
            },
            inner=STEPS,
        )
        writer.close()
    bare = taken["bare"]
    return [
        Line("recording adds to a step, digests", (taken["digests"] - bare) * 1e6, "µs"),
        Line("the same / metrics of a step", (taken["digests"] - bare) / bare),
        Line("recording adds to a step, contents", (taken["contents"] - bare) * 1e6, "µs"),
    ]
