"""Every public entry point, as a function that puts one value through it.

Each makes one run with two ordinary steps around the value's, checks that the value arrives
unchanged where the user's own code gets it, and returns how many steps the run has.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import tidegauge
from tidegauge.instrumentation.extractors import Observation, extractor

Entry = Callable[[Any], int]
ENTRIES: dict[str, Entry] = {}
SETTINGS: dict[str, dict[str, Any]] = {}
"""What :func:`tidegauge.configure` is given for an entry."""

CONSUMED = {
    "success-gives-it",
    "langchain-success-gives-it",
    "normaliser-gives-it",
    "extractor-gives-it",
    "extractor-gives-it-as-a-place",
    "distance-gives-it",
    "on-block-gives-it",
    "observe-numbers",
    "names",
    "names-recorded",
}
"""Entries at which the value is meant for tidegauge, which may look into it."""

NAMES = {"names", "names-recorded", "langchain-metadata", "ids-of-spans"}
"""Entries at which a name belongs: without one, how much is counted is not determined."""

MAIN = {
    "tool-argument",
    "tool-result",
    "tool-error",
    "generator-tool",
    "agent-argument-and-result",
    "key-gives-it",
    "act",
    "observe",
    "observe-a-place",
    "round",
    "recorded",
    "on-spans",
    "langchain-tool-arguments",
    "langchain-tool-result",
    "agents-sdk-spans",
    "spans-of-others",
}
"""Entries for values that take a while to make: one for each way that a value goes inside."""

QUICK = {"tool-result"}
"""Entries of `make test`; it leaves out the others."""

slot: list[Any] = [None]
"""The value that user callables of the configuration give back."""


def entry(name: str, **settings: Any) -> Callable[[Entry], Entry]:
    def add(function: Entry) -> Entry:
        ENTRIES[name] = function
        SETTINGS[name] = settings
        return function

    return add


def settings_of(entry: str) -> dict[str, Any]:
    """Settings with which an entry is tried."""
    settings = dict(SETTINGS[entry])
    if "record_to" in settings:
        settings["record_to"] = os.path.join(tempfile.mkdtemp(), settings["record_to"])
    return settings


def same(found: Any, value: Any) -> None:
    """The user's own object arrived, and not another one."""
    if found is not value:
        raise AssertionError(f"another object arrived: {type(found)}")


@tidegauge.tool
def ordinary(place: str) -> str:
    return f"{place} is empty"


@tidegauge.agent
def _agent(task: str, body: Callable[[], object]) -> None:
    ordinary("before")
    body()
    ordinary("after")


def around(body: Callable[[], object]) -> None:
    """A run of an ordinary step, the body, and another ordinary step."""
    _agent("find it", body)


# -- decorators ----------------------------------------------------------------------------------


@entry("tool-argument")
def tool_argument(value: Any) -> int:
    @tidegauge.tool
    def take(first: Any, *rest: Any, **named: Any) -> str:
        same(first, value)
        same(rest[0], value)
        same(named["name"], value)
        return "taken"

    around(lambda: take(value, value, name=value))
    return 3


@entry("tool-result")
def tool_result(value: Any) -> int:
    @tidegauge.tool
    def give() -> Any:
        return value

    around(lambda: same(give(), value))
    return 3


@entry("async-tool")
def async_tool(value: Any) -> int:
    @tidegauge.tool
    async def give(argument: Any) -> Any:
        await asyncio.sleep(0)
        return argument

    async def body() -> None:
        same(await give(value), value)

    around(lambda: asyncio.run(body()))
    return 3


@entry("generator-tool")
def generator_tool(value: Any) -> int:
    @tidegauge.tool
    def give(argument: Any) -> Iterator[Any]:
        same((yield argument), value)
        return argument  # type: ignore[no-any-return]

    def body() -> None:
        items = give(value)
        same(next(items), value)
        try:
            items.send(value)  # type: ignore[attr-defined]
        except StopIteration as stop:
            same(stop.value, value)

    around(body)
    return 3


