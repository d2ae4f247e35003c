"""A repeated step's span is linked to the span of the step that it repeats."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanContext

from tidegauge.events import StepSignals
from tidegauge.tracer.run_spans import StepLinks


def signals(step: int, period: int = 0) -> StepSignals:
    repeats = step - period if period else -1
    return StepSignals("r", step, b"", b"", period, int(bool(period)), repeats_step=repeats)


def context(number: int) -> SpanContext:
    return SpanContext(1, number, is_remote=False)


def walk(steps: int, **periods: int) -> tuple[StepLinks, list[int | None]]:
    """Steps of one call each: the numbers of the steps that they are linked to."""
    links, linked = StepLinks(), list[int | None]()
    for step in range(steps):
        now = signals(step, periods.get(f"at_{step}", 0))
        link = links.link(now, "look")
        linked.append(None if link is None else link.context.span_id - 1)
        links.started(now, "look", context(step + 1))
    return links, linked


@pytest.mark.parametrize(
    ("at", "period", "linked"),
    [(3, 1, 2), (6, 3, 3), (100, 64, 36), (100, 65, None), (2, 5, None)],
)
def test_a_step_repeats_the_one_a_period_before(at: int, period: int, linked: int | None) -> None:
    _, found = walk(at + 1, **{f"at_{at}": period})
    assert found == [None] * at + [linked]


def test_calls_of_a_round_repeat_those_of_the_same_tool() -> None:
    links = StepLinks()
    tools = ("look", "push", "look")
    for number, tool in enumerate(tools):
        links.started(signals(0), tool, context(number + 1))
    found = []
    for number, tool in enumerate((*tools, "look", "other")):
        link = links.link(signals(1, 1), tool)
        found.append(link and link.context.span_id)
        links.started(signals(1, 1), tool, context(number + 11))
    assert found == [1, 2, 3, 3, None]


def test_only_so_much_is_remembered() -> None:
    links, _ = walk(1_000)
    for _ in range(100):
        links.started(signals(1_000), "look", context(1))
    assert len(links._steps) == 64
    assert max(len(calls) for _, calls in links._steps.values()) == 16
