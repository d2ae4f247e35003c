"""Every entry point takes objects whose methods do anything: none is called, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

import hostile.values as values_module
from hostile.agents_at_work import steps_of
from hostile.entry_points import CONSUMED, ENTRIES, NAMES, QUICK, settings_of
from hostile.harness import check
from hostile.values import DEEDS, hooked, touched
from tidegauge import testing


def takes_hooks(entry: str, deed: str) -> None:
    call = ENTRIES[entry]
    faults: dict[str, list[str]] = {}
    with testing.capture(**settings_of(entry)) as seen:
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
    before = steps_of(seen)
    try:
        expected = ENTRIES[entry](value)
    except BaseException as error:
        if DEEDS[deed].untouchable or type(error) is not AssertionError:
            return f"{type(error).__name__} reached the user"
        return str(error)
    if touched and DEEDS[deed].untouchable:
        return f"called {touched[0]}"
    if entry not in NAMES and (counted := steps_of(seen) - before) != expected:
        return f"{counted} steps counted, {expected} made"
    return None


_CASES = [
    pytest.param(deed, entry, marks=[] if entry in QUICK else pytest.mark.slow)
    for deed in DEEDS
    for entry in ENTRIES
    if not (entry in CONSUMED and DEEDS[deed].untouchable)
]


@pytest.mark.parametrize(("deed", "entry"), _CASES)
def test_takes_objects_whose_method(deed: str, entry: str) -> None:
    check(takes_hooks, entry, deed)
