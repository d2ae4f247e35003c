"""What is read from LangChain's callbacks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.types import Command, Send

from tidegauge import RunStopped
from tidegauge.events import CallResult
from tidegauge.foreign_spans import json_values
from tidegauge.foreign_spans.json_values import langchain_result
from tidegauge.instrumentation.langchain import control_flow, parsing
from tidegauge.instrumentation.langchain.parsing import ModelAnswer
from tidegauge.runs.request_metadata import RunLabels, run_labels
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.tracer import ModelResponse


@pytest.mark.parametrize(
    ("inputs", "task"),
    [
        ({"messages": [SystemMessage("be brief"), HumanMessage("go"), HumanMessage("on")]}, "go"),
        ({"messages": [("system", "be brief"), ("human", "go")]}, "go"),
        ({"messages": [{"role": "user", "content": "go"}]}, "go"),
        ({"messages": [{"type": "human", "content": "go"}]}, "go"),
        ({"messages": HumanMessage("go")}, "go"),
        ({"messages": "go"}, "go"),
        ({"messages": ["go"]}, "go"),
        ({"messages": [HumanMessage([{"type": "text", "text": "go"}, {"type": "image"}])]}, "go"),
        ({"messages": [AIMessage("no task")]}, None),
        ({"messages": [7, ("user", "a", "b"), {"role": "user"}]}, None),
        ({"messages": []}, None),
        ({"number": 7, "input": "go"}, "go"),
        ([HumanMessage("go")], "go"),
        ("go", "go"),
        (Command(resume="yes"), None),
        (None, None),
        (7, None),
    ],
)
def test_the_task_is_the_first_human_message(inputs: object, task: str | None) -> None:
    assert parsing.task_text(inputs) == task


@pytest.mark.parametrize(
    ("t_max", "read"), [(30, 30), ("30", 30), (0, None), (-1, None), ("many", None), (None, None)]
)
def test_a_t_max_that_is_no_number_of_turns_is_not_said(t_max: object, read: int | None) -> None:
    assert run_labels({"tidegauge_t_max": t_max}).t_max == read


def test_what_was_said_about_the_run_around_is_inherited_and_no_label() -> None:
    around = {"tidegauge_agent": "chief", "tidegauge_task": "all", "other": 1}
    inside = {**around, "tidegauge_task": "a part", "tidegauge_memory": "on"}
    assert run_labels(inside, around) == RunLabels(task="a part", memory="on")
    assert run_labels(around).agent == "chief"


@pytest.mark.parametrize(
    ("metadata", "parameters", "read"),
    [
        ({"ls_model_name": "m", "ls_provider": "openai"}, {"model": "other"}, ("m", "openai")),
        ({"ls_provider": "google_vertexai"}, {"model": "m"}, ("m", "gcp.vertex_ai")),
        ({}, {"model_name": "m"}, ("m", None)),
        ({}, {}, (None, None)),
    ],
)
def test_model_and_provider(
    metadata: dict[str, Any], parameters: dict[str, Any], read: tuple[str | None, str | None]
) -> None:
    request = parsing.model_request(metadata, parameters, chats=True)
    assert request[:3] == (*read, "chat")


def test_the_parameters_of_a_request() -> None:
    given = {"temperature": 0, "max_tokens": 9, "stop": ["END"], "tools": [], "_type": "x"}
    request = parsing.model_request({"ls_provider": "mistralai"}, given, chats=False)
    assert request.operation == "text_completion"
    assert request.parameters == {
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ("END",),
    }


def chat(message: AIMessage, **fields: Any) -> LLMResult:
    return LLMResult(generations=[[ChatGeneration(message=message)]], **fields)


def test_a_chat_models_answer() -> None:
    message = AIMessage(
        "",
        tool_calls=[{"name": "look", "args": {"at": 1}, "id": "c1"}],
        usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
        response_metadata={"stop_reason": "tool_use", "id": "m-1", "model_name": "m"},
    )
    answer = parsing.model_answer(chat(message))
    response = ModelResponse("m-1", "m", ("tool_use",), 7, 3)
    assert answer == ModelAnswer((ChosenCall("look", {"at": 1}, "c1"),), response, tokens=10)


def test_tokens_of_caches_and_of_reasoning() -> None:
    usage = {
        "input_tokens": 70,
        "output_tokens": 30,
        "total_tokens": 100,
        "input_token_details": {"cache_read": 50, "cache_creation": 5},
        "output_token_details": {"reasoning": 20},
    }
    message = AIMessage("", usage_metadata=usage)
    response = parsing.model_answer(chat(message)).response
    assert response[3:] == (70, 30, 50, 5, 20)


@pytest.mark.parametrize(
    ("given", "read"),
    [("chatcmpl-7", "chatcmpl-7"), ("lc_run--7", None), ("run-7", None), (None, None)],
)
def test_the_id_of_a_message_is_that_of_the_response_if_the_provider_gave_it(
    given: str | None, read: str | None
) -> None:
    assert parsing.model_answer(chat(AIMessage("", id=given))).response.id == read


def test_older_forms_of_an_answer() -> None:
    usage = {"token_usage": {"prompt_tokens": 7, "completion_tokens": 0}}
    answer = parsing.model_answer(chat(AIMessage("hm"), llm_output=usage))
    assert (*answer.response[3:5], answer.tokens) == (7, 0, 7)
    line = Generation(text="a line", generation_info={"finish_reason": "length"})
    answer = parsing.model_answer(LLMResult(generations=[[line]]))
    assert answer == ModelAnswer(
        response=ModelResponse(finish_reasons=("length",)), content="a line"
    )
    assert answer.tokens is None
    for nothing in ([], [[]]):
        assert parsing.model_answer(LLMResult(generations=nothing)) == ModelAnswer()


def tool_message(content: str, **more: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id="c1", **more)


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("text", CallResult("text", False)),
        (None, CallResult(None, False)),
        ({"a": 1}, CallResult({"a": 1}, False)),
        (tool_message("found"), CallResult("found", False)),
        (tool_message("locked", status="error"), CallResult("locked", True)),
        (Command(update={"messages": [tool_message("found")], "n": 1}), CallResult("found", False)),
        (Command(update={"messages": tool_message("found")}), CallResult("found", False)),
        (Command(update={"n": 1}), CallResult({"n": 1}, False)),
        (Command(goto="end"), CallResult("end", False)),
        (Command(goto=["a", Send("b", {})]), CallResult(["a", "b"], False)),
        (Command(goto=Send("b", {"messages": [tool_message("sent")]})), CallResult("sent", False)),
        (Command(update={"messages": [AIMessage("yours")]}), CallResult("yours", False)),
        (Command(), CallResult(None, False)),
        ([tool_message("a"), tool_message("b", status="error")], CallResult(["a", "b"], True)),
        (["plain"], CallResult(["plain"], False)),
    ],
)
def test_a_tools_result_is_what_came_back(output: object, result: CallResult) -> None:
    assert parsing.tool_result(output) == result


def a_hand_off(ids: Sequence[str], extra: int = 0) -> Command[str]:
    """To another agent, with the whole history: an answer for each of these calls."""
    history = [HumanMessage(f"line {number}") for number in range(extra)]
    answers = [ToolMessage(f"answer to {call}", tool_call_id=call) for call in ids]
    return Command(goto="bert", update={"messages": [*history, *answers]}, graph=Command.PARENT)


@pytest.mark.parametrize(
    ("ids", "call_id", "answered"),
    [
        (["c1", "c2", "c3"], "c3", "c3"),
        (["c3", "c1", "c2"], "c3", "c3"),
        (["c1", "c2"], None, "c2"),
    ],
)
def test_the_result_of_a_hand_off_is_the_answer_to_its_call(
    ids: list[str], call_id: str | None, answered: str
) -> None:
    result = CallResult(f"answer to {answered}", False)
    assert parsing.tool_result(a_hand_off(ids), call_id) == result
    assert parsing.tool_result(a_hand_off(ids, extra=5_000), call_id) == result
    in_a_span = {"update": dumpd(a_hand_off(ids).update), "goto": "bert"}
    assert langchain_result(in_a_span, call_id=call_id) == (result, answered)


def test_a_hand_off_without_an_answer_to_its_call_has_where_it_goes_as_its_result() -> None:
    """The answers in the history are those to other calls."""
    result = CallResult("bert", False)
    update = {"messages": [*a_hand_off(["c1"]).update["messages"], AIMessage("the last word")]}
    for command, call_id in [
        (a_hand_off(["c1"]), "c2"),
        (Command(goto="bert", update=update), None),
    ]:
        assert parsing.tool_result(command, call_id) == result
        in_a_span = {"update": dumpd(command.update), "goto": "bert"}
        assert langchain_result(in_a_span, call_id=call_id) == (result, None)


def test_what_an_agent_did_before_it_handed_over() -> None:
    task, chosen = HumanMessage("task"), AIMessage("")
    answer = tool_message("to bert")
    for messages, result in [
        ([task, chosen, answer], "to bert"),
        ([task, chosen, tool_message("noted"), chosen, answer], ["noted", "to bert"]),
        ([answer], "to bert"),
        ([], []),
    ]:
        command = Command(goto="bert", update={"messages": messages})
        given = parsing.message_count({"messages": [task]})
        assert parsing.hand_off_result(command, given) == CallResult(result, False)
    assert parsing.hand_off_result(Command(goto="bert"), 1) == CallResult(None, False)
    assert parsing.message_count({"messages": "task"}) == parsing.message_count("task") == 0


@pytest.mark.parametrize(
    ("metadata", "tags", "key"),
    [
        ({"langgraph_step": 3}, ["graph:step:3"], ("write:1", ("graph", 3))),
        ({"langgraph_step": 3}, ["seq:step:1"], None),
        ({"langgraph_step": 3}, None, None),
        ({"langgraph_step": 0, "langgraph_triggers": ("__start__",)}, ["graph:step:0"], None),
        ({"langgraph_path": ("__pregel_push", ("a",), 0, True)}, ["seq:step:1"], ("write:1", None)),
    ],
)
def test_which_chains_are_nodes(metadata: Any, tags: Any, key: Any) -> None:
    given = {**metadata, "langgraph_checkpoint_ns": "write:1"}
    assert parsing.node_key(given, tags, "graph") == key
    assert parsing.node_key(metadata, tags, "graph") is None


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("text", "text"),
        (None, None),
        ({"draft": "x", "n": 1}, {"draft": "x", "n": 1}),
        ({"messages": [AIMessage("x", id="1"), tool_message("y")]}, {"messages": ["x", "y"]}),
        (Command(update={"draft": "x"}, goto="review"), {"draft": "x"}),
        (Command(goto="review"), "review"),
    ],
)
def test_what_a_node_did(output: object, result: object) -> None:
    assert parsing.node_result(output) == CallResult(result, False)


def test_calls_in_the_messages_of_a_node() -> None:
    call = {"name": "look", "args": {"place": "desk"}, "id": "c1", "type": "tool_call"}
    update = {"messages": AIMessage("", tool_calls=[call])}
    expected = {"messages": ["", [("look", {"place": "desk"})]]}
    assert parsing.node_result(update) == CallResult(expected, False)


def test_an_agent_said_what_stands_before_a_supervisors_messages() -> None:
    said, back = AIMessage("found"), {"response_metadata": {"__is_handoff_back": True}}
    appended = [AIMessage("Transferring back", **back), tool_message("Transferred back", **back)]
    shown = {"messages": dumpd([said, *appended])}
    assert json_values.last_content(shown) == "found"
    assert json_values.last_content({"messages": dumpd(appended)}) == "Transferred back"


def test_only_the_answers_to_the_last_round_are_read() -> None:
    messages = [
        HumanMessage("go"),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}]),
        tool_message("old"),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}]),
        tool_message("new"),
        HumanMessage("a nudge"),
    ]
    assert [result.outcome for _, result in parsing.tool_answers(messages)] == ["new"]


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (None, False),
        ({}, False),
        ({"stop": None}, False),
        ({"ls_structured_output_format": 1}, True),
    ],
)
def test_an_answer_of_a_given_form(options: dict[str, Any] | None, given: bool) -> None:
    assert parsing.structured_output(options) is given


STOPPED = RunStopped("r1", step=3, reason="steps", message="more than 3 steps")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ValueError("x"), True),
        (STOPPED, False),
        (GraphInterrupt(), False),
        (ParentCommand(Command()), False),
        (asyncio.CancelledError(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_control_flow_is_no_failure(error: BaseException, failure: bool) -> None:
    assert control_flow.is_failure(error) is failure
    assert ("error" in control_flow.ending(error)) is failure
    assert control_flow.is_interrupt(error) is isinstance(error, GraphInterrupt)


def test_how_a_run_ended() -> None:
    assert control_flow.ending(STOPPED) == {"outcome": "stopped", "reason": "steps"}
    error = ValueError("x")
    expected = {"outcome": "error", "reason": "ValueError", "error": error}
    assert control_flow.ending(error) == expected


def test_what_hands_over_and_what_resumes() -> None:
    command = Command(goto="bert")
    assert control_flow.hand_off(ParentCommand(command)) is command
    assert control_flow.hand_off(ValueError("x")) is None
    assert [control_flow.resumes(one) for one in (None, command, {}, "go")] == [
        True,
        True,
        False,
        False,
    ]


HALF = math.log(0.5)


def token(*alternatives: float, chosen: float | None = None) -> dict[str, Any]:
    """A token of an answer as OpenAI's chat completions give it."""
    tops = [{"token": str(n), "logprob": one, "bytes": [n]} for n, one in enumerate(alternatives)]
    reported = chosen if chosen is not None else alternatives[0]
    return {"token": "0", "logprob": reported, "bytes": [0], "top_logprobs": tops}


