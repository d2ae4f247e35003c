"""The engine: who is held, who is dropped, and that sums are exact whatever happens at once."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections import OrderedDict
from itertools import pairwise
from typing import Any

import pytest

from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.safety.critical import interrupted
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Exploration, SuccessRate, registry
from tidegauge.streaming_metrics import run as run_module
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.registry import RUNS
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.snapshot import GroupKey
from tidegauge.testing import SteppedClock


def start(engine, run="r1", **fields):
    engine.run_started(RunStarted(run=run, **fields))


def issue(engine, run="r1", action="look", arguments=None, **fields):
    return engine.step_issued(Step(run=run, calls=(Call(action, arguments),), **fields))


def observe(engine, run="r1", outcome="nothing", error=False, **fields):
    results = (CallResult(outcome, error),)
    return engine.step_observed(Outcome(run=run, results=results, **fields))


def end(engine, run="r1", **fields):
    return engine.run_ended(RunEnded(run=run, **fields))


def group_of(snapshot, agent="", task_group="", memory=""):
    return next(
        group for group in snapshot.groups if group.key == GroupKey(agent, task_group, memory)
    )


def active(engine):
    return [report.run for report in engine.snapshot().active]


class TestBounds:
    def test_the_run_idle_for_longest_makes_room(self):
        clock = SteppedClock()
        engine = Engine(max_runs=2, clock=clock)
        for run in ("a", "b"):
            start(engine, run)
            clock.advance(1)
        issue(engine, "a")
        start(engine, "c")
        assert active(engine) == ["a", "c"]
        snapshot = engine.snapshot()
        assert (snapshot.evicted_runs, snapshot.dropped_events) == (1, 0)
        assert group_of(snapshot).finished.finished == {"unknown": 1}

    def test_without_a_clock_it_is_the_one_not_heard_of_for_longest(self):
        engine = Engine(max_runs=2, clock=None)
        start(engine, "a")
        start(engine, "b")
        issue(engine, "a")
        start(engine, "c")
        assert active(engine) == ["a", "c"]

    def test_an_idle_run_is_ended_and_one_with_events_is_not(self):
        clock = SteppedClock()
        engine = Engine(idle_seconds=10, clock=clock)
        start(engine, "idle")
        start(engine, "busy")
        clock.advance(8)
        issue(engine, "busy")
        clock.advance(2.5)
        assert active(engine) == ["busy"]
        assert engine.snapshot().evicted_runs == 1
        assert issue(engine, "idle") is None

    def test_a_run_that_its_adapter_evicts_is_counted_too_and_once(self):
        engine = Engine()
        for run, evicted in (("a", True), ("b", False)):
            start(engine, run)
            for _ in range(2):
                engine.run_ended(RunEnded(run=run, outcome="unknown", evicted=evicted))
        assert engine.snapshot().evicted_runs == 1

    def test_a_stopped_run_that_goes_idle_was_stopped(self):
        clock = SteppedClock()
        engine = Engine(idle_seconds=10, clock=clock)
        start(engine)
        issue(engine)
        engine.intervened("r1", "stop", "loop_repeats", 0)
        clock.advance(11)
        assert group_of(engine.snapshot()).finished.finished == {"stopped": 1}

    def test_events_of_unknown_runs_are_dropped_and_counted(self):
        engine = Engine()
        assert issue(engine) is None
        assert observe(engine) is None
        assert end(engine) is None
        engine.intervened("r1", "stop", "loop_repeats", 0)
        snapshot = engine.snapshot()
        assert (snapshot.dropped_events, snapshot.active, snapshot.groups) == (3, [], [])

    def test_a_step_may_open_its_run(self):
        engine = Engine(open_unknown_runs=True)
        assert issue(engine).step == 0
        assert engine.snapshot().dropped_events == 0

    def test_labels_are_bounded(self):
        engine = Engine(max_groups=2, max_actions=2)
        for n in range(4):
            start(engine, f"r{n}", agent=f"agent-{n}", memory=f"window-{n}")
            for _ in range(2):
                issue(engine, f"r{n}", f"tool-{n}", state="same")
            end(engine, f"r{n}")
        groups = {group.key: group for group in engine.snapshot().groups}
        assert [(key.agent, key.task_group) for key in groups] == [
            ("agent-0", ""),
            ("agent-1", ""),
            ("other", "other"),
            ("other", "other"),
        ]
        names = [name for group in groups.values() for name in group.totals.loop_steps]
        assert names == ["tool-0", "tool-1", "other", "other"]
        assert engine.snapshot().names_beyond_limit == {"action": 4, "group": 2, "memory": 0}

    def test_memory_arms_are_bounded(self):
        engine = Engine()
        for n in range(30):
            start(engine, f"r{n}", memory=f"window-{n}")
            end(engine, f"r{n}")
        arms = {group.key.memory for group in engine.snapshot().groups}
        assert len(arms) == 11
        assert "other" in arms
        assert engine.snapshot().names_beyond_limit["memory"] == 20

    def test_steps_that_nobody_observes_are_forgotten(self):
        engine = Engine()
        start(engine)
        for n in range(1_500):
            issue(engine, arguments=n)
        assert observe(engine, step=0) is None
        assert observe(engine, step=499) is None
        assert observe(engine, step=500) is not None
        assert engine.snapshot().dropped_events == 2

    def test_after_its_end_nothing_of_a_run_is_held_but_sums(self):
        engine = Engine()
        for n in range(50):
            start(engine, f"r{n}", task=f"task {n}")
            for _ in range(4):
                issue(engine, f"r{n}", state="same")
                observe(engine, f"r{n}")
            end(engine, f"r{n}", success=True)
        assert engine.snapshot().active == []
        gc.collect()
        held = reachable(engine)
        assert not [thing for thing in held if isinstance(thing, MeasuredRun)]
        texts = [thing for thing in held if isinstance(thing, str)]
        assert not [text for text in texts if text.startswith(("task ", "r1", "r2"))]


def reachable(root):
    """Everything that the garbage collector gets to from an object, but for code."""
    seen, found, todo = set(), [], [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        found.append(thing)
        todo += gc.get_referents(thing)
    return found


class TestOrder:
    def test_a_run_started_twice_ends_as_unknown_and_begins_anew(self):
        engine = Engine()
        start(engine, agent="first")
        issue(engine)
        start(engine, agent="second")
        assert issue(engine).step == 0
        snapshot = engine.snapshot()
        assert group_of(snapshot, "first").finished.finished == {"unknown": 1}
        assert [report.agent for report in snapshot.active] == ["second"]
        assert (snapshot.evicted_runs, snapshot.dropped_events) == (0, 0)

    def test_events_after_the_end_are_dropped(self):
        engine = Engine()
        start(engine)
        issue(engine)
        end(engine, success=True)
        assert observe(engine) is None
        assert issue(engine) is None
        assert end(engine) is None
        snapshot = engine.snapshot()
        assert snapshot.dropped_events == 3
        assert group_of(snapshot).totals.steps == 1

    def test_an_event_that_waits_while_its_run_ends_is_late(self):
        """The run is ended by another thread between finding it and taking the step."""
        engine = Engine()
        start(engine)
        run = engine.get("r1")
        issue(engine)
        with run.lock:
            late = [
                threading.Thread(target=issue, args=(engine,)),
                threading.Thread(target=observe, args=(engine,)),
                threading.Thread(
                    target=engine.intervened, args=("r1", "would_stop", "loop_repeats", 0)
                ),
            ]
            for thread in late:
                thread.start()
            run.finished = True
        for thread in late:
            thread.join()
        assert engine.snapshot().dropped_events == 2
        assert (run.totals.steps, run.totals.interventions) == (1, {})

    def test_an_outcome_goes_to_its_step_in_any_order(self):
        engine = Engine(clock=None)
        start(engine)
        for n in range(3):
            issue(engine, action=f"tool-{n}", state="same", tokens=10 * n)
        observe(engine, outcome="two", step=2)
        assert issue(engine).state_digest == observed_state("two")
        signals = observe(engine, outcome="two", error=True, step=0)
        assert signals.result_streak == 2
        assert signals.recurrence == 0  # another action brought it
        observe(engine, outcome="three", step=3)
        observe(engine, outcome="late", step=1)
        assert observe(engine, step=1) is None  # a second outcome of one step
        assert issue(engine).state_digest == observed_state("three")
        assert engine.snapshot().dropped_events == 1

    def test_an_outcome_without_a_step_is_that_of_the_last(self):
        engine = Engine()
        start(engine)
        issue(engine)
        assert observe(engine) is not None
        assert observe(engine) is None


def observed_state(outcome):
    """Digest of the state after one step that brought this outcome."""
    engine = Engine()
    start(engine)
    issue(engine)
    observe(engine, outcome=outcome)
    return issue(engine).state_digest


class TestState:
    def test_an_absent_state_is_the_outcome_before(self):
        engine = Engine()
        start(engine)
        issue(engine)
        observe(engine, outcome="page 2")
        assert issue(engine).state_digest == observed_state("page 2")

    def test_the_first_state_is_the_task(self):
        engine = Engine()
        for run, task in (("a", "find it"), ("b", "find it"), ("c", "lose it")):
            start(engine, run, task=task)
        states = [issue(engine, run).state_digest for run in "abc"]
        assert states[0] == states[1] != states[2]

    def test_states_that_nobody_knows_equal_no_other(self):
        engine = Engine()
        start(engine)
        states = [issue(engine).state_digest for _ in range(5)]
        assert len(set(states)) == 5
        assert {len(state) for state in states} == {16}
        assert engine.snapshot().active[0].loop_steps == 0

    def test_an_explicit_state_counts_whatever_came_back(self):
        engine = Engine()
        start(engine)
        for n in range(3):
            issue(engine, state={"url": "/cart", "time": None})
            observe(engine, outcome=n)
        assert engine.snapshot().active[0].loops == [(1, 1, 2, 2)]

    def test_none_is_a_state(self):
        engine = Engine()
        start(engine)
        states = [issue(engine, state=state).state_digest for state in (None, None, ABSENT)]
        assert states[0] == states[1] != states[2]

    def test_the_normaliser_is_used_on_all_of_them(self):
        engine = Engine(normaliser=lambda text: "".join(c for c in text if not c.isdigit()))
        start(engine, task="at 12:00")
        for n in range(4):
            issue(engine, arguments={"id": n})
            observe(engine, outcome=f"took {n} ms")
        report = engine.snapshot().active[0]
        assert report.loops == [(2, 1, 2, 2)]
        assert report.result_streak == 4

    @pytest.mark.parametrize(
        ("result", "stuck"),
        [
            *(("OK", False), ("No problems found.", False), ("no lint errors found", False)),
            *(("0 vulnerabilities found", False), ("no diagnostics", False)),
            *(("No flights found", True), ("no matches", True), ("not found", True)),
        ],
    )
    def test_checks_that_find_nothing_wrong_are_progress_and_searches_are_not(self, result, stuck):
        engine = Engine()
        start(engine)
        for n in range(9):
            issue(engine, arguments={"path": n})
            signals = observe(engine, outcome=result)
        assert (signals.result_streak, signals.stale_score > 0) == (
            (9, True) if stuck else (1, False)
        )
        assert stuck or signals.more["empty_streak"] == 0


class TestAmounts:
    def test_tokens_of_the_choice_and_of_the_step(self):
        engine = Engine()
        start(engine)
        issue(engine, tokens=10)
        observe(engine, tokens=5)
        issue(engine)
        observe(engine)
        issue(engine, tokens=0.5)
        assert engine.snapshot().active[0].tokens == 15.5

    def test_seconds_are_reported_or_measured(self):
        clock = SteppedClock(100.0)
        engine = Engine(clock=clock)
        start(engine)
        for one in (None, 0.25):
            issue(engine)
            clock.advance(2)
            observe(engine, seconds=one)
        assert group_of(engine.snapshot()).totals.step_seconds.total == 2.25

    @pytest.mark.parametrize(
        ("issued", "observed", "seconds"),
        [
            (1_000.0, 1_001.5, 1.5),  # both given: a recorded run
            (None, 1_001.5, 2.0),  # one given, of another clock: only ours counts
            (1_000.0, None, 2.0),
            (1_001.0, 1_000.0, 0.0),  # backwards: not known
        ],
    )
    def test_times_of_two_clocks_are_never_compared(self, issued, observed, seconds):
        clock = SteppedClock(5.0)
        engine = Engine(clock=clock)
        start(engine)
        issue(engine, time=issued)
        clock.advance(2)
        observe(engine, time=observed)
        assert group_of(engine.snapshot()).totals.step_seconds.total == seconds

    def test_without_any_time_there_are_no_seconds(self):
        engine = Engine(clock=None)
        start(engine)
        issue(engine)
        observe(engine)
        assert sum(group_of(engine.snapshot()).totals.step_seconds.counts) == 0

    def test_what_a_loop_costs_from_its_first_repeated_step_on(self):
        engine = Engine(clock=SteppedClock())
        start(engine)
        costs = []
        for n in range(7):
            signals = issue(engine, state="AB"[n % 2] if n < 6 else "C", tokens=n)
            costs.append((signals.loop_cost_steps, signals.loop_cost_tokens))
            signals = observe(engine)
            costs.append((signals.loop_cost_steps, signals.loop_cost_tokens))
        # A B A B: onset when the fourth action is issued; its tokens were spent on choosing it
        assert costs[4:] == [
            (0, None),
            (0, None),
            (2, 2 + 3),
            (2, 2 + 3),
            (3, 2 + 3 + 4),
            (3, 2 + 3 + 4),
            (4, 2 + 3 + 4 + 5),
            (4, 2 + 3 + 4 + 5),
            (0, None),
            (0, None),
        ]
        assert group_of(engine.snapshot()).totals.loop_tokens == 2 + 3 + 4 + 5

    def test_a_loop_of_calls_that_change_something_costs_only_once_one_fails(self):
        engine = Engine(declarations={"go": ToolDeclaration(mutates=True)})
        start(engine)
        costs = []
        for error in (False, False, False, True, True, False):
            issue(engine, action="go", state="A", tokens=1)
            observe(engine, error=error, tokens=2)
            report = engine.get("r1").report()
            costs.append((report.loop_steps, report.lost_tokens))
        # the step after the one that failed repeats it, and all before it repeated one another
        assert costs == [(0, None), (0, None), (0, None), (0, None), (4, 12), (5, 15)]

    def test_a_second_loop_does_not_inherit_the_cost_of_the_first(self):
        engine = Engine()
        start(engine)
        for state in "AAA" + "BB":
            signals = issue(engine, state=state, tokens=1)
            if state == "A":
                observe(engine)
        assert (signals.loop_first_step, signals.loop_cost_steps) == (4, 1)
        assert signals.loop_cost_tokens == 1

    @pytest.mark.parametrize(
        ("errors", "failed"),
        [
            ([True, True], 1),
            ([True, False], 0),
            ([True, None], None),
            ([None, False], 0),
            ([True], None),  # of the second call nothing is known
        ],
    )
    def test_a_round_fails_when_all_of_its_calls_do(self, errors, failed):
        engine = Engine()
        start(engine)
        engine.step_issued(Step(run="r1", calls=(Call("a"), Call("b"))))
        results = tuple(CallResult("x", error) for error in errors)
        assert engine.step_observed(Outcome(run="r1", results=results)).failed_rounds == failed


class TestEnd:
    @pytest.mark.parametrize(
        ("given", "outcome", "success"),
        [
            ({}, "unknown", None),
            ({"success": True}, "success", True),
            ({"success": False}, "failure", False),
            ({"outcome": "error"}, "error", False),
            ({"outcome": "stopped"}, "stopped", False),
            ({"outcome": "error", "success": True}, "error", True),
        ],
    )
    def test_how_a_run_ended(self, given, outcome, success):
        engine = Engine()
        start(engine)
        report = end(engine, **given)
        assert (report.outcome, report.success, report.finished) == (outcome, success, True)

    def test_t_max_is_the_run_s_or_its_group_s_or_the_default(self):
        engine = Engine(t_max=10, t_max_by_group={"shop": 20})
        start(engine, "a", t_max=30, task_group="shop")
        start(engine, "b", task_group="shop")
        start(engine, "c")
        assert [report.t_max for report in engine.snapshot().active] == [30, 20, 10]

    def test_an_intervention_counts_once_a_run(self):
        engine = Engine()
        for run in ("a", "b"):
            start(engine, run)
            for step in (3, 4):
                engine.intervened(run, "would_stop", "loop_repeats", step)
            engine.intervened(run, "stop", "steps", 9)
        report = end(engine, "a")
        assert (report.intervention, report.intervention_step) == ("stop", 9)
        assert group_of(engine.snapshot()).totals.interventions == {
            ("would_stop", "loop_repeats"): 2,
            ("stop", "steps"): 2,
        }

    def test_the_listener_gets_every_run_that_ended(self):
        received = []
        engine = Engine(max_runs=1, on_finished=lambda report: received.append(report.run))
        start(engine, "a")
        start(engine, "b")
        end(engine, "b")
        assert received == ["a", "b"]

    @pytest.mark.usefixtures("faults_are_swallowed")
    def test_a_fault_of_the_listener_is_not_the_next_run_s(self):
        def listener(report):
            raise RuntimeError("full disk")

        engine = Engine(max_runs=1, on_finished=listener)
        start(engine, "a")
        start(engine, "b")
        assert issue(engine, "b") is not None
        assert end(engine, "b").finished
        assert internal_errors.counts() == {"engine.on_finished": 2}


class TestThreads:
    THREADS, RUNS, STEPS = 8, 40, 6

    def test_sums_are_exact_and_never_fall_while_runs_go_on(self):
        engine = Engine()
        stop = threading.Event()
        snapshots = []
        faults = []

        def work(thread):
            try:
                for n in range(self.RUNS):
                    run = f"{thread}-{n}"
                    start(engine, run, agent=f"agent-{n % 2}", t_max=10)
                    for t in range(self.STEPS):
                        issue(engine, run, state=t % 2, tokens=1)
                        observe(engine, run, outcome=t, seconds=0.1)
                    if thread % 2 and n % 5 == 0:
                        engine.intervened(run, "would_stop", "loop_repeats", 4)
                    end(engine, run, success=n % 4 == 0)
            except BaseException as error:
                faults.append(error)

        def look():
            while not stop.is_set():
                snapshots.append(counters(engine.snapshot()))

        workers = [threading.Thread(target=work, args=(n,)) for n in range(self.THREADS)]
        watcher = threading.Thread(target=look)
        watcher.start()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        stop.set()
        watcher.join()

        runs = self.THREADS * self.RUNS
        last = counters(engine.snapshot())
        assert faults == []
        assert last["started"] == last["finished"] == runs
        assert last["steps"] == runs * self.STEPS
        assert last["loop_steps"] == runs * (self.STEPS - 2)
        assert last["solved"] == runs / 4
        assert last["interventions"] == runs / 10
        assert last["loop_tokens"] == runs * (self.STEPS - 2)
        assert last["dropped"] == 0
        assert len(snapshots) > 10
        for before, after in pairwise([*snapshots, last]):
            fell = {name for name in before if after[name] < before[name]}
            assert not fell, (before, after)

    def test_one_run_fed_and_ended_by_many_threads(self):
        engine = Engine(open_unknown_runs=True)
        taken = []

        def work():
            for _ in range(200):
                if issue(engine) is not None:
                    taken.append(1)
                end(engine)

        workers = [threading.Thread(target=work) for _ in range(self.THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        snapshot = engine.snapshot()
        assert group_of(snapshot).totals.steps == len(taken)

    def test_a_run_that_two_threads_open_at_once_keeps_its_steps(self):
        first_step = threading.Event()

        def slow_in_the_other_thread(text):
            if threading.current_thread() is other:
                first_step.wait()
            return text

        engine = Engine(normaliser=slow_in_the_other_thread)
        other = threading.Thread(target=start, args=(engine,), kwargs={"task": "t"})
        other.start()
        start(engine, task="t")
        issue(engine)
        first_step.set()
        other.join()
        assert issue(engine).step == 1

    def test_the_cap_holds_when_many_threads_open_runs(self):
        engine = Engine(max_runs=5)

        def work(thread):
            for n in range(100):
                start(engine, f"{thread}-{n}")

        workers = [threading.Thread(target=work, args=(n,)) for n in range(self.THREADS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        snapshot = engine.snapshot()
        assert len(snapshot.active) == 5
        assert snapshot.evicted_runs == self.THREADS * 100 - 5
        assert snapshot.dropped_events == 0

    def test_a_step_waits_for_no_lock_that_runs_share(self):
        engine = Engine()
        start(engine)
        found = []

        def step():
            found.append(issue(engine).step)
            found.append(observe(engine).step)

        other = threading.Thread(target=step, daemon=True)
        with engine._lock:
            other.start()
            other.join(10)
            assert found == [0, 0]

    def test_the_run_idle_for_longest_is_found_while_steps_move_other_runs(self):
        class Moved(OrderedDict):
            """A step of another thread moves its run while this one looks for the oldest."""

            moves = 0

            def values(self):
                values = iter(super().values())
                if self.moves < 2:
                    self.moves += 1
                    self.move_to_end(next(iter(self)))
                return values

        engine = Engine(max_runs=3)
        for run in ("a", "b", "c"):
            start(engine, run)
        engine._runs = Moved(engine._runs)
        start(engine, "d")
        assert engine._runs.moves == 2
        assert sorted(engine._runs) == ["a", "b", "d"]


def counters(snapshot):
    groups = snapshot.groups
    return {
        "started": sum(group.runs_started for group in groups),
        "finished": sum(group.finished.runs for group in groups),
        "solved": sum(group.finished.of(SuccessRate).solved for group in groups),
        "steps": sum(group.totals.steps for group in groups),
        "loop_steps": sum(sum(group.totals.loop_steps.values()) for group in groups),
        "loop_tokens": sum(group.totals.loop_tokens for group in groups),
        "seconds": sum(group.totals.step_seconds.total for group in groups),
        "observed": sum(sum(group.totals.step_seconds.counts) for group in groups),
        "interventions": sum(sum(group.totals.interventions.values()) for group in groups),
        "evicted": snapshot.evicted_runs,
        "dropped": snapshot.dropped_events,
    }


class TestPlaces:
    """Where a run goes, as the engine's settings say how its places lie."""

    def walk(self, engine, *places):
        for place in places:
            issue(engine)
            observe(engine, outcome=place, place=place)

    def test_places_reported_from_the_first_step_on_are_measured_from_there(self):
        engine = Engine()
        start(engine)
        issue(engine)
        observe(engine, outcome="nothing")
        assert engine.snapshot().active[0].frontier is None
        issue(engine)
        observe(engine, outcome="a hall", place="hall", exits=("attic",))
        report = engine.snapshot().active[0]
        assert (report.place, report.frontier, report.exploration_required) == ("hall", 1, 0)
        self.walk(engine, "hall")
        report = engine.snapshot().active[0]
        assert (report.exploration_required, report.exploration_errors) == (1, 1)

    def test_a_task_list_without_places_has_pending_tasks_and_no_rates(self):
        engine = Engine()
        start(engine, tasks=(Task("write"), Task("send", (("write",),))))
        issue(engine)
        observe(engine, outcome="written", achieved=("write",))
        report = engine.snapshot().active[0]
        assert (report.pending, report.frontier, report.exploitation_error) == (1, None, None)

    def test_what_is_no_task_is_counted_and_left_out(self, monkeypatch):
        class Row(tuple):
            def __iter__(self):
                raise AssertionError("called")

        monkeypatch.setattr(internal_errors, "reraise", False)
        engine = Engine()
        start(engine, tasks=(7, Row(("write", ())), ["send", [["write"], "write"]], ("go", {})))
        assert engine.snapshot().active[0].pending == 1
        assert internal_errors.counts() == {"task": 3}
        internal_errors.clear()

    def test_exits_that_lead_one_way_only(self):
        # from q the open place t is two moves away where q leads back to p, and three where it
        # doesn't: only then does going to s, two moves from t, come nearer
        gains = {}
        for directed in (False, True):
            engine = Engine(directed=directed)
            start(engine, place="s", exits=("p",))
            for place, exits in (("p", ("q", "t")), ("q", ("s",)), ("s", ("p",))):
                issue(engine)
                observe(engine, outcome=place, place=place, exits=exits)
            gains[directed] = engine.get("r1").find(Exploration).gain
        assert gains == {False: False, True: True}

    def test_a_distance_of_the_users_own_decides_the_gain(self):
        asked = []

        def distance(here, there):
            asked.append((here, there))
            return abs(ord(here) - ord(there))

        engine = Engine(distance=distance)
        start(engine, place="a", exits=("b", "z"))
        self.walk(engine, "b", "a")
        assert asked
        assert engine.get("r1").find(Exploration).gain is False

    def test_a_distance_is_asked_while_no_lock_is_held(self):
        def distance(here, there):
            assert not interrupted()
            reader = threading.Thread(target=engine.snapshot)  # it waits for the run's lock
            reader.start()
            reader.join(5)
            assert not reader.is_alive()
            return abs(ord(here) - ord(there))

        engine = Engine(distance=distance)
        start(engine, place="a", exits=("b", "z"))
        self.walk(engine, "b", "a", "c")
        assert engine.get("r1").find(Exploration).gain is True

    def test_a_distance_that_fails_leaves_the_gain_unknown_and_is_counted(self, monkeypatch):
        monkeypatch.setattr(internal_errors, "reraise", False)
        engine = Engine(distance=lambda here, there: 1 / 0)
        start(engine, place="a", exits=("b", "z"))
        self.walk(engine, "c")
        run = engine.get("r1")
        assert (run.find(Exploration).gain, run.find(Exploration).unknown_gain, run.lost) == (
            None,
            1,
            (),
        )
        assert internal_errors.counts() == {"distance": 1}
        internal_errors.clear()

    def test_an_answer_about_another_move_is_not_used(self):
        engine = Engine(distance=lambda here, there: 1.0 if there == here else 2.0)
        start(engine, place="a", exits=("b", "z"))
        early = engine.digester.outcome(Outcome("r1", (CallResult("c"),), place="c"))
        self.walk(engine, "b")
        issue(engine)
        engine.observe(early)
        assert engine.get("r1").find(Exploration).gain is None


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_run_that_a_group_cannot_add_leaves_the_others(monkeypatch) -> None:
    update = SuccessRate.update

    def broken(self, run):
        update(self, run)
        if run.steps == 1:
            raise OverflowError("too large")

    monkeypatch.setattr(SuccessRate, "update", broken)
    engine = Engine()
    for run, steps in (("a", 0), ("b", 1), ("c", 0)):
        start(engine, run)
        for _ in range(steps):
            engine.step_issued(Step(run=run, calls=(Call("look"),)))
        engine.run_ended(RunEnded(run=run, success=True))
    before = internal_errors.counts().get("engine.groups", 0)
    [group] = engine.snapshot().groups
    assert group.finished.of(SuccessRate).runs == 2
    assert internal_errors.counts()["engine.groups"] == before + 1
    [group] = engine.snapshot().groups  # and it is counted once
    assert group.finished.of(SuccessRate).runs == 2
    assert internal_errors.counts()["engine.groups"] == before + 1


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("kind", ["report", "ended"])
def test_a_metric_that_cannot_be_read_keeps_no_run_open(monkeypatch, kind) -> None:
    """A run that cannot be ended would block the expiry of all others, and every snapshot."""

    def broken(run, metric):
        raise ZeroDivisionError

    fault: dict[str, Any] = {kind: broken}
    metrics = [dataclasses.replace(one, **fault) if one.name == "loops" else one for one in RUNS]
    monkeypatch.setattr(run_module, "RUNS", tuple(metrics))
    clock = SteppedClock()
    engine = Engine(idle_seconds=10, clock=clock)
    start(engine, "a")
    issue(engine, "a")
    before = internal_errors.counts().get("metric.loops", 0)
    engine.snapshot()
    [report] = engine.snapshot().active
    assert report.steps == 1
    assert ("loops" in report.lost) == (kind == "report")
    clock.advance(11)
    start(engine, "b")
    assert active(engine) == ["b"]
    assert group_of(engine.snapshot()).finished.runs == 1
    assert internal_errors.counts()["metric.loops"] == before + (2 if kind == "report" else 1)


