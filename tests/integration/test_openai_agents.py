"""Agents of the OpenAI Agents SDK, with scripted models: seen, stopped, nudged and blocked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    AgentsException,
    GuardrailFunctionOutput,
    MaxTurnsExceeded,
    ModelSettings,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    handoff,
    input_guardrail,
    trace,
)

import tidegauge
from support.agents_sdk import (
    chat_completions,
    nothing_is_left,
    responses,
    scripted,
    traced_by,
)
from support.processes import import_error
from tidegauge import testing
from tidegauge.instrumentation.openai_agents import (
    AgentRunStopped,
    TidegaugeRunHooks,
    TidegaugeTracingProcessor,
)
from tidegauge.policies import Rule
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine

STOP_AT = 2  # repeats: three rounds of the same step are run, the fourth is not
RED = [("push", {"door": "red"})]


class Reports(list[Any]):
    """The reports of the runs that ended, as the engine gave them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        engine._on_finished = self.append


@function_tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


@pytest.fixture
def processor() -> Iterator[TidegaugeTracingProcessor]:
    processor = TidegaugeTracingProcessor(task_group="doors")
    with traced_by(processor):
        yield processor


@pytest.fixture
def hooks(processor: TidegaugeTracingProcessor) -> TidegaugeRunHooks:
    return TidegaugeRunHooks(processor)


def doors(**settings: Any) -> tuple[Any, list[str]]:
    """A tool that opens nothing, and what it was called with."""
    pushed: list[str] = []

    def push(door: str) -> str:
        """Push a door."""
        pushed.append(door)
        return "it does not move"

    return function_tool(push, **settings), pushed


async def via_run(agent: Agent[Any], **fields: Any) -> Any:
    return await Runner.run(agent, "open the door", **fields)


async def via_run_sync(agent: Agent[Any], **fields: Any) -> Any:
    # It wants a thread without a running loop, and one with a loop that it may use.
    def run() -> Any:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            return Runner.run_sync(agent, "open the door", **fields)
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return await asyncio.to_thread(run)


async def via_run_streamed(agent: Agent[Any], **fields: Any) -> Any:
    result = Runner.run_streamed(agent, "open the door", **fields)
    async for _ in result.stream_events():
        pass
    return result


WAYS = [via_run, via_run_sync, via_run_streamed]
MODELS = [scripted, chat_completions, responses]
Way = Callable[..., Any]


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("make", MODELS)
async def test_a_run_is_seen(
    processor: TidegaugeTracingProcessor, make: Callable[..., Any], hooked: bool
) -> None:
    turns = [
        [("look", {"place": "desk"})],
        [("look", {"place": "shelf"}), ("look", {"place": "box"})],
        "there is none",
    ]
    hooks = TidegaugeRunHooks(processor, success=lambda text: text == "there is none")
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="seeker", tools=[look], model=make(turns))
        result = await Runner.run(agent, "find the key", hooks=hooks if hooked else None)
        assert nothing_is_left(processor, seen)
    assert result.final_output == "there is none"
    (report,) = reports
    assert (report.agent, report.task_group, report.steps) == ("seeker", "doors", 2)
    assert report.success is (True if hooked else None)
    spans_of_its_own = make is not scripted
    assert report.tokens == (24.0 if hooked or spans_of_its_own else None)
    name = (
        "chat scripted-1" if make is chat_completions or (hooked and spans_of_its_own) else "chat"
    )
    chat = [f"  {name}"] if hooked or spans_of_its_own else []
    tool = "  execute_tool look"
    assert seen.tree() == ["invoke_agent seeker", *chat, tool, *chat, tool, tool, *chat]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_run_is_seen(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks, way: Way
) -> None:
    push, pushed = doors()
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        model = scripted([RED, "no way"])
        result = await way(Agent(name="porter", tools=[push], model=model), hooks=hooks)
        assert nothing_is_left(processor, seen)
    assert (result.final_output, pushed) == ("no way", ["red"])
    assert [(r.steps, r.outcome, r.tokens) for r in reports] == [(1, "unknown", 12.0)]