@entry("async-generator-tool")
def async_generator_tool(value: Any) -> int:
    @tidegauge.tool
    async def give(argument: Any) -> AsyncIterator[Any]:
        yield argument
        yield argument

    async def body() -> None:
        async for item in give(value):
            same(item, value)

    around(lambda: asyncio.run(body()))
    return 3


@entry("partial-and-callable-object")
def partial_and_callable_object(value: Any) -> int:
    class Callable_:
        def __call__(self, argument: Any) -> Any:
            return argument

    @tidegauge.tool
    def second(first: Any, argument: Any) -> Any:
        return argument

    def body() -> None:
        same(tidegauge.tool(Callable_())(value), value)
        same(tidegauge.tool(functools.partial(second, value))(value), value)

    around(body)
    return 4


@entry("methods")
def methods(value: Any) -> int:
    class Desk:
        @tidegauge.tool
        def method(self, argument: Any) -> Any:
            return argument

        @classmethod
        @tidegauge.tool
        def of_class(cls, argument: Any) -> Any:
            return argument

        @tidegauge.tool
        @staticmethod
        def static(argument: Any) -> Any:
            return argument

    def body() -> None:
        same(Desk().method(value), value)
        same(Desk.of_class(value), value)
        same(Desk.static(value), value)

    around(body)
    return 5


@entry("method-of-the-value")
def method_of_the_value(value: Any) -> int:
    @tidegauge.tool
    def method(self: Any) -> Any:
        return self

    around(lambda: same(method(value), value))
    return 3


@entry("tool-that-returns-a-coroutine")
def tool_that_returns_a_coroutine(value: Any) -> int:
    async def later(argument: Any) -> Any:
        return argument

    @tidegauge.tool
    def give(argument: Any) -> Any:
        return later(argument)

    @tidegauge.tool
    def start(argument: Any) -> Any:
        return asyncio.ensure_future(later(argument))

    async def body() -> None:
        same(await give(value), value)
        task = start(value)
        assert isinstance(task, asyncio.Task)
        same(await task, value)

    around(lambda: asyncio.run(body()))
    return 4


class UsersError(Exception):
    """Raised by the user's code, with the value inside."""


@entry("tool-error")
def tool_error(value: Any) -> int:
    error = UsersError(value)

    @tidegauge.tool
    def fail() -> None:
        raise error

    @tidegauge.tool
    async def fail_later() -> None:
        raise error

    def body() -> None:
        # asyncio.run() writes out the error of its task, which is none of our doing
        for call in (fail, lambda: fail_later().send(None)):
            try:
                call()
            except UsersError as found:
                same(found, error)
                same(found.args[0], value)
            else:
                raise AssertionError("the user's error was lost")

    around(body)
    return 4


@entry("tool-raises-the-value")
def tool_raises_the_value(value: Any) -> int:
    """Where the value is an error: it itself is raised."""
    if not issubclass(type(value), BaseException):
        return tool_error(value)

    @tidegauge.tool
    def fail() -> None:
        raise value

    def body() -> None:
        try:
            fail()
        except BaseException as found:
            same(found, value)
        else:
            raise AssertionError("the user's error was lost")

    around(body)
    return 3


@entry("agent-argument-and-result")
def agent_argument_and_result(value: Any) -> int:
    @tidegauge.agent
    def think(argument: Any) -> Any:
        ordinary("inside")
        return argument

    same(think(value), value)
    return 1


@entry("async-and-generator-agents")
def async_and_generator_agents(value: Any) -> int:
    @tidegauge.agent
    async def think(argument: Any) -> Any:
        ordinary("inside")
        return argument

    @tidegauge.agent
    def stream(argument: Any) -> Iterator[Any]:
        ordinary("inside")
        yield argument

    @tidegauge.agent
    async def stream_later(argument: Any) -> AsyncIterator[Any]:
        ordinary("inside")
        yield argument

    async def body() -> None:
        same(await think(value), value)
        async for item in stream_later(value):
            same(item, value)

    asyncio.run(body())
    for item in stream(value):
        same(item, value)
    return 3


