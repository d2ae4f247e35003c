"""Digests of states, actions and results: 16 bytes, equal in every process.

Text is digested as it is; anything else by its canonical text (:mod:`tidegauge.values`), so
that the order of keys and white space don't matter. No user code runs here but the normaliser and
the key of a declared tool. A value that is not comparable (cyclic, too large, with a state that
cannot be read) has no digest. Metrics compare digests only: contents are gone once this has run.

:func:`words_of` gives checksums of the words of an action, enough to measure how alike two are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias
from zlib import crc32

import orjson
import xxhash

from tidegauge.events import Call, ToolDeclaration
from tidegauge.safety.guard import guarded
from tidegauge.streaming_metrics.normalise import (
    DEFAULT_KINDS,
    Normalise,
    Volatile,
    VolatileArguments,
    with_placeholders,
)
from tidegauge.values import (
    MAX_TEXT,
    Identities,
    Incomparable,
    PlainIdentity,
    ValueCache,
    canonical_digest,
    canonical_pieces,
    canonical_start,
    canonical_text,
    is_long,
    plain_text,
    type_name,
)
from tidegauge.values.exact_json import exact_json

Normaliser: TypeAlias = Callable[[str], str]
"""Strips from a text what changes without meaning anything, before it is digested."""

RECORDED: Final = "sha:"
"""What a digest in a recording begins with, where a value could stand."""

Digests: TypeAlias = tuple[bytes | None, bytes | None, Sequence[str], bytes | None]
"""The digest of what is compared, without noise; the exact digest where it differs; the kinds of
known noise that were left out; and the text that is compared. ``None``: not comparable, no other,
and not at hand."""

_digest = xxhash.xxh3_128_digest
_TASK_DIGEST: Final = "digest:"
MAX_KNOWN: Final = 256
"""Texts, by their digests, of which it is known what was found in them."""
MAX_NAME: Final = 200
"""Characters of the longest name of a round."""
_MAX_PARSED: Final = 512 * 1024
_FEW: Final = MAX_TEXT // 4
"""Characters that are no more than the longest text in bytes."""
_MAX_TREE: Final = 65_536
"""Characters of JSON that hold no more than a value may, even if all of them are ``[],``."""


def canonical_bytes(
    value: object, *, limit: int = MAX_TEXT, cache: ValueCache | None = None
) -> bytes | None:
    """The bytes that stand for ``value``: equal values have equal bytes, in every process.

    Dataclasses and pydantic models are taken as the mapping of their fields, arrays by type,
    shape and digest, other objects by their type and instance attributes. As in JSON, NaN and
    infinities are null.

    Args:
        value: anything; none of its code is run.
        limit: bytes of the longest text that is wanted.
        cache: what was read in the same report.

    Returns:
        ``None`` for a value that is not comparable or whose text is longer than ``limit``.

    >>> canonical_bytes({"b": 1, "a": [None, True]})
    b'{"a":[null,true],"b":1}'
    >>> canonical_bytes("text")
    b'text'
    """
    return canonical_text(value, limit, cache)


def arguments_bytes(
    arguments: object, *, limit: int = MAX_TEXT, cache: ValueCache | None = None
) -> bytes | None:
    """Canonical bytes of a call's arguments, or ``None`` as of :func:`canonical_bytes`.

    Text of up to 512 Ki characters that parses as a JSON object or array is taken as that value;
    other text exactly.

    >>> arguments_bytes('{"q": 1,  "a": 2}') == arguments_bytes({"a": 2, "q": 1})
    True
    """
    if issubclass(type(arguments), str):
        data = _json_bytes(arguments)
        if data is not None:
            return data if len(data) <= limit else None
    return canonical_text(arguments, limit, cache)


def arguments_start(arguments: object, limit: int) -> bytes:
    """At most ``limit`` bytes of the beginning of a call's arguments, as they are compared.

    What is not comparable stands there by the name of its type.
    """
    if issubclass(type(arguments), str):
        data = _json_bytes(arguments)
        if data is not None:
            return data[:limit]
    return canonical_start(arguments, limit)


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


def content_digest(
    value: object, normaliser: Normaliser | None = None, cache: ValueCache | None = None
) -> bytes | None:
    """Digest of a state or a result; ``None`` if it is not comparable.

    Args:
        value: anything; a long text or array is read in pieces.
        normaliser: applied to the canonical text of up to 1 MiB; what is longer is compared
            exactly. One that raises is counted as an internal error, and its value is not
            comparable.
        cache: what was read in the same report.

    >>> content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
    True
    >>> content_digest(object()) is None
    True
    """
    return content_digests(value, normaliser, cache)[0]


def content_digests(
    value: object, normaliser: Normaliser | None = None, cache: ValueCache | None = None
) -> Digests:
    """The same, with the exact digest and the noise where the normaliser changed something."""
    data: bytes | None = None
    if type(value) is str:
        if value.startswith(RECORDED):
            return _recorded(b"", value)
        if len(value) <= _FEW:  # as nearly always: the calls of canonical_text() are saved
            try:
                data = value.encode()
            except UnicodeEncodeError:
                data = None
    if data is None:
        data = canonical_text(value, cache=cache)
    if data is not None:
        return _both(b"", data, normaliser)
    return canonical_digest(value, cache), None, (), None


def task_digest(task: str) -> str:
    """What a task is known by once its words are forgotten; of one of these, itself.

    >>> task_digest("find the key") == task_digest(task_digest("find the key"))
    True
    """
    known = task.startswith(_TASK_DIGEST) and len(task) == len(_TASK_DIGEST) + 32
    return task if known else _TASK_DIGEST + (content_digest(task) or b"").hex()


def call_digest(
    call: Call, normaliser: Normaliser | None = None, cache: ValueCache | None = None
) -> bytes | None:
    """Digest of one call: its name and its arguments; ``None`` if they are not comparable."""
    return call_digests(call, normaliser, cache)[0]


def call_digests(
    call: Call, normaliser: Normaliser | None = None, cache: ValueCache | None = None
) -> Digests:
    """The same, with the exact digest and the noise where the normaliser changed something."""
    action, arguments = call.action, call.arguments
    kind = type(arguments)
    data: bytes | None = None
    if kind is str and arguments.startswith(RECORDED) and type(action) is str:  # type: ignore[attr-defined]
        return _recorded(action.encode("utf-8", "surrogatepass") + b"\0", arguments)  # type: ignore[arg-type]
    if kind is str or (kind is not dict and issubclass(kind, str)):
        data = _json_bytes(arguments)
    if data is None:
        if cache is None or not cache.knows(arguments):
            data = plain_text(arguments)
        if normaliser is not None and (data is None or len(data) > MAX_TEXT):
            data = canonical_text(arguments, cache=cache)
    if data is not None and type(action) is str and len(action) <= MAX_TEXT:
        try:
            name = action.encode()
        except UnicodeEncodeError:
            name = action.encode("utf-8", "surrogatepass")
        return _both(name + b"\0", data, normaliser)
    return _digest_of(action, arguments, cache), None, (), None


def round_digest(calls: Sequence[bytes]) -> bytes:
    """Digest of a round, from those of its calls: a multiset, whose order means nothing.

    >>> a, b = call_digest(Call("read", {"id": 1})), call_digest(Call("read", {"id": 2}))
    >>> round_digest([a, b]) == round_digest([b, a]) != round_digest([a])
    True
    """
    return calls[0] if len(calls) == 1 else _digest(b"".join(sorted(calls)))


def joined_digest(parts: Sequence[bytes]) -> bytes:
    """Digest of a multiset: the order of its parts means nothing."""
    return _digest(b"\0".join(sorted(parts)))


def round_name(calls: Sequence[Call]) -> str:
    """Name of a round: the names of its calls in alphabetical order, joined by ``+``."""
    name = "+".join(sorted([action_name(call.action) for call in calls]))
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def action_name(action: object) -> str:
    """The name of an action as a plain text."""
    if type(action) is str:
        return action
    try:
        return str(plain_identity(action))
    except ValueError:
        return type_name(type(action))


def plain_identity(value: object) -> PlainIdentity:
    """The id of a place, an entity or a task as a built-in value: safe as a key of a dictionary.

    Numbers, texts and bytes pass as they are, of subclasses and of numpy's scalars their plain
    value; tuples part by part, up to 16 levels and 1,000 parts. Anything else, and what is
    longer than 4,096 characters, is named by its type and digest. No ``__hash__`` or ``__eq__``
    of the user's runs, here or in a dictionary.

    Raises:
        ValueError: the value is not comparable.

    >>> plain_identity(("hall", 3))
    ('hall', 3)
    >>> plain_identity(frozenset("ab")) == plain_identity(frozenset("ba"))
    True
    """
    return Identities().plain(value)


def normaliser_of_arguments(normaliser: Normaliser | None) -> Normaliser | None:
    """What a normaliser of results applies to arguments: itself, unless it has another."""
    found: Normaliser | None = getattr(normaliser, "arguments", normaliser)
    return found


def without_noise(
    data: bytes, normaliser: Normaliser, kinds: list[str] | None = None
) -> bytes | None:
    """A canonical text as the normaliser gives it; if it changes nothing, the same object.

    Args:
        data: the text.
        normaliser: the normaliser.
        kinds: takes the kinds of known noise that are left out.

    Returns:
        ``None``: the normaliser failed, which is counted, or gave no text.
    """
    kind = type(normaliser)
    if issubclass(kind, Normalise) and kind.__call__ is Normalise.__call__:
        return normaliser.replaced(data, kinds)  # type: ignore[attr-defined, no-any-return]
    text = _called(normaliser, data.decode("utf-8", "surrogateescape"))
    if not issubclass(type(text), str):
        return None
    found = canonical_text(str.__str__(text), sys.maxsize)
    return data if found == data else found


@guarded("normaliser", default=None)
def _called(normaliser: Normaliser, text: str) -> object:
    return normaliser(text)


def _recorded(start: bytes, text: str) -> Digests:
    """The digests behind a text of a recording: ``sha:DIGEST/EXACT+noise+what the value says``."""
    digests, *marks = text.split("+")
    whole = digests.encode("utf-8", "surrogatepass")
    digest, exact, _ = whole.partition(b"/")
    kinds = [one for one in marks if one in DEFAULT_KINDS]
    return _digest(start + digest), _digest(start + whole) if exact else None, kinds, None


def _both(start: bytes, data: bytes, normaliser: Normaliser | None) -> Digests:
    """The digests of a text behind ``start``, which is not normalised."""
    exact = _digest(start + data)
    kinds: list[str] = []
    kind = type(normaliser)
    found: bytes | None = data
    if (
        (kind is Volatile or kind is VolatileArguments)
        and len(data) <= normaliser.max_length  # type: ignore[union-attr]
        and not normaliser.numbers  # type: ignore[union-attr]
    ):  # as nearly always: two calls less, and what is read again is not searched again
        clean = normaliser.clean  # type: ignore[union-attr]
        if exact not in clean:
            noise = normaliser.found(data)  # type: ignore[union-attr]
            if noise:
                found = with_placeholders(data, noise, kinds)
            else:
                if len(clean) >= MAX_KNOWN:
                    clean.clear()
                clean.add(exact)
    elif normaliser is not None:
        found = without_noise(data, normaliser, kinds)
    if found is data:
        return exact, None, (), data
    return (None if found is None else _digest(start + found)), exact, kinds, found


def _digest_of(action: object, arguments: object, cache: ValueCache | None) -> bytes | None:
    """Digest of the texts of a call, with a zero byte between; ``None``, one has no text."""
    hasher = xxhash.xxh3_128()
    cache = cache or ValueCache()
    try:
        for position, value in enumerate((action, arguments)):
            if position:
                hasher.update(b"\0")
            if is_long(value):
                hasher.update(cache.long(value))
                continue
            for piece in canonical_pieces(value, cache):
                hasher.update(piece)
    except Incomparable:
        return None
    return hasher.digest()


def _json_bytes(arguments: Any) -> bytes | None:
    """Canonical text of the JSON object or array that a text is; ``None``, it is none."""
    if str.__len__(arguments) > _MAX_PARSED:
        return None
    text = arguments if type(arguments) is str else str.__str__(arguments)
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = exact_json(text)
        if len(text) <= _MAX_TREE:
            with suppress(TypeError):
                return orjson.dumps(value, None, orjson.OPT_SORT_KEYS)
        return canonical_text(value)
    except (ValueError, RecursionError):
        return None


MAX_CHARACTERS: Final = 4_096
"""How much of a call's arguments is read: the rest counts as the same."""