@pytest.mark.parametrize("order", [(1, 0, 3, 2, 5, 4, 7, 6), (7, 6, 5, 4, 3, 2, 1, 0)])
@pytest.mark.parametrize("ahead", [2, 8])
def test_what_loop_steps_cost_does_not_depend_on_when_their_results_come(
    order: tuple[int, ...], ahead: int
) -> None:
    def report(order: tuple[int, ...], ahead: int) -> tuple[Any, ...]:
        engine = Engine(clock=None)
        engine.run_started(RunStarted(run="r"))
        for first in range(0, 8, ahead):
            for t in range(first, first + ahead):
                state, entropy = "AB"[t % 2], 1.0 if t < 2 else 0.25
                engine.step_issued(Step("r", (Call("look"),), state, entropy=entropy))
            for t in order:
                result = Outcome("r", (CallResult("dust"),), t, tokens=2.0**t, seconds=1.0)
                if first <= t < first + ahead:
                    engine.step_observed(result)
        [group] = engine.snapshot().groups
        [run] = group.active
        return (
            (group.totals.loop_tokens, group.totals.loop_seconds),
            (run.loop_cost_steps, run.loop_cost_tokens, run.loop_cost_seconds),
            (run.loop_entropy, run.other_entropy),
        )

    expected = ((252.0, 6.0), (6, 252.0, 6.0), (0.25, 1.0))
    assert report(tuple(range(8)), 1) == expected
    assert report(order, ahead) == expected


