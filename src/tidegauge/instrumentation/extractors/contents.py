"""The arguments and the result of a call, however its framework wraps them.

Arguments come as a mapping, as text, or as text that is JSON. Results come as text, as JSON, as
a message with a ``content``, or as a list of content blocks. Everything is read up to a limit,
so that a huge result costs no more than a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Final, NamedTuple, TypeAlias

import orjson

from tidegauge.errors import ConfigurationError
from tidegauge.events import ABSENT, Call, Identity

TEXT_LIMIT: Final = 100_000
"""Characters read of one result, or of one call's arguments."""

_MAX_NODES: Final = 10_000
_MAX_WRAPPERS: Final = 20
_MAX_PLACE: Final = 200
_TEXT_ARGUMENTS: Final = ("input", "__arg1")  # under which frameworks pass text alone
_WRAPPERS: Final = ("role", "tool_call_id", "isError", "is_error", "tool_use_id")
SEARCHES: Final = frozenset(
    {"query", "q", "pattern", "regex", "search", "search_term", "search_query", "glob"}
)
"""Names of the arguments that say what to search for."""


Arguments: TypeAlias = Mapping[str, object] | str
"""Those of a call, by their names; or as text, where they have none."""


class Leaf(NamedTuple):
    """A text inside a JSON value, and the nearest key above it; ``""``, there is none."""

    key: str
    text: str


def tool_names(tools: Collection[str] | None) -> frozenset[str] | None:
    """The tools an extractor is for; ``None``, all that it can read.

    Raises:
        ConfigurationError: they are one text, and no collection of names.
    """
    if isinstance(tools, str):
        raise ConfigurationError(
            f"tools is {tools!r}; use a collection of names, such as [{tools!r}]"
        )
    return None if tools is None else frozenset(tools)


def arguments_of(call: Call) -> Arguments:
    """A call's arguments: by name, or as text where they have no names.

    >>> arguments_of(Call("open", '{"path": "a.py"}'))
    {'path': 'a.py'}
    >>> arguments_of(Call("bash", {"input": "ls"})), arguments_of(Call("look"))
    ('ls', {})
    """
    given = call.arguments
    if isinstance(given, Mapping):
        if len(given) == 1 and (name := next(iter(given))) in _TEXT_ARGUMENTS:
            only = given[name]
            if isinstance(only, str):
                return only[:TEXT_LIMIT]
        return given
    if isinstance(given, str):
        parsed = _parsed(given)
        return parsed if isinstance(parsed, Mapping) else given[:TEXT_LIMIT]
    return {}


def first_text(
    arguments: Arguments,
    names: Iterable[str],
    *,
    fits: Callable[[str], bool] = bool,
) -> str | None:
    """The first of the named arguments that is text and fits; the whole where it has no names."""
    if isinstance(arguments, str):
        return arguments if fits(arguments) else None
    for name in names:
        value = arguments.get(name)
        if isinstance(value, str) and fits(value):
            return value
    return None


def applies(tools: Collection[str] | None, call: Call) -> bool:
    """Whether an extractor for these tools reads the call."""
    return tools is None or call.action in tools


def search_place(call: Call, arguments: Arguments) -> Identity:
    """A search as a place: the tool and what it was asked.

    What a search finds leads on from it, as a page's links do. The same search again is the same
    place.

    >>> search_place(Call("grep"), {"pattern": "def  main", "path": "src"})
    ('grep', 'def main', 'src')
    """
    if isinstance(arguments, str):
        return (call.action, _shortened(arguments))
    texts = [value for value in islice(arguments.values(), 10) if isinstance(value, str)]
    return (call.action, *map(_shortened, texts))


def searches(arguments: Arguments) -> bool:
    """Whether the arguments say what to search for; text alone may always do."""
    return first_text(arguments, SEARCHES) is not None


