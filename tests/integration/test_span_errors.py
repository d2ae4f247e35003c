"""What failed spans say: their kind always, a text where contents are captured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import ToolException, tool
from opentelemetry.sdk.trace import ReadableSpan

import tidegauge
from support.agents_sdk import chat_completions, responses, scripted, traced_by
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor
from tidegauge.testing import Capture, capture

SECRET = "5ecret-door"
QUESTION = {"messages": [("user", "where is the key?")]}


class Shelf(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        raise LookupError(SECRET)


def config() -> Any:
    return {"callbacks": [TidegaugeCallbackHandler(agent="porter")]}


def agent_with(one: Any) -> Any:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("no") if turns(messages) else chooses(("push", {"door": "red"}))

    return create_agent(ScriptedChatModel(script=script), [one])


def langchain_raises() -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        agent_with(push).invoke(QUESTION, config())


def langchain_answers() -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        raise ToolException(SECRET)

    push.handle_tool_error = True
    agent_with(push).invoke(QUESTION, config())


def langchain_model() -> None:
    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        raise TimeoutError(SECRET)

    def ask(_: str) -> object:
        return ScriptedChatModel(script=script).invoke("x")

    with pytest.raises(TimeoutError):
        RunnableLambda(ask).invoke("x", config())


def langchain_retriever() -> None:
    def look(_: str) -> object:
        return Shelf().invoke("key")

    with pytest.raises(LookupError):
        RunnableLambda(look).invoke("x", config())


def langchain_node() -> None:
    @tool
    def push(door: str) -> str:
        """Push a door."""
        raise ValueError(SECRET)

    handler = TidegaugeCallbackHandler(agent="porter", node_spans=True)
    with pytest.raises(ValueError, match=SECRET):
        agent_with(push).invoke(QUESTION, {"callbacks": [handler]})


def decorated() -> None:
    @tidegauge.tool
    def push(door: str) -> str:
        raise ValueError(SECRET)

    with tidegauge.run(agent="porter"), pytest.raises(ValueError, match=SECRET):
        push("red")


def reported() -> None:
    with tidegauge.run(agent="porter") as run:
        run.act("push", {"door": "red"})
        run.observe(SECRET, error=True)


def agents_sdk(make: Callable[..., Any], *, hooked: bool = False) -> Callable[[], None]:
    @function_tool(failure_error_function=lambda _, error: f"failed: {error}")
    def push(door: str) -> str:
        """Push a door."""
        raise ValueError(SECRET)

    def work() -> None:
        processor = TidegaugeTracingProcessor()
        said: list[Any] = [[("push", {"door": "red"})], "no"]
        porter = Agent(name="porter", model=make(said), tools=[push])
        hooks = TidegaugeRunHooks(processor) if hooked else None
        with traced_by(processor):
            asyncio.run(Runner.run(porter, "open a door", hooks=hooks))

    return work


def agents_sdk_raises() -> None:
    @function_tool(failure_error_function=None)
    def push(door: str) -> str:
        """Push a door."""
        raise ValueError(SECRET)

    processor = TidegaugeTracingProcessor()
    porter = Agent(name="porter", model=scripted([[("push", {"door": "red"})], "no"]), tools=[push])
    with traced_by(processor), pytest.raises(Exception, match=SECRET):
        asyncio.run(Runner.run(porter, "open a door"))


FAILURES: dict[str, tuple[Callable[[], None], str]] = {
    "LangChain: raises": (langchain_raises, "execute_tool push"),
    "LangChain: answers": (langchain_answers, "execute_tool push"),
    "LangChain: model": (langchain_model, "chat scripted-1"),
    "LangChain: retriever": (langchain_retriever, "retrieval Shelf"),
    "LangChain: node": (langchain_node, "node tools"),
    "LangChain: run": (langchain_raises, "invoke_agent porter"),
    "decorators": (decorated, "execute_tool push"),
    "run.observe": (reported, "execute_tool push"),
    "Agents SDK: chat completions": (agents_sdk(chat_completions), "execute_tool push"),
    "Agents SDK: responses": (agents_sdk(responses), "execute_tool push"),
    "Agents SDK: hooks": (agents_sdk(scripted, hooked=True), "execute_tool push"),
    "Agents SDK: raises": (agents_sdk_raises, "execute_tool push"),
}


def failed(seen: Capture, name: str) -> ReadableSpan:
    """The one span of this name that failed."""
    [found] = [
        span for span in seen.spans if span.name == name and "error.type" in (span.attributes or {})
    ]
    assert not found.status.is_ok
    return found


@pytest.mark.parametrize(("work", "name"), FAILURES.values(), ids=FAILURES)
def test_a_failed_span_says_with_what(work: Callable[[], None], name: str) -> None:
    with capture(capture_content=True) as seen:
        work()
    assert SECRET in (failed(seen, name).status.description or "")


@pytest.mark.parametrize(("work", "name"), FAILURES.values(), ids=FAILURES)
def test_without_contents_it_says_only_of_what_kind(work: Callable[[], None], name: str) -> None:
    with capture() as seen:
        work()
    assert failed(seen, name).status.description is None
    for span in seen.spans:
        assert SECRET not in json.dumps([dict(span.attributes or {}), span.status.description])
        assert not span.events


@pytest.mark.parametrize(("work", "name"), FAILURES.values(), ids=FAILURES)
def test_what_it_says_is_redacted(work: Callable[[], None], name: str) -> None:
    with capture(capture_content=True, redact=lambda text: text.replace(SECRET, "***")) as seen:
        work()
    assert "***" in (failed(seen, name).status.description or "")
    for span in seen.spans:
        assert SECRET not in json.dumps([dict(span.attributes or {}), span.status.description])


@pytest.mark.parametrize("given", [None, ValueError("no")], ids=["nothing", "raises"])
def test_what_may_not_leave_is_absent(given: Exception | None, faults_are_swallowed: None) -> None:
    def redact(text: str) -> None:
        if given is not None:
            raise given

    with capture(capture_content=True, redact=redact) as seen:
        decorated()
    assert failed(seen, "execute_tool push").status.description is None


def test_what_it_says_is_cut() -> None:
    with capture(capture_content=True) as seen, tidegauge.run(agent="porter") as run:
        run.act("push")
        run.observe("x" * 100_000, error=True)
        run.act("push")
        run.observe(error=ValueError("y" * 100_000))
    first, second = [span for span in seen.spans if span.name == "execute_tool push"]
    assert first.status.description == "x" * 8_192 + "…"
    assert (second.status.description or "").startswith("ValueError: yyy")
    assert len(second.status.description or "") == 8_193


class Loud(Exception):
    def __str__(self) -> str:
        raise AssertionError("called")


def test_an_exception_is_not_asked_what_it_says() -> None:
    with capture(capture_content=True) as seen, tidegauge.run(agent="porter") as run:
        run.act("push")
        run.observe(error=Loud("shut", 10**5_000, "\ud800"))
    description = failed(seen, "execute_tool push").status.description
    assert description == "Loud: shut, int, ?"


def test_an_exception_with_a_long_number() -> None:
    with capture(capture_content=True) as seen, tidegauge.run(agent="porter") as run:
        run.act("push")
        run.observe(error=ValueError(10**5_000))
    assert failed(seen, "execute_tool push").status.description == "ValueError: int"
