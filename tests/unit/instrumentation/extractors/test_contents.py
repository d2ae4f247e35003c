"""Arguments and results, whichever way they are wrapped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from langchain_core.messages import ToolMessage

from tidegauge.errors import ConfigurationError
from tidegauge.events import ABSENT, Call
from tidegauge.instrumentation.extractors.contents import (
    TEXT_LIMIT,
    arguments_of,
    body_of,
    leaves,
    text_of,
    tool_names,
)

PAGE = {"url": "https://a.example/", "links": ["/b"]}
PAGE_TEXT = '{"url": "https://a.example/", "links": ["/b"]}'


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ({"path": "a.py"}, {"path": "a.py"}),
        ('{"path": "a.py"}', {"path": "a.py"}),
        ("cat a.py", "cat a.py"),
        ('["a"]', '["a"]'),
        ('{"path": ', '{"path": '),
        ({"input": "cat a.py"}, "cat a.py"),
        ({"__arg1": "cat a.py"}, "cat a.py"),
        ({"input": {"path": "a.py"}}, {"input": {"path": "a.py"}}),
        (None, {}),
        (7, {}),
        (["a"], {}),
    ],
)
def test_arguments(arguments, read):
    assert arguments_of(Call("tool", arguments)) == read


@pytest.mark.parametrize(
    "outcome",
    [
        PAGE,
        PAGE_TEXT,
        PAGE_TEXT.encode(),
        ToolMessage(PAGE_TEXT, tool_call_id="1"),
        ToolMessage([{"type": "text", "text": PAGE_TEXT}], tool_call_id="1"),
        [{"type": "text", "text": PAGE_TEXT}, {"type": "image", "data": "aGk="}],
        [SimpleNamespace(type="text", text=PAGE_TEXT)],
        {"content": [{"type": "text", "text": PAGE_TEXT}], "isError": False},
        {"role": "tool", "content": PAGE_TEXT, "tool_call_id": "1"},
        SimpleNamespace(content=PAGE_TEXT),
    ],
)
def test_every_wrapping_of_a_result_gives_the_same(outcome):
    assert body_of(outcome) == PAGE


@pytest.mark.parametrize(
    ("outcome", "body"),
    [
        (None, ""),
        (ABSENT, ""),
        (7, ""),
        ("plain", "plain"),
        ("{no json", "{no json"),
        (b"\xff", "\ufffd"),
        ({"content": "a document's"}, {"content": "a document's"}),
        (["a", "b"], ["a", "b"]),
        ([], []),
    ],
)
def test_other_results(outcome, body):
    assert body_of(outcome) == body


def test_only_the_beginning_of_a_long_text_is_read():
    long = "x" * (3 * TEXT_LIMIT)
    assert body_of(long) == "x" * TEXT_LIMIT
    assert len(str(body_of([{"type": "text", "text": long}] * 9))) == TEXT_LIMIT
    assert len(arguments_of(Call("tool", long))) == TEXT_LIMIT
    assert len(text_of([long, long])) == TEXT_LIMIT
    assert isinstance(body_of(f'["{long}"]'), str)


def test_a_value_that_holds_itself_is_read_up_to_a_limit():
    loop: list[object] = ["text"]
    loop.append(loop)
    assert {leaf.text for leaf in leaves(loop)} == {"text"}
    message = SimpleNamespace()
    message.content = message
    assert body_of(message) == ""


def test_leaves_keep_the_key_above_them_and_their_order():
    value = {"a": ["1", {"b": "2"}, "3"], "c": "4", "d": 5}
    assert [tuple(leaf) for leaf in leaves(value)] == [
        ("a", "1"),
        ("b", "2"),
        ("a", "3"),
        ("c", "4"),
    ]
    assert text_of({"doc-1": "text"}, keys=True) == "doc-1\ntext"


def test_tools_are_a_collection_of_names():
    assert tool_names(["a", "b"]) == {"a", "b"}
    assert tool_names(None) is None
    with pytest.raises(ConfigurationError, match=r"such as \['ab'\]"):
        tool_names("ab")


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"command": "ls -l", "timeout": 9, "quiet": True, "share": 0.5, "then": None},
        {"": "of no name", 7: "of a number"},
        {"path": "a.py", "lines": ["1", {"text": "2"}]},
        {"content": "x" * TEXT_LIMIT, "path": "a.py"},
        {"content": "x" * (TEXT_LIMIT + 1)},
        {f"name {number}": "text" for number in range(200)},
    ],
)
def test_texts_are_those_of_the_leaves(value, keys):
    assert text_of(value, keys=keys) == "\n".join(leaf.text for leaf in leaves(value, keys=keys))
