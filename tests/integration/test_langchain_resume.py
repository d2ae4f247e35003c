"""A graph that waits for a person, and goes on, is one run; and so are the agents inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import tidegauge
from support.langchain_agents import Reports, StepLog, nothing_is_left, waiting
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    instrument,
    uninstrument,
)
from tidegauge.runs.waiting_runs import WaitingRuns

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}


@tool
def ask(place: str) -> str:
    """Look into a place, if a person lets you."""
    return f"{place} is empty, says {interrupt(f'may I look into {place}?')}"


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


async def via_invoke(agent: Any, inputs: Any, config: Any) -> None:
    agent.invoke(inputs, config)


async def via_ainvoke(agent: Any, inputs: Any, config: Any) -> None:
    await agent.ainvoke(inputs, config)


async def via_stream(agent: Any, inputs: Any, config: Any) -> None:
    list(agent.stream(inputs, config))


async def via_astream(agent: Any, inputs: Any, config: Any) -> None:
    [_ async for _ in agent.astream(inputs, config)]


WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]


def looping(name: str, *, rounds: int) -> ScriptedChatModel:
    """Chooses the same for so many rounds."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = turns(messages)
        return chooses((name, {"place": "desk"})) if turn < rounds else answers("there is none")

    return ScriptedChatModel(script=say)


def by_the_tool(model: Callable[..., ScriptedChatModel]) -> tuple[Any, Any]:
    return create_agent(model("ask"), [ask], name="seeker", checkpointer=InMemorySaver()), Command(
        resume="a person"
    )


def by_middleware(model: Callable[..., ScriptedChatModel]) -> tuple[Any, Any]:
    person = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    agent = create_agent(
        model("look"), [look], name="seeker", checkpointer=InMemorySaver(), middleware=[person]
    )
    return agent, Command(resume={"decisions": [{"type": "approve"}]})


def before_tools(model: Callable[..., ScriptedChatModel]) -> tuple[Any, Any]:
    agent = create_agent(
        model("look"),
        [look],
        name="seeker",
        checkpointer=InMemorySaver(),
        interrupt_before=["tools"],
    )
    return agent, None


def after_model(model: Callable[..., ScriptedChatModel]) -> tuple[Any, Any]:
    agent = create_agent(
        model("look"),
        [look],
        name="seeker",
        checkpointer=InMemorySaver(),
        interrupt_after=["model"],
    )
    return agent, None


INTERRUPTS = [by_the_tool, by_middleware, before_tools, after_model]


