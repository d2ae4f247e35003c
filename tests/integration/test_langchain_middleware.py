"""The middleware steps in where the policy says so, and leaves an agent's state clean."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

import tidegauge
from support.langchain_agents import (
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    stopped_by,
)
from tidegauge.policies import Rule
from tidegauge.runs.turns import TurnTracker
from tidegauge.safety.guard import internal_errors

TASK: dict[str, Any] = {"messages": [("system", "be brief"), ("user", "open the door")]}
NUDGE, BLOCK, STOP = (
    Rule("loop_repeats", 1, "nudge"),
    Rule("loop_repeats", 2, "block"),
    Rule("loop_repeats", 3, "stop"),
)
LADDER = [NUDGE, BLOCK, STOP]
# The first step is from another state (the task) than those that follow; the loop is those.
NUDGED, BLOCKED, STOPPED = 2, 3, 4  # steps

Script = Callable[[Sequence[BaseMessage]], AIMessage]


def looping_for_a_while(messages: Sequence[BaseMessage], rounds: int) -> AIMessage:
    said = turns(messages)
    return chooses(("push", {"door": "red"})) if said < rounds else answers("no way")


class Doors:
    """A tool that opens nothing, a model that pushes on, and what both were given."""

    def __init__(self, script: Script | None = None, *, later: bool = False) -> None:
        self.pushed: list[str] = []
        self.shown: list[list[BaseMessage]] = []
        self._script = script or (lambda messages: looping_for_a_while(messages, 20))
        self.push: BaseTool = (
            StructuredTool.from_function(coroutine=self._push_later, name="push")
            if later
            else StructuredTool.from_function(self._push, name="push")
        )
        self.model = ScriptedChatModel(script=self._say)
        self.handler = TidegaugeCallbackHandler()
        self.config: Any = {"callbacks": [self.handler]}

    def _push(self, door: str) -> str:
        """Push a door."""
        self.pushed.append(door)
        return "it does not move"

    async def _push_later(self, door: str) -> str:
        """Push a door."""
        await asyncio.sleep(0)
        return self._push(door)

    def _say(self, messages: Sequence[BaseMessage]) -> AIMessage:
        self.shown.append(list(messages))
        return self._script(messages)

    def agent(self, *middleware: Any, name: str | None = "porter", **fields: Any) -> Any:
        return create_agent(
            self.model,
            [self.push],
            name=name,
            middleware=middleware or [TidegaugeMiddleware()],
            **fields,
        )

    def nudged_calls(self) -> list[int]:
        """The calls of the model (from 0) that were shown a nudge."""
        return [turn for turn, shown in enumerate(self.shown) if any(map(is_nudge, shown))]


def is_nudge(message: BaseMessage) -> bool:
    return message.additional_kwargs.get("lc_source") == "tidegauge"


def is_clean(messages: Sequence[BaseMessage]) -> bool:
    """Whether every call is answered once, right after the message that chose it."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return False
        waiting = [call["id"] or "" for call in getattr(message, "tool_calls", [])]
    return not waiting


def interventions(seen: testing.Capture) -> list[tuple[str, int]]:
    """The events of what was stepped in with, and at which step."""
    reported = [
        event.attributes for event in seen.events if event.event_name.endswith("intervention")
    ]
    return [(a["tidegauge.intervention.action"], a["tidegauge.step.index"]) for a in reported]


async def via_stream_messages(agent: Any, task: Any, config: Any) -> Any:
    """Every model call in pieces."""
    result = list(agent.stream(task, config=config, stream_mode=["messages", "values"]))
    assert any(mode == "messages" and stopped_by(one[0]) for mode, one in result)
    return [one for mode, one in result if mode == "values"][-1]


async def via_astream_events(agent: Any, task: Any, config: Any) -> Any:
    result = [e async for e in agent.astream_events(task, config=config, version="v2")]
    return result[-1]["data"]["output"]


SYNC = [via_invoke, via_stream, via_stream_messages]
ASYNC = [via_ainvoke, via_astream, via_astream_events]
WAYS = [(False, way) for way in SYNC + ASYNC] + [(True, way) for way in ASYNC]


