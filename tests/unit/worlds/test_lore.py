"""LORE documents: solvable, reproducible, and with the answer that their texts give."""

from __future__ import annotations

import random
import re
from collections.abc import Hashable
from statistics import fmean
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.worlds import LoreTask, Recording, document_task
from tidegauge.worlds.lore import grow

SEEDS = range(200)
SETTINGS: list[Any] = [
    {},
    {"operations": 0},
    {"operations": 1, "distractors": 0},
    pytest.param(
        {"operations": 25, "max_leaves": 3, "consolidation": 1.0, "distractors": 12},
        marks=pytest.mark.slow,
    ),
]


def known(task: LoreTask) -> list[str]:
    """The pages in an order in which they can be read, as the task gives it."""
    read: dict[str, None] = {}
    while True:
        more = [
            page.id
            for page in task.pages.values()
            if page.id not in read
            and (not page.known_by or any(read.keys() >= {*ids} for ids in page.known_by))
        ]
        if not more:
            return list(read)
        read.update(dict.fromkeys(more))


def values(task: LoreTask) -> dict[str, str]:
    """The value of every variable, from all texts together."""
    computed = {}
    for page in task.pages.values():
        for line in page.text.splitlines():
            words = line.rstrip(".").replace(":", "").split()
            names = [word for word in words if re.fullmatch(r"x\d+", word)]
            if len(names) == 1 and not line.startswith("The next"):
                computed[names[0]] = words[-1]
    return computed


def ids_worked_out(task: LoreTask) -> set[str]:
    """The ids that the rules give, evaluated as Python."""
    computed = values(task)
    ids = set()
    for page in task.pages.values():
        for number, kind, terms in re.findall(
            r"document is d(\d+):(.), where . is (.*)", page.text
        ):
            names = re.findall(r"x\d+", terms)
            if not computed.keys() >= {*names}:
                continue
            if kind == "N":
                key = eval(terms.rstrip("."), {}, {name: int(computed[name]) for name in names})
            else:
                key = "".join(computed[name] for name in names)
            ids.add(f"d{number}:{key}")
    return ids


def longest_chain(task: LoreTask) -> int:
    """Documents on the longest way from the answer's down to one that is given at the start."""
    depth: dict[Hashable, int] = {}
    for page in known(task):
        sources = [depth[source] for ids in task.pages[page].known_by for source in ids]
        depth[page] = 1 + max(sources, default=-1)
    return max(depth[page] for page in task.needed)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
