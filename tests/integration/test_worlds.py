"""The worlds through the metrics: what is known of an agent beforehand is what is measured."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple, Unpack

import pytest

import tidegauge
from support.drawn_grid import drawn
from tidegauge import testing
from tidegauge.events import Task
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import (
    Engine,
    FailedRounds,
    FinishedRun,
    ObservedStep,
    RunReport,
)
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.worlds import (
    GRID_AGENTS,
    LORE_AGENTS,
    GridAgent,
    GridWorld,
    LoreAgent,
    LoreTask,
    Recording,
    Start,
    StepResult,
    TaskGraph,
    code_task,
    document_task,
)
from tidegauge.worlds.grid import distances, explorer, optimal, oscillator, wanderer

SEEDS = range(100)
MAPS: list[dict[str, Any]] = [
    {"density": 0.4},
    {"density": 0.25, "corridor_widths": (1, 3)},
    {"density": 0.1, "corridor_widths": (2, 3)},
]


class Verdict(NamedTuple):
    """What was said of one step."""

    case: int | None
    gain: bool | None
    progress: bool
    error: bool | None
    stale: int | None


class Judged:
    """Feeds the exploration metric by hand, step by step, and keeps what it says."""

    def __init__(self, start: Start) -> None:
        keys = ("place", "exits", "tasks", "goal", "reach")
        fields: dict[str, Any] = {key: value for key, value in start.items() if key in keys}
        self.exploration = Exploration(**fields)
        self.failed_rounds = FailedRounds()
        self.verdicts: list[Verdict] = []

    def act(self, action: str, arguments: object = None) -> None: ...

    def observe(self, outcome: object = None, **result: Unpack[StepResult]) -> None:
        exits = result.get("exits")
        step = ObservedStep(
            len(self.verdicts),
            failed=result.get("error", False),
            place=result.get("place"),
            exits=None if exits is None else tuple(exits),
            tasks=tuple(result.get("tasks", ())),
            achieved=tuple(result.get("achieved", ())),
        )
        self.failed_rounds.update(step)
        said = self.exploration
        said.update(step)
        verdict = Verdict(said.case, said.gain, said.progress, said.error, said.stale)
        self.verdicts.append(verdict)


def grid(seed: int, **settings: Any) -> GridWorld:
    graph = TaskGraph.sample(seed, nodes=8, option_counts={1: 0.6, 2: 0.4})
    return GridWorld(seed, graph=graph, **settings)


def walked(agent: GridAgent, world: GridWorld, draw: int = 0) -> tuple[Judged, bool]:
    judged = Judged(world.start())
    walk = world.walk(judged)
    agent(walk, random.Random(draw))
    assert judged.exploration.frontier == len(walk.unseen)
    assert judged.exploration.pending == len(walk.pending)
    return judged, walk.solved


def read(agent: LoreAgent, task: LoreTask, draw: int = 0) -> tuple[Judged, bool]:
    judged = Judged(task.start())
    reading = task.reading(judged)
    agent(reading, random.Random(draw))
    return judged, reading.solved


def through_the_pipeline(world: GridWorld | LoreTask, name: str, **settings: Any) -> RunReport:
    """The report of a run that was not stopped, as it was just before its end."""
    with testing.capture(**settings) as seen, tidegauge.run(agent=name, **world.start()) as run:
        if isinstance(world, GridWorld):
            attempt = world.walk(run)
            GRID_AGENTS[name](attempt, random.Random(0))
            solved = attempt.solved
        else:
            reading = world.reading(run)
            LORE_AGENTS[name](reading, random.Random(0))
            solved = reading.solved
        run.finish(success=solved)
        state = seen.pipeline.engine.get(run.id)
        assert state is not None
        return state.report()


class TestTheOptimalWalker:
    @pytest.mark.parametrize("settings", MAPS, ids=str)
    def test_makes_no_error(self, settings: dict[str, Any]) -> None:
        for seed in range(150):
            judged, solved = walked(optimal, grid(seed, **settings))
            assert solved
            assert not any(verdict.error for verdict in judged.verdicts)
            assert judged.exploration.exploration_error_rate == 0
            assert judged.exploration.exploitation_error_rate == 0
            assert judged.exploration.stale_max == 0

    def test_makes_none_where_the_shortest_way_would_be_one(self) -> None:
        graph = TaskGraph.sample(1337, nodes=8, max_layer=4)
        judged, solved = walked(optimal, GridWorld(1337, graph=graph, density=0.1))
        assert solved
        assert not any(verdict.error for verdict in judged.verdicts)

    def test_never_loops_in_the_pipeline(self) -> None:
        for seed in range(10):
            report = through_the_pipeline(grid(seed), "optimal")
            assert (report.loop_steps, report.success, report.failed_rounds_max) == (0, None, 0)


class TestTheOscillator:
    @pytest.mark.parametrize("settings", MAPS, ids=str)
    def test_errs_from_where_the_definition_says(self, settings: dict[str, Any]) -> None:
        """By the third move back and forth its score rises for good: an edge used a third time.

        Until then, and where there is one target only, it errs when it comes nearer to none.
        """
        for seed in range(100):
            world = grid(seed, **settings)
            judged = Judged(world.start())
            walk = world.walk(judged)
            oscillator(walk, random.Random(0))
            if walk.solved:
                continue
            onset = max(t for t, verdict in enumerate(judged.verdicts) if verdict.progress) + 1
            targets = [*walk.unseen, *dict.fromkeys(walk.pending.values())]
            if world.graph.goal in walk.pending:
                targets = [walk.pending[world.graph.goal]]
            moves = judged.verdicts[onset:]
            for count, verdict in enumerate(moves, start=1):
                if len(targets) > 1 and count > 2:
                    assert verdict.error
                else:
                    assert verdict.error is not verdict.gain
            assert [verdict.stale for verdict in moves[:4]] == [0, 0, 1, 3]

    def back_and_forth(self, row: str) -> list[Verdict]:
        """To the right and to the left, four times."""
        world = drawn(row, TaskGraph(((Task("A"),), (Task("G", (("A",),)),))))
        judged = Judged(world.start())
        walk = world.walk(judged)
        for direction in ["right", "left"] * 4:
            walk.move(direction)
        return judged.verdicts

    def test_comes_nearer_to_something_either_way_between_two_targets(self) -> None:
        verdicts = self.back_and_forth("G...S....A")  # an unseen cell at either end of what is seen
        assert [verdict.gain for verdict in verdicts] == [True] * 8
        assert [verdict.error for verdict in verdicts] == [False] * 3 + [True] * 5
        assert [verdict.stale for verdict in verdicts] == [0, 0, 0, 1, 3, 5, 7, 9]

    def test_errs_every_other_time_beside_one_target(self) -> None:
        verdicts = self.back_and_forth("S....AG")
        assert [verdict.gain for verdict in verdicts] == [True, False] * 4
        assert [verdict.error for verdict in verdicts] == [False, True] * 4
        assert [verdict.stale for verdict in verdicts] == [0, 0, 0, 1, 3, 5, 7, 9]

    def test_is_seen_looping_in_the_pipeline_and_stopped(self) -> None:
        world = grid(3, corridor_widths=(1, 3), alpha=5.0)
        report = through_the_pipeline(world, "oscillator")
        ((first, period, repeats, _),) = report.loops
        assert period == 2
        assert report.loop_steps in (2 * repeats, 2 * repeats + 1)
        assert report.steps - first - 2 * repeats in (0, 1)

        with testing.capture(stop_on_loop=3), pytest.raises(tidegauge.RunStopped) as stopped:
            through_run(world, oscillator)
        assert stopped.value.reason == "loop_repeats"
        assert stopped.value.step == first + 3 * period - 1


def through_run(world: GridWorld, agent: GridAgent) -> None:
    with tidegauge.run(**world.start()) as run:
        agent(world.walk(run), random.Random(0))


class TestTheWanderer:
    @pytest.mark.parametrize("settings", MAPS, ids=str)
    def test_errs_more_than_the_explorer(self, settings: dict[str, Any]) -> None:
        def mean(agent: GridAgent) -> float:
            runs = [walked(agent, grid(seed, **settings), seed)[0] for seed in range(40)]
            rates = [judged.exploration.exploration_error_rate for judged in runs]
            return fmean(rate for rate in rates if rate is not None)

        assert mean(wanderer) > mean(explorer) + 0.1


class TestTheExploiter:
    def test_errs_in_exploring_and_not_in_exploiting(self) -> None:
        """It walks to tasks that it cannot do yet, and straight to those that it can."""
        errors = required = 0
        for seed in range(40):
            judged, _ = walked(GRID_AGENTS["exploiter"], grid(seed, corridor_widths=(1, 3)))
            errors += judged.exploration.exploration_errors
            required += judged.exploration.exploration_required
            for verdict in judged.verdicts:
                assert not (verdict.error and verdict.case in (2, 3))
        assert 0.05 < errors / required < 0.5


class Flags(NamedTuple):
    """What distinguishes the readers."""

    premature_halt: bool
    displaced_leads: bool
    failed_rounds: bool


def flags(agent: LoreAgent, task: LoreTask, draw: int) -> Flags:
    judged, solved = read(agent, task, draw)
    exploration = judged.exploration
    halts = PrematureHalts()
    halts.update(
        FinishedRun(
            solved,
            len(judged.verdicts),
            frontier=exploration.frontier,
            pending=exploration.pending,
            displaced_leads=exploration.leads.displaced,
        )
    )
    assert not any(verdict.error for verdict in judged.verdicts), "what they read is never amiss"
    return Flags(
        premature_halt=halts.value == 1,
        displaced_leads=halts.displaced_leads > 0,
        failed_rounds=(judged.failed_rounds.maximum or 0) >= 3,
    )


@pytest.mark.parametrize("sample", [document_task, code_task])
class TestTheReaders:
    """Each reader is distinguished from the solver by the metric meant for it.

    A lost lead is a lead that is left, so that the loser also ends too early; what the halter
    leaves is not displaced.
    """

    def every(self, name: str, sample: Callable[[int], LoreTask]) -> set[Flags]:
        return {flags(LORE_AGENTS[name], sample(seed), seed) for seed in SEEDS}

    def test_the_solver_has_no_flag(self, sample: Callable[[int], LoreTask]) -> None:
        assert self.every("solver", sample) == {Flags(False, False, False)}

    def test_the_halter_ends_too_early(self, sample: Callable[[int], LoreTask]) -> None:
        assert self.every("halter", sample) == {Flags(True, False, False)}

    def test_the_loser_has_displaced_leads(self, sample: Callable[[int], LoreTask]) -> None:
        lost_nothing = Flags(False, False, False)
        assert self.every("loser", sample) - {lost_nothing} == {Flags(True, True, False)}
        runs = [read(LORE_AGENTS["loser"], sample(seed)) for seed in SEEDS]
        assert sum(solved for _, solved in runs) <= 2

    def test_the_stumbler_has_failed_rounds(self, sample: Callable[[int], LoreTask]) -> None:
        assert self.every("stumbler", sample) == {Flags(False, False, True)}


class TestReadingInThePipeline:
    def test_three_failed_rounds_end_a_run_if_they_are_to(self) -> None:
        task = document_task(5)
        report = through_the_pipeline(task, "stumbler")
        assert report.failed_rounds_max == 3
        assert report.intervention is None, "by default, five are too many"
        with (
            testing.capture(stop_on_failed_rounds=3),
            pytest.raises(tidegauge.RunStopped) as stopped,
            tidegauge.run(**task.start()) as run,
        ):
            LORE_AGENTS["stumbler"](task.reading(run), random.Random(0))
        assert (stopped.value.reason, stopped.value.step) == ("failed_rounds", 2)

    @pytest.mark.parametrize("name", [name for name in LORE_AGENTS if name != "stumbler"])
    def test_the_others_neither_fail_nor_loop(self, name: str) -> None:
        for sample in (document_task, code_task):
            report = through_the_pipeline(sample(5), name)
            assert (report.failed_rounds_max, report.loop_steps) == (0, 0)
            assert report.intervention is None

    def test_progress_is_reported(self) -> None:
        assert through_the_pipeline(document_task(5), "solver").progress == 1
        halted = through_the_pipeline(document_task(5), "halter").progress
        assert halted is not None
        assert 0 < halted < 1

    def test_the_horizon_is_reported(self) -> None:
        task = code_task(5)
        with testing.capture() as seen, tidegauge.run(**task.start()) as run:
            state = seen.pipeline.engine.get(run.id)
            assert state is not None
            started = state.started
        assert (started.operations, started.height) == (task.operations, task.height)
        assert (started.task_group, started.reach) == ("lore-code", "anywhere")


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (grid(3, corridor_widths=(1, 3)), "oscillator"),
        (grid(4), "wanderer"),
        (document_task(5), "stumbler"),
        (code_task(5), "loser"),
    ],
    ids=["oscillator", "wanderer", "stumbler", "loser"],
)
def test_a_replayed_recording_has_the_live_numbers(world: GridWorld | LoreTask, name: str) -> None:
    live = through_the_pipeline(world, name)

    recording = Recording("r1", agent=name, **world.start())
    if isinstance(world, GridWorld):
        GRID_AGENTS[name](world.walk(recording), random.Random(0))
    else:
        LORE_AGENTS[name](world.reading(recording), random.Random(0))
    engine = Engine(clock=None)
    replay = Replay(EngineSink(engine, Policy()), on_fault=lambda fault: pytest.fail(str(fault)))
    for line in read_lines(io.BytesIO(recording.lines())):
        replay.take(line, "recording")
    state = engine.get("r1")
    assert state is not None
    replayed = state.report()

    # of the live run only: ids and its clock
    own = {"run", "trace_id", "loop_since", "loop_cost_seconds", "lost_seconds", "saved_seconds"}
    differing = {
        field: (was, replayed.as_dict()[field])
        for field, was in live.as_dict().items()
        if was != replayed.as_dict()[field] and field not in own
    }
    assert not differing


@pytest.mark.parametrize("name", [*GRID_AGENTS, *LORE_AGENTS])
def test_the_pipeline_says_what_the_metric_says(name: str) -> None:
    world: GridWorld | LoreTask
    if name in GRID_AGENTS:
        world = grid(2, corridor_widths=(1, 3))
        judged, _ = walked(GRID_AGENTS[name], world)
    else:
        world = document_task(2)
        judged, _ = read(LORE_AGENTS[name], world)
    report, exploration = through_the_pipeline(world, name), judged.exploration
    assert (report.frontier, report.pending) == (exploration.frontier, exploration.pending)
    assert report.exploration_error == exploration.exploration_error_rate
    assert report.exploitation_error == exploration.exploitation_error_rate
    assert report.displaced_leads == exploration.leads.displaced
    assert report.stale_score_max == exploration.stale_max
    assert report.goal_pending_age == exploration.goal_pending_age


def test_distances_are_those_of_the_metric() -> None:
    """The world's own distances over what is known, and the metric's, agree on every move."""
    for seed in range(30):
        world = grid(seed, corridor_widths=(1, 3))
        judged = Judged(world.start())
        walk = world.walk(judged)
        draw = random.Random(seed)
        while not walk.over:
            targets = [*walk.unseen, *walk.pending.values()]
            if world.graph.goal in walk.pending:
                targets = [walk.pending[world.graph.goal]]
            here, known = walk.here, {cell: [*beside] for cell, beside in walk.known.items()}
            walk.move(draw.choice(["up", "right", "down", "left"]))
            before, after = (distances(known.__getitem__, cell) for cell in (here, walk.here))
            nearer = any(after[target] < before[target] for target in targets)
            assert judged.verdicts[-1].gain == (walk.here in targets or nearer)
