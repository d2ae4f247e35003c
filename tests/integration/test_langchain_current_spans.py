"""The application's spans are under the model call, tool or agent whose code makes them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import INVALID_SPAN, NoOpTracerProvider

import tidegauge
from support.child_spans import ClientModel, current_name, parent_names, tracer, work
from support.langchain_agents import nothing_is_left
from support.scripted_model import answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}


@pytest.fixture(autouse=True)
def _detaches_succeed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR)
    yield
    assert "Failed to detach context" not in caplog.text


@pytest.fixture
def seen() -> Iterator[testing.Capture]:
    with testing.capture(stop_on_loop=None) as captured:
        yield captured


@tool
def look(place: str) -> str:
    """Look into a place."""
    return work(f"GET {place}")


@tool
async def look_later(place: str) -> str:
    """Look into a place."""
    await asyncio.sleep(0.001)
    return work(f"GET {place}")


def script(*calls: tuple[str, dict[str, Any]]) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Chooses these calls in its first turn, and answers in the second."""
    return lambda messages: answers("there is none") if turns(messages) else chooses(*calls)


def graph(*calls: tuple[str, dict[str, Any]], tools: Sequence[BaseTool] = (look,)) -> Any:
    """An agent whose nodes make spans themselves, before and after what they call."""
    bound = ClientModel(script=script(*calls)).bind_tools(tools)

    def think(state: MessagesState) -> dict[str, Any]:
        work("before")
        message = bound.invoke(state["messages"])
        work("after")
        return {"messages": [message]}

    async def think_later(state: MessagesState) -> dict[str, Any]:
        work("before")
        message = await bound.ainvoke(state["messages"])
        work("after")
        return {"messages": [message]}

    builder = StateGraph(MessagesState)
    builder.add_node("think", RunnableLambda(think, think_later))
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", tools_condition)
    builder.add_edge("tools", "think")
    return builder.compile(name="seeker")


TREE = [
    "request",
    "  invoke_agent seeker",
    "    before",
    "    chat scripted-1",
    "      POST model",
    "    after",
    "    execute_tool look",
    "      GET desk",
    "    before",
    "    chat scripted-1",
    "      POST model",
    "    after",
    "  done",
]


async def via_invoke(agent: Any, config: Any) -> None:
    agent.invoke(TASK, config)


async def via_ainvoke(agent: Any, config: Any) -> None:
    await agent.ainvoke(TASK, config)


async def via_stream(agent: Any, config: Any) -> None:
    before = current_name()
    for _ in agent.stream(TASK, config, stream_mode=["messages", "updates"]):
        assert current_name() == before


async def via_astream(agent: Any, config: Any) -> None:
    before = current_name()
    async for _ in agent.astream(TASK, config, stream_mode=["messages", "updates"]):
        assert current_name() == before


async def via_batch(agent: Any, config: Any) -> None:
    agent.batch([TASK], config)


async def via_abatch(agent: Any, config: Any) -> None:
    await agent.abatch([TASK], config)


async def via_astream_events(agent: Any, config: Any) -> None:
    before = current_name()
    async for _ in agent.astream_events(TASK, config, version="v2"):
        assert current_name() == before


async def via_fresh_contexts(agent: Any, config: Any) -> None:
    """As a web server reads a synchronous generator: each item in a thread, in a new context."""
    before, chunks = current_name(), agent.stream(TASK, config)
    while await asyncio.to_thread(next, chunks, None) is not None:
        assert current_name() == before


WAYS = [
    via_invoke,
    via_ainvoke,
    via_stream,
    via_astream,
    via_batch,
    via_abatch,
    via_astream_events,
    via_fresh_contexts,
]
Way = Callable[[Any, Any], Awaitable[None]]


@pytest.mark.parametrize("way", WAYS)
def test_spans_are_under_what_makes_them(seen: testing.Capture, way: Way) -> None:
    handler = TidegaugeCallbackHandler()
    agent = graph(("look", {"place": "desk"}))

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            await way(agent, {"callbacks": [handler]})
            assert current_name() == "request"
            work("done")

    asyncio.run(request())
    assert seen.tree() == TREE
    assert nothing_is_left(handler, seen)


