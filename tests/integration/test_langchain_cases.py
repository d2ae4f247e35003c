"""One agent, in every way that LangChain can invoke, retry, interrupt or give it up.

What it does is always the same; so are its steps, its tokens and where its spans hang, and when it
is over nothing is left.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ContextThreadPoolExecutor
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

import tidegauge
from support.langchain_agents import Reports, StepLog, graph_agent, nothing_is_left, waiting
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import ToolDeclaration, testing
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.langchain.callback_runs import CallbackRuns

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
NO_WAIT: dict[str, Any] = {"initial_delay": 0.0, "jitter": False}


def called(*places: str) -> tuple[Call, ...]:
    return tuple(Call("look", {"place": place}) for place in places)


def found(*places: str) -> tuple[CallResult, ...]:
    return tuple(CallResult(f"{place} is empty", False) for place in places)


ROUNDS = [("desk",), ("shelf", "box"), ("desk",)]
STEPS = [(called(*places), 12, found(*places)) for places in ROUNDS]


def say(messages: Sequence[BaseMessage]) -> AIMessage:
    turn = turns(messages)
    if turn == len(ROUNDS):
        return answers("there is none")
    return chooses(*[("look", {"place": place}) for place in ROUNDS[turn]])


def every_second(what: Callable[..., Any]) -> Callable[..., Any]:
    """``what``, but every first of two calls fails."""
    calls = count()

    def failing(*args: Any) -> Any:
        if next(calls) % 2 == 0:
            raise OSError("no connection")
        return what(*args)

    return failing


def down(messages: Sequence[BaseMessage]) -> AIMessage:
    raise OSError("no connection")


def a_tool(does: Callable[[str], str], *, later: bool) -> BaseTool:
    def look(place: str) -> str:
        """Look into a place."""
        return does(place)

    async def look_later(place: str) -> str:
        """Look into a place."""
        await asyncio.sleep(0)
        return does(place)

    if later:
        return StructuredTool.from_function(coroutine=look_later, name="look")
    return StructuredTool.from_function(look)


def is_empty(place: str) -> str:
    return f"{place} is empty"


Make = Callable[[bool], Any]


def plain(later: bool) -> Any:
    return create_agent(ScriptedChatModel(script=say), [a_tool(is_empty, later=later)], name="it")


def tool_node(later: bool) -> Any:
    return graph_agent(ScriptedChatModel(script=say), [a_tool(is_empty, later=later)], name="it")


def with_middleware(
    model: ScriptedChatModel, look: BaseTool, *middleware: AgentMiddleware[Any, Any, Any]
) -> Any:
    return create_agent(model, [look], name="it", middleware=middleware)


def tool_retry(later: bool) -> Any:
    failures: set[str] = set()

    def once_locked(place: str) -> str:
        if place not in failures:
            failures.add(place)
            raise OSError("locked")
        failures.discard(place)
        return is_empty(place)

    return with_middleware(
        ScriptedChatModel(script=say),
        a_tool(once_locked, later=later),
        ToolRetryMiddleware(max_retries=1, **NO_WAIT),
    )


def model_retry(later: bool) -> Any:
    return with_middleware(
        ScriptedChatModel(script=every_second(say)),
        a_tool(is_empty, later=later),
        ModelRetryMiddleware(max_retries=1, **NO_WAIT),
    )


def model_fallback(later: bool) -> Any:
    return with_middleware(
        ScriptedChatModel(script=down),
        a_tool(is_empty, later=later),
        ModelFallbackMiddleware(ScriptedChatModel(script=say)),
    )


def graph_of(model: Any, look: BaseTool) -> Any:
    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def think_later(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", RunnableLambda(think, think_later))
    graph.add_node("tools", ToolNode([look], handle_tool_errors=True))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile(name="it")


def with_retry(later: bool) -> Any:
    model = ScriptedChatModel(script=every_second(say))
    return graph_of(
        model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False),
        a_tool(is_empty, later=later),
    )


def with_fallbacks(later: bool) -> Any:
    model = ScriptedChatModel(script=down).with_fallbacks([ScriptedChatModel(script=say)])
    return graph_of(model, a_tool(is_empty, later=later))


class RefusesOnce(AgentMiddleware[Any, Any, Any]):
    """Refuses every first answer of the model: it is asked again, and says the same."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        handler(request)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await handler(request)
        return await handler(request)