def test_the_numbers_are_those_of_a_run_by_hand(processor: TidegaugeTracingProcessor) -> None:
    pushes = [["red", "blue"], ["red"], ["red", "blue"], ["red"], ["red", "blue"], ["red"], ["red"]]

    async def through_the_sdk(make: Callable[..., Any], *, hooked: bool) -> None:
        push, _ = doors()
        turns: list[Any] = [[("push", {"door": door}) for door in doors] for doors in pushes]
        agent = Agent(name="porter", tools=[push], model=make([*turns, "no way"]))
        await Runner.run(agent, "", hooks=TidegaugeRunHooks(processor) if hooked else None)

    def by_hand() -> None:
        with tidegauge.run(agent="porter", task_group="doors") as run:
            for doors in pushes:
                calls = [("push", {"door": door}) for door in doors]
                run.act_round(calls, tokens=12)
                run.observe_round([("it does not move", False)] * len(doors))

    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        by_hand()
        for make in MODELS:
            for hooked in (False, True):
                asyncio.run(through_the_sdk(make, hooked=hooked))
    of_its_own = {"run": "", "trace_id": None, "loop_since": None}
    of_its_own |= {"loop_cost_seconds": None, "lost_seconds": None}
    by_hand_report, *others = [report.replaced(**of_its_own) for report in reports]
    assert (by_hand_report.steps, by_hand_report.loops) == (7, [(3, 2, 1, 3)])
    assert others[1:] == [by_hand_report] * 5
    # without spans and hooks, the tokens of a model are not reported
    untold = {"tokens": None, "loop_cost_tokens": None, "lost_tokens": None}
    assert others[0] == by_hand_report.replaced(**untold)


async def test_a_failing_tool_is_a_failed_outcome(processor: TidegaugeTracingProcessor) -> None:
    @function_tool
    def push(door: str) -> str:
        """Push a door."""
        raise RuntimeError(f"{door} is locked")

    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        turns = [[("push", {"door": f"door {number}"})] for number in range(3)]
        model = chat_completions([*turns, "no way"])
        await Runner.run(Agent(name="porter", tools=[push], model=model), "open")
    (report,) = reports
    assert (report.failed_rounds_max, report.result_streak_max, report.loop_steps) == (3, 3, 0)
    tools = [span for span in seen.spans if span.name == "execute_tool push"]
    assert [span.attributes["error.type"] for span in tools] == ["tool_error"] * 3


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_looping_agent_is_stopped(
    processor: TidegaugeTracingProcessor,
    hooks: TidegaugeRunHooks,
    way: Way,
    make: Callable[..., Any],
) -> None:
    push, pushed = doors()
    session = SQLiteSession("s")
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        agent = Agent(name="porter", tools=[push], model=make([RED] * 9))
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, hooks=hooks, session=session)
        assert nothing_is_left(processor, seen)
        (group,) = seen.pipeline.engine.snapshot().groups
    stop = caught.value
    assert isinstance(stop, AgentRunStopped)
    assert isinstance(stop, AgentsException)
    assert (stop.reason, stop.step, stop.state["repeated"]) == ("loop_repeats", 3, ("push",))
    assert stop.run_data is not None
    assert len(stop.run_data.new_items) == 6
    assert len(pushed) == 3
    assert group.finished.finished == {"stopped": 1}
    # In the rest of the session, every call is answered.
    items = [item["type"] for item in await session.get_items() if "type" in item]
    assert items == ["function_call", "function_call_output"] * 3
    session.close()
    (root,) = [span for span in seen.spans if span.name == "invoke_agent porter"]
    assert root.attributes["tidegauge.stopped.reason"] == "loop_repeats"
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


async def test_a_stopped_session_can_be_continued(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    push, _ = doors()
    session = SQLiteSession("s")
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="porter", tools=[push], model=scripted([*[RED] * 4, RED, "no way"]))
        with pytest.raises(tidegauge.RunStopped):
            await Runner.run(agent, "open the door", hooks=hooks, session=session)
        result = await Runner.run(agent, "try again", hooks=hooks, session=session)
    session.close()
    assert result.final_output == "no way"
    assert [(r.outcome, r.steps) for r in reports] == [("stopped", 4), ("unknown", 1)]


