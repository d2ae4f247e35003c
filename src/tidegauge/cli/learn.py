"""``tidegauge learn``: a score from recorded runs, successful and failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

import click

from tidegauge.cli.command_settings import (
    FLAG,
    OUT_FILE,
    number,
    setting,
    settings_options,
)
from tidegauge.cli.recording_options import (
    InputErrors,
    StepInputSettings,
    open_output,
    read_recordings,
    refuse_overwriting,
)
from tidegauge.cli.terminal import NOT_MEASURED, RunProgress, TextTable, print_line
from tidegauge.errors import ConfigurationError
from tidegauge.policies.calibration import Guarantee
from tidegauge.policies.learning import (
    LEAST,
    Example,
    ExampleSink,
    LearnedGroup,
    score_document,
)
from tidegauge.policies.learning import learn as learn_from

_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class LearnSettings(StepInputSettings):
    """Settings of ``tidegauge learn``."""

    share: float = setting(
        number(float, "SHARE", 0, 1),
        0.5,
        "Share of the tasks to learn from. The others are left for tidegauge calibrate.",
    )
    seed: int = setting(number(int, "N", 0), 0, "Seed of the draw of these tasks.")
    explain: bool = setting(FLAG, False, "Print the parts with the largest weights.")
    out: Path = setting(OUT_FILE, MISSING, "Write the score to this file, in JSON.", "-o")


@click.command()
@settings_options(LearnSettings)
def learn(settings: LearnSettings) -> None:
    """Learn a score from recorded runs, successful and failed, and write it as a file.

    The score is a weighted sum of about 60 numbers at every action (steps, repetition, loops,
    failed steps, failing tests, edits made again, places visited again) and the words of the task,
    the last action and the last result. Each agent has its own weights if it has enough runs, else
    those of its task group; where there are too few runs, the score is the stagnation.

    It is learned from half of the tasks. Learn its threshold from the others: tidegauge calibrate
    and tidegauge backtest leave out the tasks that it was learned from. The file has weights,
    checksums of tasks, and no contents.

    Needs the extra learn: pip install '.[learn]' in a clone. Reading the score needs nothing more.

    \b
    Examples:
      tidegauge learn runs.jsonl -o score.json
      tidegauge backtest runs.jsonl --score score.json --score stagnation
                                            is it better on your runs?
      tidegauge calibrate runs.jsonl --score score.json -o policy.toml
      tidegauge learn runs.jsonl --explain -o score.json
                                            what raises and lowers it

    Exit code 0: the file was written; 1: a file could not be read or written; 2: wrong usage, or an
    error in the input with --strict.
    """
    refuse_overwriting(settings.out, settings.files, "--out")
    if not settings.share:
        raise ConfigurationError("--share is 0; use more than 0 and at most 1")
    examples: list[Example] = []
    errors = InputErrors(strict=settings.strict)
    sink = ExampleSink(examples.append, exact=settings.exact, detect_polls=settings.detect_polls)
    read_recordings(settings, sink, errors)
    errors.exit_if_nothing_read(len(examples) + sink.could_be_ended)
    if sink.could_be_ended:
        print_line(
            f"left out: {sink.could_be_ended} runs that a policy could end when they were recorded",
            err=True,
        )
    if not examples:
        raise ConfigurationError(
            "no run with a known outcome; record runs with success true or false"
        )
    with RunProgress(2 * len(examples)) as progress:
        groups, tasks = learn_from(
            examples, share=settings.share, seed=settings.seed, advance=progress.advance
        )
    with open_output(settings.out) as out:
        out.write(score_document(groups, tasks))
    _print_groups(groups)
    if settings.explain:
        _print_weights(groups)
    learned = sum(group.weights is not None for group in groups)
    print_line(f"{settings.out} written; weights: {learned}")
    errors.exit_if_unreadable()


def _print_groups(groups: Sequence[LearnedGroup]) -> None:
    table = TextTable(("task group", "agent", "score"), ("runs", "failed", "left to calibrate"))
    for group in groups:
        table.add(
            group.task_group,
            "any" if group.agent is None else group.agent,
            "stagnation" if group.weights is None else "learned",
            str(group.runs),
            str(group.failed),
            str(group.left),
        )
    table.print()
    if any(group.weights is None for group in groups):
        print_line(
            f"where the score is the stagnation, {LEAST} successful and {LEAST} failed runs are "
            "needed; an agent without its own weights has those of its task group"
        )
    needed = Guarantee(_ALPHA).least_runs()
    if any(group.left < needed for group in groups):
        print_line(
            f"a threshold needs {needed} successful runs (alpha {_ALPHA:g}); --share 0.3 leaves "
            "more to calibrate"
        )


def _print_weights(groups: Sequence[LearnedGroup]) -> None:
    for group in groups:
        if group.weights is None:
            continue
        name = f"{group.task_group or NOT_MEASURED} {'any' if group.agent is None else group.agent}"
        print_line(f"{name}: {', '.join(group.weights.largest())}")
