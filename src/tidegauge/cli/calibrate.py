"""``tidegauge calibrate``: thresholds that successful runs stay below, from recordings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Final, cast

import click

from tidegauge.cli.command_settings import (
    FLAG,
    OUT_FILE,
    TEXT,
    SettingType,
    number,
    setting,
    settings_options,
)
from tidegauge.cli.output_files import refuse_overwriting
from tidegauge.cli.recording_options import TraceSettings, read_traces
from tidegauge.cli.terminal import (
    NOT_MEASURED,
    add_row,
    open_table,
    percent,
    print_table,
    printable,
)
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    CalibratedGroup,
    PolicyFile,
    false_stop_bound,
    least_runs,
    run_mark,
    write_policy,
)
from tidegauge.policies import calibrate as learn
from tidegauge.policies.calibration import By

__all__ = ["calibrate"]


def _labels(value: str) -> tuple[By, ...]:
    """The labels by which runs are grouped."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if names == ("none",):
        return ()
    for name in names:
        if name not in ("agent", "task_group"):
            raise ValueError(f"{name!r} is not a label; use agent, task_group, both, or none")
    return cast("tuple[By, ...]", names)


@dataclass(frozen=True, kw_only=True)
class CalibrateSettings(TraceSettings):
    """Settings of ``tidegauge calibrate``."""

    by: tuple[By, ...] = setting(
        SettingType("LABELS", _labels),
        ("agent", "task_group"),
        "What gets a separate threshold: agent, task_group, both, or none for one threshold.",
    )
    action: Any = setting(
        click.Choice(["observe", "nudge", "stop"]),
        "observe",
        "What follows when a run exceeds its threshold.",
    )
    holdout: float = setting(
        number(float, "SHARE", 0, 1),
        0.0,
        "Share of the runs in which thresholds are only observed, to check that they still hold.",
    )
    successful: tuple[str, ...] = setting(
        TEXT,
        (),
        "Id of a run to count as successful, such as one that was stopped by mistake.",
        metavar="RUN",
        multiple=True,
    )
    assume_success: bool = setting(
        FLAG,
        False,
        "Count runs whose outcome is not known as successful, such as sessions of coding agents.",
    )
    out: Path = setting(OUT_FILE, MISSING, "Write the policy to this file, in TOML.", "-o")


_NO_SUCCESS: Final = (
    "no run is known to be successful; name some with --successful, or use --assume-success"
)


@click.command()
@settings_options(CalibrateSettings)
def calibrate(settings: CalibrateSettings) -> None:
    """Calibrate thresholds of scores on successful runs, and write them as a policy.

    The threshold of each group is such that a new successful run from the same distribution
    exceeds it with a probability of at most alpha (split conformal prediction, see
    docs/stop-rules.md). A group with too few successful runs gets no threshold, so nothing is
    stopped in it.

    \b
    Examples:
      tidegauge calibrate runs.jsonl -o policy.toml
      tidegauge calibrate runs.jsonl --alpha 0.01 --action stop --holdout 0.1 -o policy.toml
      tidegauge calibrate runs.jsonl --successful run-17 -o policy.toml   stopped by mistake
      tidegauge calibrate runs.jsonl --score steps --by task_group -o policy.toml
      tidegauge calibrate --from claude ~/.claude/projects --assume-success -o policy.toml

    \b
    Use it:
      tidegauge backtest later-runs.jsonl --policy policy.toml
      TIDEGAUGE_POLICY=policy.toml, or tidegauge.configure(policy="policy.toml")

    Exit code 0: the file was written, even if it has no threshold; 1: a file could not be read or
    written; 2: wrong usage, or an error in the input with --strict.
    """
    alpha, out = settings.alpha, settings.out
    refuse_overwriting(out, settings.files, "--out")
    traces, _, errors = read_traces(settings, settings.scores)
    unknown = set(settings.successful) - {trace.run for trace in traces}
    if unknown:
        raise ConfigurationError(f"--successful: no run has the id {', '.join(sorted(unknown))}")
    for trace in traces:
        assumed = settings.assume_success and trace.finished and trace.success is None
        trace.success = True if assumed or trace.run in settings.successful else trace.success
    if traces and not any(trace.success for trace in traces):
        click.echo(_NO_SUCCESS, err=True)
    now = time.time()
    groups = [
        group
        for score in settings.scores
        for group in learn(
            traces, score=score, alpha=alpha, by=settings.by, action=settings.action, calibrated=now
        )
    ]
    thresholds = tuple(group.threshold for group in groups if group.threshold is not None)
    marks = frozenset(run_mark(trace.run) for trace in traces if trace.success)
    policy = PolicyFile((), thresholds, settings.holdout, now, marks)
    comment = f"Written by tidegauge calibrate --alpha {alpha:g}; docs/stop-rules.md explains it."
    out.write_text(write_policy(policy, comment=comment), encoding="utf-8")
    _print_groups(groups, alpha)
    click.echo(f"{out} written; thresholds: {len(thresholds)}, action: {settings.action}")
    errors.exit_if_unreadable()


def _print_groups(groups: Sequence[CalibratedGroup], alpha: float) -> None:
    table = open_table(
        ("task group", "agent", "score"),
        ("successful runs", "threshold", "false stops, at most"),
    )
    for group in groups:
        names = (group.task_group, group.agent)
        add_row(
            table,
            *("any" if name is None else printable(name) for name in names),
            group.score,
            str(group.runs),
            NOT_MEASURED if group.threshold is None else f"{group.threshold.threshold:.4g}",
            _false_stops(group, alpha),
        )
    print_table(table)


def _false_stops(group: CalibratedGroup, alpha: float) -> str:
    share = false_stop_bound(group.runs, alpha)
    if share is None:
        return f"too few: needs {least_runs(alpha)}"
    return "not measured" if group.threshold is None else percent(share)