async def test_what_is_seen_in_outcomes_stops_before_the_model_is_asked_again(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    push, pushed = doors()
    model = scripted([[("push", {"door": f"door {number}"})] for number in range(9)])
    with testing.capture(stop_on_result_streak=3) as seen:
        with pytest.raises(tidegauge.RunStopped) as caught:
            await Runner.run(Agent(name="porter", tools=[push], model=model), "open", hooks=hooks)
        assert nothing_is_left(processor, seen)
    assert (caught.value.reason, caught.value.step) == ("result_streak", 2)
    assert len(pushed) == len(model.calls) == 3


async def test_without_hooks_nothing_is_stopped_and_the_log_says_so(
    processor: TidegaugeTracingProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    push, pushed = doors()
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen.pipeline.engine)
        model = chat_completions([*[RED] * 6, "no way"])
        await Runner.run(Agent(name="porter", tools=[push], model=model), "open")
        assert nothing_is_left(processor, seen)
    assert len(pushed) == 6
    assert [(r.outcome, r.intervention) for r in reports] == [("unknown", "stop")]
    (warned,) = [record.getMessage() for record in caplog.records if record.name == "tidegauge"]
    assert "need the run hooks" in warned


LADDER = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 3, "block"),
    Rule("loop_repeats", 5, "stop"),
]


@pytest.mark.parametrize("way", WAYS)
async def test_the_model_is_nudged_then_answered_then_stopped(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks, way: Way
) -> None:
    push, pushed = doors(tool_input_guardrails=[hooks.block])
    model = scripted([RED] * 9)
    config = RunConfig(call_model_input_filter=hooks.nudge)
    with testing.capture(rules=LADDER) as seen:
        agent = Agent(name="porter", tools=[push], model=model)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, hooks=hooks, run_config=config)
        assert nothing_is_left(processor, seen)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert caught.value.step == 6
    assert len(pushed) == 4
    assert group.totals.interventions == {
        ("nudge", "loop_repeats"): 1,
        ("block", "loop_repeats"): 2,
        ("stop", "loop_repeats"): 1,
    }
    last = [call.input[-1] for call in model.calls]
    reported = [item["content"] for item in last if item.get("role") == "user"]
    assert reported[0] == "open the door"
    assert len(reported) == 2
    assert "repeated 3 times" in reported[1], "the nudge is given once, and not kept"
    outputs = [item["output"] for item in last if item.get("type") == "function_call_output"]
    assert ["not run" in text for text in outputs] == [False, False, False, True, True]


async def test_a_step_is_blocked_only_when_all_of_its_tools_can_be_answered(
    processor: TidegaugeTracingProcessor,
    hooks: TidegaugeRunHooks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    push, pushed = doors(tool_input_guardrails=[hooks.block])
    both = [("push", {"door": "red"}), ("look", {"place": "desk"})]
    with testing.capture(rules=[Rule("loop_repeats", 1, "block")]) as seen:
        agent = Agent(name="porter", tools=[push, look], model=scripted([*[both] * 5, "no way"]))
        await Runner.run(agent, "open", hooks=hooks)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert len(pushed) == 5
    assert ("block", "loop_repeats") not in group.totals.interventions
    (warned,) = [record.getMessage() for record in caplog.records if record.name == "tidegauge"]
    assert "add hooks.block" in warned


async def test_an_agent_as_a_tool_is_a_run_of_its_own(
    processor: TidegaugeTracingProcessor,
) -> None:
    hooks = TidegaugeRunHooks(processor, success=bool)
    scout = Agent(
        name="scout", tools=[look], model=scripted([[("look", {"place": "desk"})], "empty"])
    )
    ask = scout.as_tool("ask_scout", "Ask the scout.", hooks=hooks)
    turns: list[Any] = [[("ask_scout", {"input": "the desk"})], "there is none"]
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="boss", tools=[ask], model=scripted(turns))
        await Runner.run(agent, "find", hooks=hooks, run_config=RunConfig(group_id="talk"))
        assert nothing_is_left(processor, seen)
    assert [(r.agent, r.task_group, r.steps, r.tokens, r.success) for r in reports] == [
        ("scout", "doors", 1, 12.0, None),
        ("boss", "doors", 1, 12.0, True),
    ]
    assert seen.tree() == [
        "invoke_agent boss",
        "  chat",
        "  execute_tool ask_scout",
        "    invoke_agent scout",
        "      chat",
        "      execute_tool look",
        "      chat",
        "  chat",
    ]
    runs = {span.name: span.attributes for span in seen.spans if "invoke_agent" in span.name}
    boss, child = runs["invoke_agent boss"], runs["invoke_agent scout"]
    assert child["tidegauge.run.parent"] == boss["tidegauge.run.id"]
    assert child["gen_ai.conversation.id"] == boss["gen_ai.conversation.id"] == "talk"


