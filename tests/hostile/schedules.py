"""Random schedules of what may happen to a busy agent: collections, signals, forks, switches.

A schedule is made of its number alone: ``run_batch(seed, first, count)`` does the same events in
the same order each time, at moments that the machine decides. The whole of them:

    python -m tests.hostile.schedules --count 10000
    python -m tests.hostile.schedules --seed 1 --first 4200 --count 1    # one again
"""

from __future__ import annotations

import argparse
import collections
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.extend(str(Path(__file__).parents[up]) for up in (1, 2))  # where it is run as a program

from hostile.agents_at_work import (
    AGENTS,
    UsersTimeout,
    look,
    nothing,
    steps_of,
)
from hostile.harness import Forked, run
from tidegauge import testing

BATCH = 100
"""Schedules that one process does."""

SECONDS_OF_A_BATCH = 60.0

happened: collections.Counter[str] = collections.Counter()


class Schedule:
    """One agent at work, in some threads, with events that its number decides."""

    def __init__(self, seed: int, number: int, seen: testing.Capture) -> None:
        self._random = random.Random(f"{seed}/{number}")
        self._seen = seen
        self._forked: list[Forked] = []
        self._raised = False
        self.kind = self._random.choice(list(AGENTS))
        self.threads = self._random.choice([0, 0, 1, 2])
        self.threshold = self._random.choice([1, 3, 20, 700])
        self.switch = self._random.choice([1e-6, 1e-4, 5e-3])
        self.signals = [
            (self._random.choice(_IN_A_HANDLER), self._random.uniform(0.0001, 0.003))
            for _ in range(self._random.randint(0, 3))
        ]
        self.between = [self._random.choice(_BETWEEN) for _ in range(self._random.randint(0, 3))]

    def run(self) -> None:
        """Run it; raise whatever of it is a fault."""
        faults: list[BaseException] = []
        made = [0]

        def beside() -> None:
            try:
                made.append(AGENTS["sync"]("beside", 2, nothing))
            except BaseException as error:
                faults.append(error)

        before = sys.getswitchinterval(), gc.get_threshold()
        steps = steps_of(self._seen)
        self._open = len(self._seen.pipeline.engine.snapshot().active)
        sys.setswitchinterval(self.switch)
        gc.set_threshold(self.threshold)
        threads = [threading.Thread(target=beside) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        ended = False
        try:
            try:
                signal.signal(signal.SIGALRM, self._handler)
                self._arm()
                made.append(AGENTS[self.kind]("find it", 3, self._between))
                ended = True
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except UsersTimeout:
            happened["the handler's error arrived"] += 1
        finally:
            sys.setswitchinterval(before[0])
            gc.set_threshold(*before[1])
            signal.setitimer(signal.ITIMER_REAL, 0)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive(), "a thread hangs"
        for child in self._forked:
            child.join()
        gc.collect()
        if faults:
            raise faults[0]
        # An error that arrives while a run begins or ends may leave it open until it is idle, also
        # where the interpreter ignores it: in a finaliser.
        if not self._raised:
            active = self._seen.pipeline.engine.snapshot().active
            assert len(active) <= self._open, "a run is open that has ended"
        if ended:
            counted = steps_of(self._seen) - steps
            assert counted >= sum(made), f"{counted} steps counted, {sum(made)} made"

    def _arm(self) -> None:
        if self.signals:
            signal.setitimer(signal.ITIMER_REAL, self.signals[-1][1])

    def _handler(self, number: int, frame: FrameType | None) -> None:
        if not self.signals:
            return
        name, _ = self.signals.pop()
        self._arm()
        if name == "fork" and _is_forking(frame):
            return  # what the interpreter itself does around a fork cannot be interrupted by one
        if name == "raise" and frame is not None and _is_asyncio(frame):
            return  # an error inside its loop loses a wake-up: any program would hang
        happened[f"signal: {name}"] += 1
        self._do(name)

    def _between(self) -> None:
        if self.between:
            name = self.between.pop()
            happened[f"between steps: {name}"] += 1
            self._do(name)

    def _do(self, name: str) -> None:
        if name == "collect":
            gc.collect()
        elif name == "tool":
            assert look("the handler") == "the handler is empty"
        elif name == "snapshot":
            self._seen.pipeline.engine.snapshot()
        elif name == "run":
            AGENTS["manual"]("inside", 1, nothing)
        elif name == "raise":
            self._raised = True
            self.signals = [one for one in self.signals if one[0] != "raise"]  # once
            raise UsersTimeout
        elif name == "switch":
            time.sleep(0)
        elif name == "fork":
            self._forked.append(Forked(self._child))

    def _child(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.set_threshold(700)
        made = AGENTS["manual"]("in the child", 2, nothing)
        assert steps_of(self._seen) == made, f"{steps_of(self._seen)} steps in the child"


def _is_forking(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname == "Forked.__init__":
            return True
        frame = frame.f_back
    return False


def _is_asyncio(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "asyncio"


_IN_A_HANDLER = ["collect", "tool", "snapshot", "run", "raise", "raise", "fork", "switch"]
_BETWEEN = ["collect", "snapshot", "run", "fork", "switch"]


def run_batch(seed: str, first: str, count: str) -> None:
    """Run schedules in this process; what happened is printed, a fault with its number."""
    with testing.capture() as seen:
        for number in range(int(first), int(first) + int(count)):
            print(f"schedule {number}", flush=True)
            try:
                Schedule(int(seed), number, seen).run()
            except BaseException as error:
                raise AssertionError(f"schedule {number} of seed {seed}: {error!r}") from error
    print(f"happened: {dict(happened)}")


def run_all(seed: int, first: int, count: int, report: Callable[[str], Any]) -> int:
    """Run schedules, a process for a hundred of them; how many processes have failed."""
    failed = 0
    for start in range(first, first + count, BATCH):
        size = min(BATCH, first + count - start)
        ended = run(run_batch, str(seed), str(start), str(size), deadline=SECONDS_OF_A_BATCH)
        lines = ended.output.splitlines()
        if ended.code == 0:
            happened.update(_counts(lines[-1]))
            continue
        failed += 1
        last = [line for line in lines if line.startswith("schedule ")][-1:]
        how = "hung" if ended.code is None else f"ended with {ended.code}"
        report(f"batch {start} {how} in {last}\n" + "\n".join(lines[-40:]))
    return failed


def _counts(line: str) -> dict[str, int]:
    import ast

    return dict(ast.literal_eval(line.removeprefix("happened: ")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    began = time.monotonic()
    failed = run_all(options.seed, options.first, options.count, print)
    for name, times in sorted(happened.items()):
        print(f"{times:8} {name}")
    print(f"{options.count} schedules in {time.monotonic() - began:.0f} s; {failed} batches failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
