"""Real agents' recorded runs through ``tidegauge replay``: all of them, and the loops in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from click.testing import CliRunner

import tidegauge
from tidegauge.cli.main import cli
from tidegauge.cli.replay import RecordedRuns
from tidegauge.errors import RunStopped
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, Signals
from tidegauge.policies import DEFAULT_RULES, Policy, parse_rules
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.recordings.step_events import RecordedStep, StepEvent, parse_line
from tidegauge.streaming_metrics import AUV, LoopRatio, RunReport, SuccessRate
from tidegauge.testing import capture

ROOT = Path(__file__).parents[2]
FILES = {
    # runs, steps, solved runs / runs of which it is known
    "intercode_bash": (1542, 9777, 0.30),
    "react_webshop": (500, 3437, 0.36),
    "reflexion_hotpotqa": (426, 1816, 0.15),
    "taubench_airline": (200, 2454, 0.42),
    "adapt_alfworld": (128, 2098, 0.84),
    "sweagent": (26, 315, 2 / 3),
}


def path(recorded_runs: Path, name: str) -> Path:
    return recorded_runs / f"{name}.events.jsonl"


@pytest.mark.slow
def test_every_run_of_every_file(recorded_runs: Path, tmp_path: Path) -> None:
    files = [str(path(recorded_runs, name)) for name in FILES]
    ran = CliRunner().invoke(
        cli, ["replay", "--json", "--strict", *files, "--steps-out", str(tmp_path / "steps.jsonl")]
    )
    assert (ran.exit_code, ran.stderr) == (0, "")
    document = json.loads(ran.stdout)
    assert document["skipped_lines"] == 0
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES}
    for run in document["runs"]:
        runs[run["task_group"]].append(run)
    for name, (count, steps, solved) in FILES.items():
        known = [run["success"] for run in runs[name] if run["success"] is not None]
        assert len(runs[name]) == count
        assert sum(run["steps"] for run in runs[name]) == steps
        assert sum(known) / len(known) == pytest.approx(solved, abs=0.006)
        assert all(run["finished"] for run in runs[name])
    assert sum(group["runs"] for group in document["groups"]) == 2822
    lines = [orjson.loads(line) for line in (tmp_path / "steps.jsonl").read_bytes().splitlines()]
    assert len(lines) == 19897
    assert sum(line["loop"] for line in lines) == sum(run["loop_steps"] for run in document["runs"])


@pytest.mark.slow
def test_a_table_of_every_file(recorded_runs: Path) -> None:
    ran = CliRunner().invoke(cli, ["replay", *(str(path(recorded_runs, name)) for name in FILES)])
    assert ran.exit_code == 0
    *table, total = ran.stdout.splitlines()
    assert len(table) == 1 + 16  # groups of agents, distinguished by task group
    assert total == "2822 runs, 0 of them unfinished; 19897 steps; 0 lines skipped"


class Watched(RecordedRuns):
    """Keeps the signals after every step, too."""

    def __init__(self) -> None:
        super().__init__(Policy(()))
        self.signals: dict[str, list[Signals]] = {}

    def step_observed(self, event: Outcome) -> Decision:
        decision = super().step_observed(event)
        run = self.engine.get(event.run)
        assert run is not None
        self.signals.setdefault(event.run, []).append(run.signals())
        return decision


class Stretch(NamedTuple):
    """A stretch of a run that was read by hand."""

    run: str
    start: int
    end: int
    kind: str
    exact: bool


@pytest.fixture(scope="module")
def stretches(recorded_runs: Path) -> list[Stretch]:
    labels = map(orjson.loads, (recorded_runs / "loop_labels.jsonl").read_bytes().splitlines())
    return [
        Stretch(
            label["run"], label["start"], label["end"], label["kind"], label["exact_result_match"]
        )
        for label in labels
    ]


class Found:
    """What the metrics say of labelled stretches, with some actions left out."""

    def __init__(self, folder: Path, *ignore_actions: str) -> None:
        self.watched = Watched()
        self.kept: dict[str, list[int]] = {}  # step numbers of the recording, by run
        replay = Replay(self.watched, ignore_actions=ignore_actions)
        for name in FILES:
            with path(folder, name).open("rb") as stream:
                for line in read_lines(stream):
                    replay.take(line, name)
            for run, steps in events_by_run(folder, name):
                reported = [step for step in steps if isinstance(step, RecordedStep)]
                self.kept[run] = [
                    t
                    for t, step in enumerate(reported)
                    if step.issued.calls[0].action not in ignore_actions
                ]
        self.reports = {report.run: report for report in self.watched.reports()}

    def by(self, stretch: Stretch) -> set[str]:
        """Names of the metrics that see the stretch repeat."""
        kept = self.kept[stretch.run]
        inside = {n for n, t in enumerate(kept) if stretch.start <= t <= stretch.end}
        signals = [self.watched.signals[stretch.run][n] for n in inside]
        seen = set()
        for first_step, period, repeats, _ in self.reports[stretch.run].loops:
            if inside & set(range(first_step, first_step + period * repeats)):
                seen.add("loop")
        if max(signal.result_streak or 0 for signal in signals) >= 3:
            seen.add("streak")
        if any(signal.recurrence for signal in signals):
            seen.add("recurrence")
        return seen


@pytest.fixture(scope="module")
def found(recorded_runs: Path) -> Found:
    return Found(recorded_runs)


EVERYTHING = {"loop", "streak", "recurrence"}
TRUE_LOOPS = {  # docs/loops-in-recorded-runs.md says why
    "react_webshop/fixed_31": EVERYTHING,
    "react_webshop/fixed_147": EVERYTHING,
    "reflexion_hotpotqa/base-t1-0101": EVERYTHING,
    "reflexion_hotpotqa/reflexion-t2-0179": {"recurrence"},
    "intercode_bash/ic_bash_multiturn_chat-bison-001_10_turns_fs_1-1": {"recurrence"},
    "intercode_bash/ic_bash_multiturn_chat-bison-001_10_turns_fs_1-15": EVERYTHING,
    "taubench_airline/gpt4o-airline-task9-trial2": EVERYTHING,
    "taubench_airline/gpt4o-airline-task13-trial0": {"recurrence"},
}


@pytest.mark.slow
def test_every_true_loop_is_found(stretches: list[Stretch], found: Found) -> None:
    loops = [stretch for stretch in stretches if stretch.kind == "true_loop"]
    assert {stretch.run: found.by(stretch) for stretch in loops} == TRUE_LOOPS
    assert sum(stretch.exact for stretch in loops) == 7


@pytest.mark.slow
def test_a_repeat_with_a_reason_is_no_loop(stretches: list[Stretch], found: Found) -> None:
    legitimate = [stretch for stretch in stretches if stretch.kind == "legit_repeat"]
    assert len(legitimate) == 3
    for stretch in legitimate:
        assert "loop" not in found.by(stretch)


@pytest.mark.slow
def test_thoughts_that_are_left_out_change_nothing(
    stretches: list[Stretch], found: Found, recorded_runs: Path
) -> None:
    without = Found(recorded_runs, "think")
    for stretch in stretches:
        assert without.by(stretch) == found.by(stretch)


def printed(module: str, *arguments: object) -> str:
    """The output of a script of the repository."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_tables_of_the_docs_are_those_of_the_signals(recorded_runs: Path) -> None:
    conditions, near_loops = (
        printed("benchmarks", "recorded_signals", recorded_runs).strip().split("\n\n")
    )
    assert conditions in (ROOT / "docs" / "stop-rules-measured.md").read_text()
    assert near_loops in (ROOT / "docs" / "loops-in-recorded-runs.md").read_text()
    shares: dict[str, dict[float, float]] = {}
    for row in conditions.splitlines()[2:]:
        signal, threshold, touched = [cell.strip(" `") for cell in row.split("|")][1:4]
        count, runs = touched.split(" (")[0].split(" of ")
        shares.setdefault(signal, {})[float(threshold)] = int(count) / int(runs)
    # Recordings have no answers without calls; duplicates in a step are only counted.
    unmeasured = {"turn_loop_evidence", "duplicate_calls"}
    for rule in [rule for rule in DEFAULT_RULES if rule.signal not in unmeasured]:
        assert shares[rule.signal][rule.threshold] < 0.004
    assert shares["repetition_recent"][8] < 0.004  # what docs/metrics/repetition.md says of it


