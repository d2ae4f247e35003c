"""Files of judgements: written at once, readable after a crash, and not judged twice."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from support.judged_runs import Judged, run_of, verdict
from tidegauge.diagnose.competency_scores import CompetencyScore, read_scores
from tidegauge.diagnose.judges.judgement import Judgement, JudgementFile
from tidegauge.diagnose.judges.judging import Estimate, Judging
from tidegauge.diagnose.judges.rubric_judge import FIVE_JUDGES

SCORE = Judgement(run="r1", competency="self_verification", score=3, applicable=True, reason="so")


def judge_all(path: Path, given: Judged, *, model: str = "m", runs: int = 3) -> None:
    with JudgementFile(path) as kept:
        judging = Judging(given.model, name=model, known=kept, attempts=1)
        judging.listen(lambda transcript, judgement: kept.add(judgement))
        for number in range(runs):
            judging.submit(run_of(3, run=f"run {number}"), wait=True)
        assert judging.wait(10)
        judging.close()


def test_a_line_says_everything() -> None:
    judgement = Judgement(
        run="r1",
        competency="self_verification",
        steps=(1, 2),
        left_out_steps=((4, 9),),
        shortened_steps=1,
        rubric_version="1.1",
        model="m",
        error="no_steps: the run has no steps",
    )
    assert json.loads(judgement.line()) == {
        "run": "r1",
        "competency": "self_verification",
        "score": None,
        "applicable": None,
        "reason": "",
        "steps": [1, 2],
        "judge": "rubric",
        "rubric_version": "1.1",
        "model": "m",
        "left_out_steps": [[4, 9]],
        "shortened_steps": 1,
        "error": "no_steps: the run has no steps",
    }


def test_a_line_is_a_score_to_every_reader_of_scores() -> None:
    failed = Judgement(run="r2", competency="self_verification", error="no_steps: none")
    assert read_scores([SCORE.line(), failed.line()]) == [
        CompetencyScore("r1", "self_verification", 3, "so"),
        CompetencyScore("r2", "self_verification", None, ""),
    ]


def test_a_reason_that_cannot_be_written_is_written_as_far_as_it_can(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    judge_all(path, Judged(verdict(3, reason="half of a \ud83d face")), runs=1)
    assert [json.loads(line)["reason"] for line in path.read_bytes().splitlines()] == [
        "half of a ? face"
    ] * 5


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    first = Judged(verdict(3))
    judge_all(path, first, runs=2)
    assert len(first) == 10
    again = Judged(verdict(1))
    judge_all(path, again, runs=3)
    assert len(again) == 5  # the third run alone
    assert len(path.read_bytes().splitlines()) == 15


def test_another_model_judges_again(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    judge_all(path, Judged(verdict(3)), model="small", runs=1)
    other = Judged(verdict(3))
    judge_all(path, other, model="large", runs=1)
    assert len(other) == 5


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    judge_all(path, Judged(ConnectionError("gone")), runs=1)
    assert {json.loads(line)["error"] for line in path.read_bytes().splitlines()} == {
        "model_error: ConnectionError: gone"
    }
    judge_all(path, Judged(ConnectionError("gone")), runs=1)
    assert len(path.read_bytes().splitlines()) == 5  # nothing new is said of it
    judge_all(path, Judged(verdict(3)), runs=1)
    with JudgementFile(path) as kept:
        assert [one.score for one in kept] == [3] * 5


def test_a_line_cut_short_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_bytes(b"not JSON\n[1]\n" + SCORE.line() + SCORE.line()[:30])
    other = Judgement(run="r2", competency="self_verification", score=1)
    with JudgementFile(path) as kept:
        assert [one.run for one in kept] == ["r1"]
        assert SCORE.key in kept
        assert other.key not in kept
        assert "r1" not in kept
        kept.add(other)
        kept.add(other)
        assert path.read_bytes().endswith(b"\n" + other.line())  # at once
    with JudgementFile(path) as kept:
        assert [one.run for one in kept] == ["r1", "r2"]
    assert len(path.read_bytes().splitlines()) == 5


def test_lines_of_many_threads_are_whole(tmp_path: Path) -> None:
    with JudgementFile(tmp_path / "scores.jsonl") as kept:

        def add(name: str) -> None:
            for number in range(200):
                kept.add(Judgement(run=f"{name} {number}", competency="c", score=2))

        threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with JudgementFile(tmp_path / "scores.jsonl") as kept:
        assert len(list(kept)) == 800


def test_an_estimate_counts_what_would_be_asked() -> None:
    judged = Judged(verdict(3))
    judging = Judging(judged.model)
    judging.submit(run_of(50))
    assert judging.wait(10)
    estimate = Estimate(FIVE_JUDGES, "m")
    estimate.add(run_of(50))
    asked = sum(-(-sum(len(message.text) for message in one) // 4) for one in judged)
    assert (estimate.questions, estimate.input_tokens) == (5, asked)
    assert estimate.output_tokens == 5 * 150
    estimate.add(run_of(0, task=None))
    estimate.add(run_of(10_000))
    assert (estimate.runs, estimate.not_judged, estimate.cut_runs) == (3, 5, 1)
