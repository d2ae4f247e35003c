"""``python -m benchmarks [NAME ...]``: measure, and print each number with its target.

``python -m benchmarks soak --minutes 10`` loads the receiver for that long, and ``watch-soak``
``tidegauge watch``;
``python -m benchmarks stop_scores FILE...`` shows how the stagnation score was chosen,
``python -m benchmarks recorded_signals FOLDER`` which runs each signal touches,
``python -m benchmarks policy_shift FOLDER`` what the alert on a policy's shift sees,
``python -m benchmarks chanting FOLDER`` which answers chant,
``python -m benchmarks stop_kinds FOLDER`` what each kind of stop saves, and guards of others,
``python -m benchmarks preset FOLDER`` what the preset stops, with each successful run, and
``python -m benchmarks evidence --data NAME=FOLDER`` makes the numbers of ``docs/evidence.md``.
"""

from __future__ import annotations

import importlib
import platform
import sys

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from benchmarks.measure import Line

SUBJECTS = {
    "step": "all default metrics for one step, and the loop detector alone",
    "decorator": "a decorated tool against a bare span",
    "langchain_handler": "the LangChain handler against the shortest one that makes four spans",
    "exploration": "a step in a known graph of 10,000 places, with and without errors",
    "memory": "memory of active and of ended runs",
    "hostile": "runs with only new values: time of a step and memory, late and early",
    "jsonl": "what recording to a file adds to a step",
    "scrape": "one scrape of many runs",
    "live_page": "what the live page adds to a step, and a response to it",
    "serve": "the receiver: spans over gRPC to metrics, and their delay",
    "fleet": "gateways, a topic and workers: spans a second, delay, and time of a restart",
    "alert_delay": "from the onset of a loop to the webhook of an Alertmanager",
    "repetition": "what reading the words of every action adds to a step",
    "backtest": "a backtest of 7,000 runs: its time and memory",
    "import_time": "import tidegauge, in addition to opentelemetry.sdk.trace",
}


def main(names: list[str]) -> int:
    """Measure the named subjects, or all of them. Returns 1 when a target is missed."""
    if names[:1] == ["soak"]:
        from benchmarks import soak

        return soak.main(names[1:])
    if names[:1] == ["watch-soak"]:
        from benchmarks import watch_soak

        return watch_soak.main(names[1:])
    if names[:1] == ["recorded_signals"]:
        from benchmarks import recorded_signals

        return recorded_signals.main(names[1:])
    if names[:1] == ["policy_shift"]:
        from benchmarks import policy_shift

        return policy_shift.main(names[1:])
    if names[:1] == ["preset"]:
        from benchmarks import preset

        return preset.main(names[1:])
    if names[:1] == ["chanting"]:
        from benchmarks import chanting

        return chanting.main(names[1:])
    if names[:1] == ["stop_kinds"]:
        from benchmarks import stop_kinds

        return stop_kinds.main(names[1:])
    if names[:1] == ["stop_scores"]:
        from benchmarks import stop_scores

        return stop_scores.main(names[1:])
    if names[:1] == ["evidence"]:
        from benchmarks import evidence

        return evidence.main(names[1:])
    unknown = [name for name in names if name not in SUBJECTS]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; use one of {', '.join(SUBJECTS)}", file=sys.stderr)
        return 2
    lines: list[Line] = []
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), console=Console(stderr=True)
    ) as progress:
        task = progress.add_task("")
        for name in names or SUBJECTS:
            progress.update(task, description=f"measuring {name}: {SUBJECTS[name]}")
            lines += importlib.import_module(f"benchmarks.{name}").measure()
    table = Table(title=f"tidegauge on Python {platform.python_version()}, {platform.machine()}")
    for heading, justify in (
        ("", "left"),
        ("measured", "right"),
        ("target", "right"),
        ("", "left"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for line in lines:
        sign = "≥" if line.at_least else "≤"
        mark = "" if line.limit is None else f"{sign} {line.limit:g} {line.unit}"
        verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[line.met]
        note = f" [dim]{line.note}[/]" if line.note else ""
        table.add_row(line.name, f"{line.value:.3g} {line.unit}", mark, verdict + note)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