@pytest.mark.parametrize("way", WAYS)
def test_create_agent_and_parallel_tools(seen: testing.Capture, way: Way) -> None:
    calls = [("look_later" if n % 2 else "look", {"place": f"{n}"}) for n in range(8)]
    if way in (via_invoke, via_stream, via_batch, via_fresh_contexts):
        calls = [("look", arguments) for _, arguments in calls]
    agent = create_agent(ClientModel(script=script(*calls)), [look, look_later], name="seeker")

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            await way(agent, {"callbacks": [TidegaugeCallbackHandler()]})
            work("done")

    asyncio.run(request())
    parents = parent_names(seen)
    assert len(parents) == 1 + 1 + 2 * 2 + 8 * 2 + 1
    by_id = {span.context.span_id: span for span in seen.spans if span.context}
    tools = set()
    for span in seen.spans:
        if span.name.startswith("GET"):
            assert span.parent is not None
            parent = by_id[span.parent.span_id]
            assert parent.name.startswith("execute_tool look")
            tools.add(parent.context.span_id)
    assert len(tools) == 8, "each tool has its own child"
    assert parents.count(("POST model", "chat scripted-1")) == 2
    assert ("done", "request") in parents


@pytest.mark.parametrize("way", WAYS)
def test_without_a_request_nothing_is_current_afterwards(seen: testing.Capture, way: Way) -> None:
    agent = graph(("look", {"place": "desk"}))

    async def consume() -> None:
        await way(agent, {"callbacks": [TidegaugeCallbackHandler()]})
        assert trace.get_current_span() is INVALID_SPAN
        work("done")

    asyncio.run(consume())
    assert seen.tree() == [*(line[2:] for line in TREE[1:-1]), "done"]


def test_a_call_leaves_the_very_context_that_was_current(seen: testing.Capture) -> None:
    agent, config = graph(("look", {"place": "desk"})), {"callbacks": [TidegaugeCallbackHandler()]}
    with tracer().start_as_current_span("request"):
        before = otel_context.get_current()
        agent.invoke(TASK, config)
        assert otel_context.get_current() is before
        list(agent.stream(TASK, config))
        assert otel_context.get_current() is before


