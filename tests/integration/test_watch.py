"""``tidegauge watch`` as a process, with the hook that agents run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.hook_payloads import PAYLOADS, patient_hook
from support.otlp_receiver import http_receiver
from support.processes import (
    logging_everything,
    stopped_in_the_end,
    wait_until_ready,
    without_otel,
)
from support.requirements import needs

pytestmark = needs(hasattr(socket, "AF_UNIX"), "this platform has no Unix sockets")


class Watcher(NamedTuple):
    """A watcher at work."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path

    def hook(self, agent: str, kind: str, call_id: str = "c1") -> Any:
        """What the hook of an agent prints."""
        ran = subprocess.run(
            [sys.executable, "-SE", str(patient_hook(self.folder)), agent],
            input=json.dumps(PAYLOADS[agent](kind, call_id)).encode(),
            env={"XDG_RUNTIME_DIR": str(self.folder)},
            capture_output=True,
            check=True,
        )
        return json.loads(ran.stdout) if ran.stdout else None

    def loop(self, agent: str, calls: int) -> list[Any]:
        """What the hooks print in a session that repeats a call."""
        answers = [self.hook(agent, "prompt")]
        for number in range(calls):
            answers.append(self.hook(agent, "call", f"c{number}"))
            if answers[-1] is None:
                answers.append(self.hook(agent, "result", f"c{number}"))
        return [*answers, self.hook(agent, "end")]

    def stop(self) -> str:
        """End it as Ctrl-C does; returns what it printed."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0, self.log.read_text()
        return self.log.read_text()


@contextlib.contextmanager
def watching(tmp_path: Path, *flags: str, **variables: str) -> Iterator[Watcher]:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from tidegauge.cli.main import main; main()"),
                *("watch", "--metrics-port", "0", *flags),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=without_otel(XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path), **variables),
        )
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: "end it with Ctrl-C" in log.read_text())
        yield Watcher(process, log, tmp_path)


def test_it_observes_agents_and_shows_what_it_would_have_done(tmp_path: Path) -> None:
    with watching(tmp_path) as watcher:
        assert set(watcher.loop("codex", 4)) == {None}
        found = re.search(r"metrics: (\S+)", watcher.log.read_text())
        assert found is not None
        with urllib.request.urlopen(found[1]) as page:
            metrics = page.read().decode()
        assert 'tidegauge_steps_total{agent="codex",task_group=""} 4.0' in metrics
        out = watcher.stop()
    assert "codex / s1: would have been nudged at step 2: 1 step, repeated twice" in out
    assert "codex / s1: would have been refused at step 3" in out
    assert "would have been nudged: 1, refused: 1, stopped: 0" in out
    assert "Read it" not in out
    assert "missing.yaml" not in out


def claude_session(path: Path, steps: int) -> None:
    """Add to a session of Claude Code, which repeats a call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        for number in range(steps):
            use = {"type": "tool_use", "id": f"{number}", "name": "Bash", "input": {"command": "x"}}
            result = {"type": "tool_result", "tool_use_id": f"{number}", "content": "missing.yaml"}
            said: list[tuple[str, Any]] = [("assistant", [use]), ("user", [result])]
            if not number:
                said.insert(0, ("user", "Read it"))
            for kind, content in said:
                message = {"id": f"m{number}", "content": content, "usage": {"output_tokens": 7}}
                record = {"type": kind, "sessionId": path.stem, "message": message}
                file.write(json.dumps(record) + "\n")


