"""What things cost in instructions, as multiples of a yardstick that is counted beside them.

No ratio may rise by more than 3% over the committed one. Where another Python or another release
of a library counts, other work is done: then the bound is wider, and a skipped test says so.
``make bench-instructions`` commits what is counted now.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest
from benchmarks.peers.instructions import (
    COMMITTED,
    RISE,
    RISE_ELSEWHERE,
    Counts,
    count,
    differences,
    ratios,
)

pytestmark = [pytest.mark.slow, pytest.mark.minutes]

WRITTEN: dict[str, Any] = json.loads(COMMITTED.read_text())
RATIOS = ratios(WRITTEN["thousands"])


@pytest.fixture(scope="module")
def counted() -> Counts:
    if shutil.which("valgrind") is None:
        if os.environ.get("CI"):
            pytest.fail("valgrind is missing: nothing was counted")
        pytest.skip("valgrind is missing; for instance: apt-get install valgrind")
    return ratios(count())


@pytest.mark.parametrize("name", RATIOS)
def test_a_ratio_does_not_rise(name: str, counted: Counts) -> None:
    elsewhere = differences(WRITTEN["with"])
    most = RATIOS[name] * (RISE_ELSEWHERE if elsewhere else RISE)
    assert counted[name] <= most, (
        f"{name}: {counted[name]:.4g}, at most {most:.4g}; was {RATIOS[name]:.4g}; "
        f"{', '.join(elsewhere) or 'nothing else has changed'}"
    )


def test_everything_that_is_counted_is_held(counted: Counts) -> None:
    assert counted.keys() == RATIOS.keys()


def test_the_ratios_were_counted_with_the_same() -> None:
    if elsewhere := differences(WRITTEN["with"]):
        pytest.skip(
            f"rises of up to {RISE_ELSEWHERE - 1:.0%} pass here, because of {', '.join(elsewhere)}"
        )
