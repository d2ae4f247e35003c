"""Programs as separate processes: run to their end, or while a test needs them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE = 30.0
"""Seconds until something that must happen is given up."""


def without_otel(**variables: str) -> dict[str, str]:
    """The environment without the variables of OpenTelemetry, and with these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**clean, **variables}


def logging_everything(folder: Path) -> dict[str, str]:
    """Variables with which a Python program writes all log records to its standard error.

    Args:
        folder: where the file that it reads at its start is put.
    """
    start = "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"
    (folder / "sitecustomize.py").write_text(start)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


def run_python(code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with warnings as errors and without OpenTelemetry's variables.

    Args:
        code: the program; it must succeed.
        arguments: what it finds in ``sys.argv``.
        variables: of its environment.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        env=without_otel(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def import_error(missing: str, code: str) -> str:
    """The class and the message of the ``ImportError`` of a program that lacks a package."""
    program = f"""
import sys
sys.modules[{missing!r}] = None
try:
    {code}
except ImportError as error:
    print(type(error).__name__, error)
"""
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return completed.stdout.strip()


@contextlib.contextmanager
def stopped_in_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop a process at the end of the block, if it still runs."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_ready(
    process: subprocess.Popen[bytes],
    log: Path,
    ready: Callable[[], bool],
    seconds: float = PATIENCE,
) -> None:
    """Wait until a process is ready; its log is the reason when it does not get so far.

    Args:
        process: the process.
        log: the file of its output.
        ready: whether it is; an ``OSError`` means that it is not.
        seconds: give up after so long.
    """
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if ready():
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
