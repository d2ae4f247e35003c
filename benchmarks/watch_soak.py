"""``python -m benchmarks watch-soak --minutes 10``: 50 sessions of coding agents, and flat memory.

Half of them, as Claude Code, report to their hooks and write a file; the others, as Codex, write a
file only. Every step must count once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from tidegauge.coding_agents import hook_client

STEPS_A_RUN = 40
SESSIONS = 50
TOLERANCE = 1.05


class Session:
    """A session that makes steps: new ones, and in every other run a loop of two."""

    def __init__(self, home: Path, number: int) -> None:
        self.hooked = number % 2 == 0
        self.id = f"session-{number}"
        folder = home / (".claude/projects/shop" if self.hooked else ".codex/sessions")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.id}.jsonl" if self.hooked else f"rollout-{self.id}.jsonl"
        self._file = open(folder / name, "a", buffering=1)  # noqa: SIM115 -- open for the session
        self.steps = self.runs = 0
        if not self.hooked:
            self._write("session_meta", id=self.id)

    def step(self) -> None:
        """Make a step; the first one of a run comes after its prompt."""
        number = self.steps % STEPS_A_RUN
        if not number:
            self.runs += 1
            self._prompt()
        looping = self.runs % 2 and number > STEPS_A_RUN // 2
        command = f"look {number % 2 if looping else number}"
        if self.hooked:
            self._hooked_call(f"{self.steps}", command)
        else:
            self._read_call(f"{self.steps}", command)
        self.steps += 1

    def end(self) -> None:
        """The agent has answered."""
        if self.hooked:
            self._hook("Stop")
        else:
            self._write("event_msg", type="task_complete")
        self._file.close()

    def _prompt(self) -> None:
        if self.hooked:
            self._hook("UserPromptSubmit", prompt="look around")
            self._say("user", "look around")
        else:
            self._write("event_msg", type="user_message", message="look around")

    def _hooked_call(self, call: str, command: str) -> None:
        given = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call}
        self._hook("PreToolUse", **given)
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
        self._say("assistant", [use], id=call)
        self._hook("PostToolUse", **given, tool_response=f"{command}: nothing")
        result = {"type": "tool_result", "tool_use_id": call, "content": f"{command}: nothing"}
        self._say("user", [result])

    def _read_call(self, call: str, command: str) -> None:
        arguments = json.dumps({"cmd": command})
        made = {"type": "function_call", "call_id": call, "name": "shell", "arguments": arguments}
        self._write("response_item", **made)
        done = {"type": "function_call_output", "call_id": call, "output": f"{command}: nothing"}
        self._write("response_item", **done)

    def _hook(self, name: str, **fields: Any) -> None:
        event = {"hook_event_name": name, "session_id": self.id, **fields}
        with contextlib.suppress(OSError):  # as the hook does when the watcher is slow
            hook_client.ask("claude", json.dumps(event).encode())

    def _say(self, kind: str, content: Any, **fields: Any) -> None:
        message = {"role": kind, "content": content, **fields}
        self._file.write(
            json.dumps({"type": kind, "sessionId": self.id, "message": message}) + "\n"
        )

    def _write(self, kind: str, **payload: Any) -> None:
        self._file.write(json.dumps({"type": kind, "payload": payload}) + "\n")


def main(arguments: list[str]) -> int:
    """Returns 1 when memory grew, or a step was lost or counted twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks watch-soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    parser.add_argument(
        "--pace", type=float, default=4.0, help="steps a second of each; default: 4"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ.update(HOME=folder, XDG_RUNTIME_DIR=folder)
        command = [sys.executable, "-c", "from tidegauge.cli.main import main; main()", "watch"]
        with open(home / "log", "wb") as log:
            watcher = subprocess.Popen([*command, "--metrics-port", "0"], stdout=log, stderr=log)
        try:
            return _measure(watcher, home, options.minutes, 1 / options.pace)
        finally:
            watcher.kill()
            watcher.wait()


def _measure(watcher: subprocess.Popen[bytes], home: Path, minutes: float, seconds: float) -> int:
    while "end it with Ctrl-C" not in (home / "log").read_text():
        time.sleep(0.1)
    found = re.search(r"metrics: (\S+)", (home / "log").read_text())
    assert found is not None
    process, sessions = psutil.Process(watcher.pid), [Session(home, n) for n in range(SESSIONS)]
    megabytes: list[float] = []
    until = time.monotonic() + 60 * minutes
    while (begun := time.monotonic()) < until:
        for session in sessions:
            session.step()
        megabytes.append(process.memory_info().rss / 1e6)
        if sys.stderr.isatty():
            print(f"{until - begun:5.0f} s left, {megabytes[-1]:.0f} MB", end="\r", file=sys.stderr)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
    for session in sessions:
        session.end()
    made = {
        (agent, kind): sum(getattr(one, kind) for one in sessions if one.hooked == hooked)
        for agent, hooked in (("claude", True), ("codex", False))
        for kind in ("steps", "runs")
    }
    for _ in range(20):  # a step that is read counts two looks later
        measured = _measured(found[1])
        if measured == made:
            break
        time.sleep(1.0)
    watcher.send_signal(signal.SIGINT)
    watcher.wait(60)
    for (agent, kind), count in made.items():
        print(f"{agent}: {measured[agent, kind]:,.0f} of {count:,} {kind} measured")
    start, middle, end = megabytes[0], megabytes[len(megabytes) // 2], megabytes[-1]
    print(f"resident memory: {start:.0f} MB, {middle:.0f} MB midway, {end:.0f} MB at the end")
    print(f"from midway to the end: {end / middle:.2f} x, target: {TOLERANCE:g} x")
    return 0 if measured == made and end <= TOLERANCE * middle else 1


def _measured(address: str) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(address) as page:
        text = page.read().decode()
    found = {}
    for agent in ("claude", "codex"):
        for kind, name in (("steps", "steps_total"), ("runs", "runs_started_total")):
            line = re.search(rf'tidegauge_{name}{{agent="{agent}",task_group=""}} (\S+)', text)
            found[agent, kind] = 0.0 if line is None else float(line[1])
    return found
