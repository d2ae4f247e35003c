"""The demo's Prometheus and Alertmanager: an alert comes, and nothing of them is left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.prometheus import find_binary

pytestmark = [pytest.mark.system, pytest.mark.minutes]

CODE = "from tidegauge.cli.main import main; main()"
LIMIT = 60.0
STARTED = "alerts: Prometheus is running"


class Demo:
    """One at work, whose temporary folders are made in ``folder``."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    def read_until(self, beginning: str) -> list[str]:
        """What it prints, up to the line that begins so."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return lines
        raise AssertionError("\n".join(lines))

    def servers(self) -> list[psutil.Process]:
        """Prometheus and Alertmanager, as it has started them."""
        found = psutil.Process(self.process.pid).children()
        names = sorted(Path(server.exe()).name for server in found)
        assert names == ["prometheus", "prometheus-alertmanager"]
        return found

    def end(self, number: int, *servers: psutil.Process) -> tuple[int, str]:
        """Send a signal, and see that nothing is left; gives the exit code and the errors."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=LIMIT)
        assert not [server for server in servers if server.is_running()]
        assert not list(self.folder.iterdir())
        return self.process.returncode, err.strip()


@contextlib.contextmanager
def running(folder: Path, *arguments: str, code: str = CODE, **variables: str) -> Iterator[Demo]:
    command = [sys.executable, "-c", code, "demo", "--port", "0", *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), **variables},
    ) as process:
        try:
            yield Demo(process, folder)
        finally:
            process.terminate()  # killed, it would leave its servers behind


@pytest.fixture
def programs() -> None:
    find_binary("prometheus")
    find_binary("prometheus-alertmanager", package="prometheus-alertmanager")


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_the_alert_comes_while_the_loop_lasts_and_its_end_is_reported(tmp_path: Path) -> None:
    with running(tmp_path, "--serve") as demo:
        before = demo.read_until("alert: TidegaugeLoopOnset")
        assert re.fullmatch(
            r"alert: TidegaugeLoopOnset, looper-twin \(documents\), \d\.\d s after its loop began",
            before[-1],
        )
        assert any(line.startswith("looper-twin / skerrin-checked: loops") for line in before)
        assert not any(line.startswith("looper-twin / skerrin-checked: failed") for line in before)
        [started] = [line for line in before if line.startswith(STARTED)]
        with urllib.request.urlopen(started.rpartition(" ")[2], timeout=LIMIT) as answer:
            assert b"TidegaugeLoopOnset" in answer.read()
        servers = demo.servers()
        demo.read_until("resolved: TidegaugeLoopOnset, looper-twin (documents)")
        assert demo.end(signal.SIGINT, *servers) in ((0, ""), (130, ""))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_whatever_ends_the_demo_ends_them(number: int, code: int, tmp_path: Path) -> None:
    not_ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # as by nohup
    with running(tmp_path, code=not_ignored + CODE) as demo:
        demo.read_until(STARTED)
        assert demo.end(number, *demo.servers()) == (code, "")


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); " + CODE
    with running(tmp_path, code=code, PATH="") as demo:
        demo.read_until("no alerts: ")
        demo.process.send_signal(signal.SIGHUP)
        demo.read_until("solver / merrow-datum: solved")
        assert demo.end(signal.SIGINT) == (130, "")


@pytest.mark.usefixtures("programs")
def test_a_demo_that_fails_ends_them(tmp_path: Path) -> None:
    with running(tmp_path, "--json", str(tmp_path / "no such folder" / "demo.json")) as demo:
        demo.read_until(STARTED)
        code, err = demo.end(signal.SIGINT, *demo.servers())
    assert code == 1
    assert "No such file" in err


@pytest.mark.usefixtures("programs")
def test_one_that_dies_is_reported_and_the_other_one_ended(tmp_path: Path) -> None:
    with running(tmp_path) as demo:
        demo.read_until(STARTED)
        servers = demo.servers()
        next(server for server in servers if "alertmanager" in server.exe()).kill()
        output = demo.read_until("no alerts: alertmanager ended: ")
        assert not any(line.startswith("alert:") for line in output)
        until = time.monotonic() + LIMIT
        while any(server.is_running() for server in servers) or list(tmp_path.iterdir()):
            assert time.monotonic() < until
            time.sleep(0.02)
        demo.read_until("solver / merrow-datum: solved")
        assert demo.end(signal.SIGINT)[0] == 130


def test_one_that_cannot_be_used_says_so_in_its_last_words(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("prometheus", "alertmanager"):
        (programs / name).write_text(f"#!/bin/sh\necho starting\necho {name}: no such flag\nexit 2")
        (programs / name).chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    with running(folder, PATH=f"{programs}:/usr/bin:/bin") as demo:
        line = demo.read_until("no alerts: ")[-1]
        assert re.fullmatch(r"no alerts: (\w+) ended: \1: no such flag", line)
        demo.read_until("solver / merrow-datum: solved")
        assert demo.end(signal.SIGINT) == (130, "")


@pytest.mark.parametrize("there", [(), ("prometheus",), ("alertmanager",)])
def test_without_them_it_says_what_is_missing(there: tuple[str, ...], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in there:
        (programs / name).touch(0o755)
    missing = [name for name in ("prometheus", "alertmanager") if name not in there]
    folder = tmp_path / "folder"
    folder.mkdir()
    with running(folder, PATH=str(programs)) as demo:
        line = demo.read_until("no alerts: ")[-1]
        assert line == f"no alerts: not on the PATH: {', '.join(missing)}"
        assert demo.end(signal.SIGINT) == (130, "")


@pytest.mark.usefixtures("programs")
def test_a_fault_of_ours_is_a_line(tmp_path: Path) -> None:
    code = "from tidegauge.cli import demo_alerts; demo_alerts.rule_files = lambda: 1 / 0; " + CODE
    with running(tmp_path, code=code) as demo:
        assert "no alerts: ZeroDivisionError: " in demo.read_until("no alerts: ")[-1]
        demo.read_until("solver / merrow-datum: solved")
        assert demo.end(signal.SIGINT) == (130, "")


def test_they_can_be_turned_off(tmp_path: Path) -> None:
    with running(tmp_path, "--no-alerts", PATH="") as demo:
        lines = demo.read_until("solver / merrow-datum: solved")
        assert not [line for line in lines if "alerts" in line]
        assert demo.end(signal.SIGINT) == (130, "")
