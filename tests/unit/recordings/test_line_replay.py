"""What reaches the sink, in which order, and what is reported as a fault."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from tidegauge.errors import StepEventError
from tidegauge.events import (
    ABSENT,
    GO_ON,
    Call,
    CallResult,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    Signals,
    Step,
    StepSink,
)
from tidegauge.recordings.line_replay import Fault, Line, Replay, read_lines


class Heard(StepSink):
    """A sink that keeps what it hears and stops a run at its n-th step."""

    def __init__(self, *, stop_at: int | None = None, when: str = "issued") -> None:
        self.events: list[Any] = []
        self.stop_at = stop_at
        self.when = when
        self.steps = 0

    def run_started(self, event: RunStarted) -> None:
        self.events.append(event)

    def step_issued(self, event: Step) -> Decision:
        self.events.append(event)
        self.steps += 1
        return self._decide("issued")

    def step_observed(self, event: Outcome) -> Decision:
        self.events.append(event)
        return self._decide("observed")

    def run_ended(self, event: RunEnded) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def _decide(self, when: str) -> Decision:
        stops = self.steps == self.stop_at and when == self.when
        return Decision("stop", "steps", "enough") if stops else GO_ON


def replayed(sink: Heard, *events: Any, **options: Any) -> tuple[Replay, list[str]]:
    faults: list[Fault] = []
    replay = Replay(sink, on_fault=faults.append, **options)
    content = b"\n".join(e if isinstance(e, bytes) else json.dumps(e).encode() for e in events)
    for line in read_lines(io.BytesIO(content)):
        replay.take(line, "f")
    return replay, [str(fault) for fault in faults]


def start(run: str = "r", **keys: Any) -> dict[str, Any]:
    return {"type": "start", "run": run, **keys}


def step(run: str = "r", **keys: Any) -> dict[str, Any]:
    return {"type": "step", "run": run, "action": "go", **keys}


def end(run: str = "r", **keys: Any) -> dict[str, Any]:
    return {"type": "end", "run": run, **keys}


RUN = ["RunStarted", "Step", "Outcome", "RunEnded"]


def test_a_run_goes_through_in_order() -> None:
    sink = Heard()
    replay, faults = replayed(sink, start(), step(), end(success=True))
    assert sink.kinds() == RUN
    assert (replay.skipped_lines, faults) == (0, [])


def test_empty_lines_carriage_returns_and_a_byte_order_mark_are_nothing() -> None:
    sink = Heard()
    first = b"\xef\xbb\xbf" + json.dumps(start()).encode() + b"\r"
    replay, faults = replayed(sink, first, b"", b" \t\r", step(), b"", end(), b"")
    assert sink.kinds() == RUN
    assert (replay.skipped_lines, faults) == (0, [])


def test_a_step_opens_a_run_that_was_not_started() -> None:
    sink = Heard()
    replayed(sink, step(time="1970-01-01T00:00:05Z"), end(), t_max=7)
    assert sink.kinds() == RUN
    assert sink.events[0] == RunStarted(run="r", t_max=7, time=5.0)


def test_t_max_is_that_of_every_run() -> None:
    sink = Heard()
    replayed(sink, start("a", t_max=5), start("b"), t_max=9)
    assert [event.t_max for event in sink.events] == [9, 9]


def test_bad_lines_are_reported_counted_and_skipped() -> None:
    sink = Heard()
    replay, faults = replayed(sink, start(), b"nope", step(error=3), step(), end())
    assert sink.kinds() == RUN
    assert replay.skipped_lines == 2
    no_json, wrong = faults
    assert re.fullmatch(r"f:2: invalid JSON: .+ at column 1", no_json)
    assert wrong == "f:3: error is a number; use true, false or null"


def test_what_comes_after_the_end_or_before_the_start_is_skipped() -> None:
    sink = Heard()
    replay, faults = replayed(sink, end(), start(), step(), end(), step(), end())
    assert sink.kinds() == RUN
    assert replay.skipped_lines == 3
    assert faults == [
        "f:1: the run 'r' was never started",
        "f:5: the run 'r' has already ended",
        "f:6: the run 'r' has already ended",
    ]


def test_an_id_can_be_used_again_after_the_end() -> None:
    sink = Heard()
    replay, faults = replayed(sink, start(), step(), end(), start(), step(), end())
    assert sink.kinds() == RUN * 2
    assert (replay.skipped_lines, faults) == (0, [])


def test_a_second_start_is_a_new_run_and_reported() -> None:
    sink = Heard()
    replay, faults = replayed(sink, start(), step(), start(agent="b"), step(), end())
    assert sink.kinds() == ["RunStarted", "Step", "Outcome", *RUN]
    assert replay.skipped_lines == 0
    assert faults == ["f:3: run 'r' starts again before its end"]


@pytest.mark.parametrize(
    ("when", "heard"), [("issued", ["Step"]), ("observed", ["Step", "Outcome"])]
)
def test_a_stopped_run_ends_there(when: str, heard: list[str]) -> None:
    sink = Heard(stop_at=2, when=when)
    replay, faults = replayed(
        sink, start(), step(), step(), step(), end(success=True), start(), step()
    )
    assert sink.kinds() == [
        *["RunStarted", "Step", "Outcome"],
        *[*heard, "RunEnded"],
        *["RunStarted", "Step", "Outcome"],
    ]
    stopped = next(event for event in sink.events if isinstance(event, RunEnded))
    assert stopped == RunEnded(run="r", outcome="stopped", reason="steps")
    assert (replay.skipped_lines, faults) == (0, [])


def test_after_a_stopped_runs_end_a_step_of_it_is_a_fault() -> None:
    sink = Heard(stop_at=1)
    _, faults = replayed(sink, start(), step(), end(), step())
    assert faults == ["f:4: the run 'r' has already ended"]


def test_left_out_steps_still_open_their_run() -> None:
    sink = Heard()
    replayed(sink, step(action="think"), step(), ignore_actions=("think",))
    assert sink.kinds() == ["RunStarted", "Step", "Outcome"]


def test_what_is_left_out_leaves_the_rest_as_it_was_reported() -> None:
    sink = Heard()
    thought = step(action="think", state="hall", outcome="OK.")
    replayed(sink, start(), thought, step(state="OK."), step(), ignore_actions=("think",))
    assert [e.state for e in sink.events if isinstance(e, Step)] == ["OK.", ABSENT]


def test_a_round_loses_only_the_calls_that_are_left_out() -> None:
    sink = Heard()
    calls = [
        {"action": "think", "outcome": "OK."},
        {"action": "read", "args": "f", "outcome": "text", "error": False},
    ]
    line = {"type": "step", "run": "r", "calls": calls, "progress": 0.5}
    replayed(sink, line, {"type": "step", "run": "r", "calls": []}, ignore_actions=("think",))
    (round_, empty) = [e for e in sink.events if isinstance(e, Step)]
    (reported, _) = [e for e in sink.events if isinstance(e, Outcome)]
    assert (round_.calls, empty.calls) == ((Call("read", "f"),), ())
    assert (reported.results, reported.progress) == ((CallResult("text", False),), 0.5)


def test_a_long_line_is_skipped_and_not_held() -> None:
    class Endless(io.RawIOBase):
        """So many bytes without a line's end, made as they are read."""

        def __init__(self, size: int) -> None:
            self.left = size

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            size = min(len(buffer), self.left)
            self.left -= size
            buffer[:size] = b"x" * size
            return size

    lines = list(read_lines(io.BufferedReader(Endless(1_000_000)), limit=1_000))
    assert lines == [Line(1, None, 1_000_000)]


