"""Whatever a tool is given and brings back: extractors don't raise, and their cost is bounded."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import (
    TEXT_LIMIT,
    CodingAgent,
    Documents,
    Files,
    TodoList,
    WebPages,
)
from tidegauge.runs.extraction import (
    MAX_ITEMS,
    Extractor,
    extract_observation,
    extract_uses,
)

EXTRACTORS: list[Extractor] = [
    WebPages(),
    WebPages(same_site=False),
    Files(working_directory="/repo", identifiers=True),
    Documents(),
    CodingAgent(working_directory="/repo"),
    TodoList(progress=True),
    TodoList(tools=["tool", "ls"], names_by="id"),
]

KEYS = ["url", "page", "path", "file", "command", "query", "pattern", "todos", "plan", "content"]
KEYS += [
    "status",
    "done",
    "id",
    "type",
    "text",
    "role",
    "isError",
    "href",
    "links",
    "name",
    "input",
]
PIECES = ["http://a.example/", "//", ":80", "?utm_x=1", "#", "src/a.py", ":12:", "d1:x", "\n", "\r"]
PIECES += [
    "<a href=",
    '"',
    "'",
    ">",
    "](",
    ")",
    "- [ ] x",
    "- [x] ",
    "1. ",
    "├── ",
    "│   ",
    "ls ",
    "cat ",
]
PIECES += [
    "grep ",
    "| ",
    "&& ",
    "cd ",
    "> ",
    "<<",
    "{",
    "}",
    "[",
    "]",
    "+++ b/",
    "-rw-r--r-- ",
    "URL: ",
]

texts = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), texts), inner, max_size=4),
    ),
    max_leaves=12,
)
wrapped = st.one_of(values, values.map(lambda value: json.dumps(value, default=str)))
calls = st.builds(
    Call, st.sampled_from(["tool", "ls", "cat", "open", "find"]), wrapped, declared=st.none()
)
results = st.builds(CallResult, wrapped, st.sampled_from([None, False, True]))


@given(call=calls, result=results)
def test_no_call_makes_an_extractor_raise(call, result):
    for extractor in EXTRACTORS:  # a fault would be raised: the tests ask for it
        seen = extract_observation([extractor], [call], [result])
        assert seen == extract_observation([extractor], [call], [result])
        assert seen.place is None or seen.place not in (seen.exits or ())
        # What is not listed is a call itself.
        listed = [one for one in seen.achieved if not (isinstance(one, tuple) and one[0] == "done")]
        assert set(listed) <= {task.id for task in seen.tasks}
        assert extract_uses([extractor], [call]) == extract_uses([extractor], [call])
        if result.error:
            assert not any(seen)


UNITS = [
    "<",
    "<a ",
    "<a href=",
    '<a href="',
    "<a href='",
    "<a href=x>",
    "<!--",
    "](",
    "[x](",
    "](a(",
]
UNITS += [
    "http://",
    "http://a.b/ ",
    "https://a.b/)",
    "URL: ",
    " ",
    "\n",
    "\t",
    "\r\n",
    "/",
    "a/",
    "../",
]
UNITS += [
    "a.b:",
    "a:1:",
    "- [ ] ",
    "- [ ] x\n",
    "1. ",
    "1. x\n",
    "- ",
    '{"a":',
    "[",
    "│   ",
    "├── a\n",
]
UNITS += [
    "ls ",
    "ls;",
    "'",
    "a:b",
    "a/b-",
    "d1:x",
    "d1",
    "+++ b/",
    "-rw-r--r-- ",
    "def ",
    "&amp;",
    "\\",
]
UNITS += [
    "C:\\",
    "(",
    ")",
    "a(1",
    "- /url: ",
    "a b\n",
    "a  ",
    "%",
    "é",
    "🙂 ",
    "src/a.py:1:\n",
    "x.py\n",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_huge_text_costs_little_and_gives_a_bounded_answer(unit):
    text = unit * (4 * TEXT_LIMIT // len(unit))
    for call in (
        Call("tool", text),
        Call("tool", {"url": text, "path": text, "command": text, "todos": text}),
        Call("tool", {"url": "http://a.b/", "path": "src", "id": "d1:x"}),
        Call("ls", {"command": "ls"}),
        Call("tool", {"command": "pytest"}),
    ):
        for extractor in (
            WebPages(),
            Files(identifiers=True),
            Documents(),
            TodoList(tools=["tool"]),
            CodingAgent(),
        ):
            before = time.thread_time()
            seen = extract_observation([extractor], [call], [CallResult(text)])
            uses = extract_uses([extractor], [call])
            # tenths of a second in fact: a pattern that is not linear takes minutes
            assert time.thread_time() - before < 5
            assert max(len(seen.exits or ()), len(seen.tasks), len(seen.mentions)) <= MAX_ITEMS
            assert len(uses) <= MAX_ITEMS


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_a_huge_value_gives_a_bounded_answer(extractor):
    entries = [
        {"url": f"http://a.b/{n}", "path": f"{n}.py", "content": f"d{n}:x", "status": "completed"}
        for n in range(20 * MAX_ITEMS)
    ]
    call = Call("tool", {"query": "x", "todos": entries})
    seen = extract_observation([extractor], [call], [CallResult(entries)])
    assert len(seen.exits or seen.tasks or seen.mentions) == MAX_ITEMS
