"""``tidegauge``: the group of commands, and how errors are printed."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from tidegauge._version import __version__
from tidegauge.cli.terminal import VisibleLog, print_line
from tidegauge.errors import TidegaugeError

_COMMANDS: Final = {
    "backtest": "Test calibrated thresholds on recorded runs.",
    "calibrate": "Calibrate thresholds on successful runs, with a bound on false stops.",
    "dashboards": "Write Grafana dashboards to files, or send them to Grafana.",
    "decisions": "Serve the decisions of a fleet to agents: which runs must stop.",
    "demo": "Run scripted agents that solve tasks, loop or get lost, with all metrics.",
    "doctor": "Show what is installed and set here, and check that it works.",
    "export": "Write the measurements of runs as tables: Parquet or CSV.",
    "hook": "Install or remove the hooks of coding agents, for 'tidegauge watch'.",
    "inspect": "Show how the spans of traces are read: runs, steps, and why a span makes none.",
    "learn": "Learn a score from recorded runs, successful and failed.",
    "judge": "Score the competencies of agents in recorded runs, with a model.",
    "replay": "Measure recorded runs: loops, success over turns, streaks, exploration.",
    "report": "Write an HTML page about recorded runs: loops, words, every step.",
    "rules": "Write Prometheus recording rules and alerts.",
    "select": "Select recorded runs by their measurements.",
    "serve": "Receive the spans of agents in any language, and serve their metrics.",
    "watch": "Watch the coding agents of this machine: loops, nudges, refusals.",
    "worker": "Measure the runs of a fleet, from a Kafka topic.",
    "worlds": "Measure scripted agents in small worlds with known faults.",
}
"""The commands, each in the module of its name, but ``rules``."""

_INTERRUPTED: Final = 130
_INTERNAL_ERROR: Final = 70


class _LazyGroup(click.Group):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = "dashboards" if cmd_name == "rules" else cmd_name
        command = getattr(importlib.import_module(f"tidegauge.cli.{module}"), cmd_name)
        assert isinstance(command, click.Command), f"{cmd_name} is not a command"  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", message="tidegauge %(version)s")
def cli() -> None:
    """Live observability for language-model agents: loops, progress and exploration.

    To observe agents while they run, add tidegauge to their code (see tidegauge.configure). These
    commands do the rest.

    \b
    Examples:
      tidegauge demo                      see all metrics at work
      tidegauge replay runs.jsonl         measure recorded runs, as a table
      tidegauge replay runs.jsonl --json  every number of every run
      tidegauge replay --from codex ~/.codex/sessions
                                          measure sessions of a coding agent
      tidegauge replay runs.jsonl --policy loop_repeats=3
                                          where that rule would stop them
      tidegauge backtest runs.jsonl       what stopping would save
      tidegauge calibrate runs.jsonl -o policy.toml
                                          a policy from your successful runs
      tidegauge learn runs.jsonl -o score.json
                                          a score from your own runs
      tidegauge report runs.jsonl -o report.html
                                          explore them on an HTML page
      tidegauge select runs.jsonl --where "auv > 0.8" -o best.jsonl
                                          keep some of the runs
      tidegauge export runs.jsonl -o tables
                                          the measurements, for a database
      tidegauge judge runs.jsonl --model PROVIDER:NAME -o scores.jsonl
                                          a model scores the agents' competencies
      tidegauge serve                     receive the spans of agents (OTLP)
      tidegauge inspect traces.json       how the spans of traces are read
      tidegauge decisions --kafka HOST:9092 --topic agents
                                          serve to agents which runs must stop
      tidegauge worker --kafka HOST:9092 --topic agents
                                          measure the runs of a fleet
      tidegauge hook install              let coding agents report to tidegauge
      tidegauge watch                     watch Codex, Claude, Copilot, others
      tidegauge dashboards --out grafana  Grafana dashboards and provisioning
      tidegauge rules --out rules         recording rules and alerts
      tidegauge worlds                    which metric detects which fault
      tidegauge doctor                    what is installed and works

    For more about a command, run 'tidegauge COMMAND --help'.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    The exit code is that of the command (0 for success), 2 for wrong usage or a
    :class:`~tidegauge.errors.TidegaugeError`, 1 for a file that cannot be read or written, 130
    after Ctrl-C, 70 for an internal error. An error is one line on standard error; if the reader
    of the output is gone, nothing is printed. With the variable TIDEGAUGE_DEBUG set, an internal
    error is a traceback.
    """
    _open_standard_streams()
    # A terminal that lacks a character gets a question mark, not a traceback.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleLog())
    try:
        code = cli.main(arguments, prog_name="tidegauge", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except TidegaugeError as error:
        code = _print_error(str(error), 2)
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        what = error.strerror or str(error)
        code = _print_error(what if error.filename is None else f"{error.filename}: {what}", 1)
    except Exception as error:
        if os.environ.get("TIDEGAUGE_DEBUG"):
            raise
        code = _print_error(
            f"internal error, {type(error).__name__}: {error}; "
            "set TIDEGAUGE_DEBUG=1 for the traceback, and report it",
            _INTERNAL_ERROR,
        )
    sys.exit(code)


def _open_standard_streams() -> None:
    """Open the standard streams that the program was started without: empty, or to nowhere.

    Otherwise the next file that is opened would get the number of one, and what is written to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _show(error: click.ClickException) -> None:
    """Print an error as click does, visible: it may name a file."""
    shown = io.StringIO()
    error.show(shown)
    for line in shown.getvalue().splitlines():
        print_line(line, err=True)


def _print_error(message: str, code: int) -> int:
    print_line(f"tidegauge: {message}", err=True)
    return code