def asked_twice(later: bool) -> Any:
    return with_middleware(
        ScriptedChatModel(script=say), a_tool(is_empty, later=later), RefusesOnce()
    )


def a_person(later: bool) -> Any:
    return create_agent(
        ScriptedChatModel(script=say),
        [a_tool(is_empty, later=later)],
        name="it",
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"look": True})],
        checkpointer=InMemorySaver(),
    )


AGENTS = [
    plain,
    tool_node,
    tool_retry,
    model_retry,
    model_fallback,
    with_retry,
    with_fallbacks,
    asked_twice,
    a_person,
]


async def invoke(agent: Any, inputs: Any, config: Any) -> None:
    agent.invoke(inputs, config)


async def ainvoke(agent: Any, inputs: Any, config: Any) -> None:
    await agent.ainvoke(inputs, config)


async def stream(agent: Any, inputs: Any, config: Any) -> None:
    list(agent.stream(inputs, config, stream_mode=["updates", "values"]))


async def stream_messages(agent: Any, inputs: Any, config: Any) -> None:
    list(agent.stream(inputs, config, stream_mode="messages"))


async def astream(agent: Any, inputs: Any, config: Any) -> None:
    [_ async for _ in agent.astream(inputs, config)]


async def astream_messages(agent: Any, inputs: Any, config: Any) -> None:
    [_ async for _ in agent.astream(inputs, config, stream_mode="messages")]


async def astream_events(agent: Any, inputs: Any, config: Any) -> None:
    [_ async for _ in agent.astream_events(inputs, config, version="v2")]


async def batch(agent: Any, inputs: Any, config: Any) -> None:
    agent.batch([inputs], config)


async def abatch(agent: Any, inputs: Any, config: Any) -> None:
    await agent.abatch([inputs], config)


async def in_a_thread(agent: Any, inputs: Any, config: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(agent.invoke, inputs, config).result()


SYNC = [invoke, stream, stream_messages, batch, in_a_thread]
ASYNC = [ainvoke, astream, astream_messages, astream_events, abatch]
WAYS = [(way, False) for way in SYNC + ASYNC] + [(way, True) for way in ASYNC]


@pytest.mark.parametrize(("way", "later"), WAYS)
@pytest.mark.parametrize("made", AGENTS)
async def test_the_steps_are_the_same(made: Make, way: Callable[..., Any], later: bool) -> None:
    handler = TidegaugeCallbackHandler()
    config = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = made(later)
        await way(agent, TASK, config)
        invocations = 1
        while waiting(seen):
            (task,) = agent.get_state(config).tasks
            asked = task.interrupts[0].value["action_requests"]
            await way(
                agent, Command(resume={"decisions": [{"type": "approve"}] * len(asked)}), config
            )
            invocations += 1
        assert nothing_is_left(handler, seen)
    (report,) = reports
    if made is asked_twice:
        # The tokens of a refused answer count as well, once: towards the step that follows, or, of
        # an answer without a call, as a turn.
        assert [(calls, results) for calls, _, results in log.steps(report.run)] == [
            (calls, results) for calls, _, results in STEPS
        ]
        assert report.tokens == 12 + 24 + 24 + 12
    else:
        assert log.steps(report.run) == STEPS
        assert report.tokens == 36
    assert (report.agent, report.steps, report.failed_rounds_max) == ("it", 3, 0)
    assert invocations == (4 if made is a_person else 1)

    roots = {span.context.span_id for span in seen.spans if span.name == "invoke_agent it"}
    others = [span for span in seen.spans if span.context.span_id not in roots]
    assert len(roots) == invocations
    assert {span.parent.span_id for span in others} <= roots
    assert {span.name for span in others} == {"chat scripted-1", "execute_tool look"}
    tools = [span for span in others if span.name == "execute_tool look"]
    assert len(tools) == (8 if made is tool_retry else 4)
    indices = {span.attributes["tidegauge.step.index"] for span in tools}
    assert indices == {0, 1, 2}


@pytest.mark.parametrize(
    ("way", "after"),
    [("stream", after) for after in range(6)]
    + [("astream", after) for after in range(6)]
    + [("astream_events", after) for after in (0, 2, 5, 9, 14)],
)
async def test_a_generator_closed_early(way: str, after: int) -> None:
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler]}
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = plain(later=False)
        if way == "stream":
            chunks = agent.stream(TASK, config)
            for _ in range(after):
                next(chunks)
            chunks.close()
        else:
            chunks = (
                agent.astream(TASK, config)
                if way == "astream"
                else agent.astream_events(TASK, config, version="v2")
            )
            for _ in range(after):
                await anext(chunks)
            await chunks.aclose()
        assert nothing_is_left(handler, seen)
    assert {report.outcome for report in reports} <= {"unknown"}
    for report in reports:
        done = [step for step in log.steps(report.run) if step[2] is not None]
        assert done == STEPS[: len(done)]
    assert {span.status.status_code.name for span in seen.spans} <= {"UNSET"}


