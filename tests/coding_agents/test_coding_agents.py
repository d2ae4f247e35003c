"""Real coding agents with a scripted model, observed and steered through their installed hooks.

``make test-coding-agents`` runs these; they download the agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_agents.real_agents import AGENTS, Ran, environment
from support.processes import stopped_in_the_end, wait_until_ready
from support.requirements import missing

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
MODEL = DATA / "coding_agents" / "tools" / "fake_model.py"
TIDEGAUGE = (sys.executable, "-c", "from tidegauge.cli.main import main; main()")
NUDGED, REFUSED = "You make no progress", "This call was not run"
STOPPED, GAVE_UP = "tidegauge stopped this run", "I give up"
STOPPED_BY_A_HOOK = ("gemini", "opencode")
OWN_GUARD = ("gemini", "qwen")
"""Agents that end a run at the fifth identical call."""


@contextlib.contextmanager
def model(scenario: str, folder: Path, *more: str) -> Iterator[tuple[int, Path]]:
    """A scripted model, with more options: its port, and the log of its requests."""
    if not MODEL.exists():
        missing(f"the scripted model is not at {MODEL}; TIDEGAUGE_DATA can name its folder")
    said, log = folder / f"{scenario}.port", folder / f"{scenario}.jsonl"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, MODEL, "--scenario", scenario, "--port", "0", "--log", log, *more],
            stdout=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    with stopped_in_the_end(process):
        wait_until_ready(process, said, lambda: said.read_text().endswith("\n"))
        yield int(said.read_text().split()[-1]), log


@contextlib.contextmanager
def watching(home: Path, runtime: Path, *flags: str) -> Iterator[list[str]]:
    """A watcher that acts; when it has ended, the list has what it printed."""
    log, printed = home / "watch.log", list[str]()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*TIDEGAUGE, "watch", "--act", "--metrics-port", "0", *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(home, runtime) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: "end it with Ctrl-C" in log.read_text())
        yield printed
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
        printed.extend(log.read_text().splitlines())


def session(
    name: str,
    scenario: str,
    folder: Path,
    *flags: str,
    installed: bool,
    watched: bool,
    scripted: tuple[str, ...] = (),
) -> tuple[Ran, list[str]]:
    """A session of an agent in a new home, and what the watcher printed."""
    agent, home, runtime = AGENTS[name], folder / "home", folder / "run"
    runtime.mkdir(parents=True, mode=0o700)
    with model(scenario, folder, *scripted) as (port, log):
        agent.prepare(home, port)
        if installed:
            subprocess.run(
                [*TIDEGAUGE, "hook", "install", agent.hooks, "--yes"],
                env=environment(home, runtime) | {"PYTHONPATH": os.pathsep.join(sys.path)},
                check=True,
            )
        if not watched:
            return agent.run(home, port, log, runtime), []
        with watching(home, runtime, *flags) as printed:
            ran = agent.run(home, port, log, runtime)
        return ran, printed


def acted(name: str, printed: list[str]) -> list[str]:
    """What was done with the agent, and at which steps."""
    own = [line for line in printed if line.startswith(f"{AGENTS[name].hooks} / ")]
    lines = [line.partition(": ")[2] for line in own]
    assert lines, printed
    return [line.partition(":")[0] for line in lines if line.startswith(("nudged", "refused"))]


@pytest.mark.parametrize("name", AGENTS)
def test_a_loop_is_nudged_and_refused(name: str, tmp_path: Path) -> None:
    ran, printed = session(name, "loop", tmp_path, installed=True, watched=True)
    shown = "\n".join([*printed, ran.output])
    assert acted(name, printed)[:2] == ["nudged at step 2", "refused at step 3"], shown
    assert NUDGED in ran.conversation, shown
    assert REFUSED in ran.conversation or name in OWN_GUARD, shown


@pytest.mark.parametrize("name", AGENTS)
def test_a_loop_of_two_steps_is_nudged_and_refused(name: str, tmp_path: Path) -> None:
    ran, printed = session(name, "loop2", tmp_path, installed=True, watched=True)
    shown = "\n".join([*printed, ran.output])
    assert acted(name, printed)[:2] == ["nudged at step 4", "refused at step 6"], shown
    assert "2 steps, repeated once" in shown
    assert NUDGED in ran.conversation, shown
    assert REFUSED in ran.conversation, shown


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_is_stopped(name: str, tmp_path: Path) -> None:
    flags = ("--policy", "loop_repeats=2:stop")
    ran, printed = session(name, "loop", tmp_path, *flags, installed=True, watched=True)
    shown = "\n".join([*printed, ran.output])
    assert any("stopped at step 3" in line for line in printed), shown
    if name in STOPPED_BY_A_HOOK:
        assert GAVE_UP not in ran.output, shown
        assert ran.conversation.count(STOPPED) == 0, "no model was asked again"
    else:
        assert STOPPED in ran.conversation, shown
        assert GAVE_UP in ran.output or name in OWN_GUARD, "the model gives up in the end"


@pytest.mark.parametrize("name", AGENTS)
def test_a_healthy_session_is_untouched(name: str, tmp_path: Path) -> None:
    plain, _ = session(name, "healthy", tmp_path / "plain", installed=False, watched=False)
    record, folder = tmp_path / "runs.jsonl", tmp_path / "watched"
    flags = ("--record-to", str(record))
    ran, printed = session(name, "healthy", folder, *flags, installed=True, watched=True)
    assert (ran.code, len(ran.requests)) == (plain.code, len(plain.requests)), ran.output
    assert NUDGED not in ran.conversation
    assert "1 runs, 6 steps; nudged: 0, refused: 0, stopped: 0" in printed
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    spent = [line.get("tokens") for line in lines if line["type"] == "step"]
    if name in ("codex", "gemini"):  # which write an answer before its calls are run
        assert all(spent), spent
    if name == "copilot":  # which may write it later, if the machine is busy
        assert any(spent), spent


@pytest.mark.parametrize("name", AGENTS)
def test_results_that_change_are_no_loop(name: str, tmp_path: Path) -> None:
    plain, _ = session(name, "progress", tmp_path / "plain", installed=False, watched=False)
    folder = tmp_path / "watched"
    ran, printed = session(name, "progress", folder, installed=True, watched=True)
    assert (ran.code, len(ran.requests)) == (plain.code, len(plain.requests)), ran.output
    assert NUDGED not in ran.conversation
    assert any("steps; nudged: 0, refused: 0, stopped: 0" in line for line in printed), printed


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize(
    ("flags", "left_alone"), [((), True), (("--detect-polls", "off"), False)], ids=["on", "off"]
)
def test_waiting_is_left_alone(
    name: str, flags: tuple[str, ...], left_alone: bool, tmp_path: Path
) -> None:
    looks = ("--command", "sleep 1; tail -1 README.md", "--calls", "4")
    ran, printed = session(
        name, "loop", tmp_path, *flags, installed=True, watched=True, scripted=looks
    )
    assert (NUDGED not in ran.conversation) is left_alone, printed
    untouched = any("steps; nudged: 0, refused: 0, stopped: 0" in line for line in printed)
    assert untouched is left_alone, printed


@pytest.mark.parametrize("name", AGENTS)
def test_without_a_watcher_all_is_as_without_hooks(name: str, tmp_path: Path) -> None:
    plain, _ = session(name, "loop", tmp_path / "plain", installed=False, watched=False)
    ran, _ = session(name, "loop", tmp_path / "hooks", installed=True, watched=False)
    assert (ran.code, len(ran.requests)) == (plain.code, len(plain.requests)), ran.output
    assert NUDGED not in ran.conversation
