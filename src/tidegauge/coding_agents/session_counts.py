"""How many sessions coding agents had and have."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition

_MAX_SESSIONS: Final = 10_000
"""Sessions that are remembered: a further one of them would count again."""

_MAX_AGENTS: Final = 200
_OTHER: Final = "other"


class SessionCounts:
    """Counts by agent; of more than 200 agents, the further ones are ``other``.

    >>> counts = SessionCounts()
    >>> counts.began("codex", "s1"), counts.began("codex", "s1"), counts.began("codex", "s2")
    (None, None, None)
    >>> [found["codex", ""] for found in counts.metrics(active=["codex"]).values()]
    [2, 1]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._sessions: Counter[str] = Counter()

    def began(self, agent: str, session: str) -> None:
        """A run of a session began; the first one counts."""
        known = (agent, session)
        with self._lock:
            if known in self._known:
                self._known.move_to_end(known)
                return
            self._known[known] = None
            if len(self._known) > _MAX_SESSIONS:
                self._known.popitem(last=False)
            self._sessions[self._name(agent)] += 1

    def metrics(
        self, active: Iterable[str]
    ) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """The metrics.

        Args:
            active: the agents of the sessions that have a run now.
        """
        with self._lock:
            now = Counter(map(self._name, active))
            return {
                metric: {(agent, ""): counts[agent] for agent in self._sessions}
                for metric, counts in (
                    (catalog.SESSIONS, self._sessions),
                    (catalog.SESSIONS_ACTIVE, now),
                )
            }

    def _name(self, agent: str) -> str:
        known = agent in self._sessions or len(self._sessions) < _MAX_AGENTS
        return agent if known else _OTHER
