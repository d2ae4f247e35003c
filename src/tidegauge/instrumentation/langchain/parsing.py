"""What LangChain's callbacks carry, read by pure functions.

Nothing here looks at a message history but for its first human message (the task, once a run)
and the tool messages at its very end (the answers to the last turn).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from tidegauge._canonical import exact_text
from tidegauge.entropy import token_entropy
from tidegauge.events import CallResult, made
from tidegauge.instrumentation.langchain.control_flow import COMMANDS
from tidegauge.instrumentation.turns import ChosenCall
from tidegauge.instrumentation.values import (
    count,
    entry,
    failure_text,
    first,
    is_a,
    label,
    last,
    number,
    part,
    total,
)

__all__ = [
    "ModelAnswer",
    "action_entropy",
    "agent_identity",
    "agent_result",
    "failed_result",
    "last_content",
    "model_and_provider",
    "model_answer",
    "structured_output",
    "task_text",
    "tool_answers",
    "tool_result",
]

_PREFIX: Final = "tidegauge_"
_HUMAN: Final = ("human", "user")
_MAX_ITEMS: Final = 1_000
"""Messages, and parts of one, that are looked at."""
_MAX_TOKENS: Final = 4_096
"""Tokens of an answer whose entropy is taken."""
_MAX_TOPS: Final = 100
_PROVIDERS: Final = {  # LangChain's names -> those of the GenAI conventions
    "amazon_bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "ibm": "ibm.watsonx.ai",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
}


class ModelAnswer(NamedTuple):
    """What a model call gave; ``None``: not said."""

    calls: tuple[ChosenCall, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reasons: tuple[str, ...] = ()
    entropy: float | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of both directions together."""
        return total(self.input_tokens, self.output_tokens)


