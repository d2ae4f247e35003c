"""The pipeline: settings that cannot work are rejected, what is configured is what runs take."""

from __future__ import annotations

import signal
import threading
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import tidegauge
from support.judged_runs import Judged, verdict
from tidegauge import ConfigurationError, RunStopped
from tidegauge.diagnose.judges import Judging
from tidegauge.events import (
    GO_ON,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
)
from tidegauge.pipeline import Pipeline, Settings
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.runs.current import get_recorder, set_recorder
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture


@pytest.fixture
def configure():
    """``tidegauge.configure`` that serves nothing and leaves nothing behind."""
    made = []

    def configure(**settings):
        made.append(tidegauge.configure(**{"serve_metrics": False, **settings}))
        return made[-1]

    yield configure
    for pipeline in made:
        pipeline.shutdown()


def loop(times=9):
    with tidegauge.run() as run:
        for _ in range(times):
            run.act("look", state="same")
            run.observe("nothing")
    return run


def port_of(pipeline):
    return urlsplit(pipeline.metrics_url).port


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"stop_on_lop": 3}, "unknown setting 'stop_on_lop'; did you mean stop_on_loop"),
            ({"zzz": 3}, "unknown setting 'zzz'; known: guard, guard_share, stop_on_loop"),
            ({"rules": [Rule("steps", 3)], "stop_on_loop": 2}, "rules cannot be combined with"),
            ({"rules": [Rule("steps", 3), Rule("steps", 4)]}, "two rules have the same"),
        ],
    )
    def test_what_cannot_work_is_rejected_where_it_is_set(self, settings, message):
        before = get_recorder()
        with pytest.raises(ConfigurationError, match=message):
            tidegauge.configure(**settings)
        assert get_recorder() is before

    def test_nothing_is_stopped_unless_asked_for(self):
        assert Settings().given_rules() == DEFAULT_RULES
        assert all(rule.action == "observe" for rule in DEFAULT_RULES)

    def test_a_stop_takes_the_place_of_the_observed_rule(self):
        rules = Settings(stop_on_loop=2, stop_on_steps=30).given_rules()
        assert [(rule.signal, rule.threshold, rule.action) for rule in rules] == [
            ("loop_repeats", 2, "stop"),
            ("turn_loop_repeats", 2, "stop"),
            ("steps", 30, "stop"),
            ("loop_evidence", 1, "observe"),
            ("turn_loop_evidence", 1, "observe"),
            ("stuck_streak", 5, "observe"),
            ("failed_rounds", 7, "observe"),
            ("result_streak", 8, "observe"),
            ("near_streak", 5, "observe"),
            ("duplicate_calls", 20, "observe"),
        ]

    def test_rules_from_a_generator_are_all_taken(self, configure):
        configure(rules=(rule for rule in [Rule("steps", 2, "stop")]))
        with pytest.raises(RunStopped, match="more than 2 steps"):
            loop()

    def test_every_setting_reaches_its_part(self, configure):
        pipeline = configure(
            max_runs=1,
            t_max=7,
            t_max_by_group={"shop": 9},
            normalise=str.casefold,
            max_actions=1,
            max_groups=1,
        )
        with tidegauge.run(agent="a") as first:
            for text in ("Nothing", "NOTHING"):
                first.act("look", state=text)
            with tidegauge.run(agent="b", task_group="shop") as second:
                for _ in range(2):
                    second.act("other look", state="x")
                snapshot = pipeline.engine.snapshot()
        assert snapshot.evicted_runs == 1
        assert [(group.key.agent, group.totals.loop_steps) for group in snapshot.groups] == [
            ("a", {"look": 1}),
            ("other", {"other": 1}),
        ]
        assert [report.t_max for report in snapshot.active] == [9]


