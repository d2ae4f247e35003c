"""A sample of the random schedules; all of them: ``python -m tests.hostile.schedules``."""

from __future__ import annotations

import os

import pytest

from hostile.harness import check
from hostile.schedules import BATCH, SECONDS_OF_A_BATCH, run_batch

COUNT = int(os.environ.get("TIDEGAUGE_SCHEDULES", "500"))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_random_schedules(first: int) -> None:
    check(run_batch, "0", str(first), str(BATCH), deadline=SECONDS_OF_A_BATCH)