def test_the_limit_is_exact() -> None:
    content = b"12345\n123456\n12345"
    assert list(read_lines(io.BytesIO(content), limit=6)) == [
        Line(1, b"12345\n", 6),
        Line(2, None, 7),
        Line(3, b"12345", 5),
    ]


def test_the_line_after_a_long_one_is_read() -> None:
    sink = Heard()
    replay = Replay(sink)
    replay.take(Line(1, None, 100 << 20), "f")
    replay.take(Line(2, json.dumps(step()).encode(), 1), "f")
    assert replay.skipped_lines == 1
    assert sink.kinds() == ["RunStarted", "Step", "Outcome"]


def test_an_on_fault_that_raises_ends_the_replay() -> None:
    def fatal(fault: Fault) -> None:
        raise RuntimeError(str(fault))

    replay = Replay(Heard(), on_fault=fatal)
    with pytest.raises(RuntimeError, match="f:1: invalid JSON"):
        replay.take(Line(1, b"nope", 4), "f")


def test_ids_are_shown_so_that_they_cannot_hurt() -> None:
    _, faults = replayed(Heard(), end("\x1b[31m" + "x" * 500))
    assert faults[0].startswith("f:1: the run '\\x1b[31mxxx")
    assert len(faults[0]) < 150


def test_faults_of_the_sink_are_not_taken_for_bad_lines() -> None:
    class Broken(Heard):
        def step_issued(self, event: Step) -> Decision:
            raise ValueError("ours")

    with pytest.raises(ValueError, match="ours") as error:
        replayed(Broken(), step())
    assert not isinstance(error.value, StepEventError)


