"""``tidegauge backtest``: what stopping at calibrated lines would have done to recorded runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import orjson

from tidegauge.cli.backtested import document, tell
from tidegauge.cli.progress import RunProgress
from tidegauge.cli.recording_options import recording_options
from tidegauge.cli.traced import (
    SCORES_HELP,
    checked_alpha,
    checked_scores,
    traced,
)
from tidegauge.policies import (
    DEFAULT_RULES,
    Line,
    Lines,
    Policy,
    PolicyFile,
    RunTrace,
    calibrate,
    read_policy,
    run_mark,
)
from tidegauge.policies.backtest import (
    BEFOREHAND,
    Backtest,
    backtest_lines,
)
from tidegauge.policies.backtest import backtest as judge
from tidegauge.policies.trace import RULES

__all__ = ["backtest"]

_COMBINED = "stagnation"


@click.command(context_settings={"max_content_width": 100})
@recording_options
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    callback=checked_alpha,
    help="Share of good runs that may be stopped by mistake, at most.",
)
@click.option(
    "--score",
    "scores",
    metavar="NAME",
    multiple=True,
    default=(_COMBINED,),
    show_default=_COMBINED,
    callback=checked_scores,
    help="What is judged, always beside steps (step count alone); can be given several times. "
    f"{SCORES_HELP}",
)
@click.option(
    "--calibration-runs",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many good runs of a group each line is learned from.",
)
@click.option(
    "--repeats",
    metavar="N",
    type=click.IntRange(min=1, max=5_000),
    default=200,
    show_default=True,
    help="How often they are drawn anew.",
)
@click.option(
    "--leave-out",
    type=click.Choice(["agent"]),
    help="Learn an agent's lines from the other agents' runs of its task group only.",
)
@click.option(
    "--policy",
    "policy_file",
    metavar="FILE",
    help="Judge this policy's lines and rules instead, as if each stopped a run, on the runs that "
    "it was not learned from; default: the rules that hold when nothing is set.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, not a table.")
@click.pass_context
def backtest(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    alpha: float,
    scores: tuple[str, ...],
    calibration_runs: int,
    repeats: int,
    leave_out: str | None,
    policy_file: str | None,
    seed: int,
    as_json: bool,
    ignore_actions: tuple[str, ...],
    strict: bool,
) -> None:
    """Tell what stopping runs at a calibrated line would have done to recorded ones.

    In every group of runs (task group and agent) a line is learned from some of the good runs and
    held against all others, again and again; no run is on both sides. Told are the share of good
    runs that would have been stopped, the share of the others, what that would have saved, and
    the same for step count alone, which is the rule to beat. An interval holds 95% of the draws,
    with the test runs resampled: what one calibration may bring.

    \b
    Examples:
      tidegauge backtest runs.jsonl
      tidegauge backtest runs.jsonl --alpha 0.01 --calibration-runs 150
      tidegauge backtest runs.jsonl --score stagnation --score result_streak --json
      tidegauge backtest runs.jsonl --leave-out agent
      tidegauge backtest later-runs.jsonl --policy policy.toml

    Exit code 0: every file was read; 1: a file could not be read; 2: wrong usage, or a fault with
    --strict.
    """
    policy = _policy(policy_file)
    if policy is not None:
        scores = tuple(dict.fromkeys(line.score for line in policy.lines))
        if not scores and not policy.rules:
            raise click.BadParameter(
                f"{policy_file} has no line and no rule", param_hint="--policy"
            )
    scores = (*(score for score in scores if score != BEFOREHAND), BEFOREHAND)
    rules = Policy(policy.rules) if policy is not None and policy.rules else None
    traces, recording, faults = traced(
        files, scores, ignore_actions=ignore_actions, strict=strict, rules=rules
    )
    shown: float | None = alpha
    if policy is not None:
        found, shown = _of_policy(policy, traces, scores, alpha=alpha, repeats=repeats, seed=seed)
    else:
        with RunProgress(len(traces)) as progress:
            found = judge(
                traces,
                scores=scores,
                alpha=alpha,
                calibration_runs=calibration_runs,
                repeats=repeats,
                leave_out_agent=leave_out == "agent",
                seed=seed,
                advance=progress.advance,
            )
    if as_json:
        told = document(found, shown, skipped_lines=recording.skipped_lines)
        sys.stdout.buffer.write(orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE))
    else:
        tell(found, shown)
    if faults.unreadable_files:
        ctx.exit(1)


def _policy(name: str | None) -> PolicyFile | None:
    if name == "default":
        return PolicyFile(DEFAULT_RULES)
    return None if name is None else read_policy(name)


def _of_policy(
    policy: PolicyFile,
    traces: Sequence[RunTrace],
    scores: Sequence[str],
    *,
    alpha: float,
    repeats: int,
    seed: int,
) -> tuple[Backtest, float | None]:
    """The policy's own lines, beside step count learned from the same runs where they are there."""
    learned_from = [trace for trace in traces if run_mark(trace.run) in policy.calibrated_on]
    test = [trace for trace in traces if run_mark(trace.run) not in policy.calibrated_on]
    if learned_from:
        click.echo(f"left out: {len(learned_from)} runs that the lines were learned from", err=True)
    alpha = next((line.alpha for line in policy.lines if line.alpha is not None), alpha)
    lines: list[Line] = list(policy.lines)
    if all(line.score != BEFOREHAND for line in lines):
        learned = calibrate(learned_from, score=BEFOREHAND, alpha=alpha)
        lines += [group.line for group in learned if group.line is not None]
    held = Lines(lines)

    def above(trace: RunTrace, score: str) -> float | None:
        if score == RULES:
            return 0.0
        own = held.of(trace.agent, trace.task_group)
        return next((line.above for line in own if line.score == score), None)

    shown = alpha if lines else None
    found = backtest_lines(
        test,
        above,
        scores=[
            *(score for score in scores if any(line.score == score for line in lines)),
            *([RULES] if policy.rules else ()),
        ],
        repeats=repeats,
        seed=seed,
    )
    return found, shown
