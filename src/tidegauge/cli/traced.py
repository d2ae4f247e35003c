"""Recorded runs as traces: what ``calibrate`` and ``backtest`` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.recorded import replay_files
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.replay import Replay
from tidegauge.policies import SCORES, Policy, RunTrace, TraceSink, score_named

__all__ = ["SCORES_HELP", "checked_alpha", "checked_scores", "traced"]


def checked_scores(
    ctx: click.Context, param: click.Parameter, value: Sequence[str]
) -> tuple[str, ...]:
    """Names of scores, each once."""
    try:
        return tuple(dict.fromkeys(score_named(name).name for name in value))
    except ConfigurationError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def checked_alpha(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """A share of runs that a line can be drawn for."""
    if not 0 < value < 1:
        raise click.BadParameter(f"{value:g} is not more than 0 and less than 1", ctx, param)
    return value


def traced(
    files: Iterable[str],
    scores: Iterable[str],
    *,
    ignore_actions: Iterable[str],
    strict: bool,
    rules: Policy | None = None,
) -> tuple[list[RunTrace], Replay, FaultLog]:
    """The traces of all runs of the files, what was read, and what was wrong with it."""
    traces: list[RunTrace] = []
    faults = FaultLog(strict=strict)
    sink = TraceSink(scores, on_trace=traces.append, rules=rules)
    recording = Replay(sink, ignore_actions=frozenset(ignore_actions), on_fault=faults.fault)
    replay_files(files, recording, faults)
    sink.close()
    return traces, recording, faults


SCORES_HELP = f"One of {', '.join(SCORES)}."
"""Which scores there are."""
