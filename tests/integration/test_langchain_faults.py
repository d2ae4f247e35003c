"""No fault of ours reaches a LangChain agent: whatever breaks, wherever it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import tidegauge
from support.langchain_agents import graph_agent, nothing_is_left
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.langchain.callback_runs import CallbackRuns
from tidegauge.safety.guard import internal_errors

pytestmark = [
    pytest.mark.usefixtures("faults_are_swallowed"),
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning"),
]

HOOKS = sorted(name for name in vars(TidegaugeCallbackHandler) if name.startswith("on_"))


class BreaksOnce:
    """What is asked of it first raises; after that it does as ``whole`` does."""

    def __init__(self, whole: CallbackRuns) -> None:
        self._whole = whole
        self._broken = True

    def __getattr__(self, name: str) -> Any:
        if self._broken:
            self._broken = False
            raise RuntimeError(f"broken: {name}")
        return getattr(self._whole, name)


class BreakingHandler(TidegaugeCallbackHandler):
    """Breaks inside the one hook that is given, the first ``times`` that it is called."""

    def __init__(self, hook: str, *, times: int = 1_000_000) -> None:
        super().__init__()
        self.called = 0
        whole, inner = self._runs, getattr(self, hook)

        def breaking(*args: Any, **kwargs: Any) -> Any:
            self.called += 1
            if self.called > times:
                return inner(*args, **kwargs)
            self._runs = BreaksOnce(whole)  # type: ignore[assignment]
            try:
                return inner(*args, **kwargs)
            finally:
                self._runs = whole

        setattr(self, hook, breaking)


@tool
def push(door: str) -> str:
    """Push a door."""
    if door == "red":
        raise RuntimeError("locked")
    return "it does not move"


def pushing(messages: Sequence[BaseMessage]) -> AIMessage:
    turn = turns(messages)
    if turn < 4:
        return chooses(("push", {"door": "red" if turn % 2 else "blue"}))
    return answers("no way")


class Shelf(BaseRetriever):
    """Finds one document, or fails."""

    closed: bool = False

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.closed:
            raise OSError("closed")
        return [Document(query)]


def everything(fails: bool) -> Any:
    """An agent in which every hook of the handler has something to do."""
    door = graph_agent(ScriptedChatModel(script=pushing), [push])
    writer = FakeListLLM(responses=["a line"])
    speaker: Any = ScriptedChatModel(script=lambda messages: answers("one two"))

    def silent(messages: Sequence[BaseMessage]) -> AIMessage:
        raise OSError("no connection")

    muted: Any = RunnableLambda(str) | ScriptedChatModel(script=silent)
    mute = muted.with_fallbacks([FakeListLLM(responses=["spare"])])
    search = Shelf(closed=True).with_fallbacks([Shelf()])

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [str(interrupt("may I?"))]}

    paused = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    asking = paused.compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "one"}}

    def work(text: str) -> list[str]:
        asking.invoke({"messages": [text]}, thread)
        asking.invoke(Command(resume="yes"), thread)
        result: list[Any] = [writer.invoke(text), mute.invoke(text)]
        result += [found.page_content for found in search.invoke(text)]
        result += [chunk.content for chunk in speaker.stream(text)]
        result += [event["event"] for event in speaker.stream_events(text, version="v3")]
        result += [str(m.content) for m in door.invoke({"messages": [("user", text)]})["messages"]]
        if fails:
            raise ValueError("the agent's own")
        return result

    async def work_later(text: str) -> list[str]:
        await asking.ainvoke({"messages": [text]}, thread)
        await asking.ainvoke(Command(resume="yes"), thread)
        results: list[Any] = [await writer.ainvoke(text), await mute.ainvoke(text)]
        results += [found.page_content for found in await search.ainvoke(text)]
        results += [chunk.content async for chunk in speaker.astream(text)]
        events = await speaker.astream_events(text, version="v3")
        results += [event["event"] async for event in events]
        result = await door.ainvoke({"messages": [("user", text)]})
        results += [str(m.content) for m in result["messages"]]
        if fails:
            raise ValueError("the agent's own")
        return results

    return RunnableLambda(work, work_later, name="everything")


async def outcome(later: bool, fails: bool, handler: TidegaugeCallbackHandler | None) -> Any:
    config: Any = {"callbacks": [handler]} if handler else {}
    agent = everything(fails)
    try:
        return await agent.ainvoke("go", config) if later else agent.invoke("go", config)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_fault_in_a_hook_changes_nothing_for_the_agent(
    hook: str, fails: bool, later: bool
) -> None:
    handler = BreakingHandler(hook)
    with testing.capture():
        bare = await outcome(later, fails, None)
        assert await outcome(later, fails, handler) == bare
    assert handler.called, "the agent does not call this hook: the test shows nothing"
    assert internal_errors.counts()[f"langchain.{hook}"] == handler.called


INTERNALS: list[tuple[str, Callable[[Any], Any]]] = [
    ("run_started", lambda pipeline: pipeline.engine),
    ("issue", lambda pipeline: pipeline.engine),
    ("observe", lambda pipeline: pipeline.engine),
    ("run_ended", lambda pipeline: pipeline.engine),
    ("intervened", lambda pipeline: pipeline.engine),
    ("start_run", lambda pipeline: pipeline.recorder.spans),
    ("start_span", lambda pipeline: pipeline.recorder.spans.tracer),
    ("forget", lambda pipeline: pipeline.recorder.spans),
]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("name", "where"), INTERNALS, ids=[name for name, _ in INTERNALS])
async def test_a_fault_below_the_handler_changes_nothing_for_the_agent(
    name: str, where: Callable[[Any], Any], later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken")

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:  # watching: "would have stopped" is counted, and breaks too
        bare = await outcome(later, False, None)
        part = where(seen.pipeline)
        if name == "forget":  # the runs have it among their tools
            monkeypatch.setattr(part, "_tools", part._tools._replace(forget=broken))
        else:
            monkeypatch.setattr(part, name, broken)
        assert await outcome(later, False, handler) == bare
        assert len(handler._runs) == 0
    if name != "intervened":
        assert sum(internal_errors.counts().values()) > 0


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "on_chain_start"])
def test_after_a_fault_a_run_is_only_watched(hook: str) -> None:
    with testing.capture(stop_on_steps=3) as seen:
        with pytest.raises(tidegauge.RunStopped):
            everything(fails=False).invoke("go", {"callbacks": [TidegaugeCallbackHandler()]})
        handler = BreakingHandler(hook, times=1)
        result = everything(fails=False).invoke("go", {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result[-1] == "no way"


def test_a_run_whose_start_failed_is_no_run() -> None:
    handler = BreakingHandler("on_chain_start", times=1)
    with testing.capture() as seen:
        everything(fails=False).invoke("go", config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert not seen.pipeline.engine.snapshot().groups
    assert isinstance(handler._runs, CallbackRuns)
