"""Every entry point takes every hostile value: it arrives unchanged, is counted, costs little."""

from __future__ import annotations

import gc

import pytest

from hostile.agents_at_work import steps_of
from hostile.entry_points import CONSUMED, ENTRIES, MAIN, NAMES, QUICK, settings_of
from hostile.harness import ONE_VALUE, cheapest, check
from hostile.values import HEAVY, LARGE_TEXTS, SHAPES, touched
from tidegauge import testing

UNTOUCHABLE = ("lazy", "remote", "tensor")
"""Looking into these has effects outside: a query, a request, a wait."""


def takes_a_shape(entry: str, shape: str) -> None:
    call = ENTRIES[entry]
    value = SHAPES[shape]()
    gc.freeze()  # the collector's own look at a large value is no cost of ours
    counted = []
    with testing.capture(**settings_of(entry)) as seen:
        times = call("ordinary")  # the value is handed over once a step
        least, a_step = (400, 60) if shape in LARGE_TEXTS else (ONE_VALUE.cpu_ms, 10)
        cpu_ms = max(least, a_step * times)
        limit = ONE_VALUE._replace(cpu_ms=cpu_ms)

        def once() -> None:
            before = steps_of(seen)
            expected = call(value)
            counted.append((steps_of(seen) - before, expected))

        touched.clear()
        cheapest(once, limit)
        found = list(touched)
        if entry not in NAMES:
            assert all(steps == made for steps, made in counted), (
                f"steps (counted, made): {counted}"
            )
        assert call("ordinary") > 0
    if entry not in CONSUMED and any(part in shape for part in UNTOUCHABLE):
        assert not found, f"looked into the value: {sorted(set(found))}"


_CASES = [
    pytest.param(
        shape, entry, marks=[] if entry in QUICK and shape not in HEAVY else pytest.mark.slow
    )
    for shape in SHAPES
    for entry in ENTRIES
    if shape not in HEAVY or entry in MAIN
]


@pytest.mark.parametrize(("shape", "entry"), _CASES)
def test_takes(shape: str, entry: str) -> None:
    check(takes_a_shape, entry, shape)
