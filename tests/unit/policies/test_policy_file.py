"""The file of a policy: it is read as it was written, and a broken one is one clear line."""

from __future__ import annotations

import math
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.examples import examples
from support.requirements import needs
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    SCORES,
    Breaker,
    Budget,
    PolicyFile,
    Rule,
    Threshold,
    policy_file,
    read_policy,
    run_mark,
    thresholds,
    write_policy,
)
from tidegauge.streaming_metrics.registry import SIGNALS

odd = st.sampled_from(
    [
        *("", " ", "a", "a.b", 'q"uote', "back\\slash", "new\nline", "tab\t", "\x00", "\x1b[31m"),
        *(
            "ünïcode",
            "東京",
            "👟",
            "#",
            "[[threshold]]",
            "\u2028",
            "\x7f",
            "\x85",
            "'''",
            '"""',
            "true",
            "1",
        ),
    ]
)
names = st.none() | odd | st.text(max_size=20)
shares = st.floats(0, 1, exclude_min=True, exclude_max=True)
lines = st.builds(
    Threshold,
    st.sampled_from(sorted(SCORES)),
    st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False).filter(lambda value: value > -math.inf),
    st.sampled_from(["observe", "nudge", "stop"]),
    agent=names,
    task_group=names,
    runs=st.integers(0, 10**6),
    alpha=st.none() | shares,
)
rules = st.builds(
    Rule,
    st.sampled_from([name for name, one in SIGNALS.items() if one.threshold != "share"]),
    st.integers(1, 10**9),
    st.sampled_from(["observe", "nudge", "stop"]),
    agent=names,
    tool=names,
)
numbers = st.integers(1, 10**9)
windows = st.none() | st.sampled_from(["30s", "1.5h", "1d"]) | numbers
kinds = sorted({"usd", "tokens", "cache_read_tokens", "calls"})
budgets = st.builds(
    Budget,
    st.sampled_from(kinds),
    numbers,
    st.sampled_from(["run", "conversation", "agent"]),
    windows,
    st.sampled_from(["observe", "nudge", "block", "stop"]),
    agent=names,
    nudge_at=st.just(0) | shares,
) | st.builds(Budget, st.just("calls"), numbers, tool=names)
breakers = st.builds(
    Breaker,
    names,
    st.integers(1, 10),
    st.integers(10, 10_000),
    numbers | st.floats(0.1, 1e9),
)
policies = st.builds(
    PolicyFile,
    st.lists(
        rules, max_size=4, unique_by=lambda one: (one.signal, one.action, one.agent, one.tool)
    ),
    st.lists(lines, max_size=4, unique_by=lambda one: (one.score, one.agent, one.task_group)),
    st.floats(0, 1),
    st.none() | st.integers(0, 4 * 10**9).map(float),
    st.frozensets(odd | st.text(max_size=9), max_size=4),
    st.lists(budgets, max_size=3),
    st.lists(breakers, max_size=3),
)


