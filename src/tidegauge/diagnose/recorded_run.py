"""The data of a run for the report (numbers, steps, recorded lines), and conditions on its numbers.

Conditions, such as ``auv > 0.8 and loop_ratio == 0``, are a subset of Python's expressions, parsed
and never executed: comparisons, ``and``, ``or``, ``not``, numbers, texts, lists of them, ``in``,
and the names of a run's fields.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.streaming_metrics import RunReport
from tidegauge.streaming_metrics.auv import auv_contribution
from tidegauge.streaming_metrics.records import FinishedRun

FIELDS = (
    "run",
    "agent",
    "task_group",
    "memory",
    "model",
    "steps",
    "t_max",
    "finished",
    "success",
    "outcome",
    "auv",
    "loop_steps",
    "loop_ratio",
    "tide_loop_steps",
    "tide_loop_ratio",
    "tide_cycles",
    "tide_cycle_steps",
    "loops",
    "lost_tokens",
    "lost_seconds",
    "stale_score",
    "stale_score_max",
    "frontier",
    "pending",
    "exploration_required",
    "exploration_errors",
    "exploration_error",
    "exploitation_required",
    "exploitation_errors",
    "exploitation_error",
    "failed_rounds_max",
    "result_streak_max",
    "stuck_streak_max",
    "empty_streak",
    "skipped_steps",
    "loop_evidence_max",
    "answers",
    "answer_streak_max",
    "turns_without_calls_max",
    "premature_halt",
    "cut_short",
    "progress_auv",
    "recall_lag",
    "novelty",
    "tokens",
    "distinct_places",
    "backtracks",
    "stopped",
    "refused_calls",
)
"""The fields of a run, with the names of ``replay --json``. Nested fields have one name here;
``loops`` is the number of loops, ``stopped`` the reason."""


def fields_of(report: RunReport) -> dict[str, Any]:
    """The fields of a run. ``None``: not measured.

    ``auv`` is the run's contribution to that of its group, see
    :func:`~tidegauge.streaming_metrics.auv.auv_contribution`.
    """
    auv = None
    if report.finished and report.t_max is not None and report.success is not None:
        auv = auv_contribution(report.steps if report.success else None, report.t_max)
    special = {
        "auv": auv,
        "loops": len(report.loops),
        "stopped": report.intervention_reason if report.intervention == "stop" else None,
    }
    return {name: special[name] if name in special else getattr(report, name) for name in FIELDS}


@dataclass(slots=True)
class ReportedStep:
    """One step of a run.

    Attributes:
        arguments: the arguments of its calls, as text; empty without contents.
        place: id of the place before the step.
        label: the place in words; empty if only a digest is known.
        line: index of its line among those of its run.
        outcome_line: index of the line with its result.
        failed: whether it failed; ``None``: unknown.
        measured: its measurements, as in ``replay --steps-out``.
        interventions: (action, reason) of each intervention at this step.
    """

    name: str
    arguments: str
    place: str
    label: str
    line: int
    outcome_line: int
    failed: bool | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    interventions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class ReportedRun:
    """One run.

    Attributes:
        task: its task; empty if unknown.
    """

    report: RunReport
    task: str
    steps: Sequence[ReportedStep]
    lines: Sequence[bytes]

    def finished_run(self) -> FinishedRun:
        """The record for the metrics of a group."""
        report = self.report
        return FinishedRun(
            success=report.success if report.finished else None,
            steps=report.steps,
            t_max=report.t_max,
            loop_steps=report.loop_steps,
        )


_Fields: TypeAlias = Mapping[str, Any]
_Term: TypeAlias = Callable[[_Fields], Any]

_MAX_CHARACTERS: Final = 10_000
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, among: value in among,
    ast.NotIn: lambda value, among: value not in among,
}


class Condition:
    """A condition on the fields of a run.

    A comparison with a field that was not measured is false, also with ``!=`` and ``not in``; test
    for such fields with ``is None`` and ``is not None``. A field alone is true unless it is false,
    0 or empty.

    Raises:
        ConfigurationError: the text is not a valid condition, or names an unknown field.

    >>> good = Condition("auv > 0.8 and loop_ratio == 0", names={"auv", "loop_ratio"})
    >>> good.holds({"auv": 0.9, "loop_ratio": 0.0}), good.holds({"auv": None, "loop_ratio": 0.0})
    (True, False)
    >>> Condition("speed > 3", names={"auv", "loop_ratio"})
    Traceback (most recent call last):
        ...
    tidegauge.errors.ConfigurationError: Unknown field 'speed'; use auv, loop_ratio.
    """

    def __init__(self, text: str, *, names: Collection[str]) -> None:
        self.text = text
        self._names = names
        if len(text) > _MAX_CHARACTERS:
            raise ConfigurationError(
                f"The condition has {len(text)} characters; use at most {_MAX_CHARACTERS}."
            )
        try:
            tree = ast.parse(text.strip(), mode="eval")
            self._holds = self._term(tree.body)
        except ConfigurationError:
            raise
        except (SyntaxError, ValueError) as error:
            reason = getattr(error, "msg", str(error))
            raise ConfigurationError(f"Invalid condition {text!r}: {reason}") from None
        except (RecursionError, MemoryError):
            raise ConfigurationError(
                "The condition is nested too deeply; use fewer levels."
            ) from None

    def holds(self, fields: _Fields) -> bool:
        """Whether the condition is true for a run with these fields.

        Raises:
            ConfigurationError: it compares values of different types, such as a text and a number.
        """
        return bool(self._holds(fields))

    def _term(self, node: ast.expr) -> _Term:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda fields: value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return lambda fields: -value
            case ast.Name(id=name):
                if name not in self._names:
                    known = ", ".join(sorted(self._names))
                    raise ConfigurationError(f"Unknown field {name!r}; use {known}.")
                return lambda fields: fields[name]
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                terms = [self._term(part) for part in parts]
                return lambda fields: [term(fields) for term in terms]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                term = self._term(operand)
                return lambda fields: not term(fields)
            case ast.BoolOp(op=ast.And(), values=values):
                terms = [self._term(value) for value in values]
                return lambda fields: all(term(fields) for term in terms)
            case ast.BoolOp(op=ast.Or(), values=values):
                terms = [self._term(value) for value in values]
                return lambda fields: any(term(fields) for term in terms)
            case ast.Compare(left=left, ops=ops, comparators=rights):
                return self._chain(left, ops, rights)
        raise ConfigurationError(
            f"The condition contains {ast.unparse(node)!r}; use only comparisons, and, or, not, "
            "in, numbers, texts and names of fields."
        )

    def _chain(self, left: ast.expr, ops: list[ast.cmpop], rights: list[ast.expr]) -> _Term:
        """A chain of comparisons, as in ``0 < loop_ratio <= 0.5``: all must be true."""
        sides = [left, *rights]
        links = [self._comparison(op, *sides[index : index + 2]) for index, op in enumerate(ops)]
        return lambda fields: all(link(fields) for link in links)

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> _Term:
        ours, theirs = self._term(left), self._term(right)
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise ConfigurationError(
                    f"The condition compares {ast.unparse(right)} with is; use == for values "
                    "other than None."
                )
            wanted = isinstance(op, ast.Is)
            return lambda fields: (ours(fields) is None) == wanted
        compare = _COMPARISONS[type(op)]

        def comparison(fields: _Fields) -> bool:
            one, other = ours(fields), theirs(fields)
            if one is None or other is None:
                return False
            try:
                return bool(compare(one, other))
            except TypeError as error:
                raise ConfigurationError(
                    f"Cannot compare {ast.unparse(left)} with {ast.unparse(right)}: {error}"
                ) from None

        return comparison
