"""What the serving commands share."""

from __future__ import annotations

import gc

from tidegauge.cli.server_settings import rarely_collected


def test_garbage_is_collected_rarely_while_serving() -> None:
    before = gc.get_threshold()
    with rarely_collected():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
