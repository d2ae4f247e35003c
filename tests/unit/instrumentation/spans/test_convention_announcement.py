"""Announcements: read as they are written, and nothing for what is not valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegauge.fleet.fleet_messages import decode_spans, encode_spans
from tidegauge.foreign_spans.convention_reader import may_enclose_run, read_span
from tidegauge.foreign_spans.span import Announcement, SpanData
from tidegauge.recordings import ContentEncoder

KEY = "tidegauge.announce."


def announced(**attributes: Any) -> SpanData:
    attributes = {f"{KEY}{name}": value for name, value in attributes.items()}
    return SpanData(1, 2, 255, "tidegauge.announce", "tidegauge.announce", attributes, 5, 5)


WHOLE = {
    "span_id": "00000000000000ff",
    "parent_id": "000000000000000a",
    "name": "invoke_agent searcher",
    "agent": "searcher",
}


def test_an_announcement_is_read():
    read = Announcement(255, 10, "invoke_agent searcher", "searcher")
    assert read_span(announced(**WHOLE)) == read


def test_what_is_not_known_is_none():
    assert read_span(announced(span_id="00000000000000ff")) == Announcement(255, None, "", None)


def test_attributes_that_processors_set_on_all_spans_do_not_matter():
    span = announced(**WHOLE)
    span = span._replace(attributes={"traceloop.workflow.name": "w", **span.attributes})
    assert isinstance(read_span(span), Announcement)
    assert may_enclose_run(span.name, span.attributes) is False


@pytest.mark.parametrize(
    "span_id", [255, None, "", "ff", "0" * 16, "00000000000000FF", "0x000000000000ff", ["a"], {}]
)
def test_an_id_that_is_not_valid_announces_nothing(span_id):
    assert read_span(announced(**{**WHOLE, "span_id": span_id})) is None


@pytest.mark.parametrize("value", [7, None, "", "0" * 16, ["a"], {"a": 1}, b"x"])
def test_other_values_may_be_anything(value):
    odd = {name: value for name in WHOLE if name != "span_id"}
    found = read_span(announced(**{**WHOLE, **odd}))
    assert isinstance(found, Announcement)
    assert found.parent_id is None


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("left_out", ["", "agent", "parent_id", "name"])
def test_an_announcement_travels_through_kafka(plain, left_out):
    span = announced(**{name: value for name, value in WHOLE.items() if name != left_out})
    message = encode_spans(1, [span], ContentEncoder(bytes.hex, plain=plain))
    [found] = decode_spans(json.loads(message))
    assert read_span(found) == read_span(span)
    assert may_enclose_run(found.name, found.attributes) is False
