"""Replaces contents on spans by keyed digests before the spans are exported.

Loops are then detected in a receiver, and contents never leave the process: equal contents have
equal digests (HMAC-SHA256). What a receiver needs stays: what a span is, names of agents, models
and tools, ids, roles, names of arguments, numbers of tokens, types of exceptions, and where the
process runs. What may be a content and is not known is replaced.

This module uses nothing but OpenTelemetry: you can copy it to where tidegauge is not installed.
"""

from __future__ import annotations

import ast
import hmac
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Status

_MAX_PARSED: Final = 1 << 20
"""Characters of a JSON text that is looked into; a longer one is digested as a whole."""
_MAX_DEPTH: Final = 32

_TOKEN: Final = re.compile(
    r"""[bBuUrR]{0,2}(?:'''[^\\]*?(?:\\.[^\\]*?)*?'''|\"\"\"[^\\]*?(?:\\.[^\\]*?)*?\"\"\"
    |'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")
    |[\w.]+(?![\w.'"])|[\[\]{}(),:+-]|\s+""",
    re.VERBOSE | re.DOTALL,
)
"""What literals consist of. No comments, formatted texts, operators: nothing that hides others."""
_MAX_TOKENS: Final = 20_000

# What follows is written from the conventions, by test_convention_facts.py.
_STARTS: Final = (
    "agent.",
    "agent_",
    "ai.",
    "crew_",
    "gcp.vertex.agent.",
    "gen_ai.",
    "langfuse.",
    "langsmith.",
    "llm.",
    "lmnr.",
    "logfire.",
    "mlflow.",
    "openinference.",
    "pydantic_ai.",
    "smolagents.",
    "task_",
    "tool.",
    "tool_",
    "traceloop.",
)
# End of what is written.
_AGENTS: Final = re.compile("|".join([*map(re.escape, _STARTS), r"tidegauge\.task$"]))
_CONTENTS: Final = re.compile(
    r"(^|[._-])(inputs?|outputs?|prompts?|completions?|messages|arguments|args|kwargs|tool_calls?"
    r"|questions?|answers?|contents?|generations?|reasoning|thoughts?|instructions|observations?"
    r"|(request|response)_data|results?|responses?|requests?|query|conversation)(\.|$)"
)
"""Attributes of which a span of an agent has one, and words for contents, as parts of names in
conventions that are not known here: such a span is taken for an agent's, too. The contents of all
of its attributes are replaced, except those of the conventions for other things."""
_NO_AGENT: Final = re.compile(r"(db|messaging|faas)\.")
"""More conventions for other things, whose contents are replaced on an agent's span only."""
_GIVEN: Final = re.compile(r"[._](body|payload|parameters?)(\.|$)")
"""Words of theirs for contents that are replaced everywhere."""
_TRAFFIC: Final = r"http|url|server|client|network|rpc|user_agent|tidegauge(?!\.task$)"
_DEPLOYMENT: Final = (
    r"code|service|telemetry|deployment|thread|otel|process|host|k8s|cloud|session|container|os"
    r"|device"
)
_OTHERS: Final = re.compile(rf"({_TRAFFIC}|{_DEPLOYMENT})\.")
_WITHOUT_CONTENTS: Final = re.compile(rf"({_DEPLOYMENT})\.")
"""Of these, an attribute with a word for contents in its name is not the convention's, or is
``process.command_args``."""
_BODY: Final = re.compile(
    r"[._](body|payload|contents?|messages?|arguments|text|command_line)$"
    r"|^process\.environment_variable\.|^url\.(query|fragment)$"
)
"""Words of theirs that hold contents all the same."""
_TRAFFIC_NAME: Final = re.compile(rf"({_TRAFFIC})\.")
_URL: Final = re.compile(r"url\.(full|original)|http\.(url|target)")
"""Of an address, the query may hold what a tool looks for."""
_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.-]*://\S*")
_USER: Final = re.compile(r"//[^/?#@]*@")
"""The user and the password of an address."""
_ERROR: Final = re.compile(
    r"(^|[._])(exception|error)[._](message|stack|stacktrace|stack_trace|details?|description)$"
    r"|status_description$"
)
"""What is said of an error, which may quote contents."""
_WORD: Final = re.compile(r"[\w.:/@+~=,#-]{0,128}", re.ASCII)
"""A text that is no free text: an id, a version, an address, a name of code."""
_LONGEST_NAME: Final = 256
"""Characters of a name that may have spaces in it; what is longer is a text."""
_LONG_NAME: Final = re.compile(r"[!-~]{0,1024}")
"""A long id: a text of another script has no spaces, either."""
_EVENTS: Final = frozenset({"First Token Stream Event"})
"""Names of events that have spaces, of instrumentations that are known."""
_METADATA: Final = re.compile(r"(^|\.)(metadata|association\.properties)\.")
"""Metadata that users give: only what frameworks put there stays."""
_KNOWN_METADATA: Final = re.compile(
    r"(thread_id|session_id|conversation_id|checkpoint_ns|(lc|ls|langgraph|tidegauge(?!_task$))_\w+)$"
)
_SAFE: Final = re.compile(
    r"(^|_)(ids?|names?|type|kind|role|model|provider|version|status|(finish|stop)_reasons?|format"
    r"|namespace|operation|template)$"
)
"""Last words of attributes that hold no contents."""
_SAFE_NAMES: Final = frozenset({"gen_ai.system", "llm.system", "exception.escaped"})
_SAFE_KEYS: Final = frozenset(
    {
        *("role", "type", "name", "id", "index", "lc", "model", "status", "is_error"),
        *("tool_call_id", "toolCallId", "toolCallType", "toolName", "tool_name", "tool_use_id"),
        *("call_id", "finish_reason", "stop_reason"),
    }
)
"""Keys of messages and calls that hold no contents."""
_USAGE: Final = re.compile(r"usage|token", re.IGNORECASE)
_RESULT: Final = re.compile(r"output|result|response|completion", re.IGNORECASE)
_ARGUMENTS: Final = frozenset({"arguments", "args", "input", "inputs", "kwargs", "parameters"})
_ROLES: Final = frozenset(
    {"user", "human", "assistant", "ai", "system", "developer", "tool", "function", "model"}
)
_TYPES: Final = _ROLES | {
    *("text", "message", "constructor", "thinking", "reasoning", "input_text", "output_text"),
    *("tool_call", "tool_call_response", "tool_use", "tool_result", "tool-call", "tool-result"),
    *("function_call", "function_call_output", "AIMessageChunk"),
}
_CALL_IDS: Final = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "call_id"})
_SHAPED: Final = frozenset(
    {
        *("function", "function_call", "functionCall", "function_response", "functionResponse"),
        *("response_metadata", "tool_call"),
    }
)
"""Keys of mappings that are part of a message or a call, whatever they hold."""
_WRAPPERS: Final = tuple(
    map(
        frozenset, (("input_str",), ("inputs", "kwargs"), ("args", "kwargs"), ("outputs", "kwargs"))
    )
)
_WHOLE: Final = frozenset({"response", "result", "output"})
"""Keys of messages and calls under which a result is."""
_RESULTS: Final = frozenset({"result", "tool_response"})
"""Last words of attributes with a tool's result: a record in it may look like a message."""
_TOOL_MESSAGE: Final = re.compile(
    r"""content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") .*\btool_call_id='""", re.DOTALL
)
_HIDDEN: Final = "__REDACTED__"


