"""What users of such guards complain of, each as a test named after it.

All of them through the decorators and ``tidegauge.run``, with the policy as it is configured.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import tidegauge
from support.span_story import events, story
from tidegauge import CallBlocked, RunStopped
from tidegauge.cli.main import main
from tidegauge.policies import Rule
from tidegauge.streaming_metrics import Normalise, SuccessRate
from tidegauge.testing import Capture, capture

STRICT: dict[str, Any] = {
    "stop_on_loop": 2,
    "stop_on_result_streak": 4,
    "stop_on_failed_rounds": 3,
}


def steps_until_the_stop(run: tidegauge.Run, steps: Iterator[tuple[str, Any, Any]]) -> int | None:
    """How many of the steps (tool, arguments, outcome) are run; ``None``, all of them."""
    for n, (action, arguments, outcome) in enumerate(steps):
        try:
            run.act(action, arguments)
        except RunStopped:
            return n
        with suppress(RunStopped):  # said once more at the next step
            run.observe(outcome)
    return None


def totals(seen: Capture) -> Any:
    return seen.pipeline.engine.snapshot().groups[0].totals


class TestPollingIsNotKilled:
    def test_a_declared_poller_waits_as_long_as_its_patience(self) -> None:
        @tidegauge.tool(poll=20)
        def job_state(job: str) -> str:
            return "running"

        calls = 0
        with capture(**STRICT), suppress(RunStopped), tidegauge.run():
            for _ in range(99):
                job_state("build")
                calls += 1
        assert (
            calls == 1 + 20 + 3
        )  # the first brought something new; then it is a call like any other

    def test_one_declared_by_name_too(self) -> None:
        tools = {"job_state": tidegauge.ToolDeclaration(poll=True)}
        with capture(**STRICT, tools=tools), tidegauge.run() as run:
            waiting = itertools.repeat(("job_state", {"job": 1}, "running"), 60)
            assert steps_until_the_stop(run, waiting) is None

    def test_the_same_calls_undeclared_are_a_loop(self) -> None:
        with capture(**STRICT), tidegauge.run() as run:
            waiting = itertools.repeat(("job_state", {"job": 1}, "running"), 60)
            assert steps_until_the_stop(run, waiting) == 3

    def test_a_poller_is_seen_in_the_metrics_all_the_same(self) -> None:
        @tidegauge.tool(poll=True)
        def job_state() -> str:
            return "running"

        with capture(**STRICT) as seen, tidegauge.run():
            for _ in range(10):
                job_state()
        assert totals(seen).tide_loop_steps == 8
        assert totals(seen).steps == 10
        assert totals(seen).loop_steps == {}
        assert totals(seen).interventions == {}


class TestRepetitiveRealWorkIsNotKilled:
    def test_a_changed_outcome_is_no_loop(self) -> None:
        with capture(**STRICT), tidegauge.run() as run:
            work = (("read_line", None, f"line {n}") for n in range(100))
            assert steps_until_the_stop(run, work) is None

    def test_a_call_that_changes_something_is_no_loop(self) -> None:
        @tidegauge.tool(mutates=True)
        def append(line: str) -> str:
            return "ok"

        with capture(**STRICT), tidegauge.run():
            for _ in range(50):
                append("-")

    def test_unless_it_fails(self) -> None:
        @tidegauge.tool(mutates=True)
        def append(line: str) -> str:
            raise OSError("disk full")

        tried = 0
        with capture(**STRICT), suppress(RunStopped), tidegauge.run():
            for _ in range(50):
                tried += 1
                with suppress(OSError):
                    append("-")
        assert tried == 3  # the third failed round


class TestCreativeRetriesAreSeen:
    def test_one_outcome_again_and_again_whatever_the_arguments(self) -> None:
        with capture(stop_on_result_streak=4), tidegauge.run() as run:
            retries = (("shell", f"pip install thing=={n}", "no such package") for n in range(9))
            assert steps_until_the_stop(run, retries) == 4

    def test_failures_again_and_again_whatever_they_say(self) -> None:
        @tidegauge.tool
        def shell(command: str) -> str:
            raise OSError(f"{command}: not found")

        tried = 0
        with capture(stop_on_failed_rounds=3), suppress(RunStopped), tidegauge.run():
            for n in range(9):
                tried += 1
                with suppress(OSError):
                    shell(f"tool-{n}")
        assert tried == 3


class TestTimestampsAndIdsAreNoHidingPlace:
    def steps(self) -> Iterator[tuple[str, Any, Any]]:
        for n in range(10):
            request = {"url": "/orders", "request_id": f"req_011CSHoEeqs5C35K{n:08d}"}
            yield "fetch", request, f"2026-11-21 23:25:{n:02d},113 ERROR busy (took {n}.35s)"

    @pytest.mark.parametrize("settings", [{}, {"normalise": Normalise()}])
    def test_they_are_left_out(self, settings: dict[str, Any]) -> None:
        with capture(stop_on_loop=2, **settings), tidegauge.run() as run:
            assert steps_until_the_stop(run, self.steps()) == 3

    def test_a_key_leaves_them_out_of_the_arguments(self) -> None:
        @tidegauge.tool(key=lambda arguments: arguments["url"])
        def fetch(url: str, request_id: str) -> str:
            return "busy"

        fetched = 0
        with capture(stop_on_loop=2), suppress(RunStopped), tidegauge.run():
            for _, arguments, _ in self.steps():
                fetch(**arguments)
                fetched += 1
        assert fetched == 3

    def test_exact_comparison_is_fooled(self) -> None:
        with capture(stop_on_loop=2, normalise="exact"), tidegauge.run() as run:
            assert steps_until_the_stop(run, self.steps()) is None


class TestCyclesOfThreeAndMore:
    @pytest.mark.parametrize("period", range(1, 9))
    def test_of_every_period(self, period: int) -> None:
        cycle = [("go", {"to": n}, f"room {n}") for n in range(period)]
        with capture(stop_on_loop=2) as seen:
            run = tidegauge.run(task="find the exit")
            with run:
                taken = steps_until_the_stop(run, itertools.cycle(cycle))
            # The first round begins where nothing was seen yet; then one, two, and the line is
            # reached when the last action of the third is issued: it is not run.
            assert taken == 3 * period
            assert run.decision.signals.loop_period == period
        assert totals(seen).onsets["loop"] == 1

    def test_repeats_far_apart(self) -> None:
        """A write that fails the same way again and again, with other work between."""
        others = (("read", {"line": n}, f"text {n}") for n in itertools.count())
        steps = (
            ("write", {"file": "a"}, "permission denied") if n % 5 == 0 else next(others)
            for n in range(100)
        )
        rules = [Rule("recurrence", 3, "stop")]
        with capture(rules=rules), tidegauge.run() as run:
            assert steps_until_the_stop(run, steps) == 16


class TestAParallelFanOutCountsOnce:
    def test_the_same_call_ten_times_in_one_round_is_one_step(self) -> None:
        with capture(**STRICT) as seen, tidegauge.run() as run:
            for turn in range(3):
                run.act_round([("sample", {"model": "small"})] * 10)
                run.observe_round([(f"answer {turn}", False)] * 10)
        assert totals(seen).steps == 3
        assert totals(seen).loop_steps == {}

    def test_a_round_repeated_in_another_order_is_a_loop(self) -> None:
        calls = [("read", {"page": n}) for n in range(3)]
        with capture(stop_on_loop=2), tidegauge.run() as run:
            for turn in range(3):
                order = calls[turn:] + calls[:turn]
                run.act_round(order)
                run.observe_round([(f"page {call[1]['page']}", False) for call in order])
            with pytest.raises(RunStopped):
                run.act_round(calls)


class TestThinkStepsBetweenIdenticalCalls:
    def steps(self) -> Iterator[tuple[str, Any, Any]]:
        for thought in ("let me see", "perhaps again", "one more time", "it is there", "hm", "so"):
            yield "think", {"thought": thought}, f"noted: {thought}"
            yield "search", {"query": "key"}, "nothing"

    def test_recurrence_sees_the_call_again(self) -> None:
        with capture(rules=[Rule("recurrence", 3, "stop")]), tidegauge.run() as run:
            assert steps_until_the_stop(run, self.steps()) == 8

    def test_replayed_it_is_a_loop_with_the_thoughts_and_without(
        self, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        lines = [
            {"type": "step", "run": "r1", "action": action, "args": arguments, "outcome": outcome}
            for action, arguments, outcome in self.steps()
        ]
        file = tmp_path / "runs.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        ratios = []
        for options in ([], ["--ignore-action", "think"]):
            with pytest.raises(SystemExit):
                main(["replay", str(file), "--json", *options])
            document = json.loads(capsysbinary.readouterr().out)
            ratios.append(document["runs"][0]["loop_ratio"])
        assert ratios == [4 / 12, 4 / 6]


class TestIdsReusedWithinARun:
    def test_a_call_id_that_comes_again_is_another_call(self) -> None:
        with capture(capture_content=True) as seen, tidegauge.run() as run:
            first = run.act("look", {"n": 1}, call_id="call-1").signals.step
            second = run.act("look", {"n": 2}, call_id="call-1").signals.step
            run.observe("two", step=second)
            run.observe("one", step=first)
        attributes = [
            (span["gen_ai.tool.call.id"], span["gen_ai.tool.call.result"])
            for _, _, _, span, _ in story(seen)[0][4]
        ]
        assert attributes == [("call-1", "one"), ("call-1", "two")]
        assert totals(seen).steps == 2

    def test_a_run_id_that_comes_again_begins_anew(self) -> None:
        with capture(**STRICT) as seen:
            for _ in range(3):
                with tidegauge.run(run_id="r1") as run:
                    looking = itertools.repeat(("look", None, "nothing"), 3)
                    assert steps_until_the_stop(run, looking) is None
            groups = seen.pipeline.engine.snapshot().groups
        assert groups[0].finished.runs == 3


LADDER: dict[str, Any] = {"nudge_on_loop": 2, "block_on_loop": 3, "stop_on_loop": 5}


class TestANudgeThatIsIgnoredLeadsOn:
    def test_from_nudge_to_block_to_stop(self) -> None:
        """A model that insists: it is nudged, then its calls are answered, then it is stopped."""
        ran, reported, answers, stop = 0, [], [], None
        with capture(**LADDER) as seen:
            run = tidegauge.run(place="hall", exits=["cellar"])
            with suppress(RunStopped), run:
                while stop is None:
                    if advice := run.nudge():
                        reported.append((run.decision.signals.step, advice))
                    try:
                        decision = run.act("look", {"at": "hall"})
                    except RunStopped as error:
                        stop = error
                        raise
                    if decision.block:
                        answers.append(decision)
                    else:
                        ran += 1
                        run.observe("empty", place="hall")
        # looked at 0 and 1; repeated once at 2, twice at 3 and so on
        assert [step for step, _ in reported] == [3]
        assert [decision.signals.step for decision in answers] == [4, 5]
        assert (ran, stop.step) == (4, 6)
        for text in (reported[0][1], answers[0].advice):
            assert "(look)" in text
            assert "Not visited yet: cellar." in text
        assert totals(seen).interventions == {
            ("nudge", "loop_repeats"): 1,
            ("block", "loop_repeats"): 2,
            ("stop", "loop_repeats"): 1,
            ("would_stop", "loop_evidence"): 1,
            ("would_stop", "stuck_streak"): 1,
        }
        interventions = [
            attributes["tidegauge.intervention.action"]
            for name, attributes in events(seen)
            if name == "tidegauge.intervention"
        ]
        assert interventions == ["nudge", "block", "block", "stop"]

    def test_a_model_that_heeds_it_is_left_alone(self) -> None:
        @tidegauge.tool
        def look(at: str) -> str:
            return f"nothing at {at}"

        @tidegauge.agent
        def agent() -> int:
            place, run = "hall", tidegauge.get_current_run()
            for _ in range(20):
                if run.nudge():
                    place += "'s other side"
                look(place)
            return len(place)

        with capture(**LADDER) as seen:
            assert agent() > 20
        assert {action for action, _ in totals(seen).interventions} <= {"nudge"}


class TestAStopIsTypedAndResumable:
    def work(self, run: tidegauge.Run, rooms: list[str]) -> None:
        for room in rooms:
            run.act("search", {"room": room})
            run.observe("nothing", place=room, exits=["hall", "cellar"])

    def test_it_says_where_the_run_stood(self) -> None:
        with capture(stop_on_loop=2) as seen:
            run = tidegauge.run(conversation="c1", place="hall")
            with pytest.raises(RunStopped) as caught, run:
                self.work(run, ["hall"] * 9)
            stop = caught.value
            assert (stop.run, stop.reason) == (run.id, "loop_repeats")
            assert stop.message.startswith("1 step, repeated 3 times")
            assert stop.state["place"] == "hall"
            assert stop.state["unexplored"] == ("cellar",)
            assert stop.state["repeated"] == ("search",)
            assert stop.metrics["loop_repeats"] == 2
            # The code that catches it goes on in a separate run, from that state.
            with tidegauge.run(conversation="c1", place=stop.state["place"]) as again:
                self.work(again, list(stop.state["unexplored"]))
                again.finish(success=True)
        roots = [attributes for _, _, _, attributes, _ in story(seen)]
        assert [root["tidegauge.outcome"] for root in roots] == ["stopped", "success"]
        assert {root["gen_ai.conversation.id"] for root in roots} == {"c1"}

    def test_it_is_never_a_success(self) -> None:
        with capture(stop_on_loop=2) as seen, suppress(RunStopped), tidegauge.run() as run:
            run.finish(success=True)
            self.work(run, ["hall"] * 9)
        finished = seen.pipeline.engine.snapshot().groups[0].finished
        assert finished.finished == {"stopped": 1}
        assert finished.of(SuccessRate).value == 0

    def test_a_blocked_call_destroys_nothing(self) -> None:
        """The run goes on after it, and its tool was not run."""

        @tidegauge.tool
        def search(room: str) -> str:
            return "nothing"

        with capture(block_on_loop=2) as seen:
            with tidegauge.run() as run:
                for _ in range(3):
                    search("hall")
                with pytest.raises(CallBlocked):
                    search("hall")
                search("cellar")
                run.finish(success=True)
            assert seen.pipeline.engine.snapshot().groups[0].finished.finished == {"success": 1}


class TestHistoryOfAnEarlierTurnDoesNotFire:
    def test_a_new_turn_of_a_conversation_begins_clean(self) -> None:
        with capture(**STRICT) as seen:
            for _ in range(5):
                with tidegauge.run(conversation="c1") as run:
                    looking = itertools.repeat(("look", None, "nothing"), 3)
                    assert steps_until_the_stop(run, looking) is None
        assert totals(seen).interventions == {}

    def test_progress_clears_what_was_before_it(self) -> None:
        with capture(**STRICT), tidegauge.run() as run:
            for n in range(20):
                looking = itertools.repeat(("look", None, "nothing"), 3)
                assert steps_until_the_stop(run, looking) is None
                assert steps_until_the_stop(run, iter([("open", n, f"door {n} is open")])) is None


class TestItShipsObservingAndSaysWhatItWouldHaveSaved:
    def test_nothing_is_stopped_and_its_cost_is_counted(self) -> None:
        registry = CollectorRegistry()
        with capture(registry=registry):
            with tidegauge.run(agent="a", task="t") as run:
                for _ in range(10):
                    run.act("look", tokens=100)
                    run.observe("nothing", tokens=10, seconds=2)

            def value(name: str, **labels: str) -> float | None:
                labels = {"agent": "a", "task_group": "", **labels}
                return registry.get_sample_value(f"tidegauge_{name}_total", labels)

            would_stop = {"action": "would_stop", "reason": "loop_evidence"}
            assert value("interventions", **would_stop) == 1
            # Repeated for the third time at step 4, which would have been the last: six of ten
            # steps are saved, but what chose the first of them had been spent.
            assert value("would_have_saved_steps") == 6
            assert value("would_have_saved_tokens") == 5 * 110 + 10
            assert value("would_have_saved_seconds") == 12


class TestALoopIsReportedAtItsOnsetWithItsCost:
    def test_an_event_at_the_onset_and_what_it_has_cost_since(self) -> None:
        with capture(rules=[Rule("loop_cost_tokens", 500, "stop")]) as seen, tidegauge.run() as run:
            run.act("look", state="same", tokens=100)
            run.observe("nothing")
            assert events(seen) == []
            run.act("look", state="same", tokens=100)
            # The first repetition is complete: it is known before it is run.
            assert [name for name, _ in events(seen)] == ["tidegauge.loop.onset"]
            for _ in range(3):
                run.observe("nothing")
                run.act("look", state="same", tokens=100)
            run.observe("nothing")
            with pytest.raises(RunStopped) as caught:
                run.act("look", state="same", tokens=100)
        stop = caught.value
        assert (stop.reason, stop.metrics["loop_cost_tokens"]) == ("loop_cost_tokens", 500)
        assert stop.metrics["loop_cost_steps"] == 5
        assert stop.message.endswith("500 tokens lost")
