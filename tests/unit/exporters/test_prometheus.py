"""The collector and the text: what is emitted, with which values, and what is left out."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import tidegauge
from support.prometheus import find_binary
from tidegauge import catalog
from tidegauge.catalog import (
    DECISIONS,
    JUDGING,
    LIMITS,
    POLICY,
    RECEIVER,
    RECORDING,
    RUN_STORE_FAILURES,
    SAMPLING,
    SESSION_METRICS,
    SPAN_FAULTS,
    UNKNOWN_RESUMES,
    WORKER,
)
from tidegauge.events import (
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.exporters.prometheus import TidegaugeCollector
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.exporters.reading import MAX_LABEL, MAX_RUNS, Reader, read_families
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.loops import LOOPS
from tidegauge.streaming_metrics.registry import METRICS
from tidegauge.streaming_metrics.run_counts import RUNS_FINISHED
from tidegauge.testing import capture

ODD_TEXTS = (
    "",
    'a "quoted" one',
    "back\\slash",
    "two\nlines",
    "\x00\t\x85",
    "ünïcode",
    "\udc80",
    "x" * 500,
)


def registry_of(engine: Engine) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(TidegaugeCollector(Reader(engine)))
    return registry


def value(engine: Engine, name: str, **labels: str) -> float | None:
    labels = {"agent": "a", "task_group": "g"} | labels
    return registry_of(engine).get_sample_value(f"tidegauge_{name}", labels)


def start(engine: Engine, run: str, **more: object) -> None:
    fields = {"agent": "a", "task_group": "g"} | more
    engine.run_started(RunStarted(run=run, **fields))  # type: ignore[arg-type]


def step(engine: Engine, run: str, action: str = "look", **outcome: object) -> None:
    """One step that comes back to where it was, with the same result."""
    entity = (f"key of {run}",)
    engine.step_issued(
        Step(run=run, calls=(Call(action),), state="here", tokens=10, uses=entity, mentions=entity)
    )
    results = (CallResult("nothing", outcome.pop("error", False)),)  # type: ignore[arg-type]
    engine.step_observed(Outcome(run=run, results=results, seconds=0.5, **outcome))  # type: ignore[arg-type]


def catalogue_name(family: Metric) -> str:
    return family.name + "_total" if family.type == "counter" else family.name


def samples(families: Iterable[Metric]) -> list[tuple[object, ...]]:
    return [
        (sample.name, frozenset(sample.labels.items()), sample.value, sample.exemplar)
        for family in families
        for sample in family.samples
    ]


@pytest.fixture
def odd_engine() -> Engine:
    """Every metric of groups and runs, under names that nobody should give."""
    engine = Engine(clock=None)
    for number, text in enumerate(ODD_TEXTS):
        for run in (f"{text}{number}", f"{text}-{number}"):
            engine.run_started(
                RunStarted(
                    run=run,
                    agent=text,
                    task_group=text[::-1],
                    memory=text,
                    t_max=9,
                    trace_id=f"{number:032x}",
                )
            )
            for t in range(4):
                exits = (f"{text} {t}", f"{text} {t + 1}")
                step(engine, run, action=text, progress=t / 7, place=exits[0], exits=exits)
            engine.intervened(run, "would_stop", "loop_repeats", 3)
        engine.run_ended(RunEnded(run=f"{text}{number}", success=number % 2 == 0))
    for arm in ("on", "off"):
        engine.run_started(RunStarted(run=arm, memory=arm, t_max=9))
        engine.run_ended(RunEnded(run=arm, success=arm == "on"))
    return engine


def test_a_pipeline_that_met_everything_emits_the_catalogue_and_nothing_else() -> None:
    with capture(stop_on_loop=3, repetition=True) as seen:
        with tidegauge.run(agent="a", task="find it", t_max=5, memory="on", operations=3) as run:
            run.act("find", entropy=0.5)
            run.observe("found", progress=1.0)
            run.finish(success=True)
        with tidegauge.run(agent="a", t_max=5, memory="off") as run:
            run.act("lock", object())  # equal to nothing
            run.finish(success=False)
        with contextlib.suppress(tidegauge.RunStopped), tidegauge.run(agent="a", t_max=5) as run:
            while True:
                run.act("look", state="here", tokens=10)
                run.observe("nothing", error=True)
        with tidegauge.run(agent="a", t_max=5, place="hall", exits=["kitchen"]) as run:
            run.act("look", mentions=["knife"])
            run.act("find", uses=["knife"], entropy=0.5)
            run.observe("part 1", progress=0.5, place="kitchen", tasks=[Task("cook")])
            for _ in range(2):  # once more: it is in a loop
                run.act("wait", state="there", tokens=10)
                run.observe("nothing")
            families = list(
                TidegaugeCollector(Reader(seen.pipeline.engine, place_label=str)).collect()
            )
    elsewhere = RECEIVER + RECORDING + POLICY + JUDGING + DECISIONS + WORKER + SPAN_FAULTS
    elsewhere += (*SAMPLING, *SESSION_METRICS, *LIMITS, RUN_STORE_FAILURES, UNKNOWN_RESUMES)
    assert [catalogue_name(family) for family in families] == [
        metric.name for metric in METRICS if metric not in elsewhere
    ]
    for family, metric in zip(families, METRICS, strict=False):
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_where_runs_go_is_reported_once_they_say_it() -> None:
    engine = Engine(clock=None)
    start(engine, "nowhere")
    step(engine, "nowhere")
    assert value(engine, "behavior_errors_total", kind="exploration") is None
    assert value(engine, "frontier_places") is None
    start(engine, "lost", place="hall", exits=("kitchen", "attic"))
    for place in ("kitchen", "hall", "hall"):  # to the frontier, back, and staying
        step(engine, "lost", place=place)
    assert value(engine, "behavior_required_steps_total", kind="exploration") == 3
    assert value(engine, "behavior_errors_total", kind="exploration") == 1
    assert value(engine, "behavior_required_steps_total", kind="exploitation") == 0
    assert value(engine, "frontier_places") == 1
    assert value(engine, "pending_tasks") == 0
    assert value(engine, "backtracks_total") == 1
    assert value(engine, "premature_halts_total") == 0
    assert value(engine, "run_frontier_places", run="lost") == 1
    assert value(engine, "run_stale_score", run="nowhere") == 0
    assert value(engine, "stale_score", stat="max") == 0
    engine.run_ended(RunEnded(run="lost", success=False))
    assert value(engine, "premature_halts_total") == 1
    start(engine, "unjudged", place="hall", exits=("kitchen", "attic"))
    engine.run_ended(RunEnded(run="unjudged"))
    engine.run_ended(RunEnded(run="nowhere", success=False))
    assert value(engine, "runs_finished_total", outcome="failure") == 2
    assert value(engine, "halt_runs_total") == 1  # of the others it is not known
    assert value(engine, "frontier_places") is None
    assert value(engine, "behavior_errors_total", kind="exploration") == 1


def test_totals_are_what_was_fed() -> None:
    engine = Engine(clock=None)
    start(engine, "looped")
    for _ in range(5):  # the first closes no cycle; the second closes it, four repeat
        step(engine, "looped")
    start(engine, "solved", t_max=10)
    step(engine, "solved")
    engine.run_ended(RunEnded(run="solved", success=True))
    start(engine, "lost", t_max=10)
    for action in "xyz":
        step(engine, "lost", action=action, error=True)
    engine.run_ended(RunEnded(run="lost", success=False))
    engine.run_ended(RunEnded(run="nobody's", success=True))

    assert value(engine, "runs_started_total") == 3
    assert value(engine, "runs_active") == 1
    assert value(engine, "runs_looping") == 1
    assert value(engine, "runs_finished_total", outcome="success") == 1
    assert value(engine, "runs_finished_total", outcome="failure") == 1
    assert value(engine, "steps_total") == 9
    assert value(engine, "loop_steps_total", action="look") == 4
    assert value(engine, "tide_cycle_steps_total") == 4 + 0 + 2
    assert value(engine, "lasting_loops_total") == 1
    assert value(engine, "lasting_loops_active") == 1
    assert value(engine, "loops_total", kind="loop") == 1
    assert value(engine, "loops_total", kind="result_streak") == 2
    assert value(engine, "loops_total", kind="failed_rounds") == 1
    assert value(engine, "loop_tokens_total") == 40
    assert value(engine, "loop_seconds_total") == 2.0
    assert value(engine, "auv_sum_total", memory="") == 0.95
    assert value(engine, "auv_runs_total", memory="") == 2
    assert value(engine, "auv", memory="") == 0.475
    assert value(engine, "auv_lower") == 0.475
    assert value(engine, "success_rate") == 0.5
    assert value(engine, "success_turn_bucket", le="1.0") == 1
    assert value(engine, "success_turn_count") == 1
    assert value(engine, "finished_run_steps_bucket", le="1.0") == 1
    assert value(engine, "finished_run_steps_bucket", le="5.0") == 2
    assert value(engine, "finished_run_steps_sum") == 4
    assert value(engine, "step_duration_seconds_sum") == 4.5
    assert value(engine, "step_duration_seconds_bucket", le="+Inf") == 9
    assert value(engine, "run_steps", run="looped") == 5
    assert value(engine, "run_loop_repeats", run="looped") == 4
    assert value(engine, "run_loop_tokens", run="looped") == 40
    assert value(engine, "run_failed_rounds", run="looped") == 0
    assert registry_of(engine).get_sample_value("tidegauge_dropped_events_total") == 1


def test_a_loop_lasts_from_its_second_repeat_on() -> None:
    engine = Engine(clock=None)
    start(engine, "r")
    seen = []
    for action in ("look",) * 4 + ("leave",) + ("look",) * 3:
        step(engine, "r", action)
        seen.append((value(engine, "lasting_loops_active"), value(engine, "lasting_loops_total")))
    assert seen == [(0, 0), (0, 0), (1, 1), (1, 1), (0, 1), (0, 1), (0, 1), (1, 2)]
    engine.run_ended(RunEnded(run="r"))
    assert value(engine, "lasting_loops_active") == 0
    assert value(engine, "lasting_loops_total") == 2


def test_a_poller_that_may_wait_is_in_no_lasting_loop() -> None:
    engine = Engine(clock=None, declarations={"look": ToolDeclaration(poll=5)})
    start(engine, "r")
    for _ in range(6):
        step(engine, "r")
        assert value(engine, "lasting_loops_active") == 0
        assert value(engine, "lasting_loops_total") == 0
    for _ in range(4):
        step(engine, "r")
    assert value(engine, "lasting_loops_active") == 1, "it has waited for too long"
    assert value(engine, "lasting_loops_total") == 1


def test_the_longest_failure_of_an_active_run_is_shown() -> None:
    engine = Engine(clock=None)
    start(engine, "fails")
    start(engine, "recovers")
    assert value(engine, "highest_failed_rounds") is None
    for _ in range(4):
        step(engine, "fails", error=True)
        step(engine, "recovers", error=True)
    step(engine, "recovers", error=True)
    assert value(engine, "highest_failed_rounds") == 5
    assert value(engine, "run_failed_rounds", run="fails") == 4
    step(engine, "recovers")
    assert value(engine, "highest_failed_rounds") == 4
    engine.run_ended(RunEnded(run="fails"))
    assert value(engine, "highest_failed_rounds") == 0


def test_runs_fail_from_the_seventh_failed_round_on_unless_they_loop() -> None:
    engine = Engine(clock=None)
    assert value(engine, "runs_failing") is None
    start(engine, "fails")
    start(engine, "loops")
    assert value(engine, "runs_failing") is None, "of no run it is known"
    seen = []
    for number in range(8):
        step(engine, "fails", f"call {number}", error=True)
        step(engine, "loops", error=True)
        seen.append(value(engine, "runs_failing"))
    assert seen == [0] * 6 + [1, 1]
    step(engine, "fails")
    assert value(engine, "runs_failing") == 0
    for run in ("fails", "loops"):
        engine.run_ended(RunEnded(run=run))
    assert value(engine, "runs_failing") == 0


def test_a_process_says_since_when_it_counts() -> None:
    before = time.time()
    engine = Engine(clock=None)
    name = "tidegauge_started_timestamp_seconds"
    started = registry_of(engine).get_sample_value(name)
    assert started is not None
    assert before <= started <= time.time()
    engine._reset_after_fork()
    again = registry_of(engine).get_sample_value(name)
    assert again is not None
    assert again > started


def test_names_that_become_other_are_counted() -> None:
    engine = Engine(clock=None, max_groups=1)
    for number in range(3):
        start(engine, f"run-{number}", agent=f"agent-{number}")
    registry, name = registry_of(engine), "tidegauge_names_beyond_limit_total"
    assert registry.get_sample_value(name, {"kind": "group"}) == 2
    assert registry.get_sample_value(name, {"kind": "action"}) == 0


def test_arms_of_a_memory_experiment_are_distinguished_for_auv_only() -> None:
    engine = Engine(clock=None)
    for memory, success in (("on", True), ("off", False), (None, True)):
        start(engine, "r", memory=memory, t_max=2)
        step(engine, "r")
        engine.run_ended(RunEnded(run="r", success=success))
    start(engine, "active", memory="on", t_max=2)
    assert [value(engine, "auv", memory=arm) for arm in ("on", "off", "")] == [0.75, 0.0, 0.75]
    assert value(engine, "steps_total") == 3
    assert value(engine, "runs_started_total") == 4
    assert value(engine, "success_rate") == 2 / 3
    assert value(engine, "auv_lower") == 1.5 / 4
    assert value(engine, "auv_upper") == 2.25 / 4


def test_runs_count_as_stale_by_the_setting_also_in_a_memory_experiment() -> None:
    engine = Engine(clock=None, stale_at=2)
    for memory in ("on", "off"):
        start(engine, memory, memory=memory)
        for _ in range(4):
            step(engine, memory)
    assert value(engine, "stale_score", stat="max") == 2
    assert value(engine, "runs_stale") == 2


def test_what_was_not_measured_is_absent() -> None:
    engine = Engine(clock=None)
    start(engine, "r")
    step(engine, "r")
    for name in ("auv", "auv_sum_total", "auv_runs_total"):
        assert value(engine, name, memory="") is None
    for name in ("auv_lower", "auv_upper", "success_rate"):
        assert value(engine, name) is None
    assert value(engine, "run_progress", run="r") is None
    step(engine, "r", progress=0.0)
    assert value(engine, "run_progress", run="r") == 0.0
    engine.run_ended(RunEnded(run="r"))
    assert value(engine, "success_rate") is None


def test_counters_of_a_known_group_are_there_from_the_start() -> None:
    engine = Engine(clock=None)
    start(engine, "r", t_max=5)
    assert {
        value(engine, "runs_finished_total", outcome=name) for name in RUNS_FINISHED.values
    } == {0}
    assert {value(engine, "loops_total", kind=name) for name in LOOPS.values} == {0}
    for name in (
        "steps_total",
        "tide_cycle_steps_total",
        "loop_tokens_total",
        "loop_seconds_total",
    ):
        assert value(engine, name) == 0
    assert value(engine, "loop_steps_total", action="other") == 0
    assert value(engine, "auv_runs_total", memory="") == 0
    assert value(engine, "success_turn_count") == 0
    faults = registry_of(engine).get_sample_value(
        "tidegauge_internal_errors_total", {"where": "exporters"}
    )
    assert faults == 0


def test_the_known_values_are_all_that_an_engine_counts() -> None:
    engine = Engine(clock=None)
    for outcome in ("success", "failure", "unknown", "stopped", "error"):
        start(engine, outcome)
        for _ in range(4):
            step(engine, outcome, error=True)
        engine.run_ended(RunEnded(run=outcome, outcome=outcome))
    [group] = engine.snapshot().groups
    assert set(group.finished.finished) == set(RUNS_FINISHED.values)
    assert set(group.totals.onsets) == set(LOOPS.values)


def test_only_the_most_troubled_runs_have_series() -> None:
    engine = Engine(clock=None)
    for number in range(MAX_RUNS + 10):
        run = f"run-{number:02}"
        start(engine, run)
        for t in range(number + 1):  # all alike but for their steps, and no two results alike
            engine.step_issued(Step(run=run, calls=(Call("go"),), state=t))
            engine.step_observed(Outcome(run=run, results=(CallResult(t),)))
    start(engine, "same result")
    for t in range(2):
        engine.step_issued(Step(run="same result", calls=(Call("go"),), state=t))
        engine.step_observed(Outcome(run="same result", results=(CallResult("no"),)))
    start(engine, "looping")
    for _ in range(3):
        step(engine, "looping")

    def shown() -> list[str]:
        [family] = [f for f in read_families(engine) if f.metric.name == "tidegauge_run_steps"]
        return [labels[-1] for labels, _ in family.rows]

    longest = [f"run-{number:02}" for number in range(MAX_RUNS + 9, 11, -1)]
    assert shown() == ["looping", "same result", *longest]
    looping = engine.get("looping")
    assert looping is not None
    with looping.lock:
        looping.end(RunEnded(run="looping"))  # ended, and another thread is about to take it out
    assert shown() == ["same result", *longest, "run-11"]
    engine.run_ended(RunEnded(run="same result"))
    assert shown() == [*longest, "run-11", "run-10"]


def test_long_run_ids_are_cut_and_still_distinguished() -> None:
    engine = Engine(clock=None)
    for last in "12":
        start(engine, "x" * 5_000 + last)
    families = [f for f in read_families(engine) if f.metric.name == "tidegauge_run_steps"]
    labels = {labels[-1] for labels, _ in families[0].rows}
    assert len(labels) == 2
    assert {len(label) for label in labels} == {MAX_LABEL}


def test_names_that_are_no_text_are_served_as_text() -> None:
    engine = Engine(clock=None)
    engine.run_started(RunStarted(run=7, agent=8, task_group=3.5))  # type: ignore[arg-type]
    engine.run_started(RunStarted(run="other", agent="8", task_group="3.5"))
    text = write_text(read_families(engine)).decode()
    assert 'tidegauge_runs_active{agent="8",task_group="3.5"} 2.0\n' in text
    assert engine.get("7") is not None


@pytest.mark.slow
def test_a_stream_of_ever_new_names_has_a_bounded_number_of_series() -> None:
    engine = Engine(clock=None, max_runs=30, max_groups=10, max_actions=5)
    highest = 0
    for number in range(20_000):
        run = f"run-{number}"
        engine.run_started(
            RunStarted(
                run=run,
                agent=f"agent-{number}",
                task_group=f"group-{number}",
                memory=f"memory-{number}",
                t_max=5,
            )
        )
        for _ in range(3):
            step(engine, run, action=f"action-{number}", progress=0.5)
        if number % 1_000 == 999:
            highest = max(highest, len(samples(TidegaugeCollector(Reader(engine)).collect())))
    groups, arms, actions = 10 + 1, 10 + 1, 5 + 1  # each with its "other"
    single, histograms = 40, 4 * 15
    most = groups * (single + actions + histograms + 3 * arms) + 7 * MAX_RUNS
    assert most / 2 < highest < most


def test_the_text_says_what_the_client_would_write(odd_engine: Engine) -> None:
    registry, families = registry_of(odd_engine), read_families(odd_engine)
    ours = parse_text(write_text(families).decode())
    theirs = parse_text(generate_latest(registry).decode())
    assert samples(ours) == samples(theirs) != []
    ours = parse_openmetrics(write_text(families, openmetrics=True).decode())
    theirs = parse_openmetrics(openmetrics.generate_latest(registry).decode())
    assert samples(ours) == samples(theirs) != []


def test_exemplars_lead_to_the_traces_of_counted_runs_and_steps() -> None:
    engine = Engine()
    for number, run in enumerate(("early", "late")):
        start(engine, run, trace_id=f"{number:032x}")
        for _ in range(4):
            step(engine, run)
        engine.run_ended(RunEnded(run=run, success=True))
    start(engine, "untraced")
    step(engine, "untraced")
    text = write_text(read_families(engine), openmetrics=True).decode()
    traces = {
        sample.name: sample.exemplar.labels["trace_id"]
        for family in parse_openmetrics(text)
        for sample in family.samples
        if sample.exemplar is not None
    }
    late = f"{1:032x}"
    assert traces == dict.fromkeys(
        (
            "tidegauge_runs_finished_total",
            "tidegauge_loops_total",
            "tidegauge_success_turn_bucket",
            "tidegauge_finished_run_steps_bucket",
            "tidegauge_stale_score_max_bucket",
            "tidegauge_step_duration_seconds_bucket",
        ),
        late,
    )
    assert " # {" not in write_text(read_families(engine)).decode()  # the old format has none


def test_a_place_is_shown_only_as_the_caller_wants_it() -> None:
    engine = Engine(clock=None)
    start(engine, "r", place="a secret place")
    step(engine, "r", place="a secret place")
    assert "secret" not in write_text(read_families(engine)).decode()
    families = read_families(engine, place_label=lambda place: f"digest of {len(str(place))}")
    text = write_text(families).decode()
    assert 'tidegauge_run_place{agent="a",task_group="g",run="r",place="digest of 14"} 1.0' in text
    assert "secret" not in text


def test_the_text_keeps_type_and_help(odd_engine: Engine) -> None:
    families = read_families(odd_engine)
    for parsed in (
        parse_text(write_text(families).decode()),
        parse_openmetrics(write_text(families, openmetrics=True).decode()),
    ):
        reported = [(family.type, family.documentation) for family in parsed]
        assert reported == [(family.metric.kind, family.metric.help) for family in families]


def test_promtool_has_nothing_to_say(odd_engine: Engine) -> None:
    families = read_families(odd_engine, place_label=str)
    assert len(families) > 40
    checked = subprocess.run(
        [find_binary("promtool"), "check", "metrics"],
        input=write_text(families),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


@pytest.mark.usefixtures("faults_are_swallowed")
def test_when_the_engine_fails_our_health_is_still_reported() -> None:
    class Failing(Engine):
        def snapshot(self):
            raise RuntimeError("out of order")

    families = read_families(Failing())
    assert families == [(catalog.INTERNAL_ERRORS, [(("exporters",), 1.0)], {})]
    assert internal_errors.counts() == {"exporters": 1}


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_fault_in_one_metric_costs_that_metric() -> None:
    class Failing(Engine):
        def snapshot(self):
            snapshot = super().snapshot()
            snapshot.groups[0].totals.loop_steps["look"] = "many"
            return snapshot

    engine = Failing(clock=None)
    start(engine, "r")
    step(engine, "r")
    families = read_families(engine)
    names = [family.metric.name for family in families]
    assert "tidegauge_loop_steps_total" not in names
    assert "tidegauge_steps_total" in names
    assert internal_errors.counts() == {"exporters": 1}


def test_a_users_registry_shows_one_pipeline_at_a_time() -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        with capture(registry=registry):
            with tidegauge.run(agent="a"):
                pass
            started = registry.get_sample_value(
                "tidegauge_runs_started_total", {"agent": "a", "task_group": ""}
            )
            assert started == 1
    assert list(registry.collect()) == []
