"""Guards of other projects, as tidegauge has them, do what the originals do.

The originals are downloaded: LoopBrake and OpenHands' software-agent-sdk from PyPI, the core of
Gemini CLI from npm. Of the last two only the detector is run, on events with what it reads of them.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support.requirements import missing
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS, GuardedCall

PLACE = Path(__file__).parents[2] / ".venv-frameworks" / "guards"
PYTHON_PACKAGES = {"loopbrake": "loopbrake==0.6.0", "openhands": "openhands-sdk==1.58.2"}
GEMINI_CORE = "@google/gemini-cli-core@0.61.0"


def installed(name: str) -> Path:
    """The folder of a package from PyPI, without what it depends on."""
    place = PLACE / name
    if not place.exists():
        python = PLACE / "pip" / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", PLACE / "pip"], check=True)
        asked = ["--quiet", "--no-deps", "--ignore-requires-python"]
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            *asked,
            "--target",
            str(place),
            PYTHON_PACKAGES[name],
        ]
        subprocess.run(command, check=True)
    return place


def loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up() -> Iterator[list[GuardedCall]]:
    """Runs that repeat often: single calls, cycles, errors."""
    chance = random.Random(7)
    for _ in range(400):
        run: list[GuardedCall] = []
        while len(run) < chance.randrange(1, 40):
            cycle = [
                GuardedCall(
                    chance.choice(["read", "write"]),
                    json.dumps({"file": f"part {chance.randrange(2)}.txt"}),
                    chance.choice(["line 1\nline 2", "no such file: 12", "line 3", "", "Error: 7"]),
                    chance.choice([True, False, None]),
                )
                for _ in range(chance.randrange(1, 7))
            ]
            for _ in range(chance.randrange(1, 7)):
                run += cycle
                if chance.random() < 0.2:
                    run[-1] = run[-1]._replace(result=f"line {chance.randrange(3)}")
        yield run


RUNS = list(made_up())


def fires(name: str, run: Sequence[GuardedCall]) -> list[bool]:
    return [value > 0 for value in FOREIGN_GUARDS[name].read(run)]


@pytest.fixture(scope="module")
def loopbrake() -> Any:
    return loaded("loopbrake_signals", installed("loopbrake") / "loopbrake" / "signals.py")


@pytest.mark.parametrize("name", [name for name in FOREIGN_GUARDS if name.startswith("loopbrake")])
def test_loopbrake(name: str, loopbrake: Any) -> None:
    kind = name.removeprefix("loopbrake_")
    original = loopbrake.method(kind, None if kind in ("fixed", "exact") else 0.9)
    seen = set()
    for run in RUNS:
        steps = [loopbrake.Step(call.action, call.result or "", call.error, 0) for call in run]
        scores = [score for score, _ in original(steps)]
        own = FOREIGN_GUARDS[name].read(run)
        if kind == "fixed":
            assert [value > 0 for value in own] == [score >= 1 for score in scores]
        else:
            assert own == pytest.approx(scores)
        seen.update(own)
    assert len(seen) > 1


def openhands_detector() -> tuple[type[Any], ModuleType]:
    """Its detector, with the few types that it distinguishes."""
    kinds = ("ActionEvent", "ObservationBaseEvent", "MessageEvent", "CondensationSummaryEvent")
    events = ModuleType("openhands.sdk.event")
    for kind in kinds:
        setattr(events, kind, type(kind, (SimpleNamespace,), {}))
    events.Event = SimpleNamespace  # type: ignore[attr-defined]
    for kind in ("ObservationEvent", "AgentErrorEvent"):
        setattr(events, kind, type(kind, (events.ObservationBaseEvent,), {}))
    logger = SimpleNamespace(debug=lambda text: None, warning=lambda text: None)
    parts = {
        "openhands.sdk.event": events,
        "openhands.sdk.logger": SimpleNamespace(get_logger=lambda name: logger),
        "openhands.sdk.conversation.state": SimpleNamespace(ConversationState=object),
        "openhands.sdk.conversation.types": SimpleNamespace(StuckDetectionThresholds=object),
    }
    source = installed("openhands") / "openhands" / "sdk" / "conversation"
    with pytest.MonkeyPatch.context() as patch:
        for name, part in parts.items():
            patch.setitem(sys.modules, name, part)
        detector = loaded("stuck_detector", source / "stuck_detector.py").StuckDetector
    return detector, events


def thresholds() -> dict[str, int]:
    """The defaults, as its source has them."""
    path = installed("openhands") / "openhands" / "sdk" / "conversation" / "types.py"
    [body] = re.findall(r"class StuckDetectionThresholds.*?(?=\nclass |\Z)", path.read_text(), re.S)
    found = re.findall(r"(\w+): int = Field\(\s*default=(\d+)", body)
    return {name: int(value) for name, value in found}


def test_openhands() -> None:
    detector, events = openhands_detector()
    limits = SimpleNamespace(**thresholds())
    seen = set()
    for run in RUNS:
        happened: list[Any] = []
        stuck = []
        for call in run:
            of = {"source": "agent", "tool_name": call.name}
            happened.append(events.ActionEvent(**of, thought=[], action=call.arguments))
            if call.error:
                happened.append(events.AgentErrorEvent(source="agent", error=call.result))
            else:
                happened.append(events.ObservationEvent(**of, observation=call.result))
            state = SimpleNamespace(active_branch=lambda limit, all=happened: all[-limit:])
            stuck.append(detector(state, limits).is_stuck())
        # it does not distinguish success that is known from success that is not
        known = [call._replace(error=bool(call.error)) for call in run]
        assert fires("openhands", known) == stuck
        seen.update(stuck)
    assert seen == {True, False}


PROGRAM = """
import {{ createHash }} from 'node:crypto';
const GeminiEventType = {{ ToolCallRequest: 'call', Content: 'content' }};
const LoopType = {{}};
class LoopDetectedEvent {{}}
const logLoopDetected = () => {{}};
{source}
const config = {{ getDisableLoopDetection: () => false }};
let text = '';
for await (const chunk of process.stdin) text += chunk;
console.log(JSON.stringify(JSON.parse(text).map((run) => {{
  const service = new LoopDetectionService({{ config }});
  return run.map((value) => service.addAndCheck({{ type: 'call', value }}).count > 0);
}})));
"""


@pytest.fixture(scope="module")
def gemini_cli() -> Callable[[list[list[GuardedCall]]], list[list[bool]]]:
    if shutil.which("npm") is None:
        missing("npm is not installed")
    place = PLACE / "gemini_cli"
    program = place / "program.mjs"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", GEMINI_CORE], cwd=place, check=True)
        [archive] = place.glob("*.tgz")
        subprocess.run(["tar", "xzf", archive.name], cwd=place, check=True)
        [service] = place.rglob("loopDetectionService.js")
        source = re.sub(r"^import .*?;$", "", service.read_text(), flags=re.M | re.S)
        program.write_text(PROGRAM.format(source=source))

    def run(runs: list[list[GuardedCall]]) -> list[list[bool]]:
        calls = [
            [{"name": call.name, "args": json.loads(call.arguments)} for call in run]
            for run in runs
        ]
        asked = {"input": json.dumps(calls), "capture_output": True, "text": True}
        done = subprocess.run(["node", str(program)], check=True, **asked)
        found: list[list[bool]] = json.loads(done.stdout)
        return found

    return run


def test_gemini_cli(gemini_cli: Callable[[list[list[GuardedCall]]], list[list[bool]]]) -> None:
    seen = set()
    for run, looping in zip(RUNS, gemini_cli(RUNS), strict=True):
        own = fires("gemini_cli", run)
        # once it has seen a loop, it says so until it is reset
        assert [any(own[: end + 1]) for end in range(len(own))] == looping
        seen.update(looping)
    assert seen == {True, False}
