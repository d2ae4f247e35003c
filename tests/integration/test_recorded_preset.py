"""What the docs say of the preset, over recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.preset import CANDIDATES, PRESET, Stop, StudiedRun, studied, table, totals

from tidegauge.events import RunEnded, RunSummary
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, guard_rules
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.normalise import volatile

pytestmark = pytest.mark.slow

STOP_RULES = Path(__file__).parents[2] / "docs" / "stop-rules-measured.md"


@pytest.fixture(scope="module")
def runs(recorded_runs: Path) -> list[StudiedRun]:
    return studied([recorded_runs])


def test_the_table_of_the_docs_is_what_the_rules_do(runs: list[StudiedRun]) -> None:
    assert table(runs) in STOP_RULES.read_text()


def test_few_successful_runs_are_stopped_and_many_others(
    runs: list[StudiedRun], recorded_runs: Path
) -> None:
    for compared in (runs, studied([recorded_runs], exact=True)):
        found = totals(compared)
        repeats, preset = found[next(iter(CANDIDATES))], found[PRESET]
        assert (preset.good, preset.others) == (899, 1923)
        assert repeats.good_stopped <= 2
        assert repeats.others_stopped >= 385
        assert preset.good_stopped <= 5
        assert preset.others_stopped >= 500


def test_the_live_policy_stops_them_there(runs: list[StudiedRun], recorded_runs: Path) -> None:
    engine = Engine(clock=None, max_runs=10_000, normaliser=volatile())
    stopped: dict[str, Stop] = {}

    class Sink(EngineSink):
        def run_ended(self, event: RunEnded) -> RunSummary | None:
            run = engine.get(event.run)
            if event.outcome == "stopped":
                stopped[event.run] = Stop(event.reason, run.completed_steps)
            return super().run_ended(event)

    replay = Replay(Sink(engine, Policy(guard_rules("stuck"))))
    with (recorded_runs / "intercode_bash.events.jsonl").open("rb") as stream:
        for line in read_lines(stream):
            replay.take(line, "intercode_bash")
    assert stopped == {
        run.started.run: run.stops[PRESET]
        for run in runs
        if run.started.task_group == "intercode_bash" and PRESET in run.stops
    }
    assert stopped
