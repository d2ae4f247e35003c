"""``tidegauge backtest``: what stopping at calibrated thresholds would do to recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import orjson

from tidegauge.cli.command_settings import COUNT, FLAG, TEXT, number, setting, settings_options
from tidegauge.cli.output_files import print_bytes
from tidegauge.cli.recording_options import TraceSettings, read_traces
from tidegauge.cli.terminal import (
    NOT_MEASURED,
    RunProgress,
    percent,
    print_line,
    printable,
)
from tidegauge.cli.text_table import TextTable
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    DEFAULT_RULES,
    Policy,
    PolicyFile,
    RunTrace,
    Threshold,
    Thresholds,
    calibrate,
    read_policy,
    run_mark,
    score_named,
)
from tidegauge.policies.backtesting import (
    BASELINES,
    Backtest,
    Share,
    backtest_thresholds,
)
from tidegauge.policies.backtesting import backtest as judge
from tidegauge.policies.shift import SHIFTED, kolmogorov_smirnov, spread
from tidegauge.policies.trace import RULES

__all__ = ["backtest"]


@dataclass(frozen=True, kw_only=True)
class BacktestSettings(TraceSettings):
    """Settings of ``tidegauge backtest``."""

    calibration_runs: int = setting(
        COUNT, 20, "Number of successful runs per group for each calibration."
    )
    repeats: int = setting(number(int, "N", 1, 5_000), 200, "Number of random draws of these runs.")
    leave_out: str | None = setting(
        click.Choice(["agent"]),
        None,
        "Calibrate each agent's thresholds on the runs of the other agents of its task group.",
    )
    policy: str | None = setting(
        TEXT,
        None,
        "Test the thresholds and rules of this policy, as if each stopped a run, on the runs that "
        "it was not calibrated on. FILE is a policy (.toml), or default for the default rules.",
        metavar="FILE",
    )
    seed: int = setting(number(int, "N", 0), 0, "Seed of the draws.")
    json: bool = setting(FLAG, False, "Print one JSON document instead of a table.")


@click.command()
@settings_options(BacktestSettings)
def backtest(settings: BacktestSettings) -> None:
    """Report what stopping runs at a calibrated threshold would have done to recorded runs.

    In each group of runs (task group and agent), a threshold is calibrated on random successful
    runs and tested on all others, many times; no run is on both sides. The table shows the share
    of successful runs that would have been stopped, the share of the others, what stopping would
    have saved, and the same for step counts alone (steps completed, and steps begun), which are the
    baselines. Intervals contain 95% of the draws, with the test runs resampled: the range of
    results of a single calibration.

    \b
    Examples:
      tidegauge backtest runs.jsonl
      tidegauge backtest runs.jsonl --alpha 0.01 --calibration-runs 150
      tidegauge backtest runs.jsonl --score stagnation --score repetition
      tidegauge backtest runs.jsonl --json
      tidegauge backtest runs.jsonl --leave-out agent
      tidegauge backtest later-runs.jsonl --policy policy.toml
      tidegauge backtest runs.jsonl --score score.json --score stagnation
                                            a score of tidegauge learn

    Exit code 0: every file was read; 1: a file could not be read; 2: wrong usage, or an error in
    the input with --strict.
    """
    policy, traced = _policy(settings.policy), settings.scores
    if policy is not None:
        traced = tuple(dict.fromkeys(one.measures for one in policy.thresholds))
        if not traced and not policy.rules:
            raise ConfigurationError(f"--policy: {settings.policy} has no threshold and no rule")
    traced = (
        *(score for score in traced if score.name not in BASELINES),
        *map(score_named, BASELINES),
    )
    scores = [score.name for score in traced]
    rules = Policy(policy.rules) if policy is not None and policy.rules else None
    traces, skipped, errors = read_traces(settings, traced, rules)
    shown: float | None = settings.alpha
    if policy is not None:
        found, shown = _of_policy(policy, traces, scores, settings)
    else:
        with RunProgress(len(traces)) as progress:
            found = judge(
                traces,
                scores=scores,
                guarantee=settings.bound(),
                calibration_runs=settings.calibration_runs,
                repeats=settings.repeats,
                leave_out_agent=settings.leave_out == "agent",
                by_task=settings.by_task,
                seed=settings.seed,
                advance=progress.advance,
            )
    if settings.json:
        data = _document(found, shown, skipped_lines=skipped)
        print_bytes(orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE))
    else:
        errors.exit_if_nothing_read(len(traces))
        _print_backtest(found, shown)
    errors.exit_if_unreadable()


def _policy(name: str | None) -> PolicyFile | None:
    if name == "default":
        return PolicyFile(DEFAULT_RULES)
    return None if name is None else read_policy(name)


def _of_policy(
    policy: PolicyFile,
    traces: Sequence[RunTrace],
    scores: Sequence[str],
    settings: BacktestSettings,
) -> tuple[Backtest, float | None]:
    """The policy's thresholds, compared with step count calibrated on the same runs, if given."""
    learned_from = [trace for trace in traces if run_mark(trace.run) in policy.calibrated_on]
    test = [trace for trace in traces if run_mark(trace.run) not in policy.calibrated_on]
    if learned_from:
        click.echo(
            f"left out: {len(learned_from)} runs that the policy was calibrated on", err=True
        )
    alphas = (one.alpha for one in policy.thresholds if one.alpha is not None)
    alpha = next(alphas, settings.alpha)
    bound = settings.bound()
    thresholds: list[Threshold] = list(policy.thresholds)
    for baseline in BASELINES:
        if all(one.score != baseline for one in thresholds):
            learned = calibrate(learned_from, score=baseline, guarantee=replace(bound, alpha=alpha))
            thresholds += [group.threshold for group in learned if group.threshold is not None]
    held = Thresholds(thresholds)

    def above(trace: RunTrace, score: str) -> float | None:
        if score == RULES:
            return 0.0
        own = held.of(trace.agent, trace.task_group)
        return next((one.threshold for one in own if one.score == score), None)

    for threshold in policy.thresholds:
        _report_shift(threshold, held, test)
    shown = alpha if thresholds else None
    found = backtest_thresholds(
        test,
        above,
        scores=[
            *(score for score in scores if any(one.score == score for one in thresholds)),
            *([RULES] if policy.rules else ()),
        ],
        repeats=settings.repeats,
        seed=settings.seed,
    )
    return found, shown


