"""Models that give the calls of one answer the same id, or an empty one: as some servers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage

import tidegauge
from support.langchain_agents import (
    Reports,
    StepLog,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.looking_agents import look
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]
IDS = ["call-0", ""]

Calls = Sequence[tuple[str, dict[str, Any]]]
DESK, BOX, UNKNOWN = ("look", {"place": "desk"}), ("look", {"place": "box"}), ("fly", {})


def chooses_with(call_id: str, *rounds: Calls) -> ScriptedChatModel:
    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages) == len(rounds):
            return answers("none")
        message = chooses(*rounds[turns(messages)])
        for call in message.tool_calls:
            call["id"] = call_id
        return message

    return ScriptedChatModel(script=say)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call_id", IDS)
async def test_each_call_has_its_result(call_id: str, way: Callable[..., Any]) -> None:
    rounds = [[DESK, BOX], [BOX, BOX], [DESK, UNKNOWN], [UNKNOWN, DESK], [BOX]]
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        agent = create_agent(chooses_with(call_id, *rounds), [look], name="looker")
        await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [("looker", 5, "unknown")]
    for chosen, (calls, _, results) in zip(rounds, log.steps(reports[0].run), strict=True):
        assert [(call.action, call.arguments) for call in calls] == chosen
        for (name, arguments), result in zip(chosen, results, strict=True):
            assert result.error is (name == "fly")
            said = "fly is not a valid tool" if result.error else f"{arguments['place']} is empty"
            assert said in result.outcome


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call_id", IDS)
async def test_a_loop_is_stopped(call_id: str, way: Callable[..., Any]) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent = create_agent(chooses_with(call_id, *[[DESK, BOX]] * 9), [look], name="looker")
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert (stopped.value.reason, stopped.value.step) == ("loop_repeats", 3)
    assert [(r.steps, r.outcome) for r in reports] == [(4, "stopped")]
