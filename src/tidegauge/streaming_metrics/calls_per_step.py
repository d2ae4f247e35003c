"""Calls per step: how many calls a model chose at once, and how many of them were the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from tidegauge.catalog import MetricDefinition
from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupView,
    Measured,
    Signal,
    Sum,
    zero,
)
from tidegauge.streaming_metrics.digested import compared_calls
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep


def counted_calls(
    calls: Sequence[bytes], declared: Sequence[ToolDeclaration | None]
) -> tuple[int, int]:
    """How many calls a step has, and how many of them equal one before them in the step.

    Thoughts beside other calls are left out, as loops leave them out. A call that is declared to
    change something equals no other: to append a line twice is intended.

    Args:
        calls: digests of the calls, by tool and arguments.
        declared: what is declared of the tool of each call; empty, nothing of any.

    >>> counted_calls([b"search", b"search", b"read", b"search"], ())
    (4, 2)
    """
    places = compared_calls(calls)
    same = places
    if declared:
        same = [place for place in places if (one := declared[place]) is None or not one.mutates]
    return len(places), len(same) - len({calls[place] for place in same})


class CallsPerStep(Metric[IssuedStep]):
    """The calls of the last step, and how many of them equal another one before them in the step.

    Two calls are equal if they have the same tool and the same arguments, as loops compare them.
    The step itself may be new: no loop says that its calls are the same. O(1) time and memory; a
    run has it from its first step on that has not exactly one call.

    Attributes:
        calls: calls of the last step.
        duplicates: how many of them equal one before them.
        most: the most calls of a step.
        most_duplicates: the most duplicates of a step.
        total: duplicates of all steps.

    >>> calls = CallsPerStep()
    >>> calls.update(IssuedStep(0, b"", b"", calls=12, duplicates=8))
    >>> calls.calls, calls.duplicates
    (12, 8)
    """

    takes: ClassVar[type] = IssuedStep
    __slots__ = ("calls", "duplicates", "most", "most_duplicates", "total")

    def __init__(self) -> None:
        self.calls = 1
        self.duplicates = 0
        self.most = 1
        self.most_duplicates = 0
        self.total = 0

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step."""
        self.calls = step.calls
        self.duplicates = step.duplicates
        self.total += step.duplicates
        self.most = max(self.most, step.calls)
        self.most_duplicates = max(self.most_duplicates, step.duplicates)

    @property
    def value(self) -> int:
        """Calls of the last step."""
        return self.calls


DUPLICATE_CALLS: Final = MetricDefinition(
    "tidegauge_duplicate_calls_total",
    "counter",
    "calls",
    "Calls with the same tool and arguments as another call of their step, chosen at once.",
)
MOST_CALLS: Final = MetricDefinition(
    "tidegauge_highest_calls_per_step",
    "gauge",
    "calls",
    "Most calls that an active run has chosen at once, in one step.",
)


def _highest(group: GroupView) -> int | None:
    """``None``: no active run has issued a step."""
    return max([run.calls_per_step_max or 1 for run in group.active if run.steps], default=None)


DECLARATION: Final = Declaration(
    name="calls_per_step",
    kind=CallsPerStep,
    issued=True,
    # Most agents call one tool at a time: their steps give it nothing.
    brought_by=("calls",),
    sums=(Sum("duplicate_calls", zero, kept_as="total"),),
    absent={"calls_per_step_max": None, "duplicate_calls_max": None},
    report=lambda run, calls: {
        "calls_per_step_max": calls.most,
        "duplicate_calls_max": calls.most_duplicates,
    },
    signals=(
        Signal(
            name="calls_per_step",
            read=Attribute(CallsPerStep, "calls"),
            help="calls that the model chose at once, in the last step; absent until a step has "
            "several",
            message=lambda now, at: f"{now.calls_per_step} calls in one step",
            blocks=True,
            score=False,
            moment="issued",
        ),
        Signal(
            name="duplicate_calls",
            read=Attribute(CallsPerStep, "duplicates"),
            help="calls of the last step with the same tool and arguments as another one before "
            "them in the step; absent until a step has several",
            message=lambda now, at: (
                f"{now.calls_per_step} calls in one step, "
                f"{now.calls_per_step - now.duplicate_calls} of them distinct"
            ),
            blocks=True,
            score=False,
            moment="issued",
        ),
    ),
    of_group=(
        Measured(DUPLICATE_CALLS, lambda group: group.totals.duplicate_calls),
        Measured(MOST_CALLS, _highest),
    ),
)
