"""The document world: reproducible, solvable, fair judge; and its scripts' ways of working."""

from __future__ import annotations

import random

import pytest

from tidegauge.events import CallResult, Outcome, RunStarted, Step
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.snapshot import RunReport
from tidegauge.worlds import SCRIPTS, Desk, DocumentWorld, ScriptMaker, ToolFailed, play

SEEDS = range(20)


def measured(maker: ScriptMaker, *, seed: int = 1, task: int = 1) -> tuple[Desk, RunReport]:
    """A script's run through the engine."""
    world = DocumentWorld(seed)
    desk = Desk(world, world.tasks[task])
    engine = Engine()
    engine.run_started(RunStarted(run="r", task=desk.task.question))
    for call, seen, failed in play(maker(desk.task, random.Random(seed)), desk):
        engine.step_issued(Step(run="r", calls=(call,)))
        engine.step_observed(Outcome(run="r", results=(CallResult(seen, failed),)))
    run = engine.get("r")
    assert run is not None
    return desk, run.report()


class TestTheWorld:
    def test_is_the_same_for_the_same_seed(self) -> None:
        assert DocumentWorld(3).documents == DocumentWorld(3).documents
        assert DocumentWorld(3).tasks == DocumentWorld(3).tasks
        assert DocumentWorld(3).documents != DocumentWorld(4).documents

    @pytest.mark.parametrize("seed", SEEDS)
    def test_has_no_dead_links(self, seed: int) -> None:
        documents = DocumentWorld(seed).documents
        for document in documents.values():
            assert set(document.links.values()) <= set(documents)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_gives_every_answer_to_a_reader_who_follows_the_links(self, seed: int) -> None:
        world = DocumentWorld(seed)
        assert {len(task.path) for task in world.tasks} == {0, 1, 2}
        for task in world.tasks:
            page = Desk(world, task).search(task.station).partition(" | ")[0]
            for link in task.path:
                assert f"{link}: -> " in world.documents[page].render()
                page = world.documents[page].links[link]
            assert f"{task.fact}: {task.answer}" in world.documents[page].render()


class TestTheDesk:
    world = DocumentWorld(1)

    def test_judges_the_answer_submitted_last(self) -> None:
        desk = Desk(self.world, self.world.tasks[0])
        assert not desk.solved
        desk.submit("no idea")
        assert not desk.solved
        desk.submit(f" {desk.task.answer}\n")
        assert desk.solved
        desk.submit("on second thoughts, no")
        assert not desk.solved

    def test_reads_what_it_lists(self) -> None:
        desk = Desk(self.world, self.world.tasks[0])
        for document_id in desk.list_documents().splitlines():
            assert f"({document_id})" in desk.read_document(document_id)

    def test_finds_a_station_first_by_its_name(self) -> None:
        desk = Desk(self.world, self.world.tasks[0])
        assert desk.search("Fenholm").splitlines()[0] == "station/fenholm | Fenholm"
        assert desk.search("of") == desk.search("zeppelin") == "nothing found"

    def test_fails_in_words(self) -> None:
        desk = Desk(self.world, self.world.tasks[0])
        with pytest.raises(ToolFailed, match="no document 'station/atlantis'"):
            desk.read_document("station/atlantis")
        failures = set()
        for record in ("a", "b"):
            with pytest.raises(ToolFailed) as failed:
                desk.fetch_record(record)
            failures.add(str(failed.value))
        assert len(failures) == 1, "one failure, whatever was asked for"


class TestTheScripts:
    @pytest.mark.parametrize("task", range(4))
    @pytest.mark.parametrize("seed", SEEDS)
    def test_solver_solves_in_as_few_steps_as_there_are(self, seed: int, task: int) -> None:
        desk, report = measured(SCRIPTS["solver"], seed=seed, task=task)
        assert desk.solved
        assert report.steps == len(desk.task.path) + 3  # search, the pages, submit
        assert (report.loop_steps, report.novelty) == (0, 1.0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_looper_repeats_three_steps_to_the_end(self, seed: int) -> None:
        desk, report = measured(SCRIPTS["looper"], seed=seed)
        assert not desk.solved
        assert (report.steps, report.loops) == (24, [(4, 3, 6, 20)])
        # all steps from the first repeated one on
        assert report.loop_cost_steps == 20

    @pytest.mark.parametrize("seed", SEEDS)
    def test_retrier_fails_eight_times_in_other_words(self, seed: int) -> None:
        desk, report = measured(SCRIPTS["retrier"], seed=seed)
        assert desk.solved, "in the end it reads what it had at hand"
        assert (report.result_streak_max, report.failed_rounds_max) == (8, 8)
        assert report.loop_steps == 0, "no call is repeated"

    @pytest.mark.parametrize("seed", SEEDS)
    def test_wanderer_learns_less_and_less(self, seed: int) -> None:
        _, report = measured(SCRIPTS["wanderer"], seed=seed)
        assert report.steps == 24
        assert report.novelty is not None
        assert report.novelty <= 0.5

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_the_same_draw_gives_the_same_calls(self, name: str) -> None:
        world = DocumentWorld(1)

        def calls(draw: int) -> list[object]:
            desk = Desk(world, world.tasks[1])
            script = SCRIPTS[name](desk.task, random.Random(draw))
            return [call for call, _, _ in play(script, desk)]

        assert calls(5) == calls(5)
