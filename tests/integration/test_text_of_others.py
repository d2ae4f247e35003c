"""Text of others is only shown: no command passes on what a terminal acts on or hides."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.processes import without_otel
from support.requirements import needs
from support.terminal_text import HOSTILE, hidden_in, running
from tidegauge.cli.terminal import VisibleLog
from tidegauge.cli.worker import _OneLine
from tidegauge.coding_agents import hook_client

pytestmark = needs(hasattr(os, "openpty"), "this platform has no pseudo terminals")

PROGRAM = [sys.executable, "-c", "from tidegauge.cli.main import main; main()"]
ALL = """
import json, sys
from tidegauge.cli.main import main
for number, arguments in enumerate(json.load(open("commands.json"))):
    try:
        main(arguments)
    except SystemExit as ended:
        sys.stderr.flush()
        print(f"=== {number} {ended.code}", flush=True)
"""
NAMES = {f"n{number:02}{text}": text for number, text in enumerate(HOSTILE.values())}
"""A name of each text; what comes before it must be shown."""

FILES = [name.replace("/", "").replace("\0", "")[:60] for name in NAMES]
UNREADABLE = os.fsdecode(b"no \xff\xfe\x9b2J")
READ = {
    "replay": ["replay", "runs.jsonl"],
    "replay --json": ["replay", "runs.jsonl", "--json"],
    "inspect": ["inspect", "traces.json"],
    "report": ["report", "runs.jsonl", "-o", f"{FILES[0]}.html"],
    "export": ["export", "runs.jsonl", "--format", "csv", "-o", FILES[3]],
    "backtest": ["backtest", "runs.jsonl"],
    "backtest --json": ["backtest", "runs.jsonl", "--json"],
    "calibrate": ["calibrate", "runs.jsonl", "-o", f"{FILES[1]}.toml"],
    "learn": ["learn", "runs.jsonl", "--explain", "-o", f"{FILES[2]}.json"],
    "select": ["select", "runs.jsonl", "--where", "success"],
    "judge": ["judge", "twice.jsonl", "--dry-run"],
    "doctor": ["doctor"],
}
FAULTY = {
    **{
        f"{command} without a file": [command, *more, *FILES, UNREADABLE]
        for command, *more in (
            ["replay"],
            ["report", "-o", "missing.html"],
            ["export", "-o", "missing"],
            ["backtest"],
            ["select", "--where", "success"],
        )
    },
    "a file that is none": ["inspect", FILES[3]],
    "a file that is another": ["inspect", "faults.jsonl"],
    "lines with errors": ["replay", "faults.jsonl"],
    "the first error": ["replay", "--strict", "faults.jsonl"],
    "a folder": ["replay", "--from", "auto", "."],
    "no command": [FILES[9]],
    "no option": ["replay", f"--{FILES[9]}", "runs.jsonl"],
    "no scores": ["report", "--scores", FILES[8], "-o", "missing.html", "runs.jsonl"],
    "no value": ["replay", "--t-max", FILES[3], "runs.jsonl"],
    "no policy": ["replay", "--policy", f"{FILES[3]}=1", "runs.jsonl"],
    "no condition": ["select", "--where", f"agent == '{FILES[3]}", "runs.jsonl"],
    "no configuration": ["serve", "--config", "config.toml"],
}


def recorded(name: str, number: int) -> Iterator[dict[str, Any]]:
    run = f"{name} {number}"
    names = {"agent": name, "task_group": name, "model": name, "task": f"{name} {number}"}
    yield {"type": "start", "run": run, **names}
    for step in range(4):
        step_of = {"action": name, "args": {"place": name}, "outcome": [name, number]}
        yield {"type": "step", "run": run, "state": f"{step} {name}", **step_of}
    yield {"type": "end", "run": run, "success": number % 2 == 0, "reason": name}


def traces() -> bytes:
    spans = []
    for number, name in enumerate(NAMES, 1):
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        pairs = [{"key": key, "value": {"stringValue": it}} for key, it in attributes.items()]
        times = {"startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": pairs}
        ids = {"traceId": f"{number:032x}", "spanId": f"{number:016x}"}
        spans.append({**ids, "name": name, **times})
    scopes = [{"scope": {"name": name}, "spans": spans[n : n + 1]} for n, name in enumerate(NAMES)]
    return json.dumps({"resourceSpans": [{"scopeSpans": scopes}]}).encode()


def printed_by(folder: Path, commands: dict[str, list[str]], *, tty: bool) -> dict[str, Any]:
    """What each command printed, and its exit code."""
    folder.mkdir(exist_ok=True)
    events = [event for name in NAMES for number in (0, 1) for event in recorded(name, number)]
    lines = [orjson.dumps(event) for event in events]
    (folder / "runs.jsonl").write_bytes(b"\n".join(lines))
    (folder / "twice.jsonl").write_bytes(b"\n".join(lines + lines))
    (folder / "traces.json").write_bytes(traces())
    faults = [{"type": "end", "run": name} for name in NAMES]
    wrong = [{"type": name} for name in NAMES]
    cut = b'{"type": "start", "run": "\xff\x9b2J\\ud800'
    (folder / "faults.jsonl").write_bytes(b"\n".join([cut, *map(orjson.dumps, faults + wrong)]))
    (folder / "config.toml").write_text(f"{json.dumps(FILES[3])} = 1\n")
    (folder / "commands.json").write_text(json.dumps(list(commands.values())))
    variables = {f"TIDEGAUGE_X{n}": text for n, text in enumerate(FILES)}
    env = without_otel(HOME=str(folder), TIDEGAUGE_POLICY=FILES[3], **variables)
    with running([sys.executable, "-c", ALL], tty=tty, cwd=folder, env=env) as program:
        assert program.ended() == 0, program.printed.decode()
    found: dict[str, Any] = {}
    rest = bytes(program.printed)
    for number, name in enumerate(commands):
        out, mark, rest = rest.partition(f"=== {number} ".encode())
        assert mark, f"{name}: {out.decode()}"
        code, _, rest = rest.partition(b"\n")
        found[name] = (int(code), out)
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["terminal", "pipe"])
def tty(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module")
def read(tty: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return printed_by(tmp_path_factory.mktemp("read"), READ, tty=tty)


@pytest.fixture(scope="module")
def faulty(tty: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return printed_by(tmp_path_factory.mktemp("faulty"), FAULTY, tty=tty)


@pytest.mark.parametrize("name", READ)
def test_what_commands_read_is_only_shown(name: str, tty: bool, read: dict[str, Any]) -> None:
    code, out = read[name]
    assert b"internal error" not in out
    assert code == (1 if name == "doctor" else 0), out.decode()
    assert hidden_in(out, tty=tty) == set()
    if name in ("replay", "inspect", "backtest", "calibrate", "learn"):
        for number in range(len(NAMES)):
            assert f"n{number:02}".encode() in out, "each name is shown"
        assert b"[/tmp/x] [/x] [/]" in out
        assert b"[bold red]x[/]" in out
    if name in ("replay", "calibrate", "learn"):
        assert max(map(len, out.decode().split("\n"))) < 1_000, "a long name is cut"


@pytest.mark.parametrize("name", FAULTY)
def test_what_errors_name_is_only_shown(name: str, tty: bool, faulty: dict[str, Any]) -> None:
    code, out = faulty[name]
    assert b"internal error" not in out, out.decode()
    assert code in ((0, 1) if name in ("lines with errors", "a folder") else (1, 2)), out.decode()
    assert out.strip()
    assert hidden_in(out, tty=tty) == set()


def test_json_has_the_same_values(read: dict[str, Any]) -> None:
    document = orjson.loads(read["replay --json"][1])
    assert [run["agent"] for run in document["runs"]] == [name for name in NAMES for _ in (0, 1)]
    groups = [group["agent"] for group in document["groups"]]
    assert groups == list(NAMES)
    left = [one["agent"] for one in orjson.loads(read["backtest --json"][1])["left_out"]]
    assert set(left) <= set(NAMES)
    *lines, said = read["select"][1].strip().split(b"\n")
    expected = [event for name in NAMES for event in recorded(name, 0)]
    assert [orjson.loads(line) for line in lines] == expected
    assert said.strip() == b"%d of %d runs" % (len(NAMES), 2 * len(NAMES))


def reported(name: str) -> Iterator[dict[str, Any]]:
    """What the hooks of a session say: it repeats a call."""
    common = {"session": name, "agent": name}
    yield {**common, "event": "prompt", "prompt": f"{name}\nmore", "model": name}
    for number in range(4):
        call = {"tool": name, "arguments": {"command": name}, "call_id": f"{number}"}
        yield {**common, **call, "event": "call"}
        yield {**common, **call, "event": "result", "result": name, "error": True}


@pytest.mark.parametrize("contents", [True, False], ids=["prompts", "sessions"])
def test_what_agents_say_is_only_shown_while_they_work(
    tmp_path: Path, tty: bool, contents: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(hook_client, "ANSWER_SECONDS", 30.0)
    env = without_otel(XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path))
    flags = ["--contents"] if contents else []
    command = [*PROGRAM, "watch", "--metrics-port", "0", "--act", *flags]
    with running(command, tty=tty, env=env) as program:
        program.wait_for("end it with Ctrl-C")
        answers = []
        for name in NAMES:
            for event in reported(name):
                answers.append(hook_client.ask("generic", json.dumps(event).encode()))
        lone = {"session": "\ud800", "agent": "\udc9b2J", "event": "prompt", "prompt": "\ud800"}
        answers.append(hook_client.ask("generic", json.dumps(lone).encode()))
        program.wait_for(*(f"n{number:02}" for number in range(len(NAMES))), "[/tmp/x] [/x] [/]")
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0, program.printed.decode()
    out = bytes(program.printed)
    assert f"{len(NAMES)} runs".encode() in out
    assert hidden_in(out, tty=tty) == set()
    said = [json.loads(answer) for answer in answers if answer]
    assert {one["action"] for one in said} >= {"nudge", "refuse"}
    assert [hidden_in(answer, tty=False) for answer in answers] == [set()] * len(answers)


def test_what_a_server_receives_is_only_shown(tmp_path: Path, tty: bool) -> None:
    recording = tmp_path / FILES[3]
    recording.touch(0o644)  # of which it warns
    flags = ["--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"]
    flags += ["--record-to", str(recording)]
    with running([*PROGRAM, "serve", *flags], tty=tty, env=without_otel()) as program:
        program.wait_for("metrics: ")
        _, _, address = bytes(program.printed).partition(b"OTLP over HTTP: ")
        url = address.split()[0].decode()
        headers = {"Content-Type": "application/json"}
        sent = urllib.request.Request(f"{url}/v1/traces", traces(), headers)
        urllib.request.urlopen(sent, timeout=10).close()
        program.process.send_signal(signal.SIGTERM)
        program.ended()
    out = bytes(program.printed)
    assert b"Other users can access" in out
    assert b"n03" in out
    assert hidden_in(out, tty=tty) == set()


@pytest.mark.parametrize("formatter", [VisibleLog(), _OneLine("tidegauge: %(message)s")])
def test_log_lines_are_only_shown(formatter: logging.Formatter) -> None:
    for text in HOSTILE.values():
        try:
            raise ValueError(text)
        except ValueError:
            found = logging.LogRecord("x", 30, "f", 1, "%s", (text,), sys.exc_info())
        said = formatter.format(found)
        assert hidden_in(said.encode(), tty=False) == set()
        assert "\n" not in said.partition("Traceback")[0].removesuffix("\n")


def test_what_a_settings_file_holds_is_only_shown(tmp_path: Path, tty: bool) -> None:
    home = tmp_path / FILES[3]
    (home / ".codex").mkdir(parents=True)
    settings = home / ".codex" / "hooks.json"
    settings.write_text(json.dumps({"names": list(NAMES)}, ensure_ascii=False, indent=2))
    env = without_otel(HOME=str(home), PATH="", XDG_DATA_HOME=str(home))
    answer = ["--yes"] if not tty else []
    command = [*PROGRAM, "hook", "install", "codex", *answer]
    with running(command, tty=tty, typed=b"y\n", env=env) as program:
        assert program.ended() == 0, program.printed.decode()
    out = bytes(program.printed)
    assert b"next: tidegauge watch" in out
    assert hidden_in(out, tty=tty) == set()
    assert json.loads(settings.read_text())["names"] == list(NAMES)
