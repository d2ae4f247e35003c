"""A process forks at any moment: the child begins with nothing, the parent notices nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import tidegauge
from hostile.agents_at_work import AGENTS, look, nothing, open_runs, steps_of
from hostile.harness import Forked, check, switching_threads
from tidegauge import testing


def child_works(seen: testing.Capture) -> None:
    """The child's counters begin at 0, the parent's runs are not its own, and it can work."""
    assert steps_of(seen) == 0, f"{steps_of(seen)} steps of the parent in the child"
    assert not seen.pipeline.engine.snapshot().active, "runs of the parent in the child"
    made = sum(agent("in the child", 5, nothing) for agent in AGENTS.values())
    assert steps_of(seen) == made, f"{steps_of(seen)} steps counted, {made} made"
    assert not seen.pipeline.engine.snapshot().active


@contextmanager
def busy(seen: testing.Capture, threads: int = 4) -> Iterator[list[int]]:
    """Threads with agents at work, another one that scrapes; the steps that they made."""
    done = threading.Event()
    made: list[int] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not done.is_set():
                made.append(AGENTS["sync"]("find it", 2, nothing))
        except BaseException as error:
            faults.append(error)

    def scrape() -> None:
        while not done.is_set():
            seen.pipeline.engine.snapshot()
            time.sleep(0)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    workers.append(threading.Thread(target=scrape))
    with switching_threads():
        for worker in workers:
            worker.start()
        time.sleep(0.05)
        try:
            yield made
        finally:
            done.set()
            for worker in workers:
                worker.join(10)
    assert not any(worker.is_alive() for worker in workers), "the parent hangs"
    assert not faults, faults


def from_a_busy_parent() -> None:
    with testing.capture() as seen:
        with busy(seen) as made:
            for _ in range(20):
                Forked(lambda: child_works(seen)).join()
        assert steps_of(seen) == sum(made), "the parent's steps"
        assert open_runs(seen) == 0


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_a_busy_parent_forks(attempt: int) -> None:
    check(from_a_busy_parent, deadline=40)


def served_and_recorded() -> None:
    """With the exporters at work: a server that scrapes, a recorder, spans."""
    import tempfile
    import urllib.request

    folder = tempfile.mkdtemp()
    settings: dict[str, Any] = {"serve_metrics": True, "metrics_port": 0}
    with testing.capture(**settings, record_to=f"{folder}/{{pid}}.jsonl", page=True) as seen:
        url = seen.pipeline.metrics_url

        def child() -> None:
            child_works(seen)

        with busy(seen) as made:
            for _ in range(10):
                urllib.request.urlopen(url).read()  # type: ignore[arg-type]
                Forked(child).join()
        assert steps_of(seen) == sum(made)
        urllib.request.urlopen(url).read()  # type: ignore[arg-type]
    assert os.path.getsize(f"{folder}/{os.getpid()}.jsonl") > 0


def test_a_parent_with_all_exporters_forks() -> None:
    check(served_and_recorded, deadline=40)


def in_the_middle_of_a_run(where: str) -> None:
    """From inside of a run, the child leaves the run to its parent."""
    with testing.capture() as seen:

        def fork() -> str:
            Forked(lambda: child_in_a_run(seen)).join()
            return "forked"

        def child_in_a_run(seen: testing.Capture) -> None:
            assert steps_of(seen) == 0
            assert not seen.pipeline.engine.snapshot().active
            look("still inside")  # the run is the parent's: this is nobody's step, and no fault
            AGENTS["sync"]("in the child", 3, nothing)
            assert steps_of(seen) == 12, steps_of(seen)

        @tidegauge.tool
        def forking() -> str:
            return fork()

        @tidegauge.agent
        def agent(task: str) -> None:
            look("before")
            if where == "tool":
                assert forking() == "forked"
            elif where == "thread":
                thread = threading.Thread(target=fork)
                thread.start()
                thread.join()
            elif where == "signal":
                signal.signal(signal.SIGALRM, lambda *_: fork())
                for _ in range(20):
                    signal.setitimer(signal.ITIMER_REAL, 0.001)
                    for number in range(50):
                        look(f"room {number}")
            else:
                fork()
            look("after")

        agent("find it")
        assert steps_of(seen) == {"tool": 3, "signal": 1_002}.get(where, 2)
        assert open_runs(seen) == 0


@pytest.mark.parametrize("where", ["tool", "agent", "thread", "signal"])
def test_from_inside_of_a_run(where: str) -> None:
    check(in_the_middle_of_a_run, where, deadline=30)


def child_goes_on_with_the_run() -> None:
    """The child's agent returns through the parent's decorators: no exception, nothing counted."""
    with testing.capture() as seen:
        pids: list[int] = []

        @tidegauge.tool
        def forking() -> int:
            return os.fork()

        @tidegauge.agent
        def agent(task: str) -> int:
            look("before")
            pid = forking()
            look("after")
            return pid

        with tidegauge.run(agent="outer") as run:
            run.act("ask", {})
            pids.append(agent("find it"))
            run.observe("done")
        if pids == [0]:
            code = 0 if steps_of(seen) == 0 and open_runs(seen) == 0 else 9
            made = AGENTS["sync"]("in the child", 3, nothing)
            os._exit(code if steps_of(seen) == made else 8)
        _, status = os.waitpid(pids[0], 0)
        assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)
        assert steps_of(seen) == 4
        assert open_runs(seen) == 0


def test_the_child_goes_on_through_open_steps() -> None:
    check(child_goes_on_with_the_run)


def in_a_pool() -> None:
    context = multiprocessing.get_context("fork")
    with testing.capture() as seen, busy(seen) as made:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            found = list(pool.map(_steps_in_a_worker, range(10)))
        assert found == [20] * 10, found
        assert made


def _steps_in_a_worker(number: int) -> int:
    return AGENTS["sync"]("in the worker", 5, nothing)


def test_the_workers_of_a_pool() -> None:
    check(in_a_pool, deadline=30)


def grandchildren() -> None:
    with testing.capture() as seen:

        def child() -> None:
            child_works(seen)
            with busy(seen, threads=2):
                for _ in range(3):
                    Forked(lambda: child_works(seen)).join()

        with busy(seen, threads=2):
            for _ in range(3):
                Forked(child).join(10)


def test_children_fork_as_well() -> None:
    check(grandchildren, deadline=40)


def many_forks(kind: str) -> None:
    """At every moment of a step: a thread makes steps, the main one forks without a pause."""
    with testing.capture() as seen:
        agent: Callable[..., int] = AGENTS[kind]
        done = threading.Event()

        def work() -> None:
            while not done.is_set():
                agent("find it", 1, nothing)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            with switching_threads():
                for _ in range(60):
                    Forked(lambda: child_works(seen)).join()
        finally:
            done.set()
            thread.join(5)
        assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_forks_at_every_moment_of_a_step(kind: str) -> None:
    check(many_forks, kind, deadline=40)
