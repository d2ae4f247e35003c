"""``tidegauge``: the group of commands, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from tidegauge._version import __version__
from tidegauge.errors import TidegaugeError

__all__ = ["cli", "main"]

_COMMANDS: Final = {
    "backtest": "What stopping at calibrated lines would have done to recorded runs.",
    "calibrate": "Learn from good runs where to stop bad ones, with a promise.",
    "dashboards": "Write Grafana's dashboards, or send them to a Grafana.",
    "decisions": "Tell agents what was decided in a fleet: which runs are to stop.",
    "demo": "Watch scripted agents make progress, get lost and loop: everything at once.",
    "judge": "Have a model score how recorded runs were worked on, and why.",
    "replay": "Measure recorded runs: loops, success over turns, streaks, exploration.",
    "report": "Make one page of recorded runs: their loops, their words, every step.",
    "rules": "Write Prometheus's recording rules and alerts.",
    "select": "Choose recorded runs by what was measured of them.",
    "serve": "Receive the spans of agents in any language, and serve their metrics.",
    "worker": "Measure the runs of a fleet, from a Kafka topic.",
    "worlds": "Run scripted agents in small worlds where the truth is known.",
}
"""Each command, in the module of its name, and what it is for."""

_INTERRUPTED: Final = 130
_OUR_FAULT: Final = 70


class _LazyGroup(click.Group):
    """Commands that are imported when they are used: none pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"tidegauge.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command), f"{cmd_name} is no command"  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="tidegauge %(version)s")
def cli() -> None:
    """Live observability for language-model agents: loops, progress and exploration.

    Agents are watched while they run by adding tidegauge to their code (see
    tidegauge.configure); these commands work beside them.

    \b
    Examples:
      tidegauge demo                             see what there is to see
      tidegauge replay runs.jsonl                measure recorded runs, as a table
      tidegauge replay runs.jsonl --json         the same, every number of every run
      tidegauge replay runs.jsonl --policy loop_repeats=3
                                                 where that rule would have stopped them
      tidegauge backtest runs.jsonl              what stopping at a promise would have saved
      tidegauge calibrate runs.jsonl -o policy.toml
                                                 learn such a policy from your good runs
      tidegauge report runs.jsonl -o report.html one page to look at them
      tidegauge select runs.jsonl --where "auv > 0.8" -o best.jsonl
                                                 keep the runs that you want
      tidegauge judge runs.jsonl --model PROVIDER:NAME -o scores.jsonl
                                                 have a model score how they were worked on
      tidegauge serve                            receive the spans of agents (OTLP)
      tidegauge decisions --kafka B --topic T    tell agents which runs of a fleet are to stop
      tidegauge worker --kafka HOST:9092 --topic agents
                                                 measure centrally what gateways took
      tidegauge dashboards --out grafana         dashboards, and Grafana's provisioning
      tidegauge rules --out rules                recording rules and alerts
      tidegauge worlds                           which metric tells which fault

    'tidegauge COMMAND --help' tells the rest.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    The exit code is the command's own (0, all well), 2 for a wrong call or a
    :class:`~tidegauge.errors.TidegaugeError`, 1 for what cannot be read or written, 130 after
    Ctrl-C, 70 for a fault of ours. An error is one line on standard error, and nobody reading the
    output any more is none; with the variable TIDEGAUGE_DEBUG set, a fault of ours is a traceback.
    """
    # A terminal that lacks a character gets a question mark, not a traceback.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    try:
        code = cli.main(arguments, prog_name="tidegauge", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except TidegaugeError as error:
        code = _told(str(error), 2)
    except BrokenPipeError:
        # Python flushes standard output once more at its exit: let it go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        code = _told(str(error), 1)
    except Exception as error:
        if os.environ.get("TIDEGAUGE_DEBUG"):
            raise
        code = _told(
            f"internal error, {type(error).__name__}: {error}; "
            "please report it with what TIDEGAUGE_DEBUG=1 shows",
            _OUR_FAULT,
        )
    sys.exit(code)


def _told(message: str, code: int) -> int:
    click.echo(f"tidegauge: {message}", err=True)
    return code