class Redaction:
    """Replaces contents by digests, the same for equal contents under one key.

    Args:
        key: the secret; left out, a random one. Digests of several processes are only equal if
            they have the same key.
        keep: names of attributes, events and scopes that stay as they are.

    >>> result = {"gen_ai.tool.name": "look", "gen_ai.tool.call.result": "no key"}
    >>> Redaction(b"secret").attributes(result)
    {'gen_ai.tool.name': 'look', 'gen_ai.tool.call.result': 'sha:252fc354aa62eeb60b5238cf28cb5084'}
    """

    def __init__(self, key: bytes | None = None, *, keep: Iterable[str] = ()) -> None:
        self._key = os.urandom(32) if key is None else key
        self._keep = frozenset(keep)

    def digest(self, value: object) -> str:
        """The digest of a content; a JSON text equals the value that it is the text of."""
        if isinstance(value, str):
            message = _TOOL_MESSAGE.match(value[:_MAX_PARSED])
            if message is not None:  # OpenLIT's results, with a new id each time
                value = message[1]
            parsed = _parsed(value)
            data = value if parsed is None else _canonical(parsed)
        else:
            data = _canonical(value)
        found = hmac.new(self._key, data.encode("utf-8", "surrogatepass"), "sha256")
        return f"sha:{found.hexdigest()[:32]}"

    def attributes(
        self, attributes: Mapping[str, Any] | None, *, agent: bool | None = None
    ) -> dict[str, Any]:
        """Attributes with digests for contents.

        Args:
            attributes: of a span, an event, a link, a scope or a resource.
            agent: whether they are of the span of an agent, where every text that is not known is
                replaced, and not only those that are free texts; left out, it is found out.

        >>> deployment = {"service.name": "shop", "team": "search", "note": "Call Ann at home"}
        >>> Redaction(b"secret").attributes(deployment, agent=False)["team"]
        'search'
        >>> Redaction(b"secret").attributes(deployment, agent=False)["note"]
        'sha:60bc3ffc2cd8fe03afafed4d1000ec06'
        """
        given = dict(attributes or {})
        agent = _is_of_agent(given) if agent is None else agent
        return {name: self._attribute(name, value, agent=agent) for name, value in given.items()}

    def name(self, name: str) -> str:
        """The name of an event or a scope; one with spaces may be made of a content.

        >>> Redaction(b"secret").name("gen_ai.choice")
        'gen_ai.choice'
        >>> Redaction(b"secret").name("asked: where is the key?")
        'sha:2d5c5bf010ad56a8fe4a2d32fa0b7469'
        """
        if name in self._keep or name in _EVENTS or _WORD.fullmatch(name):
            return name
        return self.digest(name)

    def span_name(self, name: str) -> str:
        """The name of a span: it has spaces by convention, but is one line, and not long."""
        return name if len(name) <= _LONGEST_NAME and name.isprintable() else self.digest(name)

    def _attribute(self, name: str, value: Any, *, agent: bool) -> Any:
        if name in self._keep or isinstance(value, bool | int | float):
            return value
        if _ERROR.search(_words(name)):
            return self.digest(value) if value else value
        if _TRAFFIC_NAME.match(name) and _is_safe(name):
            if isinstance(value, list | tuple):
                return [self._attribute(name, one, agent=agent) for one in value]
            if _is_address(name, value):
                return self._address(value)
        if (_is_safe(name) and _is_name(value)) or (not agent and _is_fact(name, value)):
            return value
        last = name.rpartition(".")[2]
        if isinstance(value, str):
            return self._text(last, value)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            texts = [self._text(last, one) if isinstance(one, str) else one for one in value]
            return texts if all(isinstance(one, str) for one in value) else self._value(last, value)
        return self._value(last, value)

    def _address(self, text: str) -> str:
        """Without the user, and with a digest of the query."""
        address, *query = re.split(r"[?#]", _USER.sub("//", text, count=1), maxsplit=1)
        return "?".join([address, *map(self.digest, query)])

    def _text(self, key: str, value: str) -> str:
        if value in ("", _HIDDEN):
            return value
        if value[0] == value[-1] == '"':
            with suppress(ValueError):
                inner = json.loads(value)
                return json.dumps(self.digest(inner)) if inner else value
        parsed = _parsed(value)
        if parsed is None:
            return self.digest(value)
        found = self._value(key, parsed)
        return found if isinstance(found, str) else json.dumps(found)

    def _value(self, key: str, value: Any) -> Any:
        """A value that is no text; results are digested as a whole, arguments one by one."""
        if _USAGE.search(key) and _is_counts(value):
            return value
        if key == "metadata" and isinstance(value, dict):
            return {
                name: one if _KNOWN_METADATA.match(name) else self._walk(one, 0)[0]
                for name, one in value.items()
            }
        found, structured = self._walk(value, 0, result=key in _RESULTS)
        if structured or _RESULT.search(key):
            return found
        return self._arguments(value)

    def _arguments(self, value: Any) -> Any:
        """Arguments of a call: their names stay."""
        if isinstance(value, str):
            parsed = _parsed(value)
            if isinstance(parsed, dict):
                return json.dumps(self._arguments(parsed))
        if isinstance(value, dict):
            return {name: _blank(one) or self.digest(one) for name, one in value.items()}
        return value if _is_blank(value) else self.digest(value)

    def _walk(
        self, value: Any, depth: int, *, shaped: bool = False, result: bool = False
    ) -> tuple[Any, bool]:
        """The value with digests, and whether it is or has a message or a call.

        Args:
            value: it.
            depth: how many values are around it.
            shaped: whether it is part of a message.
            result: whether it is a result, where only messages with a call's result count.
        """
        if _is_blank(value):
            return value, False
        if depth < _MAX_DEPTH:
            if isinstance(value, str):
                parsed = _parsed(value)
                found, structured = None, False
                if parsed is not None:
                    found, structured = self._walk(parsed, depth + 1, shaped=shaped, result=result)
                if structured:
                    return json.dumps(found), True
            elif isinstance(value, list | tuple):
                role = value[0] if len(value) == 2 and not result else None
                if isinstance(role, str) and role in _ROLES:
                    return [role, self._walk(value[1], depth + 1)[0]], True
                walked = [self._walk(one, depth + 1, result=result) for one in value]
                if any(structured for _, structured in walked):
                    return [one for one, _ in walked], True
            elif isinstance(value, dict):
                shaped = shaped or _is_shaped(value, result=result)
                found, structured = self._mapping(value, depth, shaped=shaped, result=result)
                if structured:
                    return found, True
        return self.digest(value), False

    def _mapping(
        self, value: dict[str, Any], depth: int, *, shaped: bool, result: bool
    ) -> tuple[Any, bool]:
        found: dict[str, Any] = {}
        structured = shaped
        for key, one in value.items():
            if (shaped and (isinstance(one, bool) or _is_safe_value(key, one))) or (
                _USAGE.search(key) and _is_counts(one)
            ):
                found[key] = one
            elif shaped and key in _WHOLE:
                found[key] = one if _is_blank(one) else self.digest(one)
            elif key == "output_tools" and isinstance(one, list):
                found[key] = [{"name": tool.get("name")} for tool in one if isinstance(tool, dict)]
                structured = True
            else:
                part = key in _SHAPED and not (result and not shaped)
                found[key], inner = self._walk(one, depth + 1, shaped=part, result=result)
                structured |= inner
                if not inner and key in _ARGUMENTS:
                    found[key] = self._arguments(one)
        return found, structured


