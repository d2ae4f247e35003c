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
from tidegauge.cli.recording_options import TraceSettings, read_traces, refuse_overwriting
from tidegauge.cli.terminal import (
    NOT_MEASURED,
    TextTable,
    percent,
    print_line,
)
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    CalibratedGroup,
    Guarantee,
    PolicyFile,
    RunTrace,
    run_mark,
    write_policy,
)
from tidegauge.policies import calibrate as learn
from tidegauge.policies.calibration import By


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

    The threshold of each group is such that at most a share alpha of new successful runs from the
    same distribution exceeds it (see docs/stop-rules.md). Several scores share alpha. A group with
    too few successful runs gets no threshold, so nothing is stopped in it.

    Runs that a policy could nudge or stop when they were recorded are left out: those that it
    stopped are not known to be successful, so a threshold learned from the others would be lower
    each time. Record a holdout (--holdout), or with observe_only, to calibrate again.

    \b
    Examples:
      tidegauge calibrate runs.jsonl -o policy.toml
      tidegauge calibrate runs.jsonl --alpha 0.01 --action stop -o policy.toml
      tidegauge calibrate runs.jsonl --action stop --holdout 0.1 -o policy.toml
      tidegauge calibrate runs.jsonl --guarantee pac -o policy.toml
      tidegauge calibrate runs.jsonl --by-task -o policy.toml
                                            several attempts at each task
      tidegauge calibrate runs.jsonl --successful run-17 -o policy.toml
                                            run-17 was stopped by mistake
      tidegauge calibrate runs.jsonl --score steps --by task_group -o policy.toml
      tidegauge calibrate --from codex sessions --assume-success -o policy.toml
      tidegauge calibrate runs.jsonl --score score.json -o policy.toml
                                            a score of tidegauge learn

    \b
    Use it:
      tidegauge backtest later-runs.jsonl --policy policy.toml
      TIDEGAUGE_POLICY=policy.toml, or tidegauge.configure(policy="policy.toml")

    Exit code 0: the file was written, even if it has no threshold; 1: a file could not be read or
    written; 2: wrong usage, or an error in the input with --strict.
    """
    out = settings.out
    bound = settings.bound(shared_by=len(dict.fromkeys(settings.scores)))
    refuse_overwriting(out, settings.files, "--out")
    traces, _, errors = read_traces(settings, settings.scores)
    errors.exit_if_nothing_read(len(traces))
    unknown = set(settings.successful) - {trace.run for trace in traces}
    if unknown:
        raise ConfigurationError(f"--successful: no run has the id {', '.join(sorted(unknown))}")
    for trace in traces:
        if trace.run in settings.successful:  # they are known, although a policy could end them
            trace.success, trace.policy = True, None
        elif settings.assume_success and trace.finished and trace.success is None:
            trace.success = True
    _refuse_censored(traces)
    if traces and not any(trace.success for trace in traces):
        print_line(_NO_SUCCESS, err=True)
    now = time.time()
    groups = [
        group
        for score in dict.fromkeys(settings.scores)
        for group in learn(
            traces,
            score=score,
            guarantee=bound,
            by=settings.by,
            by_task=settings.by_task,
            action=settings.action,
            calibrated=now,
        )
    ]
    thresholds = tuple(group.threshold for group in groups if group.threshold is not None)
    marks = frozenset(
        run_mark(trace.run) for trace in traces if trace.success and not trace.could_be_ended
    )
    policy = PolicyFile((), thresholds, settings.holdout, now, marks)
    comment = (
        f"Written by tidegauge calibrate --alpha {settings.alpha:g} --guarantee "
        f"{settings.guarantee}; docs/stop-rules.md explains it."
    )
    text = write_policy(policy, comment=comment, folder=str(out.parent))
    out.write_text(text, encoding="utf-8")
    _print_groups(groups, bound)
    _print_meaning(groups, settings, bound)
    print_line(f"{out} written; thresholds: {len(thresholds)}, action: {settings.action}")
    errors.exit_if_unreadable()


def _refuse_censored(traces: Sequence[RunTrace]) -> None:
    """Raise if a policy could end all runs whose success is known."""
    known = [trace for trace in traces if trace.success is not None]
    censored = sum(trace.could_be_ended for trace in known)
    if censored and censored == len(known):
        raise ConfigurationError(
            f"a policy could end all {censored} runs, so which of them would have succeeded is not "
            "known; record runs with a holdout (calibrate --holdout 0.1) or with observe_only"
        )


def _print_groups(groups: Sequence[CalibratedGroup], bound: Guarantee) -> None:
    table = TextTable(
        ("task group", "agent", "score"),
        ("successful runs", "threshold", "false stops, at most"),
    )
    for group in groups:
        names = (group.task_group, group.agent)
        table.add(
            *("any" if name is None else name for name in names),
            group.score,
            str(group.runs),
            NOT_MEASURED if group.threshold is None else f"{group.threshold.threshold:.4g}",
            _false_stops(group, bound),
        )
    table.print()


def _false_stops(group: CalibratedGroup, bound: Guarantee) -> str:
    if group.share_above is None:
        return f"too few: needs {bound.least_runs()}"
    return "not measured" if group.threshold is None else percent(group.share_above)


def _print_meaning(
    groups: Sequence[CalibratedGroup], settings: CalibrateSettings, bound: Guarantee
) -> None:
    """Say in words which bound holds, what was left out, and how many runs would lower it."""
    smallest = min((group.tasks for group in groups if group.threshold is not None), default=None)
    if smallest is not None:
        share = f"at most {settings.alpha:.3g} of the successful runs exceed a threshold"
        if settings.guarantee == "pac":
            print_line(f"for each group, with confidence {settings.confidence:g}: {share}")
        else:
            print_line(f"on average over calibrations: {share}; --guarantee pac bounds this one")
        shared_by = len(dict.fromkeys(settings.scores))
        if shared_by > 1:
            print_line(f"the {shared_by} scores share it: {bound.alpha:.3g} each")
        of = "tasks" if settings.by_task else "successful runs"
        print_line(
            f"the smallest group has {smallest} {of}; from {bound.next_runs(smallest)} on, its "
            "threshold can be lower"
        )
    left_out = sum(
        group.could_be_ended for group in groups if group.score == settings.scores[0].name
    )
    if left_out:
        print_line(
            f"left out: {left_out} successful runs that a policy could end when they were recorded"
        )
