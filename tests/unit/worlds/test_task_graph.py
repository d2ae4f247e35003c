"""Task graphs: always to be done, reproducible, and moved by every one of their knobs."""

from __future__ import annotations

import math
import re
from statistics import fmean
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Identity, Task
from tidegauge.worlds import TaskGraph

SEEDS = range(300)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"nodes": 2},
    {"nodes": 12, "max_layer": 4},
    {"nodes": 8, "option_counts": {1: 0.6, 2: 0.4}, "dependency_counts": {1: 1, 2: 1, 3: 1}},
    {"nodes": 9, "max_layer": 1, "option_counts": {3: 1}, "parent_depth_bias": -2},
    {"nodes": 30, "naming": "semantic", "goal_dependency_counts": {5: 1}},
]


def done(graph: TaskGraph) -> set[Identity]:
    """What can be achieved, in as many rounds over all tasks as it takes."""
    achieved: set[Identity] = set()
    while True:
        more = {
            task.id
            for task in graph.tasks
            if not task.requires or any(set(option) <= achieved for option in task.requires)
        }
        if more == achieved:
            return achieved
        achieved = more


def shape(graph: TaskGraph) -> list[list[tuple[tuple[int, ...], ...]]]:
    """The graph without its names."""
    number = {task.id: index for index, task in enumerate(graph.tasks)}
    return [
        [
            tuple(tuple(number[name] for name in option) for option in task.requires)
            for task in layer
        ]
        for layer in graph.layers
    ]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
class TestEveryGraph:
    def test_can_be_done(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            graph = TaskGraph.sample(seed, **settings)
            assert done(graph) == {task.id for task in graph.tasks}

    def test_has_layers_that_need_earlier_ones_up_to_one_goal(
        self, settings: dict[str, Any]
    ) -> None:
        for seed in SEEDS:
            graph = TaskGraph.sample(seed, **settings)
            names = [task.id for task in graph.tasks]
            assert len(set(names)) == len(names) == settings.get("nodes", 6)
            *inner, last = graph.layers
            assert all(1 <= len(layer) <= settings.get("max_layer", 3) for layer in inner)
            assert [task.id for task in last] == [graph.goal]
            earlier: set[Identity] = set()
            for depth, layer in enumerate(graph.layers):
                for task in layer:
                    assert bool(task.requires) == (depth > 0)
                    assert all(option and set(option) <= earlier for option in task.requires)
                earlier |= {task.id for task in layer}

    def test_has_no_task_that_is_of_no_use_to_the_goal(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            graph = TaskGraph.sample(seed, **settings)
            useful = {graph.goal}
            for task in reversed(graph.tasks):
                if task.id in useful:
                    useful |= {name for option in task.requires for name in option}
            assert useful == {task.id for task in graph.tasks}

    def test_has_alternatives_that_differ_in_earnest(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            for task in TaskGraph.sample(seed, **settings).tasks:
                options = [set(option) for option in task.requires]
                assert not any(
                    one <= other for one in options for other in options if one is not other
                )

    def test_is_the_same_for_the_same_seed(self, settings: dict[str, Any]) -> None:
        assert TaskGraph.sample(7, **settings) == TaskGraph.sample(7, **settings)
        assert TaskGraph.sample(7, **settings) != TaskGraph.sample(8, **settings)


class TestKnobs:
    def test_option_counts_are_alternatives(self) -> None:
        def share(counts: dict[int, float]) -> float:
            """Tasks with alternatives among those that may have them."""
            tasks = [
                task
                for seed in SEEDS
                for layer in TaskGraph.sample(seed, nodes=10, option_counts=counts).layers[2:]
                for task in layer
            ]
            return fmean(len(task.requires) > 1 for task in tasks)

        assert share({1: 1.0}) == 0
        assert 0.05 < share({1: 0.8, 2: 0.2}) < share({1: 0.6, 2: 0.4}) < share({2: 1.0})

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_dependency_counts_are_tasks_of_a_set(self, count: int) -> None:
        for seed in SEEDS:
            graph = TaskGraph.sample(seed, nodes=9, dependency_counts={count: 1})
            before = len(graph.layers[0])
            for layer in graph.layers[1:-1]:
                assert {len(task.requires[0]) for task in layer} == {min(count, before)}
                before += len(layer)

    def test_the_goal_has_counts_of_its_own_and_what_nothing_else_needs(self) -> None:
        for seed in SEEDS:
            graph = TaskGraph.sample(seed, nodes=9, goal_dependency_counts={4: 1})
            *others, goal = graph.tasks
            needed = {name for task in others for option in task.requires for name in option}
            loose = {task.id for task in others} - needed
            (option,) = goal.requires
            assert loose <= set(option)
            assert len(option) >= 4
            assert len(option) - len(loose) <= 4

    def test_parents_are_drawn_by_depth(self) -> None:
        def share(bias: float) -> float:
            """How often the third of four tasks in a row needs the second, and not the first."""
            return fmean(
                TaskGraph.sample(
                    seed, nodes=4, max_layer=1, dependency_counts={1: 1}, parent_depth_bias=bias
                )
                .tasks[2]
                .requires
                == ((TaskGraph.sample(seed, nodes=4, max_layer=1).tasks[1].id,),)
                for seed in range(2_000)
            )

        for bias in (0.0, 1.0, 3.0):
            assert share(bias) == pytest.approx(1 / (1 + math.exp(-bias)), abs=0.03)
        assert (share(10_000.0), share(-10_000.0)) == (1, 0)

    def test_names_change_nothing_else(self) -> None:
        for seed in SEEDS:
            symbolic = TaskGraph.sample(seed, nodes=9)
            semantic = TaskGraph.sample(seed, nodes=9, naming="semantic")
            assert shape(symbolic) == shape(semantic)
            assert all(re.fullmatch("[A-Z3-9]{4}", str(task.id)) for task in symbolic.tasks)
            assert not any(re.search("[01258BIOSZ]", str(task.id)) for task in symbolic.tasks)
            assert semantic.goal == "ship"

    def test_names_do_not_run_out(self) -> None:
        graph = TaskGraph.sample(1, nodes=40, naming="semantic")
        assert "keel 2" in {task.id for task in graph.tasks}


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 1},
        {"max_layer": 0},
        {"option_counts": {}},
        {"option_counts": {0: 1.0}},
        {"dependency_counts": {1: 0.0}},
        {"goal_dependency_counts": {1: 1.0, 2: -1.0}},
    ],
    ids=str,
)
def test_numbers_that_no_graph_can_have_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TaskGraph.sample(**wrong)


def test_a_graph_can_be_given_as_well() -> None:
    graph = TaskGraph(((Task("a"), Task("b")), (Task("c", (("a",), ("b",))),)))
    assert graph.goal == "c"
    assert [task.id for task in graph.tasks] == ["a", "b", "c"]
