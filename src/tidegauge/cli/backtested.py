"""What a backtest found, as a table and as a document."""

from __future__ import annotations

from typing import Any

import click

from tidegauge.cli.plain_table import (
    NOT_MEASURED,
    add_row,
    open_table,
    percent,
    print_table,
    printable,
)
from tidegauge.policies.backtest import BEFOREHAND, Backtest, Share

__all__ = ["document", "tell"]


def document(found: Backtest, alpha: float | None, *, skipped_lines: int) -> dict[str, Any]:
    """The document of ``--json``; ``alpha``, ``None`` where no line was drawn."""
    return {
        "alpha": alpha,
        "rows": [
            {
                "task_group": row.task_group,
                "agent": row.agent,
                "score": row.score,
                "runs": row.runs,
                "good": row.good,
                **_shares(row, "good_stopped", "bad_stopped", "steps_saved", "tokens_saved"),
                **_shares(row, "seconds_saved"),
                "delay": row.delay,
                "stopped_at": row.stopped_at,
                "lined": row.lined,
            }
            for row in found.rows
        ],
        "summary": [
            {
                "score": one.score,
                **_shares(one, "good_stopped", "steps_saved"),
                "groups": one.groups,
            }
            for one in found.summary
        ],
        "left_out": [
            {"task_group": task_group, "agent": agent, "good": good}
            for task_group, agent, good in found.left_out
        ],
        "skipped_lines": skipped_lines,
    }


def _shares(of: object, *names: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in names:
        share: Share | None = getattr(of, name)
        told[name] = None if share is None else share.value
        told[f"{name}_interval"] = None if share is None else [share.low, share.high]
    return told


def tell(found: Backtest, alpha: float | None) -> None:
    """Print the table, what has no row, and what it comes to."""
    numbers = ("runs", "good", "good stopped", "bad stopped", "steps saved", "tokens saved")
    table = open_table(("task group", "agent", "score"), (*numbers, "stopped at", "delay"))
    for row in found.rows:
        add_row(
            table,
            printable(row.task_group),
            printable(row.agent),
            row.score,
            str(row.runs),
            str(row.good),
            _share(row.good_stopped),
            percent(row.bad_stopped.value if row.bad_stopped is not None else None),
            _share(row.steps_saved),
            percent(row.tokens_saved.value if row.tokens_saved is not None else None),
            NOT_MEASURED if row.stopped_at is None else f"{row.stopped_at:.1f}",
            NOT_MEASURED if row.delay is None else f"{row.delay:+.1f}",
        )
    print_table(table)
    for task_group, agent, good in found.left_out:
        name = " ".join(printable(one) for one in (task_group, agent) if one) or "unnamed"
        click.echo(f"left out: {name}, {good} good runs to learn from are too few")
    unlined = [row for row in found.rows if row.lined == 0]
    if unlined and alpha is not None:
        click.echo(f"no line in {len(unlined)} rows: too few calibration runs for alpha {alpha:g}")
    click.echo()
    _tell_summary(found, alpha)


def _tell_summary(found: Backtest, alpha: float | None) -> None:
    beside = next((one for one in found.summary if one.score == BEFOREHAND), None)
    for one in found.summary:
        if one.steps_saved is None or one.good_stopped is None:
            click.echo(f"{one.score}: no group with 30 good runs and 10 bad ones to sum up")
            continue
        line = (
            f"{one.score}: {_share(one.steps_saved)} of the steps saved, "
            f"{_share(one.good_stopped)} of the good runs stopped "
            f"({'' if alpha is None else f'alpha {alpha:g}; '}mean of {one.groups} groups)"
        )
        base = beside.steps_saved if beside is not None else None
        if one.score != BEFOREHAND and base is not None and base.value > 0:
            line += f"; {one.steps_saved.value / base.value:.2f} x step count alone"
        click.echo(line)


def _share(share: Share | None) -> str:
    if share is None:
        return NOT_MEASURED
    return f"{share.value:.1%} [{share.low:.0%} to {share.high:.0%}]"