@examples(3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies, st.sampled_from(["", "one line", "two\nlines"]))
def test_what_was_written_is_read(tmp_path: Path, policy: PolicyFile, comment: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(write_policy(policy, comment=comment), encoding="utf-8", newline="")
    found = read_policy(path)
    expected = policy._replace(
        rules=tuple(policy.rules),
        budgets=tuple(policy.budgets),
        breakers=tuple(policy.breakers),
        thresholds=tuple(replace(line, calibrated=policy.calibrated) for line in policy.thresholds),
    )
    assert found == expected
    assert [type(line.threshold) for line in found.thresholds] == [
        type(line.threshold) for line in policy.thresholds
    ]


@pytest.fixture
def broken(tmp_path: Path):
    """The message about a file of that content, which names the file and is one line."""

    def read(content: str | bytes) -> str:
        path = tmp_path / "policy.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ConfigurationError) as reported:
            read_policy(path)
        message = str(reported.value)
        assert message.startswith(f"policy {path}: ")
        assert "\n" not in message
        return message.removeprefix(f"policy {path}: ")

    return read


RULE = "format = 2\n[[rule]]\nsignal = 'steps'\nthreshold = 3\n"
LINE = "format = 2\n[[threshold]]\nscore = 'steps'\nthreshold = 3\n"


def test_the_least_that_a_rule_and_a_threshold_say(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(RULE + LINE.removeprefix("format = 2\n"))
    assert read_policy(str(path)) == PolicyFile((Rule("steps", 3),), (Threshold("steps", 3),))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # no TOML
        (b"\xff\xfe", "not valid TOML: 'utf-8' codec can't decode byte 0xff"),
        ("format 2", "not valid TOML: "),
        ("format = 2\nformat = 2", "not valid TOML: "),
        ("format = 2\ncalibrated = 2026-13-45T00:00:00Z", "not valid TOML: "),
        ("format = 2\nholdout = " + "1" * 5_000, "not valid TOML: "),
        ("format = 2\ncalibrated_on = " + "[" * 5_000, "not valid TOML: "),
        # another format
        ("", "format None is not supported; use format 2, or calibrate again"),
        ("format = 3", "format 3 is not supported; use format 2, or calibrate again"),
        ("format = '2'", "format '2' is not supported; use format 2"),
        ('{"type": "start"}', "not valid TOML: "),
        # what nobody knows
        ("format = 2\nhold_out = 0.1", "the file has the unknown key 'hold_out'"),
        (RULE + "rate = 1", "a rule has the unknown key 'rate'"),
        (LINE + "task = 'x'", "a threshold has the unknown key 'task'"),
        (LINE + '"new\\nline" = 1', r"a threshold has the unknown key 'new\nline'"),
        # the whole
        ("format = 2\nrule = 3", "rule is a number; use a list of tables: [[rule]]"),
        (
            "format = 2\n[threshold]\nscore = 'steps'",
            "threshold is an object; use a list of tables: [[threshold]]",
        ),
        ("format = 2\nthreshold = [1]", "threshold is a list; use a list of tables: [[threshold]]"),
        ("format = 2\ncalibrated = 2026-11-22", "calibrated is not a date with a time"),
        ("format = 2\ncalibrated = 'now'", "calibrated is not a date with a time"),
        ("format = 2\ncalibrated_on = 'r1'", "calibrated_on is a string; use a list of strings"),
        ("format = 2\ncalibrated_on = [1]", "calibrated_on is a list; use a list of strings"),
        ("format = 2\nholdout = 1.5", "holdout is 1.5; use 0 to 1"),
        ("format = 2\nholdout = nan", "holdout is nan; use 0 to 1"),
        ("format = 2\nholdout = '10%'", "holdout is a string; use a number"),
        # rules
        (RULE.replace("signal = 'steps'", ""), "signal is missing"),
        (RULE.replace("threshold = 3", ""), "threshold is missing"),
        (RULE.replace("'steps'", "'stps'"), "unknown signal 'stps'; use one of "),
        (RULE.replace("'steps'", "7"), "signal is a number; use a string"),
        (RULE.replace("3", "'3'"), "threshold is a string; use a number"),
        (RULE.replace("3", "true"), "threshold is a boolean; use a number"),
        (RULE.replace("3", "0"), "the threshold of steps is 0; use at least 1"),
        (RULE.replace("3", "1.5"), "the threshold of steps is 1.5; use a whole number"),
        (RULE.replace("3", "inf"), "the threshold of steps is inf"),
        (RULE.replace("3", "nan"), "the threshold of steps is nan"),
        (RULE.replace("3", "9" * 400), "threshold is too large"),
        (RULE + "action = 'halt'", "unknown action 'halt'"),
        (RULE + "action = 'block'", "steps cannot block, because it names no repeated call"),
        (RULE + "agent = 3", "agent is a number; use a string"),
        (
            RULE + RULE.removeprefix("format = 2\n"),
            "two rules have the same signal, action, agent and tool",
        ),
        # lines
        (LINE.replace("score = 'steps'", ""), "score is missing"),
        (LINE.replace("'steps'", "'stps'"), "unknown score 'stps'; use one of stagnation, "),
        (LINE.replace("threshold = 3", ""), "threshold is missing"),
        (LINE.replace("3", "'3'"), "threshold is a string; use a number"),
        (LINE.replace("3", "false"), "threshold is a boolean; use a number"),
        (LINE.replace("3", "nan"), "the threshold of steps is nan"),
        (LINE.replace("3", "-inf"), "the threshold of steps is -inf"),
        (LINE.replace("3", "9" * 400), "threshold is too large"),
        (LINE + "action = 'block'", "a threshold has no action 'block'"),
        (LINE + 'action = "st\\nop"', r"a threshold has no action 'st\nop'"),
        (LINE + "alpha = 0", "alpha is 0; use more than 0 and less than 1"),
        (LINE + "alpha = nan", "alpha is nan; use more than 0 and less than 1"),
        (LINE + "alpha = '5%'", "alpha is a string; use a number"),
        (LINE + "runs = 1.5", "runs is a number; use a whole number"),
        (LINE + "runs = inf", "runs is a number; use a whole number"),
        (LINE + "runs = -1", "runs is -1; use at least 0"),
        (
            LINE + "score_version = 0",
            "score_version of steps is 0, but this tidegauge computes version 1; calibrate",
        ),
        (
            LINE + "score_version = '1'",
            "score_version of steps is '1', but this tidegauge computes version 1",
        ),
        (
            LINE + LINE.removeprefix("format = 2\n"),
            "two thresholds have the same score, agent and task group",
        ),
    ],
)
def test_a_broken_file_is_one_clear_line(broken: Any, content: str | bytes, message: str) -> None:
    assert message in broken(content)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^policy .*none\.toml: No such file"):
        read_policy(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match=r"^policy .*: Is a directory"):
        read_policy(tmp_path)


