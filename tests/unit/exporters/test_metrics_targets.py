"""The folder in which Prometheus finds processes: a file for each that serves, and no others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import PATIENCE, without_otel
from support.requirements import needs_fork
from tidegauge.exporters.prometheus.server import TargetFile
from tidegauge.pipeline import Pipeline, Settings
from tidegauge.safety.guard import internal_errors

PROGRAM = """
import contextlib, os, signal, sys, time
import tidegauge
from tidegauge.exporters.prometheus.server import TargetFile

folder = sys.argv[1]

def run(steps):
    with tidegauge.run(agent="worker") as run:
        for _ in range(steps):
            run.act("look", {})
            run.observe("nothing")

def pause():
    os.write(1, b"ready\\n")  # at once: other processes write, too
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "targets"


class Program:
    """A Python program that runs until its input, which its processes share, is closed."""

    def __init__(self, code: str, folder: Path, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM + code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=without_otel(**variables),
        )

    def wait(self, processes: int) -> None:
        """Wait until so many processes are ready."""
        for _ in range(processes):
            assert self.process.stdout.readline() == "ready\n"

    def end(self) -> None:
        """Let the processes end by themselves."""
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    def kill(self) -> None:
        """End the first process."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def program(folder: Path) -> Iterator[Callable[..., Program]]:
    """Starts a program, which is killed in the end, and waits for its processes."""
    started: list[Program] = []

    def start(code: str, processes: int = 1, **variables: str) -> Program:
        started.append(Program(code, folder, **variables))
        started[-1].wait(processes)
        return started[-1]

    yield start
    for one in started:
        one.kill()


def targets(folder: Path) -> list[str]:
    """What Prometheus finds in the folder."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [target for groups in found for group in groups for target in group["targets"]]


def wait_for(folder: Path, number: int) -> list[str]:
    """The targets, as soon as there are so many."""
    until = time.monotonic() + PATIENCE
    while len(found := targets(folder)) != number:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def steps(target: str) -> float:
    """What a process says it has counted."""
    with urllib.request.urlopen(f"http://{target}/metrics") as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(r"^tidegauge_steps_total\{.*} (\S+)$", text, re.MULTILINE)))


def test_every_user_can_read_it_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        target = TargetFile(folder, "127.0.0.1:9464")
    finally:
        os.umask(before)
    [file] = folder.iterdir()
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o644, 0o755)
    assert targets(folder) == ["127.0.0.1:9464"]
    target.close()
    target.close()
    assert list(folder.iterdir()) == []


def test_the_modes_of_a_folder_that_exists_stay(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o2775)
    TargetFile(folder, "127.0.0.1:9464").close()
    assert folder.stat().st_mode & 0o7777 == 0o2775


def test_files_of_killed_processes_are_removed_and_no_others(
    folder: Path, program: Callable[..., Program]
) -> None:
    folder.mkdir()
    (folder / "others.json").write_text("[]")
    (folder / "tidegauge-notes.txt").write_text("")
    alive = TargetFile(folder, "alive:1")
    for _ in range(2):  # either removes the one before it
        killed = program("target = TargetFile(folder, 'killed:1'); pause()")
        assert sorted(targets(folder)) == ["alive:1", "killed:1"]
        killed.kill()
    second = TargetFile(folder, "killed:1")  # its port is used again
    assert sorted(targets(folder)) == ["alive:1", "killed:1"]
    second.close()
    assert targets(folder) == ["alive:1"]
    alive.close()
    assert {path.name for path in folder.iterdir()} == {"others.json", "tidegauge-notes.txt"}


@needs_fork
def test_a_child_neither_removes_nor_locks_the_file_of_its_parent(
    folder: Path, program: Callable[..., Program]
) -> None:
    parent = program(
        """
target = TargetFile(folder, "parent:1")
if not os.fork():
    target.close()
    pause()
    os._exit(0)
pause()
""",
        2,
    )
    assert targets(folder) == ["parent:1"]
    parent.process.kill()
    parent.process.wait()  # the child still waits for input
    TargetFile(folder, "next:1").close()  # while the child lives
    assert targets(folder) == []


def test_a_file_that_was_removed_is_not_missed(folder: Path) -> None:
    target = TargetFile(folder, "127.0.0.1:9464")
    [file] = folder.iterdir()
    file.unlink()
    target.close()