@pytest.mark.parametrize(("later", "way"), WAYS)
async def test_a_nudge_ignored_leads_on(later: bool, way: Callable[..., Any]) -> None:
    doors, registry = Doors(later=later), CollectorRegistry()
    with testing.capture(rules=LADDER, registry=registry) as seen:
        result = await way(doors.agent(), TASK, doors.config)
        assert nothing_is_left(doors.handler, seen)
        labels = {"agent": "porter", "task_group": ""}
        counted = {
            action: registry.get_sample_value(
                "tidegauge_interventions_total",
                {**labels, "action": action, "reason": "loop_repeats"},
            )
            for action in ("nudge", "block", "stop")
        }
        stopped_runs = registry.get_sample_value(
            "tidegauge_runs_finished_total", {**labels, "outcome": "stopped"}
        )

    messages = result["messages"]
    assert is_clean(messages)
    assert doors.nudged_calls() == [NUDGED + 1]
    nudge = doors.shown[NUDGED + 1][-1]
    assert "1 step, repeated twice, since step 2 (push)" in str(nudge.content)
    assert len(doors.pushed) == BLOCKED, "what was blocked and what was stopped was not run"
    replies = [message for message in messages if isinstance(message, ToolMessage)]
    assert [reply.status for reply in replies] == ["success"] * 3 + ["error"] * 2
    assert replies[BLOCKED].name == "push"
    assert str(replies[BLOCKED].content).startswith("This call was not run: 1 step, repeated")
    assert replies[STOPPED].content == "This call was not run: the run was stopped."
    assert messages[-1].content == (
        "This run was stopped before it finished: 1 step, repeated 4 times, since step 2."
    )
    stop = stopped_by(result)
    assert stop is not None
    assert (stop.reason, stop.step, stop.metrics["loop_repeats"]) == ("loop_repeats", STOPPED, 3)
    assert stop.state["repeated"] == ["push"]
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)]
    assert counted == {"nudge": 1, "block": 1, "stop": 1}
    assert stopped_runs == 1
    root = next(span for span in seen.spans if span.name == "invoke_agent porter")
    assert root.attributes["tidegauge.run.id"] == stop.run
    assert root.attributes["tidegauge.outcome"] == "stopped"
    assert root.attributes["tidegauge.stopped.reason"] == "loop_repeats"
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}
    assert seen.tree() == [
        "invoke_agent porter",
        *["  chat scripted-1", "  execute_tool push"] * 3,
        *["  chat scripted-1"] * 2,
    ]


def heeding(messages: Sequence[BaseMessage]) -> AIMessage:
    """Goes on until a nudge says not to."""
    reported = any("You make no progress" in str(message.content) for message in messages)
    return answers("it is locked") if reported else chooses(("push", {"door": "red"}))


def test_a_model_that_heeds_a_nudge_comes_to_its_own_end() -> None:
    doors = Doors(heeding)
    with testing.capture(rules=LADDER) as seen:
        result = doors.agent().invoke(TASK, config=doors.config)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert result["messages"][-1].content == "it is locked"
    assert stopped_by(result) is None
    assert group.finished.finished == {"unknown": 1}
    assert group.totals.interventions == {("nudge", "loop_repeats"): 1}
    assert not any(map(is_nudge, result["messages"])), "it was in the request only"


def test_a_blocked_call_makes_way_for_another_one() -> None:
    def heeds_a_block(messages: Sequence[BaseMessage]) -> AIMessage:
        blocked = any("was not run" in str(message.content) for message in messages)
        if not blocked:
            return chooses(("push", {"door": "red"}))
        blue = any("blue" in str(getattr(m, "tool_calls", "")) for m in messages)
        return answers("both are locked") if blue else chooses(("push", {"door": "blue"}))

    doors = Doors(heeds_a_block)
    with testing.capture(rules=LADDER) as seen:
        result = doors.agent().invoke(TASK, config=doors.config)
    assert doors.pushed == ["red"] * 3 + ["blue"]
    assert result["messages"][-1].content == "both are locked"
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED)]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_nudges_that_persist_are_in_the_state_once(way: Callable[..., Any]) -> None:
    doors = Doors()
    with testing.capture(rules=LADDER):
        result = await way(
            doors.agent(TidegaugeMiddleware(persist_nudges=True)), TASK, doors.config
        )
    messages = result["messages"]
    assert is_clean(messages)
    assert [is_nudge(message) for message in messages].count(True) == 1
    assert doors.nudged_calls() == [NUDGED + 1, NUDGED + 2], "once given, it stays in the history"


