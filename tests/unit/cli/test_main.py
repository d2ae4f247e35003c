"""The group of commands: help that teaches, lazy imports, errors in one line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import orjson
import pytest

import tidegauge as package
from tidegauge.cli import main as main_module
from tidegauge.errors import MissingExtraError

COMMANDS = main_module._COMMANDS


def test_help_says_what_each_command_is_for(tidegauge) -> None:
    ran = tidegauge("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert f"tidegauge {name}" in ran.out  # an example
        assert f"\n  {name}" in ran.out  # its line


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS), ("hook", "install"), ("hook", "remove")]
)
def test_help_fits_a_terminal_of_80_columns(tidegauge, monkeypatch, command: tuple[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = tidegauge(*command, "--help")
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []
    commands = ran.out.partition("\nCommands:\n")[2]
    assert "..." not in commands  # no sentence is cut


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("file", ["runs.jsonl", "-", "missing.jsonl"])
def test_a_standard_stream_may_be_closed(
    tmp_path: Path, walk: Callable[..., list[dict[str, object]]], closed: tuple[int, ...], file: str
) -> None:
    lines = [orjson.dumps(event) for event in walk("r", "xyxy")]
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join(lines))
    program = (
        f"import os, sys\nfor number in {closed}: os.close(number)\n"
        "os.execv(sys.executable, [sys.executable, '-c', "
        "'from tidegauge.cli.main import main; main()', *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "replay", file, "--steps-out", "out"],
        cwd=tmp_path,
        input=b"\n".join(lines),
        capture_output=True,
        check=False,
    )
    assert done.returncode == (1 if file.startswith("missing") else 0), done.stderr
    assert b"internal error" not in done.stderr
    read = file == "runs.jsonl" or (file == "-" and 0 not in closed)
    steps = [orjson.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert [step["t"] for step in steps] == ([0, 1, 2, 3] if read else [])
    if 1 not in closed and read:
        assert b"1 runs, 0 of them unfinished" in done.stdout


def test_version(tidegauge) -> None:
    assert tidegauge("--version").out == f"tidegauge {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "No such command 'nope'"),
        (["replay"], "Missing argument 'FILE…'"),
        (["replay", "--nope", "f"], "--nope"),
        (["replay", "--t-max", "0", "f"], "--t-max: 0 is out of range; use 1 or more"),
        (["replay", "--policy", "loops=3", "f"], "unknown signal 'loops'"),
        (["replay", "--policy", "steps=3,steps=4", "f"], "two rules have the same signal"),
    ],
)
def test_wrong_usage_is_code_2(tidegauge, arguments: list[str], said: str) -> None:
    ran = tidegauge(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Put a command ``fail`` into the group that raises the given error."""

    def put(error: BaseException) -> None:
        @click.command()
        def fail() -> None:
            raise error

        module = type(sys)("tidegauge.cli.fail")
        module.fail = fail  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tidegauge.cli.fail", module)
        monkeypatch.setitem(COMMANDS, "fail", "Fails.")

    return put


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            MissingExtraError("langgraph", extra="demo"),
            2,
            "tidegauge: langgraph is not installed: pip install '.[demo]' in a clone\n",
        ),
        (OSError(28, "No space left on device"), 1, "tidegauge: No space left on device"),
        (ZeroDivisionError("oops"), 70, "tidegauge: internal error, ZeroDivisionError: oops; "),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line_and_a_code(tidegauge, failing, error, code, line) -> None:
    failing(error)
    ran = tidegauge("fail")
    assert ran.code == code
    assert ran.err.strip().startswith(line.strip())
    assert ran.err.count("\n") == 1


def test_a_fault_of_ours_can_be_looked_at(tidegauge, failing, monkeypatch) -> None:
    monkeypatch.setenv("TIDEGAUGE_DEBUG", "1")
    failing(ZeroDivisionError("oops"))
    with pytest.raises(ZeroDivisionError):
        main_module.main(["fail"])


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_a_command_pays_for_its_own_imports_only() -> None:
    loaded = run_python(
        "import sys\n"
        "from tidegauge.cli.main import cli\n"
        "for arguments in (['--help'], ['replay', '--help'], ['replay', '--json', '-']):\n"
        "    cli.main(arguments, standalone_mode=False)\n"
        "print(*sorted(sys.modules))"
    ).split()
    assert "tidegauge.cli.replay" in loaded
    for module in ("tidegauge.cli.demo", "rich", "langchain_core", "prometheus_client", "grpc"):
        assert module not in loaded


TIDEGAUGE = [sys.executable, "-c", "from tidegauge.cli.main import main; main()"]


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", [["--json"], []])
def test_nobody_reads_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str], unbuffered: str
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    recording = tmp_path / "runs.jsonl"
    # more groups and runs than a pipe holds
    recording.write_text(
        "".join(f'{{"type":"start","run":"r{n}","agent":"agent {n}"}}\n' for n in range(3_000))
    )
    with subprocess.Popen(
        [*TIDEGAUGE, "replay", str(recording), *option],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_control_c_is_quiet() -> None:
    with subprocess.Popen(
        [*TIDEGAUGE, "replay", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"nope\n" * 30)
        process.stdin.flush()
        line = process.stderr.readline()  # it is reading
        time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)[1]
    assert line.startswith(b"<stdin>:1: invalid JSON")
    assert b"Traceback" not in rest
    assert process.returncode == 130


def test_a_terminal_without_the_letters_gets_others() -> None:
    ran = subprocess.run(
        [*TIDEGAUGE, "replay", "-"],
        input='{"type":"start","run":"r","agent":"Śivarāma"}\n'.encode(),
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"},
    )
    assert ran.returncode == 0
    assert b"?ivar?ma" in ran.stdout