class Once:
    """Raises the first time that it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ValueError("once")


def node_agent(node: Callable[..., Any], **options: Any) -> Any:
    """A graph of one node."""
    builder = StateGraph(MessagesState)
    builder.add_node("node", node, **options)
    builder.add_edge(START, "node")
    return builder.compile(name="seeker")


def run_async(agent: Any, **config: Any) -> None:
    """Invoke an agent inside a request."""
    given = {"callbacks": [TidegaugeCallbackHandler()], **config}

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            await agent.ainvoke(TASK, given)
            assert current_name() == "request"

    asyncio.run(request())


def test_steps_after_awaited_tools_and_models_are_the_nodes(seen: testing.Capture) -> None:
    """LangChain reports the end of an awaited call in another context than its start."""
    model = ClientModel(script=lambda messages: answers("yes"))

    async def inner(text: str) -> str:
        work("in chain")
        return text

    async def node(state: MessagesState) -> None:
        await look_later.ainvoke({"place": "desk"})
        work("after tool")
        await model.ainvoke("is it there?")
        work("after model")
        await RunnableLambda(inner).ainvoke("x")
        with tracer().start_as_current_span("mine"):
            await look_later.ainvoke({"place": "bed"})
            work("in mine after tool")
            await RunnableLambda(inner).ainvoke("y")
            await model.ainvoke("and now?")
            assert current_name() == "mine"
        assert current_name() == "invoke_agent seeker"
        await asyncio.gather(look_later.ainvoke({"place": "a"}), look_later.ainvoke({"place": "b"}))
        assert current_name() == "invoke_agent seeker"
        asyncio.get_running_loop().call_soon(work, "called back")

    run_async(node_agent(node))
    assert parent_names(seen) == [
        ("request", None),
        ("invoke_agent seeker", "request"),
        ("execute_tool look_later", "invoke_agent seeker"),
        ("GET desk", "execute_tool look_later"),
        ("after tool", "invoke_agent seeker"),
        ("chat scripted-1", "invoke_agent seeker"),
        ("POST model", "chat scripted-1"),
        ("after model", "invoke_agent seeker"),
        ("in chain", "invoke_agent seeker"),
        ("mine", "invoke_agent seeker"),
        ("execute_tool look_later", "invoke_agent seeker"),
        ("GET bed", "execute_tool look_later"),
        ("in mine after tool", "mine"),
        ("in chain", "mine"),
        ("chat scripted-1", "invoke_agent seeker"),
        ("POST model", "chat scripted-1"),
        ("execute_tool look_later", "invoke_agent seeker"),
        ("execute_tool look_later", "invoke_agent seeker"),
        ("GET a", "execute_tool look_later"),
        ("GET b", "execute_tool look_later"),
        ("called back", "invoke_agent seeker"),
    ]


def test_a_task_that_outlives_its_tool_stays_under_it(seen: testing.Capture) -> None:
    async def later(gate: asyncio.Event) -> None:
        await gate.wait()
        work("later")

    async def node(state: MessagesState) -> None:
        gate, tasks = asyncio.Event(), []

        @tool
        async def start() -> str:
            """Start a task."""
            tasks.append(asyncio.create_task(later(gate)))
            return "started"

        await start.ainvoke({})
        gate.set()
        await asyncio.gather(*tasks)
        work("after")

    run_async(node_agent(node))
    assert ("later", "execute_tool start") in parent_names(seen)
    assert ("after", "invoke_agent seeker") in parent_names(seen)


def test_cancelled_tools_are_not_current_in_what_follows(seen: testing.Capture) -> None:
    @tool
    async def hang() -> str:
        """Never end."""
        work("began")
        await asyncio.sleep(60)
        return ""

    async def node(state: MessagesState) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):  # in this task: LangChain reports no end
                await hang.ainvoke({})
        work("after")
        assert current_name() == "invoke_agent seeker"
        await look_later.ainvoke({"place": "desk"})

    run_async(node_agent(node))
    assert parent_names(seen)[2:] == [
        ("execute_tool hang", "invoke_agent seeker"),
        ("began", "execute_tool hang"),
        ("after", "invoke_agent seeker"),
        ("execute_tool look_later", "invoke_agent seeker"),
        ("GET desk", "execute_tool look_later"),
    ]


def test_a_cancelled_model_call_is_not_current_after_the_run(seen: testing.Capture) -> None:
    class Hanging(ClientModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            work("POST model")
            await asyncio.sleep(60)

    async def root(text: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await Hanging(script=script()).ainvoke("x")

    agent = RunnableLambda(root).with_config(run_name="seeker")
    given: Any = {"callbacks": [TidegaugeCallbackHandler()]}

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            await agent.ainvoke("x", given)
            assert current_name() == "request"

    asyncio.run(request())
    assert parent_names(seen)[2:] == [
        ("chat scripted-1", "invoke_agent seeker"),
        ("POST model", "chat scripted-1"),
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_cancelled_run_and_streams_that_are_closed_early(
    seen: testing.Capture, asynchronous: bool
) -> None:
    handler = TidegaugeCallbackHandler()
    agent, config = graph(("look", {"place": "desk"})), {"callbacks": [handler]}

    async def stream_to(items: int) -> None:
        if asynchronous:
            async with aclosing(agent.astream(TASK, config, stream_mode="messages")) as chunks:
                async for _ in chunks:
                    items -= 1
                    if not items:
                        break
        else:
            chunks = agent.stream(TASK, config, stream_mode="messages")
            for _, _ in zip(range(items), chunks, strict=False):
                pass
            chunks.close()

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            for items in (1, 2, 3, 4):
                await stream_to(items)
                assert current_name() == "request"
                work(f"done {items}")
            running = asyncio.create_task(agent.ainvoke(TASK, config))
            await asyncio.sleep(0)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert current_name() == "request"

    asyncio.run(request())
    parents = parent_names(seen)
    for items in (1, 2, 3, 4):
        assert (f"done {items}", "request") in parents
    known = {"POST model": "chat scripted-1", "GET desk": "execute_tool look"}
    for name, parent in parents:
        if name in known:
            assert parent == known[name]


def test_between_the_tokens_of_a_model_its_consumer_is_current(seen: testing.Capture) -> None:
    model = ClientModel(script=lambda messages: answers("one two three"))

    async def node(state: MessagesState) -> None:
        for _ in model.stream("x"):
            work("between")
        async for _ in model.astream("x"):
            work("between")
        async for _ in model.astream("x"):
            break
        work("after break")

    run_async(node_agent(node))
    parents = parent_names(seen)
    assert parents.count(("POST model", "chat scripted-1")) == 3
    assert {parent for name, parent in parents if name == "between"} == {"invoke_agent seeker"}
    assert ("after break", "invoke_agent seeker") in parents


def test_several_prompts_of_one_call_have_no_current_span(seen: testing.Capture) -> None:
    """All of them begin before the first is answered: which one is asked is not known."""
    model = ClientModel(script=lambda messages: answers("yes"))

    def node(state: MessagesState, config: RunnableConfig) -> None:
        model.generate([list(state["messages"])] * 2, callbacks=config["callbacks"])
        assert current_name() == "invoke_agent seeker"

    run_async(node_agent(node))
    assert parent_names(seen).count(("POST model", "invoke_agent seeker")) == 2


def test_errors_and_retries(seen: testing.Capture) -> None:
    fail = Once()

    @tool
    def flaky(place: str) -> str:
        """Fail the first time."""
        work(f"GET {place}")
        fail()
        return "empty"

    def node(state: MessagesState) -> None:
        work("in node")
        with suppress(ValueError):
            flaky.invoke({"place": "desk"})
        assert current_name() == "invoke_agent seeker"
        flaky.with_retry(stop_after_attempt=2).invoke({"place": "bed"})
        failing()
        work("after")

    failing = Once()
    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=ValueError)
    run_async(node_agent(node, retry_policy=policy))
    parents = parent_names(seen)
    assert parents.count(("in node", "invoke_agent seeker")) == 2
    assert parents.count(("GET desk", "execute_tool flaky")) == 2
    assert parents.count(("GET bed", "execute_tool flaky")) == 2
    assert parents.count(("after", "invoke_agent seeker")) == 1


def test_a_span_that_a_tool_leaves_open_stays_inside_of_it(seen: testing.Capture) -> None:
    @tool
    def careless(place: str) -> str:
        """Leave a span current."""
        otel_context.attach(trace.set_span_in_context(tracer().start_span("open")))
        return work(f"GET {place}")

    def node(state: MessagesState) -> None:
        careless.invoke({"place": "desk"})
        assert current_name() == "invoke_agent seeker"
        look.invoke({"place": "bed"})

    run_async(node_agent(node))
    parents = parent_names(seen)
    assert ("GET bed", "execute_tool look") in parents
    assert len({span.context.trace_id for span in seen.spans if span.context}) == 1


def test_a_context_that_a_model_leaves_behind_is_not_current_after_it(
    seen: testing.Capture,
) -> None:
    """OpenLLMetry's wrapper of OpenAI's models does so, even after it was uninstrumented."""

    class Careless(ClientModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            otel_context.attach(otel_context.set_value("suppressed", True))
            return super()._generate(*args, **kwargs)

    def node(state: MessagesState) -> None:
        Careless(script=lambda messages: answers("yes")).invoke("x")
        work("after")

    run_async(node_agent(node))
    assert parent_names(seen)[2:] == [
        ("chat scripted-1", "invoke_agent seeker"),
        ("POST model", "chat scripted-1"),
        ("after", "invoke_agent seeker"),
    ]


def test_a_stop_leaves_nothing_current() -> None:
    looping = ClientModel(script=lambda messages: chooses(("look", {"place": "desk"})))
    agent = create_agent(looping, [look], name="seeker")
    config: Any = {"callbacks": [TidegaugeCallbackHandler()]}

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            before = otel_context.get_current()
            with pytest.raises(tidegauge.RunStopped):
                agent.invoke(TASK, config)
            assert otel_context.get_current() is before
            with pytest.raises(tidegauge.RunStopped):
                await agent.ainvoke(TASK, config)
            assert current_name() == "request"

    with testing.capture(stop_on_loop=2) as seen:
        asyncio.run(request())
    parents = parent_names(seen)
    assert {parent for name, parent in parents if name == "GET desk"} == {"execute_tool look"}
    assert {parent for name, parent in parents if name == "POST model"} == {"chat scripted-1"}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_interrupts(seen: testing.Capture, asynchronous: bool) -> None:
    @tool
    def ask(place: str) -> str:
        """Look, if a person lets you."""
        work("asking")
        interrupt("may I?")
        return work(f"GET {place}")

    model = ClientModel(script=script(("ask", {"place": "desk"})))
    agent = create_agent(model, [ask], name="seeker", checkpointer=InMemorySaver())
    config: Any = {
        "callbacks": [TidegaugeCallbackHandler()],
        "configurable": {"thread_id": "one"},
    }

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            inputs: list[Any] = [TASK, Command(resume="yes")]
            for given in inputs:
                if asynchronous:
                    await agent.ainvoke(given, config)
                else:
                    agent.invoke(given, config)
                assert current_name() == "request"

    asyncio.run(request())
    parents = parent_names(seen)
    assert parents.count(("asking", "execute_tool ask")) == 2
    assert parents.count(("GET desk", "execute_tool ask")) == 1


def test_agents_inside_agents(seen: testing.Capture) -> None:
    inner = graph(("look", {"place": "desk"}))

    @tool
    async def delegate(task: str) -> str:
        """Ask the seeker."""
        work("before seeker")
        await inner.ainvoke(TASK, {"metadata": {"tidegauge_agent": "helper"}})
        return work("after seeker")

    outer = create_agent(
        ClientModel(script=script(("delegate", {"task": "x"}))), [delegate], name="boss"
    )
    run_async(outer)
    assert seen.tree() == [
        "request",
        "  invoke_agent boss",
        "    chat scripted-1",
        "      POST model",
        "    execute_tool delegate",
        "      before seeker",
        "      invoke_agent helper",
        *("    " + line for line in TREE[2:-1]),
        "      after seeker",
        "    chat scripted-1",
        "      POST model",
    ]


def test_threads(seen: testing.Capture) -> None:
    """A thread has the span of the context that it is given, as everywhere in OpenTelemetry."""

    @tool
    def spread(place: str) -> str:
        """Look in threads."""
        given = otel_context.get_current()

        def instrumented() -> None:
            token = otel_context.attach(given)  # as OpenTelemetry's instrumentation of threads
            work("instrumented")
            otel_context.detach(token)

        with ThreadPoolExecutor() as executor:
            executor.submit(contextvars.copy_context().run, work, "copied").result()
            executor.submit(tidegauge.propagate(work), "propagated").result()
            executor.submit(instrumented).result()
            executor.submit(work, "plain").result()
        return "empty"

    def node(state: MessagesState) -> None:
        spread.invoke({"place": "desk"})
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work, "of node"))
        thread.start()
        thread.join()
        given = otel_context.get_current()
        thread = threading.Thread(target=lambda: (otel_context.attach(given), work("given")))
        thread.start()
        thread.join()

    run_async(node_agent(node))
    assert parent_names(seen)[3:] == [
        ("copied", "execute_tool spread"),
        ("propagated", "execute_tool spread"),
        ("instrumented", "execute_tool spread"),
        ("plain", None),
        ("of node", "invoke_agent seeker"),
        ("given", "request"),  # it does not have LangChain's context: the node cannot be recognized
    ]


def test_plain_chains(seen: testing.Capture) -> None:
    """Without a graph: the root chain's body and its steps are under the run's span."""

    def root(text: str) -> str:
        work("in root")
        return text

    parallel = RunnableParallel(left=RunnableLambda(root), right=RunnableLambda(root))
    chain = RunnableLambda(root) | parallel

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            for runnable in (RunnableLambda(root), chain):
                runnable.invoke("x", {"callbacks": [TidegaugeCallbackHandler(agent="a")]})
                await runnable.ainvoke("x", {"callbacks": [TidegaugeCallbackHandler(agent="a")]})
                for _ in runnable.stream("x", {"callbacks": [TidegaugeCallbackHandler(agent="a")]}):
                    assert current_name() == "request"
                assert current_name() == "request"

    asyncio.run(request())
    parents = parent_names(seen)
    assert parents.count(("in root", "invoke_agent a")) == 3 + 9
    assert len(parents) == 1 + 6 + 12


def test_baggage_reaches_tools_and_stays(seen: testing.Capture) -> None:
    found = []

    @tool
    def read(key: str) -> str:
        """Read baggage."""
        found.append(baggage.get_baggage(key))
        otel_context.attach(baggage.set_baggage("inner", "1"))
        found.append(baggage.get_baggage("inner"))
        return work("GET baggage")

    async def node(state: MessagesState) -> None:
        await read.ainvoke({"key": "user"})
        otel_context.attach(baggage.set_baggage("later", "2"))
        assert baggage.get_all() == {"user": "7", "later": "2"}
        assert current_name() == "invoke_agent seeker"

    async def request() -> None:
        with tracer().start_as_current_span("request"):
            otel_context.attach(baggage.set_baggage("user", "7"))
            given: Any = {"callbacks": [TidegaugeCallbackHandler()]}
            await node_agent(node).ainvoke(TASK, given)
            assert baggage.get_all() == {"user": "7"}

    asyncio.run(request())
    assert found == ["7", "1"]
    assert ("GET baggage", "execute_tool read") in parent_names(seen)


def test_many_calls_in_one_context_hold_no_chain_of_contexts(seen: testing.Capture) -> None:
    model = ClientModel(script=lambda messages: answers("yes"))
    agent = node_agent(lambda state: None)
    given: Any = {"callbacks": [TidegaugeCallbackHandler()]}

    async def node(state: MessagesState) -> None:
        for _ in range(100):
            await look_later.ainvoke({"place": "desk"})
            await model.ainvoke("x")
        assert depth() <= 2

    async def request() -> None:
        for _ in range(100):
            await agent.ainvoke(TASK, given)
        await node_agent(node).ainvoke(TASK, given)
        assert depth() <= 1

    asyncio.run(request())


def depth() -> int:
    """How many contexts the current one holds."""
    count, context = 0, otel_context.get_current()
    while (before := getattr(context, "before", None)) is not None:
        count, context = count + 1, before
    return count


def test_a_run_that_is_not_sampled_decides_for_its_children() -> None:
    """They would begin traces of their own, and be sampled there."""
    found: list[Any] = []

    @tool
    def read(place: str) -> str:
        """Note the current span."""
        found.append(trace.get_current_span())
        return work(f"GET {place}")

    with testing.capture(tracer_provider=TracerProvider(sampler=ParentBased(ALWAYS_OFF))):
        agent = create_agent(ClientModel(script=script(("read", {"place": "desk"}))), [read])
        agent.invoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]})
        with tidegauge.run(agent="plain"):
            found.append(trace.get_current_span())
        assert trace.get_current_span() is INVALID_SPAN
    for span in found:
        assert span.get_span_context().is_valid
        assert not span.get_span_context().trace_flags.sampled
    assert len(found) == 2


@pytest.mark.parametrize("outer", [False, True])
def test_without_spans_the_context_is_not_touched(outer: bool) -> None:
    contexts = []

    @tool
    def read(place: str) -> str:
        """Note the current context."""
        contexts.append(otel_context.get_current())
        return place

    agent = create_agent(ClientModel(script=script(("read", {"place": "desk"}))), [read])
    with testing.capture(tracer_provider=NoOpTracerProvider()):
        if outer:
            span = TracerProvider().get_tracer("app").start_span("request")
            otel_context.attach(trace.set_span_in_context(span))
        before = otel_context.get_current()
        agent.invoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]})
        asyncio.run(agent.ainvoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]}))
        assert otel_context.get_current() is before
    assert len(contexts) == 2
    assert all(context is before for context in contexts)