@pytest.mark.parametrize("persist", [False, True])
def test_a_nudge_changes_nothing_that_is_measured(persist: bool) -> None:
    def measured(action: Any) -> list[Any]:
        doors = Doors(lambda m: looping_for_a_while(m, 8))
        with testing.capture(rules=[Rule("loop_repeats", 1, action)], digest_key=b"k" * 32) as seen:
            doors.agent(TidegaugeMiddleware(persist_nudges=persist)).invoke(
                TASK, config=doors.config
            )
        assert len(doors.nudged_calls()) > (0 if action == "nudge" else -1)
        names = ("action.digest", "state.digest", "loop.repeats", "step.index")
        return [
            [span.attributes.get(f"tidegauge.{name}") for name in names]
            for span in seen.spans
            if span.name == "execute_tool push"
        ]

    assert measured("nudge") == measured("observe")


def test_words_of_the_applications_own() -> None:
    doors = Doors()
    middleware = TidegaugeMiddleware(
        nudge=lambda decision: HumanMessage(f"[{decision.reason}] try something else"),
        stop_message=lambda stop: f"gave up at step {stop.step}",
    )
    with testing.capture(rules=LADDER):
        result = doors.agent(middleware).invoke(TASK, config=doors.config)
    assert doors.shown[NUDGED + 1][-1].content == "[loop_repeats] try something else"
    assert result["messages"][-1].content == f"gave up at step {STOPPED}"


def test_a_run_is_stopped_before_the_model_is_asked_again() -> None:
    """What is decided when a round was observed needs no more of the model's answers."""

    def failing(door: str) -> str:
        """Push a door."""
        raise RuntimeError("locked")

    doors = Doors(lambda messages: chooses(("push", {"door": f"door {turns(messages)}"})))
    doors.push = StructuredTool.from_function(failing, name="push", handle_tool_error=True)
    with testing.capture(rules=[Rule("failed_rounds", 2, "stop")]) as seen:
        result = doors.agent(ToolRetryMiddleware(max_retries=0), TidegaugeMiddleware()).invoke(
            TASK, config=doors.config
        )
        assert nothing_is_left(doors.handler, seen)
    stop = stopped_by(result)
    assert stop is not None
    assert (stop.reason, stop.step, len(doors.shown)) == ("failed_rounds", 1, 2)
    assert is_clean(result["messages"])


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_a_stop_is_typed_and_resumable(way: Callable[..., Any]) -> None:
    def gives_in(messages: Sequence[BaseMessage]) -> AIMessage:
        asked = "give up" in str(messages[-1].content)
        return answers("I give up") if asked else chooses(("push", {"door": "red"}))

    doors = Doors(gives_in)
    agent = doors.agent(checkpointer=InMemorySaver())
    config = {**doors.config, "configurable": {"thread_id": "one"}}
    with testing.capture(rules=LADDER) as seen:
        stop = stopped_by(await way(agent, TASK, config))
        state = agent.get_state(config)
        assert isinstance(stop, tidegauge.RunStopped)
        found = stopped_by(state.values)
        assert found is not None, "the stop is in the checkpoint as well"
        assert (found.run, found.metrics) == (stop.run, stop.metrics)
        assert state.next == (), "nothing is left to be done in the graph"
        assert is_clean(state.values["messages"])

        more = {"messages": [HumanMessage("give up")]}
        result = agent.invoke(more, config=config)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert result["messages"][-1].content == "I give up"
    assert stopped_by(result) is None
    assert group.finished.finished == {"stopped": 1, "unknown": 1}


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
async def test_a_stop_can_be_raised(way: Callable[..., Any]) -> None:
    doors = Doors()
    with testing.capture(rules=LADDER) as seen:
        agent = doors.agent(TidegaugeMiddleware(on_stop="raise"))
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, TASK, doors.config)
        assert nothing_is_left(doors.handler, seen)
    assert (caught.value.reason, caught.value.step) == ("loop_repeats", STOPPED)
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)]


