"""A fleet whose troubles are known: agents of the worlds, at work at the same time, live.

Most runs end well. Some agents have a fault, a clerk's loops are stopped by policy, and towards
the end rovers begin to walk back and forth and are only watched: that is what the dashboards are
to show.
"""

# ruff: noqa: S311 -- reproducible
from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import tidegauge
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.worlds import (
    GRID_AGENTS,
    LORE_AGENTS,
    SCRIPTS,
    Desk,
    DocumentWorld,
    GridWorld,
    TaskGraph,
    ToolFailed,
    code_task,
    document_task,
)

__all__ = ["RULES", "T_MAX", "Fleet"]

RULES: Final = (
    *DEFAULT_RULES,
    Rule("loop_repeats", 2, "stop", agent="clerk"),
    Rule("loop_repeats", 1, "nudge", agent="clerk"),
    Rule("failed_rounds", 6, "stop", agent="clerk"),
)
"""The clerk is stopped, the others are watched."""

_INCIDENT: Final = 0.7
"""After this share of the day the rovers lose their way."""

T_MAX: Final = 40
"""Turns of the runs that do not say how many they have."""

_CHARACTERS_PER_TOKEN: Final = 4


class Fleet:
    """Twenty workers, each with run after run.

    Args:
        seconds: how long their day is.
        seed: of their tasks and of chance; how long steps take differs from time to time.
    """

    def __init__(self, seconds: float, *, seed: int = 1) -> None:
        self.seconds = seconds
        self._seed = seed
        self._began = time.monotonic()
        self._over = threading.Event()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[list[Future[None]]]:
        """They work while the block runs; one that ends earlier has failed."""
        jobs = [_librarian] * 6 + [_coder] * 4 + [_clerk] * 4 + [_rover] * 6
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                yield [pool.submit(self._work, job, number) for number, job in enumerate(jobs)]
            finally:
                self._over.set()

    def elapsed(self) -> float:
        """Which share of the day is over."""
        return (time.monotonic() - self._began) / self.seconds

    def _work(self, job: Callable[[Fleet, random.Random], None], number: int) -> None:
        draw = random.Random(f"{self._seed}/{number}")
        self._over.wait(draw.uniform(0, 6))
        while not self._over.is_set():
            with contextlib.suppress(tidegauge.RunStopped, _TimeOver):
                job(self, draw)
            self._over.wait(draw.uniform(0.5, 4))

    def pause(self, seconds: float) -> None:
        """Wait; raise ``_TimeOver`` if the block ends meanwhile."""
        if self._over.wait(seconds):
            raise _TimeOver


class _TimeOver(Exception):  # noqa: N818 -- nothing went wrong
    """The fleet ends."""


class _Paced:
    """A run whose steps take their time and their tokens.

    Args:
        fleet: ends them.
        run: takes the steps.
        draw: how long they take.
        think: seconds of a turn of the model.
    """

    def __init__(
        self, fleet: Fleet, run: tidegauge.Run, draw: random.Random, think: float = 0.4
    ) -> None:
        self._fleet = fleet
        self._run = run
        self._draw = draw
        self._think = think
        self._prompt = 300.0
        self._seen: tuple[str, ...] = ()

    def act(self, action: str, arguments: object = None) -> object:
        """The model thinks, and chooses."""
        self._fleet.pause(self._draw.uniform(0.5, 1.5) * self._think)
        return self._run.act(
            action,
            arguments,
            tokens=self._prompt,
            mentions=self._seen,
            uses=_entities(str(arguments)),
        )

    def observe(self, outcome: object = None, **details: Any) -> object:
        """The tool works, and answers."""
        self._fleet.pause(self._draw.uniform(0.05, 0.4) * self._think)
        text = str(outcome)
        self._prompt += len(text) / _CHARACTERS_PER_TOKEN
        self._seen = _entities(text)
        return self._run.observe(outcome, **details)


def _entities(text: str) -> tuple[str, ...]:
    """What is called by an id: words with a digit in them."""
    words = (word.strip(".,:;'\"[]{}()") for word in text.split())
    return tuple({word for word in words if any(map(str.isdigit, word))})


def _librarian(fleet: Fleet, draw: random.Random) -> None:
    """Reads long chains of documents; with a memory it mostly gets there."""
    task = document_task(seed=draw.randrange(10_000), operations=draw.choice((1, 2, 3, 5, 8)))
    memory = draw.choice(("on", "off"))
    forgets = draw.random() < (0.15 if memory == "on" else 0.45) + 0.03 * task.operations
    habit = draw.choice(("loser", "halter")) if forgets else "solver"
    with tidegauge.run(agent="librarian", memory=memory, **task.start()) as run:
        reading = task.reading(_Paced(fleet, run, draw, 0.6))
        LORE_AGENTS[habit](reading, draw)
        run.finish(success=reading.solved)


def _coder(fleet: Fleet, draw: random.Random) -> None:
    """Finds out what a program returns; at times it asks for files that are not there."""
    task = code_task(seed=draw.randrange(10_000), operations=draw.choice((1, 2, 4, 6)))
    habit = draw.choice(("solver", "solver", "solver", "stumbler", "loser"))
    with tidegauge.run(agent="coder", **task.start()) as run:
        reading = task.reading(_Paced(fleet, run, draw, 0.8))
        LORE_AGENTS[habit](reading, draw)
        run.finish(success=reading.solved)


def _clerk(fleet: Fleet, draw: random.Random) -> None:
    """Looks facts up in an archive; when it loops, it is stopped."""
    world = DocumentWorld(draw.randrange(1_000))
    desk = Desk(world, draw.choice(world.tasks))
    habit = draw.choice(("solver", "solver", "solver", "solver", "looper", "retrier"))
    script = SCRIPTS[habit](desk.task, draw)
    with tidegauge.run(
        agent="clerk", task=desk.task.question, task_group="archive", t_max=20
    ) as run:
        steps = _Paced(fleet, run, draw, 0.9)
        seen: str | None = None
        with contextlib.suppress(StopIteration):
            while True:
                call = next(script) if seen is None else script.send(seen)
                arguments: dict[str, str] = dict(call.arguments)  # type: ignore[call-overload]
                steps.act(call.action, arguments)
                try:
                    seen, failed = getattr(desk, call.action)(**arguments), False
                except ToolFailed as failure:
                    seen, failed = str(failure), True
                steps.observe(seen, error=failed)
        run.finish(success=desk.solved)


def _rover(fleet: Fleet, draw: random.Random) -> None:
    """Finds its way through a grid; late in the day it goes back and forth."""
    seed = draw.randrange(10_000)
    world = GridWorld(seed=seed, graph=TaskGraph.sample(seed=seed, nodes=5))
    habit = draw.choice(("optimal", "optimal", "explorer", "exploiter", "wanderer"))
    if fleet.elapsed() > _INCIDENT and draw.random() < 0.7:
        habit = "oscillator"
    with tidegauge.run(agent="rover", **world.start()) as run:
        walk = world.walk(_Paced(fleet, run, draw, 0.6 if habit != "oscillator" else 1.0))
        GRID_AGENTS[habit](walk, draw)
        run.finish(success=walk.solved)