def _report_shift(threshold: Threshold, held: Thresholds, test: Sequence[RunTrace]) -> None:
    """Say if the successful runs have other scores than those that it was learned from."""
    scores = [
        trace.highest(threshold.score)
        for trace in test
        if trace.success and threshold in held.of(trace.agent, trace.task_group)
    ]
    below = spread(scores, threshold.threshold)
    chance = kolmogorov_smirnov(threshold.scores, below)
    if chance < SHIFTED:
        names = " ".join(filter(None, (threshold.task_group, threshold.agent))) or "all runs"
        print_line(
            f"{printable(names)}: the {threshold.score} of {len(scores)} successful runs differs "
            f"from that of the calibration (p = {chance:.1g}), so the bound may not hold; "
            "calibrate again",
            err=True,
        )


def _document(found: Backtest, alpha: float | None, *, skipped_lines: int) -> dict[str, Any]:
    """The document of ``--json``; ``alpha`` is ``None`` if no threshold was calibrated."""
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
                "with_threshold": row.with_threshold,
                "oracle": row.oracle,
            }
            for row in found.rows
        ],
        "summary": [
            {
                "score": one.score,
                **_shares(one, "good_stopped", "steps_saved"),
                "groups": one.groups,
                **_shares(one, "good_stopped_of_task_groups", "steps_saved_of_task_groups"),
                "task_groups": one.task_groups,
                "oracle": one.oracle,
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
    found: dict[str, Any] = {}
    for name in names:
        share: Share | None = getattr(of, name)
        found[name] = None if share is None else share.value
        found[f"{name}_interval"] = None if share is None else [share.low, share.high]
    return found


def _print_backtest(found: Backtest, alpha: float | None) -> None:
    """Print the table, the groups that it leaves out, and a summary."""
    if not found.rows and not found.left_out:
        print_line("no runs")
        return
    numbers = ("successful", "of these stopped", "others stopped", "steps saved", "tokens saved")
    table = TextTable(("task group", "agent", "score"), (*numbers, "stopped at", "delay"))
    for row in found.rows:
        table.add(
            printable(row.task_group),
            printable(row.agent),
            row.score,
            f"{row.good} of {row.runs}",
            _share(row.good_stopped),
            percent(row.bad_stopped.value if row.bad_stopped is not None else None),
            _share(row.steps_saved),
            percent(row.tokens_saved.value if row.tokens_saved is not None else None),
            NOT_MEASURED if row.stopped_at is None else f"{row.stopped_at:.1f}",
            NOT_MEASURED if row.delay is None else f"{row.delay:+.1f}",
        )
    table.print()
    for task_group, agent, good in found.left_out:
        name = " ".join(printable(one) for one in (task_group, agent) if one) or "unnamed"
        print_line(f"left out: {name}, because {good} successful runs are too few to calibrate on")
    missing = sum(row.with_threshold == 0 for row in found.rows)
    if missing and alpha is not None:
        click.echo(f"no threshold in {missing} rows: too few calibration runs for alpha {alpha:g}")
    click.echo()
    _print_summary(found, alpha)


def _print_summary(found: Backtest, alpha: float | None) -> None:
    summaries = {one.score: one for one in found.summary}
    for one in found.summary:
        if one.steps_saved is None or one.good_stopped is None:
            print_line(
                f"{one.score}: no summary; it needs a group with 30 successful runs and 10 others"
            )
            continue
        line = (
            f"{one.score}: {_share(one.steps_saved)} of the steps saved, "
            f"{_share(one.good_stopped)} of the successful runs stopped "
            f"({'' if alpha is None else f'alpha {alpha:g}; '}mean of {one.groups} groups)"
        )
        if one.score not in BASELINES:
            for baseline, name in zip(BASELINES, ("steps completed", "steps begun"), strict=True):
                beside = summaries.get(baseline)
                base = beside.steps_saved if beside is not None else None
                if base is not None and base.value > 0:
                    line += f"; {one.steps_saved.value / base.value:.2f} x {name} alone"
        if one.oracle:
            line += (
                f"; {one.steps_saved.value / one.oracle:.0%} of what an oracle saves that ends "
                "failing runs after their first step"
            )
        nested = one.steps_saved_of_task_groups
        if one.task_groups > 1 and nested is not None:
            line += f"; mean of {one.task_groups} task groups: {percent(nested.value)}"
        print_line(line)


def _share(share: Share | None) -> str:
    if share is None:
        return NOT_MEASURED
    return f"{share.value:.1%} [{100 * share.low:.0f}-{share.high:.0%}]"
