"""What LangChain's callbacks carry may be anything: none of its code is called."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from support.untouchable import untouchable
from tidegauge.events import CallResult
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    control_flow,
    parsing,
    run_starts,
)
from tidegauge.instrumentation.langchain.parsing import ModelAnswer
from tidegauge.runs.request_metadata import RunLabels
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import Capture, capture


def tool_message(content: str) -> ToolMessage:
    return ToolMessage(content, tool_call_id="c1")


def subclass(value: Any) -> Any:
    """The same value, its containers and texts of classes that must not be asked."""
    kind = type(value)
    if kind is dict:
        return untouchable(dict, {key: subclass(item) for key, item in value.items()})
    if kind in (list, tuple):
        return untouchable(kind, [subclass(item) for item in value])
    return untouchable(str, value) if kind is str else value


@pytest.mark.parametrize(
    "inputs",
    [
        "go",
        {"input": "go"},
        {"messages": ["go"]},
        {"messages": [("system", "be brief"), ("user", "go")]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}]},
        {"messages": [HumanMessage("go")]},
    ],
)
def test_the_task_is_read_from_any_subclass(inputs: Any) -> None:
    task = parsing.task_text(subclass(inputs))
    assert type(task) is str
    assert task == "go"


def test_the_task_is_looked_for_at_the_beginning_only() -> None:
    assert parsing.task_text({"messages": [0] * 1_000 + ["go"]}) is None
    assert parsing.task_text({number: number for number in range(1_000)} | {"input": "go"}) is None


@pytest.mark.parametrize(
    ("state", "content"),
    [
        ({"messages": [("user", "go")]}, "go"),
        ({"messages": [{"role": "user", "content": "go"}]}, "go"),
    ],
)
def test_what_a_subclass_of_a_state_ends_with(state: Any, content: str) -> None:
    assert str.__str__(parsing.last_content(subclass(state))) == content


@pytest.mark.parametrize("base", [object, dict, list, tuple, set, str, int, float])
def test_what_a_tool_brought_back_is_left_alone(base: type) -> None:
    value = untouchable(base)
    result = parsing.tool_result(value)
    assert result.outcome is value
    assert result.error is False


def test_a_list_of_messages_that_holds_itself() -> None:
    cycle: list[Any] = [tool_message("found")]
    cycle.append(cycle)
    outcome: Any = parsing.tool_result(cycle).outcome
    assert outcome[0] == "found"
    assert outcome[1] is cycle


@pytest.mark.parametrize("base", [object, dict, list, str, int, float])
def test_a_models_answer_that_holds_anything(base: type) -> None:
    value = untouchable(base)
    message = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    message.tool_calls[0]["args"] = value
    message.__dict__["response_metadata"] = {"finish_reason": value, "logprobs": value}
    message.__dict__["usage_metadata"] = {
        **{"input_tokens": value, "output_tokens": value},
        **{"input_token_details": value, "output_token_details": {"reasoning": value}},
    }
    message.__dict__["id"] = value
    response = LLMResult(generations=[[ChatGeneration(message=AIMessage(""))]])
    response.generations[0][0].__dict__["message"] = message
    answer = parsing.model_answer(response)
    assert answer.calls[0].arguments is value
    tokens, reasons = (0, ("0",)) if base is int else (None, ("0.0",) if base is float else ())
    response_id = reasons[0] if reasons else None
    read = (response_id, None, reasons, tokens, tokens, None, None, tokens)
    assert answer[1:] == (read, None, response_id, tokens, "")
    assert all(type(reason) is str for reason in answer.response.finish_reasons)


@pytest.mark.parametrize("base", [object, dict, list, str, int, float])
def test_parameters_that_hold_anything(base: type) -> None:
    value = untouchable(base)
    given = dict.fromkeys(("temperature", "max_tokens", "stop", "seed", "n", "stream"), value)
    given |= dict.fromkeys(("reasoning", "reasoning_effort", "response_format"), value)
    found = parsing.model_request({}, given, chats=True).parameters
    kinds = {type(one) for one in found.values()}
    assert kinds <= {str, int, float, tuple}
    assert parsing.retrieved([value]) == []


def test_names_of_calls_models_and_providers_are_plain() -> None:
    call = ChosenCall("tool", None, None)
    message = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    message.__dict__["tool_calls"] = [untouchable(object), {"name": untouchable(list)}]
    response = LLMResult(generations=[[ChatGeneration(message=AIMessage(""))]])
    response.generations[0][0].__dict__["message"] = message
    assert parsing.model_answer(response) == ModelAnswer((call, call))
    named = {"ls_model_name": untouchable(object), "ls_provider": untouchable(str, "xai")}
    assert parsing.model_request(named, {"model": "m"}, chats=True)[:2] == ("m", "x_ai")
    assert parsing.model_request({}, untouchable(object), chats=True)[:2] == (None, None)


def test_log_probabilities_that_are_no_numbers_are_left_out() -> None:
    tokens = [{"logprob": untouchable(float, -0.5)}, {"logprob": untouchable(object)}, None]
    plain = parsing.action_entropy({"content": [{"logprob": -0.5}]})
    assert parsing.action_entropy({"content": tokens}) == plain is not None
    assert parsing.action_entropy({"content": [{"logprob": -(1 << 100_000)}]}) is None


def test_only_so_many_tokens_and_messages_are_looked_at() -> None:
    many = [{"logprob": 0.0}] * 4_096 + [{"logprob": -1.0}]
    assert parsing.action_entropy({"content": many}) == 0.0
    messages = [tool_message("first"), *[tool_message("later")] * 1_000]
    assert {result.outcome for _, result in parsing.tool_answers(messages)} == {"later"}
    results: list[Any] = [tool_message("found")] * 1_001
    assert parsing.tool_result(results) == CallResult(results, False)


def test_an_error_is_distinguished_from_control_flow_by_its_real_class() -> None:
    error = untouchable(ValueError, "x")
    assert control_flow.is_failure(error)
    assert not control_flow.is_interrupt(error)
    assert control_flow.hand_off(error) is None
    ending = control_flow.ending(error)
    assert ending["reason"] == "Untouchable"
    assert ending["error"] is error


def opened(metadata: dict[str, Any], name: object) -> Any:
    return run_starts.root_run({}, metadata, labels=RunLabels(), name=name, model=None, around=None)


def test_names_and_threads_that_are_no_texts_are_left_out() -> None:
    odd = untouchable(object)
    metadata = {"lc_agent_name": odd, "thread_id": odd, "langgraph_checkpoint_ns": odd}
    event = opened(metadata, odd)
    assert (event.agent, event.conversation) == ("", None)
    assert run_starts.waiting_key(event, metadata) is None
    assert parsing.agent_identity(metadata) == (None, None)
    thread = uuid.uuid4()
    event = opened({"thread_id": thread}, untouchable(str, "a"))
    assert (type(event.agent), event.agent, event.conversation) == (str, "a", str(thread))


@pytest.fixture
def seen() -> Any:
    with capture() as seen:
        yield seen


def invoke(success: Callable[[Any], Any], metadata: dict[str, Any] | None = None) -> None:
    handler, root, call = TidegaugeCallbackHandler(success=success), uuid.uuid4(), uuid.uuid4()
    handler.on_chain_start({"name": "agent"}, {}, run_id=root, metadata=metadata)
    handler.on_tool_start({"name": untouchable(object)}, "", run_id=call, parent_run_id=root)
    handler.on_tool_end("empty", run_id=call)
    handler.on_chain_end({}, run_id=root)


def outcome(seen: Capture) -> object:
    [attributes] = [
        span.attributes for span in seen.spans if "tidegauge.outcome" in span.attributes
    ]
    return attributes["tidegauge.outcome"]


def test_success_is_taken_by_its_truth(seen: Capture) -> None:
    invoke(lambda output: "found it")
    assert outcome(seen) == "success"


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_success_that_fails_to_say_its_truth_is_not_known(seen: Capture) -> None:
    invoke(lambda output: untouchable(object))
    assert outcome(seen) == "unknown"
    assert internal_errors.counts() == {"value": 1}
