"""An answer that chants is seen while it streams, and cut by a stop, over HTTP as without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import Runner
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

import tidegauge
from support.agents_sdk import chat_completions, scripted, traced_by
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from support.scripted_openai import OpenAIServer, serving
from tidegauge import RunStopped, testing
from tidegauge.chanting import CHANTING, chanting_in
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.exporters.reading import Reader
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    stopped_by,
)
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor
from tidegauge.policies import Rule

LINE = "I will read the file again to see what is in it. "
CHANT = LINE * 300
STOP = [Rule("chanting", CHANTING, "stop")]
TASK: dict[str, Any] = {"messages": [HumanMessage("go")]}
WAIT_SECONDS = 30


def endless(messages: Any) -> AIMessage:
    """An answer whose stream ends only when the client closes it."""
    message = answers(LINE)
    message.additional_kwargs["endless"] = True
    return message


def config() -> Any:
    return {"callbacks": [TidegaugeCallbackHandler(agent="chanter")]}


def plain_graph(model: Any, **node: Any) -> Any:
    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def ask_later(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", RunnableLambda(ask, ask_later), **node)
    graph.add_edge(START, "ask")
    return graph.compile(name="chanter")


def guided_agent(model: Any) -> Any:
    return create_agent(model, [], name="chanter", middleware=[TidegaugeMiddleware()])


def invoke(graph: Any) -> Any:
    return graph.invoke(TASK, config())


def stream_messages(graph: Any) -> Any:
    for _ in graph.stream(TASK, config(), stream_mode="messages"):
        pass


def stream_values(graph: Any) -> Any:
    return list(graph.stream(TASK, config(), stream_mode="values"))[-1]


def ainvoke(graph: Any) -> Any:
    return asyncio.run(graph.ainvoke(TASK, config()))


def astream_messages(graph: Any) -> Any:
    async def read() -> None:
        async for _ in graph.astream(TASK, config(), stream_mode="messages"):
            pass

    asyncio.run(read())


WAYS = [invoke, stream_messages, ainvoke, astream_messages]


def group_of(seen: testing.Capture) -> Any:
    (group,) = [one for one in seen.pipeline.engine.snapshot().groups if one.key.agent == "chanter"]
    return group


def ended_spans(seen: testing.Capture) -> list[str]:
    return sorted(span.name.split()[0] for span in seen.spans)


@pytest.fixture(scope="module")
def server() -> Any:
    with serving() as server:
        yield server


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_cuts_the_stream(server: OpenAIServer, way: Callable[[Any], Any]) -> None:
    model = server.model("chant", endless, streaming=True)
    with testing.capture(rules=STOP) as seen:
        with pytest.raises(RunStopped, match="of the end of an answer repeats itself") as stopped:
            way(plain_graph(model))
        group = group_of(seen)
    assert server.cut.get(timeout=WAIT_SECONDS) == "chant"
    assert (stopped.value.reason, stopped.value.step) == ("chanting", 0)
    assert group.finished.finished == {"stopped": 1}
    assert group.totals.interventions == {("stop", "chanting"): 1}
    assert group.totals.chanting_answers == 1
    assert ended_spans(seen) == ["chat", "invoke_agent"]
    (event,) = [one for one in seen.events if one.event_name == "tidegauge.intervention"]
    assert event.attributes["tidegauge.step.index"] >= 0


@pytest.mark.parametrize("way", WAYS)
def test_the_middleware_ends_the_agent_with_its_last_message(
    server: OpenAIServer, way: Callable[[Any], Any]
) -> None:
    graph = guided_agent(server.model("chant", endless, streaming=True))
    with testing.capture(rules=STOP) as seen:
        state = way(graph)
        group = group_of(seen)
    assert server.cut.get(timeout=WAIT_SECONDS) == "chant"
    assert group.finished.finished == {"stopped": 1}
    assert ended_spans(seen) == ["chat", "invoke_agent"]
    if state is not None:
        assert len(state["messages"]) == 2
        assert LINE not in state["messages"][-1].content
        stop = stopped_by(state)
        assert stop is not None
        assert stop.reason == "chanting"


def test_a_stop_is_not_tried_again(server: OpenAIServer) -> None:
    before = len(server.requests)
    model = server.model("chant", endless, streaming=True)
    retried = model.with_retry(wait_exponential_jitter=False).with_fallbacks([model])
    with testing.capture(rules=STOP) as seen:
        with pytest.raises(RunStopped):
            invoke(plain_graph(retried, retry_policy=RetryPolicy(initial_interval=0.0)))
        assert group_of(seen).totals.interventions == {("stop", "chanting"): 1}
    assert server.cut.get(timeout=WAIT_SECONDS) == "chant"
    assert len(server.requests) == before + 1


def test_an_answer_without_a_rule_streams_to_its_end(server: OpenAIServer) -> None:
    model = server.model("whole", lambda messages: answers(CHANT), streaming=True)
    with testing.capture() as seen:
        state = invoke(plain_graph(model))
        group = group_of(seen)
        text = write_text(Reader(seen.pipeline.engine).families()).decode()
    assert state["messages"][-1].content.split() == CHANT.split()
    assert server.cut.empty()
    assert group.finished.finished == {"unknown": 1}
    assert 'tidegauge_chanting_answers_total{agent="chanter",task_group=""} 1.0' in text


def whole(*texts: str) -> ScriptedChatModel:
    """A model that gives these answers, each at once."""
    return ScriptedChatModel(script=lambda messages: answers(texts[turns(messages)]))


@pytest.mark.parametrize("way", [invoke, ainvoke])
def test_without_streaming_a_stop_comes_at_the_end_of_the_answer(way: Callable[[Any], Any]) -> None:
    with testing.capture(rules=STOP) as seen:
        with pytest.raises(RunStopped, match="repeats itself"):
            way(plain_graph(whole(CHANT)))
        assert group_of(seen).finished.finished == {"stopped": 1}
    assert ended_spans(seen) == ["chat", "invoke_agent"]


def test_calls_that_such_an_answer_chose_do_not_run() -> None:
    ran: list[str] = []

    @tool
    def read(path: str) -> str:
        """Read a file."""
        ran.append(path)
        return "text"

    def script(messages: Any) -> AIMessage:
        message = chooses(("read", {"path": "a"}))
        message.content = CHANT
        return message

    graph = create_agent(
        ScriptedChatModel(script=script), [read], name="chanter", middleware=[TidegaugeMiddleware()]
    )
    with testing.capture(rules=STOP) as seen:
        state = invoke(graph)
        assert group_of(seen).finished.finished == {"stopped": 1}
    assert ran == []
    stop = stopped_by(state)
    assert stop is not None
    assert stop.reason == "chanting"


def test_the_signal_is_that_of_the_last_answer() -> None:
    model = whole(CHANT, CHANT, "Now I know.")

    def three_times(state: Any) -> Any:
        messages = state["messages"]
        for chanting in (1, 1, 0):
            messages = [*messages, model.invoke(messages)]
            (run,) = seen.pipeline.engine.snapshot().groups[0].active
            read = write_text(Reader(seen.pipeline.engine).families()).decode()
            assert run.chanting == chanting
            assert f'tidegauge_runs_chanting{{agent="chanter",task_group=""}} {chanting}.0' in read
        return messages

    with testing.capture(rules=[Rule("chanting", CHANTING)]) as seen:
        RunnableLambda(three_times).invoke(TASK, config())
        group = group_of(seen)
    assert group.totals.chanting_answers == 2
    assert group.totals.interventions == {("would_stop", "chanting"): 1}


def test_events_of_a_stream_are_read_once(server: OpenAIServer) -> None:
    """Some models report a token and an event for each piece: "I I will will" is another text."""
    nearly = next(LINE * n for n in count(1) if chanting_in(LINE * (n + 1)) >= CHANTING)
    model = server.model("nearly", lambda messages: answers(nearly))

    def ask(messages: Any) -> Any:
        for _ in model.stream_events(messages, version="v3"):
            pass
        return "done"

    with testing.capture() as seen:
        RunnableLambda(ask).invoke([HumanMessage("go")], config())
        group = group_of(seen)
    assert group.totals.chanting_answers == 0


@pytest.mark.parametrize("hooked", [True, False])
def test_the_agents_sdk(hooked: bool) -> None:
    processor = TidegaugeTracingProcessor()
    hooks = TidegaugeRunHooks(processor) if hooked else None
    model = scripted([CHANT]) if hooked else chat_completions([CHANT])  # known from its span
    agent = SdkAgent(name="chanter", model=model)
    with testing.capture(rules=STOP) as seen, traced_by(processor):
        if hooked:
            with pytest.raises(RunStopped, match="repeats itself"):
                asyncio.run(Runner.run(agent, "go", hooks=hooks))
        else:
            asyncio.run(Runner.run(agent, "go"))
        group = group_of(seen)
    assert group.totals.chanting_answers == 1
    assert group.finished.finished == {"stopped" if hooked else "unknown": 1}


def test_what_a_decorated_agent_returns_is_counted_and_not_stopped() -> None:
    @tidegauge.agent(name="chanter")
    def chanter() -> str:
        return CHANT

    with testing.capture(rules=STOP) as seen:
        assert chanter() == CHANT
        group = group_of(seen)
    assert group.totals.chanting_answers == 1
    assert group.totals.interventions == {}
    assert group.finished.finished == {"unknown": 1}
