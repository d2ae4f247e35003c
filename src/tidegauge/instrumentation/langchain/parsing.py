"""What LangChain's callbacks carry, read by pure functions.

Nothing here looks at a message history but for its first human message (the task, once a run)
and the tool messages at its very end (the answers to the last turn).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from tidegauge.entropy import token_entropy
from tidegauge.events import ABSENT, CallResult, made
from tidegauge.instrumentation.langchain.control_flow import COMMANDS, SENDS
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.tracer import ModelRequest, ModelResponse
from tidegauge.tracer.conventions import CHAT, TEXT_COMPLETION
from tidegauge.tracer.model_calls import request_parameters
from tidegauge.values import exact_text, failure_text
from tidegauge.values.safe_reading import (
    MAX_COUNT,
    count,
    entry,
    first,
    is_a,
    label,
    labels,
    last,
    number,
    part,
)

AGENT_NAME: Final = "lc_agent_name"
"""Name in the metadata of chains: the agent that they are in, by ``create_agent(name=...)``."""

_PREFIX: Final = "tidegauge_"
_HUMAN: Final = ("human", "user")
_MAX_ITEMS: Final = 1_000
_FEW_ITEMS: Final = slice(_MAX_ITEMS)
"""Messages, and parts of one, that are looked at."""
_MAX_DOCUMENTS: Final = 100
_MAX_TOKENS: Final = 4_096
"""Tokens of an answer whose entropy is taken."""
_MAX_TOPS: Final = 100
_MAX_TAGS: Final = 100
_AS_TEXT: Final = ("json_schema", "json_mode")
_NODE_TAG: Final = "graph:step:"
_PUSHED: Final = "__pregel_push"
_ENTRY: Final = "__start__"
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
_USAGE: Final = ("input_tokens", "output_tokens")
_OLD_USAGE: Final = ("prompt_tokens", "completion_tokens")
_NO_TOKENS: Final = (None, None, None, None, None)
_DETAILS: Final = ("finish_reason", "stop_reason", "id", "model_name", "model")
_OWN_IDS: Final = ("lc_", "run-")
"""How the ids begin that LangChain gives to messages without one."""


_NOT_DESCRIBED: Final = ModelResponse()


class ModelAnswer(NamedTuple):
    """What a model call gave; ``None``: not said."""

    calls: tuple[ChosenCall, ...] = ()
    response: ModelResponse = _NOT_DESCRIBED
    entropy: float | None = None
    message: str | None = None  # its id in the graph's state
    tokens: int | None = None  # of both directions together
    content: object = ""


class NodeAnswer(NamedTuple):
    """What ``create_agent``'s node made of the calls that its model chose.

    Attributes:
        accepted: whether the calls that it answered are the agent's structured output.
        answered: ids of the calls that it answered itself, without running a tool.
    """

    accepted: bool = False
    answered: frozenset[str] = frozenset()


class NodeKey(NamedTuple):
    """What distinguishes an execution of a graph's node.

    Attributes:
        place: the same when the node is tried again.
        superstep: the same for all nodes of one superstep; ``None`` for a task of the functional
            API, which code calls.
    """

    place: str
    superstep: tuple[object, int | None] | None


def agent_identity(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What distinguishes agents in metadata, which inner chains inherit."""
    return label(metadata.get(_PREFIX + "agent")), label(metadata.get(AGENT_NAME))


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


def model_request(metadata: Mapping[str, Any], parameters: object, *, chats: bool) -> ModelRequest:
    """What a model is asked for."""
    model, provider = metadata.get("ls_model_name"), metadata.get("ls_provider")
    if type(model) is not str or not model:
        named, other = labels(parameters, ("model", "model_name"))
        model = label(model) or named or other or None
    if provider is not None and type(provider) is not str:
        provider = label(provider)
    return made(
        ModelRequest,
        (
            model,
            _PROVIDERS.get(provider, provider) if provider else None,
            CHAT if chats else TEXT_COMPLETION,
            request_parameters(parameters),
        ),
    )


def structured_output(options: object) -> bool:
    """Whether the model was asked for an answer of a given form: its tool call is that answer.

    A model that writes the form as its text (``json_schema``, ``json_mode``) may have tools, too:
    its calls are what it chose.
    """
    form = entry(options, "ls_structured_output_format")
    return form is not None and label(entry(entry(form, "kwargs"), "method")) not in _AS_TEXT