@entry("agent-error")
def agent_error(value: Any) -> int:
    error = UsersError(value)

    @tidegauge.agent
    def think(argument: Any) -> Any:
        ordinary("inside")
        raise error

    try:
        think(value)
    except UsersError as found:
        same(found, error)
    else:
        raise AssertionError("the user's error was lost")
    return 1


# -- declarations: what user callables give back -------------------------------------------------


@entry("success-gives-it")
def success_gives_it(value: Any) -> int:
    @tidegauge.agent(success=lambda answer: value)
    def think(task: str) -> str:
        ordinary("inside")
        return "done"

    assert think("find it") == "done"
    return 1


@entry("key-gives-it")
def key_gives_it(value: Any) -> int:
    @tidegauge.tool(key=lambda arguments: value)
    def take(place: str) -> str:
        return "taken"

    around(lambda: take("hall"))
    return 3


@entry("on-block-gives-it", rules=None, block_on_loop=1)
def on_block_gives_it(value: Any) -> int:
    @tidegauge.tool(on_block=lambda decision: value)
    def push(door: str) -> str:
        return "it does not move"

    @tidegauge.agent
    def think(task: str) -> None:
        assert push("red") == "it does not move"
        assert push("red") == "it does not move"
        same(push("red"), value)

    think("open it")
    return 3


def _slot(*_: Any, **__: Any) -> Any:
    return slot[0]


@entry("normaliser-gives-it", normalise=_slot)
def normaliser_gives_it(value: Any) -> int:
    slot[0] = value
    around(lambda: ordinary("hall"))
    return 3


@extractor
def _observed(call: Any, result: Any) -> Any:
    return slot[0]


@entry("extractor-gives-it", extractors=[_observed])
def extractor_gives_it(value: Any) -> int:
    slot[0] = value
    around(lambda: ordinary("hall"))
    return 3


@extractor
def _place(call: Any, result: Any) -> Any:
    value = slot[0]
    return Observation(
        place=value, exits=(value, "hall"), tasks=(value,), achieved=(value,), mentions=(value,)
    )


@entry("extractor-gives-it-as-a-place", extractors=[_place])
def extractor_gives_it_as_a_place(value: Any) -> int:
    slot[0] = value
    around(lambda: ordinary("hall"))
    return 3


@entry("distance-gives-it", distance=_slot)
def distance_gives_it(value: Any) -> int:
    slot[0] = value
    with tidegauge.run(agent="walker") as run:
        for place in ("hall", "cellar", "attic"):
            run.act("walk", {"to": place})
            run.observe("dark", place=place, exits=["hall", "cellar", "attic", "shed"])
    return 3


# -- with tidegauge.run() ------------------------------------------------------------------------


def _step(run: Any, place: str = "hall") -> None:
    run.act("look", {"place": place})
    run.observe("empty")


@entry("act")
def act(value: Any) -> int:
    with tidegauge.run(agent="reader") as run:
        _step(run)
        run.act("take", {"argument": value, "again": [value]}, state=value)
        run.observe("taken")
        run.act("take", value)
        run.observe("taken")
        _step(run)
    return 4


@entry("observe")
def observe(value: Any) -> int:
    with tidegauge.run(agent="reader") as run:
        _step(run)
        run.act("take", {})
        run.observe(value)
        _step(run)
    return 3


@entry("observe-a-place")
def observe_a_place(value: Any) -> int:
    with tidegauge.run(agent="reader") as run:
        _step(run)
        for _ in range(2):
            run.act("walk", {})
            run.observe("there", place=value, exits=[value, "hall"], tasks=[value])
        _step(run)
    return 4