@pytest.mark.slow
def test_the_picture_of_near_loops_is_that_of_the_runs(recorded_runs: Path) -> None:
    picture = (ROOT / "docs" / "images" / "near-loops.svg").read_text()
    assert printed("docs.images.near_loops", recorded_runs, "-") == picture


def events_by_run(folder: Path, name: str) -> Iterator[tuple[str, list[StepEvent]]]:
    """The runs of a file, which come one after the other."""
    events: list[StepEvent] = []
    for line in path(folder, name).read_bytes().splitlines():
        events.append(parse_line(line))
        if isinstance(events[-1], RunEnded):
            yield events[-1].run, events
            events = []


def lived(events: list[StepEvent], engine: Any) -> RunReport:
    """Live through a recorded run with the calls that a user's agent makes."""
    start, *steps, end = events
    assert isinstance(start, RunStarted)
    assert isinstance(end, RunEnded)
    report = None
    keys = ("agent", "task", "task_group", "t_max")
    fields = {key: getattr(start, key) for key in keys}
    try:
        with tidegauge.run(run_id=start.run, **fields) as run:
            try:
                for step in steps:
                    assert isinstance(step, RecordedStep)
                    run.act_round([call[:2] for call in step.issued.calls], state=step.issued.state)
                    run.observe_round(step.observed.results, progress=step.observed.progress)
            finally:
                report = engine.get(start.run).report()
            run.finish(success=end.success)
    except RunStopped:
        pass
    assert report is not None
    return report


