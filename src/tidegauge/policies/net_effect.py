"""Net effect: what stopping runs would have saved and lost, in money instead of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegauge.policies.trace import RunTrace

_MILLION = 1e6


@dataclass(frozen=True)
class Costs:
    """What tokens, lost successes and retries cost, in one currency.

    A stopped run saves its further tokens, and costs a retry. If it would have succeeded, its value
    is lost, too; if a retry brings it back, that value is 0.

    Args:
        prices: price of a million tokens, by the name of the model.
        success_value: value of a successful run.
        retry_cost: cost of each stopped run: of a retry, or of a person who looks at it.
    """

    prices: Mapping[str, float]
    success_value: float = 0.0
    retry_cost: float = 0.0

    def per_token(self, run: RunTrace) -> float | None:
        """Price of a token of the run; ``None``: it reports no tokens, or its model has no price.

        >>> run = RunTrace("r1", model="small")
        >>> run.tokens = 2_000.0
        >>> Costs({"small": 2.0}).per_token(run), Costs({"large": 9.0}).per_token(run)
        (2e-06, None)
        """
        price = None if run.model is None else self.prices.get(run.model)
        return None if run.tokens is None or price is None else price / _MILLION

    def per_stop(self, run: RunTrace) -> float:
        """What stopping the run costs."""
        return self.retry_cost + (self.success_value if run.success else 0.0)