def on(thread: str, *handlers: TidegaugeCallbackHandler) -> dict[str, Any]:
    return {"callbacks": list(handlers), "configurable": {"thread_id": thread}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", INTERRUPTS)
async def test_a_resumed_thread_continues_its_run(
    made: Callable[..., tuple[Any, Any]], way: Callable[..., Any]
) -> None:
    handler = TidegaugeCallbackHandler(success=lambda state: True)
    with testing.capture() as seen:
        reports = Reports(seen)
        agent, answer = made(lambda name: looping(name, rounds=3))
        config = on("one", handler)
        await way(agent, TASK, config)
        pauses = 0
        while waiting(seen):
            pauses += 1
            assert seen.pipeline.recorder.spans.open_runs == 0, "its span does not wait with it"
            (active,) = seen.pipeline.engine.snapshot().active
            await way(agent, answer, config)
        assert nothing_is_left(handler, seen)
    assert pauses == (4 if made is after_model else 3), "it pauses after its last answer, too"
    (report,) = reports
    assert report.run == active.run
    assert (report.outcome, report.steps, report.tokens) == ("success", 3, 36)
    assert report.failed_rounds_max == 0, "a pause is no failure"
    assert report.result_streak_max == 3, "streaks go on"
    roots = [span for span in seen.spans if span.name == "invoke_agent seeker"]
    assert {span.attributes["tidegauge.run.id"] for span in roots} == {report.run}
    assert [span.attributes.get("tidegauge.stopped.reason") for span in roots] == [
        *["interrupt"] * pauses,
        None,
    ]
    before = [span.context.span_id for span in roots[:-1]]
    assert [link.context.span_id for span in roots for link in span.links] == before
    indices: list[Any] = [
        s.attributes["tidegauge.step.index"] for s in seen.spans if "tool" in s.name
    ]
    assert sorted(set(indices)) == [0, 1, 2]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


@pytest.mark.parametrize("asks", ["in the tool", "before it"])
def test_waiting_for_a_person_is_no_part_of_how_long_a_step_takes(
    asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = testing.SteppedClock()
    monkeypatch.setattr("tidegauge.runs.turns.time", SimpleNamespace(monotonic=clock))

    @tool
    def dig(place: str) -> str:
        """Dig, which takes two seconds."""
        clock.advance(2.0)
        return f"{place}: {interrupt('more?')}" if asks == "in the tool" else place

    person = HumanInTheLoopMiddleware(interrupt_on={"dig": asks == "before it"})
    agent = create_agent(
        looping("dig", rounds=1), [dig], checkpointer=InMemorySaver(), middleware=[person]
    )
    decides = {"decisions": [{"type": "approve"}]}
    config = on("one", TidegaugeCallbackHandler())
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent.invoke(TASK, config)
        clock.advance(3_000.0)
        agent.invoke(Command(resume="yes" if asks == "in the tool" else decides), config)
    (report,) = reports
    # A tool that asks is run twice: until it asks, and once more with the answer.
    assert [one.seconds for one in log.observed(report.run)] == [
        4.0 if asks == "in the tool" else 2.0
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", INTERRUPTS)
async def test_a_loop_goes_on_over_interrupts_and_is_stopped(
    made: Callable[..., tuple[Any, Any]], way: Callable[..., Any]
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent, answer = made(lambda name: looping(name, rounds=99))
        config = on("one", handler)
        await way(agent, TASK, config)
        for _ in range(2):
            await way(agent, answer, config)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(agent, answer, config)
        assert nothing_is_left(handler, seen)
    assert caught.value.step == 3
    assert [(report.outcome, report.steps) for report in reports] == [("stopped", 4)]


def test_after_a_stop_the_thread_is_clean_and_goes_on_as_a_new_run() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent = create_agent(looping("look", rounds=5), [look], checkpointer=InMemorySaver())
        config: Any = on("one", handler)
        with pytest.raises(tidegauge.RunStopped):
            agent.invoke(TASK, config)
        messages = agent.get_state(config).values["messages"]
        chosen = [call["id"] for message in messages for call in getattr(message, "tool_calls", [])]
        assert chosen == [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
        assert len(chosen) == 3
        result = agent.invoke(None, config)  # as it stands: the model is asked again
        assert result["messages"][-1].content == "there is none"
        assert nothing_is_left(handler, seen)
    assert [(report.outcome, report.steps) for report in reports] == [
        ("stopped", 4),
        ("unknown", 2),
    ]
    assert reports[0].run != reports[1].run


def test_history_of_an_earlier_turn_does_not_fire() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)

        def say(messages: Sequence[BaseMessage]) -> AIMessage:
            if isinstance(messages[-1], ToolMessage) and turns(messages) % 3 == 2:
                return answers("there is none")
            return chooses(("look", {"place": "desk"}))

        agent = create_agent(ScriptedChatModel(script=say), [look], checkpointer=InMemorySaver())
        for _ in range(5):
            agent.invoke(TASK, on("one", handler))
        assert nothing_is_left(handler, seen)
    assert [report.steps for report in reports] == [2] * 5
    assert len({report.run for report in reports}) == 5


def test_a_new_message_gives_up_the_run_that_waited() -> None:
    handler = TidegaugeCallbackHandler(success=lambda state: True)
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(looping("ask", rounds=1), [ask], checkpointer=InMemorySaver())
        agent.invoke(TASK, on("one", handler))
        agent.invoke({"messages": [("user", "never mind")]}, on("one", handler))
        assert nothing_is_left(handler, seen)
    assert [(report.outcome, report.steps) for report in reports] == [
        ("unknown", 1),
        ("success", 0),
    ]


def test_several_threads_wait_at_once() -> None:
    handler = TidegaugeCallbackHandler()
    threads = [f"thread {number}" for number in range(5)]
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(looping("ask", rounds=1), [ask], checkpointer=InMemorySaver())
        other = create_agent(
            looping("ask", rounds=1), [ask], checkpointer=InMemorySaver(), name="another"
        )
        for thread in threads:
            agent.invoke(TASK, on(thread, handler))
        other.invoke(TASK, on(threads[0], handler))
        runs = {report.run for report in seen.pipeline.engine.snapshot().active}
        assert waiting(seen) == len(runs) == 6
        for thread in reversed(threads):
            agent.invoke(Command(resume="me"), on(thread, handler))
        other.invoke(Command(resume="me"), on(threads[0], handler))
        assert nothing_is_left(handler, seen)
    assert {report.run for report in reports} == runs
    assert {report.steps for report in reports} == {1}
    names = [span.attributes["gen_ai.conversation.id"] for span in seen.spans if not span.parent]
    assert names == [*threads, threads[0], *reversed(threads), threads[0]]


def test_runs_that_wait_are_bounded_by_number_and_by_time() -> None:
    clock = testing.SteppedClock()
    handler = TidegaugeCallbackHandler(idle_seconds=60.0)
    with testing.capture() as seen:
        seen.pipeline.recorder.waiting = WaitingRuns(max_runs=2, clock=clock)
        reports = Reports(seen)
        agent = create_agent(looping("ask", rounds=1), [ask], checkpointer=InMemorySaver())
        for thread in "abc":
            agent.invoke(TASK, on(thread, handler))
        assert waiting(seen) == 2
        assert [(report.outcome, report.steps) for report in reports] == [("unknown", 1)]
        clock.advance(61.0)
        agent.invoke(Command(resume="me"), on("b", handler))  # too late: a run of its own
        agent.invoke(TASK, on("d", handler))  # ends those that waited for too long
        agent.invoke(Command(resume="me"), on("d", handler))
        assert nothing_is_left(handler, seen)
    assert [(report.outcome, report.steps) for report in reports] == [
        ("unknown", 1),
        ("unknown", 1),
        ("unknown", 0),  # the tool that was resumed is a step of the run that waited
        ("unknown", 1),
        ("unknown", 1),
    ]
    assert seen.pipeline.recorder.spans.open_runs == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", INTERRUPTS)
async def test_a_handler_for_each_request_continues_the_run(
    made: Callable[..., tuple[Any, Any]], way: Callable[..., Any]
) -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        agent, answer = made(lambda name: looping(name, rounds=9))
        solved: list[int] = []

        def request(number: int) -> dict[str, Any]:
            # each with a function of its own: the last one decides
            def success(state: Any) -> bool:
                solved.append(number)
                return True

            return on("one", TidegaugeCallbackHandler(success=success))

        await way(agent, TASK, request(0))
        number = 0
        while waiting(seen):
            number += 1
            await way(agent, answer, request(number))
        assert not seen.pipeline.engine.snapshot().active
        assert seen.pipeline.recorder.spans.open_runs == 0
    assert number == (10 if made is after_model else 9)
    assert solved == [number]
    (report,) = reports
    assert (report.outcome, report.steps, report.result_streak_max) == ("success", 9, 9)
    assert report.loop_ratio == pytest.approx(7 / 9), "all steps but the first two are in a loop"


async def test_a_loop_over_requests_is_stopped() -> None:
    with testing.capture(stop_on_loop=3) as seen:
        reports = Reports(seen)
        agent, answer = by_the_tool(lambda name: looping(name, rounds=99))
        for inputs in (TASK, *[answer] * 3):
            agent.invoke(inputs, on("one", TidegaugeCallbackHandler()))
        with pytest.raises(tidegauge.RunStopped) as caught:
            agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
    assert caught.value.step == 4
    assert [(report.outcome, report.steps) for report in reports] == [("stopped", 5)]


def test_two_handlers_in_threads_continue_their_runs() -> None:
    threads = [f"thread {number}" for number in range(8)]
    with testing.capture() as seen, ThreadPoolExecutor(4) as executor:
        reports = Reports(seen)
        agent, answer = by_the_tool(lambda name: looping(name, rounds=3))
        for inputs in (TASK, answer, answer, answer):
            handlers = [TidegaugeCallbackHandler(), TidegaugeCallbackHandler()]

            def work(number: int, inputs: Any = inputs, handlers: Any = handlers) -> None:
                agent.invoke(inputs, on(threads[number], handlers[number % 2]))

            list(executor.map(work, range(8)))
        assert waiting(seen) == 0
        assert not seen.pipeline.engine.snapshot().active
    assert [report.steps for report in reports] == [3] * 8


def test_threads_of_one_name_in_two_checkpointers_are_two_runs() -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        made = [by_the_tool(lambda name: looping(name, rounds=2)) for _ in range(2)]
        for agent, _ in made:
            agent.invoke(TASK, on("one", TidegaugeCallbackHandler()))
        assert waiting(seen) == 2, "a message on another checkpointer's thread gives up nothing"
        first, second = (run.run for run in seen.pipeline.engine.snapshot().active)
        for agent, answer in (made[0], made[1], made[0]):
            agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
        assert [report.run for report in reports] == [first]
        agent, answer = made[1]
        agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
        assert waiting(seen) == 0
    assert [report.run for report in reports] == [first, second]
    assert [report.steps for report in reports] == [2, 2]


def test_a_state_that_was_changed_while_the_run_waits_is_still_its_thread() -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        agent, _ = before_tools(lambda name: looping(name, rounds=1))
        agent.invoke(TASK, on("one", TidegaugeCallbackHandler()))
        last = agent.get_state(on("one")).values["messages"][-1]
        edited = last.model_copy(update={"content": "edited"})
        agent.update_state(on("one"), {"messages": [edited]})
        agent.invoke(None, on("one", TidegaugeCallbackHandler()))
        assert waiting(seen) == 0
    assert [report.steps for report in reports] == [1]


def test_configured_again_nothing_waits_from_before() -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        agent, answer = by_the_tool(lambda name: looping(name, rounds=2))
        agent.invoke(TASK, on("one", TidegaugeCallbackHandler()))
        with testing.capture() as again:
            assert [(report.outcome, report.steps) for report in reports] == [("unknown", 1)]
            later = Reports(again)
            agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
            agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
            assert waiting(again) == 0
    assert [report.steps for report in later] == [1], "its first call is a step of the other run"


@pytest.mark.parametrize("made", INTERRUPTS)
def test_a_run_that_is_not_known_here_counts_no_step_twice(
    made: Callable[..., tuple[Any, Any]],
) -> None:
    """As in another process, without a store."""
    agent, answer = made(lambda name: looping(name, rounds=3))
    steps, spans = [], []
    inputs: Any = TASK
    for _ in range(4):
        with testing.capture() as seen:
            reports = Reports(seen)
            agent.invoke(inputs, on("one", TidegaugeCallbackHandler()))
            inputs = answer
            roots = [span for span in seen.spans if span.name == "invoke_agent seeker"]
        steps += [report.steps for report in reports]
        spans += roots
    assert steps == [1, 1, 1, 0]
    paused = [span.attributes.get("tidegauge.checkpoint") for span in spans]
    resumed = [span.attributes.get("tidegauge.checkpoint.resumed") for span in spans]
    assert resumed == [None, *paused[:-1]]
    assert None not in paused[:-1]


def test_what_waited_for_too_long_is_linked_to() -> None:
    clock = testing.SteppedClock()
    with testing.capture() as seen:
        seen.pipeline.recorder.waiting = WaitingRuns(clock=clock)
        agent, answer = by_the_tool(lambda name: looping(name, rounds=1))
        agent.invoke(TASK, on("one", TidegaugeCallbackHandler(idle_seconds=60.0)))
        clock.advance(61.0)
        agent.invoke(answer, on("one", TidegaugeCallbackHandler()))
    first, second = (span for span in seen.spans if span.name == "invoke_agent seeker")
    assert first.attributes["tidegauge.run.id"] != second.attributes["tidegauge.run.id"]
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_a_call_that_was_edited_or_refused_by_a_person_is_one_step() -> None:
    person = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    decisions: list[dict[str, Any]] = [
        {"type": "edit", "edited_action": {"name": "look", "args": {"place": "box"}}},
        {"type": "reject", "message": "leave it"},
    ]
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(
            looping("look", rounds=2), [look], checkpointer=InMemorySaver(), middleware=[person]
        )
        agent.invoke(TASK, on("one", handler))
        for decision in decisions:
            agent.invoke(Command(resume={"decisions": [decision]}), on("one", handler))
        assert nothing_is_left(handler, seen)
    assert [(report.steps, report.failed_rounds_max) for report in reports] == [(2, 1)]


def delegating(inner: ScriptedChatModel, tools: Sequence[BaseTool]) -> Any:
    @tool
    def delegate(task: str) -> str:
        """Let somebody else do it."""
        helper = create_agent(inner, tools, name="helper")
        return str(helper.invoke({"messages": [("user", task)]})["messages"][-1].content)

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("done") if turns(messages) else chooses(("delegate", {"task": "go"}))

    return create_agent(
        ScriptedChatModel(script=say), [delegate], name="chief", checkpointer=InMemorySaver()
    )


def of_nodes(inner: ScriptedChatModel, tools: Sequence[BaseTool]) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("helper", create_agent(inner, tools, name="helper"))
    graph.add_edge(START, "helper")
    return graph.compile(name="chief", checkpointer=InMemorySaver())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", [delegating, of_nodes])
async def test_an_agent_inside_waits_and_goes_on_with_the_one_around_it(
    made: Callable[..., Any], way: Callable[..., Any]
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = made(looping("ask", rounds=2), [ask])
        await way(agent, TASK, on("one", handler))
        assert waiting(seen) == 2
        for _ in range(2):
            await way(agent, Command(resume="me"), on("one", handler))
        assert nothing_is_left(handler, seen)
    inner, outer = reports
    assert [(r.agent, r.steps) for r in reports] == [("helper", 2), ("chief", 1)]
    parents = {s.attributes.get("tidegauge.run.parent") for s in seen.spans if "helper" in s.name}
    assert parents == {outer.run}
    assert inner.failed_rounds_max == outer.failed_rounds_max == 0
    roots = [span for span in seen.spans if not span.parent]
    assert {span.attributes["tidegauge.run.id"] for span in roots} == {outer.run}


@pytest.mark.parametrize(
    ("tasks", "at_once"),
    [(("go", "go"), True), (("go", "come"), True), (("go", "come"), False)],
)
def test_agents_of_one_name_wait_each_at_its_place(tasks: tuple[str, str], at_once: bool) -> None:
    """Called by two tool calls at once, or one after the other by one tool."""

    def helped(task: str) -> str:
        helper = create_agent(looping("ask", rounds=1), [ask], name="helper")
        return str(helper.invoke({"messages": [("user", task)]})["messages"][-1].content)

    @tool
    def delegate(those: list[str]) -> list[str]:
        """Let somebody else do it."""
        return [helped(task) for task in those]

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            return answers("done")
        rounds = [[task] for task in tasks] if at_once else [list(tasks)]
        return chooses(*[("delegate", {"those": those}) for those in rounds])

    handler = TidegaugeCallbackHandler()
    agent = create_agent(
        ScriptedChatModel(script=say), [delegate], name="chief", checkpointer=InMemorySaver()
    )
    with testing.capture() as seen:
        reports = Reports(seen)
        agent.invoke(TASK, on("one", handler))
        opened = 1 + len(tasks) if at_once else 2
        assert waiting(seen) == opened
        while waiting(seen):
            asked = agent.get_state(on("one")).interrupts  # type: ignore[arg-type]
            agent.invoke(Command(resume={one.id: "me" for one in asked}), on("one", handler))
        assert nothing_is_left(handler, seen)
    *inner, outer = reports
    assert (outer.agent, outer.steps) == ("chief", 1)
    assert {report.agent for report in inner} == {"helper"}
    if at_once:
        assert [report.steps for report in inner] == [1, 1]
    else:
        # The tool is run anew, and with it the first of its agents, which has no more to ask.
        assert sum(report.steps for report in inner) == 2


def test_what_waits_inside_a_run_ends_with_it() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = of_nodes(looping("ask", rounds=2), [ask])
        agent.invoke(TASK, on("one", handler))
        agent.update_state(on("one"), {"messages": [("ai", "enough")]}, as_node="helper")
        agent.invoke(None, on("one", handler))
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.outcome) for r in reports] == [("chief", "unknown"), ("helper", "unknown")]


def test_the_global_handler_sees_what_a_node_asks() -> None:
    handler = instrument()
    try:
        with testing.capture() as seen:
            reports = Reports(seen)
            for made in (by_the_tool, by_middleware):
                agent, answer = made(lambda name: looping(name, rounds=1))
                agent.invoke(TASK, on("one"))
                agent.invoke(answer, on("one"))
            assert nothing_is_left(handler, seen)
    finally:
        uninstrument()
    assert [report.steps for report in reports] == [1, 1]