def offers_tools(parameters: object, options: object) -> bool:
    """Whether the model may choose tools."""
    tools = entry(parameters, "tools") or entry(parameters, "functions")
    return bool(part(tools, slice(1))) and not structured_output(options)


def model_answer(response: LLMResult, *, described: bool = True) -> ModelAnswer:
    """Tool calls and tokens of a model call.

    Args:
        described: whether finish reasons and so on are wanted, too, for its span.
    """
    given: Any = response.generations
    if type(given) is list and given and type(given[0]) is list and given[0]:
        generation = given[0][0]
    else:
        generation = first(first(given))
    if not issubclass(type(generation), Generation):
        return ModelAnswer()
    info: Any = generation.generation_info
    reason = None if info is None else label(entry(info, "finish_reason"))
    message: Any = generation.message if issubclass(type(generation), ChatGeneration) else None
    calls: tuple[ChosenCall, ...] = ()
    usage: object = None
    own: str | None = None
    message_id: str | None = None
    content: object = generation.text if message is None else ""
    answers = issubclass(type(message), AIMessage)
    if answers:
        info = message.response_metadata
        given = message.tool_calls
        if type(given) is not list or len(given) > _MAX_ITEMS:
            given = part(given, slice(_MAX_ITEMS))
        calls = tuple([_chosen_call(call) for call in given])
        usage, message_id, content = message.usage_metadata, message.id, message.content
        if type(message_id) is not str:
            message_id = label(message_id)
        message_id = message_id or None
        own = None if message_id is None or message_id.startswith(_OWN_IDS) else message_id
    names, output = _USAGE, response.llm_output
    if issubclass(type(output), dict) and dict.__len__(output):  # type: ignore[arg-type]
        own = label(entry(output, "id")) or own
        if usage is None:
            usage, names = entry(output, "token_usage"), _OLD_USAGE
    model = entropy = None
    if issubclass(type(info), dict) and dict.__len__(info):
        if described:
            finish, stop, known, name, other = labels(info, _DETAILS)
            reason = reason or finish or (stop if answers else None)
            own, model = known or own, name or other or None
        logprobs = dict.get(info, "logprobs")
        entropy = None if logprobs is None else action_entropy(logprobs)
    tokens = _NO_TOKENS if usage is None else _tokens(usage, names)
    read, written = tokens[:2]
    spent = None if read is None and written is None else (read or 0) + (written or 0)
    found = _NOT_DESCRIBED
    if described:
        reasons = (reason,) if reason else ()
        found = made(ModelResponse, (own or None, model, reasons, *tokens))
    return made(ModelAnswer, (calls, found, entropy, message_id, spent, content))


def last_shown(messages: object) -> tuple[object, int | None]:
    """The last message of what a model is shown, or its prompt, and how many messages there are."""
    if is_a(messages, str):
        return messages, None
    message = last(messages)
    if not is_a(message, BaseMessage):
        return ABSENT, None
    return _message_text(message), len(messages) if type(messages) is list else None


