"""Runs every case in a process of its own, with a deadline, and measures what a call costs.

A case is a function of a module, with strings as arguments. Its process is forked from a server
that has imported tidegauge and the frameworks and does nothing else: no run is open in it and no
thread runs, so nothing of ours is copied in the middle of its work, and a case starts in
milliseconds. Cases about the end of an interpreter start a new one: :func:`interpreter`.

A case that is still running at its deadline has failed: its message has the stacks of all its
threads, and of all processes that it has forked.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from support.speed import slowness

DEADLINE = 30.0
"""Seconds that a case may take, on a machine that is busy."""

TESTS = Path(__file__).parents[1]
_ADDRESS_SPACE = 12 << 30
_PRELOADED = [
    "pytest",
    "anyio",
    "scipy.sparse",
    "langchain.agents",
    "agents.testing",
    "tidegauge.testing",
    "tidegauge.instrumentation.langchain",
    "tidegauge.instrumentation.openai_agents",
    "tidegauge.instrumentation.spans",
    "tidegauge.instrumentation.extractors",
    "hostile.preloaded",
]


class Ended(NamedTuple):
    """How a case ended: its exit code (``None`` at the deadline) and all that it printed."""

    code: int | None
    output: str

    def check(self) -> None:
        """Fail where the case did, with its output as the message."""
        if self.code is None:
            raise AssertionError(f"hung; stacks at the deadline:\n{self.output[-12_000:]}")
        if self.code != 0:
            raise AssertionError(f"exit code {self.code}\n{self.output[-6_000:]}")


def check(case: Callable[..., object], *arguments: str, deadline: float = DEADLINE) -> None:
    """Run a case in a process of its own; fail where it does."""
    run(case, *arguments, deadline=deadline).check()


def run(case: Callable[..., object], *arguments: str, deadline: float = DEADLINE) -> Ended:
    """Run a case in a process of its own."""
    with tempfile.NamedTemporaryFile() as log:
        process = _server().Process(target=_child, args=(log.name, case, arguments))
        with _reading:
            process.start()
        code = _wait(process, deadline)
        with _reading:
            process.close()
        return Ended(code, log.read().decode(errors="replace"))


def interpreter(program: str, *arguments: str, deadline: float = DEADLINE) -> Ended:
    """Run a program in a new interpreter, to its very end."""
    preamble = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)\n"
    environment = os.environ | {"PYTHONPATH": _python_path(TESTS), "OTEL_SDK_DISABLED": ""}
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", preamble + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=deadline)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            _dump_and_kill(process.pid)
            output, _ = process.communicate()
            code = None
    return Ended(code, output.decode(errors="replace"))


class Forked:
    """A child that a case forks; it is waited for with a deadline, and killed after it."""

    def __init__(self, body: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                body()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def join(self, deadline: float = 30.0) -> None:
        """Wait for it; it must have ended well."""
        code = _reap(self.pid, deadline)
        assert code is not None, "the forked child hangs"
        assert code == 0, f"the forked child ended with {code}"


class Cost(NamedTuple):
    """What a call took."""

    cpu_ms: float
    wall_ms: float
    megabytes: float

    def within(self, limit: Cost) -> bool:
        return all(mine <= most for mine, most in zip(self, limit, strict=True))


ONE_VALUE = Cost(cpu_ms=50, wall_ms=5_000, megabytes=50)
"""What one hostile value may cost."""


def cheapest(call: Callable[[], Any], limit: Cost) -> None:
    """Make a call at most six times, until it has cost no more than the limit.

    The limit of processor time is one on a quiet machine; on a busy one it grows with what a
    reference costs, which is measured only where the limit was exceeded.
    """
    costs = []
    for _ in range(6):  # another process may be at work: a cost that is real stays
        cost = cost_of(call)
        if cost.within(limit):
            return
        slower = slowness()
        costs.append((cost, slower))
        if cost.within(limit._replace(cpu_ms=limit.cpu_ms * slower)):
            return
    raise AssertionError(f"cost {costs} (cost, slowness); at most {limit} is right")


def cost_of(call: Callable[[], Any]) -> Cost:
    """The processor time of all threads, the time, and how far the resident memory rose."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _memory("VmRSS"), time.process_time(), time.monotonic()
    call()
    cpu, wall = time.process_time() - before[1], time.monotonic() - before[2]
    return Cost(cpu * 1e3, wall * 1e3, _memory("VmHWM") - before[0])


def _memory(name: str) -> float:
    """Megabytes of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(name)


def _python_path(*folders: str | Path) -> str:
    """Folders of tests after those of the caller, which may have a checkout of its own."""
    theirs = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    return os.pathsep.join([*theirs, *map(str, folders)])


@functools.cache
def _server() -> Any:
    """The server of processes, started at the first use."""
    folders = [str(TESTS), str(TESTS.parent)]  # pytest names test modules from the latter
    folders += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path.extend(folder for folder in folders if folder not in sys.path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = _python_path(*folders)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the server has one thread
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def _child(log: str, case: Callable[..., object], arguments: tuple[str, ...]) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    code = 1
    try:
        case(*arguments)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            signal.setitimer(signal.ITIMER_REAL, 0)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# The start of a process looks whether others have ended, and their exit code can be read once.
_reading = threading.Lock()


def _wait(process: BaseProcess, deadline: float) -> int | None:
    wait([process.sentinel], deadline)
    with _reading:
        ended = process.exitcode
    if ended is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # what it has forked and left behind
        return ended
    _dump_and_kill(process.pid or 0)
    wait([process.sentinel])
    return None


def _dump_and_kill(group: int) -> None:
    for sent in (signal.SIGUSR1, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, sent)
        time.sleep(0.5)


def _reap(pid: int, deadline: float) -> int | None:
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    for sent in (signal.SIGUSR1, signal.SIGKILL):
        os.kill(pid, sent)
        time.sleep(0.3)
    os.waitpid(pid, 0)
    return None


@contextlib.contextmanager
def switching_threads(seconds: float = 1e-6) -> Iterator[None]:
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