async def test_a_run_whose_end_is_not_reported_is_ended_when_it_is_idle() -> None:
    """Its first event comes before the agent has begun: closed there, LangGraph reports no end."""
    clock = testing.SteppedClock()
    handler = TidegaugeCallbackHandler()
    handler._runs = CallbackRuns(idle_seconds=60.0, clock=clock)
    config: Any = {"callbacks": [handler]}
    with testing.capture() as seen:
        reports = Reports(seen)
        events = plain(later=False).astream_events(TASK, config, version="v2")
        await anext(events)
        await events.aclose()
        assert len(handler._runs) == 1
        clock.advance(61.0)
        plain(later=False).invoke(TASK, config)
        assert nothing_is_left(handler, seen)
    assert sorted((report.outcome, report.steps) for report in reports) == [
        ("unknown", 0),
        ("unknown", 3),
    ]


@pytest.mark.parametrize("at", ["desk", "shelf", "box"])
async def test_a_cancelled_task(at: str) -> None:
    reached = asyncio.Event()

    @tool
    async def look(place: str) -> str:
        """Look into a place."""
        if place == at:
            reached.set()
            await asyncio.sleep(60)
        return is_empty(place)

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(ScriptedChatModel(script=say), [look], name="it")
        task = asyncio.create_task(agent.ainvoke(TASK, {"callbacks": [handler]}))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert nothing_is_left(handler, seen)
    (report,) = reports
    assert (report.outcome, report.failed_rounds_max) == (
        ("unknown", None) if at == "desk" else ("unknown", 0)
    )
    assert [calls for calls, *_ in log.steps(report.run)] == [
        calls for calls, *_ in STEPS[: 1 if at == "desk" else 2]
    ]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


def helped_by(hand_over: Callable[[Callable[[], str]], str]) -> Any:
    """An agent whose tool has another agent work in a thread."""

    @tool
    def delegate() -> str:
        """Let somebody else do it."""

        def work() -> str:
            helper = create_agent(
                ScriptedChatModel(script=say), [a_tool(is_empty, later=False)], name="helper"
            )
            return str(helper.invoke(TASK, {"callbacks": [handler]})["messages"][-1].content)

        return hand_over(work)

    def choose(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("done") if turns(messages) else chooses(("delegate", {}))

    handler = TidegaugeCallbackHandler()
    return handler, create_agent(ScriptedChatModel(script=choose), [delegate], name="chief")


def in_place(work: Callable[[], str]) -> str:
    return work()


def in_a_pool(work: Callable[[], str]) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def in_a_pool_with_context(work: Callable[[], str]) -> str:
    with ContextThreadPoolExecutor(1) as pool:
        return str(pool.submit(work).result())


def propagated(work: Callable[[], str]) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(tidegauge.propagate(work)).result()


@pytest.mark.parametrize(
    ("hand_over", "is_child"),
    [(in_place, True), (in_a_pool_with_context, True), (propagated, True), (in_a_pool, False)],
)
def test_an_agent_that_is_given_the_handler_again_inside_a_tool(
    hand_over: Callable[[Callable[[], str]], str], is_child: bool
) -> None:
    """A plain thread has no context: what runs there is a run of its own, with no parent."""
    handler, agent = helped_by(hand_over)
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent.invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    inner, outer = reports
    assert (inner.agent, outer.agent, outer.steps) == ("helper", "chief", 1)
    assert log.steps(inner.run) == STEPS
    (helper,) = [span for span in seen.spans if span.name == "invoke_agent helper"]
    (delegate,) = [span for span in seen.spans if span.name == "execute_tool delegate"]
    if is_child:
        assert helper.attributes["tidegauge.run.parent"] == outer.run
        assert helper.parent.span_id == delegate.context.span_id
    else:
        assert helper.parent is None


def test_a_failed_tool_that_is_retried_to_no_avail_is_one_failed_step() -> None:
    def locked(place: str) -> str:
        raise OSError("locked")

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = with_middleware(
            ScriptedChatModel(script=say),
            a_tool(locked, later=False),
            ToolRetryMiddleware(max_retries=2, **NO_WAIT),
        )
        agent.invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(report.steps, report.failed_rounds_max) for report in reports] == [(3, 3)]


