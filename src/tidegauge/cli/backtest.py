"""``tidegauge backtest``: what stopping at calibrated thresholds would do to recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import orjson

from tidegauge.cli.command_settings import (
    COUNT,
    FLAG,
    GUARD,
    IN_FILE,
    TEXT,
    number,
    setting,
    settings_options,
)
from tidegauge.cli.recording_options import TraceSettings, read_traces
from tidegauge.cli.terminal import (
    NOT_MEASURED,
    RunProgress,
    TextTable,
    percent,
    print_json,
    print_line,
)
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    DEFAULT_RULES,
    Policy,
    PolicyFile,
    RunTrace,
    Score,
    Threshold,
    Thresholds,
    calibrate,
    guard_rules,
    read_policy,
    run_mark,
    score_named,
)
from tidegauge.policies.backtesting import (
    BASELINES,
    Backtest,
    BacktestRow,
    BacktestSummary,
    BootstrapMean,
    Costs,
    backtest_thresholds,
)
from tidegauge.policies.backtesting import backtest as judge
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS, ForeignGuard
from tidegauge.policies.prices import flat_prices, read_prices
from tidegauge.policies.shift import SHIFTED, kolmogorov_smirnov, spread
from tidegauge.policies.trace import RULES
from tidegauge.streaming_metrics.declaration import StopKind
from tidegauge.streaming_metrics.registry import SIGNALS


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
    guard: Any = setting(GUARD, None, "Test the preset: stuck, as if each of its rules stopped.")
    guards: tuple[str, ...] = setting(
        click.Choice(["all", *FOREIGN_GUARDS]),
        (),
        "Show a guard of another project, too. Can be given several times; all for every one.",
        "--other-guard",
        metavar="NAME",
        multiple=True,
    )
    prices: Path | None = setting(
        IN_FILE,
        None,
        "Show the net effect in $ per run. TOML FILE with $ per million tokens by the name of a "
        'run\'s model, as in "my-model" = 1.5.',
        metavar="FILE",
    )
    success_value: float = setting(
        number(float, "DOLLARS", 0),
        0.0,
        "Value of a successful run, which is lost if it is stopped. For the net effect.",
    )
    retry_cost: float = setting(
        number(float, "DOLLARS", 0),
        0.0,
        "Cost of each stopped run: of a retry, or of a person. For the net effect.",
    )
    seed: int = setting(number(int, "N", 0), 0, "Seed of the draws.")
    json: bool = setting(FLAG, False, "Print one JSON document instead of a table.")

    def compared(self) -> list[ForeignGuard]:
        """The guards of other projects."""
        names = FOREIGN_GUARDS if "all" in self.guards else self.guards
        return [FOREIGN_GUARDS[name] for name in names]

    def costs(self) -> Costs | None:
        """For the net effect; ``None``, it is not asked for."""
        if self.prices is not None:
            return Costs(flat_prices(read_prices(self.prices)), self.success_value, self.retry_cost)
        if self.success_value or self.retry_cost:
            raise ConfigurationError("--success-value and --retry-cost need --prices FILE")
        return None


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

    With --prices, it also shows the net effect in $ per run: the price of the tokens saved, less
    the value of successful runs that are stopped, less the cost of a retry for each stop.

    Needs: pip install '.[backtest]' in a clone.

    \b
    Examples:
      tidegauge backtest runs.jsonl
      tidegauge backtest runs.jsonl --alpha 0.01 --calibration-runs 150
      tidegauge backtest runs.jsonl --score stagnation --score repetition
      tidegauge backtest runs.jsonl --json
      tidegauge backtest runs.jsonl --leave-out agent
      tidegauge backtest later-runs.jsonl --policy policy.toml
      tidegauge backtest last-week.jsonl --guard stuck
      tidegauge backtest runs.jsonl --other-guard openhands
      tidegauge backtest runs.jsonl --prices prices.toml --success-value 2
      tidegauge backtest runs.jsonl --score score.json --score stagnation
                                            a score of tidegauge learn

    Exit code 0: every file was read; 1: a file could not be read; 2: wrong usage, or an error in
    the input with --strict.
    """
    policy, traced, costs = _policy(settings), settings.scores, settings.costs()
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
    guards = settings.compared()
    fixed = [guard.name for guard in guards if not guard.calibrated]
    learned = [guard.name for guard in guards if guard.calibrated]
    if policy is not None and learned and settings.guards != ("all",):
        raise ConfigurationError(
            f"--policy: {learned[0]} needs a threshold, which the policy has not; leave it out"
        )
    traces, skipped, errors = read_traces(settings, traced, rules, [guard.name for guard in guards])
    shown: float | None = settings.alpha
    if policy is not None:
        found, shown = _of_policy(policy, traces, (*scores, *fixed), settings, costs)
    else:
        with RunProgress(len(traces)) as progress:
            found = judge(
                traces,
                scores=(*scores, *learned),
                fixed=fixed,
                guarantee=settings.bound(),
                calibration_runs=settings.calibration_runs,
                repeats=settings.repeats,
                leave_out_agent=settings.leave_out == "agent",
                by_task=settings.by_task,
                costs=costs,
                seed=settings.seed,
                advance=progress.advance,
            )
    stops = _stops(found, policy, traced)
    if settings.json:
        data = _document(found, shown, stops, skipped_lines=skipped)
        print_json(orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE))
    else:
        errors.exit_if_nothing_read(len(traces))
        _print_backtest(found, shown, stops)
        if costs is not None:
            _print_unpriced(traces, costs)
    errors.exit_if_unreadable()