def test_loop_steps_count_as_such_where_the_last_of_a_repetition_has_no_result() -> None:
    engine = Engine(clock=None)
    engine.run_started(RunStarted(run="r"))
    for t in range(8):
        entropy = 1.0 if t < 2 else 0.25
        engine.step_issued(Step("r", (Call("look"),), "AB"[t % 2], entropy=entropy))
        if t not in (3, 5):
            engine.step_observed(Outcome("r", (CallResult("dust"),), t, tokens=2.0**t))
    [group] = engine.snapshot().groups
    assert group.totals.loop_tokens == 4 + 16 + 64 + 128
    assert (group.active[0].loop_entropy, group.active[0].other_entropy) == (0.25, 1.0)


@pytest.mark.usefixtures("faults_are_swallowed")
def test_steps_go_on_where_the_metrics_that_they_call_for_cannot_be_found(monkeypatch) -> None:
    asked: list[int] = []

    def broken(moment, record):
        asked.append(moment)
        if len(asked) > 20:
            return []  # so that the test ends
        raise ZeroDivisionError

    monkeypatch.setattr(run_module, "brought_metrics", broken)
    engine = Engine(clock=None)
    start(engine)
    for _ in range(3):
        engine.step_issued(Step("r1", (Call("look"),), "a room", entropy=0.5))
        engine.step_observed(Outcome("r1", (CallResult("dust"),), place="hall"))
    [report] = engine.snapshot().active
    assert (report.steps, report.loop_steps, report.unguarded) == (3, 2, True)
    assert len(asked) == internal_errors.counts()["metric.brought"] == 3  # once a step


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_metric_that_keeps_only_sums_fails_once_a_run(monkeypatch) -> None:
    def broken(run, metric, record):
        raise ZeroDivisionError

    metrics = [
        dataclasses.replace(one, observed=broken) if one.name == "step_seconds" else one
        for one in RUNS
    ]
    monkeypatch.setattr(registry, "RUNS", tuple(metrics))
    monkeypatch.setattr(registry, "_planned", registry._planned.__wrapped__)  # which remembers them
    engine = Engine(clock=None)
    start(engine)
    for _ in range(3):
        issue(engine)
        observe(engine)
    [report] = engine.snapshot().active
    assert (report.steps, report.lost, report.unguarded) == (3, ("step_seconds",), True)
    assert internal_errors.counts()["metric.step_seconds"] == 1