def late(number: int, run: str = "r", **keys: Any) -> dict[str, Any]:
    return {"type": "outcome", "run": run, "late_outcome": number, **keys}


class Numbering(Heard):
    """Returns the index of each step, as an engine does."""

    def step_issued(self, event: Step) -> Decision:
        decision = super().step_issued(event)
        return decision._replace(signals=Signals(event.run, self.steps - 1, self.steps, b"", b""))


def outcomes(sink: Heard) -> list[tuple[int | None, object]]:
    return [(e.step, e.results[0].outcome) for e in sink.events if isinstance(e, Outcome)]


def test_a_late_outcome_is_delivered_where_its_line_is() -> None:
    sink = Numbering()
    _, faults = replayed(
        sink,
        start(),
        step(late_outcome=0),
        step(late_outcome=1),
        late(1, outcome="second"),
        late(0, outcome="first", tokens=3),
        step(outcome="third"),
        end(),
    )
    assert faults == []
    expected = ["Step", "Step", "Outcome", "Outcome", "Step", "Outcome"]
    assert sink.kinds() == ["RunStarted", *expected, "RunEnded"]
    assert outcomes(sink) == [(1, "second"), (0, "first"), (None, "third")]


def test_late_outcomes_are_counted_without_the_steps_that_are_left_out() -> None:
    sink = Numbering()
    calls = [{"action": "think"}, {"action": "go"}]
    _, faults = replayed(
        sink,
        {**step(late_outcome=0), "action": "think"},
        {"type": "step", "run": "r", "calls": calls, "late_outcome": 1},
        late(0, outcome="a thought"),
        late(1, calls=[{"outcome": "a thought"}, {"outcome": "a place"}]),
        ignore_actions=("think",),
    )
    assert faults == []
    assert outcomes(sink) == [(0, "a place")]


def test_late_outcomes_that_belong_to_nothing_are_faults() -> None:
    _, faults = replayed(
        Numbering(),
        late(0),
        start(),
        step(),
        late(0),
        step(late_outcome=1),
        late(1),
        late(1),
        step(late_outcome=2),
        end(),
        late(2),
        start(),
        late(2),
    )
    assert faults == [
        "f:1: the run 'r' is not open",
        "f:4: step 0 does not wait for a result",
        "f:7: step 1 does not wait for a result",
        "f:10: the run 'r' is not open",
        "f:12: step 2 does not wait for a result",
    ]


def test_a_run_that_is_stopped_hears_no_late_outcome() -> None:
    sink = Heard(stop_at=1)
    _, faults = replayed(sink, start(), step(late_outcome=0), step(), late(0), end())
    assert (faults, sink.kinds()) == ([], ["RunStarted", "Step", "RunEnded"])


def test_as_many_late_outcomes_are_waited_for_as_an_engine_waits_for() -> None:
    steps = [step(late_outcome=n) for n in range(1_001)]
    _, faults = replayed(Numbering(), *steps, late(0), late(1))
    assert faults == ["f:1002: step 0 does not wait for a result"]
