"""Every entry point takes every hostile value: it arrives unchanged, is counted, costs little."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

import hostile.values as values_module
from hostile.entry_points import CONSUMED, ENTRIES, MAIN, NAMES, SETTINGS
from hostile.harness import ONE_VALUE, Ahead, cheapest
from hostile.values import DEEDS, HEAVY, LARGE_TEXTS, SHAPES, hooked, touched
from tidegauge import testing

UNTOUCHABLE = ("lazy", "remote", "tensor")
"""Looking into these has effects outside: a query, a request, a wait."""


def _steps(seen: testing.Capture) -> int:
    return sum(group.totals.steps for group in seen.pipeline.engine.snapshot().groups)


def _settings(entry: str) -> dict[str, Any]:
    settings = dict(SETTINGS[entry])
    if "record_to" in settings:
        settings["record_to"] = os.path.join(tempfile.mkdtemp(), settings["record_to"])
    return settings


def takes_a_shape(entry: str, shape: str) -> None:
    call = ENTRIES[entry]
    value = SHAPES[shape]()
    gc.freeze()  # the collector's own look at a large value is no cost of ours
    limit = ONE_VALUE._replace(cpu_ms=400) if shape in LARGE_TEXTS else ONE_VALUE
    counted = []
    with testing.capture(**_settings(entry)) as seen:
        call("ordinary")

        def once() -> None:
            before = _steps(seen)
            expected = call(value)
            counted.append((_steps(seen) - before, expected))

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


def takes_hooks(entry: str, deed: str) -> None:
    call = ENTRIES[entry]
    faults: dict[str, list[str]] = {}
    with testing.capture(**_settings(entry)) as seen:
        values_module.watched_pipelines.append(seen.pipeline)
        call("ordinary")
        for name, value in hooked(deed):
            fault = _fault_of(entry, value, seen, deed)
            if fault:
                faults.setdefault(fault, []).append(name)
                if sum(map(len, faults.values())) > (5 if deed == "blocks" else 60):
                    break
    values_module.armed = False
    assert not faults, "\n".join(f"{fault}: {', '.join(names)}" for fault, names in faults.items())


def _fault_of(entry: str, value: Any, seen: testing.Capture, deed: str) -> str | None:
    touched.clear()
    before = _steps(seen)
    try:
        expected = ENTRIES[entry](value)
    except BaseException as error:
        if DEEDS[deed].untouchable or type(error) is not AssertionError:
            return f"{type(error).__name__} reached the user"
        return str(error)
    if touched and DEEDS[deed].untouchable:
        return f"called {touched[0]}"
    if entry not in NAMES and (counted := _steps(seen) - before) != expected:
        return f"{counted} steps counted, {expected} made"
    return None


_SHAPES = [
    (shape, entry) for shape in SHAPES for entry in ENTRIES if shape not in HEAVY or entry in MAIN
]
_HOOKS = [
    (deed, entry)
    for deed in DEEDS
    for entry in ENTRIES
    if not (entry in CONSUMED and DEEDS[deed].untouchable)
]


@pytest.mark.parametrize(("shape", "entry"), _SHAPES)
def test_takes(shape: str, entry: str, ahead: Ahead) -> None:
    ahead.check(takes_a_shape, entry, shape)


@pytest.mark.parametrize(("deed", "entry"), _HOOKS)
def test_takes_objects_whose_method(deed: str, entry: str, ahead: Ahead) -> None:
    ahead.check(takes_hooks, entry, deed)


@pytest.fixture(scope="module")
def ahead(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    """Runs the cases of this module that were selected, two at a time."""
    cases = {"test_takes": takes_a_shape, "test_takes_objects_whose_method": takes_hooks}
    selected = []
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname in cases:
            value, entry = item.callspec.params.values()
            selected.append((cases[item.originalname], entry, value))
    with Ahead(selected) as running:
        yield running
