"""What a model is told when a policy steps in: what repeats, and what it has not tried.

Naming the open places and tasks is what helped models most in Exploration and Exploitation Errors
Are Measurable for Language Model Agents (arXiv 2604.13151), section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegauge.events import Identity, Outlook

__all__ = ["advise"]

_MAX_NAME: Final = 100
_BLOCKED: Final = "This call was not run: it would bring the same again."
_GO_ON: Final = "Do something that you have not tried, or finish and say what is missing."


def advise(happened: str, outlook: Outlook, *, blocked: bool = False) -> str:
    """A message to the model.

    Args:
        happened: what repeats and since when, as a rule tells it.
        outlook: what the run has before it.
        blocked: whether the message is in place of a call's result.

    >>> outlook = Outlook(unexplored=("cellar", "attic"), repeated=("look", "wait"))
    >>> print(advise("the same 2 steps repeated twice, since step 2", outlook))
    You make no progress: the same 2 steps repeated twice, since step 2 (look, wait).
    Not visited yet: cellar, attic.
    Do something that you have not tried, or finish and say what is missing.
    """
    steps = f" ({_listed(outlook.repeated)})" if outlook.repeated else ""
    lines = [f"You make no progress: {happened}{steps}."]
    if blocked:
        lines.insert(0, _BLOCKED)
    if outlook.unexplored:
        lines.append(f"Not visited yet: {_listed(outlook.unexplored)}.")
    if outlook.pending:
        lines.append(f"Ready to be done: {_listed(outlook.pending)}.")
    lines.append(_GO_ON)
    return "\n".join(lines)


def _listed(names: Iterable[Identity]) -> str:
    return ", ".join(_shortened(str(name)) for name in names)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