def _policy(settings: BacktestSettings) -> PolicyFile | None:
    name, guard = settings.policy, settings.guard
    if guard is not None:
        if name is not None:
            raise ConfigurationError("--guard and --policy are two policies; test one at a time")
        return PolicyFile(guard_rules(guard)[:3])
    if name == "default":
        return PolicyFile(DEFAULT_RULES)
    return None if name is None else read_policy(name)


def _of_policy(
    policy: PolicyFile,
    traces: Sequence[RunTrace],
    scores: Sequence[str],
    settings: BacktestSettings,
    costs: Costs | None,
) -> tuple[Backtest, float | None]:
    """The policy's thresholds, compared with step count calibrated on the same runs, if given."""
    learned_from = [trace for trace in traces if run_mark(trace.run) in policy.calibrated_on]
    test = [trace for trace in traces if run_mark(trace.run) not in policy.calibrated_on]
    if learned_from:
        print_line(
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
        if score == RULES or score in FOREIGN_GUARDS:
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
            *(
                score
                for score in scores
                if score in FOREIGN_GUARDS or any(one.score == score for one in thresholds)
            ),
            *([RULES] if policy.rules else ()),
        ],
        repeats=settings.repeats,
        costs=costs,
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
            f"{names}: the {threshold.score} of {len(scores)} successful runs differs "
            f"from that of the calibration (p = {chance:.1g}), so the bound may not hold; "
            "calibrate again",
            err=True,
        )


def _stops(
    found: Backtest, policy: PolicyFile | None, traced: Sequence[Score]
) -> dict[str, Sequence[StopKind]]:
    """Why each score or rule ends runs."""
    of_scores = {score.name: score.stop for score in traced}
    rules = () if policy is None else policy.rules
    of_rules = tuple(dict.fromkeys(SIGNALS[rule.signal].stop for rule in rules))
    return {
        one.score: of_rules
        if one.score == RULES
        else FOREIGN_GUARDS[one.score].stops
        if one.score in FOREIGN_GUARDS
        else (of_scores[one.score],)
        for one in found.summary
    }


def _document(
    found: Backtest,
    alpha: float | None,
    stops: Mapping[str, Sequence[StopKind]],
    *,
    skipped_lines: int,
) -> dict[str, Any]:
    """The document of ``--json``; ``alpha`` is ``None`` if no threshold was calibrated."""
    return {
        "alpha": alpha,
        "rows": [_entry(row, stops) for row in found.rows],
        "summary": [_entry(one, stops) for one in found.summary],
        "left_out": [
            dict(zip(("task_group", "agent", "good"), group, strict=True))
            for group in found.left_out
        ],
        "skipped_lines": skipped_lines,
    }