class RedactingExporter(SpanExporter):
    """Exports spans with digests in place of contents, also in what is around them.

    A span whose contents cannot be replaced is exported without attributes, events and links.

    Args:
        exporter: gets the spans.
        key: the secret, see :class:`Redaction`; processes of one fleet share it.
        keep: names of attributes, events and scopes that stay as they are.

    >>> from opentelemetry.sdk.trace.export import ConsoleSpanExporter
    >>> exporter = RedactingExporter(ConsoleSpanExporter(), key=b"secret")
    """

    def __init__(
        self, exporter: SpanExporter, key: bytes | None = None, *, keep: Iterable[str] = ()
    ) -> None:
        self._exporter = exporter
        self._redaction = Redaction(key, keep=keep)
        self._resource = (_NO_RESOURCE, _NO_RESOURCE)  # the last one, and what it became

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans without their contents."""
        return self._exporter.export([self._redacted(span) for span in spans])

    def shutdown(self) -> None:
        """Shut the exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)

    def _redacted(self, span: ReadableSpan) -> ReadableSpan:
        known: dict[str, Any] = {"name": "", "resource": _NO_RESOURCE}
        with suppress(Exception):  # anything may be on a span
            known["name"] = self._redaction.span_name(span.name)
            known["resource"] = self._redacted_resource(span.resource)
            known["instrumentation_scope"] = self._redacted_scope(span.instrumentation_scope)
            said = span.status.description
            status = Status(span.status.status_code, self._redaction.digest(said) if said else None)
            agent = _is_of_agent(span.attributes or {}) or None
            attributes = self._redaction.attributes
            return _copy(
                span,
                **known,
                status=status,
                attributes=attributes(span.attributes, agent=agent),
                events=[
                    Event(
                        self._redaction.name(one.name),
                        attributes(one.attributes, agent=agent or _is_agents(one.name)),
                        one.timestamp,
                    )
                    for one in span.events
                ],
                links=[
                    Link(one.context, attributes(one.attributes, agent=agent)) for one in span.links
                ],
            )
        return _copy(span, **known, status=Status(span.status.status_code))

    def _redacted_resource(self, given: Resource) -> Resource:
        last, found = self._resource
        if last is not given:  # a process has one
            attributes = self._redaction.attributes(given.attributes, agent=False)
            found = Resource(attributes, self._redaction.name(given.schema_url))
            self._resource = given, found
        return found

    def _redacted_scope(self, given: InstrumentationScope | None) -> InstrumentationScope | None:
        return given and InstrumentationScope(
            self._redaction.name(given.name),
            self._redaction.name(given.version or ""),
            self._redaction.name(given.schema_url or ""),
            self._redaction.attributes(given.attributes, agent=False),
        )


