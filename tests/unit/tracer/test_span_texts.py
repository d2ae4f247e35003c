"""Contents are redacted before they are cut, and absent when that fails."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import tidegauge
from tidegauge._guard import internal_errors
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
