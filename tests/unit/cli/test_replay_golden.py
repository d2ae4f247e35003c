"""Every golden line through the classes and through ``tidegauge replay``."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from tidegauge.streaming_metrics import (
    AUV,
    FinishedRun,
    IssuedStep,
    ObservedStep,
    ProgressAUV,
    TideLoops,
)

GOLDEN = Path(__file__).parents[2] / "golden"


def golden(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (GOLDEN / name).read_bytes().splitlines()]


def expected_progress_auv(case: dict[str, Any]) -> Any:
    """What was never reported is not measured; the batch computation has 0 for it."""
    if not case["progress"]:
        assert case["progress_auv"] == 0
        return None
    return pytest.approx(case["progress_auv"], abs=1e-12)


LOOPS = golden("loops.jsonl")
LIVE_LOOPS = golden("live_loops.jsonl")
AUVS = golden("auv.jsonl")


def test_loops_step_by_step() -> None:
    assert len(LOOPS) == 400
    for case in LOOPS:
        loops = TideLoops()
        flags: list[int] = []
        pairs = zip(case["states"], case["actions"], strict=True)
        for t, (state, action) in enumerate(pairs):
            loops.update(IssuedStep(t, state.encode(), action.encode()))
            flags.append(0)
            flags[len(flags) - loops.settled :] = [1] * loops.settled
        assert flags == case["loop"]
        assert loops.loop_steps == sum(case["loop"])


def test_auv_and_progress_auv() -> None:
    assert len(AUVS) == 200
    for case in AUVS:
        auv, progress_auv = AUV(), ProgressAUV(t_max=case["t_max"])
        for turn in case["success_turns"]:
            auv.update(FinishedRun(success=turn is not None, steps=turn or 9, t_max=case["t_max"]))
        for t, progress in enumerate(case["progress"]):
            progress_auv.update(ObservedStep(t, progress=progress))
        assert auv.value == pytest.approx(case["auv"], abs=1e-12)
        assert progress_auv.value == expected_progress_auv(case)


def test_loops_replayed(tidegauge, write, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number, case in enumerate(LOOPS):
        run = f"run {number}"
        events.append({"type": "start", "run": run})
        for state, action in zip(case["states"], case["actions"], strict=True):
            events.append({"type": "step", "run": run, "state": state, "action": action})
        events.append({"type": "end", "run": run, "success": None})
    ran = tidegauge("replay", "--json", "--steps-out", "steps.jsonl", write(*events))
    flags: dict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "steps.jsonl").read_bytes().splitlines():
        step = orjson.loads(line)
        assert step["t"] == len(flags[step["run"]])
        flags[step["run"]].append(int(step["tide_loop"]))
    assert list(flags.values()) == [case["loop"] for case in LOOPS]
    for run, case in zip(ran.document["runs"], LOOPS, strict=True):
        assert run["steps"] == len(case["loop"])
        assert run["tide_loop_steps"] == sum(case["loop"])


def test_live_loops_replayed(tidegauge, write, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number, case in enumerate(LIVE_LOOPS):
        run = f"run {number}"
        events.append({"type": "start", "run": run})
        for t, (state, action) in enumerate(zip(case["states"], case["actions"], strict=True)):
            known = f"unknown {t}" if state is None else state
            events.append({"type": "step", "run": run, "state": known, "action": action})
        events.append({"type": "end", "run": run, "success": None})
    ran = tidegauge("replay", "--json", "--steps-out", "steps.jsonl", write(*events))
    flags: dict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "steps.jsonl").read_bytes().splitlines():
        step = orjson.loads(line)
        assert step["t"] == len(flags[step["run"]])
        flags[step["run"]].append(int(step["loop"]))
    assert list(flags.values()) == [case["loop"] for case in LIVE_LOOPS]
    assert [run["loops"] for run in ran.document["runs"]] == [case["loops"] for case in LIVE_LOOPS]


@pytest.mark.slow
def test_auv_replayed(tidegauge, write) -> None:
    events: list[dict[str, Any]] = []
    for number, case in enumerate(AUVS):
        group = {"task_group": f"group {number}", "t_max": case["t_max"]}
        for run, turn in enumerate(case["success_turns"]):
            name = f"{number}/{run}"
            events.append({"type": "start", "run": name, **group})
            events += [{"type": "step", "run": name, "action": "go"}] * (turn or 3)
            events.append({"type": "end", "run": name, "success": turn is not None})
        name = f"{number}/progress"
        events.append({"type": "start", "run": name, "t_max": case["t_max"]})
        for progress in case["progress"]:
            events.append({"type": "step", "run": name, "action": "go", "progress": progress})
    document = tidegauge("replay", "--json", write(*events)).document
    auvs = {group["task_group"]: group["auv"] for group in document["groups"]}
    progress_auvs = {run["run"]: run["progress_auv"] for run in document["runs"]}
    for number, case in enumerate(AUVS):
        assert auvs[f"group {number}"] == pytest.approx(case["auv"], abs=1e-12)
        progress_auv = progress_auvs[f"{number}/progress"]
        assert progress_auv == expected_progress_auv(case)


EXPLORE = golden("explore.jsonl")


def seen_at(case: dict[str, Any], place: list[int]) -> dict[str, Any]:
    """What an agent learns of a cell when it stands there."""
    return {
        "place": place,
        "exits": case["exits"][",".join(map(str, place))],
        "tasks": [
            {"id": name, "requires": task["requires"]}
            for name, task in case["tasks"].items()
            if task["at"] == place
        ],
    }


def test_exploration_replayed(tidegauge, write, tmp_path: Path) -> None:
    assert len(EXPLORE) == 200
    events: list[dict[str, Any]] = []
    for number, case in enumerate(EXPLORE):
        run = f"run {number}"
        start = {"type": "start", "run": run, "goal": case["goal"]}
        events.append(start | seen_at(case, case["start"]))
        for step in case["steps"]:
            move = {"type": "step", "run": run, "action": "move", "args": {"to": step["to"]}}
            events.append(move | seen_at(case, step["to"]))
    ran = tidegauge("replay", "--json", "--steps-out", "steps.jsonl", write(*events))
    reported: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (tmp_path / "steps.jsonl").read_bytes().splitlines():
        step = orjson.loads(line)
        reported[step.pop("run")].append(step)
    for run, case, steps in zip(ran.document["runs"], EXPLORE, reported.values(), strict=True):
        for seen, expected in zip(steps, case["steps"], strict=True):
            assert {key: seen[key] for key in expected if key != "to"} == {
                key: value for key, value in expected.items() if key != "to"
            }
        for rate in ("exploration_error", "exploitation_error"):
            assert run[rate] == pytest.approx(case[rate], abs=1e-12)
        last = case["steps"][-1]
        assert (run["frontier"], run["pending"]) == (last["frontier"], last["pending"])
        assert run["stale_score_max"] == max(step["stale"] for step in case["steps"])
        assert run["errors"]["exploration"] == sum(s["exploration_error"] for s in case["steps"])
