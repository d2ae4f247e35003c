"""``with tidegauge.run(...)``: steps reported by the agent itself."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import pairwise

import numpy
import pytest
from opentelemetry import trace

import tidegauge
from support.span_story import events, story
from tidegauge import RunStopped
from tidegauge.events import ABSENT
from tidegauge.runs.open_run import current_run
from tidegauge.safety.critical import defer
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Exploration, SuccessRate
from tidegauge.testing import capture
from tidegauge.tracer import RunSpans


def repeat(run, times, action="look"):
    for _ in range(times):
        run.act(action, state="same")
        run.observe("nothing")


def group(seen):
    return seen.pipeline.engine.snapshot().groups[0]


def test_the_whole_story_of_a_run():
    with (
        capture(t_max=9, repetition=False) as seen,
        tidegauge.run(
            agent="browser",
            task="find the order",
            task_group="shop",
            model="m1",
            memory="on",
            t_max=30,
            conversation="c7",
            run_id="r1",
        ) as run,
    ):
        for _ in range(2):
            run.act("click", {"id": 7}, call_id="call-1")
            run.observe("a page")
        run.act_round([("read", {"id": 1}), ("read", {"id": 2})], call_ids=["x", "y"])
        run.observe_round([("one", False), ("no such file", True)])
        run.finish(success=True)
    step = {"gen_ai.tool.name": "click", "gen_ai.tool.call.id": "call-1"}
    digests = {"tidegauge.action.digest": "#0"}
    read = {
        "gen_ai.tool.name": "read",
        "tidegauge.step.index": 2,
        "tidegauge.action.digest": "#3",
        "tidegauge.state.digest": "#2",
    }
    assert story(seen) == [
        (
            "invoke_agent browser",
            "INTERNAL",
            "",
            {
                "gen_ai.agent.name": "browser",
                "gen_ai.request.model": "m1",
                "gen_ai.conversation.id": "c7",
                "tidegauge.run.id": "r1",
                "tidegauge.task_group": "shop",
                "tidegauge.memory": "on",
                "tidegauge.t_max": 30,
                "tidegauge.steps": 3,
                "tidegauge.outcome": "success",
                "tidegauge.loop.ratio": 0.0,
                "tidegauge.stale_score.max": 0,
                "tidegauge.loop.steps": 0,
                "tidegauge.novelty": 2 / 3,
                "tidegauge.recurrence.max": 1,
                "tidegauge.troubled": False,
            },
            [
                (
                    "execute_tool click",
                    "INTERNAL",
                    "",
                    {
                        **step,
                        **digests,
                        "tidegauge.step.index": 0,
                        "tidegauge.state.digest": "#1",
                    },
                    [],
                ),
                (
                    "execute_tool click",
                    "INTERNAL",
                    "",
                    {
                        **step,
                        **digests,
                        "tidegauge.step.index": 1,
                        "tidegauge.state.digest": "#2",
                    },
                    [],
                ),
                ("execute_tool read", "INTERNAL", "", {**read, "gen_ai.tool.call.id": "x"}, []),
                (
                    "execute_tool read",
                    "INTERNAL",
                    "ERROR",
                    {**read, "gen_ai.tool.call.id": "y", "error.type": "tool_error"},
                    [],
                ),
            ],
        )
    ]
    assert events(seen) == []


def test_the_operation_is_named_by_the_convention():
    with capture() as seen, tidegauge.run() as run:
        repeat(run, 1)
    assert [span.attributes["gen_ai.operation.name"] for span in seen.spans] == [
        "execute_tool",
        "invoke_agent",
    ]
    assert seen.tree() == ["invoke_agent", "  execute_tool look"]


class TestContents:
    ARGUMENTS, STATE, RESULT, TASK = (
        "s3cret-argument",
        "s3cret-state",
        "s3cret-result",
        "s3cret-task",
    )

    def exported(self, **settings):
        with (
            capture(stop_on_loop=2, **settings) as seen,
            suppress(RunStopped),
            tidegauge.run(task=self.TASK) as run,
        ):
            for _ in range(4):
                run.act("look", {"q": self.ARGUMENTS}, state=self.STATE)
                run.observe(self.RESULT, error=ValueError(self.RESULT))
        spans = [
            repr((span.name, span.attributes, span.status, span.events)) for span in seen.spans
        ]
        return "".join([*spans, *map(repr, events(seen))])

    def test_nothing_of_them_leaves_by_default(self):
        assert "s3cret" not in self.exported()

    def test_arguments_results_and_task_are_captured_when_asked_for(self):
        exported = self.exported(capture_content=True)
        assert self.ARGUMENTS in exported
        assert self.TASK in exported

    def test_results_are_captured(self):
        with capture(capture_content=True) as seen, tidegauge.run() as run:
            run.act("look", {"q": [1, None]})
            run.observe("x" * 10_000)
        attributes = seen.spans[0].attributes
        assert attributes["gen_ai.tool.call.arguments"] == '{"q":[1,null]}'
        assert attributes["gen_ai.tool.call.result"] == "x" * 8_192 + "…"

    @pytest.mark.parametrize(
        ("value", "captured"),
        [
            ("SPAN_ONLY", True),
            ("span_and_event", True),
            ("EVENT_ONLY", False),
            ("true", False),
            ("", False),
        ],
    )
    def test_the_convention_s_variable_asks_for_them(self, monkeypatch, value, captured):
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
        assert (self.ARGUMENTS in self.exported()) is captured
        assert self.ARGUMENTS not in self.exported(capture_content=False)

    def test_objects_that_cannot_be_written_are_captured_by_their_type(self):
        class Broken:
            def __repr__(self):
                raise RuntimeError("no")

        with capture(capture_content=True) as seen, tidegauge.run() as run:
            run.act("look", {"q": Broken()})
            run.observe(Broken())
        attributes = seen.spans[0].attributes
        assert "Broken" in str(attributes["gen_ai.tool.call.arguments"])
        assert "Broken" in str(attributes["gen_ai.tool.call.result"])

    def test_digests_are_keyed(self):
        def digest(key):
            with capture(digest_key=key) as seen, tidegauge.run(run_id="r1") as run:
                run.act("look", {"q": 1})
            return seen.spans[0].attributes["tidegauge.action.digest"]

        assert digest(b"key") == digest(b"key") != digest(b"another key")
        assert digest(None) != digest(None)

    def test_lone_surrogates_lose_no_batch(self):
        with (
            capture(capture_content=True) as seen,
            tidegauge.run(agent="a\ud800", task="t\ud800", memory="m\ud800") as run,
        ):
            run.act("look\ud800", "é\ud800", call_id="\ud800")
            run.observe("found\udfff")
        for span in seen.spans:
            texts = [value for value in span.attributes.values() if isinstance(value, str)]
            assert [text.encode().decode() for text in (span.name, *texts)]
        assert seen.spans[0].attributes["gen_ai.tool.call.arguments"] == "é?"


class TestStop:
    def test_a_loop_is_stopped_before_its_action_is_run(self):
        ran = []

        def agent():
            with tidegauge.run(agent="a", run_id="r1") as run:
                while True:
                    run.act("look", state="same")
                    ran.append(len(ran))
                    run.observe("nothing")

        with capture(stop_on_loop=2) as seen, pytest.raises(RunStopped) as caught:
            agent()
        stop = caught.value
        assert (stop.run, stop.step, stop.reason) == ("r1", 2, "loop_repeats")
        assert stop.message == "1 step, repeated twice, since step 1"
        assert (stop.metrics["loop_repeats"], stop.metrics["steps"]) == (2, 3)
        assert ran == [0, 1]
        name, _, status, attributes, children = story(seen)[0]
        assert (name, status) == ("invoke_agent a", "")
        assert attributes["tidegauge.outcome"] == "stopped"
        assert attributes["tidegauge.stopped.reason"] == "loop_repeats"
        assert attributes["tidegauge.steps"] == 3
        assert len(children) == 2
        assert group(seen).finished.finished == {"stopped": 1}
        assert group(seen).totals.interventions == {("stop", "loop_repeats"): 1}

    def test_onset_and_intervention_are_events_in_the_context_of_the_run(self):
        with (
            capture(stop_on_loop=2) as seen,
            suppress(RunStopped),
            tidegauge.run(run_id="r1") as run,
        ):
            repeat(run, 9)
        assert events(seen) == [
            (
                "tidegauge.loop.onset",
                {
                    "tidegauge.run.id": "r1",
                    "tidegauge.step.index": 1,
                    "tidegauge.loop.period": 1,
                    "tidegauge.loop.first_step": 1,
                },
            ),
            (
                "tidegauge.intervention",
                {
                    "tidegauge.run.id": "r1",
                    "tidegauge.step.index": 2,
                    "tidegauge.intervention.action": "stop",
                    "tidegauge.intervention.reason": "loop_repeats",
                },
            ),
        ]
        root = seen.spans[-1].context
        assert {(event.trace_id, event.span_id) for event in seen.events} == {
            (root.trace_id, root.span_id)
        }

    def test_every_loop_has_its_onset(self):
        with capture() as seen, tidegauge.run() as run:
            for state in "AAAA" + "BCBCBC" + "AA":
                run.act("look", state=state)
        first_steps = [event["tidegauge.loop.first_step"] for _, event in events(seen)]
        assert first_steps == [1, 6, 11]

    def test_the_spans_of_a_loop_show_its_repeats(self):
        with capture() as seen, tidegauge.run() as run:
            repeat(run, 3)
        tools = [span.attributes for span in seen.spans[:-1]]
        assert [one.get("tidegauge.loop.repeats") for one in tools] == [None, 1, 2]
        assert [one.get("tidegauge.loop.period") for one in tools] == [None, 1, 1]

    def test_a_stop_that_was_caught_stays(self):
        with capture(stop_on_loop=1) as seen, tidegauge.run() as run:
            run.act("look", state="same")
            stops = []
            for action in ("look", "something else", "look"):
                with pytest.raises(RunStopped) as caught:
                    run.act(action, state="same" if action == "look" else "new")
                stops.append(caught.value)
            with pytest.raises(RunStopped):
                run.observe("too late")
        assert [(stop.step, stop.reason) for stop in stops] == [(1, "loop_repeats")] * 3
        assert len({stop.message for stop in stops}) == 1
        assert story(seen)[0][3]["tidegauge.outcome"] == "stopped"
        assert [name for name, _ in events(seen)].count("tidegauge.intervention") == 1

    def test_a_stop_stays_when_the_engine_has_let_the_run_go(self):
        with capture(stop_on_loop=1, max_runs=1), tidegauge.run() as run:
            run.act("look", state="same")
            with pytest.raises(RunStopped):
                run.act("look", state="same")
            with tidegauge.run():
                pass
            with pytest.raises(RunStopped):
                run.act("look", state="new")

    def test_a_streak_is_stopped_when_its_outcome_is_observed(self):
        def agent():
            with tidegauge.run() as run:
                for n in range(9):
                    run.act("search", n)
                    run.observe("no such file")

        with capture(stop_on_result_streak=3) as seen, pytest.raises(RunStopped) as caught:
            agent()
        assert (caught.value.step, caught.value.reason) == (2, "result_streak")
        assert len(story(seen)[0][4]) == 3

    def test_what_would_be_stopped_is_counted_and_raises_nothing(self):
        with capture() as seen, tidegauge.run() as run:
            repeat(run, 9)
        assert group(seen).totals.interventions[("would_stop", "loop_evidence")] == 1
        assert "tidegauge.stopped.reason" not in story(seen)[0][3]

    def test_the_stop_of_a_run_inside_stops_the_run_around_it(self):
        with (
            capture(stop_on_loop=1) as seen,
            suppress(RunStopped),
            tidegauge.run(agent="outer"),
            tidegauge.run(agent="inner") as inner,
        ):
            repeat(inner, 2)
        outer, inner = story(seen)[0], story(seen)[0][4][0]
        assert outer[3]["tidegauge.outcome"] == inner[3]["tidegauge.outcome"] == "stopped"
        assert outer[3]["tidegauge.stopped.reason"] == "loop_repeats"


class TestEnd:
    def outcome(self, error=None, success=None):
        with capture() as seen, suppress(BaseException), tidegauge.run() as run:
            run.finish(success=success)
            if error is not None:
                raise error
        _, _, status, attributes, _ = story(seen)[0]
        return attributes["tidegauge.outcome"], status, attributes.get("error.type")

    def test_success_is_what_is_true_of_any_value_and_unknown_where_that_cannot_be_decided(
        self, faults_are_swallowed
    ):
        class Unclear:
            def __bool__(self):
                raise ValueError

        assert self.outcome(success="yes")[0] == "success"
        assert self.outcome(success=numpy.False_)[0] == "failure"
        assert self.outcome(success=Unclear())[0] == "unknown"

    def test_how_a_run_ends(self):
        assert self.outcome() == ("unknown", "", None)
        assert self.outcome(success=True) == ("success", "", None)
        assert self.outcome(success=False) == ("failure", "", None)

    def test_an_exception_of_the_agent_is_its_error_and_goes_on(self):
        assert self.outcome(ValueError("secret")) == ("error", "ERROR", "builtins.ValueError")
        with capture(), pytest.raises(ValueError, match="mine"), tidegauge.run():
            raise ValueError("mine")

    @pytest.mark.parametrize(
        "error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(), GeneratorExit()]
    )
    def test_a_cancelled_run_is_no_error_and_nobody_knows_its_success(self, error):
        assert self.outcome(error, success=True) == ("unknown", "", None)

    def test_what_was_left_open_is_closed(self):
        with capture() as seen, tidegauge.run() as run:
            run.act("left open")
            run.act_round([("a", None), ("b", None)])
        assert seen.tree() == [
            "invoke_agent",
            "  execute_tool left open",
            "  execute_tool a",
            "  execute_tool b",
        ]
        assert seen.spans[-1].name == "invoke_agent"

    def test_a_run_that_never_observes_holds_a_bounded_number_of_spans(self):
        with capture() as seen, tidegauge.run() as run:
            for n in range(1_200):
                run.act("look", n)
            assert len(list(run._open._turns)) == 1_000
            assert len(seen.spans) == 200
        assert len(seen.spans) == 1_201

    def test_a_run_that_was_left_takes_no_more_steps(self):
        with capture() as seen:
            with tidegauge.run() as run:
                pass
            assert run.act("late").action == "go_on"
            assert run.observe("late").action == "go_on"
        assert seen.tree() == ["invoke_agent"]
        assert group(seen).totals.steps == 0


class TestNesting:
    def test_a_run_inside_another_knows_its_parent(self):
        with capture() as seen:
            with tidegauge.run(agent="outer", run_id="r1"), tidegauge.run(agent="inner"):
                pass
            with tidegauge.run(agent="after"):
                pass
        assert seen.tree() == ["invoke_agent outer", "  invoke_agent inner", "invoke_agent after"]
        parents = {span.name: span.attributes.get("tidegauge.run.parent") for span in seen.spans}
        assert parents == {
            "invoke_agent outer": None,
            "invoke_agent inner": "r1",
            "invoke_agent after": None,
        }

    def test_a_run_hangs_on_the_span_around_it_and_spans_inside_hang_on_the_run(self):
        with capture() as seen:
            tracer = seen.pipeline.settings.tracer_provider.get_tracer("app")
            with (
                tracer.start_as_current_span("request"),
                tidegauge.run(agent="a"),
                tracer.start_as_current_span("query"),
            ):
                pass
            assert trace.get_current_span() is trace.INVALID_SPAN
        assert seen.tree() == ["request", "  invoke_agent a", "    query"]

    def test_a_generator_closed_early_leaves_nothing_behind(self, caplog):
        def agent():
            with tidegauge.run(agent="a") as run:
                while True:
                    run.act("look")
                    yield

        with capture() as seen:
            steps = agent()
            next(steps)
            steps.close()
            assert current_run.get() is None
        assert seen.tree() == ["invoke_agent a", "  execute_tool look"]
        assert caplog.records == []

    async def test_an_async_generator_closed_by_another_task_leaves_nothing_behind(self, caplog):
        async def agent():
            async with tidegauge.run(agent="a") as run:
                while True:
                    run.act("look")
                    yield

        with capture() as seen:
            steps = agent()
            await asyncio.create_task(anext(steps))
            await asyncio.create_task(steps.aclose())
            assert current_run.get() is None
        assert seen.tree() == ["invoke_agent a", "  execute_tool look"]
        assert caplog.records == []


class TestSteps:
    def test_outcomes_in_any_order_close_their_own_spans(self):
        with capture(capture_content=True) as seen, tidegauge.run() as run:
            steps = [run.act("read", n).signals.step for n in range(3)]
            for step in reversed(steps):
                run.observe(f"result {step}", step=step)
        reported = [span.attributes for span in seen.spans[:-1]]
        assert [attributes["tidegauge.step.index"] for attributes in reported] == [2, 1, 0]
        assert [attributes["gen_ai.tool.call.result"] for attributes in reported] == [
            "result 2",
            "result 1",
            "result 0",
        ]

    def test_an_exception_is_the_outcome_by_what_it_says(self):
        with capture() as seen, tidegauge.run() as run:
            streaks = []
            for error in (ValueError("a"), ValueError("a"), ValueError("b"), KeyError("b")):
                run.act("look", len(streaks))
                run.observe(error=error)
                known = seen.pipeline.engine.get(run.id).signals()
                streaks.append(known.result_streak)
        assert streaks == [1, 2, 1, 1]
        assert seen.spans[0].attributes["error.type"] == "builtins.ValueError"
        assert group(seen).totals.onsets == {"failed_rounds": 1}

    def test_a_call_whose_result_nobody_knows_is_no_outcome(self):
        with capture() as seen, tidegauge.run() as run:
            run.act("look")
            run.observe(ABSENT, error=None)
            known = seen.pipeline.engine.get(run.id).signals()
        assert known.result_streak is None
        assert known.failed_rounds is None

    def test_what_is_reported_beside_the_outcome_is_measured(self):
        with capture(t_max=4) as seen, tidegauge.run() as run:
            run.act("look", tokens=10)
            run.observe("x", progress=0.5, tokens=5, seconds=2.5)
            report = seen.pipeline.engine.snapshot().active[0]
        assert (report.tokens, report.progress, report.progress_auv) == (15, 0.5, 0.5 * 3.5 / 4)
        assert group(seen).totals.step_seconds.total == 2.5


class TestSteppingIn:
    """What a policy decides, as an agent gets it that reports its own steps."""

    def test_a_nudge_is_given_once(self):
        with capture(nudge_on_loop=1), tidegauge.run() as run:
            repeat(run, 1)
            assert run.nudge() is None
            assert run.decision.action == "go_on"
            repeat(run, 1)
            assert run.decision.nudge
            advice = run.nudge()
            assert "1 step, repeated once, since step 1 (look)" in advice
            assert run.decision.advice == advice
            assert run.nudge() is None
            repeat(run, 1)
            assert "repeated twice" in run.nudge()
        assert run.nudge() is None
        assert run.decision.nudge

    def test_the_decision_is_there_to_be_polled(self):
        with capture(stop_on_loop=2) as seen:
            run = tidegauge.run()
            with suppress(RunStopped), run:
                repeat(run, 5)
            assert run.decision.stop
            assert seen.pipeline.engine.snapshot().active == []

    def test_a_blocked_call_has_no_span_and_no_outcome(self):
        with capture(block_on_loop=2) as seen, tidegauge.run() as run:
            decisions = []
            for _ in range(5):
                decisions.append(run.act("look", state="same"))
                reported = run.observe("nothing")  # also where nothing was run
            assert reported.action == "go_on"
            assert run.observe("again", step=3).action == "go_on"
            assert run.act("open").action == "go_on"
            run.observe("a door")
            report = seen.pipeline.engine.snapshot().active[0]
        assert [decision.block for decision in decisions] == [False, False, True, True, True]
        assert decisions[2].advice.startswith("This call was not run")
        assert report.steps == 6
        assert seen.tree() == ["invoke_agent", *["  execute_tool look"] * 2, "  execute_tool open"]
        assert seen.pipeline.engine.snapshot().dropped_events == 0

    def test_a_round_is_blocked_as_a_whole(self):
        with capture(block_on_loop=1) as seen, tidegauge.run() as run:
            for _ in range(2):
                decision = run.act_round([("a", 1), ("b", 2)], state="same")
                run.observe_round([("x", False), ("y", False)])
        assert decision.block
        assert len(seen.spans) == 3

    def test_a_run_that_blocks_for_ever_is_bounded(self):
        with capture(block_on_loop=1), tidegauge.run() as run:
            for _ in range(1_200):
                run.act("look", state="same")
                run.observe("nothing")
            assert len(list(run._open._turns)) == 1_000

    def test_the_current_run_is_the_one_the_caller_is_in(self):
        with capture(nudge_on_loop=1) as seen:
            outside = tidegauge.get_current_run()
            assert (outside.id, outside.trace_id, outside.nudge()) == ("", None, None)
            with tidegauge.run() as run:
                repeat(run, 2)
                inside = tidegauge.get_current_run()
                assert (inside.id, inside.trace_id) == (run.id, run.trace_id)
                assert inside.nudge() is not None
                inside.finish(success=True)
            outside.finish(success=True)
        assert group(seen).finished.finished == {"success": 1}


@pytest.mark.usefixtures("faults_are_swallowed")
class TestFaults:
    """Something of ours breaks: the agent does not notice, the fault is counted."""

    def agent(self):
        """Six times the same step."""
        with tidegauge.run(agent="a") as run:
            repeat(run, 6)
            run.finish(success=True)
        return 6

    def test_a_fault_of_the_engine_turns_the_run_to_watching(self, monkeypatch):
        with capture(stop_on_loop=2) as seen:
            engine = seen.pipeline.engine
            issued, faults = engine.issue, iter([None, ZeroDivisionError()])

            def issue(step, *given, **named):
                if error := next(faults, None):
                    raise error
                return issued(step, *given, **named)

            monkeypatch.setattr(engine, "issue", issue)
            assert self.agent() == 6
        assert internal_errors.counts() == {"recorder.issue": 1}
        assert group(seen).finished.finished == {"success": 1}
        assert group(seen).totals.steps == 5
        assert len(seen.tree()) == 7
        assert [span.attributes.get("tidegauge.step.index") for span in seen.spans[:-1]] == [
            0,
            None,
            1,
            2,
            3,
            4,
        ]

    def test_the_next_run_is_stopped_again(self, monkeypatch):
        with capture(stop_on_loop=2) as seen:
            monkeypatch.setattr(seen.pipeline.engine, "observe", broken)
            assert self.agent() == 6
            monkeypatch.undo()
            with pytest.raises(RunStopped):
                self.agent()
        assert internal_errors.counts() == {"recorder.observe": 6}

    def test_a_fault_of_the_policy_turns_the_run_to_watching(self, monkeypatch):
        with capture(stop_on_loop=2) as seen:
            policy = seen.pipeline.recorder.sink.policy  # type: ignore[attr-defined]
            decide, faults = policy.decide, iter([ZeroDivisionError()])

            def failing(*args):
                if error := next(faults, None):
                    raise error
                return decide(*args)

            monkeypatch.setattr(policy, "decide", failing)
            assert self.agent() == 6
        assert sum(internal_errors.counts().values()) == 1
        assert [span.attributes["tidegauge.step.index"] for span in seen.spans[:-1]] == [*range(6)]
        assert group(seen).totals.loop_steps == {"look": 5}

    @pytest.mark.parametrize("method", ["run_started", "step_issued", "step_observed", "run_ended"])
    def test_a_fault_of_the_sink_costs_no_span(self, monkeypatch, method):
        with capture() as seen:
            monkeypatch.setattr(type(seen.pipeline.recorder.sink), method, broken)
            assert self.agent() == 6
        assert seen.tree() == ["invoke_agent a", *["  execute_tool look"] * 6]
        assert sum(internal_errors.counts().values()) >= 1
        times = [(span.start_time, span.end_time) for span in seen.spans[:-1]]
        assert all(end <= start for (_, end), (start, _) in pairwise(times))

    @pytest.mark.parametrize(
        ("owner", "method"),
        [
            ("factory", "start_run"),
            ("spans", "start_tool"),
            ("spans", "end_tool"),
            ("spans", "loop_onset"),
            ("spans", "intervention"),
            ("spans", "end"),
        ],
    )
    def test_a_fault_of_the_spans_costs_no_number(self, monkeypatch, owner, method):
        with capture(stop_on_loop=4) as seen:
            factory = seen.pipeline.recorder.spans
            kind = type(factory) if owner == "factory" else RunSpans
            monkeypatch.setattr(kind, method, broken)
            with pytest.raises(RunStopped) as caught:
                self.agent()
            monkeypatch.undo()
        assert (caught.value.step, caught.value.reason) == (4, "loop_repeats")
        assert group(seen).totals.steps == 5
        assert group(seen).finished.finished == {"stopped": 1}
        assert sum(internal_errors.counts().values()) >= 1

    def test_a_span_processor_that_raises_is_not_the_agent_s_fault(self):
        with capture() as seen:
            seen.pipeline.settings.tracer_provider.add_span_processor(BrokenProcessor())  # type: ignore[attr-defined]
            assert self.agent() == 6
        assert group(seen).totals.steps == 6
        assert internal_errors.counts()

    def test_arguments_of_the_wrong_kind_are_no_exception_in_the_middle_of_a_run(self):
        with capture() as seen, tidegauge.run() as run:
            assert run.act("look", uses=7).action == "go_on"  # type: ignore[arg-type]
            assert run.act_round(["no pair"]).action == "go_on"  # type: ignore[list-item]
            assert run.act("look").signals.step == 2  # the steps before count as well
            assert run.observe("x", exits=7).action == "go_on"  # type: ignore[arg-type]
            run.act("look")
            assert run.observe("x", progress="half").action == "go_on"  # type: ignore[arg-type]
        assert internal_errors.counts() == {"value": 4}
        assert len(seen.spans) == 5

    def test_what_is_given_one_by_one_may_be_endless_or_fail_and_its_step_counts(self):
        class Endless(Iterator[str]):
            def __next__(self):
                return "hall"

        class Failing(Sequence[str]):
            def __len__(self):
                return 1

            def __getitem__(self, index):
                raise MemoryError

        class Other:
            def __iter__(self):
                raise AssertionError("no collection: it is not asked")

        with capture() as seen, tidegauge.run() as run:
            for exits in (Endless(), Failing(), Other(), numpy.arange(3), {"hall": 1}.keys()):
                run.act("walk")
                run.observe("there", exits=exits, place="cellar")
                known = seen.pipeline.engine.get(run.id)
                assert len(known.open_steps) == 0
            assert set(known.find(Exploration).graph.frontier) == {"hall", 0, 1, 2}
        assert internal_errors.counts() == {"value": 2}

    def test_a_failure_without_a_truth_is_not_known(self):
        class Neither:
            def __bool__(self):
                raise StopIteration

        with capture() as seen, tidegauge.run() as run:
            run.act("look")
            run.observe("x", error=Neither())  # type: ignore[arg-type]
            assert not seen.pipeline.engine.get(run.id).open_steps
        assert internal_errors.counts() == {"value": 1}

    def test_a_pipeline_that_cannot_be_made_costs_the_measuring_only(self, monkeypatch):
        with capture() as seen:
            pass

        def broken(*_, **__):
            raise ValueError

        monkeypatch.setattr("tidegauge.pipeline.setup.open_telemetry", broken)
        assert self.agent() == 6
        assert internal_errors.counts() == {"run.open": 1}
        assert seen.spans == []


class TestCrowd:
    """Many runs at once: each has its own steps, and nothing but them."""

    RUNS, STEPS = 1_000, 4

    def check(self, seen):
        roots = story(seen)
        assert len(roots) == self.RUNS
        for _, _, _, attributes, children in roots:
            name = attributes["tidegauge.run.id"]
            fields = [child[3]["gen_ai.tool.call.arguments"] for child in children]
            assert fields == [f"{name} {n}" for n in range(self.STEPS)]
            results = [child[3]["gen_ai.tool.call.result"] for child in children]
            assert results == [f"{argument} done" for argument in fields]
            assert [child[3]["tidegauge.step.index"] for child in children] == [*range(self.STEPS)]
        assert group(seen).totals.steps == self.RUNS * self.STEPS
        assert group(seen).finished.of(SuccessRate).solved == self.RUNS

    async def test_asyncio_tasks(self):
        async def agent(name):
            async with tidegauge.run(run_id=name) as run:
                for n in range(self.STEPS):
                    run.act("look", f"{name} {n}")
                    await asyncio.sleep(0)
                    assert current_run.get().run.id == run.id
                    run.observe(f"{name} {n} done")
                run.finish(success=True)

        with capture(capture_content=True) as seen:
            await asyncio.gather(*(agent(f"r{n}") for n in range(self.RUNS)))
        self.check(seen)

    def test_threads(self):
        def agent(thread):
            for number in range(thread, self.RUNS, 8):
                name = f"r{number}"
                with tidegauge.run(run_id=name) as run:
                    for n in range(self.STEPS):
                        run.act("look", f"{name} {n}")
                        run.observe(f"{name} {n} done")
                    run.finish(success=True)

        with capture(capture_content=True) as seen:
            threads = [threading.Thread(target=agent, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.check(seen)


def broken(*args, **kwargs):
    raise ZeroDivisionError("a fault of ours")


class BrokenProcessor:
    """A span processor of the application that fails."""

    def on_start(self, span, parent_context=None):
        raise RuntimeError("no")

    def _on_ending(self, span):
        pass

    def on_end(self, span):
        raise RuntimeError("no")

    def shutdown(self):
        pass

    def force_flush(self, timeout_millis=0):
        return True


class TestWhatIsAround:
    def test_generators_that_go_on_inside_each_other_form_no_cycle(self):
        handed_over = []

        @tidegauge.agent(name="first")
        def first():
            handed_over.append(tidegauge.propagate(rest))
            yield 1
            yield 2

        @tidegauge.agent(name="second")
        def second(others):
            yield from others

        def rest(others):
            for _ in second(others):
                pass
            around = current_run.get()
            for _ in range(9):
                if around is None:
                    return tidegauge.get_current_run().id
                around = around.around
            raise AssertionError("a cycle")

        with capture():
            generator = first()
            next(generator)
            assert handed_over[0](generator) == ""

    async def test_runs_that_schedule_each_other_keep_nothing_of_those_before(self):
        done = asyncio.get_running_loop().create_future()
        ended = []

        def tick(left):
            with tidegauge.run(task="x" * 100) as run:
                if left:
                    asyncio.get_running_loop().call_soon(tick, left - 1)
            ended.append(weakref.ref(run._open))
            if not left:
                gc.collect()
                done.set_result(sum(one() is not None for one in ended))

        with capture():
            tick(50)
            assert await done <= 3

    @pytest.mark.parametrize("overlapping", [1, 5])
    async def test_also_those_that_begin_while_the_one_before_is_open(self, overlapping):
        opened, tasks = [], []

        async def tick(left):
            with tidegauge.run() as run:
                opened.append(weakref.ref(run._open))
                if left:
                    tasks.append(asyncio.create_task(tick(left - 1)))
                for _ in range(overlapping):
                    await asyncio.sleep(0)

        with capture():
            tasks.append(asyncio.create_task(tick(100)))
            while len(opened) < 101:
                await asyncio.sleep(0)
            tasks[:-1] = []
            gc.collect()
            assert sum(one() is not None for one in opened) <= 2 * overlapping + 4
            await tasks[-1]

    def test_a_run_that_is_over_and_still_current_has_no_task(self):
        contexts = []
        with capture(capture_content=True), tidegauge.run(task="a long text"):
            contexts.append(copy_context())
        assert contexts[0][current_run].run.event.task is None


def test_what_was_put_off_is_done_before_the_current_run_is_looked_for():
    def late():
        opened = tidegauge.run()
        opened.__enter__()
        defer(partial(opened.__exit__, None, None, None))
        return tidegauge.get_current_run().id

    with capture():
        assert copy_context().run(late) == ""
