"""The tables that ``tidegauge export`` writes: their columns, and the rows of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidegauge.fleet.fields import invalid

Row: TypeAlias = dict[str, Any]


class TableColumn(NamedTuple):
    """A column of a table.

    Args:
        name: of the column.
        kind: of its values; each may also be ``None``, not measured.
        path: where its value is in a record; by default, under the column's name.

    >>> column = TableColumn("lost_tokens", "integer", ("lost_in_loops", "tokens"))
    >>> column.read({"lost_in_loops": {"tokens": 2}})
    2
    """

    name: str
    kind: Literal["text", "integer", "number", "boolean", "time"]
    path: tuple[str, ...] = ()

    def read(self, record: Mapping[str, Any]) -> Any:
        """Its value in a record.

        Raises:
            ValueError: it is of another kind.
        """
        value: Any = record
        for key in self.path or (self.name,):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            return None
        types, wanted, limit = _KINDS[self.kind]
        if type(value) not in types or (limit is not None and abs(value) > limit):
            raise invalid(self.name, wanted, value)
        return value


class _Kind(NamedTuple):
    types: tuple[type, ...]
    wanted: str
    limit: int | None = None


_KINDS: Final = {
    "text": _Kind((str,), "a text"),
    "integer": _Kind((int,), "a whole number of 64 bits", 2**63 - 1),
    "number": _Kind((float, int), "a number"),
    "boolean": _Kind((bool,), "true or false"),
    "time": _Kind((float, int), "seconds since the epoch, until the year 9999", 253_402_300_799),
}


class Table(NamedTuple):
    """A table.

    Args:
        name: of its file.
        columns: in their order.
    """

    name: str
    columns: tuple[TableColumn, ...]

    def row(self, record: Mapping[str, Any]) -> Row:
        """What a record has in each column.

        Raises:
            ValueError: a value is of another kind than its column.
        """
        return {column.name: column.read(record) for column in self.columns}


def _columns(kind: Any, *names: str) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(name, kind) for name in names)


RUNS: Final = Table(
    "runs",
    (
        *_columns(
            "text", "run", "trace_id", "parent", "agent", "agent_name", "task_group", "memory"
        ),
        *_columns("text", "outcome"),
        *_columns("boolean", "success", "finished"),
        *_columns("integer", "steps", "refused_calls", "loop_steps"),
        *_columns("number", "loop_ratio"),
        *_columns("integer", "tide_loop_steps", "tide_cycles", "tide_cycle_steps"),
        *_columns("number", "tide_loop_ratio"),
        TableColumn("lost_tokens", "number", ("lost_in_loops", "tokens")),
        TableColumn("lost_seconds", "number", ("lost_in_loops", "seconds")),
        *_columns("integer", "stale_score", "stale_score_max", "frontier", "pending"),
        TableColumn("exploration_required", "integer", ("required", "exploration")),
        TableColumn("exploration_errors", "integer", ("errors", "exploration")),
        TableColumn("exploration_error", "number"),
        TableColumn("exploitation_required", "integer", ("required", "exploitation")),
        TableColumn("exploitation_errors", "integer", ("errors", "exploitation")),
        TableColumn("exploitation_error", "number"),
        *_columns("integer", "failed_rounds_max", "result_streak_max"),
        *_columns("boolean", "premature_halt"),
        *_columns("text", "cut_short"),
        *_columns("number", "progress_auv", "recall_lag", "novelty"),
        TableColumn("stopped_step", "integer", ("stopped", "step")),
        TableColumn("stopped_reason", "text", ("stopped", "reason")),
    ),
)
"""A row for each run: its entry in ``replay --json``, or its summary."""

LOOPS: Final = Table(
    "loops",
    (*_columns("text", "run"), *_columns("integer", "first_step", "period", "repeats", "steps")),
)
"""A row for each loop of a run."""

STEPS: Final = Table(
    "steps",
    (
        *_columns("text", "run"),
        *_columns("integer", "t"),
        *_columns("boolean", "loop", "tide_loop"),
        *_columns("integer", "loop_period", "loop_repeats"),
        *_columns("integer", "case"),
        *_columns("boolean", "gain", "progress", "error"),
        *_columns("boolean", "exploration_error", "exploitation_error"),
        *_columns("integer", "stale", "frontier", "pending"),
    ),
)
"""A row for each step: its line in ``replay --steps-out``."""

DECISIONS: Final = Table(
    "decisions",
    (
        *_columns("text", "run", "trace_id"),
        *_columns("integer", "step"),
        *_columns("text", "action", "reason", "message"),
        *_columns("time", "time"),
    ),
)
"""A row for each decision about a run."""


def loop_rows(record: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each loop of a run's record.

    Raises:
        ValueError: it does not have the documented form.
    """
    loops = record.get("loops") or ()
    if not isinstance(loops, list | tuple) or not all(isinstance(one, Mapping) for one in loops):
        raise ValueError("loops: not a list of objects")
    for loop in loops:
        yield LOOPS.row({**loop, "run": record.get("run")})