def test_a_stop_that_was_observed_can_be_raised() -> None:
    doors = Doors(lambda messages: chooses(("push", {"door": f"door {turns(messages)}"})))
    with testing.capture(rules=[Rule("result_streak", 3, "stop")]) as seen:
        agent = doors.agent(TidegaugeMiddleware(on_stop="raise"))
        with pytest.raises(tidegauge.RunStopped):
            agent.invoke(TASK, config=doors.config)
        assert nothing_is_left(doors.handler, seen)
    assert len(doors.shown) == 3


def test_on_stop_is_one_of_two() -> None:
    with pytest.raises(tidegauge.ConfigurationError, match="on_stop='ignore' is unknown"):
        TidegaugeMiddleware(on_stop="ignore")  # type: ignore[arg-type]


def test_a_round_is_blocked_as_a_whole() -> None:
    order = iter([("a", "b"), ("b", "a")] * 10)

    def fan_out(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(*[("push", {"door": door}) for door in next(order)])

    doors = Doors(fan_out)
    with testing.capture(rules=LADDER) as seen:
        result = doors.agent().invoke(TASK, config=doors.config)
    assert sorted(doors.pushed) == ["a"] * 3 + ["b"] * 3
    assert is_clean(result["messages"])
    assert stopped_by(result) is not None
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)]


RETRIES: dict[str, Any] = {"initial_delay": 0.0, "jitter": False}
OTHERS: list[Callable[[Doors], Any]] = [
    lambda doors: ToolRetryMiddleware(max_retries=2, **RETRIES),
    lambda doors: ModelRetryMiddleware(max_retries=2, **RETRIES),
    lambda doors: ModelFallbackMiddleware(doors.model),
    lambda doors: ModelCallLimitMiddleware(run_limit=50),
    lambda doors: ToolCallLimitMiddleware(run_limit=50, exit_behavior="end"),
    lambda doors: HumanInTheLoopMiddleware(interrupt_on={"pull": True}),
    lambda doors: TodoListMiddleware(),
]


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
@pytest.mark.parametrize("other", OTHERS)
async def test_it_goes_with_other_middleware(
    other: Callable[[Doors], Any], way: Callable[..., Any], first: bool
) -> None:
    doors, ours = Doors(), TidegaugeMiddleware()
    both = [ours, other(doors)] if first else [other(doors), ours]
    with testing.capture(rules=LADDER) as seen:
        result = await way(doors.agent(*both, checkpointer=InMemorySaver()), TASK, threaded(doors))
        assert nothing_is_left(doors.handler, seen)
    assert is_clean(result["messages"])
    stop = stopped_by(result)
    assert stop is not None
    assert stop.step == STOPPED
    assert len(doors.pushed) == BLOCKED
    assert doors.nudged_calls() == [NUDGED + 1]
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)]


def threaded(doors: Doors) -> Any:
    return {**doors.config, "configurable": {"thread_id": "one"}}


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("other", ["retry", "fallback"])
def test_a_nudge_is_given_again_when_the_model_call_failed(other: str, first: bool) -> None:
    failures = iter([True])

    def shaky(messages: Sequence[BaseMessage]) -> AIMessage:
        if is_nudge(messages[-1]) and next(failures, False):
            raise ConnectionError("try again")
        return heeding(messages)

    doors, ours = Doors(shaky), TidegaugeMiddleware()
    theirs: Any = (
        ModelRetryMiddleware(max_retries=1, **RETRIES)
        if other == "retry"
        else ModelFallbackMiddleware(doors.model)
    )
    with testing.capture(rules=LADDER):
        both = [ours, theirs] if first else [theirs, ours]
        result = doors.agent(*both).invoke(TASK, config=doors.config)
    assert doors.nudged_calls() == [NUDGED + 1, NUDGED + 2]
    assert result["messages"][-1].content == "it is locked"


def test_a_call_that_a_person_edited_is_run() -> None:
    doors = Doors()
    people = HumanInTheLoopMiddleware(interrupt_on={"push": True})
    agent = doors.agent(people, TidegaugeMiddleware(), checkpointer=InMemorySaver())
    config = threaded(doors)
    approve: dict[str, Any] = {"type": "approve"}
    edit = {"type": "edit", "edited_action": {"name": "push", "args": {"door": "blue"}}}
    with testing.capture(rules=[BLOCK]) as seen:
        agent.invoke(TASK, config=config)
        for decision in [approve] * BLOCKED + [edit, approve]:
            agent.invoke(Command(resume={"decisions": [decision]}), config=config)
    assert ("block", BLOCKED) in interventions(seen)
    assert doors.pushed[: BLOCKED + 1] == ["red"] * BLOCKED + ["blue"]


