"""The readers: what they make of pages, and how each of them comes to its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.worlds import (
    LORE_AGENTS,
    LoreAgent,
    LoreAttempt,
    LorePage,
    LoreTask,
    Recording,
    code_task,
    document_task,
)
from tidegauge.worlds.lore import (
    CodeNotes,
    DocumentNotes,
    halter,
    loser,
    notes_on,
    solver,
    stumbler,
)

SEEDS = range(150)
Sample = Callable[..., LoreTask]
BOTH = pytest.mark.parametrize("sample", [document_task, code_task])


def ran(
    agent: LoreAgent, task: LoreTask, draw: int = 0, **options: Any
) -> tuple[LoreAttempt, Recording]:
    recording = Recording(**task.start())
    reading = task.reading(recording)
    agent(reading, random.Random(draw), **options)
    return reading, recording


def rounds(recording: Recording) -> list[list[str]]:
    """The ids asked for, round by round."""
    return [event["args"]["ids"] for event in recording.events[1:] if event["action"] != "answer"]


class TestNotes:
    @BOTH
    def test_find_the_answer_when_all_is_read_that_it_follows_from(self, sample: Sample) -> None:
        draw = random.Random(1)
        for seed in SEEDS:
            task = sample(seed)
            if task.kind == "code":
                last = draw.choice(sorted(task.needed))
            else:
                (last,) = (page.id for page in task.pages.values() if task.answer in page.text)
            notes = notes_on(task)
            for page in draw.sample(sorted(task.needed - {last}), len(task.needed) - 1):
                notes.take(page, task.pages[page].text)
                assert notes.answer is None
            notes.take(last, task.pages[last].text)
            assert notes.answer == task.answer

    @BOTH
    def test_name_the_ids_that_follow(self, sample: Sample) -> None:
        for seed in SEEDS:
            task = sample(seed)
            notes = notes_on(task)
            read: list[str] = []
            reported = set(task.first)
            for page in random.Random(seed).sample(sorted(task.pages), len(task.pages)):
                read.append(page)
                reported.update(notes.take(page, task.pages[page].text))
                follows = {
                    other.id
                    for other in task.pages.values()
                    if not other.known_by or any(set(ids) <= set(read) for ids in other.known_by)
                }
                assert reported == follows

    def test_a_negative_sum_is_an_id_with_its_sign(self) -> None:
        notes = DocumentNotes("x1")
        assert notes.take("d1:a", "x2 is 3.\nRecorded as x3: 40.") == []
        rule = "The next document is d9:N, where N is x2 - x3 + x2."
        assert notes.take("d2:b", rule) == ["d9:-34"]

    def test_texts_are_joined_even_where_they_are_numbers(self) -> None:
        notes = DocumentNotes("x1")
        notes.take("d1:a", "Register x2 holds 3.\nRegister x3 holds ab.")
        rule = "The next document is d9:T, where T is x3, x2 written one after the other."
        assert notes.take("d2:b", rule) == ["d9:ab3"]

    def test_the_branch_not_taken_is_not_waited_for(self) -> None:
        notes = CodeNotes()
        text = (
            "def main():\n    if m1.main() > 5:\n        return m2.main()\n    return m3.main()\n"
        )
        notes.take("main.py", "import m1\nimport m2\nimport m3\n\n\n" + text)
        notes.take("m3.py", "def main():\n    return 8\n")
        assert notes.answer is None
        notes.take("m1.py", "def main():\n    return 5\n")
        assert notes.answer == "8"

    def test_what_is_called_deep_down_comes_up_whatever_the_order(self) -> None:
        notes = CodeNotes()
        notes.take("m2.py", "def main():\n    return 7\n")
        notes.take("m1.py", "import m2\n\n\ndef main():\n    return m2.main() - 9\n")
        notes.take("main.py", "import m1\n\n\ndef main():\n    return m1.main() + m1.main()\n")
        assert notes.answer == "-4"


class TestSolver:
    @BOTH
    @pytest.mark.parametrize("operations", [0, 1, 6, 15])
    def test_solves_every_task(self, sample: Sample, operations: int) -> None:
        for seed in SEEDS:
            reading, recording = ran(solver, sample(seed, operations=operations))
            assert reading.solved
            assert reading.task.needed <= reading.read.keys()
            asked = [page for ids in rounds(recording) for page in ids]
            assert len(asked) == len(set(asked)), "no page twice"
            assert not any(event["error"] for event in recording.events[1:])

    def test_stops_reading_when_the_answer_follows(self) -> None:
        spared = 0
        for seed in SEEDS:
            reading, recording = ran(solver, code_task(seed, conditionals=1.0))
            assert recording.events[-1]["action"] == "answer"
            spared += reading.read.keys() < reading.task.pages.keys()
        assert spared > len(SEEDS) / 2

    def test_follows_the_oldest_leads_first(self) -> None:
        task = code_task(11)
        born: dict[str, int] = dict.fromkeys(task.first, 0)
        _, recording = ran(solver, task)
        births = []
        for number, event in enumerate(recording.events[1:-1], start=1):
            births.append(born[event["place"]])
            for exit_ in event["exits"]:
                born.setdefault(exit_, number)
        assert births == sorted(births)

    @BOTH
    def test_reads_several_pages_in_one_round(self, sample: Sample) -> None:
        for seed in range(20):
            task = sample(seed)
            one, many = (ran(solver, task, at_once=amount) for amount in (1, 5))
            assert many[0].solved
            assert max(map(len, rounds(many[1]))) <= 5
            assert len(rounds(many[1])) < len(rounds(one[1]))


class TestHalter:
    @BOTH
    def test_leaves_with_leads_left_and_nothing_said(self, sample: Sample) -> None:
        for seed in SEEDS:
            reading, recording = ran(halter, sample(seed))
            assert not reading.solved
            assert all(event["action"] == "read_document" for event in recording.events[1:])
            assert reading.read.keys() < reading.task.pages.keys()

    def test_reads_for_a_while_before(self) -> None:
        for after in (1, 3, 9):
            lengths = {len(ran(halter, document_task(seed), after=after)[0].read) for seed in SEEDS}
            assert min(lengths) == after


class TestLoser:
    @BOTH
    def test_never_comes_back_to_an_older_batch(self, sample: Sample) -> None:
        solved = 0
        for seed in SEEDS:
            reading, recording = ran(loser, sample(seed))
            newest = list(reading.task.first)
            reported = set(newest)
            for event in recording.events[1:]:
                if event["action"] == "answer":
                    continue
                assert event["place"] in newest
                batch = [page for page in event["exits"] if page not in reported]
                newest = batch or newest
                reported |= set(batch)
            solved += reading.solved
        assert solved <= len(SEEDS) / 50, "but for a few that happen to lose nothing they need"

    def test_is_not_lost_where_there_is_one_thread_only(self) -> None:
        text = "import m1\n\n\ndef main():\n    return m1.main()\n"
        pages = [
            LorePage("main.py", text),
            LorePage("m1.py", "def main():\n    return 3\n", (("main.py",),)),
        ]
        task = LoreTask(
            kind="code",
            question="?",
            pages={page.id: page for page in pages},
            needed=frozenset({"main.py", "m1.py"}),
            answer="3",
            operations=1,
            height=1,
        )
        assert ran(loser, task)[0].solved


class TestStumbler:
    @BOTH
    @pytest.mark.parametrize("failures", [1, 3])
    def test_fails_first_and_solves_then(self, sample: Sample, failures: int) -> None:
        for seed in range(30):
            reading, recording = ran(stumbler, sample(seed), failures=failures)
            errors = [event["error"] for event in recording.events[1:]]
            assert errors == [True] * failures + [False] * (len(errors) - failures)
            assert reading.solved
            failed = rounds(recording)[:failures]
            assert len({ids[0] for ids in failed}) == failures, "something else each time"


@BOTH
@pytest.mark.parametrize("name", LORE_AGENTS)
def test_the_same_task_and_draw_give_the_same_steps(sample: Sample, name: str) -> None:
    agent = LORE_AGENTS[name]
    assert ran(agent, sample(2), 5)[1].events == ran(agent, sample(2), 5)[1].events
