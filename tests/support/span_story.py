"""A whole tree of spans as plain data, to be compared with what it is to be."""

from __future__ import annotations

from itertools import count

from opentelemetry.trace import StatusCode

from tidegauge.testing import Capture

_KEYED = ("tidegauge.action.digest", "tidegauge.state.digest")


def story(seen: Capture) -> list[tuple]:
    """(name, kind, status, attributes, children) of every root.

    Attributes that every span of its kind has are left out; digests are numbered in the order in
    which they are first seen, since their key is drawn anew.
    """
    spans = sorted(seen.spans, key=lambda span: span.start_time)
    numbers: dict[str, str] = {}
    names = (f"#{n}" for n in count())

    def attributes(span):
        found = dict(span.attributes)
        for name in ("gen_ai.operation.name", "gen_ai.tool.type"):
            found.pop(name, None)
        if "gen_ai.tool.name" in found:
            found.pop("gen_ai.agent.name", None)  # that of the run
        for name in _KEYED:
            if name in found:
                digest = found[name]
                assert len(digest) == 16
                if digest not in numbers:
                    numbers[digest] = next(names)
                found[name] = numbers[digest]
        return found

    def describe(span):
        status = "" if span.status.status_code is StatusCode.UNSET else span.status.status_code.name
        below = [describe(child) for child in children[span.context.span_id]]
        return span.name, span.kind.name, status, attributes(span), below

    children: dict[int, list] = {span.context.span_id: [] for span in spans}
    roots: list = []
    for span in spans:
        parent = span.parent.span_id if span.parent else 0
        children.get(parent, roots).append(span)
    return [describe(span) for span in roots]


def events(seen: Capture) -> list[tuple]:
    """(name, attributes) of every event, in order."""
    return [(event.event_name, dict(event.attributes)) for event in seen.events]
