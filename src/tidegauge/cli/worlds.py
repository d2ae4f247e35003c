"""``tidegauge worlds``: what the metrics show for agents with known faults."""

from __future__ import annotations

from dataclasses import dataclass

import click

from tidegauge.cli.command_settings import FLAG, number, setting, settings_options
from tidegauge.cli.terminal import TextTable, print_line
from tidegauge.worlds.survey import SurveyRow, survey

_NAMES = 2
_COLUMNS = (
    ("world", "world"),
    ("agent", "agent"),
    ("steps", "steps"),
    ("success", "solved"),
    ("exploration_error", "exploration error"),
    ("exploitation_error", "exploitation error"),
    ("stale_max", "stale max"),
    ("premature_halt", "premature halt"),
    ("out_of_budget", "out of budget"),
    ("displaced_leads", "displaced leads"),
    ("failed_rounds_max", "failed rounds max"),
    ("loop_ratio", "loop ratio"),
)


@dataclass(frozen=True, kw_only=True)
class WorldsSettings:
    """Settings of ``tidegauge worlds``."""

    seeds: int = setting(number(int, "N", 1, 1_000), 20, "Number of worlds of each kind.")
    markdown: bool = setting(FLAG, False, "Print the table as Markdown, as in the docs.")


@click.command()
@settings_options(WorldsSettings)
def worlds(settings: WorldsSettings) -> None:
    """Run scripted agents in small worlds and show their metrics.

    The worlds are a grid with dependent tasks, documents with links, and code. Each agent has one
    known fault, or none, and the table shows which metric detects it.

    \b
    Examples:
      tidegauge worlds
      tidegauge worlds --seeds 5 --markdown
    """
    rows = survey(range(settings.seeds))
    if settings.markdown:
        for line in survey_markdown(rows).splitlines():
            print_line(line, wrap=False)
        return
    headings = [heading for _, heading in _COLUMNS]
    table = TextTable(headings[:_NAMES], headings[_NAMES:])
    for row in rows:
        table.add(*_cells(row))
    table.print()


def survey_markdown(rows: list[SurveyRow]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| " + " | ".join(heading for _, heading in _COLUMNS) + " |",
        "| " + " | ".join("---" if n < _NAMES else "---:" for n in range(len(_COLUMNS))) + " |",
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def _cells(row: SurveyRow) -> list[str]:
    values = (getattr(row, name) for name, _ in _COLUMNS)
    return [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
