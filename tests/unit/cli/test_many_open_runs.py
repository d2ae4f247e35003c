"""Recorded runs without an end are packed, and every command says what it says without that."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.wire_runs import WireRun
from tidegauge.cli.replay import RecordedRuns
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import packed_runs

MANY = 40
TIME = re.compile(rb'"learned": "[^"]+"')


def interleaved() -> Iterator[dict[str, Any]]:
    """Runs whose lines come in any order; some begin again, some have no end."""
    draw = random.Random(7)
    waiting: list[list[dict[str, Any]]] = []
    for number in range(MANY):
        events = list(WireRun(number).events())
        events[-1]["success"] = number % 2 == 0
        if number % 3 == 0:
            events.pop()
        if number % 7 == 0:
            events += WireRun(number).events()
        if number % 5 == 0:  # other metrics: places, tasks and entities
            for n, event in enumerate(events):
                if event["type"] == "step":
                    event |= {"place": [n % 4], "exits": [[0], [1], [2]], "entropy": n / 9}
        waiting.append(events)
    while waiting:
        events = draw.choice(waiting)
        yield events.pop(0)
        if not events:
            waiting.remove(events)


COMMANDS = [
    ("replay", "--json", "--steps-out", "out"),
    ("replay", "--json", "--policy", "loop_repeats=1,failed_rounds=2", "--steps-out", "out"),
    ("replay",),
    ("select", "loop_ratio > 0.1"),
    ("export", "--format", "csv", "-o", "out"),
    ("backtest", "--json", "--score", "stagnation", "--guard", "stuck", "--repeats", "20"),
    ("backtest", "--json", "--other-guard", "openhands", "--repeats", "20"),
    ("learn", "-o", "out"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("at_hand", [1, 5])
def test_what_is_packed_goes_on_as_it_was(
    tidegauge: Any,
    write: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    at_hand: int,
) -> None:
    write(*interleaved())

    def ran() -> Any:
        name, *rest = command
        files = ("--where", *rest, "runs.jsonl") if name == "select" else (*rest, "runs.jsonl")
        done = tidegauge(name, *files)
        assert (done.code, "place is" in done.err) == (0, False), done.err
        out = tmp_path / "out"
        paths = sorted(out.iterdir()) if out.is_dir() else [out] if out.exists() else []
        return done, {path.name: TIME.sub(b"", path.read_bytes()) for path in paths}

    expected = ran()
    packed = []
    pack = packed_runs.PackedEngine._pack

    def counted(runs: packed_runs.PackedEngine, run: str) -> None:
        packed.append(run)
        pack(runs, run)

    monkeypatch.setattr(packed_runs.PackedEngine, "_pack", counted)
    monkeypatch.setattr(packed_runs, "MAX_OPEN", at_hand)
    assert ran() == expected
    assert len(packed) > MANY


def test_open_runs_at_hand_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_runs, "MAX_OPEN", 50)
    runs = RecordedRuns(Policy())
    for number in range(1_000):
        name = f"r{number}"
        runs.run_started(RunStarted(run=name, agent="a"))
        for step in range(3):
            runs.step_issued(Step(name, (Call("look", step),)))
            runs.step_observed(Outcome(name, (CallResult(f"{number} {step}"),)))
    assert len(runs.engine.held().runs) == 50
    sizes = [len(state) for state in runs.engine._packed.values()]
    assert len(sizes) == 950
    assert sum(sizes) / len(sizes) < 600
    assert [report.steps for report in runs.reports()] == [3] * 1_000
    (group,) = runs.groups().values()
    assert (group.runs_started, group.totals.steps) == (1_000, 3_000)