def test_a_blocked_call_is_not_run_because_a_person_lets_everything_pass() -> None:
    doors = Doors(lambda messages: looping_for_a_while(messages, 6))
    people = HumanInTheLoopMiddleware(interrupt_on={"push": True})
    agent = doors.agent(people, TidegaugeMiddleware(), checkpointer=InMemorySaver())
    config = threaded(doors)
    with testing.capture(rules=[BLOCK]):
        result = agent.invoke(TASK, config=config)
        while "__interrupt__" in result:
            approve = {"decisions": [{"type": "approve"}]}
            result = agent.invoke(Command(resume=approve), config=config)
    assert len(doors.pushed) == BLOCKED
    assert result["messages"][-1].content == "no way"


def nested(inner: Doors, name: str | None, *middleware: Any) -> BaseTool:
    """A tool that is an agent."""
    agent = create_agent(inner.model, [inner.push], name=name, middleware=middleware)

    @tool
    def delegate(task: str) -> str:
        """Let somebody else do it."""
        return str(agent.invoke({"messages": [("user", task)]})["messages"][-1].content)

    return delegate


def test_an_inner_agent_with_a_middleware_of_its_own_ends_alone() -> None:
    inner = Doors()
    outer = Doors(
        lambda m: answers("done") if turns(m) else chooses(("delegate", {"task": "push"}))
    )
    outer.push = nested(inner, "helper", TidegaugeMiddleware())
    with testing.capture(rules=LADDER) as seen:
        result = outer.agent().invoke(TASK, config=outer.config)
        assert nothing_is_left(outer.handler, seen)
        groups = {g.key.agent: g for g in seen.pipeline.engine.snapshot().groups}
    assert stopped_by(result) is None
    assert result["messages"][-1].content == "done"
    assert str(result["messages"][-2].content).startswith("This run was stopped")
    assert groups["helper"].finished.finished == {"stopped": 1}
    assert groups["porter"].finished.finished == {"unknown": 1}
    assert len(inner.pushed) == BLOCKED


def test_an_inner_agent_without_middleware_raises_its_stop_through_the_outer_one() -> None:
    inner, outer = Doors(), Doors(lambda m: chooses(("delegate", {"task": "push"})))
    outer.push = nested(inner, "helper")
    with testing.capture(rules=LADDER) as seen:
        with pytest.raises(tidegauge.RunStopped):
            outer.agent().invoke(TASK, config=outer.config)
        assert nothing_is_left(outer.handler, seen)


def test_an_agent_that_is_part_of_a_tool_does_not_take_the_nudge_of_the_run_around_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = Doors(lambda m: answers("nothing"))
    outer = Doors(lambda m: chooses(("delegate", {"task": "push"})))
    outer.push = nested(inner, None, TidegaugeMiddleware())
    agent = create_agent(outer.model, [outer.push], middleware=[TidegaugeMiddleware()])
    with testing.capture(rules=LADDER) as seen:
        result = agent.invoke(TASK, config=outer.config)
    assert stopped_by(result) is not None
    assert inner.nudged_calls() == []
    assert outer.nudged_calls() == [NUDGED + 1]
    assert interventions(seen) == [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)]
    assert "finds no run" not in caplog.text


def test_where_another_agent_of_the_run_has_no_middleware_the_stop_is_raised() -> None:
    calm, stubborn = Doors(lambda m: answers("I leave it to you")), Doors()
    graph = StateGraph(MessagesState)
    graph.add_node("calm", calm.agent(name=None))
    graph.add_node("stubborn", create_agent(stubborn.model, [stubborn.push]))
    graph.add_edge(START, "calm")
    graph.add_edge("calm", "stubborn")
    with testing.capture(rules=LADDER) as seen:
        with pytest.raises(tidegauge.RunStopped):
            graph.compile().invoke(TASK, config=calm.config)
        assert nothing_is_left(calm.handler, seen)
    assert not [action for action, _ in interventions(seen) if action == "block"]