def body_of(outcome: object) -> object:
    """The unwrapped result: text, or the value of JSON text.

    >>> body_of([{"type": "text", "text": "{\\"url\\": "}, {"type": "text", "text": "\\"/\\"}"}])
    {'url': '/'}
    """
    for _ in range(_MAX_WRAPPERS):
        if outcome is None or outcome is ABSENT:
            return ""
        if isinstance(outcome, bytes):
            outcome = outcome[:TEXT_LIMIT].decode("utf-8", "replace")
        if isinstance(outcome, str):
            parsed = _parsed(outcome) if outcome.lstrip()[:1] in ("{", "[") else None
            return outcome[:TEXT_LIMIT] if parsed is None else parsed
        if isinstance(outcome, Mapping):
            if "content" not in outcome or not any(name in outcome for name in _WRAPPERS):
                return outcome
            outcome = outcome["content"]
        elif isinstance(outcome, list | tuple):
            blocks = _block_texts(outcome)
            if blocks is None:
                return outcome
            outcome = "".join(blocks)
        elif hasattr(outcome, "content"):
            outcome = outcome.content
        else:
            return ""
    return ""


def leaves(value: object, *, keys: bool = False) -> Iterator[Leaf]:
    """The texts of a JSON value in their order, up to :data:`TEXT_LIMIT` characters of them.

    Args:
        value: text, or lists and mappings of it.
        keys: whether the keys of mappings are given as texts of their own.

    >>> list(leaves({"links": [{"url": "/a"}, "/b"]}))
    [Leaf(key='url', text='/a'), Leaf(key='links', text='/b')]
    """
    left = TEXT_LIMIT
    stack: list[Iterator[tuple[str, object]]] = [iter([("", value)])]
    for _ in range(_MAX_NODES):
        while stack and (item := next(stack[-1], None)) is None:
            stack.pop()
        if not stack or item is None or left <= 0:
            return
        key, node = item
        if isinstance(node, str):
            yield Leaf(key, node[:left])
            left -= len(node)
        elif isinstance(node, Mapping):
            stack.append(_entries(node, keys))
        elif isinstance(node, list | tuple):
            stack.append(zip(repeat(key), node))


def text_of(value: object, *, keys: bool = False) -> str:
    """The texts of a JSON value, a line each."""
    if isinstance(value, str):
        return value
    if type(value) is dict and len(value) < 100:  # as most arguments are
        texts: list[str] = []
        size = 0
        for name, entry in value.items():
            if isinstance(name, str) and name and keys:
                texts.append(name)
                size += len(name)
            if isinstance(entry, str):
                texts.append(entry)
                size += len(entry)
            elif not (entry is None or isinstance(entry, int | float)):
                break
        else:
            if size < TEXT_LIMIT:
                return "\n".join(texts)
    return "\n".join([leaf.text for leaf in leaves(value, keys=keys)])


def _entries(node: Mapping[object, object], keys: bool) -> Iterator[tuple[str, object]]:
    for name, entry in node.items():
        key = name if isinstance(name, str) else ""
        if keys and key:
            yield "", key
        yield key, entry


def _parsed(text: str) -> object:
    """The mapping or list in a JSON text; ``None`` if it is other text or too long."""
    if len(text) > TEXT_LIMIT or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        parsed: object = orjson.loads(text)
    except ValueError:
        return None
    return parsed


def _block_texts(blocks: Iterable[object]) -> list[str] | None:
    """The texts of content blocks; ``None``, it is a list of something else."""
    texts: list[str] = []
    typed = False
    for block in islice(blocks, _MAX_NODES):
        kind = block.get("type") if isinstance(block, Mapping) else getattr(block, "type", None)
        if kind is None:
            if not isinstance(block, str):
                return None
            texts.append(block[:TEXT_LIMIT])
            continue
        typed = True
        text = block.get("text") if isinstance(block, Mapping) else getattr(block, "text", None)
        if isinstance(text, str):
            texts.append(text[:TEXT_LIMIT])
        elif kind == "text":
            return None
    return texts if typed else None


def _shortened(text: str) -> str:
    return " ".join(text[:_MAX_PLACE].split())
