"""Digests of states, actions and outcomes: 16 bytes, equal in every process.

Text is digested as it is; anything else as canonical JSON, so that the order of keys and white
space don't matter. Metrics compare digests only: contents are gone once this has run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
import xxhash

from tidegauge._guard import guarded
from tidegauge.events import ABSENT, Call, CallResult, ToolDeclaration

__all__ = [
    "Normaliser",
    "arguments_bytes",
    "call_digest",
    "canonical_bytes",
    "compared_arguments",
    "content_digest",
    "outcome_digest",
    "round_digest",
    "round_name",
    "task_digest",
]

Normaliser: TypeAlias = Callable[[str], str]
"""Strips from a text what changes without meaning anything, before it is digested."""

_digest = xxhash.xxh3_128_digest
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_NON_STR_KEYS
    | orjson.OPT_SERIALIZE_NUMPY
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_MAX_NAME = 200
_TASK_DIGEST = "digest:"
_BYTES = (bytes, bytearray, memoryview)
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_HUGE_NUMBER = re.compile(r"\d{20}")


def canonical_bytes(value: object) -> bytes:
    """The bytes that stand for ``value``: equal values have equal bytes, in every process.

    Objects that JSON has no form for are taken by what they say of themselves (``tolist``,
    ``model_dump``, a ``__str__`` of their own), else by their type alone: an address in memory
    would make every call look new. What cannot be written at all (a list that holds itself)
    equals nothing, itself included. As in JSON, NaN and infinities are null.

    >>> canonical_bytes({"b": 1, "a": [None, True]})
    b'{"a":[null,true],"b":1}'
    >>> canonical_bytes("text")
    b'text'
    """
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError:
            return str.encode(value, "utf-8", "surrogatepass")
    if isinstance(value, _BYTES):
        return bytes(value)
    try:
        return orjson.dumps(value, default=_plain, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):  # orjson tells of any fault as a TypeError
        return _slow_bytes(value)


def arguments_bytes(arguments: object) -> bytes:
    """Canonical bytes of a call's arguments.

    Text that parses as a JSON object or array is taken as that value; other text exactly.

    >>> arguments_bytes('{"q": 1,  "a": 2}') == arguments_bytes({"a": 2, "q": 1})
    True
    """
    if isinstance(arguments, str) and arguments.lstrip()[:1] in ("{", "["):
        try:
            return canonical_bytes(_parsed(arguments))
        except (ValueError, RecursionError):
            pass
    return canonical_bytes(arguments)


def compared_arguments(declared: ToolDeclaration | None, arguments: object) -> object:
    """What is compared of a call's arguments: all of them, unless its tool has a key that works.

    >>> declared = ToolDeclaration(key=lambda arguments: arguments["q"])
    >>> compared_arguments(declared, {"q": "cats", "request_id": 7})
    'cats'
    """
    if declared is None or declared.key is None:
        return arguments
    found = _key_of(declared, arguments)
    return arguments if found is None else found[0]


@guarded("tool.key", default=None, interrupting="run")
def _key_of(declared: ToolDeclaration, arguments: object) -> tuple[object] | None:
    return None if declared.key is None else (declared.key(arguments),)


def content_digest(value: object, normaliser: Normaliser | None = None) -> bytes:
    """Digest of a state or an outcome."""
    data = canonical_bytes(value)
    return _digest(_normalised(data, normaliser) if normaliser else data)


def task_digest(task: str) -> str:
    """What a task is known by once its words are forgotten; of one of these, itself.

    >>> task_digest("find the key") == task_digest(task_digest("find the key"))
    True
    """
    known = task.startswith(_TASK_DIGEST) and len(task) == len(_TASK_DIGEST) + 32
    return task if known else _TASK_DIGEST + content_digest(task).hex()


def call_digest(call: Call, normaliser: Normaliser | None = None) -> bytes:
    """Digest of one call: its name and its arguments."""
    arguments = arguments_bytes(call.arguments)
    if normaliser:
        arguments = _normalised(arguments, normaliser)
    return _digest(canonical_bytes(call.action) + b"\0" + arguments)


def round_digest(calls: Sequence[bytes]) -> bytes:
    """Digest of a round, from those of its calls: a multiset, whose order means nothing.

    >>> a, b = call_digest(Call("read", {"id": 1})), call_digest(Call("read", {"id": 2}))
    >>> round_digest([a, b]) == round_digest([b, a]) != round_digest([a])
    True
    """
    return calls[0] if len(calls) == 1 else _digest(b"".join(sorted(calls)))


def outcome_digest(
    calls: Sequence[bytes],
    results: Sequence[CallResult],
    normaliser: Normaliser | None = None,
) -> bytes | None:
    """Digest of what a round brought back; ``None`` when none of its results is known.

    The digest of a single call is that of its outcome. Several are taken as a multiset of
    (call, outcome): the order in which parallel calls come back means nothing.

    Args:
        calls: digests of the round's calls.
        results: their results, in the same order; what there are more is nobody's.
        normaliser: applied to the outcomes' texts.
    """
    results = results[: len(calls)]
    if len(calls) == 1 and results:
        outcome = results[0].outcome
        return None if outcome is ABSENT else content_digest(outcome, normaliser)
    if all(result.outcome is ABSENT for result in results):
        return None
    pairs = [
        call + (b"" if result.outcome is ABSENT else content_digest(result.outcome, normaliser))
        for call, result in zip(calls, results, strict=False)
    ]
    return _digest(b"\0".join(sorted(pairs)))


def joined_digest(parts: Sequence[bytes]) -> bytes:
    """Digest of a multiset: the order of its parts means nothing."""
    return _digest(b"\0".join(sorted(parts)))


def plain_identity(value: object) -> Any:
    return value


def round_name(calls: Sequence[Call]) -> str:
    """Name of a round: the names of its calls in alphabetical order, joined by ``+``."""
    name = calls[0].action if len(calls) == 1 else "+".join(sorted([c.action for c in calls]))
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def _normalised(data: bytes, normaliser: Normaliser) -> bytes:
    return canonical_bytes(normaliser(data.decode("utf-8", "surrogateescape")))


def _parsed(text: str) -> Any:
    """The value of a JSON text."""
    if not _HUGE_NUMBER.search(text):  # orjson would make a float of it
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # lone surrogates, which json reads
    return json.loads(text)


def _plain(value: Any) -> Any:
    """What orjson cannot write by itself, as something that it can."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(canonical_bytes([item]).hex() for item in value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, int):
        return int(value)
    kind: Any = type(value)
    if not isinstance(value, type):
        for name in ("tolist", "model_dump"):
            dump = getattr(value, name, None)
            if callable(dump):
                return dump()
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            return f"{kind.__module__}.{kind.__qualname__}"
    return _ADDRESS.sub("", str(value))


def _slow_bytes(value: object) -> bytes:
    """For what orjson refuses: huge integers, lone surrogates, keys of odd kinds, deep nesting."""
    try:
        text = json.dumps(_tree(value), sort_keys=True, separators=(",", ":"))
    except Exception:  # noqa: BLE001 -- the caller's objects may raise anything
        return os.urandom(16)  # cannot be told from anything: then it repeats nothing
    return text.encode()


def _tree(value: Any) -> Any:
    """``value`` in what JSON has a form for, with text for every key."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {_key(key): _tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(item) for item in value]
    return _tree(_plain(value))


def _key(key: object) -> str:
    return key if type(key) is str else canonical_bytes(key).decode("utf-8", "surrogateescape")