def _tokens(usage: Any, names: tuple[str, str]) -> tuple[int | None, ...]:
    """Tokens read and written, and of those: from a cache, to it, of the reasoning."""
    if not issubclass(type(usage), dict):
        return _NO_TOKENS
    read, written = dict.get(usage, names[0]), dict.get(usage, names[1])
    cached = dict.get(usage, "input_token_details")
    reasoned = dict.get(usage, "output_token_details")
    return (
        read if type(read) is int and 0 <= read <= MAX_COUNT else count(read),
        written if type(written) is int and 0 <= written <= MAX_COUNT else count(written),
        None if cached is None else count(entry(cached, "cache_read")),
        None if cached is None else count(entry(cached, "cache_creation")),
        None if reasoned is None else count(entry(reasoned, "reasoning")),
    )


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
    the message that answers the call is its result. If ``call_id`` is unknown, that is the last one
    after the model's. If there is none, the result is where the command goes.
    """
    if type(output) is ToolMessage:  # as nearly always
        status = output.status
        failed = (status if type(status) is str else exact_text(status)) == "error"
        return made(CallResult, (output.content, failed))
    if type(output) is list and len(output) <= _MAX_ITEMS and is_a(first(output), ToolMessage):
        return _joined([_one_result(item, call_id) for item in output])
    return _one_result(output, call_id)


def node_key(metadata: Mapping[str, Any], tags: object, graph: object) -> NodeKey | None:
    """The node that a chain executes; ``None``, it is part of one, or the functional API's
    entrypoint, which is all of its graph.

    Args:
        graph: anything that distinguishes the graph that it is in.
    """
    place = label(metadata.get("langgraph_checkpoint_ns"))
    if place is None:
        return None
    path = metadata.get("langgraph_path")
    if last(path) is True and label(first(path)) == _PUSHED:
        return NodeKey(place, None)
    is_node = any((label(tag) or "").startswith(_NODE_TAG) for tag in part(tags, slice(_MAX_TAGS)))
    if not is_node or label(first(metadata.get("langgraph_triggers"))) == _ENTRY:
        return None
    return NodeKey(place, (graph, count(metadata.get("langgraph_step"))))


def node_result(output: object) -> CallResult:
    """What a node did: its update of the state, messages by their contents and calls alone."""
    if is_a(output, COMMANDS):
        command = cast("Any", output)
        output = command.goto if command.update is None else command.update
    if type(output) is dict and len(output) <= _MAX_ITEMS and {*map(type, output)} == {str}:
        output = {name: _without_ids(value) for name, value in output.items()}
    return CallResult(_without_ids(output), False)


def hand_off_target(output: object) -> str | None:
    """The node to which a tool hands over; ``None``, it hands over to no single one."""
    if not is_a(output, COMMANDS):
        return None
    goto = cast("Any", output).goto
    target = first(goto) if len(part(goto, slice(2))) == 1 else goto
    if is_a(target, SENDS):
        target = cast("Any", target).node
    return label(target) or None


def retrieval(metadata: Mapping[str, Any], name: object) -> dict[str, Any]:
    """What is known of a retrieval when it begins."""
    return {
        "source": label(name),
        "provider": label(metadata.get("ls_vector_store_provider")),
        "model": label(metadata.get("ls_embedding_model")),
    }


def retrieved(documents: object) -> list[dict[str, Any]]:
    """The documents that a retriever found: their ids and texts."""
    found: list[dict[str, Any]] = []
    for document in part(documents, slice(_MAX_DOCUMENTS)):
        if is_a(document, Document):
            given: dict[str, Any] = {}
            known = label(document.id) or label(entry(document.metadata, "id"))
            if known is not None:
                given["id"] = known
            score = number(entry(document.metadata, "score"))
            if score is not None:
                given["score"] = score
            given["content"] = exact_text(document.page_content)
            found.append(given)
    return found


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


def message_count(inputs: object) -> int:
    """How many messages an agent is given."""
    messages = entry(inputs, "messages")
    return list.__len__(messages) if is_a(messages, list) else 0


def hand_off_result(command: object, given: int) -> CallResult:
    """What an agent did before it handed over: the texts of its messages, or the only one.

    Two agents that hand over to each other all the time, and do their part in between, repeat
    nothing; by its last message alone, every hand-off would be the same.

    Args:
        given: how many messages the agent was given. They are the first ones if the command carries
            the whole history; of a shorter one, its last message counts.
    """
    messages = entry(cast("Any", command).update, "messages")
    added = part(messages, slice(given, None))[-_MAX_ITEMS:]
    texts = [message.content for message in added if is_a(message, BaseMessage)]
    said = [text for text in texts if type(text) not in (str, list) or text]
    return CallResult(said, False) if len(said) > 1 else agent_result(command)


def tool_answers(messages: object) -> Iterator[tuple[str, CallResult]]:
    """The answers after the model's last calls, last first: ids of its calls, their results."""
    for message in reversed(part(messages, slice(-_MAX_ITEMS, None))):
        if is_a(message, AIMessage) and part(message.tool_calls, slice(1)):
            return
        if is_a(message, ToolMessage):
            yield message.tool_call_id, tool_result(message)