def comparable(reports: Iterable[RunReport]) -> list[dict[str, Any]]:
    """Reports without what only a live run has: its trace, calls that are refused, and seconds."""
    times = ("loop_since", "loop_cost_seconds", "lost_seconds")
    unlike = ("trace_id", "finished", "success", "outcome", "refused_calls", *times)
    return [{k: v for k, v in report.as_dict().items() if k not in unlike} for report in reports]


@pytest.mark.parametrize(
    ("policy", "stopped"), [("loop_repeats=1000", 0), ("loop_repeats=2,failed_rounds=4", 152)]
)
def test_a_replayed_run_has_the_live_runs_numbers(
    recorded_runs: Path, policy: str, stopped: int
) -> None:
    recorded = [
        events
        for _, events in events_by_run(recorded_runs, "intercode_bash")
        if events[0].agent == "text-bison-001"  # type: ignore[union-attr]
    ]
    rules = parse_rules(policy)
    with capture(rules=rules) as seen:
        engine = seen.pipeline.engine
        live = [lived(events, engine) for events in recorded]
        (live_group,) = engine.snapshot().groups
    replayed = RecordedRuns(Policy(rules))
    replay = Replay(replayed)
    wanted = {report.run for report in live}
    with path(recorded_runs, "intercode_bash").open("rb") as stream:
        for line in read_lines(stream):
            assert line.content is not None
            if orjson.loads(line.content)["run"] in wanted:
                replay.take(line, "")
    assert comparable(replayed.reports()) == comparable(live)
    assert len(live) == 200
    assert sum(report.intervention == "stop" for report in live) == stopped
    (group,) = replayed.groups().values()
    assert group.key == live_group.key
    assert group.finished.finished == live_group.finished.finished
    assert group.finished.of(AUV).state() == live_group.finished.of(AUV).state()
    assert group.finished.of(SuccessRate).value == live_group.finished.of(SuccessRate).value
    assert group.finished.of(LoopRatio).value == live_group.finished.of(LoopRatio).value
    assert group.totals.loop_steps == live_group.totals.loop_steps
    assert group.totals.onsets == live_group.totals.onsets
    assert group.totals.interventions == live_group.totals.interventions