_NO_RESOURCE: Final = Resource({})


def _copy(span: ReadableSpan, **others: Any) -> ReadableSpan:
    return ReadableSpan(
        context=span.context,
        parent=span.parent,
        kind=span.kind,
        start_time=span.start_time,
        end_time=span.end_time,
        **others,
    )


def _is_of_agent(attributes: Mapping[str, Any]) -> bool:
    """Whether these are attributes of a span of an agent, as far as one can know.

    >>> _is_of_agent({"lmnr.span.type": "TOOL"}), _is_of_agent({"acme.llmOutput": "text"})
    (True, True)
    >>> _is_of_agent({"http.request.method": "GET", "db.query.text": "SELECT 1"})
    False
    """
    return any(
        _AGENTS.match(name)
        or (
            not isinstance(value, bool | int | float)
            and _CONTENTS.search(_words(name))
            and not (_OTHERS.match(name) or _NO_AGENT.match(name))
        )
        for name, value in attributes.items()
    )


def _is_agents(event: str) -> bool | None:
    """Whether an event is of an agent by its name; else its attributes decide."""
    return True if _AGENTS.match(event) else None


def _words(name: str) -> str:
    """A name in lower case, with an underscore where a word begins.

    >>> _words("ai.toolCall.requestData")
    'ai.tool_call.request_data'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _is_safe(name: str) -> bool:
    """Whether an attribute holds no contents.

    >>> _is_safe("gen_ai.request.model"), _is_safe("ai.toolCall.id"), _is_safe("input.value")
    (True, True, False)
    >>> _is_safe("http.request.method"), _is_safe("rpc.request.body")
    (True, False)
    >>> _is_safe("process.pid"), _is_safe("process.command_args")
    (True, False)
    """
    metadata = _METADATA.search(name)
    if metadata:
        return bool(_KNOWN_METADATA.match(name, metadata.end()))
    words = _words(name)
    if name in _SAFE_NAMES:
        return True
    if _OTHERS.match(name) and not _BODY.search(words):
        return not (_WITHOUT_CONTENTS.match(name) and _CONTENTS.search(words))
    return bool(_SAFE.search(words.rpartition(".")[2]))


def _is_address(name: str, value: object) -> bool:
    """Whether a text is the address of something.

    >>> _is_address("http.target", "/find?q=key"), _is_address("http.request.header.referer", "a")
    (True, False)
    """
    return isinstance(value, str) and bool(_URL.fullmatch(name) or _ADDRESS.fullmatch(value))


def _is_fact(name: str, value: object) -> bool:
    """Whether an attribute beside those of an agent's span holds no contents, as far as known.

    >>> _is_fact("db.query.text", "SELECT 1"), _is_fact("db.query.parameter.0", "key")
    (True, False)
    >>> _is_fact("team", "search"), _is_fact("team", "Ann and Bob"), _is_fact("acme.prompt", "find")
    (True, False, False)
    """
    words = _words(name)
    if _NO_AGENT.match(name):
        return not (_GIVEN.search(words) or (not name.startswith("db.") and _BODY.search(words)))
    if _OTHERS.match(name) or _AGENTS.match(name) or _CONTENTS.search(words):
        return False
    texts = value if isinstance(value, list | tuple) else (value,)
    return all(
        one is None
        or isinstance(one, bool | int | float)
        or (isinstance(one, str) and _WORD.fullmatch(one))
        for one in texts
    )


def _is_name(value: object) -> bool:
    """Whether this can be a name, an id and the like, or several of them: no long text.

    >>> _is_name("The finder of keys"), _is_name(["stop"]), _is_name("find the key " * 99)
    (True, True, False)
    """
    if isinstance(value, str):
        return len(value) <= _LONGEST_NAME or _LONG_NAME.fullmatch(value) is not None
    if isinstance(value, list | tuple):
        return all(map(_is_name, value))
    return value is None or isinstance(value, bool | int | float)


def _is_safe_value(key: str, value: object) -> bool:
    """Whether this is an id, a name, a role and the like in a message or a call."""
    if isinstance(value, list):
        return key == "id" and all(isinstance(one, str) for one in value)
    return isinstance(value, str | int | float) and key in _SAFE_KEYS and _is_name(value)


def _is_shaped(value: Mapping[str, Any], *, result: bool) -> bool:
    """Whether a mapping is a message, a part of one, a call, or what is wrapped around a call.

    Args:
        value: it.
        result: whether it is in a result, where only messages with a call's result count.
    """
    role, kind, keys = value.get("role"), value.get("type"), value.keys()
    if not keys.isdisjoint(_CALL_IDS) or "lc" in keys or any(keys >= one for one in _WRAPPERS):
        return True
    if result:
        return False
    said = isinstance(role, str) and role in _ROLES
    return said or (isinstance(kind, str) and kind in _TYPES)


def _is_counts(value: object) -> bool:
    """Whether there are only numbers."""
    if isinstance(value, dict):
        return all(map(_is_counts, value.values()))
    return value is None or isinstance(value, int | float)


def _is_blank(value: object) -> bool:
    return value is None or value in ("", [], (), {}, _HIDDEN)


def _blank(value: Any) -> Any:
    return value if isinstance(value, str) and _is_blank(value) else None


def _parsed(text: str) -> Any:
    """The list or mapping that a text is the JSON or literal of; ``None``: it is another text."""
    if len(text) <= _MAX_PARSED and text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
        with suppress(ValueError, TypeError, RecursionError):
            return json.loads(json.dumps(python_literal(text)))  # LiteLLM's are of Python
    return None


def python_literal(text: str) -> Any:
    """The value of a Python literal, at a cost that its length bounds.

    ``ast.literal_eval`` builds a tree of the whole text first, which takes gigabytes for a megabyte
    of ``[],``. So the tokens are counted before.

    Args:
        text: the literal.

    Raises:
        ValueError: it is none, or has more than 20,000 tokens.

    >>> python_literal("[{'q': None}]")
    [{'q': None}]
    """
    at = 0
    for _ in range(_MAX_TOKENS):
        token = _TOKEN.match(text, at)
        if token is None:
            break
        at = token.end()
        if at == len(text):
            try:
                return ast.literal_eval(text)
            except (SyntaxError, MemoryError, RecursionError, TypeError) as error:
                raise ValueError("no literal") from error
    raise ValueError("no literal, or one with too many tokens")


def _canonical(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return repr(value)
