"""Agents that others trace: real instrumentations, read by our span processor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from support.other_spans import Listener, instrumented
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

ALONE = [("openinference",), ("openllmetry",), ("otel-genai",)]
STACKED = [
    ("openinference", "openllmetry"),
    ("openllmetry", "openinference"),
    ("openinference", "otel-genai"),
    ("otel-genai", "openinference"),
    ("openllmetry", "otel-genai"),
    ("otel-genai", "openllmetry"),
    ("openinference", "openllmetry", "otel-genai"),
]


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@tool
def read(page: int, lines: list[int]) -> dict[str, object]:
    """Read a page."""
    return {"page": page, "lines": lines}


@tool
def rest() -> str:
    """Do nothing."""
    return "rested"


@tool
def open_door(key: str) -> str:
    """Open the door; it never does."""
    raise ValueError(f"{key} does not fit")


class NudgeTheModel(AgentMiddleware):
    """A tool's error is an answer."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except ValueError as error:
            return _answer(request, error)

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except ValueError as error:
            return _answer(request, error)


def _answer(request, error):
    return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


def script(messages):
    """Parallel calls, a call without arguments, an error, then a loop of two steps."""
    turn = turns(messages)
    if turn == 0:
        return chooses(("look", {"place": "hall"}), ("look", {"place": "attic"}), ("rest", {}))
    if turn == 1:
        return chooses(("read", {"page": 3, "lines": [1, 2]}), tokens=(30, 4))
    if turn == 2:
        return chooses(("open_door", {"key": "brass"}))
    if turn < 11:
        return chooses(("look", {"place": "hall"} if turn % 2 else {"place": "attic"}))
    return answers("I give up")


def agent():
    tools = [look, read, rest, open_door]
    model = ScriptedChatModel(script=script)
    return create_agent(model, tools, name="helper", middleware=[NudgeTheModel()])


QUESTION = {"messages": [("system", "be brief"), ("user", "find the key")]}
CONFIG = {"configurable": {"thread_id": "t1"}}
LABELS: dict[str, Any] = {"task_group": "house", "t_max": 30}


@pytest.fixture(scope="module")
def ours():
    """The run as our own callback handler reports it."""
    with testing.capture() as seen:
        listener = Listener(seen)
        config = {**CONFIG, "callbacks": [TidegaugeCallbackHandler(**LABELS)]}
        agent().invoke(QUESTION, config=config)
        return listener.story()


def test_what_our_own_handler_reports(ours):
    [((name, task, group, t_max, _), (thread, _), steps, outcomes, measured)] = ours
    assert (name, task, group, t_max, thread) == ("helper", "find the key", "house", 30, "t1")
    assert [step[1] for step in steps[:3]] == [("look", "look", "rest"), ("read",), ("open_door",)]
    assert outcomes[2] == (2, (("ValueError: brass does not fit", True),), None)
    assert len(steps) == measured["steps"] == 11
    assert measured["loop_steps"] > 0
    assert measured["tokens"] == 12 * 10 + 34


@pytest.mark.parametrize("names", [*ALONE, *STACKED], ids="+".join)
def test_the_same_steps_and_metrics_as_our_own_handler(ours, names, monkeypatch):
    with testing.capture() as seen, instrumented(monkeypatch, *names, **LABELS) as watch:
        listener = Listener(seen)
        agent().invoke(QUESTION, config=CONFIG)
        assert listener.story() == ours
        assert len(watch._grouping) == 0
        assert not seen.spans


@pytest.mark.parametrize("names", [*ALONE, ("openinference", "otel-genai")], ids="+".join)
async def test_the_same_in_async_code(ours, names, monkeypatch):
    with testing.capture() as seen, instrumented(monkeypatch, *names, **LABELS):
        listener = Listener(seen)
        await agent().ainvoke(QUESTION, config=CONFIG)
        assert listener.story() == ours


@pytest.mark.parametrize("names", [*ALONE, ("openinference", "otel-genai")], ids="+".join)
def test_the_same_when_streamed(ours, names, monkeypatch):
    with testing.capture() as seen, instrumented(monkeypatch, *names, **LABELS):
        listener = Listener(seen)
        for _ in agent().stream(QUESTION, config=CONFIG):
            pass
        assert listener.story() == ours


@pytest.mark.parametrize("names", [*ALONE, ("openinference", "otel-genai")], ids="+".join)
def test_runs_side_by_side_are_not_mixed_up(ours, names, monkeypatch):
    with testing.capture() as seen, instrumented(monkeypatch, *names, **LABELS) as watch:
        listener = Listener(seen)
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(agent().invoke, QUESTION, config=CONFIG) for _ in range(8)]:
                done.result()
        assert listener.story() == ours * 8
        assert len(watch._grouping) == 0
        assert not seen.pipeline.engine.snapshot().active


@pytest.mark.parametrize("names", ALONE, ids="+".join)
def test_without_contents_no_loop_is_invented(ours, names, monkeypatch):
    with testing.capture() as seen, instrumented(monkeypatch, *names, content=False, **LABELS):
        listener = Listener(seen)
        agent().invoke(QUESTION, config=CONFIG)
        [(_, _, steps, outcomes, measured)] = listener.story()
        [(_, _, our_steps, _, _)] = ours
        assert [sorted(step[1]) for step in steps] == [sorted(step[1]) for step in our_steps]
        assert [step[4] for step in steps] == [step[4] for step in our_steps]
        assert [failed for _, results, _ in outcomes for _, failed in results].count(True) == 1
        assert measured["loop_steps"] == 0
        assert measured["result_streak_max"] == 1  # the error's text is no captured content
