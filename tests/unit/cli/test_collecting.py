"""While it serves the collector looks seldom, and afterwards as often as before."""

from __future__ import annotations

import gc

from tidegauge.cli.collecting import seldom_collected


def test_the_collector_looks_seldom_meanwhile() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
