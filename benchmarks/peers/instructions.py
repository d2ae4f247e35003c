"""``make bench-instructions``: what things cost in instructions, as multiples of a yardstick.

Times on a shared machine are noise; instructions repeat to a fraction of a percent. One process
under valgrind's cachegrind imports everything, then forks for each subject and run length. A child
forks again when its run is ready: the count of that process, which ends at once, is what came
before the run. What the longer of two runs counts beyond the shorter is the cost of the steps
between them.

The counts of tidegauge itself are in ``counted.json``, which ``--write`` rewrites together with
``docs/performance.md``. A test counts again, and fails where a ratio to a yardstick has risen.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import logging
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.peers.marks import AIMS, IMPORTS, KINDS, Kind
from benchmarks.peers.subject import Subject
from benchmarks.scripted_agent import Discard

__all__ = [
    "COMMITTED",
    "RISE",
    "RISE_ELSEWHERE",
    "Counts",
    "count",
    "differences",
    "ratios",
    "verdict",
    "where",
]

COMMITTED: Final = Path(__file__).with_name("counted.json")
_ROOT: Final = Path(__file__).parents[2]
_VALGRIND: Final = (
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
)
RISE: Final = 1.03
"""A ratio may rise so far over the committed one: more than counts differ from time to time."""

RISE_ELSEWHERE: Final = 1.15
"""The same with another Python or other releases of libraries."""

_LIBRARIES: Final = (
    "langchain",
    "langchain-core",
    "langgraph",
    "opentelemetry-api",
    "opentelemetry-sdk",
    "orjson",
    "protobuf",
    "pydantic",
    "xxhash",
)
"""Those that the counted code passes most of its time in, ours aside."""

Counts = dict[str, float]
"""Thousand instructions by subject."""


def main(arguments: list[str]) -> int:
    """Count, and print a table for each kind of subject."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers.instructions", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"{', '.join(KINDS)}; default: all")
    parser.add_argument("--ours", action="store_true", help="leave other tracers out")
    parser.add_argument(
        "--write", action="store_true", help="all of ours, into counted.json and the docs"
    )
    parser.add_argument("--in-valgrind", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.kind) - set(KINDS):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    kinds = asked.kind or list(KINDS)
    if asked.in_valgrind:
        _run_children(kinds, ours=asked.ours)
        return 0
    if shutil.which("valgrind") is None:
        parser.error("valgrind is missing; install it, for instance: apt-get install valgrind")
    if asked.write and asked.kind:
        parser.error("what is written is all of it: leave the kinds out")
    with Console(stderr=True).status("counting; this takes minutes"):
        counts = count(kinds, ours=asked.ours or asked.write)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for kind in kinds:
        console.print(_table(KINDS[kind], counts))
    if asked.write:
        from benchmarks.peers.page import write_page

        COMMITTED.write_text(json.dumps({"with": where(), "thousands": counts}, indent=2) + "\n")
        write_page()
    return 0


def count(kinds: Iterable[str] = tuple(KINDS), *, ours: bool = True) -> Counts:
    """Count subjects: thousand instructions of a step of each, beyond the first of its kind.

    The floor is always among them, and so are the imports if all kinds are asked for.
    """
    kinds = [*dict.fromkeys(("handlers", *kinds))] if "handlers" not in kinds else list(kinds)
    with tempfile.TemporaryDirectory() as folder:
        forked = _started(Path(folder), kinds, ours=ours)
        imports = _imports(Path(folder)) if len(kinds) == len(KINDS) else {}
        output, _ = forked.communicate()
        if forked.returncode:
            raise RuntimeError(f"valgrind ended with {forked.returncode}")
        spent: dict[tuple[str, str], dict[int, int]] = {}
        for line in output.splitlines():
            if line.startswith("["):
                kind, name, steps, child, before = json.loads(line)
                run = _instructions(Path(folder), child) - _instructions(Path(folder), before)
                of = spent.setdefault((kind, name), {})
                of[steps] = min(run, of.get(steps, run))
    counts: Counts = {}
    for kind in kinds:
        steps_of = {
            one.name: _step(spent[kind, one.name]) / one.units
            for one in KINDS[kind].subjects
            if len(spent.get((kind, one.name), ())) == 2
        }
        bare = steps_of.pop(KINDS[kind].subjects[0].name)
        counts |= {name: round((cost - bare) / 1_000, 2) for name, cost in steps_of.items()}
    return {**counts, **imports}


def where() -> dict[str, str]:
    """What counts depend on, besides our code: the Python and the libraries."""
    found = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "compiler": platform.python_compiler(),
        "optimised": str(_is_optimised()),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }
    return found | {one: importlib.metadata.version(one) for one in _LIBRARIES}


def differences(committed: dict[str, str]) -> list[str]:
    """What is not as it was when the ratios were committed."""
    now = where()
    return [
        f"{name} {now.get(name)}, not {was}"
        for name, was in committed.items()
        if now.get(name) != was
    ]


