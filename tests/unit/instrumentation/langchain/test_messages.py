"""What the middleware says, as messages, and what is read back from them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import GraphOutput

import tidegauge
from tidegauge.events import Decision
from tidegauge.instrumentation.langchain import stopped_by
from tidegauge.instrumentation.langchain.messages import (
    nudge_message,
    refused_message,
    stop_text,
    stopped_message,
    unanswered_calls,
)

STOP = tidegauge.RunStopped(
    "r1",
    step=6,
    reason="loop_repeats",
    message="1 step, repeated twice, since step 2",
    metrics={"loop_repeats": 2, "novelty": 0.25, "frontier": None},
    state={"place": (1, 2), "unexplored": ((1, 3), frozenset("a")), "repeated": ("look",)},
)


def call(call_id: str | None, name: str = "look") -> Any:
    return {"name": name, "args": {}, "id": call_id, "type": "tool_call"}


def test_a_stop_comes_back_as_it_was_but_for_what_no_checkpoint_can_store() -> None:
    found = stopped_by([stopped_message(STOP, stop_text(STOP))])
    assert found is not None
    assert str(found) == str(STOP)
    assert (found.run, found.step, found.reason) == ("r1", 6, "loop_repeats")
    assert found.metrics == STOP.metrics
    assert found.state == {
        "place": [1, 2],
        "unexplored": [[1, 3], "frozenset({'a'})"],
        "repeated": ["look"],
    }


def through_a_checkpoint(message: AIMessage) -> Any:
    serializer = JsonPlusSerializer()
    return serializer.loads_typed(serializer.dumps_typed(message))


def through_json(message: AIMessage) -> Any:
    return AIMessage.model_validate_json(message.model_dump_json())


@pytest.mark.parametrize("trip", [through_a_checkpoint, through_json])
def test_a_stop_is_found_after_a_trip(trip: Any) -> None:
    found = stopped_by(trip(stopped_message(STOP, "stopped")))
    assert found is not None
    assert found.metrics == STOP.metrics


@pytest.mark.parametrize(
    "wrap",
    [
        lambda message: message,
        lambda message: [HumanMessage("look"), message],
        lambda message: {"messages": [HumanMessage("look"), message], "todos": []},
        lambda message: GraphOutput({"messages": (message,)}),
    ],
)
def test_a_stop_is_found_in_whatever_an_agent_gives(wrap: Any) -> None:
    assert stopped_by(wrap(stopped_message(STOP, "stopped"))) is not None
    assert stopped_by(wrap(AIMessage("done", response_metadata={"tidegauge": "?"}))) is None


@pytest.mark.parametrize("result", [None, "text", 3, {}, [], {"messages": []}, {"messages": None}])
def test_what_is_no_result_of_an_agent_was_not_stopped(result: object) -> None:
    assert stopped_by(result) is None


def test_a_thread_that_went_on_is_not_stopped_any_more() -> None:
    history = [stopped_message(STOP, "stopped"), HumanMessage("go on"), AIMessage("done")]
    assert stopped_by({"messages": history}) is None


def test_unanswered_calls_are_those_of_the_last_message_of_the_model() -> None:
    before = [AIMessage("", tool_calls=[call("1")])]
    said = AIMessage("", tool_calls=[call("1"), call("2")])
    answer = ToolMessage("nothing", tool_call_id="1")
    assert unanswered_calls([]) == []
    assert unanswered_calls([HumanMessage("look")]) == []
    assert unanswered_calls([*before, said]) == [call("1"), call("2")]
    assert unanswered_calls([*before, said, answer]) == [call("2")]
    assert unanswered_calls([*before, said, HumanMessage("well?")]) == [call("1"), call("2")]
    assert unanswered_calls([said, AIMessage("done")]) == []


def test_a_call_that_was_not_run_is_answered_with_an_error() -> None:
    message = refused_message(call("7"), "try the cellar")
    assert (message.content, message.tool_call_id, message.name) == ("try the cellar", "7", "look")
    assert message.status == "error"
    assert refused_message(call(None)).content == "This call was not run: the run was stopped."


def test_a_nudge_is_the_advice() -> None:
    message = nudge_message(Decision("nudge", "loop_repeats", "in short", advice="at length"))
    assert (message.content, message.additional_kwargs) == ("at length", {"lc_source": "tidegauge"})
    assert nudge_message(Decision("nudge", "loop_repeats", "in short")).content == "in short"
