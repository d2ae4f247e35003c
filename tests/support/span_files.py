"""Recorded spans, read from files and given to a grouping as they happened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegauge import redact
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


def jsonl_spans(path: Path, canary: str | None = None) -> list[SpanData]:
    """The spans of a file with one a line.

    Args:
        path: it.
        canary: instead of every text that is a content.
    """
    found = []
    for line in path.read_text().splitlines():
        span = json.loads(line)
        events = [(name, attributes_with(canary, given)) for name, given in span["events"]]
        found.append(
            SpanData(
                int(span["trace_id"], 16),
                int(span["span_id"], 16),
                int(span["parent_id"], 16) if span["parent_id"] else None,
                span["name"],
                span["scope"],
                attributes_with(canary, span["attributes"]),
                span["start"],
                span["end"],
                span["status"] == 2,
                canary if canary and span["description"] else span["description"],
                events,
                span["resource"],
            )
        )
    return found


def attributes_with(canary: str | None, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with this instead of their contents, but for what conventions define."""
    if canary is None:
        return attributes
    return {
        name: value if redact._is_safe(name) else _with(canary, value)
        for name, value in attributes.items()
    }


def _with(canary: str, value: Any) -> Any:
    if isinstance(value, str):
        parsed = redact._parsed(value)
        return canary if parsed is None else json.dumps(_with(canary, parsed))
    if isinstance(value, list | tuple):
        return [_with(canary, one) for one in value]
    if isinstance(value, dict):
        return {
            key: one if redact._KNOWN_METADATA.match(key) or _is_name(key) else _with(canary, one)
            for key, one in value.items()
        }
    return value


def _is_name(key: str) -> bool:
    return key in redact._SAFE_KEYS or key.endswith(("_id", "Id"))


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
