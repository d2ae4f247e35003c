"""Counters never go down: Prometheus takes any decrease, however small, for a restart."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters.prometheus import TidegaugeCollector
from tidegauge.exporters.reading import Reader
from tidegauge.streaming_metrics import Engine

Series: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
SECONDS = 2.0


def counters(collector: TidegaugeCollector) -> dict[Series, float]:
    """Every series that must not go down: counters, and all three kinds of a histogram's."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in collector.collect()
        if family.type in ("counter", "histogram")
        for sample in family.samples
    }


def decreases(before: dict[Series, float], after: dict[Series, float]) -> list[str]:
    return [
        f"{name} {dict(labels)}: {value!r} -> {after.get((name, labels))!r}"
        for (name, labels), value in before.items()
        if not after.get((name, labels), 0.0) >= value
    ]


class Agents:
    """Random starts, steps and ends of runs that several threads share."""

    def __init__(self, engine: Engine, seed: int, runs: int) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._runs = runs

    def act(self) -> None:
        engine, chance = self._engine, self._random
        run = f"run-{chance.randrange(self._runs)}"
        what = chance.random()
        if what < 0.1:
            memory = chance.choice([None, "on", "off"])
            agent = chance.choice("ab")
            engine.run_started(RunStarted(run=run, agent=agent, memory=memory, t_max=20))
        elif what < 0.2:
            engine.run_ended(RunEnded(run=run, success=chance.choice([True, False, None])))
        elif what < 0.25:
            engine.intervened(run, "would_stop", "loop_repeats", 1)
        elif what < 0.65:
            call = Call(chance.choice("xy"))
            tokens = chance.choice([None, 0.1, 7])
            engine.step_issued(Step(run=run, calls=(call,), state=0, tokens=tokens))
        else:
            results = (CallResult("same", chance.choice([True, False])),)
            engine.step_observed(Outcome(run=run, results=results, seconds=chance.random()))


@pytest.mark.parametrize(
    ("seed", "events"),
    [(1, 500), *(pytest.param(seed, 3_000, marks=pytest.mark.slow) for seed in (0, 2, 4))],
)
def test_counters_never_go_down_between_random_events(seed: int, events: int) -> None:
    engine = Engine(max_runs=6)
    collector, agents = TidegaugeCollector(Reader(engine)), Agents(engine, seed, runs=8)
    before: dict[Series, float] = {}
    for _ in range(events):
        agents.act()
        after = counters(collector)
        assert decreases(before, after) == []
        before = after


def test_counters_never_go_down_while_threads_step() -> None:
    engine = Engine(max_runs=6)
    collector = TidegaugeCollector(Reader(engine))
    done = threading.Event()
    faults: list[BaseException] = []

    def until_done(act: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                act()
        except BaseException as error:
            faults.append(error)

    threads = [
        threading.Thread(target=until_done, args=(Agents(engine, seed, runs=8).act,))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    before: dict[Series, float] = {}
    found: list[str] = []
    scrapes = 0
    ends = time.monotonic() + SECONDS
    try:
        while time.monotonic() < ends and not found:
            after = counters(collector)
            found = decreases(before, after)
            before = after
            scrapes += 1
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert found == []
    assert faults == []
    assert scrapes > 1
    assert decreases(before, counters(collector)) == []


def test_a_step_that_meets_the_end_of_its_run_is_not_counted() -> None:
    engine = Engine(clock=None)
    collector = TidegaugeCollector(Reader(engine))
    step = Step(run="r", calls=(Call("look"),))
    engine.run_started(RunStarted(run="r"))
    engine.step_issued(step)
    run = engine.get("r")
    assert run is not None
    with run.lock:
        run.end(RunEnded(run="r"))  # as another thread does before it takes the run out
    assert engine.step_issued(step) is None
    assert engine.step_observed(Outcome(run="r", results=(CallResult(1),))) is None
    engine.intervened("r", "stop", "steps", 1)
    fields = {name: value for (name, _), value in counters(collector).items()}
    assert fields["tidegauge_steps_total"] == 1
    assert fields["tidegauge_step_duration_seconds_count"] == 0
    assert fields["tidegauge_dropped_events_total"] == 2
    assert "tidegauge_interventions_total" not in fields


@pytest.mark.parametrize("amount", [-5.0, float("nan"), float("inf"), 1e300])
def test_amounts_that_cannot_be_added_up_are_left_out(amount: float) -> None:
    engine = Engine(clock=None)
    collector = TidegaugeCollector(Reader(engine))
    engine.run_started(RunStarted(run="r"))
    for one in (2.0, 2.0, amount, 2.0):
        engine.step_issued(Step(run="r", calls=(Call("look"),), state=0, tokens=one))
        engine.step_observed(Outcome(run="r", results=(CallResult(1),), seconds=one, tokens=one))
    fields = {name: value for (name, _), value in counters(collector).items()}
    assert fields["tidegauge_loop_tokens_total"] == 8.0
    assert fields["tidegauge_loop_seconds_total"] == 4.0
    assert fields["tidegauge_step_duration_seconds_sum"] == 6.0