@entry("observe-numbers")
def observe_numbers(value: Any) -> int:
    """Where a number, a text or a flag belongs."""
    with tidegauge.run(agent="reader") as run:
        _step(run)
        run.act("walk", {}, tokens=value)
        run.observe("there", error=value, progress=value, tokens=value)
        run.act("walk", {})
        run.observe("there", exits=value, tasks=value, achieved=value)
        _step(run)
        run.finish(success=value, reason=value)
    return 4


@entry("round")
def round_(value: Any) -> int:
    with tidegauge.run(agent="reader") as run:
        _step(run)
        run.act_round([("take", {"argument": value}), ("take", value)])
        run.observe_round([(value, False), (value, True)])
        _step(run)
    return 3


@entry("names")
def names(value: Any) -> int:
    """Where the names of runs and actions belong."""
    numbers = {"t_max": value, "operations": value, "height": value}
    labels = {"memory": value, "conversation": value, "run_id": value, "reach": value}
    with tidegauge.run(
        agent=value, task=value, task_group=value, model=value, **numbers, **labels
    ) as run:
        _step(run)
        run.act("look", {}, call_id=value)
        run.observe("seen", error=value)
        run.finish(success=value, reason=value)
        run.act(value, {})
        run.observe("taken")
        run.act_round([(value, {}), ("look", {})])
        run.observe_round([("", False), ("", False)])
    return 4


@entry("names-recorded", record_to="recorded.jsonl", page=True, capture_content=True)
def names_recorded(value: Any) -> int:
    return names(value)


@entry("recorded", record_to="recorded.jsonl", record_contents=True, page=True, page_contents=True)
def recorded(value: Any) -> int:
    return act(value) + observe(value) + observe_a_place(value) + tool_argument(value)


@entry("on-spans", capture_content=True)
def on_spans(value: Any) -> int:
    return act(value) + observe(value) + tool_error(value) + tool_argument(value)


# -- LangChain, by the calls that it makes of a handler ------------------------------------------


def _handler(**settings: Any) -> Any:
    from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

    return TidegaugeCallbackHandler(**settings)


def _invocation(handler: Any, value: Any, tool: Callable[[Any, Any, Any], None]) -> None:
    """What LangChain calls on a handler of an agent with two tool calls."""
    root = uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {"messages": value}, run_id=root)
    for body in (tool, _ordinary_call):
        run_id = uuid.uuid4()
        body(handler, root, run_id)
    handler.on_chain_end(value, run_id=root)


def _ordinary_call(handler: Any, root: Any, run_id: Any) -> None:
    handler.on_tool_start({"name": "look"}, "hall", run_id=run_id, parent_run_id=root)
    handler.on_tool_end("empty", run_id=run_id, parent_run_id=root)


@entry("langchain-tool-arguments")
def langchain_tool_arguments(value: Any) -> int:
    def call(handler: Any, root: Any, run_id: Any) -> None:
        handler.on_tool_start(
            {"name": "take"}, "...", run_id=run_id, parent_run_id=root, inputs={"argument": value}
        )
        handler.on_tool_end("taken", run_id=run_id, parent_run_id=root)

    _invocation(_handler(), {}, call)
    return 2


@entry("langchain-tool-result")
def langchain_tool_result(value: Any) -> int:
    def call(handler: Any, root: Any, run_id: Any) -> None:
        handler.on_tool_start({"name": "take"}, "", run_id=run_id, parent_run_id=root, inputs={})
        handler.on_tool_end(value, run_id=run_id, parent_run_id=root)

    _invocation(_handler(), value, call)
    return 2


@entry("langchain-tool-message")
def langchain_tool_message(value: Any) -> int:
    from langchain_core.messages import ToolMessage

    def call(handler: Any, root: Any, run_id: Any) -> None:
        handler.on_tool_start({"name": "take"}, "", run_id=run_id, parent_run_id=root, inputs={})
        message = ToolMessage("taken", tool_call_id="call-1", artifact=None)
        message.__dict__["artifact"] = value
        message.__dict__["additional_kwargs"] = {"value": value}
        handler.on_tool_end(message, run_id=run_id, parent_run_id=root)

    _invocation(_handler(), {}, call)
    return 2


