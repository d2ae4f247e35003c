"""The names that agents were seen by: what to call a run whose spans do not name its agent yet.

An agent's span is the last of its run to end, and most calls inside it do not name the agent. So
the first step of a run is counted before its agent's name is known.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from typing import Final, NamedTuple

_MAX_KEYS: Final = 1_000
_ID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|[0-9a-fA-F]{12,}|\d{5,}|[{}]")
_OPERATIONS: Final = ("invoke_agent", "invoke_workflow", "execute_task")


class _Shown(NamedTuple):
    at: int  # end of the first span that showed it
    since: float  # when that was read


class AgentNames:
    """The agents that each service and instrumentation has shown, at most 1,000 of these pairs.

    An answer depends on the times of spans, and of reading them, alone: asked again later, for
    the same times, it is the same.

    Attributes:
        changed: whether there are names that :meth:`saved` has not returned yet.

    >>> names = AgentNames()
    >>> names.show("shop", "any", "clerk", at=5, now=1.0)
    >>> names.only("shop", "any", at=4, now=2.0), names.only("shop", "any", at=5, now=2.0)
    (None, 'clerk')
    >>> names.show("shop", "any", "boss", at=7, now=3.0)
    >>> names.only("shop", "any", at=6, now=4.0), names.only("shop", "any", at=7, now=4.0)
    ('clerk', None)
    """

    def __init__(self) -> None:
        # By service and scope: the two names that were shown first.
        self._first: OrderedDict[tuple[str, str], dict[str, _Shown]] = OrderedDict()
        self.changed = False

    def show(self, service: str, scope: str, name: str, *, at: int, now: float) -> None:
        """A span that ended at a time has named the agent; it is read now."""
        key = service, scope
        first = self._first.setdefault(key, {})
        self._first.move_to_end(key)
        if len(self._first) > _MAX_KEYS:
            self._first.popitem(last=False)
        if name in first and first[name].at <= at:
            return
        first[name] = _Shown(at, now)
        if len(first) > 2:
            del first[max(first, key=first.__getitem__)]
        self.changed = True

    def only(self, service: str, scope: str, *, at: int, now: float) -> str | None:
        """The name of the only agent that was shown by then; ``None``: none, or several were."""
        first = self._first.get((service, scope), {})
        shown = [name for name, one in first.items() if one.at <= at and one.since <= now]
        return shown[0] if len(shown) == 1 else None

    def saved(self) -> str:
        """All names, as JSON."""
        self.changed = False
        return json.dumps(
            [
                [service, scope, name, *shown]
                for (service, scope), first in self._first.items()
                for name, shown in first.items()
            ]
        )

    def load(self, saved: str) -> None:
        """Take the names that :meth:`saved` returned."""
        for service, scope, name, at, since in json.loads(saved):
            self._first.setdefault((service, scope), {})[name] = _Shown(at, since)


def agent_in_name(span_name: str) -> str:
    """The name of an agent or workflow in that of its span; empty if that has an id in it.

    >>> agent_in_name("invoke_agent helper"), agent_in_name("helper.workflow")
    ('helper', 'helper')
    >>> agent_in_name("helper"), agent_in_name("Crew_58a64a37-6f9d-4a4f-8b81-4ebca6bb8f61.kickoff")
    ('helper', '')
    >>> agent_in_name("run {name}")
    ''
    """
    for operation in _OPERATIONS:
        span_name = span_name.removeprefix(operation)
    name = span_name.removesuffix(".workflow").strip()
    return "" if _ID.search(name) else name
