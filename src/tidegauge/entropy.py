"""Entropy of what a model wrote, from the log-probabilities that it tells.

Adapters take it of the answers that choose an action; the metrics take it as they are told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["token_entropy"]


def token_entropy(logprobs: Iterable[Iterable[float]]) -> float | None:
    """Entropy of what a model wrote, in nats per token: the mean over its tokens.

    Models tell the log-probabilities of a few alternatives only. What is left of a token's
    probability is taken as one more alternative, so that the result never exceeds the true
    entropy, comes nearer to it with every alternative told, and does not fall to 0 where only
    the token that was chosen is told. Probabilities that add up to more than 1 are scaled down.

    Args:
        logprobs: for each token, the natural logarithms of its alternatives' probabilities, the
            token itself among them. A token without any is left out.

    Returns:
        ``None`` when no token has any.

    >>> from math import log
    >>> round(token_entropy([[log(0.5), log(0.5)], [log(1.0)]]), 4)
    0.3466
    >>> token_entropy([]) is None
    True
    """
    entropies = [entropy for token in logprobs if (entropy := _entropy(token)) is not None]
    return math.fsum(entropies) / len(entropies) if entropies else None


def _entropy(logprobs: Iterable[float]) -> float | None:
    told = [math.exp(min(logprob, 0.0)) for logprob in logprobs if not math.isnan(logprob)]
    if not told:
        return None
    total = math.fsum(told)
    shares = [share / max(total, 1.0) for share in told]
    shares.append(max(1.0 - total, 0.0))
    return -math.fsum(share * math.log(share) for share in shares if share > 0)
