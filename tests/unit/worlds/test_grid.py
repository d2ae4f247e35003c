"""The grid: connected, reproducible, and moved by every one of its knobs; and a walk in it."""

from __future__ import annotations

import random
from statistics import fmean
from typing import Any

import pytest

from support.drawn_grid import GRAPH, drawn
from tidegauge.errors import ConfigurationError
from tidegauge.events import Task
from tidegauge.worlds import GridWorld, Recording, TaskGraph, Walk
from tidegauge.worlds.grid import DIRECTIONS, Cell

SEEDS = range(300)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"density": 0.5},
    {"density": 0.1, "corridor_widths": (1, 3)},
    {"density": 0.05, "corridor_widths": (2, 9), "aspect_ratio": 3.0},
    {"density": 0.2, "aspect_ratio": 0.01},
]


def walked(world: GridWorld, moves: str) -> tuple[Walk, list[dict[str, Any]]]:
    """Moves by their first letters; the walk, and the steps that it reported."""
    recording = Recording(**world.start())
    walk = world.walk(recording)
    names = {name[0]: name for name in DIRECTIONS}
    for letter in moves:
        walk.move(names[letter])
    return walk, recording.events[1:]


def reached(world: GridWorld) -> set[Cell]:
    """The cells that can be reached from the start."""
    found, last = {world.origin}, {world.origin}
    while last:
        last = {other for cell in last for other in world.exits(cell)} - found
        found |= last
    return found


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
class TestEveryMap:
    def test_leads_from_the_start_to_every_task(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            world = GridWorld(seed, **settings)
            assert reached(world) == world.cells
            assert world.tasks.keys() <= world.cells - {world.origin}
            assert list(world.tasks.values()) == list(world.graph.tasks)

    def test_lies_within_its_grid(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            world = GridWorld(seed, **settings)
            assert all(0 <= x < world.columns and 0 <= y < world.rows for x, y in world.cells)

    def test_is_the_same_for_the_same_seed(self, settings: dict[str, Any]) -> None:
        first, again, other = (GridWorld(seed, **settings) for seed in (5, 5, 6))
        assert (first.render(), first.tasks) == (again.render(), again.tasks)
        assert (first.render(), first.tasks) != (other.render(), other.tasks)


class TestKnobs:
    def test_density_is_tasks_for_each_cell(self) -> None:
        for density in (0.05, 0.1, 0.25, 0.5):
            world = GridWorld(graph=TaskGraph.sample(nodes=10), density=density)
            area = world.columns * world.rows
            assert 10 / density <= area < 10 / density + world.columns

    @pytest.mark.parametrize(
        ("ratio", "shape"),
        [(1.0, (6, 6)), (2.0, (8, 4)), (0.5, (4, 8)), (4.0, (12, 3)), (1e9, (32, 1))],
    )
    def test_aspect_ratio_is_columns_to_rows(self, ratio: float, shape: Cell) -> None:
        world = GridWorld(graph=TaskGraph.sample(nodes=8), density=0.25, aspect_ratio=ratio)
        assert (world.columns, world.rows) == shape

    def test_wider_corridors_have_more_exits(self) -> None:
        def exits(widths: tuple[int, int]) -> float:
            worlds = [GridWorld(seed, density=0.05, corridor_widths=widths) for seed in range(50)]
            return fmean(len(world.exits(cell)) for world in worlds for cell in world.cells)

        assert exits((1, 1)) < exits((1, 3)) < exits((3, 3))

    def test_a_corridor_is_as_wide_as_asked_for(self) -> None:
        graph = TaskGraph(((Task("a"),), (Task("b", (("a",),)),)))
        for seed in SEEDS:
            world = GridWorld(seed, graph=graph, density=0.02, corridor_widths=(3, 3))
            for x, y in world.cells:
                squares = [
                    {(left + i, top + j) for i in range(3) for j in range(3)}
                    for left in range(x - 2, x + 1)
                    for top in range(y - 2, y + 1)
                ]
                assert any(square <= world.cells for square in squares)

    def test_alpha_is_the_budget_and_nothing_else(self) -> None:
        for seed in range(20):
            short, long = GridWorld(seed, alpha=1.5), GridWorld(seed, alpha=4.0)
            assert short.render() == long.render()
            assert (short.budget, long.budget) == (
                int(1.5 * len(short.cells)),
                4 * len(short.cells),
            )

    def test_names_leave_the_map_as_it_is(self) -> None:
        maps = {
            GridWorld(3, graph=TaskGraph.sample(3, naming=naming)).render()
            for naming in ("symbolic", "semantic")
        }
        assert len(maps) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {"density": 0.0},
            {"density": 0.6},
            {"corridor_widths": (0, 1)},
            {"corridor_widths": (3, 2)},
            {"aspect_ratio": 0.0},
            {"alpha": -1.0},
        ],
        ids=str,
    )
    def test_numbers_that_no_map_can_have_are_rejected(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            GridWorld(**wrong)


class TestPresets:
    """Appendix C.1 of the paper: sizes of the graph, demands of the map, logic of the tasks."""

    @pytest.mark.parametrize(("size", "nodes"), [("small", 4), ("medium", 6), ("large", 8)])
    def test_a_size_is_a_number_of_tasks(self, size: Any, nodes: int) -> None:
        assert len(GridWorld.preset(seed=3, size=size).tasks) == nodes

    @pytest.mark.parametrize(
        ("demand", "density", "widths"),
        [("low", 0.1, (2, 3)), ("medium", 0.25, (1, 3)), ("high", 0.4, (1, 1))],
    )
    def test_a_demand_is_a_density_and_widths(self, demand: Any, density: float, widths) -> None:
        world = GridWorld.preset(seed=3, exploitation=demand, logic="easy")
        graph = TaskGraph.sample(3, nodes=6)
        same = GridWorld(3, graph=graph, density=density, corridor_widths=widths)
        assert (world.render(), world.graph, world.budget) == (same.render(), graph, same.budget)

    def test_the_less_exploitation_the_larger_is_the_map(self) -> None:
        cells = [
            fmean(len(GridWorld.preset(seed, exploitation=demand).cells) for seed in range(50))
            for demand in ("high", "medium", "low")
        ]
        assert cells[0] < cells[1] < cells[2]

    def test_logic_is_how_many_alternatives_and_prerequisites_tasks_have(self) -> None:
        def most(logic: Any) -> tuple[int, int]:
            tasks = [
                task
                for seed in range(80)
                for layer in GridWorld.preset(seed, size="large", logic=logic).graph.layers[:-1]
                for task in layer
            ]
            sizes = [len(option) for task in tasks for option in task.requires]
            return max(len(task.requires) for task in tasks), max(sizes)

        assert [most(logic) for logic in ("easy", "medium", "hard")] == [(1, 2), (2, 2), (2, 3)]


class TestAWalk:
    world = drawn(
        """
        SAG
        .#D
        BC.
        """
    )

    def test_a_task_shows_its_parents_and_children(self) -> None:
        first, second, goal = TaskGraph(
            ((Task("A"),), (Task("B", (("A",),)),), (Task("C", (("A", "B"), ("B",))),))
        ).tasks
        graph = TaskGraph(((first,), (second,), (goal,)))
        assert [graph.children(task.id) for task in graph.tasks] == [("B", "C"), ("C",), ()]
        walk = GridWorld(2, graph=graph).walk(Recording())
        assert walk._attempt(second) == "Here is B: it needs A. It is needed for C."
        assert walk._attempt(first) == "Here is A: achieved. It is needed for B and C."
        assert walk._attempt(second) == "Here is B: achieved. It needed A. It is needed for C."
        assert walk._attempt(goal) == "Here is C: achieved. It needed A and B, or B."

    def test_reports_where_it_is_and_what_is_there(self) -> None:
        _, (step,) = walked(self.world, "r")
        assert step["action"] == "move"
        assert step["args"] == {"direction": "right"}
        assert step["place"] == (1, 0)
        assert step["exits"] == [(2, 0), (0, 0)]
        assert step["tasks"] == [{"id": "A", "requires": ()}]
        assert step["error"] is False
        assert step["progress"] == pytest.approx(1 / 5)

    def test_fails_where_there_is_no_cell_and_stays(self) -> None:
        walk, (step,) = walked(self.world, "u")
        assert (step["error"], step["place"], step["achieved"]) == (True, (0, 0), [])
        assert walk.moves == 1
        walk.move("anywhere")
        assert (walk.here, walk.moves) == ((0, 0), 2)

    def test_a_task_waits_for_what_it_needs(self) -> None:
        walk, steps = walked(self.world, "rr")
        assert walk.achieved == {"A"}
        assert "G: it needs D." in steps[-1]["outcome"]
        assert walk.pending == {}
        walk, steps = walked(self.world, "rrd")
        assert "D: it needs A and B, or C." in steps[-1]["outcome"]
        assert walk.found.keys() == set(GRAPH.tasks) - {Task("B"), Task("C")}

    def test_all_of_one_alternative_will_do(self) -> None:
        by_and, _ = walked(self.world, "rlddu" + "urrd")
        assert by_and.achieved == {"A", "B", "D"}
        by_or, _ = walked(self.world, "rrddl" + "ru")
        assert by_or.achieved == {"A", "C", "D"}

    def test_what_becomes_ready_is_pending_until_it_is_entered_again(self) -> None:
        walk, _ = walked(self.world, "rrddl")
        assert walk.pending == {"D": (2, 1)}
        walk.move("right")
        walk.move("up")
        assert walk.pending == {"G": (2, 0)}
        assert not walk.over
        walk.move("up")
        assert walk.pending == {}
        assert walk.solved
        assert walk.over

    def test_the_same_place_looks_the_same_while_nothing_is_achieved(self) -> None:
        _, steps = walked(self.world, "rrlr")
        assert steps[1]["outcome"] == steps[3]["outcome"]
        assert steps[0]["outcome"] == steps[2]["outcome"]

    def test_knows_what_it_has_seen_and_no_more(self) -> None:
        walk, _ = walked(self.world, "r")
        assert list(walk.unseen) == [(0, 1), (2, 0)]
        assert walk.known == {
            (0, 0): [(1, 0), (0, 1)],
            (1, 0): [(0, 0), (2, 0)],
            (0, 1): [(0, 0)],
            (2, 0): [(1, 0)],
        }

    def test_is_over_when_the_budget_is_used_up(self) -> None:
        walk, _ = walked(drawn("SABCDG", budget=3), "rrr")
        assert walk.over
        assert not walk.solved

    def test_starts_where_the_run_says_that_it_does(self) -> None:
        start = self.world.start()
        assert (start["place"], start["exits"]) == ((0, 0), ((1, 0), (0, 1)))
        assert (start["goal"], start["reach"], start["t_max"]) == ("G", "adjacent", 100)
        assert "tasks" not in start, "there is no task at the start"

    @pytest.mark.parametrize("seed", range(20))
    def test_what_it_keeps_is_what_it_reported(self, seed: int) -> None:
        world = GridWorld(seed, corridor_widths=(1, 3))
        recording = Recording(**world.start())
        walk = world.walk(recording)
        draw = random.Random(seed)
        for _ in range(40):
            walk.move(draw.choice([*DIRECTIONS]))
            reported = recording.events[-1]
            assert reported["place"] == walk.here
            assert set(reported["exits"]) == set(walk.known[walk.here])
            seen = {world.origin, *(event["place"] for event in recording.events[1:])}
            exits = {exit_ for event in recording.events for exit_ in event["exits"]}
            assert walk.unseen.keys() == exits - seen
