"""Text as a terminal shows it: what it acts on or hides is replaced, all else stays."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.terminal_text import HOSTILE, hidden_in
from tidegauge.cli.terminal import visible, visible_json

WRITTEN = (
    "plain text, with [brackets] and :colons:",
    "Zoë Ångström naïve “quoted”… 5 €",
    "tiếng Việt, tiê\u0301ng Viê\u0323t",
    "שָׁלוֹם עֲלֵיכֶם",
    "مُحَمَّدٌ",
    "ภาษาไทย ที่นี่ ญี่ปุ่น",
    "हिन्दी में क्षत्रिय",
    "日本語 한국어 中文",
    "⚠️ ✔ 🚀",
)


@pytest.mark.parametrize("text", WRITTEN)
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text
    data = orjson.dumps({"name": text})
    assert visible_json(data) == data


@given(st.text(st.characters()) | st.sampled_from(list(HOSTILE.values())))
def test_nothing_but_visible_letters_is_left(text: str) -> None:
    shown = visible(text)
    assert hidden_in(shown.encode(), tty=False) == set()
    assert "\n" not in shown
    assert visible(shown) == shown
    assert len(visible(text, 10)) <= 10


@given(st.text() | st.sampled_from(list(HOSTILE.values())))
def test_json_keeps_its_values(text: str) -> None:
    value = {text: [text, {"x": text}]}
    data = orjson.dumps(value)
    shown = visible_json(data)
    assert orjson.loads(shown) == value
    assert hidden_in(shown, tty=False) == set()
    assert visible_json(shown) == shown


def test_white_space_between_values_hides_nothing() -> None:
    assert visible_json(b'{"a":\r\n\t"\\r\\u009b",\r"b":1}') == b'{"a": \n\t"\\r\\u009b", "b":1}'


def test_a_lone_surrogate_is_replaced() -> None:
    assert visible("a\udc9b\ud800b") == "a��b"
