"""Runs reported as step events that come twice, too early, or never: what the sink gets."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import StepEventError
from tidegauge.events import GO_ON, Decision, Outcome, RunEnded, RunStarted, Signals, Step, StepSink
from tidegauge.fleet.kafka_records import Message, read_message
from tidegauge.fleet.step_runs import StepRuns

SETTLE, IDLE = 0.5, 60.0


class Listener(StepSink):
    """Takes down what a sink receives: the kind of each event, of a step its action."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.ends: list[RunEnded] = []
        self.steps: dict[str, int] = {}
        self.faulty = False

    def run_started(self, event: RunStarted) -> None:
        self.events.append((event.run, "start"))

    def step_issued(self, event: Step) -> Any:
        if self.faulty:
            raise ZeroDivisionError
        self.events.append((event.run, event.calls[0].action))
        steps = self.steps[event.run] = self.steps.get(event.run, 0) + 1
        return Decision(signals=Signals(event.run, steps - 1, steps, b"", b""))

    def step_observed(self, event: Outcome) -> Any:
        if event.results[0].outcome == "x":
            self.events.append((event.run, f"outcome {event.step}"))
        return GO_ON

    def run_ended(self, event: RunEnded) -> None:
        self.events.append((event.run, "end"))
        self.ends.append(event)

    def of(self, run: str = "r") -> list[str]:
        return [what for who, what in self.events if who == run]


class Here:
    def __init__(self, **limits: Any) -> None:
        self.sink = Listener()
        self.refused: list[tuple[Message, str]] = []
        self.forgotten: list[str] = []
        settings = {"allowed_lateness": SETTLE, "idle_seconds": IDLE, "max_runs": 10, **limits}
        self.runs = StepRuns(
            self.sink,
            lambda message, why: self.refused.append((message, why)),
            on_forgotten=self.forgotten.append,
            **settings,
        )

    def take(self, *events: dict[str, Any], now: float = 0.0) -> list[bool]:
        return [self.runs.take(message(event), now) for event in events]


def message(event: dict[str, Any]) -> Message:
    data = {"run": "r", **event}
    return read_message(data["run"].encode(), orjson.dumps(data))


def start(**fields: Any) -> dict[str, Any]:
    return {"type": "start", **fields}


def step(t: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "step", "action": f"a{t}", **({} if t is None else {"t": t}), **fields}


def pending(t: int) -> dict[str, Any]:
    return step(t, late_outcome=t)


def outcome(t: int) -> dict[str, Any]:
    return {"type": "outcome", "late_outcome": t, "outcome": "x"}


def end(steps: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "end", **({} if steps is None else {"steps": steps}), **fields}


@pytest.fixture
def here() -> Here:
    return Here()


RUN = [start(), step(0), pending(1), step(2), outcome(1), step(3), end(4)]
STEPS = ["start", "a0", "a1", "a2", "a3", "end"]


@given(st.permutations(RUN), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=5))
def test_any_order_within_the_time_to_settle_is_the_order_of_the_run(came, again) -> None:
    if came[-1] == outcome(1):  # nothing says that an end is to wait for it
        came.reverse()
    copies = 0
    for at, later in again:
        if came[at]["type"] != "end":
            came.insert(at + 1 + later % (len(came) - 1 - at), came[at])
            copies += 1
    here = Here()
    for n, event in enumerate(came):
        here.take(event, now=n * SETTLE / 20)
    taken = here.sink.of()
    assert [what for what in taken if what != "outcome 1"] == STEPS
    assert taken.index("a1") < taken.index("outcome 1") < taken.index("end")
    assert here.refused == []
    assert here.runs.duplicates == copies
    assert here.forgotten == ["r"]


def test_what_does_not_say_where_it_stands_is_taken_as_it_comes(here) -> None:
    here.take(step(), step(), end())
    assert here.sink.of() == ["start", "aNone", "aNone", "end"]


def test_a_step_waits_for_those_before_it(here) -> None:
    here.take(start(), step(0), step(2))
    assert here.sink.of() == ["start", "a0"]
    here.take(step(1))
    assert here.sink.of() == ["start", "a0", "a1", "a2"]


def test_and_no_longer_than_it_takes_to_settle(here) -> None:
    here.take(start(), step(2))
    here.runs.expire(SETTLE - 0.01)
    assert here.sink.of() == ["start"]
    here.runs.expire(SETTLE)
    assert here.sink.of() == ["start", "a2"]
    assert here.take(step(0), step(1), step(2), step(3), now=SETTLE) == [False, False, False, True]
    assert here.runs.duplicates == 3


def test_an_end_waits_for_the_steps_that_it_counts(here) -> None:
    here.take(start(), step(0), end(2))
    assert here.runs.holds("r")
    here.take(step(1))
    assert here.sink.of() == ["start", "a0", "a1", "end"]
    assert not here.runs.holds("r")


def test_an_end_waits_for_what_waits(here) -> None:
    here.take(start(), step(1), end())
    assert here.sink.of() == ["start"]
    here.take(step(0))
    assert here.sink.of() == ["start", "a0", "a1", "end"]


def test_an_end_that_counts_fewer_steps_than_came_is_the_end(here) -> None:
    here.take(start(), step(0), step(1), end(1))
    assert here.sink.of()[-1] == "end"


