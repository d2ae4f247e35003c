"""Every span that agents of every adapter emit, against the registry of the GenAI conventions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agents import Agent, ModelSettings, Runner, function_tool, handoff
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph_swarm import create_handoff_tool, create_swarm

import tidegauge
from support.agents_sdk import chat_completions, responses, scripted, traced_by
from support.genai_registry import DATA, RENAMED, faults
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor
from tidegauge.testing import Capture, capture
from tidegauge.tracer import conventions

QUESTION = {"messages": [("user", "where is the key?")]}


class Shelf(BaseRetriever):
    """Finds the same two documents, whatever is asked for."""

    fails: bool = False

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.fails:
            raise LookupError("the shelf is empty")
        return [
            Document("keys are red", id="d1", metadata={"score": 0.9}),
            Document("doors are blue", id="d2"),
        ]


@tool
def look(place: str) -> str:
    """Look into a place."""
    if place == "well":
        raise ValueError("too deep")
    return f"{place} is empty"


@tool
def read(query: str) -> str:
    """Read what is known."""
    return Shelf().invoke(query)[0].page_content


def scripted_agent(*said: AIMessage, tools: Sequence[BaseTool] = (look, read), **given: Any) -> Any:
    model = ScriptedChatModel(script=lambda messages: said[turns(messages)])
    return create_agent(model, list(tools), name="porter", **given)


def langchain_tools() -> None:
    agent = scripted_agent(
        chooses(("look", {"place": "chest"}), ("read", {"query": "key"})),
        chooses(("look", {"place": "chest"})),
        answers("it is gone"),
        system_prompt="You look for keys.",
    )
    metadata = {"user_id": "u1", "session_id": "s1"}
    configurable = {"thread_id": "t1"}
    config = {"tags": ["nightly"], "metadata": metadata, "configurable": configurable}
    agent.invoke(QUESTION, {**config, "callbacks": [TidegaugeCallbackHandler()]})


def langchain_streamed() -> None:
    agent = scripted_agent(chooses(("look", {"place": "chest"})), answers("it is gone"))
    config: Any = {"callbacks": [TidegaugeCallbackHandler()]}
    assert list(agent.stream(QUESTION, config, stream_mode="messages"))


def langchain_errors() -> None:
    agent = scripted_agent(chooses(("look", {"place": "well"})), answers("never"))
    with pytest.raises(ValueError, match="too deep"):
        agent.invoke(QUESTION, {"callbacks": [TidegaugeCallbackHandler()]})

    def search(state: object) -> object:
        return Shelf(fails=True).invoke("key")

    with pytest.raises(LookupError):
        RunnableLambda(search).invoke("key", {"callbacks": [TidegaugeCallbackHandler(agent="a")]})


def langchain_text() -> None:
    chain = FakeListLLM(responses=["a line"]) | RunnableLambda(str.upper)
    chain.invoke("say something", {"callbacks": [TidegaugeCallbackHandler(agent="poet")]})


def langchain_hand_off() -> None:
    def says(*said: AIMessage) -> ScriptedChatModel:
        waiting = list(said)
        return ScriptedChatModel(script=lambda messages: waiting.pop(0))

    to_cook = create_handoff_tool(agent_name="cook")
    chosen = chooses(("transfer_to_cook", {}))
    porter: Any = create_agent(says(chosen), [look, to_cook], name="porter")
    cook: Any = create_agent(says(answers("soup")), [look], name="cook")
    swarm = create_swarm([porter, cook], default_active_agent="porter").compile(name="house")
    swarm.invoke(QUESTION, {"callbacks": [TidegaugeCallbackHandler()]})


def decorated() -> None:
    @tidegauge.tool
    def push(door: str) -> str:
        return f"{door} does not move"

    @tidegauge.tool
    def fail(door: str) -> str:
        raise ValueError(door)

    @tidegauge.agent
    def porter(task: str) -> str:
        for _ in range(3):
            push("red")
        with pytest.raises(ValueError, match="blue"):
            fail("blue")
        return "done"

    porter("open a door")
    with tidegauge.run(agent="hand", task="t", conversation="c1", user="u1", tags=["x"]) as run:
        run.act_round([("look", {"at": 1}), ("look", {"at": 2})])
        run.observe_round([("empty", False), ("full", True)])


def agents_sdk(make: Callable[..., Any], *, hooked: bool) -> Callable[[], None]:
    @function_tool
    def push(door: str) -> str:
        """Push a door."""
        return "it does not move"

    def work() -> None:
        processor = TidegaugeTracingProcessor()
        settings = ModelSettings(temperature=0.5, max_tokens=9)
        cook = Agent(name="cook", model=make(["soup"]), model_settings=settings)
        said = [[("push", {"door": "red"})], [("transfer_to_cook", {})]]
        porter = Agent(
            name="porter",
            instructions="You open doors.",
            model=make(said),
            model_settings=settings,
            tools=[push],
            handoffs=[handoff(cook)],
        )
        hooks = TidegaugeRunHooks(processor) if hooked else None
        with traced_by(processor):
            asyncio.run(Runner.run(porter, "open a door", hooks=hooks))

    return work


AGENTS: dict[str, Callable[[], None]] = {
    "LangChain: tools and retrievers": langchain_tools,
    "LangChain: streamed": langchain_streamed,
    "LangChain: errors": langchain_errors,
    "LangChain: completes text": langchain_text,
    "LangChain: hand-off": langchain_hand_off,
    "decorators": decorated,
    "Agents SDK: chat completions": agents_sdk(chat_completions, hooked=False),
    "Agents SDK: responses": agents_sdk(responses, hooked=False),
    "Agents SDK: hooks": agents_sdk(chat_completions, hooked=True),
    "Agents SDK: hooks alone": agents_sdk(scripted, hooked=True),
}


@pytest.mark.parametrize("contents", [False, True], ids=["without contents", "contents"])
@pytest.mark.parametrize("work", AGENTS.values(), ids=AGENTS)
def test_spans_follow_the_conventions(work: Callable[[], None], contents: bool) -> None:
    with capture(capture_content=contents) as seen:
        work()
    assert seen.spans
    assert faults(seen.spans, contents=contents) == []


def test_what_does_not_follow_them_is_found() -> None:
    with capture() as seen:
        tracer = seen.tracer_provider.get_tracer("tidegauge")
        operation: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        for attributes in (
            {**operation, "gen_ai.provider.name": "x", "gen_ai.request.temperature": 1},
            {**operation, "gen_ai.provider.name": "x", "gen_ai.input.messages": '[{"role": 1}]'},
            {**operation, "gen_ai.provider.name": "x", "gen_ai.tool.name": "look"},
            {**operation, "gen_ai.provider.name": "x", "gen_ai.made_up": "x"},
            {**operation, "mine": "x"},
        ):
            tracer.start_span("chat", attributes=attributes).end()
    kind = "chat: INTERNAL instead of client"
    assert [fault for fault in faults(seen.spans, contents=True) if fault != kind] == [
        "chat: gen_ai.request.temperature is 1, not double",
        "chat: gen_ai.input.messages: 'parts' is a required property",
        "chat: gen_ai.tool.name is not of this kind of span",
        "chat: gen_ai.made_up is not in the registry",
        "chat: gen_ai.made_up is not of this kind of span",
        "chat: mine is of no known namespace",
        "chat: without gen_ai.provider.name",
    ]


def test_every_name_in_the_code_is_in_the_registry() -> None:
    known = json.loads(DATA.read_text())
    assert known["schema_url"] == conventions.SCHEMA_URL
    attributes = {
        value
        for name, value in vars(conventions).items()
        if name.isupper() and str(value).startswith("gen_ai.")
    }
    others = {
        conventions.EVALUATION_EVENT,
        *(conventions.CHAT_DURATION, conventions.TOKEN_USAGE, conventions.TIME_TO_FIRST_CHUNK),
        *(conventions.AGENT_DURATION, conventions.TOOL_DURATION),
    }
    renamed = {RENAMED.get(name, name) for name in attributes - others}
    assert renamed <= known["attributes"].keys()


def named(seen: Capture, name: str) -> Any:
    """The attributes of the first span that has this name."""
    return next(dict(span.attributes or {}) for span in seen.spans if span.name == name)


def test_a_run_has_the_user_the_session_and_the_tags() -> None:
    with capture() as seen:
        langchain_tools()
        decorated()
    root = named(seen, "invoke_agent porter")
    assert (root["user.id"], root["session.id"], root["tidegauge.tags"]) == (
        "u1",
        "s1",
        ("nightly",),
    )
    assert root["gen_ai.conversation.id"] == "t1"
    assert named(seen, "chat scripted-1")["gen_ai.conversation.id"] == "t1"
    hand = named(seen, "invoke_agent hand")
    assert (hand["user.id"], hand["tidegauge.tags"]) == ("u1", ("x",))


def test_a_retrieval_is_below_the_tool_that_asks_for_it_and_no_step() -> None:
    with capture(capture_content=True) as seen:
        langchain_tools()
    tree = seen.tree()
    assert "  execute_tool read" in tree
    assert tree[tree.index("  execute_tool read") + 1] == "    retrieval Shelf"
    retrieval = named(seen, "retrieval Shelf")
    assert retrieval["gen_ai.retrieval.query.text"] == "key"
    assert json.loads(retrieval["gen_ai.retrieval.documents"]) == [
        {"id": "d1", "score": 0.9, "content": "keys are red"},
        {"id": "d2", "content": "doors are blue"},
    ]
    assert named(seen, "invoke_agent porter")["tidegauge.steps"] == 2


def test_the_first_chunk_of_a_streamed_answer_is_timed() -> None:
    with capture() as seen:
        langchain_streamed()
        langchain_tools()
    streamed = [span for span in seen.spans if span.name.startswith("chat")]
    given: list[dict[str, Any]] = [dict(span.attributes or {}) for span in streamed]
    seconds = [one.get("gen_ai.response.time_to_first_chunk") for one in given]
    assert [one.get("gen_ai.request.stream") for one in given] == [True, True, None, None, None]
    assert [second is None for second in seconds] == [False, False, True, True, True]
    for span, second in zip(streamed, seconds, strict=True):
        taken = ((span.end_time or 0) - (span.start_time or 0)) / 1e9
        assert second is None or (isinstance(second, float) and 0 < second <= taken + 0.001)


@pytest.mark.parametrize("name", ["LangChain: hand-off", "Agents SDK: hooks"])
def test_a_hand_off_names_the_agent(name: str) -> None:
    with capture() as seen:
        AGENTS[name]()
    assert named(seen, "execute_tool transfer_to_cook")["tidegauge.hand_off.to"] == "cook"


@pytest.mark.parametrize("make", [chat_completions, responses])
def test_the_agents_sdk_reports_what_its_model_was_asked_for(make: Callable[..., Any]) -> None:
    with capture() as seen:
        agents_sdk(make, hooked=True)()
    chat = named(seen, "chat scripted-1")
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["gen_ai.request.temperature"] == 0.5
    assert chat["gen_ai.usage.input_tokens"] == 10
    if make is responses:
        assert chat["gen_ai.response.id"]


def test_langchain_reports_what_its_model_was_asked_for_and_answered() -> None:
    said = answers("it is gone")
    said.response_metadata |= {"id": "chatcmpl-1", "model_name": "scripted-1-2026"}
    model = ScriptedChatModel(script=lambda messages: said)

    def ask(messages: Any) -> BaseMessage:
        return model.bind(temperature=0.25, max_tokens=99, stop=["END"], seed=7).invoke(messages)

    with capture() as seen:
        handler = TidegaugeCallbackHandler(agent="porter")
        RunnableLambda(ask).invoke([HumanMessage("key?")], {"callbacks": [handler]})
    chat = named(seen, "chat scripted-1")
    assert {name: chat[name] for name in chat if "request" in name or "response" in name} == {
        "gen_ai.request.model": "scripted-1",
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "scripted-1-2026",
        "gen_ai.response.finish_reasons": ("stop",),
    }