def ratios(counts: Counts) -> Counts:
    """Each count as a multiple of the yardstick that was counted beside it."""
    of = {one.name: kind.yardstick for kind in KINDS.values() for one in kind.subjects}
    of |= {one.name: IMPORTS[0].name for one in IMPORTS}
    return {name: cost / counts[of[name]] for name, cost in counts.items() if of[name] != name}


def verdict(name: str, counts: Counts) -> tuple[str, str, str]:
    """How a subject stands to its aim: the ratio, to what, and the aim."""
    aim = AIMS.get(name)
    if aim is None:
        return "", "", ""
    ratio = counts[name] / counts[aim.of]
    return f"{ratio:.2f}", aim.of, f"{aim.times:g}, " + ("met" if ratio <= aim.times else "missed")


def _is_optimised() -> bool:
    """Whether this Python was compiled with profiles or at link time: it has other counts."""
    import sysconfig

    flags = " ".join(str(sysconfig.get_config_var(name)) for name in ("CONFIG_ARGS", "PY_CFLAGS"))
    return "--enable-optimizations" in flags or "-flto" in flags


def _environment(folder: Path) -> dict[str, str]:
    """For a child: the same hashes each time, and separate compiled files."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": str(folder / "pyc")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _started(folder: Path, kinds: list[str], *, ours: bool) -> subprocess.Popen[str]:
    command = [*_VALGRIND, f"--log-file={folder}/%p", sys.executable]
    command += ["-m", "benchmarks.peers.instructions", "--in-valgrind"]
    command += ["--ours"] if ours else []
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [*command, *kinds], cwd=_ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def _run_children(kinds: list[str], *, ours: bool) -> None:
    """Fork for each subject and length, and say which process was which; runs under valgrind."""
    logging.disable(logging.WARNING)
    gc.collect()
    gc.freeze()
    # Only young objects are collected: a full collection would fall on one length by chance.
    gc.set_threshold(700, 1_000_000)
    sys.setswitchinterval(60.0)  # nor do threads take turns by the clock
    running: set[int] = set()
    for kind in kinds:
        for subject in KINDS[kind].subjects:
            if subject.missing or (ours and subject.package is not None):
                continue
            for steps in KINDS[kind].lengths * (KINDS[kind].repeats if ours else 1):
                if len(running) >= (os.cpu_count() or 1):
                    running.remove(_ended())
                child = os.fork()
                if not child:
                    _run(kind, subject, steps)
                running.add(child)
    while running:
        running.remove(_ended())


def _ended() -> int:
    child, _ = os.wait()
    return child


def _run(kind: str, subject: Subject, steps: int) -> None:
    try:
        with subject.setup(Discard()) as prepare:
            prepare(KINDS[kind].warm_up)()
            run = prepare(steps)
            random.seed(steps)
            gc.collect()
            before = os.fork()
            if not before:
                os._exit(0)
            os.waitpid(before, 0)
            run()
    except BaseException:  # noqa: BLE001 -- the child of a fork never returns
        traceback.print_exc()
        os._exit(1)
    line = json.dumps([kind, subject.name, steps, os.getpid(), before])
    os.write(sys.stdout.fileno(), f"{line}\n".encode())
    os._exit(0)


def _step(spent: dict[int, int]) -> float:
    (fewer, less), (more, most) = sorted(spent.items())
    return (most - less) / (more - fewer)


def _imports(folder: Path) -> Counts:
    """Thousand instructions of each import, from compiled files."""
    environment, counted = _environment(folder), {}
    for code in {code for one in IMPORTS for code in (one.code, one.without)}:
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        process = subprocess.Popen(
            [*_VALGRIND, f"--log-file={folder}/%p", sys.executable, "-c", code], env=environment
        )
        if process.wait():
            raise RuntimeError(f"{code!r} failed")
        counted[code] = _instructions(folder, process.pid)
    return {
        one.name: round((counted[one.code] - counted[one.without]) / 1_000, 2) for one in IMPORTS
    }


def _instructions(folder: Path, process: int) -> int:
    found = re.search(r"I\s+refs:\s+([\d,]+)", (folder / str(process)).read_text())
    if found is None:
        raise RuntimeError(f"valgrind did not say what process {process} counted")
    return int(found[1].replace(",", ""))


def _table(kind: Kind, counts: Counts) -> Table:
    table = Table(title=f"{kind.title}, Python {platform.python_version()}, {platform.machine()}")
    table.add_column("")
    for heading in ("thousand instructions", f"x {kind.yardstick}", "x", "of", "aim"):
        table.add_column(heading, justify="right")
    against = ratios(counts)
    for subject in kind.subjects[1:]:
        if subject.name not in counts:
            table.add_row(subject.label, "", "", "", "", "[yellow]not counted[/]")
            continue
        ratio = against.get(subject.name, 1.0)
        shown = (f"{counts[subject.name]:,.1f}", f"{ratio:.3g}", *verdict(subject.name, counts))
        table.add_row(subject.label, *shown)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
