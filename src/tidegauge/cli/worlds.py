"""``tidegauge worlds``: what the metrics say of agents of which the truth is known."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from tidegauge.worlds.survey import SurveyRow, survey

__all__ = ["survey_markdown", "worlds"]

_COLUMNS = (
    ("world", "world"),
    ("agent", "agent"),
    ("steps", "steps"),
    ("success", "solved"),
    ("exploration_error", "exploration error"),
    ("exploitation_error", "exploitation error"),
    ("stale_max", "stale max"),
    ("premature_halt", "premature halt"),
    ("displaced_leads", "displaced leads"),
    ("failed_rounds_max", "failed rounds max"),
    ("loop_ratio", "loop ratio"),
)


@click.command()
@click.option(
    "--seeds",
    default=20,
    show_default=True,
    type=click.IntRange(1, 1_000),
    help="How many worlds of each kind.",
)
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, as in the docs.")
def worlds(seeds: int, markdown: bool) -> None:
    """Run scripted agents in small worlds and show what the metrics say of them.

    A grid with tasks that need one another, documents that refer to one another, and code: each
    agent has one known fault, or none, and the table shows which metric tells it from the others.

    \b
    Examples:
      tidegauge worlds
      tidegauge worlds --seeds 5 --markdown
    """
    rows = survey(range(seeds))
    if markdown:
        click.echo(survey_markdown(rows))
        return
    table = Table(box=None, pad_edge=False)
    for number, (_, heading) in enumerate(_COLUMNS):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*_cells(row))
    Console(width=None if Console().is_terminal else 160).print(table)


def survey_markdown(rows: list[SurveyRow]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| " + " | ".join(heading for _, heading in _COLUMNS) + " |",
        "| " + " | ".join("---" if n < 2 else "---:" for n in range(len(_COLUMNS))) + " |",
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def _cells(row: SurveyRow) -> list[str]:
    values = (getattr(row, name) for name, _ in _COLUMNS)
    return [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
