"""Events of hooks become runs, and are answered as the policy decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from support.hook_payloads import PAYLOADS
from tidegauge.coding_agents.sessions import HookSessions, SessionLimits
from tidegauge.events import Decision, RunEnded, RunObserver, RunStarted, Step
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.policies import Budget, Rule
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.snapshot import RunReport

RULES = (
    Rule("loop_repeats", 1, "nudge"),
    Rule("loop_repeats", 2, "block"),
    Rule("loop_repeats", 4, "stop"),
)
LIMITS = SessionLimits(beside_seconds=0.02)


class Watched(RunObserver):
    """Sessions, with what reached the engine.

    Args:
        acts: whether the policy acts.
        limits: those of the sessions.
        budgets: those of the policy.
    """

    def __init__(
        self, *, acts: bool, limits: SessionLimits = LIMITS, budgets: tuple[Budget, ...] = ()
    ) -> None:
        settings = Settings(rules=RULES, observe_only=not acts, budgets=budgets)
        self.pipeline = Pipeline(settings, serve=False)
        self.now = 0.0
        self.started: list[RunStarted] = []
        self.steps: list[Step] = []
        self.reports: list[RunReport] = []
        self._active: dict[str, MeasuredRun] = {}
        self.pipeline.observe(self)
        self.sessions = HookSessions(self.pipeline.recorder, limits, clock=lambda: self.now)

    def run_started(self, event: RunStarted) -> None:
        self.started.append(event)
        run = self.pipeline.engine.get(event.run)
        assert run is not None
        self._active[event.run] = run

    def step_issued(self, event: Step, decision: Decision) -> None:
        self.steps.append(event)

    def run_ended(self, event: RunEnded) -> None:
        self.reports.append(self._active.pop(event.run).report())

    def give(self, agent: str, kind: str, /, *args: Any, **more: Any) -> Any:
        """Give an event, and return the answer."""
        payload = {**PAYLOADS[agent](kind, *args), **more}
        answer = self.sessions.receive(agent, orjson.dumps(payload))
        return orjson.loads(answer) if answer else None


Open = Callable[..., Watched]


@pytest.fixture
def watched() -> Iterator[Open]:
    opened: list[Watched] = []

    def make(
        *, acts: bool = False, limits: SessionLimits = LIMITS, budgets: tuple[Budget, ...] = ()
    ) -> Watched:
        opened.append(Watched(acts=acts, limits=limits, budgets=budgets))
        return opened[-1]

    yield make
    for one in opened:
        one.pipeline.shutdown()


def text_of(answer: Any) -> str:
    inner = answer.get("hookSpecificOutput", answer)
    names = ("permissionDecisionReason", "additionalContext", "reason", "stopReason", "message")
    return next(str(inner[name]) for name in names if name in inner)


def counted(one: Watched) -> dict[str, dict[str, float]]:
    """The metrics of sessions, by agent."""
    found = one.sessions.metrics()
    return {
        metric.name.removeprefix("tidegauge_"): {agent: value for (agent, _), value in rows.items()}
        for metric, rows in found.items()
    }


def refused(one: Watched) -> dict[str, int]:
    """Refused calls by agent."""
    groups = one.pipeline.engine.snapshot().groups
    return {group.key.agent: group.totals.refused_calls for group in groups}


def test_sessions_and_refused_calls_are_counted(watched: Open) -> None:
    one = watched(acts=True)
    assert set(map(len, one.sessions.metrics().values())) == {0}
    for prompt in range(2):  # two prompts of one session
        one.give("codex", "prompt")
        for number in range(5):
            if one.give("codex", "call", f"{prompt}-{number}") is None:
                one.give("codex", "result", f"{prompt}-{number}")
        if not prompt:
            assert counted(one)["sessions_active"] == {"codex": 1}
            one.give("codex", "end")
            assert counted(one)["sessions_active"] == {"codex": 0}
    one.give("codex", "prompt", session_id="s2")
    one.give("codex", "call", session_id="s2", agent_id="inner")
    assert counted(one) == {
        "sessions_total": {"codex": 2},
        "sessions_active": {"codex": 2},
    }
    assert refused(one) == {"codex": 4}


def test_a_call_of_a_stopped_run_is_a_refused_call(watched: Open) -> None:
    one = watched(acts=True)
    one.give("codex", "prompt")
    for number in range(9):  # two are made, one is nudged, the others are refused
        if one.give("codex", "call", f"c{number}") is None:
            one.give("codex", "result", f"c{number}")
    assert refused(one) == {"codex": 6}
    assert len(one.steps) == 6  # two that ran, one nudged, two blocked, one stopped


def test_a_refused_call_that_is_reported_twice_counts_once(watched: Open) -> None:
    one = watched(acts=True)
    one.give("codex", "prompt")
    for number in range(9):
        answers = [one.give("codex", "call", f"c{number}") for _ in range(2)]
        assert answers[0] == answers[1]
        if answers[0] is None:
            one.give("codex", "result", f"c{number}")
    assert refused(one) == {"codex": 6}


@pytest.mark.parametrize("action", ["block", "stop"])
def test_a_budget_of_calls_refuses_calls_that_were_never_made_before(
    watched: Open, action: Any
) -> None:
    one = watched(acts=True, budgets=(Budget("calls", 2, action=action, nudge_at=0),))
    one.give("codex", "prompt")
    answers = []
    for number in range(4):
        arguments = {"command": f"cat {number}"}
        answers.append(one.give("codex", "call", f"c{number}", "text", arguments))
        if answers[-1] is None:
            one.give("codex", "result", f"c{number}", "text", arguments)
    assert answers[:2] == [None, None]
    begins = {"block": "This call was not run: the budget of 2 calls for this run is used up."}
    for refusal in answers[2:]:
        assert text_of(refusal).startswith(begins.get(action, "tidegauge stopped this run"))


@pytest.mark.parametrize("agent", PAYLOADS)
def test_a_loop_is_nudged_refused_and_stopped(watched: Open, agent: str) -> None:
    one = watched(acts=True)
    assert one.give(agent, "prompt") is None
    answers = []
    for number in range(8):
        before = one.give(agent, "call", f"c{number}")
        after = one.give(agent, "result", f"c{number}") if before is None else None
        answers.append((before, after))
        if before and ("continue" in before or before.get("action") == "stop"):
            break
    one.give(agent, "end")
    assert answers[:2] == [(None, None)] * 2
    assert answers[2][0] is None
    assert "You make no progress" in text_of(answers[2][1])
    for refused, _ in answers[3:5]:
        assert text_of(refused).startswith("This call was not run")
    for stopped, _ in answers[5:]:
        assert text_of(stopped).startswith("tidegauge stopped this run")
    (report,) = one.reports
    assert (report.steps, report.loops) == (6, [(2, 1, 4, 4)])
    ends = len(answers) == 6
    assert ends == (agent in ("gemini", "claude", "opencode", "generic"))


@pytest.mark.parametrize("agent", PAYLOADS)
def test_without_acting_nothing_is_answered(watched: Open, agent: str) -> None:
    one = watched()
    one.give(agent, "prompt")
    for number in range(8):
        assert one.give(agent, "call", f"c{number}") is None
        assert one.give(agent, "result", f"c{number}") is None
    one.give(agent, "end")
    (report,) = one.reports
    assert (report.steps, report.intervention) == (8, "would_stop")


def test_a_nudge_that_no_hook_waited_for_is_given_again(watched: Open) -> None:
    one = watched(acts=True)
    one.give("codex", "prompt")
    for number in range(3):
        one.give("codex", "call", f"c{number}")
        nudge = one.give("codex", "result", f"c{number}")
    assert "You make no progress" in text_of(nudge)
    one.sessions.lost("codex", orjson.dumps(PAYLOADS["codex"]("result", "c2")))
    one.sessions.lost("codex", b"{")
    one.give("codex", "call", "c3", "", {"command": "another"})
    assert one.give("codex", "result", "c3", "", {"command": "another"}) == nudge
    one.give("codex", "end")
    (group,) = one.pipeline.engine.snapshot().groups
    assert group.totals.interventions == {("nudge", "loop_repeats"): 1}


def test_a_nudge_waits_for_a_hook_that_can_give_it(watched: Open) -> None:
    one = watched(acts=True)
    one.give("opencode", "prompt")
    state = {"status": "error", "input": {"command": "a"}, "error": "failed"}
    part = {"type": "tool", "tool": "bash", "state": state}
    for number in range(3):
        part["callID"] = f"c{number}"
        one.give("opencode", "call", f"c{number}", "", {"command": "a"})
        event = {"hook": "event:message.part.updated", "input": {"sessionID": "s1", "part": part}}
        assert one.sessions.receive("opencode", orjson.dumps(event)) == b""
    one.give("opencode", "call", "c3", "", {"command": "b"})
    assert "You make no progress" in text_of(one.give("opencode", "result", "c3"))


def test_parallel_calls_are_one_step_in_any_order(watched: Open) -> None:
    one = watched()
    one.give("codex", "prompt")
    orders = [("a", "b", "b", "a"), ("b", "a", "a", "b"), ("a", "b", "a", "b")]
    for number, (first, second, third, fourth) in enumerate(orders):
        for kind, name in (
            ("call", first),
            ("call", second),
            ("result", third),
            ("result", fourth),
        ):
            one.give("codex", kind, f"{name}{number}", name, {"command": name})
    one.give("codex", "end")
    assert [len(step.calls) for step in one.steps] == [2, 2, 2]
    assert {tuple(call.arguments["command"] for call in step.calls) for step in one.steps} == {  # type: ignore[index]
        ("a", "b")
    }
    assert one.reports[0].loops == [(2, 1, 1, 1)]


def test_calls_without_ids_are_joined_by_tool_and_arguments(watched: Open) -> None:
    one = watched()
    one.give("gemini", "prompt")
    for _ in range(3):
        one.give("gemini", "call", "", "", {"command": "a"})
        one.give("gemini", "call", "", "", {"command": "b"})
        one.give("gemini", "result", "", "of b", {"command": "b"})
        one.give("gemini", "result", "", "of a", {"command": "a"})
    one.give("gemini", "end")
    assert one.reports[0].loops == [(2, 1, 1, 1)]


def test_a_call_with_the_id_of_one_that_was_lost_is_another_one(watched: Open) -> None:
    """The ids of many models are counted from zero in each answer."""
    one = watched()
    one.give("codex", "prompt")
    one.give("codex", "call", "call_0", "", {"command": "a"})  # a person refuses it
    one.give("codex", "call", "call_0", "", {"command": "b"})
    one.give("codex", "call", "call_0", "", {"command": "b"})  # its hook is in two places
    one.give("codex", "result", "call_0", "of b", {"command": "b"})
    one.give("codex", "end")
    steps = [[call.arguments["command"] for call in step.calls] for step in one.steps]  # type: ignore[index]
    assert steps == [["a"], ["b"]]


def test_parallel_calls_that_repeat_are_refused_together(watched: Open) -> None:
    one = watched(acts=True, limits=SessionLimits(beside_seconds=0.5))
    one.give("codex", "prompt")
    found: dict[str, Any] = {}

    def ask(name: str, number: int) -> None:
        found[name] = one.give("codex", "call", f"{name}{number}", "x", {"command": name})

    for number in range(4):
        asking = [threading.Thread(target=ask, args=(name, number)) for name in ("a", "b")]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        if number == 3:
            break
        assert found == {"a": None, "b": None}
        first = one.give("codex", "result", f"a{number}", "x", {"command": "a"})
        second = one.give("codex", "result", f"b{number}", "x", {"command": "b"})
        assert "You make no progress" in text_of(first or second) if number == 2 else not second
    assert all(text_of(found[name]).startswith("This call was not run") for name in ("a", "b"))
    assert [len(step.calls) for step in one.steps] == [2, 2, 2, 2]


def test_a_call_without_a_result_is_over_when_another_begins_later(watched: Open) -> None:
    one = watched()
    one.give("codex", "prompt")
    one.give("codex", "call", "c1")
    one.now = 5.0
    one.give("codex", "call", "c2")
    one.give("codex", "result", "c2")
    one.give("codex", "result", "c1")
    one.give("codex", "end")
    assert [len(step.calls) for step in one.steps] == [1, 1]


def test_a_run_is_what_a_prompt_asks_for(watched: Open) -> None:
    one = watched()
    for number in range(2):
        one.give("codex", "prompt")
        one.give("codex", "call", f"c{number}")
        one.give("codex", "result", f"c{number}")
    one.give("codex", "end")
    one.give("codex", "result", "c7")
    one.give("codex", "end")
    assert [(run.agent, run.task, run.model) for run in one.started] == [
        ("codex", "Read it", "fake-model")
    ] * 2
    assert {run.conversation for run in one.started} == {"s1"}
    assert [report.steps for report in one.reports] == [1, 1]


def test_a_session_that_began_before_the_watcher_is_measured(watched: Open) -> None:
    one = watched()
    one.give("codex", "result", "c0")
    assert not one.started
    one.give("codex", "call", "c1")
    one.give("codex", "result", "c1")
    one.sessions.close()
    assert [report.steps for report in one.reports] == [1]


def test_sub_agents_are_runs_inside_the_run(watched: Open) -> None:
    one = watched()
    one.give("claude", "prompt")
    one.give("claude", "call", "c1")
    one.give("claude", "call", "c2", agent_id="a7")
    one.give("claude", "result", "c2", agent_id="a7")
    one.give("claude", "result", "c1")
    one.sessions.close()
    outer, inner = one.started
    assert (inner.parent, outer.parent) == (outer.run, None)
    assert [report.steps for report in one.reports] == [1, 1]


@pytest.mark.parametrize("agent", [name for name in PAYLOADS if name not in ("gemini", "copilot")])
def test_hooks_in_two_places_report_everything_twice(watched: Open, agent: str) -> None:
    answers: list[list[Any]] = []
    for times in (1, 2):
        one = watched(acts=True)
        given = []
        for kind, number in [
            ("prompt", 0),
            *((k, n) for n in range(4) for k in ("call", "result")),
        ]:
            got = [one.give(agent, kind, f"c{number}") for _ in range(times)]
            if kind == "call":
                assert all(answer == got[0] for answer in got)
            given.append(got[0])
        for _ in range(times):
            one.give(agent, "end")
        assert len(one.started) == len(one.reports) == 1
        assert one.reports[0].steps == len(one.steps) == 4
        answers.append(given)
    assert answers[0] == answers[1]
    assert len([answer for answer in answers[0] if answer is not None]) == 2


def test_the_same_prompt_again_is_another_run(watched: Open) -> None:
    one = watched()
    for number in range(2):
        one.give("codex", "prompt")
        one.give("codex", "call", f"c{number}")
        one.give("codex", "result", f"c{number}")
    assert len(one.started) == 2


def test_two_agents_with_one_session_id_are_two_sessions(watched: Open) -> None:
    one = watched()
    for agent in ("a", "b"):
        one.give("generic", "prompt", agent=agent, session="1")
    for number in range(3):
        for agent in ("a", "b"):
            one.give("generic", "call", f"c{number}", agent=agent, session="1")
    for agent in ("a", "b"):
        for number in range(3):
            one.give("generic", "result", f"c{number}", agent=agent, session="1")
    assert counted(one)["sessions_active"] == {"a": 1, "b": 1}
    assert one.sessions.is_reported("a", "1")
    assert not one.sessions.is_reported("c", "1")
    one.sessions.close()
    assert [(report.agent, report.steps) for report in one.reports] == [("a", 1), ("b", 1)]


def test_calls_with_deep_arguments_are_steps_like_any_other(watched: Open) -> None:
    one = watched(acts=True)
    one.give("codex", "prompt")
    answers = []
    for number in range(4):
        deep: Any = []
        for _ in range(200):
            deep = [deep]
        payload = {**PAYLOADS["codex"]("call", f"c{number}"), "tool_input": deep}
        text = orjson.dumps(payload).replace(b"[[[]]]", b"[" * 500 + b"]" * 500)
        answers.append(one.sessions.receive("codex", text))
        one.give("codex", "result", f"c{number}")
    one.give("codex", "end")
    (report,) = one.reports
    assert [bool(answer) for answer in answers] == [False, False, False, True]
    assert report.steps == 4
    assert [loop[1] for loop in report.loops] == [1]


def test_idle_sessions_and_too_many_are_ended(watched: Open) -> None:
    one = watched(limits=SessionLimits(runs=2, idle_seconds=60.0))
    for session in ("s1", "s2", "s3"):
        one.give("codex", "prompt", session_id=session)
    assert len(one.reports) == 1
    one.now = 61.0
    one.sessions.end_idle()
    assert len(one.reports) == 3


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b'{"session_id": 1}', b"\xff"])
def test_other_payloads_are_not_answered(watched: Open, payload: bytes) -> None:
    one = watched(acts=True)
    assert one.sessions.receive("codex", payload) == b""
    assert one.sessions.receive("unknown", payload) == b""
    assert not one.started


def test_a_run_remembers_a_bounded_number_of_calls(watched: Open) -> None:
    one = watched()
    one.give("codex", "prompt")
    for number in range(1_100):
        one.give("codex", "call", f"c{number}", "", {"command": str(number)})
    ((run,),) = (one.sessions._runs._runs.values(),)
    assert len(run.open) == len(run.made) == 1_000
    one.give("codex", "end")
