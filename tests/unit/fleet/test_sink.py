"""What a worker produces for runs: each summary once, each decision when it changes."""

from __future__ import annotations

from itertools import count
from typing import Any

import orjson
import pytest

from tidegauge.events import Call, CallResult, ModelUsage, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters.page import Asked, LiveReading
from tidegauge.fleet.kafka_records import read_decision
from tidegauge.fleet.sink import FleetSink
from tidegauge.policies import Budget, Policy, parse_rules
from tidegauge.streaming_metrics import Engine, EventLog, RunReport
from tidegauge.streaming_metrics.metric import Stateful

TRACE = "0" * 31 + "7"
POLICY = Policy(parse_rules("failed_rounds=2:nudge,loop_repeats=3"))


class Here:
    def __init__(self, event_log: EventLog | None = None, policy: Policy = POLICY) -> None:
        self.produced: list[tuple[str, dict[str, Any]]] = []
        self.engine = Engine(clock=None, on_finished=self._finished, event_log=event_log)
        self.sink = FleetSink(self.engine, policy, self._produce)

    def _finished(self, report: RunReport) -> None:
        self.sink.run_finished(report)

    def _produce(self, kind: str, key: str, record: bytes) -> None:
        message = orjson.loads(record)
        assert (message["type"], message["run"], message["version"]) == (kind, key, 1)
        if kind == "decision":
            assert read_decision(key.encode(), record).run == key
        self.produced.append((kind, message))

    def start(self, run: str = "r", trace_id: str | None = None, parent: str | None = None) -> None:
        self.sink.run_started(RunStarted(run=run, agent="a", trace_id=trace_id, parent=parent))

    def step(self, action: str, *, error: bool = False, run: str = "r") -> None:
        """A step; the answer is to go on."""
        asked = self.sink.step_issued(Step(run=run, calls=(Call(action, {}),)))
        outcome = Outcome(run=run, results=(CallResult(action, error),))
        assert [asked.action, self.sink.step_observed(outcome).action] == ["go_on", "go_on"]

    def end(self, run: str = "r") -> None:
        self.sink.run_ended(RunEnded(run=run, success=True))

    @property
    def decisions(self) -> list[str]:
        return [message["action"] for kind, message in self.produced if kind == "decision"]

    @property
    def summaries(self) -> list[str]:
        return [message["run"] for kind, message in self.produced if kind == "summary"]

    def active(self) -> list[str]:
        return [run.run for view in self.engine.snapshot().groups for run in view.active]


@pytest.fixture
def here() -> Here:
    return Here()


def test_a_summary_is_produced_when_a_run_has_ended(here) -> None:
    here.start(trace_id=TRACE)
    here.step("look")
    assert here.produced == []
    here.end()
    [(kind, message)] = here.produced
    assert (kind, message["trace_id"], message["outcome"]) == ("summary", TRACE, "success")
    assert (message["agent"], message["steps"], message["success"], message["stopped"]) == (
        "a",
        1,
        True,
        None,
    )
    here.end()
    assert len(here.produced) == 1


def test_a_summary_has_the_run_around_it(here) -> None:
    here.start(trace_id=TRACE, parent="outer")
    here.end()
    here.start()
    here.end()
    assert [message["parent"] for _, message in here.produced] == ["outer", None]


def test_a_run_that_starts_again_has_two_summaries(here) -> None:
    here.start()
    here.start()
    here.end()
    assert here.summaries == ["r", "r"]
    assert (len(here.sink), here.sink.is_open("r")) == (0, False)


def test_a_decision_is_produced_once_until_it_changes(here) -> None:
    here.start()
    for number in range(2):
        here.step(f"try {number}", error=True)
    for number in range(3):
        here.step(f"look {number}")
    assert here.decisions == ["nudge", "go_on"]
    nudge = here.produced[0][1]
    assert (nudge["reason"], nudge["step"], nudge.get("trace_id")) == ("failed_rounds", 1, None)
    assert "failed" in nudge["message"]
    here.end()
    # Those who keep decisions may forget it, though the last of them was to go on.
    assert here.decisions == ["nudge", "go_on", "ended"]


def test_a_stop_stays(here) -> None:
    here.start(trace_id=TRACE)
    for _ in range(8):
        here.step("again")
    here.step("something else")
    assert here.decisions == ["stop"]
    assert here.produced[0][1]["trace_id"] == TRACE
    here.end()
    assert here.decisions == ["stop", "ended"]


def test_runs_nothing_was_decided_for_report_no_end(here) -> None:
    here.start()
    here.step("look")
    here.end()
    assert here.decisions == []


