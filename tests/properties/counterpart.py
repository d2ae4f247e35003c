"""A metric and its batch version: what is fed, and what is compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Counterpart:
    """How a metric is compared with its batch version.

    Args:
        records: streams of what it is fed.
        batch: from all records so far, what its attributes are to be.
        parameters: of its constructor; those that go with one stream come with the stream.
        seen: what is compared and is no attribute, as functions of the metric.
    """

    records: st.SearchStrategy[list[Any]]
    batch: Callable[..., dict[str, Any]]
    parameters: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Callable[[Any], Any]] = field(default_factory=dict)

    def streams(self) -> st.SearchStrategy[tuple[dict[str, Any], list[Any]]]:
        """(parameters, records) of one metric."""
        return self.records.map(
            lambda drawn: drawn if isinstance(drawn, tuple) else (self.parameters, drawn)
        )

    def differences(self, metric: Any, records: list[Any], parameters: dict[str, Any]) -> list[str]:
        """What the metric says now that the batch version does not."""
        received = []
        for name, expected in self.batch(records, **parameters).items():
            found = self.seen[name](metric) if name in self.seen else getattr(metric, name)
            if not same(found, expected):
                received.append(f"{name} is {found}, not {expected}")
        return received


def same(found, expected):
    """Equal, but for the rounding of sums."""
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected
