"""``tidegauge judge``: recordings in, judgements out, and what they cost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import langchain.chat_models
import pytest
from scipy import stats

from support.judged_runs import Judged, verdict
from tidegauge.diagnose.judges.rubric_judge import COMPETENCIES

Write = Callable[..., str]
Tidegauge = Callable[..., Any]


def recorded(*runs: str, steps: int = 2, **started: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for run in runs:
        events.append({"type": "start", "run": run, "task": "find the order", **started})
        events += [
            {"type": "step", "run": run, "action": "open", "args": {"page": n}, "outcome": f"p{n}"}
            for n in range(steps)
        ]
        events.append({"type": "end", "run": run, "success": True})
    return events


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judged]:
    """Have the command's model answer so: no provider's package is here to be asked."""

    def asks(*script: Any) -> Judged:
        judged = Judged(*script)
        monkeypatch.setattr(langchain.chat_models, "init_chat_model", lambda name: judged.model)
        return judged

    return asks


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def test_every_competency_of_every_run_has_a_line(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    reported = asks(verdict(2))
    runs = write(*recorded("a", "b"), {"type": "start", "run": "unfinished"})
    ran = tidegauge("judge", runs, "--model", "p:m", "-o", "s.jsonl", "--price", "3,15")
    assert ran.code == 0
    found = lines("s.jsonl")
    assert {(one["run"], one["competency"], one["model"]) for one in found} == {
        (run, competency, "p:m") for run in ("a", "b", "unfinished") for competency in COMPETENCIES
    }
    assert len(found) == 15
    scores = {one["run"]: one["score"] for one in found}
    assert scores == {"a": 2, "b": 2, "unfinished": None}
    # 8 good answers, and backtracking's: all reported (100, 20) tokens
    assert len(reported) == 10
    assert "10 scores, 4 no_steps, 1 no_task" in ran.err
    assert "1,000 tokens in, 200 out; price 0.01" in ran.err
    assert ran.out == ""


def test_the_same_call_again_goes_on_where_it_ended(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    first = asks(verdict(2))
    runs = write(*recorded("a"))
    options = ("--model", "p:m", "-o", "s.jsonl")
    assert tidegauge("judge", runs, *options, "--competency", "self_verification").code == 0
    assert len(first) == 1
    second = asks(verdict(2))
    assert tidegauge("judge", write(*recorded("a", "b")), *options).code == 0
    assert len(second) == 9
    third = asks(verdict(2))
    ran = tidegauge("judge", runs, *options)
    assert (ran.code, len(third)) == (0, 0)
    assert "nothing to judge" in ran.err


def test_the_original_view_shows_no_observations(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    runs = write(*recorded("a"))
    options = ("--model", "p:m", "-o", "s.jsonl", "--competency", "self_verification")
    asked = {}
    for view in ("whole", "original"):
        asked[view] = asks(verdict(2))
        assert tidegauge("judge", runs, *options, "--view", view).code == 0
    [[whole_rules, whole]], [[rules, original]] = asked["whole"], asked["original"]
    assert '"arguments":{"page":1}' in str(original.content)
    assert '"result":"p1"' in str(whole.content)
    assert "p1" not in str(original.content)
    assert "came back is not shown" in str(rules.content)
    assert "came back is not shown" not in str(whole_rules.content)
    # both are in the file, and each is judged once
    assert [one["rubric_version"] for one in lines("s.jsonl")] == ["1.1", "1.1 original"]
    again = asks(verdict(2))
    assert tidegauge("judge", runs, *options, "--view", "original").code == 0
    assert len(again) == 0


def test_without_a_file_lines_are_printed(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    asks(verdict(4))
    ran = tidegauge(
        "judge",
        "-",
        "--model",
        "p:m",
        "--competency",
        "self_verification",
        stdin=Path(write(*recorded("a"))).read_bytes(),
    )
    [line] = ran.out.splitlines()
    assert json.loads(line)["score"] == 4


def test_a_dry_run_asks_nothing_and_writes_nothing(tidegauge: Tidegauge, write: Write) -> None:
    # no model is replaced here: one that had to be made would fail
    runs = write(*recorded("a", "b"), *recorded("long", steps=5_000))
    ran = tidegauge(
        "judge", runs, "--model", "p:m", "-o", "s.jsonl", "--dry-run", "--price", "3,15"
    )
    assert ran.code == 0
    rows = {line[:18].strip(): line[18:] for line in ran.out.splitlines()}
    assert rows["runs"] == "3 (1 with steps left out)"
    assert rows["prompts"] == "15"
    assert rows["judged before"] == "0"
    tokens = int(rows["tokens in, about"].split()[0].replace(",", ""))
    assert 70_000 < tokens < 100_000  # four records of nearly 20,000 tokens, and the small ones
    assert "(4 characters each)" in rows["tokens in, about"]
    assert rows["tokens out, about"] == "2,250 (150 an answer)"
    assert rows["price, about"] == f"{(tokens * 3 + 2_250 * 15) / 1e6:,.2f}"
    assert not Path("s.jsonl").exists()


def test_a_dry_run_needs_no_model(tidegauge: Tidegauge, write: Write) -> None:
    ran = tidegauge("judge", write(*recorded("a")), "--dry-run", "-o", "s.jsonl")
    assert (ran.code, ran.err) == (0, "")
    assert "prompts           5" in ran.out
    assert "judged before" not in ran.out  # it depends on the model
    assert not Path("s.jsonl").exists()


def test_a_dry_run_knows_what_was_judged(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    asks(verdict(2))
    runs = write(*recorded("a"))
    tidegauge("judge", runs, "--model", "p:m", "-o", "s.jsonl")
    ran = tidegauge("judge", runs, "--model", "p:m", "-o", "s.jsonl", "--dry-run")
    assert "prompts           0\n  judged before   5" in ran.out


def test_agreement_with_people(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    scores, labels = [1, 2, 2, 3, 4], [2, 1, 3, 3, 4]
    asks(*(verdict(score) for score in scores))
    runs = write(*recorded(*"abcde"))
    reported = [
        {"run": run, "competency": "self_verification", "score": label}
        for run, label in zip("abcde", labels, strict=True)
    ]
    reported += [{"run": run, "competency": "task_decomposition", "score": 3} for run in "abc"]
    reported.append(
        {"run": "e", "competency": "self_verification", "score": None, "note": "unsure"}
    )
    people = write(*reported[:-1], name="labels.jsonl")
    options = ("-o", "s.jsonl", "--against", people)
    ran = tidegauge(
        "judge",
        runs,
        "--model",
        "p:m",
        "--concurrency",
        "1",
        "--competency",
        "self_verification",
        *options,
    )
    assert ran.code == 0
    expected = [
        f"{correlation(scores, labels).statistic:.2f}"
        for correlation in (stats.pearsonr, stats.spearmanr, stats.kendalltau)
    ]
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines()}
    assert rows["self_verification"] == ["5", *expected]
    assert rows["task_decomposition"] == ["0", "-", "-", "-"]
    assert rows["mean"] == expected

    later = tidegauge("judge", *options)  # without runs, nothing is asked
    assert (later.code, later.out) == (0, ran.out)

    write(*reported, name="labels.jsonl")  # the last label of a run counts
    rows = {
        line.split()[0]: line.split()[1:] for line in tidegauge("judge", *options).out.splitlines()
    }
    assert rows["self_verification"][0] == "4"


def test_scores_of_two_models_are_not_mixed(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    asks(verdict(2))
    runs = write(*recorded("a"))
    for model in ("p:small", "p:large"):
        tidegauge("judge", runs, "--model", model, "-o", "s.jsonl")
    people = write({"run": "a", "competency": "self_verification", "score": 2}, name="l.jsonl")
    ran = tidegauge("judge", "-o", "s.jsonl", "--against", people)
    assert ran.code == 2
    assert "the scores are of several models; set --model to one of p:large, p:small" in ran.err
    ran = tidegauge("judge", "-o", "s.jsonl", "--against", people, "--model", "p:small")
    assert ran.out.split()[-5:] == ["self_verification", "1", "-", "-", "-"]


OWN_JUDGE = """
from tidegauge.diagnose.judges.rubric_judge import Verdict

class Brevity:
    name = "brevity"
    competency = "brevity"
    rubric_version = "1"

    def ask(self, transcript):
        return Verdict(4 if transcript.steps_taken < 5 else 1, "as long as it was")

    def read(self, answer, transcript):
        raise NotImplementedError

no_judge = object()
"""


def test_a_judge_of_ones_own(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged], tmp_path: Path
) -> None:
    reported = asks(verdict(2))
    (tmp_path / "my_judges.py").write_text(OWN_JUDGE)
    runs = write(*recorded("a"))
    options = ("--model", "p:m", "-o", "s.jsonl")
    assert tidegauge("judge", runs, *options, "--judge", "my_judges:Brevity").code == 0
    [line] = lines("s.jsonl")
    assert (line["competency"], line["score"], reported) == ("brevity", 4, [])
    for place, why in (
        ("my_judges:no_judge", "it has no name, competency, rubric_version, ask, read"),
        ("my_judges:nobody", "has no attribute 'nobody'"),
        ("nowhere:at_all", "No module named 'nowhere'"),
    ):
        ran = tidegauge("judge", runs, *options, "--judge", place)
        assert ran.code == 2
        assert why in ran.err


def test_what_is_missing_or_wrong_is_one_line(tidegauge: Tidegauge, write: Write) -> None:
    runs = write(*recorded("a"))
    for arguments, why in (
        ((), "give a FILE to judge"),
        ((runs,), "set --model PROVIDER:NAME"),
        (("--against", runs), "--against needs the file of the scores; set --out FILE"),
        ((runs, "--model", "nobody:nothing"), "nobody"),
        ((runs, "--model", "mistralai:large"), "langchain-mistralai"),
        ((runs, "--model", "p:m", "--competency", "wit"), "Unknown competency 'wit'"),
        ((runs, "--model", "p:m", "--price", "3"), "as in 3,15"),
        ((runs, "--model", "p:m", "--price", "-1,3"), "use 0 or more"),
        ((runs, "--model", "p:m", "--dry-run", "--max-tokens", "3"), "max-tokens"),
    ):
        ran = tidegauge("judge", *arguments)
        assert ran.code == 2, arguments
        assert why in ran.err
        assert "Traceback" not in ran.err


def test_faults_of_a_recording_are_reported_and_the_rest_is_judged(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    asks(verdict(2))
    runs = write(b"nonsense", *recorded("a"), *recorded("a"))
    options = ("--model", "p:m", "--competency", "self_verification", "-o", "s.jsonl")
    ran = tidegauge("judge", runs, "missing.jsonl", *options)
    assert ran.code == 1
    assert "runs.jsonl:1:" in ran.err
    assert "missing.jsonl: No such file" in ran.err
    assert "skipped 1 runs that have the id of an earlier run: a" in ran.err
    assert len(lines("s.jsonl")) == 1
    assert tidegauge("judge", runs, *options, "--strict").code == 2


def test_a_disk_that_is_full_ends_it(
    tidegauge: Tidegauge, write: Write, asks: Callable[..., Judged]
) -> None:
    asks(verdict(2))
    runs = write(*recorded(*(f"r{n}" for n in range(50))))
    ran = tidegauge("judge", runs, "--model", "p:m", "-o", "/dev/full")
    assert ran.code == 1
    assert "No space left" in ran.err


@pytest.mark.parametrize("missing", ["pydantic", "langchain_core", "langchain", "scipy"])
def test_what_is_not_installed_is_reported_with_what_to_install(
    missing: str, write: Write, tmp_path: Path
) -> None:
    runs = write(*recorded("a"))
    people = write({"run": "a", "competency": "self_verification", "score": 2}, name="l.jsonl")
    arguments = (
        ["judge", "-o", "s.jsonl", "--against", people]
        if missing == "scipy"
        else ["judge", runs, "--model", "p:m"]
    )
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from tidegauge.cli.main import main\nmain({arguments!r})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    [errors] = ran.stderr.splitlines()
    assert re.fullmatch(
        r"tidegauge: [\w.]+ is not installed: pip install '\.\[judge\]' in a clone", errors
    )


@pytest.mark.parametrize(
    "option",
    [
        ("--timeout", "nan"),
        ("--timeout", "inf"),
        ("--requests-per-minute", "nan"),
        ("--price", "inf,1"),
        ("--price", "1,nan"),
    ],
)
def test_what_is_no_finite_number_is_refused(
    tidegauge: Tidegauge, write: Write, option: tuple[str, str]
) -> None:
    ran = tidegauge("judge", write(*recorded("a")), "--model", "p:m", "--dry-run", *option)
    assert ran.code == 2
    assert option[0] in ran.err