async def test_the_stop_of_an_agent_as_a_tool_is_an_answer_of_that_tool(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    push, pushed = doors()
    porter = Agent(name="porter", tools=[push], model=scripted([RED] * 9))
    ask = porter.as_tool("ask_porter", "Ask the porter.", hooks=hooks)
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen.pipeline.engine)
        turns: list[Any] = [[("ask_porter", {"input": "open"})], "it did not work"]
        boss = Agent(name="boss", tools=[ask], model=scripted(turns))
        result = await Runner.run(boss, "find", hooks=hooks)
        assert nothing_is_left(processor, seen)
    assert result.final_output == "it did not work"
    assert len(pushed) == 3
    assert [(r.agent, r.outcome) for r in reports] == [("porter", "stopped"), ("boss", "unknown")]
    (tool,) = [span for span in seen.spans if span.name == "execute_tool ask_porter"]
    assert tool.attributes["error.type"] == "tool_error"


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("make", MODELS)
async def test_who_is_handed_over_to_goes_on_with_the_run(
    processor: TidegaugeTracingProcessor, make: Callable[..., Any], hooked: bool
) -> None:
    expert = Agent(
        name="expert", tools=[look], model=make([[("look", {"place": "desk"})], "there is none"])
    )
    turns = [[("look", {"place": "box"}), ("transfer_to_expert", {}), ("transfer_to_expert", {})]]
    desk = Agent(name="desk", tools=[look], handoffs=[handoff(expert)], model=make(turns))
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        hooks = TidegaugeRunHooks(processor) if hooked else None
        result = await Runner.run(desk, "find", hooks=hooks)
        assert nothing_is_left(processor, seen)
    assert (result.final_output, result.last_agent.name) == ("there is none", "expert")
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("desk", 2, "unknown")]
    tools = [line.strip() for line in seen.tree() if "execute_tool" in line]
    transfer = "handoff" if make is scripted and not hooked else "transfer_to_expert"
    assert tools == ["execute_tool look", f"execute_tool {transfer}", "execute_tool look"]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


async def test_an_agent_in_a_guardrail_is_a_run_of_its_own(
    processor: TidegaugeTracingProcessor,
) -> None:
    judge = Agent(name="judge", model=chat_completions(["fine"]))

    @input_guardrail
    async def judged(context: Any, agent: Any, text: Any) -> GuardrailFunctionOutput:
        await Runner.run(judge, "is it fine?")
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        model = chat_completions([[("look", {"place": "desk"})], "there is none"])
        agent = Agent(name="seeker", tools=[look], model=model, input_guardrails=[judged])
        await Runner.run(agent, "find")
        assert nothing_is_left(processor, seen)
    assert sorted((r.agent, r.steps) for r in reports) == [("judge", 0), ("seeker", 1)]
    (inner,) = [span for span in seen.spans if span.name == "invoke_agent judge"]
    assert "tidegauge.run.parent" in inner.attributes


async def test_labels_come_from_the_processor_and_metadata_override_them(
    processor: TidegaugeTracingProcessor,
) -> None:
    metadata = {"tidegauge_agent": "named", "tidegauge_task_group": "keys", "tidegauge_t_max": 7}
    with testing.capture() as seen, trace("two runs", metadata=metadata):
        reports = Reports(seen.pipeline.engine)
        for _ in range(2):
            await Runner.run(Agent(name="seeker", model=scripted(["none"])), "find")
        assert nothing_is_left(processor, seen)
    assert [(r.agent, r.task_group, r.t_max) for r in reports] == [("named", "keys", 7)] * 2


async def test_without_task_spans_an_agent_is_a_run(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    push, pushed = doors()
    config = RunConfig(tracing={"include_task_and_turn_spans": False})
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        agent = Agent(name="porter", tools=[push], model=scripted([RED] * 9))
        with pytest.raises(tidegauge.RunStopped):
            await Runner.run(agent, "open", hooks=hooks, run_config=config)
        assert nothing_is_left(processor, seen)
    assert len(pushed) == 3
    assert seen.tree()[0] == "invoke_agent porter"


@pytest.mark.parametrize("make", MODELS)
async def test_hooks_see_the_steps_of_traces_without_contents(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks, make: Callable[..., Any]
) -> None:
    push, pushed = doors()
    config = RunConfig(trace_include_sensitive_data=False)
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="porter", tools=[push], model=make([RED] * 9))
        with pytest.raises(tidegauge.RunStopped):
            await Runner.run(agent, "open", hooks=hooks, run_config=config)
    assert len(pushed) == 3
    assert [(r.steps, r.loop_repeats, r.result_streak_max) for r in reports] == [(4, 2, 3)]


