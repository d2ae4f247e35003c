"""``make bench-instructions``: what a step costs in instructions, compared with peers.

Times on a shared machine are noise; instructions repeat to a fraction of a percent. One process
under valgrind's cachegrind imports everything, then forks for each subject and run length. The
count of a child includes all that came before the fork, so the difference of two run lengths is
the cost of the steps between them.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers.decorators import DECORATORS
from benchmarks.peers.handlers import HANDLERS
from benchmarks.peers.subject import Prepare, Subject
from benchmarks.peers.tokens import READ, STREAMED
from benchmarks.scripted_agent import Discard
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine

_WARM_UP = 20


@dataclass(frozen=True, slots=True)
class _Kind:
    """Subjects that share a yardstick.

    Args:
        title: of their table.
        subjects: the first is what the others are added to; the second, what they are divided by.
        lengths: the two run lengths.
        targets: the largest ratio that a subject is to have, by its name.
        later: two run lengths between which a step must cost the same: then that is the ratio.
    """

    title: str
    subjects: tuple[Subject, ...]
    lengths: tuple[int, int]
    targets: dict[str, float]
    later: tuple[int, ...] = ()


def _engine(different: int | None) -> Subject:
    """Steps through the engine and a policy: small arguments, a result of 200 characters."""

    def arguments(t: int) -> object:
        return {"id": t if different is None else t % different, "page": 1}

    name = "every result new" if different is None else f"in a loop of {different}"
    return _steps(f"metrics of a step, {name}", arguments, different)


def _of_words(*, new: bool, repetition: bool) -> Subject:
    """The same with arguments of twenty words: all of them new at each step, or one."""

    def arguments(t: int) -> object:
        words = [f"word{20 * t + n}" if new else f"word{n}" for n in range(18)]
        return {"query": " ".join([*words, f"number{t}"])}

    name = f"20 words in arguments, {'all' if new else 'one'} new"
    return _steps(
        f"{name}, with repetition" if repetition else name, arguments, repetition=repetition
    )


def _steps(
    name: str,
    arguments: Callable[[int], object],
    different: int | None = None,
    *,
    repetition: bool = False,
) -> Subject:
    def prepare(steps: int) -> object:
        events = []
        for t in range(steps):
            call = Call("read_document", arguments(t))
            page = t if different is None else t % different
            result = CallResult(f"{page:06d} " + "text " * 40, False)
            events.append((Step(run="r", calls=(call,)), Outcome(run="r", results=(result,))))

        def run() -> None:
            sink = EngineSink(Engine(repetition=repetition), Policy())
            sink.run_started(RunStarted(run="r", agent="a", task_group="g", t_max=50))
            for step, outcome in events:
                sink.step_issued(step)
                sink.step_observed(outcome)

        return run

    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        yield prepare  # type: ignore[misc]

    return Subject(name, setup)


@contextmanager
def _nothing(exporter: Discard) -> Iterator[Prepare]:
    yield lambda steps: lambda: None


KINDS = {
    "engine": _Kind(
        "Metrics of a step, without spans",
        (Subject("nothing", _nothing), _engine(None), _engine(3)),
        (500, 2_500),
        {},
    ),
    "repetition": _Kind(
        "Metrics of a step, and the similarity of its action to those before",
        (
            Subject("nothing", _nothing),
            _of_words(new=False, repetition=False),
            _of_words(new=False, repetition=True),
            _of_words(new=True, repetition=False),
            _of_words(new=True, repetition=True),
        ),
        (500, 2_500),
        {},
    ),
    "decorators": _Kind(
        "A decorated call of a trivial function",
        DECORATORS,
        (200, 1_200),
        {"tidegauge @tool, with all metrics": 1.8},
    ),
    "handlers": _Kind(
        "Added to a step of a LangChain agent",
        HANDLERS,
        (20, 120),
        {"tidegauge": 1.2, "tidegauge, metrics only": 0.5, "tidegauge, with contents": 2.0},
    ),
    "tokens": _Kind(
        "A token of an answer, read for chanting",
        READ,
        (1_000, 9_000),
        {"code, tables, logs and lists": 2.0},
    ),
    "streams": _Kind(
        "Added to a token that streams through LangChain",
        STREAMED,
        (1_000, 5_000),
        {"tidegauge": 2.3},
    ),
    "length": _Kind(
        "Added to the 50th and the 500th step of a LangChain agent",
        tuple([one for one in HANDLERS if one.package is None and "troubled" not in one.name]),
        (30, 70),
        {"tidegauge": 1.05, "tidegauge, with contents": 1.05, "tidegauge, metrics only": 1.05},
        later=(480, 520),
    ),
}


def main(arguments: list[str]) -> int:
    """Count, and print a table for each kind of subject."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers.instructions", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"{', '.join(KINDS)}; default: all")
    parser.add_argument("--ours", action="store_true", help="leave other tracers out")
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
    counted = _count(kinds, ours=asked.ours)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for kind in kinds:
        console.print(_table(KINDS[kind], counted[kind]))
    return 0


