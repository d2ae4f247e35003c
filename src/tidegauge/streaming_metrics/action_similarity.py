"""Action similarity: how much an action is like one that the run tried lately."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ChosenAction

__all__ = ["ActionSimilarity"]


class ActionSimilarity(Metric[ChosenAction]):
    """Likeness of the last action to the most similar of the ``window`` actions before it.

    Two actions are as alike as the share of words that they have in common (the Jaccard index of
    their words): 1, the same call; 0, nothing in common. It sees the creative retries that no
    digest sees, where a model words one attempt in many ways.

    O(1) a step: ``window`` comparisons of bounded sets. Memory: the words of ``window`` actions.

    Args:
        window: how many actions back.

    >>> similarity = ActionSimilarity()
    >>> for t, words in enumerate([{1, 2, 3}, {7}, {1, 2, 4}]):
    ...     similarity.update(ChosenAction(t, frozenset(words)))
    >>> similarity.value
    0.5
    """

    takes: ClassVar[type] = ChosenAction
    __slots__ = ("_current", "_recent", "window")

    def __init__(self, *, window: int = 16) -> None:
        self.window = window
        self._recent: deque[frozenset[int]] = deque(maxlen=window)
        self._current: float | None = None

    def update(self, step: ChosenAction) -> None:
        """Take the next action."""
        words, reported = step.words, step.similarity
        current = reported if reported is not None else max(self._alike(words), default=0.0)
        self._recent.append(words)
        self._current = current

    def _alike(self, words: frozenset[int]) -> list[float]:
        size = len(words)
        alike = []
        for other in self._recent:
            common = len(words & other)
            alike.append(common / (size + len(other) - common) if common else 0.0)
        return alike

    @property
    def value(self) -> float | None:
        """Likeness of the last action, 0 to 1; ``None`` before the first."""
        return self._current