class TestConfigure:
    def test_without_it_runs_are_measured_and_served_nowhere(self):
        set_recorder(None)
        loop()
        assert get_recorder().sink.engine.snapshot().groups  # type: ignore[attr-defined]

    def test_runs_take_what_was_configured_last(self, configure):
        first, second = configure(), configure(stop_on_loop=2)
        with pytest.raises(RunStopped):
            loop()
        assert first.engine.snapshot().groups == []
        assert second.engine.snapshot().groups[0].totals.steps == 3

    def test_a_run_that_is_open_ends_where_it_began(self, configure):
        first = configure()
        with tidegauge.run() as run:
            run.act("look")
            second = configure()
            run.observe("nothing")
            run.act("look")
        assert first.engine.snapshot().groups[0].totals.steps == 2
        assert first.engine.snapshot().active == []
        assert second.engine.snapshot().groups == []

    def test_after_a_shutdown_runs_take_the_defaults(self, configure):
        pipeline = configure(stop_on_loop=2)
        pipeline.shutdown()
        pipeline.shutdown()
        loop()
        assert get_recorder() is not pipeline.recorder

    def test_the_shutdown_of_one_that_was_replaced_changes_nothing(self, configure):
        first = configure()
        second = configure()
        first.shutdown()
        assert get_recorder() is second.recorder

    def test_many_threads_that_begin_at_once_share_the_defaults(self):
        tidegauge.configure(serve_metrics=False).shutdown()
        barrier = threading.Barrier(8)
        recorders = []

        def work():
            barrier.wait()
            recorders.append(get_recorder())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, recorders))) == 1