def test_the_keys_of_runs_that_have_ended(here) -> None:
    here.start("one", TRACE)
    here.start("two", TRACE)
    here.start("r")
    assert len(here.sink) == 3
    here.end("one")
    assert here.sink.is_open(TRACE)
    here.end("two")
    here.end("r")
    assert here.sink.ended() == [TRACE, TRACE, "r"]
    assert here.sink.ended() == []
    assert not here.sink.is_open(TRACE)


def test_what_is_restored_is_not_produced_and_not_counted(here) -> None:
    here.sink.restoring = True
    here.start("gone")
    here.end("gone")
    here.start("again")
    here.start("again")
    here.start()
    for _ in range(6):
        here.step("again")
    here.sink.restored(["r", "again"])
    here.sink.restoring = False
    assert here.produced == []
    assert sorted(here.active()) == ["again", "r"]
    [view] = here.engine.snapshot().groups
    assert (view.runs_started, view.totals.steps) == (0, 0)
    assert not any(view.totals.interventions.values())
    here.step("again")
    here.end()
    [view] = here.engine.snapshot().groups
    assert view.totals.steps == 1
    # The worker that had the run then produced the stop, but not its end.
    assert [message["action"] for kind, message in here.produced if kind == "decision"] == ["ended"]
    [summary] = [message for kind, message in here.produced if kind == "summary"]
    assert (summary["steps"], summary["stopped"]["reason"]) == (7, "loop_repeats")


def test_what_goes_to_another_worker_is_neither_produced_nor_held(here) -> None:
    here.start("one", TRACE)
    here.start("two", TRACE)
    here.start("stays")
    here.step("look", run="one")
    here.sink.drop([TRACE, "unknown"])
    assert here.active() == ["stays"]
    assert (len(here.sink), here.sink.ended(), here.produced) == (1, [], [])
    assert sum(view.totals.steps for view in here.engine.snapshot().groups) == 1


def test_no_state_is_read_of_runs_that_leave(here, monkeypatch) -> None:
    read: list[str] = []

    def counted(one: Stateful) -> dict[str, Any]:
        read.append(type(one).__name__)
        return {}

    monkeypatch.setattr(Stateful, "state", counted)
    here.sink.restoring = True
    here.start()
    here.start()  # the one before leaves
    here.start("gone")
    here.end("gone")
    here.sink.restored(["r"])
    here.sink.restoring = False
    here.start("one", TRACE)
    here.step("look", run="one")
    here.sink.drop([TRACE])
    assert here.active() == ["r"]
    assert read == []


def test_the_live_page_shows_runs_that_were_restored_and_go_on() -> None:
    event_log = EventLog()
    here = Here(event_log)
    live = LiveReading(here.engine, event_log, digest=bytes.hex, clock=count().__next__)
    here.sink.restoring = True
    here.start()
    here.step("look")
    here.sink.restored(["r"])
    here.sink.restoring = False
    message = live.read(Asked())
    assert message["fleet"]["running"] == 1
    [row] = message["runs"]["rows"]
    assert (row["run"], row["steps"]) == ("r", 1)
    here.step("look")
    chosen = live.read(Asked(run=row["key"]))["chosen"]
    assert [step["step"] for step in chosen["trail"]] == [0, 1]
    here.end()
    assert live.read(Asked())["fleet"]["running"] == 0
    assert live.read(Asked(run=row["key"]))["chosen"]["outcome"] == "success"


def test_a_budget_decides_when_a_model_call_has_ended_also_in_the_next_worker() -> None:
    policy = Policy(budgets=[Budget("tokens", 100), Budget("seconds", 60, nudge_at=0)])
    here, there = Here(policy=policy), Here(policy=policy)
    here.start(trace_id=TRACE)
    assert here.sink.model_called("r", ModelUsage(85, began=1.0, ended=2.0)).action == "go_on"
    assert here.decisions == ["nudge"]
    there.sink.load(here.sink.saved(TRACE))
    there.sink.restored([TRACE])
    assert there.sink.model_called("r", ModelUsage(1, began=2.0, ended=3.0)).action == "go_on"
    assert there.decisions == []
    assert there.sink.model_called("r", ModelUsage(20, began=3.0, ended=4.0)).action == "go_on"
    assert there.decisions == ["stop"]
    [(_, record)] = there.produced
    assert (record["reason"], record["message"]) == (
        "budget_tokens",
        "the budget of 100 tokens for this run is used up: 106 tokens",
    )