_SEPARATED: Final = bytes(
    byte if byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") else ord(" ")
    for byte in bytes(range(256)).lower()
)
"""Translates UTF-8 to words with spaces between: of ASCII letters in lower case, digits,
underscores, and whatever is not of ASCII."""

_DIGEST: Final = b"sha:"


def words_of(
    calls: Sequence[Call],
    normaliser: Normaliser | None = None,
    texts: Sequence[bytes | None] = (),
) -> frozenset[int]:
    """The distinct words of a round: of each call, its name and the words of its arguments.

    Arguments of which only a digest is known are one word, which equals itself and nothing else.

    Args:
        calls: the calls as they are compared.
        normaliser: applied to the texts of their arguments.
        texts: these as they are compared, where they have been read already.

    >>> search = Call("search", {"query": "red  SHOES"})
    >>> words_of([search]) == words_of([Call("search", '{"query": "red shoes"}')])
    True
    >>> len(words_of([search]))
    4
    """
    found: list[bytes] = []
    for index, call in enumerate(calls):
        data = texts[index] if texts else None
        if data is None:
            data = arguments_start(call.arguments, 4 * MAX_CHARACTERS)
            if normaliser is not None:
                data = without_noise(data, normaliser) or b""
        elif len(data) > 4 * MAX_CHARACTERS:
            data = data[: 4 * MAX_CHARACTERS]
        name = f"@{call.action}".encode("utf-8", "surrogatepass")
        if data.startswith(_DIGEST):
            compared = data.partition(b"/")[0].partition(b"+")[0]
            found.append(name + b" " + compared)
            continue
        if data.isascii():
            read = data[:MAX_CHARACTERS]
        else:
            lower = data.decode("utf-8", "replace")[:MAX_CHARACTERS].lower()
            read = lower.encode("utf-8", "surrogatepass")
        found += read.translate(_SEPARATED).split()
        found.append(name)
    words = frozenset(map(crc32, found))
    hash(words)  # kept by it: sets that are not equal differ at once
    return words