class TestMetrics:
    def test_they_are_served_on_a_free_port(self, configure):
        pipeline = configure(serve_metrics=True, metrics_port=0)
        loop()
        with urllib.request.urlopen(pipeline.metrics_url) as answer:
            assert b'tidegauge_steps_total{agent="",task_group=""} 9.0' in answer.read()
        assert pipeline.metrics_url.startswith("http://127.0.0.1:")
        pipeline.shutdown()
        assert pipeline.metrics_url is None

    def test_the_next_pipeline_gets_the_port(self, configure):
        port = port_of(configure(serve_metrics=True, metrics_port=0))
        again = configure(serve_metrics=True, metrics_port=port)
        assert port_of(again) == port
        assert internal_errors.counts() == {}

    def test_a_port_that_is_taken_is_replaced_by_a_free_one(self, configure, caplog):
        port = port_of(configure(serve_metrics=True, metrics_port=0))
        other = Pipeline(Settings(metrics_port=port))
        try:
            assert port_of(other) != port
            with urllib.request.urlopen(other.metrics_url) as answer:
                assert b"tidegauge" in answer.read()
            (message,) = caplog.messages
            assert f"port {port} is in use, so the metrics are at {other.metrics_url};" in message
            assert "set metrics_port=0 and metrics_targets" in message
        finally:
            other.shutdown()

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            ({"metrics_host": "nowhere.invalid"}, "not known"),
            ({"metrics_host": "203.0.113.7"}, "Cannot assign requested address"),
        ],
    )
    def test_an_address_that_cannot_be_used_costs_the_metrics_only(
        self, configure, caplog, wrong, why
    ):
        pipeline = configure(serve_metrics=True, metrics_port=0, **wrong)
        assert pipeline.metrics_url is None
        (message,) = caplog.messages
        assert why in message
        assert "set metrics_port=0 for any free port, another metrics_host" in message

    def test_a_system_without_further_threads_costs_the_metrics_only(
        self, configure, caplog, monkeypatch
    ):
        def refused(thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            pipeline = configure(serve_metrics=True, metrics_port=0)
        assert pipeline.metrics_url is None
        assert "can't start new thread, so they are not served" in caplog.text

    def test_host_and_port_are_the_environment_s_unless_set(self, monkeypatch):
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost")
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", "0")
        pipeline = Pipeline(Settings())
        try:
            assert pipeline.metrics_url.startswith("http://localhost:")
        finally:
            pipeline.shutdown()

    @pytest.mark.parametrize("wrong", [{"record_to": "/"}, {"metrics_key": "/dev/null"}])
    def test_a_pipeline_that_fails_leaves_the_one_in_use_as_it_was(self, configure, wrong):
        first = configure(serve_metrics=True, metrics_port=0)
        with pytest.raises(ConfigurationError):
            configure(serve_metrics=True, metrics_port=0, **wrong)
        loop()
        with urllib.request.urlopen(first.metrics_url) as answer:
            assert b"tidegauge_steps_total" in answer.read()

    def test_a_registry_that_refuses_a_pipeline_keeps_the_one_in_use(self, configure, monkeypatch):
        registry = CollectorRegistry()
        first = configure(registry=registry)
        register = registry.register

        refused = []

        def refuse(collector):
            if not refused:
                refused.append(collector)
                raise ValueError("duplicate")
            register(collector)

        monkeypatch.setattr(registry, "register", refuse)
        with pytest.raises(ValueError, match="duplicate"):
            configure(registry=registry)
        loop()
        assert b"tidegauge_steps_total" in generate_latest(registry)
        first.shutdown()
        assert b"tidegauge" not in generate_latest(registry)

    def test_a_pipeline_that_fails_leaves_nothing_open(self, configure, tmp_path):
        before = set(threading.enumerate())
        with pytest.raises(ConfigurationError, match="key"):
            configure(
                serve_metrics=True, record_to=tmp_path / "runs.jsonl", metrics_key="/dev/null"
            )
        assert set(threading.enumerate()) <= before

    def test_a_pipeline_that_fails_hears_of_no_judgement(self, configure):
        judging = Judging(Judged(verdict(3)).model)
        with pytest.raises(ConfigurationError):
            configure(serve_metrics=True, judging=judging, metrics_key="/dev/null")
        assert judging._listeners == []

    def test_a_flush_waits_for_judgements(self, configure):
        answer = threading.Event()
        judged = Judged(lambda: verdict(3) if answer.wait(30) else "")
        configure(judging=Judging(judged.model))
        assert tidegauge.flush()
        loop(2)
        assert not tidegauge.flush(0.01)
        answer.set()
        assert tidegauge.flush(30)
        assert judged

    def test_a_registry_holds_them_until_the_shutdown(self, configure):
        registry = CollectorRegistry()
        first = configure(registry=registry)
        loop()
        assert b"tidegauge_steps_total" in generate_latest(registry)
        assert first.metrics_url is None
        second = configure(registry=registry)
        loop(2)
        text = generate_latest(registry).decode()
        assert 'tidegauge_steps_total{agent="",task_group=""} 2.0' in text
        assert text.count("# TYPE tidegauge_steps_total") == 1
        second.shutdown()
        assert b"tidegauge" not in generate_latest(registry)


class TestDecisions:
    def test_an_exception_of_a_signal_handler_does_not_switch_the_policy_off(self, monkeypatch):
        def handler(number, frame):
            raise TimeoutError

        def interrupted(*given, **more):
            signal.raise_signal(signal.SIGALRM)

        before = signal.signal(signal.SIGALRM, handler)
        try:
            with capture(stop_on_loop=1) as seen, tidegauge.run() as run:
                with monkeypatch.context() as patched:
                    patched.setattr(seen.pipeline.engine, "issue", interrupted)
                    with pytest.raises(TimeoutError):
                        run.act("look", state="same")
                [active] = seen.pipeline.engine.snapshot().active
                assert not active.unguarded
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_the_sink_says_stop_until_the_run_ends(self):
        step = Step(run="r1", calls=(Call("look"),), state="same")
        with capture(stop_on_loop=1) as seen:
            sink = seen.pipeline.recorder.sink
            sink.run_started(RunStarted(run="r1"))
            decisions = [sink.step_issued(step) for _ in range(2)]
            decisions.append(sink.step_issued(step._replace(state="new")))
            decisions.append(sink.step_observed(Outcome(run="r1", results=(CallResult("x"),))))
            assert sink.run_ended(RunEnded(run="r1")).outcome == "stopped"
            assert sink.step_issued(step) is GO_ON
        assert [decision.stop for decision in decisions] == [False, True, True, True]
        assert {decision.reason for decision in decisions[1:]} == {"loop_repeats"}

    def test_what_would_be_stopped_is_counted_once_a_run(self):
        with capture() as seen:
            for _ in range(2):
                loop(12)
        totals = seen.pipeline.engine.snapshot().groups[0].totals
        assert totals.interventions == {
            ("would_stop", "loop_evidence"): 2,
            ("would_stop", "stuck_streak"): 2,
            ("would_stop", "result_streak"): 2,
        }


class _Failing:
    """An exporter that cannot be closed."""

    def start(self, reader: object) -> None:
        """Start exporting."""

    def close(self) -> None:
        """Fail."""
        raise OSError("no collector")


def test_what_cannot_be_closed_leaves_nothing_else_open(configure, tmp_path):
    recording = tmp_path / "runs.events.jsonl"
    pipeline = configure(record_to=recording)
    pipeline._exporters.append(_Failing())
    loop(times=2)
    with pytest.raises(OSError, match="no collector"):
        pipeline.shutdown()
    assert len(recording.read_text().splitlines()) == 4