async def test_one_agent_serves_many_at_once() -> None:
    doors = Doors()
    with testing.capture(rules=LADDER) as seen:
        agent = doors.agent()
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: agent.invoke(TASK, config=doors.config), range(8)))
        results += await asyncio.gather(
            *[agent.ainvoke(TASK, config=doors.config) for _ in range(8)]
        )
        assert nothing_is_left(doors.handler, seen)
    stops = [stopped_by(result) for result in results]
    assert {(stop.reason, stop.step) for stop in stops if stop} == {("loop_repeats", STOPPED)}
    assert len({stop.run for stop in stops if stop}) == 16
    assert len(doors.pushed) == 16 * BLOCKED
    assert doors.nudged_calls() != []
    assert sorted(interventions(seen)) == sorted(
        [("nudge", NUDGED), ("block", BLOCKED), ("stop", STOPPED)] * 16
    )


class Verdict(BaseModel):
    """What was found."""

    text: str


def test_a_structured_answer_is_no_call_to_be_refused() -> None:
    def concludes(messages: Sequence[BaseMessage]) -> AIMessage:
        said = turns(messages)
        return chooses(("Verdict", {"text": "locked"}) if said else ("push", {"door": "red"}))

    doors = Doors(concludes)
    with testing.capture(rules=[Rule("steps", 1, "stop")]):
        result = doors.agent(response_format=Verdict).invoke(TASK, config=doors.config)
    assert result["structured_response"] == Verdict(text="locked")


def test_without_a_handler_everything_passes_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    doors = Doors(lambda messages: looping_for_a_while(messages, 6))
    with testing.capture(rules=LADDER), caplog.at_level(logging.WARNING, "tidegauge"):
        agent = doors.agent()
        for _ in range(2):
            result = agent.invoke(TASK)
    assert result["messages"][-1].content == "no way"
    assert len(doors.pushed) == 12
    reported = [
        record.message for record in caplog.records if "TidegaugeMiddleware" in record.message
    ]
    assert len(reported) == 1
    assert "TidegaugeCallbackHandler()" in reported[0]


@pytest.mark.usefixtures("faults_are_swallowed")
@pytest.mark.parametrize("way", [via_invoke, via_ainvoke])
async def test_a_fault_of_ours_lets_the_call_pass(
    way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(TurnTracker, "blocked", broken)
    doors = Doors(lambda messages: looping_for_a_while(messages, 6))
    with testing.capture(rules=[BLOCK]) as seen:
        result = await way(doors.agent(), TASK, doors.config)
    assert result["messages"][-1].content == "no way"
    assert len(doors.pushed) == 6
    assert internal_errors.counts() == {"langchain.middleware.block": 6}
    assert interventions(seen)


@pytest.mark.usefixtures("faults_are_swallowed")
def test_words_that_cannot_be_made_are_replaced_by_ours() -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("a defect")

    doors = Doors()
    with testing.capture(rules=LADDER):
        agent = doors.agent(TidegaugeMiddleware(nudge=broken, stop_message=broken))
        result = agent.invoke(TASK, config=doors.config)
    assert doors.nudged_calls() == [NUDGED + 1]
    assert str(result["messages"][-1].content).startswith("This run was stopped")


def test_what_the_agent_itself_raises_comes_out_as_it_was() -> None:
    def breaks(messages: Sequence[BaseMessage]) -> AIMessage:
        raise ConnectionError("no network")

    doors = Doors(breaks)
    with testing.capture(rules=LADDER) as seen:
        with pytest.raises(ConnectionError, match="no network"):
            doors.agent().invoke(TASK, config=doors.config)
        assert nothing_is_left(doors.handler, seen)
    assert internal_errors.counts() == {}


def test_without_langchain_the_handler_works_and_the_middleware_says_what_to_install() -> None:
    program = """
import sys
sys.modules["langchain"] = None
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
TidegaugeCallbackHandler()
try:
    from tidegauge.instrumentation.langchain import TidegaugeMiddleware
except ImportError as error:
    print(type(error).__name__, error)
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == (
        "MissingExtraError langchain is not installed: pip install '.[langchain]' in a clone"
    )


def test_the_handler_alone_does_not_import_langchain() -> None:
    program = """
import sys
import tidegauge.instrumentation.langchain as package
print("langchain.agents" in sys.modules, hasattr(package, "TidegaugeMiddlewares"))
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == ["False", "False"]
