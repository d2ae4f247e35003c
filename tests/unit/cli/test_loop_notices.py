"""Notices of loops: real commands, limited in time and rate, that never hold up an agent."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegauge.cli.live_runs import LoopOnset
from tidegauge.cli.watch import LoopNotices, parse_command, ring
from tidegauge.errors import ConfigurationError

ONSET = LoopOnset("codex", "s1", "r1", 2, 1)
WRITES = (
    "import json, os, sys; out = open(sys.argv[1], 'a'); "
    "found = {k: v for k, v in os.environ.items() if k.startswith('TIDEGAUGE_LOOP_')}; "
    "print(json.dumps([sys.argv[2:], found]), file=out)"
)

Open = Callable[..., LoopNotices]


@pytest.fixture
def opened() -> Iterator[Open]:
    made: list[LoopNotices] = []

    def make(command: str | None, **more: Any) -> LoopNotices:
        made.append(LoopNotices(command, **{"between_seconds": 0.0, **more}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def python(code: str, *arguments: object) -> str:
    return shlex.join([sys.executable, "-SE", "-c", code, *map(str, arguments)])


def wait_for(holds: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_the_command_gets_who_loops_as_arguments_and_variables(
    opened: Open, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = python(WRITES, out, "{agent} loops", "$HOME; {session}", "{step}/{period} {other}")
    opened(command).add(ONSET)
    wait_for(lambda: lines(out))
    [(arguments, variables)] = lines(out)
    assert arguments == ["codex loops", "$HOME; s1", "2/1 {other}"]
    assert variables == {
        "TIDEGAUGE_LOOP_AGENT": "codex",
        "TIDEGAUGE_LOOP_SESSION": "s1",
        "TIDEGAUGE_LOOP_RUN": "r1",
        "TIDEGAUGE_LOOP_STEP": "2",
        "TIDEGAUGE_LOOP_PERIOD": "1",
    }


def test_names_are_no_options_and_have_no_control_characters(opened: Open, tmp_path: Path) -> None:
    out = tmp_path / "out"
    notices = opened(python(WRITES, out, "{agent}", "{session}"))
    notices.add(LoopOnset("--urgent\n\x1b[2J\0", "{run}" + "s" * 999, "r", 0, 1))
    wait_for(lambda: lines(out))
    [(arguments, _)] = lines(out)
    assert arguments == ["urgent �[2J�", "{run}" + "s" * 122 + "…"]


def test_a_session_causes_one_notice_for_a_while(opened: Open, tmp_path: Path) -> None:
    out = tmp_path / "out"
    notices = opened(python(WRITES, out, "{session}"))
    for session in ("s1", "s1", "s2", "s1"):
        notices.add(ONSET._replace(session=session))
    wait_for(lambda: len(lines(out)) == 2)
    notices.add(ONSET._replace(session="s3"))
    wait_for(lambda: len(lines(out)) == 3)
    assert [arguments for arguments, _ in lines(out)] == [["s1"], ["s2"], ["s3"]]


def test_notices_have_time_between_them(opened: Open) -> None:
    rang: list[float] = []
    notices = opened(None, bell=lambda: rang.append(time.monotonic()), between_seconds=0.3)
    for session in ("s1", "s2"):
        notices.add(ONSET._replace(session=session))
    wait_for(lambda: len(rang) == 2)
    assert rang[1] - rang[0] >= 0.3


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged here: readers that other tests left log, too."""
    return [one.getMessage() for one in caplog.records if one.name.startswith("tidegauge")]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (python("raise SystemExit(3)"), "ended with exit code 3"),
        (python("import time; time.sleep(60)"), "took longer than 0.5 s: killed"),
    ],
)
def test_a_failure_is_one_line_of_the_log(
    opened: Open, command: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    notices = opened(command, command_seconds=0.5 if "sleep" in command else 20.0)
    notices.add(ONSET)
    wait_for(lambda: ours(caplog))
    assert ours(caplog) == [f"the command of --notify-command {said}"]


def test_a_program_that_is_gone_is_one_line_of_the_log(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    notices = opened(str(program))
    program.unlink()
    notices.add(ONSET)
    wait_for(lambda: caplog.records)
    assert "could not be run: " in caplog.records[0].getMessage()


def test_a_slow_command_holds_up_no_agent_and_ends_with_the_watcher(
    opened: Open, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    notices = opened(python(code))
    began = time.monotonic()
    for number in range(1_000):
        notices.add(ONSET._replace(session=f"s{number}"))
    assert time.monotonic() - began < 1.0
    wait_for(lambda: pid.exists() and pid.read_text())
    notices.close()
    assert time.monotonic() - began < 10.0
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_terminal_that_was_closed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, inside = os.openpty()
    with os.fdopen(inside, "w") as stream:
        monkeypatch.setattr(sys, "__stdout__", stream)
        ring()
        assert os.read(terminal, 9) == b"\a"
    os.close(terminal)
    ring()


@pytest.mark.parametrize("text", ["", "  ", "notify 'open", 7])
def test_what_is_no_command_is_said(text: Any) -> None:
    with pytest.raises(ValueError, match="command"):
        parse_command(text)


def test_a_program_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="'no-such-program' is not found"):
        LoopNotices("no-such-program --now")