_MEANS: Final = frozenset(
    name
    for kind in (BacktestRow, BacktestSummary)
    for name, annotation in kind.__annotations__.items()
    if BootstrapMean.__name__ in str(annotation)
)


def _entry(
    of: BacktestRow | BacktestSummary, stops: Mapping[str, Sequence[StopKind]]
) -> dict[str, Any]:
    """Its fields by their names; a mean is followed by its interval."""
    entry: dict[str, Any] = {}
    for name, value in of._asdict().items():
        if name in _MEANS:
            entry[name] = None if value is None else value.value
            entry[f"{name}_interval"] = None if value is None else [value.low, value.high]
        elif name != "draws":
            entry[name] = value
        if name == "score":
            entry["stop"] = stops[value]
    return entry


def _print_backtest(
    found: Backtest, alpha: float | None, stops: Mapping[str, Sequence[StopKind]]
) -> None:
    """Print the table, the groups that it leaves out, and a summary."""
    if not found.rows and not found.left_out:
        print_line("no runs")
        return
    numbers = ("successful", "of these stopped", "others stopped", "steps saved", "tokens saved")
    priced = any(row.net is not None for row in found.rows)
    more = ("net per run",) if priced else ()
    table = TextTable(
        ("task group", "agent", "score", "stop"), (*numbers, "stopped at", "delay", *more)
    )
    for row in found.rows:
        table.add(
            row.task_group,
            row.agent,
            row.score,
            ", ".join(stops[row.score]),
            f"{row.good} of {row.runs}",
            _share(row.good_stopped),
            percent(row.bad_stopped.value if row.bad_stopped is not None else None),
            _share(row.steps_saved),
            percent(row.tokens_saved.value if row.tokens_saved is not None else None),
            NOT_MEASURED if row.stopped_at is None else f"{row.stopped_at:.1f}",
            NOT_MEASURED if row.delay is None else f"{row.delay:+.1f}",
            *([_dollars(row.net)] if priced else ()),
        )
    table.print()
    for task_group, agent, good in found.left_out:
        name = " ".join(filter(None, (task_group, agent))) or "unnamed"
        print_line(f"left out: {name}, because {good} successful runs are too few to calibrate on")
    missing = sum(row.with_threshold == 0 for row in found.rows)
    if missing and alpha is not None:
        print_line(f"no threshold in {missing} rows: too few calibration runs for alpha {alpha:g}")
    print_line()
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
            f"({_bound(one.score, alpha)}mean of {one.groups} groups)"
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
        if one.net is not None:
            line += f"; net effect per run: {_dollars(one.net)}"
            if one.priced_groups < one.groups:
                line += f" (mean of {one.priced_groups} groups)"
        print_line(line)


def _bound(score: str, alpha: float | None) -> str:
    fixed = score == RULES or (score in FOREIGN_GUARDS and not FOREIGN_GUARDS[score].calibrated)
    return "" if alpha is None or fixed else f"alpha {alpha:g}; "


def _print_unpriced(traces: Sequence[RunTrace], costs: Costs) -> None:
    """Say how many runs have no part in the net effect, and why."""
    known = [trace for trace in traces if trace.success is not None]
    silent = sum(trace.tokens is None for trace in known)
    unpriced = [one for one in known if one.tokens is not None and costs.per_token(one) is None]
    models = sorted({trace.model or NOT_MEASURED for trace in unpriced})
    reasons = [f"{silent} report no tokens"] if silent else []
    if unpriced:
        reasons.append(f"{len(unpriced)} have a model without a price ({', '.join(models)})")
    if reasons:
        print_line(f"not in the net effect, of {len(known)} runs: {'; '.join(reasons)}")


def _dollars(net: BootstrapMean | None) -> str:
    if net is None:
        return NOT_MEASURED
    return f"{net.value:+.4f} $ [{net.low:+.4f} to {net.high:+.4f}]"


def _share(share: BootstrapMean | None) -> str:
    if share is None:
        return NOT_MEASURED
    return f"{share.value:.1%} [{100 * share.low:.0f}-{share.high:.0%}]"
