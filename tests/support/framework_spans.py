"""Spans of real agent frameworks, as they arrive in batches, and what is read from them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.other_spans import Listener
from tidegauge import redact, testing
from tidegauge.events import RunStarted
from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.span import Attributes, ModelSpan, SpanData, ToolSpan
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly

BATCHINGS = ("one", "each", "0.2", "1", "5")
FREE = {
    "oai_oi.loop1": "nothing ties the calls to a run",
    "smol_gen.loop1": "there are no spans of calls",
    "ant_none.wrap": "which calls were chosen is not shown",
    "oai_v2y.wrap": "which calls were chosen is not on spans",
}
"""Files of which nothing is expected, or less is right, too."""


class ReadRun(NamedTuple):
    """A run as it was read."""

    agent: str | None
    parent: int | None
    steps: int
    loop: dict[str, int] | None
    label: str


def load(path: Path) -> list[SpanData]:
    """The spans of a file, in the order of their ends."""
    spans = [parsed(json.loads(line)) for line in path.read_text().splitlines()]
    return sorted(spans, key=lambda span: span.end)


def with_canaries(span: SpanData, canary: str) -> SpanData:
    """A span with this instead of its contents, but for what conventions define."""
    return span._replace(
        attributes=_with(canary, span.attributes),
        description=span.description and canary,
        events=[(name, _with(canary, attributes)) for name, attributes in span.events],
    )


def _with(canary: str, attributes: Attributes) -> dict[str, Any]:
    return {
        name: value if redact._is_safe(name) else _value_with(canary, value)
        for name, value in attributes.items()
    }


def _value_with(canary: str, value: Any) -> Any:
    if isinstance(value, str):
        found = redact._parsed(value)
        return canary if found is None else json.dumps(_value_with(canary, found))
    if isinstance(value, list | tuple):
        return [_value_with(canary, one) for one in value]
    if isinstance(value, dict):
        return {
            key: one if _holds_no_content(key) else _value_with(canary, one)
            for key, one in value.items()
        }
    return value


def _holds_no_content(key: str) -> bool:
    if redact._KNOWN_METADATA.match(key) or key.endswith(("_id", "Id")):
        return True
    return key in redact._SAFE_KEYS


def with_equal_ids(path: Path) -> list[SpanData]:
    """The spans of a file, as if its models counted calls from zero in every trace."""
    found = path.read_text()
    ids: dict[str, int] = {}
    counted: Counter[int] = Counter()
    for span in load(path):
        for call_id in _call_ids(span):
            if call_id not in ids and len(call_id) > 7:  # others are no ids but for this trace
                ids[call_id] = counted[span.trace_id]
                counted[span.trace_id] += 1
    if ids:
        longest_first = sorted(map(re.escape, ids), key=len, reverse=True)
        found = re.sub("|".join(longest_first), lambda id_: f"call_{ids[id_[0]]}", found)
    spans = [parsed(json.loads(line)) for line in found.splitlines()]
    return sorted(spans, key=lambda span: span.end)


def _call_ids(span: SpanData) -> Iterator[str]:
    reading = read_span(span)
    if isinstance(reading, ModelSpan):
        yield from (call.id for call in reading.calls or () if call.id)
        yield from (call_id for call_id, _ in reading.answers)
    elif isinstance(reading, ToolSpan) and reading.id:
        yield reading.id


def batches(spans: Sequence[SpanData], how: str) -> Iterator[tuple[float, list[SpanData]]]:
    """When batches arrive, in seconds: one, a span each, windows of so many seconds."""
    first = min(span.start for span in spans)
    spans = sorted(spans, key=lambda span: span.end)
    if how == "one":
        yield (max(span.end for span in spans) - first) / 1e9, list(spans)
    elif how == "each":
        for span in spans:
            yield (span.end - first) / 1e9, [span]
    else:
        window = int(float(how) * 1e9)
        found: dict[int, list[SpanData]] = {}
        for span in spans:
            found.setdefault((span.end - first) // window, []).append(span)
        for number, batch in found.items():
            yield (number + 1) * window / 1e9, batch


def shuffled(spans: Sequence[SpanData], seed: int) -> list[tuple[float, list[SpanData]]]:
    """Each span arrives alone, by chance up to almost the allowed lateness after its end."""
    chance = random.Random(seed)
    first = min(span.start for span in spans)
    lateness = ASSEMBLY_LIMITS.allowed_lateness * 0.9
    late = [((span.end - first) / 1e9 + chance.random() * lateness, span) for span in spans]
    return [(when, [span]) for when, span in sorted(late, key=lambda each: each[0])]


def read(arriving: Iterator[tuple[float, list[SpanData]]] | list[Any]) -> list[ReadRun]:
    """The runs, in the order in which they start."""
    with testing.capture() as seen:
        listener, assembly = _arrived(seen, arriving)
        assembly.close()
        names = {event.run: event.agent_name for event in listener.ended}
        return [
            _read_run(listener, event, listener.reports[event.run], names[event.run])
            for event in listener.started
        ]


def live(spans: Sequence[SpanData]) -> list[ReadRun]:
    """The runs that are seen when these spans have arrived one by one, and more may come."""
    with testing.capture() as seen:
        listener, assembly = _arrived(seen, batches(spans, "each"))
        found = [
            _read_run(listener, event, run.report(), None)
            for event in listener.started
            if (run := seen.pipeline.engine.get(event.run)) is not None
        ]
        assembly.close()
        return found


def read_each(recordings: Sequence[Sequence[SpanData]], *, gap: float | None) -> list[list[Any]]:
    """The steps, loop and parent of each run, by recording, in the order in which they start.

    Args:
        recordings: spans that arrive at one server.
        gap: seconds after the last span of one until the first of the next; ``None``, all arrive
            at the same time, by the times of their spans.
    """
    arriving: list[tuple[float, list[SpanData]]] = []
    if gap is None:
        arriving = list(batches([span for spans in recordings for span in spans], "each"))
    else:
        for spans in recordings:
            since = arriving[-1][0] + gap if arriving else 0.0
            arriving += [(since + when, batch) for when, batch in batches(spans, "each")]
    with testing.capture() as seen:
        listener, assembly = _arrived(seen, arriving)
        assembly.close()
        return [
            _read_of(listener, {f"{span.trace_id:032x}" for span in spans}) for spans in recordings
        ]


def _read_of(listener: Listener, traces: set[str]) -> list[Any]:
    started = [one for one in listener.started if one.run[:32] in traces]
    numbers = {one.run: number for number, one in enumerate(started)}
    around = {child: one.run for one in listener.ended for child in one.children}
    reports = [(one, listener.reports[one.run]) for one in started]
    return [
        (report.steps, _loop(report), numbers.get(one.parent or around.get(one.run, "")))
        for one, report in reports
    ]


def _arrived(seen: testing.Capture, arriving: Any) -> tuple[Listener, Assembly]:
    listener, assembly, now = Listener(seen), Assembly(), 0.0
    for now, batch in arriving:
        assembly.take(batch, now=now)
    assembly.expire(now + 1.0)
    return listener, assembly


def _read_run(listener: Listener, event: RunStarted, report: Any, name: str | None) -> ReadRun:
    numbers = {one.run: number for number, one in enumerate(listener.started)}
    around = {child: one.run for one in listener.ended for child in one.children}
    return ReadRun(
        name or event.agent,
        numbers.get(event.parent or around.get(event.run, "")),
        report.steps,
        _loop(report),
        event.agent,
    )


def expected(entry: dict[str, Any], found: list[ReadRun]) -> list[ReadRun]:
    """What must have been found; names and labels that are free are those that were found."""
    return [
        ReadRun(
            one.agent if _is_free(run) else run["agent"],
            run["parent_run"],
            run["steps"],
            run["loop"],
            one.label,
        )
        for run, one in zip(entry["runs"], [*found, *[_NONE] * len(entry["runs"])], strict=False)
    ]


def _is_free(run: dict[str, Any]) -> bool:
    """Whether a run may have any name: its spans have none."""
    shown = next(value for key, value in run.items() if key.startswith("agent_"))
    return run["agent"] is None or not shown


_NONE = ReadRun(None, None, 0, None, "")


def _loop(report: Any) -> dict[str, int] | None:
    loops = report.loops
    if not loops:
        return None
    if len(loops) > 1:
        return {"loops": len(loops)}  # of which no recording has more than one
    [(first, period, _, steps)] = loops
    tide = report.tide_loop_steps
    return {"period": period, "first_step": first, "loop_steps": tide, "live_loop_steps": steps}


def parsed(given: dict[str, Any]) -> SpanData:
    """A span of a file."""
    parent = given["parent_id"]
    return SpanData(
        int(given["trace_id"], 16),
        int(given["span_id"], 16),
        None if parent is None else int(parent, 16),
        given["name"],
        given["scope"],
        given["attributes"],
        given["start"],
        given["end"],
        given["status"] == 2,
        given["description"],
        [(name, attributes) for name, attributes in given["events"]],
        given["resource"],
    )