@entry("langchain-tool-error")
def langchain_tool_error(value: Any) -> int:
    def call(handler: Any, root: Any, run_id: Any) -> None:
        error = value if issubclass(type(value), BaseException) else UsersError(value)
        handler.on_tool_start({"name": "take"}, "", run_id=run_id, parent_run_id=root, inputs={})
        handler.on_tool_error(error, run_id=run_id, parent_run_id=root)

    _invocation(_handler(), {}, call)
    return 2


@entry("langchain-metadata")
def langchain_metadata(value: Any) -> int:
    handler = _handler()
    root = uuid.uuid4()
    keys = ("agent", "task", "task_group", "t_max", "memory")
    metadata = {f"tidegauge_{key}": value for key in keys} | {"thread_id": value, "user": value}
    serialized: Any = {"name": value, "id": value, "kwargs": value}
    handler.on_chain_start(serialized, value, run_id=root, metadata=metadata, name=value, tags=[])
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end(value, run_id=root)
    return 1


@entry("langchain-success-gives-it")
def langchain_success_gives_it(value: Any) -> int:
    handler = _handler(success=lambda state: value)
    root = uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {}, run_id=root)
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end({}, run_id=root)
    return 1


@entry("langchain-model-message")
def langchain_model_message(value: Any) -> int:
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, LLMResult

    handler = _handler()
    root, model = uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {"messages": []}, run_id=root)
    handler.on_chat_model_start(
        {"name": value}, [[]], run_id=model, parent_run_id=root, invocation_params=value
    )
    message = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "call-1"}])
    message.tool_calls[0]["args"] = {"argument": value}
    message.__dict__["content"] = value
    message.__dict__["response_metadata"] = {"finish_reason": value, "logprobs": value}
    message.__dict__["usage_metadata"] = {"input_tokens": value, "output_tokens": value}
    generation = ChatGeneration(message=AIMessage(""))
    generation.__dict__["message"] = message
    result = LLMResult(generations=[[generation]], llm_output={"token_usage": value})
    handler.on_llm_end(result, run_id=model, parent_run_id=root)
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end({}, run_id=root)
    return 1


@entry("langchain-tokens")
def langchain_tokens(value: Any) -> int:
    handler = _handler()
    root, model = uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {"messages": []}, run_id=root)
    handler.on_chat_model_start({"name": "m"}, [[]], run_id=model, parent_run_id=root)
    for token in (value, [value], [{"type": "text", "text": value}], {"type": value}):
        handler.on_llm_new_token(token, run_id=model, parent_run_id=root)
    for event in (value, {"delta": value}, {"delta": {"type": "text-delta", "text": value}}):
        handler.on_stream_event(event, run_id=model, parent_run_id=root)
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end({}, run_id=root)
    return 1


@entry("langchain-contents", capture_content=True)
def langchain_contents(value: Any) -> int:
    from langchain_core.messages import HumanMessage, ToolMessage

    handler = _handler()
    root = uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {"messages": []}, run_id=root)
    shown = HumanMessage("")
    shown.__dict__["content"] = value
    answer = ToolMessage("", tool_call_id="call-1")
    answer.__dict__["content"] = value
    handler.on_chat_model_start(
        {"name": "m"},
        [[value, shown, answer]],
        run_id=uuid.uuid4(),
        parent_run_id=root,
        invocation_params={"tools": value, "stop": value, "temperature": value},
    )
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end({}, run_id=root)
    return 1


@entry("langchain-retriever", capture_content=True)
def langchain_retriever(value: Any) -> int:
    handler = _handler()
    root, run_id = uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {"messages": []}, run_id=root)
    handler.on_retriever_start({}, value, run_id=run_id, parent_run_id=root, name=value)
    handler.on_retriever_end(value, run_id=run_id, parent_run_id=root)
    _ordinary_call(handler, root, uuid.uuid4())
    handler.on_chain_end({}, run_id=root)
    return 1