class TestEveryTask:
    def test_lets_every_document_be_reached(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = document_task(seed, **settings)
            assert set(known(task)) == task.pages.keys()

    def test_names_the_ids_in_its_texts(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = document_task(seed, **settings)
            worked_out = ids_worked_out(task)
            listed = {
                one
                for page in task.pages.values()
                for line in page.text.splitlines()
                if line.startswith("See also")
                for one in line.rstrip(".").removeprefix("See also ").split(", ")
            }
            assert len(worked_out) == task.operations
            assert not worked_out & listed
            assert worked_out | listed | set(task.first) == task.pages.keys()
            assert all(page in task.question for page in task.first)

    def test_has_the_answer_that_its_texts_give(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = document_task(seed, **settings)
            variable = re.search(r"of (x\d+)\?", task.question)
            assert variable is not None
            assert values(task)[variable[1]] == task.answer
            holder = [page.id for page in task.pages.values() if task.answer in page.text]
            assert holder == [known(task)[-1]] or not settings.get("operations", 6)

    def test_names_an_id_only_after_all_pages_that_it_takes(self, settings: dict[str, Any]) -> None:
        draw = random.Random(1)
        for seed in range(30):
            pages = document_task(seed, **settings).pages
            if reported := [page for page in pages.values() if page.known_by]:
                page = draw.choice(reported)
                missing = draw.choice(page.known_by[0])
                rest = {key: other for key, other in pages.items() if key != missing}
                poorer = LoreTask(
                    kind="documents",
                    question="",
                    pages=rest,
                    needed=frozenset(),
                    answer="",
                    operations=0,
                    height=0,
                )
                assert page.id not in ids_worked_out(poorer)
                assert not any(page.id in other.text for other in rest.values())

    def test_says_how_high_it_is(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = document_task(seed, **settings)
            assert task.height == longest_chain(task)

    def test_is_the_same_for_the_same_seed(self, settings: dict[str, Any]) -> None:
        assert document_task(5, **settings) == document_task(5, **settings)
        assert document_task(5, **settings) != document_task(6, **settings)


class TestKnobs:
    def test_operations_are_ids_to_be_worked_out(self) -> None:
        heights = []
        for operations in (0, 1, 5, 25):
            tasks = [document_task(seed, operations=operations) for seed in range(30)]
            assert {len(ids_worked_out(task)) for task in tasks} == {operations}
            assert {task.operations for task in tasks} == {operations}
            heights.append(fmean(task.height for task in tasks))
        assert heights[:2] == [0, 1]
        assert heights == sorted(heights)

    def test_consolidation_keeps_a_task_narrow_and_makes_it_deep(self) -> None:
        def mean(consolidation: float) -> tuple[float, float]:
            tasks = [
                document_task(seed, operations=20, consolidation=consolidation, distractors=0)
                for seed in range(50)
            ]
            return fmean(len(task.first) for task in tasks), fmean(task.height for task in tasks)

        (wide, low), (narrower, higher), (narrow, high) = map(mean, (0.0, 0.3, 1.0))
        assert wide > narrower > narrow
        assert low < higher < high
        assert narrow <= 12

    def test_distractors_are_values_that_nothing_needs(self) -> None:
        for seed in range(50):
            plain = document_task(seed, distractors=0)
            task = document_task(seed, distractors=5)
            assert len(values(task)) == len(values(plain)) + 5
            assert len(task.pages.keys() - task.needed) == 2
            assert not plain.pages.keys() - plain.needed
            assert task.pages.keys() - task.needed < set(task.first)
            assert task.answer == plain.answer

    @pytest.mark.parametrize(
        "wrong", [{"operations": -1}, {"max_leaves": 1}, {"consolidation": 1.5}], ids=str
    )
    def test_numbers_that_no_task_can_have_are_rejected(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            document_task(**wrong)


class TestGrowth:
    def test_expands_so_many_leaves(self) -> None:
        expanded: list[int] = []

        def expand(leaf: int) -> list[int]:
            expanded.append(leaf)
            return [leaf * 10 + 1, leaf * 10 + 2]

        leaves = grow(
            1,
            random.Random(3),
            operations=9,
            max_leaves=99,
            consolidation=1.0,
            expand=expand,
            consolidate=lambda several: pytest.fail("there are not too many"),
        )
        assert len(expanded) == len(set(expanded)) == 9
        assert len(leaves) == 10
        assert not set(leaves) & set(expanded)

    def test_puts_several_leaves_behind_one_when_there_are_too_many(self) -> None:
        hidden: list[list[str]] = []

        def consolidate(several: list[str]) -> str:
            hidden.append(several)
            return f"list {len(hidden)}"

        leaves = grow(
            "",
            random.Random(3),
            operations=30,
            max_leaves=4,
            consolidation=1.0,
            expand=lambda leaf: [leaf + sign for sign in "abc"],
            consolidate=consolidate,
        )
        assert len(leaves) <= 4
        assert all(2 <= len(several) <= 6 for several in hidden)
        assert not set(leaves) & {leaf for several in hidden for leaf in several}


class TestReading:
    task = document_task(3, operations=1, distractors=0)

    def read(self, *rounds: list[str]) -> tuple[Any, list[dict[str, Any]]]:
        recording = Recording(**self.task.start())
        reading = self.task.reading(recording)
        for ids in rounds:
            reading.look_up(ids)
        return reading, recording.events[1:]

    def test_starts_at_the_desk_with_what_it_is_given(self) -> None:
        start = self.task.start()
        assert (start["place"], start["reach"], start["goal"]) == ("desk", "anywhere", "answer")
        assert start["exits"] == ("d1:r", "d2:e", "d3:h")
        ((goal, requires),) = start["tasks"]
        assert (goal, requires) == ("answer", (("d0:ookwqw", "d1:r", "d2:e", "d3:h"),))
        assert (start["operations"], start["height"]) == (1, 1)
        assert start["task_group"] == "lore-documents"

    def test_a_page_is_a_place_and_the_ids_it_leads_to_are_its_exits(self) -> None:
        _, steps = self.read(["d1:r"], ["d2:e"], ["d3:h"], ["d0:ookwqw"])
        assert [step["place"] for step in steps] == ["d1:r", "d2:e", "d3:h", "d0:ookwqw"]
        assert [step["exits"] for step in steps] == [[], [], ["d0:ookwqw"], []]
        assert [step["achieved"] for step in steps] == [[step["place"]] for step in steps]
        assert [step["progress"] for step in steps] == [0.2, 0.4, 0.6, 0.8]

    def test_a_round_may_read_several_pages(self) -> None:
        reading, (step,) = self.read(["d1:r", "d2:e", "d9:z", "d3:h"])
        assert list(reading.read) == ["d1:r", "d2:e", "d3:h"]
        assert step["args"] == {"ids": ["d1:r", "d2:e", "d9:z", "d3:h"]}
        assert (step["place"], step["exits"], step["error"]) == ("d3:h", ["d0:ookwqw"], False)
        assert step["achieved"] == ["d1:r", "d2:e", "d3:h"]
        assert "d9:z:\nthere is none" in step["outcome"]
        assert all(self.task.pages[page].text in step["outcome"] for page in reading.read)

    def test_a_round_fails_when_no_page_exists(self) -> None:
        reading, (step,) = self.read(["d8:y", "d9:z"])
        assert step["error"] is True
        assert "place" not in step
        assert "exits" not in step
        assert not reading.read

    def test_a_page_that_is_read_again_says_the_same(self) -> None:
        reading, _ = self.read(["d1:r"])
        assert reading.look_up(["d1:r"]) == {"d1:r": self.task.pages["d1:r"].text}
        assert list(reading.read) == ["d1:r"]

    def test_the_right_answer_leads_back_to_the_desk(self) -> None:
        recording = Recording(**self.task.start())
        reading = self.task.reading(recording)
        assert not reading.hand_in("nonsense")
        assert not reading.solved
        assert reading.hand_in(f" {self.task.answer}\n")
        assert reading.solved
        wrong, right = recording.events[1:]
        assert ("place" in wrong, wrong["achieved"]) == (False, [])
        assert (right["place"], right["achieved"], right["progress"]) == ("desk", ["answer"], 1.0)
        reading.hand_in("nonsense")
        assert reading.solved, "what was handed in stays so"