def test_a_tool_with_fallbacks_is_one_step() -> None:
    @tool
    def spare(place: str) -> str:
        """Look into a place."""
        return is_empty(place)

    def locked(place: str) -> str:
        raise OSError("locked")

    model = ScriptedChatModel(script=say)
    look = a_tool(locked, later=False).with_fallbacks([spare])

    def loop(text: str) -> None:
        messages: list[BaseMessage] = [HumanMessage(text)]
        while (said := model.invoke(messages)).tool_calls:
            messages += [said, *[look.invoke(call) for call in said.tool_calls]]

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        RunnableLambda(loop).invoke("find the key", {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(calls, results) for calls, _, results in log.steps(reports[0].run)] == [
        (calls, results) for calls, _, results in STEPS
    ]


@pytest.mark.parametrize("way", [invoke, ainvoke, stream_messages, astream_events])
async def test_the_entropy_of_what_the_model_chose(way: Callable[..., Any]) -> None:
    """From its log-probabilities, where it reports them: absent is not zero."""
    sure = {"token": "x", "logprob": 0.0, "top_logprobs": [{"token": "x", "logprob": 0.0}]}
    half = [{"token": token, "logprob": math.log(0.5)} for token in "xy"]
    torn = {"token": "x", "logprob": math.log(0.5), "top_logprobs": half}
    reported: list[Any] = [{"content": [sure, sure]}, None, {"content": [torn, sure]}, None]

    def telling(messages: Sequence[BaseMessage]) -> AIMessage:
        said, logprobs = say(messages), reported[turns(messages)]
        said.response_metadata = {"finish_reason": "stop"}
        if logprobs is not None:
            said.response_metadata["logprobs"] = logprobs
        return said

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(ScriptedChatModel(script=telling), [a_tool(is_empty, later=False)])
        await way(agent, TASK, {"callbacks": [handler]})
    entropies = [step.entropy for step in log.issued(reports[0].run)]
    assert entropies == [0.0, None, pytest.approx(math.log(2) / 2)]


def test_a_declared_tool_is_judged_by_its_declaration() -> None:
    """The name is all that it takes: a poller may ask for the same for longer."""
    handler = TidegaugeCallbackHandler()

    def polling(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("look", {"place": "desk"})) if turns(messages) < 8 else answers("none")

    with testing.capture(stop_on_loop=2, tools={"look": ToolDeclaration(poll=True)}) as seen:
        reports = Reports(seen)
        agent = create_agent(
            ScriptedChatModel(script=polling), [a_tool(is_empty, later=False)], name="it"
        )
        agent.invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [report.steps for report in reports] == [8]


def test_tool_messages_are_what_the_tools_brought_back() -> None:
    """The answers in the agent's state are those of a run without the handler."""
    bare = plain(later=False).invoke(TASK)["messages"]
    with testing.capture():
        result = plain(later=False).invoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]})
    contents = [
        [message.content for message in messages if isinstance(message, ToolMessage)]
        for messages in (bare, result["messages"])
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4
