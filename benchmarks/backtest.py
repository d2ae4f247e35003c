"""``tidegauge backtest`` on 7,000 runs, as a command: time and memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from benchmarks.measure import Line

RUNS: Final = 7_000
SECONDS: Final = 60
_DATA: Final = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[2] / "shared" / "data"))
_COMMAND: Final = """
import resource, sys
from tidegauge.cli.main import main
try:
    main(["backtest", sys.argv[1], "--json"])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""

_Run: TypeAlias = list[dict[str, Any]]


def _recorded() -> list[_Run]:
    """The runs of every recording that there is, each with its lines."""
    runs: dict[tuple[str, str], _Run] = {}
    for path in sorted(_DATA.glob("*.events.jsonl")):
        with path.open("rb") as stream:
            for line in stream:
                event = orjson.loads(line)
                runs.setdefault((path.name, event["run"]), []).append(event)
    return list(runs.values())


def _made_up() -> list[_Run]:
    """Runs that now and then word one attempt in many ways, where none were recorded."""
    chance = random.Random(7)
    runs = []
    for number in range(500):
        run: _Run = [{"type": "start", "agent": f"agent {number % 7}", "task_group": "made up"}]
        stuck = number % 3 == 0
        for step in range(chance.randrange(3, 12) + 8 * stuck):
            asked = "red shoes" if stuck else " ".join(chance.sample(_WORDS, 4))
            query = f"{asked} {step}"
            outcome = "nothing found" if stuck else f"{query}: " + "text " * 40
            run.append(
                {"type": "step", "action": "search", "args": {"q": query}, "outcome": outcome}
            )
        runs.append([*run, {"type": "end", "success": not stuck}])
    return runs


_WORDS: Final = [f"word{number}" for number in range(200)]


def _lines(runs: list[_Run]) -> Iterator[bytes]:
    for number, run in zip(range(RUNS), cycle(runs), strict=False):
        for event in run:
            yield orjson.dumps({**event, "run": f"run {number}"}, option=orjson.OPT_APPEND_NEWLINE)


def measure() -> list[Line]:
    """Seconds and megabytes of one call in a separate process."""
    recorded = _recorded()
    note = "recorded runs under new ids" if recorded else "synthetic: no recorded runs here"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.jsonl"
        with path.open("wb") as stream:
            stream.writelines(_lines(recorded or _made_up()))
        began = time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-c", _COMMAND, str(path)], capture_output=True, check=True
        )
        seconds = time.perf_counter() - began
        megabytes = path.stat().st_size / 1e6
    assert orjson.loads(ran.stdout)["summary"]
    resident = int(ran.stderr.split()[-1]) / 1024
    return [
        Line(f"backtest of {RUNS:,} runs, 200 repeats", seconds, "s", SECONDS, note=note),
        Line("their recording", megabytes, "MB"),
        Line("resident memory at most", resident, "MiB"),
    ]
