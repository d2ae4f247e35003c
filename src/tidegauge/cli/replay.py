"""``tidegauge replay``: recorded runs through the engine of live runs."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

import click
import orjson

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.recorded import RecordedRuns, replay_files
from tidegauge.cli.recording_options import recording_options
from tidegauge.cli.written import written_to
from tidegauge.errors import ConfigurationError
from tidegauge.events import StepSink
from tidegauge.instrumentation.replay import Replay
from tidegauge.policies import Policy, parse_rules, read_policy

__all__ = ["refuse_overwriting", "replay", "rules"]


def rules(ctx: click.Context, param: click.Parameter, value: str | None) -> Policy:
    """The policy that ``--policy`` describes; without one nothing is stopped."""
    if value is None:
        return Policy()
    try:
        return (
            read_policy(value).policy() if value.endswith(".toml") else Policy(parse_rules(value))
        )
    except ConfigurationError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command(context_settings={"max_content_width": 100})
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, not a table.")
@click.option(
    "--steps-out",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write a JSON line for every step here.",
)
@click.option(
    "--t-max",
    metavar="N",
    type=click.IntRange(min=1),
    help="Turns within which success counts towards AUV: for every run, whatever it says itself.",
)
@click.option(
    "--policy",
    metavar="RULES",
    callback=rules,
    help="End a run where one of these rules stops it, as in loop_repeats=3,failed_rounds=3; or "
    "the file of a policy (.toml). Signals: loop_repeats, result_streak, failed_rounds, steps.",
)
@recording_options
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    as_json: bool,
    steps_out: str | None,
    t_max: int | None,
    policy: Policy,
    ignore_actions: tuple[str, ...],
    strict: bool,
) -> None:
    """Measure recorded runs with the engine that measures live ones.

    A FILE has one JSON object a line (docs/replay.md tells its form); - is standard input. Several
    files are one recording, read in this order. Prints a table by agent, task group and memory.

    \b
    Examples:
      tidegauge replay runs.jsonl
      tidegauge replay day1.jsonl day2.jsonl --json | jq '.runs[] | select(.loops != [])'
      tidegauge replay runs.jsonl --ignore-action think --steps-out steps.jsonl
      tidegauge replay runs.jsonl --policy loop_repeats=3,failed_rounds=3

    A line that cannot be taken is told on standard error as FILE:LINE: reason, counted and
    skipped. Exit code 0: every file was read, lines may have been skipped; 1: a file could not be
    read, or not be written; 2: wrong usage, or a fault with --strict.
    """
    refuse_overwriting(steps_out, files, "--steps-out")
    runs = RecordedRuns(policy)
    faults = FaultLog(strict=strict)
    with ExitStack() as stack:
        sink: StepSink = runs
        if steps_out is not None:
            from tidegauge.cli.step_lines import StepLines

            out = stack.enter_context(written_to(steps_out))
            sink = lines = StepLines(
                runs,
                runs.engine,
                lambda line: out.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)),
            )
            stack.callback(lines.close)
        recording = Replay(
            sink, ignore_actions=frozenset(ignore_actions), t_max=t_max, on_fault=faults.fault
        )
        replay_files(files, recording, faults)
    if as_json:
        from tidegauge.cli.document import document

        data = document(runs, skipped_lines=recording.skipped_lines)
        _print_bytes(orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE))
    else:
        from tidegauge.cli.table import print_groups

        print_groups(runs, skipped_lines=recording.skipped_lines)
    if faults.unreadable_files:
        ctx.exit(1)


def _print_bytes(data: bytes) -> None:
    # With PYTHONUNBUFFERED set the stream is a raw one, which may take a part only.
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def refuse_overwriting(out: str | None, files: tuple[str, ...], option: str) -> None:
    """A file that is read is not written."""
    if out is None or not os.path.exists(out):
        return
    for file in files:
        if os.path.exists(file) and os.path.samefile(out, file):
            raise click.BadParameter(f"{out} is being read", param_hint=option)