def test_a_file_that_is_too_long_is_not_read(broken: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(policy_file, "_MAX_MEGABYTES", 1)
    assert broken(b"#" * (1 << 20) + b"\n") == "larger than 1 MiB; give the path of a policy file"


def test_a_line_of_a_score_that_is_reckoned_in_another_way_is_outdated(
    broken: Any, monkeypatch: Any
) -> None:
    text = write_policy(PolicyFile(thresholds=(Threshold("steps", 3),)))
    monkeypatch.setattr(
        thresholds, "SCORES", {**SCORES, "steps": replace(SCORES["steps"], version=2)}
    )
    assert (
        broken(text)
        == "score_version of steps is 1, but this tidegauge computes version 2; calibrate again"
    )


@needs(hasattr(os, "mkfifo"), "this platform has no named pipes")
def test_a_pipe_is_refused_and_nobody_waits_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.toml")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_policy, tmp_path / "p.toml")
        try:
            with pytest.raises(ConfigurationError, match=r"policy .*p\.toml: not a regular file"):
                reading.result(5)
        finally:  # lets a thread go that waits for a writer
            os.close(os.open(tmp_path / "p.toml", os.O_RDWR | os.O_NONBLOCK))


def test_a_device_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a regular file"):
        read_policy(os.devnull)


def test_a_line_above_which_nothing_can_be_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(LINE.replace("3", "inf"))
    [line] = read_policy(tmp_path / "p.toml").thresholds
    assert line.threshold == math.inf


def test_a_line_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    text = write_policy(PolicyFile(thresholds=(Threshold("tokens", np.float64(1) / 3),)))
    (tmp_path / "p.toml").write_text(text)
    assert read_policy(tmp_path / "p.toml").thresholds[0].threshold == 1 / 3


@pytest.mark.parametrize(
    "text",
    ["2026-11-22T09:00:00Z", "2026-11-22T10:00:00+01:00", "2026-11-22T09:00:00"],
)
def test_a_time_without_a_zone_is_of_utc(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.toml").write_text(LINE.replace("2\n", f"2\ncalibrated = {text}\n", 1))
    found = read_policy(tmp_path / "p.toml")
    assert found.calibrated == found.thresholds[0].calibrated == 1795338000.0


def test_the_text_is_toml_for_people() -> None:
    text = write_policy(
        PolicyFile(
            (Rule("loop_repeats", 3, "nudge", tool="click"),),
            (Threshold("stagnation", 31.5, "stop", "a", "shop", runs=120, alpha=0.05),),
            0.1,
            1795338000.9,
            frozenset([run_mark("r2"), run_mark("r1")]),
        ),
        comment="Written by hand.",
    )
    assert text.startswith("# Written by hand.\n\nformat = 2\ncalibrated = 2026-11-22T09:00:00Z\n")
    document = tomllib.loads(text)
    assert document["calibrated_on"] == sorted([run_mark("r1"), run_mark("r2")])
    assert document["rule"] == [
        {"signal": "loop_repeats", "threshold": 3, "action": "nudge", "tool": "click"}
    ]
    assert document["threshold"] == [
        {
            "score": "stagnation",
            "score_version": SCORES["stagnation"].version,
            "agent": "a",
            "task_group": "shop",
            "threshold": 31.5,
            "action": "stop",
            "runs": 120,
            "alpha": 0.05,
        }
    ]


def test_a_mark_distinguishes_runs_and_says_nothing_else_of_them() -> None:
    marks = {run_mark(f"run-{n}") for n in range(1_000)} | {run_mark("odd \udc80")}
    assert len(marks) == 1_001
    assert all(len(mark) == 8 and int(mark, 16) >= 0 for mark in marks)