def test_an_end_that_comes_again_while_it_waits(here) -> None:
    assert here.take(start(), step(1), end(), end(2), step(0)) == [True, True, True, False, True]
    assert here.sink.of() == ["start", "a0", "a1", "end"]
    assert here.runs.duplicates == 1


def test_a_start_that_comes_again_is_a_duplicate_and_one_after_the_end_another_run(here) -> None:
    assert here.take(start(), step(0), start()) == [True, True, False]
    here.take(end(), start())
    assert here.sink.of() == ["start", "a0", "end", "start"]


def test_a_start_that_comes_after_its_steps_were_reported(here) -> None:
    here.take(step(0))
    here.runs.expire(SETTLE)
    assert here.take(start(), now=SETTLE) == [False]
    assert here.sink.of() == ["start", "a0"]


def test_outcomes_that_come_first_or_twice(here) -> None:
    assert here.take(start(), outcome(0), outcome(0), pending(0)) == [True, True, False, True]
    assert here.sink.of() == ["start", "a0", "outcome 0"]
    assert here.take(outcome(0)) == [False]
    assert here.runs.duplicates == 2


@pytest.mark.parametrize("event", [end(), outcome(0), end(0)])
def test_what_cannot_be_taken_opens_nothing(here, event) -> None:
    if event["type"] == "outcome":
        here.take(start(), step(0))
    with pytest.raises(StepEventError):
        here.take(event)
    assert here.runs.holds("r") is (event["type"] == "outcome")
    assert here.forgotten == []


@pytest.mark.parametrize("event", [outcome(3), end(3)])
def test_what_waited_in_vain_is_refused_and_its_run_forgotten(here, event) -> None:
    here.take(event)
    here.runs.expire(SETTLE)
    [(refused, why)] = here.refused
    assert refused == message(event)
    assert "run 'r'" in why
    here.runs.expire(IDLE + 1)
    assert here.forgotten == ["r"]
    assert here.sink.events == []


def test_a_run_is_ended_when_nothing_was_heard_of_it(here) -> None:
    here.take(start(run="old"), now=0.0)
    here.take(start(), now=30.0)
    here.take(step(3, run="old"), now=40.0)
    here.runs.expire(30.0 + IDLE)
    assert here.sink.ends == []
    here.runs.expire(30.1 + IDLE)
    [ended] = here.sink.ends
    assert (ended.run, ended.outcome, ended.reason) == ("r", "unknown", "idle")
    assert ended.evicted
    here.runs.expire(100.1)
    assert here.sink.of("old") == ["start", "a3", "end"]
    assert here.forgotten == ["r", "old"]


def test_what_comes_again_keeps_no_run_alive(here) -> None:
    """It is not kept, so that a worker that restores what was kept would not know of it."""
    here.take(start(), step(0))
    here.take(start(), step(0), now=IDLE)
    with pytest.raises(StepEventError):
        here.take(outcome(0), now=IDLE)
    here.runs.expire(IDLE + 0.1)
    assert here.sink.of()[-1] == "end"


def test_one_run_too_many_ends_the_one_idle_for_longest() -> None:
    here = Here(max_runs=2)
    here.take(start(run="a"), start(run="b"), step(1, run="a"), start(run="c"))
    assert here.forgotten == ["b"]
    here.take(start(run="d"))
    assert here.sink.of("a") == ["start", "a1", "end"]
    assert [ended.reason for ended in here.sink.ends] == ["too many runs"] * 2
    assert all(ended.evicted for ended in here.sink.ends)


def test_more_than_a_thousand_do_not_wait(here) -> None:
    here.take(start(), *[step(t) for t in range(1, 1_001)])
    assert here.sink.of() == ["start"]
    here.take(step(1_001))
    assert len(here.sink.of()) == 1_002
    assert here.runs.duplicates == 0


@pytest.mark.parametrize("more", [step(2_000), outcome(2_000)])
def test_what_comes_after_an_end_that_could_wait_no_longer(here, more) -> None:
    here.take(start(), *[step(t) for t in range(1, 1_000)], end())
    assert here.take(more) == [False]
    assert here.sink.of()[-1] == "end"
    here.runs.expire(SETTLE)
    assert here.runs.duplicates == 1


def test_the_largest_index_is_before_the_end(here) -> None:
    here.take(start(), end(3), step(2**64 - 1))
    here.runs.expire(SETTLE)
    assert here.sink.of() == ["start", f"a{2**64 - 1}", "end"]


def test_a_fault_of_ours_stops_nobody(here, faults_are_swallowed) -> None:
    here.take(start(), step(1), step(2), start(run="other"))
    here.sink.faulty = True
    here.runs.expire(SETTLE)
    here.sink.faulty = False
    here.take(step(3, run="other"))
    here.runs.expire(2 * IDLE)
    assert here.sink.of() == ["start", "end"]
    assert here.sink.of("other") == ["start", "a3", "end"]


def test_no_run_grows_with_its_outcomes(here) -> None:
    here.take(start())
    for t in range(5_000):
        here.take(pending(t), outcome(t))
    [run] = here.runs._runs.values()
    assert len(run.outcomes) <= 2_000
    assert here.take(outcome(4_999), outcome(4_500)) == [False, False]