def node_answer(output: object) -> NodeAnswer:
    """What the node of ``create_agent`` that asks the model ends with.

    Structured output by a tool call (``ToolStrategy``) is answered there: if it has the form, the
    update has a ``structured_response``, else the answer says what is wrong with it.
    """
    accepted = False
    answered: set[str] = set()
    for item in part(output, slice(_MAX_ITEMS)) if is_a(output, list) else [output]:
        update = cast("Any", item).update if is_a(item, COMMANDS) else item
        accepted = accepted or entry(update, "structured_response") is not None
        answered.update([call_id for call_id, _ in tool_answers(entry(update, "messages"))])
    return NodeAnswer(accepted, frozenset(answered))


def replaces(output: Any, message: str, calls: frozenset[str | None]) -> bool:
    """Whether a node puts other calls in the place of those that a message has."""
    items: Sequence[Any] = (output,)
    if issubclass(type(output), list):
        short = type(output) is list and len(output) <= _MAX_ITEMS
        items = output if short else part(output, slice(_MAX_ITEMS))
    for item in items:
        update: Any = cast("Any", item).update if issubclass(type(item), COMMANDS) else item
        if not issubclass(type(update), dict):
            continue
        messages = dict.get(update, "messages")
        if type(messages) is not list or len(messages) > _MAX_REPLACED:
            messages = part(messages, slice(-_MAX_REPLACED, None))
        for found in messages:
            if not issubclass(type(found), AIMessage):
                continue
            known = found.id
            if (known if type(known) is str else label(known)) != message:
                continue
            chosen = part(cast("AIMessage", found).tool_calls, slice(_MAX_ITEMS))
            return calls.isdisjoint([label(entry(call, "id")) for call in chosen])
    return False


_MAX_REPLACED: Final = 4
"""Messages at the end of an update among which one is that replaces another."""


def _without_ids(value: object) -> object:
    """A message by what it says, also in a list; anything else unchanged."""
    if type(value) is list and len(value) <= _MAX_ITEMS:
        return [_message_text(item) for item in value]
    return _message_text(value)


def _message_text(value: object) -> object:
    if not is_a(value, BaseMessage):
        return value
    message = cast("BaseMessage", value)
    if not is_a(value, AIMessage):
        return message.content
    calls = part(cast("AIMessage", message).tool_calls, slice(_MAX_ITEMS))
    chosen = [(entry(call, "name"), entry(call, "args")) for call in calls]
    return [message.content, chosen] if chosen else message.content


def _chosen_call(call: Any) -> ChosenCall:
    if not issubclass(type(call), dict):
        return made(ChosenCall, ("tool", None, None))
    name, call_id = dict.get(call, "name"), dict.get(call, "id")
    if type(name) is not str:
        name = label(name)
    if type(call_id) is not str:
        call_id = label(call_id)
    return made(ChosenCall, (name or "tool", dict.get(call, "args"), call_id))


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
        return _command_result(output, call_id)
    return made(CallResult, (output, False))


def _command_result(command: Any, call_id: str | None) -> CallResult:
    update, goto = command.update, command.goto
    targets = part(goto, slice(_MAX_ITEMS)) or [goto]
    sent = [target.arg for target in targets if is_a(target, SENDS)]
    for state in (update, *sent):
        message = _answer(entry(state, "messages"), call_id)
        if message is not None:
            return _one_result(message, call_id)
    if update is not None and entry(update, "messages") is None:
        return CallResult(update, False)
    nodes = [label(target.node if is_a(target, SENDS) else target) for target in targets]
    if nodes == [None]:
        return CallResult(last_content(update), False)
    return CallResult(nodes[0] if len(nodes) == 1 else nodes, False)


def _answer(messages: object, call_id: str | None) -> ToolMessage | None:
    """The message that answers a call; if its id is unknown, the last one after the model's."""
    found: Any = [messages]
    if is_a(messages, (list, tuple)):
        found = part(messages, slice(-_MAX_ITEMS, None))
    for message in reversed(found):
        if is_a(message, ToolMessage) and call_id in (None, label(message.tool_call_id)):
            return cast("ToolMessage", message)
        if call_id is None and is_a(message, AIMessage):
            return None
    return None


def _joined(results: list[CallResult]) -> CallResult:
    if len(results) == 1:
        return results[0]
    errors = [result.error for result in results]
    return CallResult([result.outcome for result in results], True in errors)