# -- OpenAI Agents SDK, by the calls that it makes of a processor --------------------------------


@entry("agents-sdk-spans")
def agents_sdk_spans(value: Any) -> int:
    from agents import set_trace_processors
    from agents.tracing import agent_span, function_span, response_span, trace

    from tidegauge.instrumentation.openai_agents import TidegaugeTracingProcessor

    set_trace_processors([TidegaugeTracingProcessor()])
    return _agents_sdk_spans(value, agent_span, function_span, response_span, trace)


@entry("agents-sdk-contents", capture_content=True)
def agents_sdk_contents(value: Any) -> int:
    return agents_sdk_spans(value)


def _agents_sdk_spans(
    value: Any, agent_span: Any, function_span: Any, response_span: Any, trace: Any
) -> int:
    """Two calls of one response, which are one step."""
    with trace("work", metadata={"tidegauge_task": value, "other": value}), agent_span("reader"):
        with response_span() as span:
            span.span_data.input = value
        for content in ("empty", value):
            with function_span("look", input="{}", output="empty") as call:
                call.span_data.output = content
    return 1


# -- spans of others -----------------------------------------------------------------------------


@entry("spans-of-others")
def spans_of_others(value: Any) -> int:
    """A span of another SDK may hold anything: here attributes go around OpenTelemetry's checks."""
    contents = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
    return _spans_of_others(value, contents, ("gen_ai.input.messages", "gen_ai.output.messages"))


@entry("ids-of-spans")
def ids_of_spans(value: Any) -> int:
    keys = ("gen_ai.tool.call.id", "gen_ai.conversation.id", "tidegauge.task", "error.type")
    return _spans_of_others(value, keys, ("gen_ai.usage.input_tokens", "gen_ai.response.id"))


@entry("spans-that-wait")
def spans_that_wait(value: Any) -> int:
    """Spans of the application below a run of ours, until that is decided."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from tidegauge.sampling import TroubledSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TroubledSpanProcessor(InMemorySpanExporter(), max_spans=5))
    tracer = provider.get_tracer("theirs")
    names = ("tidegauge.run.id", "tidegauge.troubles", "tidegauge.troubled", "other")
    for name in names:
        with tracer.start_as_current_span("work", attributes={"tidegauge.run.id": "r"}) as opened:
            for _ in range(6):
                with tracer.start_as_current_span("part") as part:
                    _smuggle(part, {name: value})
            _smuggle(opened, {name: value})
    provider.shutdown()
    with tidegauge.run(agent="reader") as run:
        run.act("look")
        run.observe("nothing")
    return 1


def _spans_of_others(value: Any, of_calls: Sequence[str], of_models: Sequence[str]) -> int:
    from opentelemetry.sdk.trace import TracerProvider

    from tidegauge.instrumentation.spans import TidegaugeSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TidegaugeSpanProcessor())
    tracer = provider.get_tracer("theirs")

    @contextlib.contextmanager
    def span(kind: str, attributes: dict[str, Any], **known: str) -> Iterator[None]:
        with tracer.start_as_current_span(kind) as opened:
            opened.set_attribute("gen_ai.operation.name", kind)
            for name, text in known.items():
                opened.set_attribute("gen_ai." + name.replace("_", "."), text)
            _smuggle(opened, attributes)
            yield

    with span("invoke_agent", {}, agent_name="reader"):
        with span("chat", dict.fromkeys(of_models, value)):
            pass
        for attributes in ({}, dict.fromkeys(of_calls, value)):
            with span("execute_tool", attributes, tool_name="look"):
                pass
            with span("chat", {}):
                pass
    return 2


def _smuggle(span: Any, attributes: dict[str, Any]) -> None:
    held = span._attributes
    with contextlib.suppress(AttributeError):
        held = held._dict
    for name, value in attributes.items():
        held[name] = value