async def test_without_contents_and_hooks_there_are_no_steps_and_a_warning(
    processor: TidegaugeTracingProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    config = RunConfig(trace_include_sensitive_data=False)
    with testing.capture() as seen, caplog.at_level(logging.WARNING, "tidegauge"):
        reports = Reports(seen.pipeline.engine)
        push, _ = doors()
        model = chat_completions([*[RED] * 4, "no way"])
        await Runner.run(Agent(name="porter", tools=[push], model=model), "open", run_config=config)
        assert nothing_is_left(processor, seen)
    assert [(r.steps, r.loop_steps) for r in reports] == [(0, 0)]
    assert [r.message for r in caplog.records if "only TidegaugeRunHooks" in r.message] != []


async def test_hooks_without_a_run_say_so_once_and_do_nothing(
    processor: TidegaugeTracingProcessor,
    hooks: TidegaugeRunHooks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    push, pushed = doors(tool_input_guardrails=[hooks.block])
    config = RunConfig(tracing_disabled=True, call_model_input_filter=hooks.nudge)
    with testing.capture(stop_on_loop=STOP_AT) as seen:
        agent = Agent(name="porter", tools=[push], model=scripted([*[RED] * 5, "no way"]))
        await Runner.run(agent, "open", hooks=hooks, run_config=config)
        assert not seen.pipeline.engine.snapshot().groups
    assert len(pushed) == 5
    assert sum("the hooks found no run" in r.message for r in caplog.records) == 1


async def test_an_error_of_the_agent_is_its_own_and_the_runs_outcome(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    push, _ = doors()
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        model = scripted([[("push", {"door": str(number)})] for number in range(5)])
        with pytest.raises(MaxTurnsExceeded):
            await Runner.run(
                Agent(name="porter", tools=[push], model=model), "open", hooks=hooks, max_turns=2
            )
        assert nothing_is_left(processor, seen)
    assert [(r.outcome, r.steps) for r in reports] == [("error", 2)]
    (root,) = [span for span in seen.spans if span.name == "invoke_agent porter"]
    assert root.status.status_code.name == "ERROR"
    assert root.attributes["error.type"] == "Max turns exceeded"


@pytest.mark.parametrize("way", ["cancel", "stream"])
async def test_a_run_that_is_given_up_leaves_nothing(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks, way: str
) -> None:
    started = asyncio.Event()

    @function_tool
    async def wait(place: str) -> str:
        """Wait somewhere."""
        started.set()
        await asyncio.sleep(60)
        return ""

    agent = Agent(name="waiter", tools=[wait], model=scripted([[("wait", {"place": "desk"})]]))
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        if way == "cancel":
            task = asyncio.create_task(Runner.run(agent, "wait", hooks=hooks))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            result = Runner.run_streamed(agent, "wait", hooks=hooks)
            async for event in result.stream_events():
                if getattr(event, "name", "") == "tool_called":
                    await started.wait()
                    result.cancel()
        await asyncio.sleep(0.01)
        assert nothing_is_left(processor, seen)
    assert [(report.outcome, report.steps) for report in reports] == [("unknown", 1)]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


@pytest.mark.parametrize("contents", [True, False])
async def test_a_run_that_waited_for_an_approval_is_another_one(
    processor: TidegaugeTracingProcessor,
    hooks: TidegaugeRunHooks,
    caplog: pytest.LogCaptureFixture,
    contents: bool,
) -> None:
    push, pushed = doors(needs_approval=True)
    config = RunConfig(trace_include_sensitive_data=contents)
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="porter", tools=[push], model=scripted([RED, "no way"]))
        asked = await Runner.run(agent, "open", hooks=hooks, run_config=config)
        assert pushed == []
        assert nothing_is_left(processor, seen)
        state = asked.to_state()
        state.approve(asked.interruptions[0])
        result = await Runner.run(agent, state, hooks=hooks, run_config=config)
        assert nothing_is_left(processor, seen)
    assert (result.final_output, pushed) == ("no way", ["red"])
    assert [(r.outcome, r.steps) for r in reports] == [("unknown", 1), ("unknown", 1)]
    assert not [record for record in caplog.records if record.name == "tidegauge"]


async def test_runs_at_once_do_not_mix(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    @function_tool
    async def echo(text: str) -> str:
        """Say it again."""
        await asyncio.sleep(0.001 * (len(text) % 3))
        return text

    async def one(number: int) -> tuple[int, str]:
        # Odd ones loop and are stopped, even ones go through all of their own words.
        words = [
            f"{number}" if number % 2 else f"{number}.{turn}" for turn in range(number % 5 + 4)
        ]
        turns: list[Any] = [[("echo", {"text": word})] for word in words]
        agent = Agent(name=f"agent {number}", tools=[echo], model=scripted([*turns, "done"]))
        try:
            result = await Runner.run(agent, "go", hooks=hooks)
            return number, result.final_output
        except tidegauge.RunStopped as stop:
            return number, f"stopped at {stop.step}"

    with testing.capture(stop_on_loop=STOP_AT, max_groups=100) as seen:
        reports = Reports(seen.pipeline.engine)
        reported = dict(await asyncio.gather(*[one(number) for number in range(50)]))
        assert nothing_is_left(processor, seen)
    assert reported == {n: "stopped at 3" if n % 2 else "done" for n in range(50)}
    steps = {report.agent: report.steps for report in reports}
    assert steps == {f"agent {n}": 4 if n % 2 else n % 5 + 4 for n in range(50)}
    assert len({span.context.trace_id for span in seen.spans}) == 50


PROCESSOR = "instrumentation.openai_agents.tracing_processor.TidegaugeTracingProcessor"


@pytest.mark.parametrize(
    ("method", "where"),
    [
        (f"{PROCESSOR}._start_model", "on_span_start"),
        (f"{PROCESSOR}._end_tool", "on_span_end"),
        ("runs.turns.TurnTracker.next_turn", "on_span_start"),
        ("instrumentation.openai_agents.hooks.TidegaugeRunHooks._guards", "on_llm_end"),
    ],
)
async def test_after_a_fault_of_ours_a_run_is_only_watched(
    processor: TidegaugeTracingProcessor,
    hooks: TidegaugeRunHooks,
    faults_are_swallowed: None,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    where: str,
) -> None:
    def fail(*args: object, **fields: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(f"tidegauge.{method}", fail)
    push, pushed = doors(tool_input_guardrails=[hooks.block])
    config = RunConfig(call_model_input_filter=hooks.nudge)
    with testing.capture(stop_on_steps=2, nudge_on_loop=1) as seen:
        agent = Agent(name="porter", tools=[push], model=chat_completions([*[RED] * 6, "no way"]))
        result = await Runner.run(agent, "open", hooks=hooks, run_config=config)
        assert nothing_is_left(processor, seen)
    assert (result.final_output, len(pushed)) == ("no way", 6)
    assert internal_errors.counts()[f"openai_agents.{where}"] > 0


async def test_a_model_that_is_tried_again_is_asked_once(
    processor: TidegaugeTracingProcessor, hooks: TidegaugeRunHooks
) -> None:
    from agents import ModelRetrySettings
    from agents.testing import ModelStep, ScriptedModel

    push, pushed = doors()
    first, last = scripted([RED, "no way"])._steps
    model = ScriptedModel(
        [ModelStep.raise_error(ConnectionError("gone")), first, last], emit_traces=True
    )
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=1, policy=lambda context: True))
    with testing.capture() as seen:
        reports = Reports(seen.pipeline.engine)
        agent = Agent(name="porter", tools=[push], model=model, model_settings=settings)
        await Runner.run(agent, "open", hooks=hooks)
        assert nothing_is_left(processor, seen)
    assert len(pushed) == 1
    assert [report.steps for report in reports] == [1]
    chats = [span.status.status_code.name for span in seen.spans if span.name == "chat"]
    assert chats == ["ERROR", "UNSET", "UNSET"]


def test_a_t_max_below_one_is_refused() -> None:
    with pytest.raises(tidegauge.ConfigurationError, match="t_max"):
        TidegaugeTracingProcessor(t_max=0)


def test_without_the_sdk_it_says_what_to_install() -> None:
    assert import_error("agents", "import tidegauge.instrumentation.openai_agents") == (
        "MissingExtraError agents is not installed: pip install '.[openai-agents]' in a clone"
    )
