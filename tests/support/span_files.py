"""Recorded spans, read from files and given to a grouping as they happened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegauge.instrumentation.spans.grouping import Grouping
from tidegauge.instrumentation.spans.span import SpanData


def otlp_spans(path: Path) -> list[SpanData]:
    """The spans of an OTLP JSON file."""
    found = []
    for resource in json.loads(path.read_text())["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                status = span.get("status", {})
                found.append(
                    SpanData(
                        int(span["traceId"], 16),
                        int(span["spanId"], 16),
                        int(span["parentSpanId"], 16) if span.get("parentSpanId") else None,
                        span["name"],
                        scope["scope"]["name"],
                        _attributes(span),
                        int(span["startTimeUnixNano"]),
                        int(span["endTimeUnixNano"]),
                        status.get("code") in (2, "STATUS_CODE_ERROR"),
                        status.get("message"),
                        [(event["name"], _attributes(event)) for event in span.get("events", ())],
                    )
                )
    return found


def flat_spans(path: Path) -> list[SpanData]:
    """The spans of a flat list."""
    return [
        SpanData(
            int(span["trace_id"], 16),
            int(span["span_id"], 16),
            int(span["parent_span_id"], 16) if span["parent_span_id"] else None,
            span["name"],
            span["scope"]["name"],
            span["attributes"],
            span["start_time"],
            span["end_time"],
            span["status"]["code"] == "ERROR",
            None,
            [(event["event_name"], event["attributes"]) for event in span["span_events"]],
        )
        for span in json.loads(path.read_text())
    ]


class Untold:
    """A span that says nothing before it ends."""

    attributes = None


def replay_spans(grouping: Grouping, spans: Iterable[SpanData], *, early: bool = False) -> None:
    """Report every start and end in the order of their times.

    ``early``: attributes are known from the start.
    """
    spans = list(spans)
    moments = [(span.start, 1, -span.end, span) for span in spans]
    moments += [(span.end, 0, -span.start, span) for span in spans]
    for _, starts, _, span in sorted(moments, key=lambda moment: moment[:3]):
        if starts:
            grouping.start(
                span.trace_id,
                span.span_id,
                span.parent_id,
                name=span.name,
                scope=span.scope,
                live=span if early else Untold(),
            )
        else:
            grouping.end(span)


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in holder.get("attributes", ())}


def _value(given: dict[str, Any]) -> Any:
    [(kind, value)] = given.items()
    if kind == "intValue":
        return int(value)
    if kind == "arrayValue":
        return tuple(_value(item) for item in value.get("values", ()))
    return value