def agent_identity(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What distinguishes agents in metadata, which inner chains inherit."""
    return label(metadata.get(_PREFIX + "agent")), label(metadata.get("lc_agent_name"))


def task_text(inputs: object) -> str | None:
    """The task in a root chain's input: its first human message, else its first text.

    >>> task_text({"messages": [("system", "be brief"), ("user", "find the key")]})
    'find the key'
    >>> task_text({"input": "find the key"})
    'find the key'
    """
    if is_a(inputs, dict):
        messages = entry(inputs, "messages")
        if messages is None:
            values = islice(dict.values(cast("dict[Any, Any]", inputs)), _MAX_ITEMS)
            return next((exact_text(value) for value in values if is_a(value, str)), None)
        inputs = messages
    if is_a(inputs, str):
        return exact_text(inputs)
    if is_a(inputs, BaseMessage):
        inputs = [inputs]
    if not is_a(inputs, list):
        return None
    return next(filter(None, map(_human_text, part(inputs, slice(_MAX_ITEMS)))), None)


def model_and_provider(
    metadata: Mapping[str, Any], parameters: object
) -> tuple[str | None, str | None]:
    """Names of the model and of its provider.

    Args:
        metadata: what came with the model call.
        parameters: its invocation parameters.
    """
    named = (entry(parameters, name) for name in ("model", "model_name"))
    models = map(label, (metadata.get("ls_model_name"), *named))
    provider = label(metadata.get("ls_provider"))
    return next(filter(None, models), None), _PROVIDERS.get(provider or "", provider) or None


def structured_output(options: object) -> bool:
    """Whether the model was asked for an answer of a given form: its tool call is that answer."""
    return entry(options, "ls_structured_output_format") is not None


def model_answer(response: LLMResult) -> ModelAnswer:
    """Tool calls, tokens and finish reasons of a model call."""
    generation = first(first(response.generations))
    if not is_a(generation, Generation):
        return ModelAnswer()
    info: object = generation.generation_info
    reason = label(entry(info, "finish_reason"))
    message: Any = generation.message if is_a(generation, ChatGeneration) else None
    calls: tuple[ChosenCall, ...] = ()
    tokens: tuple[int | None, int | None] = (None, None)
    if is_a(message, AIMessage):
        info = message.response_metadata
        reason = reason or label(entry(info, "finish_reason")) or label(entry(info, "stop_reason"))
        calls = tuple(map(_chosen_call, part(message.tool_calls, slice(_MAX_ITEMS))))
        tokens = _tokens(message.usage_metadata, "input_tokens", "output_tokens")
    if tokens == (None, None):
        usage = entry(response.llm_output, "token_usage")
        tokens = _tokens(usage, "prompt_tokens", "completion_tokens")
    reasons = (reason,) if reason else ()
    logprobs = entry(info, "logprobs")
    entropy = None if logprobs is None else action_entropy(logprobs)
    return made(ModelAnswer, (calls, *tokens, reasons, entropy))


def action_entropy(logprobs: object) -> float | None:
    """Entropy of an answer, in nats per token.

    Args:
        logprobs: ``response_metadata["logprobs"]`` as OpenAI's models and those with its API
            give it: ``content`` has an entry for each token, with its ``logprob`` and those of
            its ``top_logprobs``. Of a token without alternatives its own is taken, and of a long
            answer its first 4,096 tokens.

    Returns:
        ``None`` when it has another form, or no token.

    >>> top = [{"logprob": -0.105}, {"logprob": -2.303}]
    >>> round(action_entropy({"content": [{"logprob": -0.105, "top_logprobs": top}]}), 3)
    0.325
    >>> action_entropy(None) is None
    True
    """
    tokens = part(entry(logprobs, "content"), slice(_MAX_TOKENS))
    return token_entropy([_logprobs(token) for token in tokens])


def tool_result(output: object, call_id: str | None = None) -> CallResult:
    """What a tool returned, without what is new at every call (the ids of messages).

    A tool may return anything, a message, a LangGraph ``Command`` with messages in its update, or
    a list of those. A command that hands over to another agent may carry the whole history: only
    the message that answers the call is its result, or the last one if ``call_id`` is unknown.
    """
    if type(output) is list and len(output) <= _MAX_ITEMS and is_a(first(output), ToolMessage):
        return _joined([_one_result(item, call_id) for item in output])
    return _one_result(output, call_id)


def failed_result(error: BaseException) -> CallResult:
    """What a tool's exception says."""
    return CallResult(failure_text(error), True)


def last_content(state: object) -> object:
    """What a graph's input, output or command ends with: content of its last message, or itself.

    >>> last_content({"messages": [("user", "find the key"), ("ai", "there is none")]})
    'there is none'
    """
    if is_a(state, COMMANDS):
        state = cast("Any", state).update
    messages: Any = entry(state, "messages") if is_a(state, dict) else state
    if is_a(messages, list) and part(messages, slice(1)):
        messages = last(messages)
    if is_a(messages, BaseMessage):
        return messages.content
    if is_a(messages, dict) and dict.__contains__(messages, "content"):
        return entry(messages, "content")
    if len(part(messages, slice(3))) == 2:  # role and content; a list from a checkpoint
        return last(messages)
    return state if messages is None else messages


def agent_result(output: object) -> CallResult:
    """What an agent returned that is a step of another one: how its output ends."""
    return CallResult(last_content(output), False)


def tool_answers(messages: object) -> Iterator[tuple[str, CallResult]]:
    """The answers after the model's last message, last first: ids of its calls, their results."""
    for message in reversed(part(messages, slice(-_MAX_ITEMS, None))):
        if is_a(message, AIMessage):
            return
        if is_a(message, ToolMessage):
            yield message.tool_call_id, tool_result(message)


def _tokens(usage: object, read: str, written: str) -> tuple[int | None, int | None]:
    return count(entry(usage, read)), count(entry(usage, written))


def _chosen_call(call: object) -> ChosenCall:
    name, call_id = label(entry(call, "name")), label(entry(call, "id"))
    return made(ChosenCall, (name or "tool", entry(call, "args"), call_id))


def _logprobs(token: object) -> list[float]:
    """Of a token's alternatives, itself among them."""
    tops = part(entry(token, "top_logprobs"), slice(_MAX_TOPS))
    values = map(number, [entry(top, "logprob") for top in tops] or [entry(token, "logprob")])
    return [logprob for logprob in values if logprob is not None]


def _human_text(message: Any) -> str | None:
    if is_a(message, str):
        return exact_text(message)
    role: object
    content: Any
    if is_a(message, BaseMessage):
        role, content = message.type, message.content
    elif is_a(message, dict):
        role = exact_text(entry(message, "role")) or entry(message, "type")
        content = entry(message, "content")
    elif len(pair := part(message, slice(3))) == 2:  # a list from a checkpoint
        role, content = pair
    else:
        return None
    if exact_text(role) not in _HUMAN:
        return None
    if is_a(content, list):
        blocks = [entry(block, "text") for block in part(content, slice(_MAX_ITEMS))]
        content = " ".join([exact_text(text) for text in blocks if is_a(text, str)])
    return exact_text(content) if is_a(content, str) else None


def _one_result(output: object, call_id: str | None) -> CallResult:
    if is_a(output, ToolMessage):
        message = cast("ToolMessage", output)
        return made(CallResult, (message.content, exact_text(message.status) == "error"))
    if is_a(output, COMMANDS):
        update = cast("Any", output).update
        answer = _answer(entry(update, "messages"), call_id)
        return CallResult(update, False) if answer is None else _one_result(answer, call_id)
    return made(CallResult, (output, False))


def _answer(messages: object, call_id: str | None) -> ToolMessage | None:
    """The message that answers a call, else the last one that answers any."""
    found: Any = [messages]
    if is_a(messages, (list, tuple)):
        found = part(messages, slice(-_MAX_ITEMS, None))
    answers: list[ToolMessage] = [item for item in found if is_a(item, ToolMessage)]
    for message in answers:
        if call_id is not None and label(message.tool_call_id) == call_id:
            return message
    return answers[-1] if answers else None


def _joined(results: list[CallResult]) -> CallResult:
    if len(results) == 1:
        return results[0]
    errors = [result.error for result in results]
    return CallResult([result.outcome for result in results], True in errors)
