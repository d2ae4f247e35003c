"""Contents are redacted before they are cut, and absent when that fails."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegauge
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture
from tidegauge.tracer.span_texts import Contents


def hide(text: str) -> str:
    return re.sub(r"secret\w*", "***", text)


def test_a_secret_at_the_cut_is_not_cut_in_two() -> None:
    text = "x" * 8_189 + "secret7" + " y" * 10
    assert Contents(redact=hide).text(text) == "x" * 8_189 + "***" + "…"


def test_every_text_of_a_message_is_redacted() -> None:
    parts = [
        {"type": "text", "content": "my secret1"},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"key": ["secret2", 7]}},
        {"type": "tool_call_response", "id": "c1", "response": "secret3"},
        {"type": "uri", "modality": "image", "uri": "https://a/secret4"},
    ]
    text, left_out = Contents(redact=hide).listed([{"role": "user", "parts": parts}])
    assert "secret" not in text
    assert left_out == 0
    shown = json.loads(text)[0]["parts"]
    assert shown[1]["arguments"] == {"key": ["***", 7]}
    assert shown[2]["response"] == "***"


@pytest.mark.parametrize("given", [None, 7, b"x"])
def test_what_is_no_text_is_absent(given: Any) -> None:
    contents = Contents(redact=lambda text: given)
    assert contents.text("x") is None
    part = {"type": "text", "content": "x"}
    assert contents.listed([{"role": "user", "parts": [part]}])[0] == (
        '[{"role":"user","parts":[{"type":"text"}]}]'
    )


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_function_that_raises_leaves_the_content_out() -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    internal_errors.clear()
    settings = {"capture_content": True, "redact": fails}
    with capture(**settings) as seen, tidegauge.run(agent="a", task="open the door") as run:
        run.act("look", {"at": 1})
        run.observe("empty")
    names = {name for span in seen.spans for name in span.attributes or {}}
    contents = ("arguments", "result", "messages", "tidegauge.task")
    assert not [name for name in names if name.endswith(contents)]
    assert internal_errors.counts()["redact"] >= 3
    internal_errors.clear()


def test_texts_with_half_a_character_are_written() -> None:
    half = "\ud800"
    parts = [{"type": "text", "content": half}, {"type": "tool_call", "name": half}]
    text, _ = Contents().listed([{"role": half, "parts": parts}])
    assert json.loads(text)[0]["parts"][0]["content"] == "?"


def test_values_that_are_no_json_are_shown_as_far_as_they_can_be() -> None:
    part = {"type": "tool_call_response", "response": {1, 2}}
    text, _ = Contents().listed([{"role": "tool", "parts": [part]}])
    assert json.loads(text)[0]["parts"][0]["response"].startswith('!"set"[')


def test_a_number_of_more_than_64_bits_loses_no_message() -> None:
    part = {"type": "tool_call", "name": "look", "arguments": 2**70}
    text, _ = Contents().listed([{"role": "assistant", "parts": [part]}])
    [shown] = json.loads(text)[0]["parts"]
    assert str(2**70) in str(shown["arguments"])


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["\ud800", "x" * 8_190, "\u00e9" * 9_000, "\x00" * 2_000]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=6,
)
PARTS = st.fixed_dictionaries({"type": st.just("text"), "content": TEXTS}) | st.fixed_dictionaries(
    {"type": st.just("tool_call"), "name": TEXTS, "arguments": VALUES}
)
ITEMS = st.fixed_dictionaries({"role": st.just("user"), "parts": st.lists(PARTS, max_size=3)})


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ITEMS, max_size=4))
def test_short_lists_are_written_as_others_are(items: list[dict[str, Any]]) -> None:
    text, left_out = Contents().listed(items)
    with patch("tidegauge.tracer.span_texts._are_short", lambda _: False):
        other, also_left_out = Contents().listed(items)
    assert text.encode()
    assert (json.loads(text), left_out) == (json.loads(other), also_left_out)
