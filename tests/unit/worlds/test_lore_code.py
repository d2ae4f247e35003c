"""LORE code: programs that Python runs to the answer, and that call what is said to be needed."""

from __future__ import annotations

import asyncio
import builtins
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.worlds import LoreTask, code_task

SEEDS = range(200)
SETTINGS: list[Any] = [
    {},
    {"operations": 0, "distractors": 0},
    {"operations": 4, "concurrent": 0.7},
    pytest.param({"operations": 15, "conditionals": 1.0, "distractors": 9}, marks=pytest.mark.slow),
    pytest.param({"operations": 30, "max_leaves": 3, "consolidation": 1.0}, marks=pytest.mark.slow),
]


class SleepsAtOnce(asyncio.SelectorEventLoop):
    """A loop whose clock goes on to the next moment at which something happens."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = self._scheduled[0].when()  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    loop = SleepsAtOnce()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


ASYNCIO = SimpleNamespace(sleep=asyncio.sleep, gather=asyncio.gather, run=run_at_once)


def ran(task: LoreTask) -> tuple[int, set[str]]:
    """What Python returns for ``main()`` of ``main.py``, and the files whose ``main`` it called."""
    called: set[str] = set()
    modules: dict[str, Any] = {"asyncio": ASYNCIO}

    def load(name: str, *_: object) -> Any:
        if name not in modules:
            module = modules[name] = ModuleType(name)
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": load}
            exec(compile(task.pages[f"{name}.py"].text, name, "exec"), module.__dict__)
            module.main = noted(name, module.main)  # type: ignore[attr-defined]
        return modules[name]

    def noted(name: str, main: Callable[[], int]) -> Callable[[], int]:
        @functools.cache  # files that many others call would be run again and again
        def call() -> int:
            called.add(f"{name}.py")
            return main()

        return call

    returned: int = load("main").main()
    return returned, called


def height(task: LoreTask, file: str, known: dict[str, int]) -> int:
    """Files on the longest chain of imports that starts there, that file not counted."""
    if file not in known:
        imported = re.findall(r"import (m\w+)", task.pages[file].text)
        known[file] = 1 + max([height(task, f"{name}.py", known) for name in imported], default=-1)
    return known[file]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
class TestEveryTask:
    def test_returns_the_answer_when_python_runs_it(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = code_task(seed, **settings)
            returned, called = ran(task)
            assert str(returned) == task.answer
            assert called == task.needed

    def test_lets_every_file_be_reached_from_the_first(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = code_task(seed, **settings)
            assert task.first == ("main.py",)
            reached, last = set(), {"main.py"}
            while last:
                reached |= last
                texts = [task.pages[file].text for file in last]
                last = {
                    f"{name}.py" for text in texts for name in re.findall(r"import (m\w+)", text)
                }
                last -= reached
            assert reached == task.pages.keys()

    def test_a_file_is_known_to_who_has_read_one_that_imports_it(
        self, settings: dict[str, Any]
    ) -> None:
        for seed in range(30):
            task = code_task(seed, **settings)
            for page in task.pages.values():
                line = f"import {page.id.removesuffix('.py')}\n"
                importers = {other.id for other in task.pages.values() if line in other.text}
                assert {ids for (ids,) in page.known_by} == importers

    def test_says_how_high_it_is(self, settings: dict[str, Any]) -> None:
        for seed in SEEDS:
            task = code_task(seed, **{**settings, "distractors": 0})
            assert task.height == height(task, "main.py", {})

    def test_is_the_same_for_the_same_seed(self, settings: dict[str, Any]) -> None:
        assert code_task(5, **settings) == code_task(5, **settings)
        assert code_task(5, **settings) != code_task(6, **settings)


@pytest.mark.parametrize("seed", range(3))
def test_is_a_program_to_be_run(seed: int, tmp_path: Path) -> None:
    task = code_task(seed)
    for page in task.pages.values():
        (tmp_path / page.id).write_text(page.text)
    command = [sys.executable, "-W", "error", str(tmp_path / "main.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == task.answer


class TestKnobs:
    def test_operations_are_files_that_call_others(self) -> None:
        for operations in (0, 1, 5, 25):
            for seed in range(20):
                task = code_task(seed, operations=operations, consolidation=0.0)
                calling = [page for page in task.pages.values() if ".main()" in page.text]
                assert len(calling) == operations == task.operations

    def test_conditionals_leave_branches_that_are_not_needed(self) -> None:
        def unneeded(conditionals: float) -> float:
            tasks = [
                code_task(seed, conditionals=conditionals, distractors=0) for seed in range(50)
            ]
            return fmean(len(task.pages.keys() - task.needed) for task in tasks)

        assert unneeded(0.0) == 0
        assert 0 < unneeded(0.3) < unneeded(1.0)

    def test_consolidation_makes_a_task_deep(self) -> None:
        def height(consolidation: float) -> float:
            tasks = [
                code_task(seed, operations=20, consolidation=consolidation) for seed in range(50)
            ]
            return fmean(task.height for task in tasks)

        assert height(0.0) < height(0.3) < height(1.0)

    def test_distractors_are_imported_and_not_called(self) -> None:
        for seed in range(50):
            plain = code_task(seed, distractors=0)
            task = code_task(seed, distractors=4)
            distractors = task.pages.keys() - plain.pages.keys()
            assert len(distractors) == 4
            assert not distractors & task.needed
            assert (task.answer, task.needed) == (plain.answer, plain.needed)

    def test_numbers_that_no_task_can_have_are_rejected(self) -> None:
        with pytest.raises(ConfigurationError):
            code_task(operations=-1)


def test_starts_at_the_first_file() -> None:
    task = code_task(1)
    start = task.start()
    assert (start["exits"], start["task_group"]) == (("main.py",), "lore-code")
    assert start["tasks"][0].requires == (tuple(sorted(task.needed)),)


def test_additions_at_the_same_time_are_lost() -> None:
    """LORE-Hard: the sum of what the coroutines add is more than what is left of it."""
    lost = 0
    for seed in range(60):
        task = code_task(seed, operations=1, conditionals=0, concurrent=1, distractors=0)
        assert "Only sleeping takes time." in task.question
        numbers = [
            int(page.text.split("return ")[1])
            for page in task.pages.values()
            if page.id != "main.py"
        ]
        [begin] = re.findall(r"total = (\d+)\n", task.pages["main.py"].text)
        most = int(begin) + sum(numbers)
        assert int(begin) < int(task.answer) <= most
        lost += int(task.answer) < most
    assert lost > 30


def test_without_them_there_is_no_coroutine() -> None:
    assert all("async" not in page.text for page in code_task(5).pages.values())