@pytest.mark.parametrize(
    ("content", "entropy"),
    [
        ([token(HALF, HALF)], math.log(2)),
        ([token(0.0), token(HALF, HALF)], math.log(2) / 2),
        ([token(chosen=HALF)], math.log(2)),
        ([token(chosen=HALF), {"token": "x"}, None], math.log(2)),
        ([token(chosen=0)], 0.0),
        ([token(HALF, HALF, -9_999.0)], math.log(2)),
        ([], None),
        ([{"token": "x"}], None),
        ([{"token": "x", "logprob": None, "top_logprobs": None}], None),
        (None, None),
        ("text", None),
    ],
)
def test_the_entropy_of_an_answer(content: object, entropy: float | None) -> None:
    logprobs = {"content": content, "refusal": None}
    message = AIMessage("x", response_metadata={"logprobs": logprobs, "finish_reason": "stop"})
    answer = parsing.model_answer(LLMResult(generations=[[ChatGeneration(message=message)]]))
    assert answer.entropy == (None if entropy is None else pytest.approx(entropy))


@pytest.mark.parametrize("logprobs", [None, [], "text", {}, {"tokens": ["x"]}, {"content": None}])
def test_log_probabilities_of_another_form_are_left_alone(logprobs: object) -> None:
    assert parsing.action_entropy(logprobs) is None


@pytest.mark.parametrize(
    ("state", "content"),
    [
        ({"messages": [HumanMessage("go"), AIMessage("gone")]}, "gone"),
        ({"messages": [("user", "go")]}, "go"),
        ({"messages": [{"role": "user", "content": "go"}]}, "go"),
        ({"messages": HumanMessage("go")}, "go"),
        ({"messages": []}, []),
        ({"n": 1}, {"n": 1}),
        ([AIMessage("a"), AIMessage("b")], "b"),
        (Command(update={"messages": [AIMessage("yours now")]}, goto="bert"), "yours now"),
        (Command(goto="bert"), None),
        ("go", "go"),
        (None, None),
    ],
)
def test_what_a_state_ends_with(state: object, content: object) -> None:
    assert parsing.last_content(state) == content