def test_a_session_without_hooks_is_read_while_it_is_written(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with watching(tmp_path, "--transcripts-in", f"claude={elsewhere}") as watcher:
        claude_session(tmp_path / ".claude" / "projects" / "shop" / "5e55-one.jsonl", 5)
        claude_session(elsewhere / "5e55-two.jsonl", 5)
        wait_until_ready(
            watcher.process,
            watcher.log,
            lambda: watcher.log.read_text().count("would have been refused at step 3") == 2,
        )
        watcher.loop("codex", 4)
        found = re.search(r"metrics: (\S+)", watcher.log.read_text())
        assert found is not None
        with urllib.request.urlopen(found[1]) as page:
            metrics = page.read().decode()
        out = watcher.stop()
    for shown in [
        'steps_total{agent="claude",task_group=""} 8.0',
        'loop_tokens_total{agent="claude",task_group=""} 28.0',
        'sessions_total{agent="claude",task_group=""} 2.0',
        'sessions_active{agent="claude",task_group=""} 2.0',
        'sessions_total{agent="codex",task_group=""} 1.0',
    ]:
        assert f"tidegauge_{shown}" in metrics
    assert "claude / 5e55-one: loops since step 2" in out
    assert "3 runs, 14 steps" in out
    assert "Read it" not in out
    assert "missing.yaml" not in out


def test_with_act_sessions_without_hooks_are_observed(tmp_path: Path) -> None:
    with watching(tmp_path, "--act") as watcher:
        claude_session(tmp_path / ".claude" / "projects" / "shop" / "5e55-one.jsonl", 9)
        hooked = [answer for answer in watcher.loop("codex", 4) if answer is not None]
        assert len(hooked) == 2
        wait_until_ready(
            watcher.process,
            watcher.log,
            lambda: "claude / 5e55-one: would have been stopped" in watcher.log.read_text(),
        )
        found = re.search(r"metrics: (\S+)", watcher.log.read_text())
        assert found is not None
        with urllib.request.urlopen(found[1]) as page:
            metrics = page.read().decode()
        out = watcher.stop()
    acted = set(re.findall(r'_interventions_total{agent="(\w+)",.*action="(\w+)"', metrics))
    assert acted == {("codex", "nudge"), ("codex", "block"), ("claude", "would_stop")}
    assert 'tidegauge_refused_calls_total{agent="claude",task_group=""} 0.0' in metrics
    assert "2 runs, 13 steps; nudged: 1, refused: 1, stopped: 0" in out
    assert "without hooks, they would have been nudged: 1, refused: 3, stopped: 1" in out


def test_without_transcripts_hooks_alone_report(tmp_path: Path) -> None:
    with watching(tmp_path, "--transcripts", "off") as watcher:
        claude_session(tmp_path / ".claude" / "projects" / "shop" / "5e55.jsonl", 5)
        watcher.loop("codex", 2)
        time.sleep(3)
        out = watcher.stop()
    assert "1 runs, 2 steps" in out


def test_with_act_it_nudges_refuses_and_stops(tmp_path: Path) -> None:
    with watching(tmp_path, "--act", "--contents") as watcher:
        answers = [answer for answer in watcher.loop("gemini", 4) if answer is not None]
        nudge, refusal = answers
        assert "additionalContext" in nudge["hookSpecificOutput"]
        assert refusal["decision"] == "deny"
        out = watcher.stop()
    assert "gemini / Read it: nudged at step 2" in out
    assert "gemini / Read it: refused at step 3" in out
    assert "1 runs, 4 steps; nudged: 1, refused: 1, stopped: 0" in out


CONTENTS = ("Read it", "missing.yaml", "No such file", "Done.")
"""Of the sessions of these tests."""


def test_no_content_of_a_session_leaves(tmp_path: Path) -> None:
    recording = tmp_path / "runs.jsonl"
    with http_receiver() as receiver:
        variables = {
            **logging_everything(tmp_path),
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        everywhere = ("--act", "--spans", "all", "--record-to", str(recording))
        with watching(tmp_path, *everywhere, **variables) as watcher:
            claude_session(tmp_path / ".claude" / "projects" / "shop" / "5e55-one.jsonl", 5)
            for agent in ("codex", "gemini", "opencode"):
                watcher.loop(agent, 4)
            wait_until_ready(
                watcher.process,
                watcher.log,
                lambda: "claude / 5e55-one: would have been" in watcher.log.read_text(),
            )
            found = re.search(r"metrics: (\S+)", watcher.log.read_text())
            assert found is not None
            paths = ["metrics", "", *(f"page/live?run={n}&rows=100&after=0" for n in range(1, 5))]
            pages = []
            for path in paths:
                with urllib.request.urlopen(found[1].removesuffix("metrics") + path) as answer:
                    pages.append(answer.read().decode())
            out = watcher.stop()
    left = {
        "output": out,
        **dict(zip(paths, pages, strict=True)),
        "spans": str([(span.raw, span.resource) for span in receiver.spans]),
        "recording": recording.read_text(),
    }
    # Every surface has something to say.
    assert "DEBUG:" in out
    assert all('"trail":[{"step":0,"tool":"' in page for page in pages[2:6])
    assert "execute_tool" in left["spans"]
    assert '"sha:' in left["recording"]
    for where, text in left.items():
        assert [content for content in CONTENTS if content in text] == [], where


@pytest.mark.parametrize("spans", ["off", "all", "troubled"])
def test_spans_are_exported_if_you_ask_for_them(tmp_path: Path, spans: str) -> None:
    with http_receiver() as receiver:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with watching(tmp_path, "--spans", spans, **variables) as watcher:
            watcher.loop("codex", 1)
            watcher.loop("gemini", 4)
            watcher.stop()
    names = sorted(span.name for span in receiver.spans)
    looped = ["execute_tool run_shell_command"] * 4 + ["invoke_agent gemini"]
    healthy = ["execute_tool Bash", "invoke_agent codex"]
    assert names == {"off": [], "all": sorted(looped + healthy), "troubled": looped}[spans]


def test_spans_without_an_address_end_with_one_line(tmp_path: Path) -> None:
    assert "set OTEL_EXPORTER_OTLP_ENDPOINT" in refused(tmp_path, "--spans", "all")


def test_a_second_watcher_ends_with_one_line(tmp_path: Path) -> None:
    with watching(tmp_path):
        assert "another 'tidegauge watch' listens on" in refused(tmp_path)


def refused(folder: Path, *options: str) -> str:
    """The one line with which a watcher ends that cannot begin."""
    ran = subprocess.run(
        [
            *(sys.executable, "-c", "from tidegauge.cli.main import main; main()"),
            *("watch", "--metrics-port", "0", *options),
        ],
        capture_output=True,
        text=True,
        env=without_otel(XDG_RUNTIME_DIR=str(folder), HOME=str(folder)),
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def test_a_command_runs_at_the_onset_of_a_loop_and_knows_no_contents(tmp_path: Path) -> None:
    out = tmp_path / "notices"
    code = "import os, sys; open(sys.argv[1], 'a').write(repr(sys.argv[2:]) + repr(os.environ))"
    command = shlex.join([sys.executable, "-c", code, str(out), "{agent}", "{session}", "{step}"])
    with watching(tmp_path, "--contents", "--notify-command", command) as watcher:
        watcher.loop("codex", 4)
        wait_until_ready(
            watcher.process, watcher.log, lambda: out.exists() and out.stat().st_size > 0
        )
        watcher.loop("codex", 4)  # the same session, at once: no further notice
        watcher.stop()
    said = out.read_text()
    assert said.startswith("['codex', 's1', '2']")
    assert said.count("TIDEGAUGE_LOOP_PERIOD") == 1
    assert "Read it" not in said
    assert "missing.yaml" not in said


def test_the_bell_rings_on_a_terminal(tmp_path: Path) -> None:
    program = "from tidegauge.cli.main import main; main()"
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, "watch", "--metrics-port", "0", "--notify"],
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=inside,
        env=without_otel(XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path), TERM="xterm"),
    )
    os.close(inside)
    printed = tmp_path / "log"
    with stopped_in_the_end(process), printed.open("wb", buffering=0) as log:

        def reads(text: bytes) -> bool:
            if select.select([terminal], [], [], 0)[0]:
                log.write(os.read(terminal, 65_536))
            return text in printed.read_bytes()

        wait_until_ready(process, printed, lambda: reads(b"end it with Ctrl-C"))
        watcher = Watcher(process, printed, tmp_path)
        assert not reads(b"\a")
        watcher.loop("codex", 3)
        wait_until_ready(process, printed, lambda: reads(b"\a"))
    os.close(terminal)


def test_a_policy_replaces_the_rules(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'format = 2\n\n[[rule]]\nsignal = "loop_repeats"\nthreshold = 3\naction = "block"\n'
    )
    for given in (str(policy), "loop_repeats=3:block"):
        with watching(tmp_path, "--act", "--policy", given) as watcher:
            answers = [answer for answer in watcher.loop("codex", 6) if answer is not None]
            assert len(answers) == 2
            assert "nudged: 0, refused: 2, stopped: 0" in watcher.stop()
