"""Runs in tools whose caller was not known yet: the caller is found when its root arrives.

A tool's span ends after the agent inside it, and the model call of the agent around it may end
later still. So the run inside has ended, without a parent, before anything shows the run around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping
from typing import Final

_MAX_RUNS: Final = 1_000


class ParentlessRuns:
    """The last 1,000 runs of a trace that ended and are in no other run, as far as is known.

    >>> runs = ParentlessRuns()
    >>> runs.add("helper", around=3)
    >>> runs.take(1, parents={3: 2, 2: 1}, waiting=(), roots={1}, tools={3}, sure=False)
    ['helper']
    """

    def __init__(self) -> None:
        self._around: OrderedDict[str, tuple[int, bool]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._around)

    def add(self, run: str, *, around: int) -> None:
        """A run without a parent has ended; the span around its root has this id."""
        self._around[run] = around, False
        if len(self._around) > _MAX_RUNS:
            self._around.popitem(last=False)

    def take(
        self,
        root: int,
        *,
        parents: Mapping[int, int | None],
        waiting: Container[int],
        roots: Container[int],
        tools: Container[int],
        sure: bool,
    ) -> list[str]:
        """Take out the runs that were inside the run that ends, by their ids.

        If its root is no agent, and without a tool between them, two agents may be side by side in
        one workflow.

        Args:
            root: id of the root of the run that ends.
            parents: ids of the parents of the spans that have arrived, by id.
            waiting: ids of those that were not emitted yet: they are not known.
            roots: ids of the roots of runs.
            tools: ids of the spans that are tools.
            sure: whether the root is an agent, and not less.
        """
        found: list[str] = []
        known: dict[int, tuple[int | None, bool]] = {}  # where a climb from a span ends
        for run, (around, before) in list(self._around.items()):
            if around not in known:
                known[around] = _climb(around, parents, waiting, roots, tools)
            top, passed = known[around]
            in_tool = before or passed
            if top is None or top == root:
                del self._around[run]
            else:
                self._around[run] = top, in_tool
            if top == root and (in_tool or sure):
                found.append(run)
        return found


def _climb(
    span: int,
    parents: Mapping[int, int | None],
    waiting: Container[int],
    roots: Container[int],
    tools: Container[int],
) -> tuple[int | None, bool]:
    """The root around a span, or a span that is not known; and whether a tool is between."""
    in_tool, above = False, span
    while above not in roots:
        in_tool = in_tool or above in tools
        if above in waiting or above not in parents:
            break
        outer = parents[above]
        if outer is None:
            return None, in_tool
        above = outer
    return above, in_tool
