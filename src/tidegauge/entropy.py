"""Entropy of a model's output, from its log-probabilities.

Adapters compute it for the answers that choose an action; metrics receive it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def token_entropy(logprobs: Iterable[Iterable[float]], *, remainder: bool = True) -> float | None:
    """Mean entropy of a model's output, in nats per token.

    Models return the log-probabilities of a few alternatives only. The remaining probability of a
    token counts as one more alternative. So the result never exceeds the true entropy, comes closer
    to it with every alternative, and is not 0 when only the chosen token is known. Probabilities
    with a sum above 1 are scaled down.

    Args:
        logprobs: for each token, the natural logarithms of its alternatives' probabilities, the
            token itself among them. A token without any is left out.
        remainder: whether the remaining probability counts. Without it, the alternatives are scaled
            up to 1, as TIDE's released code does with the first 30 of each token: the result is the
            entropy of a choice among those alone, and 0 for a token without alternatives.

    Returns:
        ``None`` without any log-probability.

    >>> from math import log
    >>> round(token_entropy([[log(0.5), log(0.5)], [log(1.0)]]), 4)
    0.3466
    >>> token_entropy([]) is None
    True
    >>> likely = [[log(0.6), log(0.2)]]
    >>> round(token_entropy(likely), 4), round(token_entropy(likely, remainder=False), 4)
    (0.9503, 0.5623)
    """
    entropies = [
        entropy for token in logprobs if (entropy := _entropy(token, remainder)) is not None
    ]
    return math.fsum(entropies) / len(entropies) if entropies else None


def _entropy(logprobs: Iterable[float], remainder: bool) -> float | None:
    known = [math.exp(min(logprob, 0.0)) for logprob in logprobs if not math.isnan(logprob)]
    if not known:
        return None
    total = math.fsum(known)
    if not remainder:
        shares = [share / total for share in known] if total else []
    else:
        shares = [share / max(total, 1.0) for share in known]
        shares.append(max(1.0 - total, 0.0))
    return -math.fsum(share * math.log(share) for share in shares if share > 0)