class TestPipelines:
    """What ``metrics_targets`` does in a process."""

    def test_each_gets_a_free_port_and_a_file(self, folder: Path) -> None:
        one, other = (Pipeline(Settings(metrics_targets=folder)) for _ in range(2))
        try:
            assert {f"http://{target}/metrics" for target in targets(folder)} == {
                one.metrics_url,
                other.metrics_url,
            }
            assert len(targets(folder)) == 2
        finally:
            one.shutdown()
            assert [f"http://{target}/metrics" for target in targets(folder)] == [other.metrics_url]
            other.shutdown()
        assert list(folder.iterdir()) == []

    def test_a_port_in_use_is_replaced_by_a_free_one(self, folder: Path) -> None:
        one = Pipeline(Settings(metrics_targets=folder, metrics_port=0))
        port = int(one.metrics_url.split(":")[2].split("/")[0])
        other = Pipeline(Settings(metrics_targets=folder, metrics_port=port))
        try:
            assert other.metrics_url not in (None, one.metrics_url)
            assert len(targets(folder)) == 2
            assert internal_errors.counts() == {}
        finally:
            one.shutdown()
            other.shutdown()

    def test_without_a_folder_it_says_what_to_set(self, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            pipeline = Pipeline(Settings(metrics_port=taken.getsockname()[1]))
        pipeline.shutdown()
        assert internal_errors.counts() == {}
        assert (
            "set metrics_port=0 and metrics_targets, so that Prometheus finds them" in caplog.text
        )

    def test_the_folder_is_the_environment_s_unless_set(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TIDEGAUGE_METRICS_TARGETS", str(folder))
        for settings, expected in ((Settings(), 1), (Settings(metrics_targets=folder / "a"), 0)):
            pipeline = Pipeline(settings)
            assert len(targets(folder)) == expected
            pipeline.shutdown()

    def test_any_address_is_that_of_the_machine(self, folder: Path) -> None:
        for host, name in (("0.0.0.0", socket.gethostname()), ("localhost", "localhost")):
            pipeline = Pipeline(Settings(metrics_targets=folder, metrics_host=host))
            assert [target.split(":")[0] for target in targets(folder)] == [name]
            pipeline.shutdown()

    def test_a_folder_that_cannot_be_used_costs_its_file_only(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")
        pipeline = Pipeline(Settings(metrics_targets=tmp_path / "file" / "targets"))
        try:
            assert internal_errors.counts() == {}
            (message,) = caplog.messages
            assert f"Prometheus does not find {pipeline.metrics_url}" in message
            assert "Not a directory" in message
            assert "make the folder metrics_targets writable" in message
            assert steps(pipeline.metrics_url.split("/")[2]) == 0
        finally:
            pipeline.shutdown()

    def test_configuring_again_leaves_one_file(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        twice = program(
            """
tidegauge.configure(metrics_targets=folder)
tidegauge.configure(metrics_targets=folder)
run(3)
pause()
"""
        )
        assert [steps(target) for target in targets(folder)] == [3]
        twice.end()
        assert list(folder.iterdir()) == []


@needs_fork
class TestForks:
    """A pipeline that is set up before a fork serves in the child, too."""

    FORKING = """
tidegauge.configure({settings})
run(1)
if not os.fork():
    run(10)
    if not os.fork():
        run(100)
        pause()
        sys.exit()
    pause()
    os.wait()
    sys.exit()
pause()
os.wait()
"""

    def test_each_process_serves_its_own_counts(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        forking = program(self.FORKING.format(settings="metrics_targets=folder"), 3)
        found = wait_for(folder, 3)
        assert sorted(map(steps, found)) == [1, 10, 100]
        forking.end()
        assert list(folder.iterdir()) == []

    @pytest.mark.slow
    def test_without_a_folder_a_child_serves_nothing(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        alone = program(
            """
pipeline = tidegauge.configure(metrics_port=0)
if not os.fork():
    time.sleep(1.5)  # longer than a child waits
    assert pipeline.metrics_url is None
    pause()
    sys.exit()
os.wait()
assert pipeline.metrics_url
"""
        )
        alone.end()

    @pytest.mark.slow
    def test_a_fixed_port_stays_the_parents(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        variables = {
            "TIDEGAUGE_METRICS_TARGETS": str(folder),
            "OTEL_EXPORTER_PROMETHEUS_PORT": port,
        }
        program(self.FORKING.format(settings=""), 3, **variables)
        found = wait_for(folder, 3)
        assert [steps(target) for target in found if target.endswith(f":{port}")] == [1]
        assert sorted(map(steps, found)) == [1, 10, 100]

    @pytest.mark.slow
    def test_children_that_end_or_do_something_else_are_no_targets(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        program(
            """
tidegauge.configure(metrics_targets=folder)
if not os.fork():
    os._exit(0)
if not os.fork():
    sys.exit()
if not os.fork():
    time.sleep(0.2)
    os.execv(sys.executable, [sys.executable, "-c", "input()"])
if not os.fork():
    tidegauge.configure(serve_metrics=False)
    pause()
    sys.exit()
pause()
""",
            2,
        )
        [before] = targets(folder)
        until = time.monotonic() + 1.5  # longer than a child waits
        while time.monotonic() < until:
            assert targets(folder) == [before]
            time.sleep(0.05)

    def test_a_child_that_ends_at_once_does_not_wait(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        program(
            """
from tidegauge.pipeline import setup
setup._SETTLED_SECONDS = setup._STOP_SECONDS = 60
tidegauge.configure(metrics_targets=folder)
began = time.monotonic()
if not os.fork():
    sys.exit()
os.wait()
assert time.monotonic() - began < 20
pause()
"""
        )

    @pytest.mark.slow
    def test_killed_children_are_removed_by_the_parent_at_its_end(
        self, folder: Path, program: Callable[..., Program]
    ) -> None:
        killing = program(
            """
tidegauge.configure(metrics_targets=folder)
if not os.fork():
    pause()
    sys.exit()
pause()
os.wait()
""",
            2,
        )
        found = wait_for(folder, 2)
        assert sorted(map(steps, found)) == [0, 0]
        [child] = [
            int(path.name.split("-")[1])
            for path in folder.glob("*.json")
            if int(path.name.split("-")[1]) != killing.process.pid
        ]
        os.kill(child, signal.SIGKILL)
        killing.end()
        assert list(folder.iterdir()) == []
