"""What LangChain's callbacks carry, read by pure functions.

Nothing here looks at a message history but for its first human message (the task, once a run)
and the tool messages at its very end (the answers to the last round).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import LLMResult

from tidegauge.entropy import token_entropy
from tidegauge.events import CallResult
from tidegauge.instrumentation.langchain.control_flow import COMMANDS
from tidegauge.instrumentation.told import ChosenCall, added
from tidegauge.instrumentation.values import failure_text, is_a

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
        return added(self.input_tokens, self.output_tokens)


def agent_identity(metadata: Mapping[str, Any]) -> tuple[object, object]:
    """What tells one agent from another in metadata, which inner chains inherit."""
    return metadata.get(_PREFIX + "agent"), metadata.get("lc_agent_name")


def task_text(inputs: object) -> str | None:
    """The task in a root chain's input: its first human message, else its first text.

    >>> task_text({"messages": [("system", "be brief"), ("user", "find the key")]})
    'find the key'
    >>> task_text({"input": "find the key"})
    'find the key'
    """
    if is_a(inputs, Mapping):
        given = cast("Mapping[str, Any]", inputs)
        messages = given.get("messages")
        if messages is None:
            return next((value for value in given.values() if is_a(value, str)), None)
        inputs = messages
    if is_a(inputs, str):
        return cast("str", inputs)
    if is_a(inputs, BaseMessage):
        inputs = [inputs]
    if not is_a(inputs, list):
        return None
    return next(filter(None, map(_human_text, cast("list[Any]", inputs))), None)


def model_and_provider(
    metadata: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Names of the model and of its provider.

    Args:
        metadata: what came with the model call.
        parameters: its invocation parameters.
    """
    model = metadata.get("ls_model_name") or parameters.get("model") or parameters.get("model_name")
    provider = metadata.get("ls_provider")
    return (
        str(model) if model else None,
        _PROVIDERS.get(str(provider), str(provider)) if provider else None,
    )


def structured_output(options: Mapping[str, Any] | None) -> bool:
    """Whether the model was asked for an answer of a given form: its tool call is that answer."""
    return bool(options) and "ls_structured_output_format" in (options or ())


def model_answer(response: LLMResult) -> ModelAnswer:
    """Tool calls, tokens and finish reasons of a model call."""
    if not response.generations or not response.generations[0]:
        return ModelAnswer()
    generation = response.generations[0][0]
    told: Mapping[str, Any] = generation.generation_info or {}
    usage: Mapping[str, Any] | None = None
    calls: tuple[ChosenCall, ...] = ()
    reason = told.get("finish_reason")
    message = getattr(generation, "message", None)
    if isinstance(message, AIMessage):
        told = message.response_metadata
        reason = reason or told.get("finish_reason") or told.get("stop_reason")
        usage = message.usage_metadata
        calls = tuple(
            [ChosenCall(call["name"], call["args"], call["id"]) for call in message.tool_calls]
        )
    reasons = (str(reason),) if reason else ()
    entropy = action_entropy(told.get("logprobs"))
    if usage:
        return ModelAnswer(calls, usage["input_tokens"], usage["output_tokens"], reasons, entropy)
    usage = (response.llm_output or {}).get("token_usage") or {}
    tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return ModelAnswer(calls, *tokens, reasons, entropy)


def action_entropy(logprobs: object) -> float | None:
    """Entropy of an answer, in nats per token.

    Args:
        logprobs: ``response_metadata["logprobs"]`` as OpenAI's models and those with its API
            give it: ``content`` has an entry for each token, with its ``logprob`` and those of
            its ``top_logprobs``. Of a token without alternatives its own is taken.

    Returns:
        ``None`` when it has another form, or no token.

    >>> top = [{"logprob": -0.105}, {"logprob": -2.303}]
    >>> round(action_entropy({"content": [{"logprob": -0.105, "top_logprobs": top}]}), 3)
    0.325
    >>> action_entropy(None) is None
    True
    """
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(content, list):
        return None
    return token_entropy([_logprobs(token) for token in content if isinstance(token, Mapping)])


def tool_result(output: object) -> CallResult:
    """What a tool brought back, without what is new at every call (the ids of messages).

    A tool may return anything, a message, a LangGraph ``Command`` with messages in its update, or
    a list of those.
    """
    if is_a(output, ToolMessage):
        message = cast("ToolMessage", output)
        return CallResult(message.content, message.status == "error")
    if is_a(output, COMMANDS):
        update = cast("Any", output).update
        if is_a(update, Mapping):
            told = [tool_result(item) for item in _tool_messages(update.get("messages"))]
            return _joined(told) if told else CallResult(update, False)
        return CallResult(update, False)
    if type(output) is list and output and is_a(output[0], ToolMessage):
        return _joined([tool_result(item) for item in output])
    return CallResult(output, False)


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
    messages: Any = cast("Any", state).get("messages") if is_a(state, Mapping) else state
    if is_a(messages, list) and messages:
        messages = messages[-1]
    if is_a(messages, BaseMessage):
        return messages.content
    if is_a(messages, Mapping) and "content" in messages:
        return messages["content"]
    if is_a(messages, tuple) and len(messages) == 2:
        return messages[1]
    return state if messages is None else messages


def agent_result(output: object) -> CallResult:
    """What an agent brought back that is a step of another one: how its output ends."""
    return CallResult(last_content(output), False)


def tool_answers(messages: Sequence[Any]) -> Iterator[ToolMessage]:
    """The tool messages after the model's last one: what answers its calls, last first."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return
        if isinstance(message, ToolMessage):
            yield message


def _logprobs(token: Mapping[str, Any]) -> list[float]:
    """Of a token's alternatives, itself among them."""
    told = [top.get("logprob") for top in token.get("top_logprobs") or ()]
    return [
        logprob for logprob in told or [token.get("logprob")] if isinstance(logprob, int | float)
    ]


def _human_text(message: Any) -> str | None:
    if is_a(message, str):
        return cast("str", message)
    role: object
    content: Any
    if is_a(message, BaseMessage):
        role, content = message.type, message.content
    elif is_a(message, Mapping):
        role, content = message.get("role") or message.get("type"), message.get("content")
    elif is_a(message, tuple) and len(message) == 2:
        role, content = message
    else:
        return None
    if not is_a(role, str) or role not in _HUMAN:
        return None
    if is_a(content, list):
        blocks = (item.get("text") for item in content if is_a(item, Mapping))
        content = " ".join([text for text in blocks if is_a(text, str)])
    return content if is_a(content, str) else None


def _tool_messages(messages: object) -> list[ToolMessage]:
    if not is_a(messages, (list, tuple)):
        messages = [messages]
    return [message for message in cast("list[Any]", messages) if is_a(message, ToolMessage)]


def _joined(results: list[CallResult]) -> CallResult:
    if len(results) == 1:
        return results[0]
    errors = [result.error for result in results]
    return CallResult([result.outcome for result in results], True in errors)
