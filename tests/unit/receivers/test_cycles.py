"""Spans that are their own ancestors: measured, counted, and of no more cost than others."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from support.other_spans import Listener
from support.span_orders import arriving
from tidegauge import catalog, testing
from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly
from tidegauge.runs.current import get_recorder

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
CHAIN = {"openinference.span.kind": "CHAIN"}
SAID = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "look"}]}]
MODEL = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(SAID)}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}


def span(number: int, parent: int | None, at: tuple[int, int], given: dict[str, Any]) -> SpanData:
    return SpanData(7, number, parent, "any", "theirs", given, *at)


def cycle(length: int) -> list[SpanData]:
    """An agent's round, inside as many spans as that, of which each is inside the next."""
    calls = [span(101, 1, (50, 60), MODEL), span(102, 1, (70, 80), TOOL)]
    chains = [span(n, n + 1, (50 - n, 100 + n), CHAIN) for n in range(1, length)]
    return [*calls, *chains, span(length, 1, (50 - length, 100 + length), AGENT)]


def repaired() -> dict[str, int]:
    counts = span_faults.metrics()[catalog.REPAIRED_SPANS]
    return {fault: count for (fault,), count in counts.items() if count}


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_the_one_that_ended_last_is_the_root(length: int) -> None:
    (story, assembly), counted = arriving([cycle(length)]), repaired()
    assert [(labels[0], len(steps)) for labels, _, steps, *_ in story] == [("helper", 1)]
    assert len(assembly) == 0
    assert counted == {"cycle": 1}


@pytest.mark.parametrize("length", [1, 2, 3])
def test_in_any_order_within_the_while_that_is_waited(length: int) -> None:
    alike, _ = arriving([cycle(length)])
    for spans in itertools.permutations(cycle(length)):
        assert arriving([[each] for each in spans])[0] == alike


@pytest.mark.parametrize("length", [1, 2, 3])
def test_span_by_span_in_any_order_the_trace_ends_and_nothing_is_lost_unseen(length: int) -> None:
    for spans in itertools.permutations(cycle(length)):
        span_faults.clear()
        with testing.capture() as seen:
            listener = Listener(seen)
            assembly = Assembly()
            for number, each in enumerate(spans):
                assembly.take([each], now=10.0 * number)
                assembly.expire(10.0 * number + 9)
            assert repaired()["cycle"] == 1
            steps = sum(len(one) for one in listener.steps.values())
            counts = span_faults.metrics()[catalog.DROPPED_SPANS]
            assert steps or assembly.late or any(counts.values())
            assembly.expire(10_000.0)
            assert (len(assembly), assembly.open_runs, assembly.arrived_bytes) == (0, 0, 0)
            assert len(assembly._spans) == 0


def test_the_trace_of_a_root_that_is_its_own_parent_ends_with_it() -> None:
    with testing.capture():
        assembly = Assembly()
        assembly.take(cycle(1), now=0.0)
        assembly.expire(1.0)
        assert (len(assembly), assembly.open_runs) == (0, 0)
        assembly.take([span(103, 1, (81, 82), TOOL)], now=2.0)
        assert assembly.late == 1


@pytest.mark.parametrize("backwards", [False, True])
def test_longer_cycles_than_are_looked_through_are_cut_too(backwards: bool) -> None:
    spans = [span(n, n + 1, (50, 100), CHAIN) for n in range(1, 3_000)]
    spans.append(span(3_000, 1, (50, 100), CHAIN))
    calls = [span(5_001, 1, (50, 60), MODEL)]
    _, assembly = arriving([[*calls, *(reversed(spans) if backwards else spans)]])
    assert repaired()["depth"] >= 1
    assert len(assembly) == 0


def test_in_the_process_of_the_agent_it_is_a_root() -> None:
    with testing.capture() as seen:
        listener = Listener(seen)
        grouping = Grouping(get_recorder)
        root, *calls = [span(1, 1, (0, 100), AGENT), *cycle(1)[:2]]
        for each in (root, *calls):
            grouping.start(7, each.span_id, each.parent_id, name="any", scope="theirs", live=each)
        for each in (*calls, root):
            grouping.end(each)
        assert [event.agent for event in listener.started] == ["helper"]
        assert len(listener.ended) == 1
        assert len(grouping) == 0
        assert [len(steps) for steps in listener.steps.values()] == [1]
    assert repaired() == {"cycle": 1}
