"""How many examples hypothesis tries, as multiples of the profile's: few at home, more in CI."""

from __future__ import annotations

from typing import Any

import hypothesis


def examples(times: float, **others: Any) -> hypothesis.settings:
    """Settings with so many times the profile's examples.

    Args:
        times: 5 for rare cases that are cheap to try, less than 1 for slow ones.
        **others: as ``hypothesis.settings`` takes them.
    """
    count = round(times * hypothesis.settings.default.max_examples)
    return hypothesis.settings(max_examples=max(1, count), **others)