def _run_children(kinds: list[str], *, ours: bool) -> None:
    """Fork for each subject and length, and say which process was which; runs under valgrind."""
    logging.disable(logging.WARNING)
    for kind in kinds:
        for subject in KINDS[kind].subjects:
            if subject.missing or (ours and subject.package is not None):
                continue
            for steps in (*KINDS[kind].lengths, *KINDS[kind].later):
                gc.collect()
                child = os.fork()
                if not child:
                    _run(subject, steps)
                _, status = os.waitpid(child, 0)
                print(json.dumps([kind, subject.name, steps, child, status]), flush=True)


def _run(subject: Subject, steps: int) -> None:
    try:
        with subject.setup(Discard()) as prepare:
            prepare(_WARM_UP)()
            prepare(steps)()
    except BaseException:  # noqa: BLE001 -- the child of a fork never returns
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _count(kinds: list[str], *, ours: bool) -> dict[str, dict[str, tuple[float, ...]]]:
    """Instructions of one step, by kind and subject, and of a later one."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as logs, console.status("counting; this takes minutes"):
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
        command += ["--cachegrind-out-file=/dev/null", f"--log-file={logs}/%p"]
        command += [sys.executable, "-m", "benchmarks.peers.instructions", "--in-valgrind"]
        command += ["--ours"] if ours else []
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [*command, *kinds], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        counts: dict[tuple[str, str], list[int]] = {}
        for line in done.stdout.splitlines():
            if line.startswith("["):
                kind, name, _, child, status = json.loads(line)
                found = re.search(r"I\s+refs:\s+([\d,]+)", (Path(logs) / str(child)).read_text())
                if status == 0 and found is not None:
                    counts.setdefault((kind, name), []).append(int(found[1].replace(",", "")))
    counted: dict[str, dict[str, tuple[float, ...]]] = {kind: {} for kind in kinds}
    for (kind, name), refs in counts.items():
        lengths = (*KINDS[kind].lengths, *KINDS[kind].later)
        if len(refs) == len(lengths):
            counted[kind][name] = tuple(
                (refs[at + 1] - refs[at]) / (lengths[at + 1] - lengths[at])
                for at in range(0, len(lengths), 2)
            )
    return counted


def _table(kind: _Kind, counted: dict[str, tuple[float, ...]]) -> Table:
    table = Table(title=f"{kind.title}, Python {platform.python_version()}, {platform.machine()}")
    table.add_column("")
    later = ("of the later step",) if kind.later else ()
    for heading in ("thousand instructions", *later, "x", "target"):
        table.add_column(heading, justify="right")
    without, yardstick = (subject.name for subject in kind.subjects[:2])
    for subject in kind.subjects[1:]:
        if subject.name not in counted:
            table.add_row(subject.label, "", *([""] if later else []), "", "[yellow]not counted[/]")
            continue
        both = zip(counted[subject.name], counted[without], strict=True)
        added = [of_subject - of_none for of_subject, of_none in both]
        first = counted[yardstick][0] - counted[without][0]
        ratio = added[1] / added[0] if kind.later else added[0] / first
        target = kind.targets.get(subject.name)
        verdict = ""
        if target is not None:
            verdict = f"{target:g} " + ("[green]met[/]" if ratio <= target else "[red]missed[/]")
        shown = [f"{one / 1_000:,.1f}" for one in added]
        table.add_row(subject.label, *shown, f"{ratio:.2f}", verdict)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
