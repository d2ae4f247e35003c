"""The language in which runs are chosen."""

from __future__ import annotations

import pytest

from tidegauge.diagnose.recorded_run import Condition
from tidegauge.errors import ConfigurationError

RUN = {
    "agent": "browser",
    "auv": 0.9,
    "loop_ratio": 0.0,
    "loops": 0,
    "success": True,
    "recall_lag": None,
    "task_group": "webarena",
}


def holds(text: str) -> bool:
    return Condition(text, names=RUN).holds(RUN)


@pytest.mark.parametrize(
    "text",
    [
        "auv > 0.8 and loop_ratio == 0",
        "success",
        "not loops",
        "0.5 < auv <= 0.9",
        "agent in ['browser', 'shell']",
        "agent in ('browser',)",
        "agent not in {'shell'}",
        "'arena' in task_group",
        "agent != 'shell' or auv < 0",
        "recall_lag is None",
        "auv is not None",
        "loops > -1",
        "success == True",
        " auv > .8 ",
    ],
)
def test_what_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "auv > 0.95",
        "0.95 < auv < 2",
        "auv > 0.8 and loops",
        "not success",
        "agent == 'shell'",
        "auv is None",
        "'x' in task_group",
    ],
)
def test_what_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    "comparison", ["> 1", "< 1", "== 1", "!= 1", "in [1, 2]", "not in [1, 2]", "== None"]
)
def test_what_was_not_measured_makes_every_comparison_false(comparison: str) -> None:
    assert not holds(f"recall_lag {comparison}")


def test_an_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError) as reported:
        holds("auv > 0.8 and speed > 3")
    assert str(reported.value) == (
        "Unknown field 'speed'; use agent, auv, loop_ratio, loops, recall_lag, success, task_group."
    )


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "auv.__class__",
        "agent[0] == 'b'",
        "auv + 1 > 1",
        "2 ** 99 > auv",
        "[x for x in agent]",
        "(lambda: 1)()",
        "f'{auv}' == ''",
        "auv if success else 0",
        "(auv := 1)",
        "auv is 0.9",
        "b'x' == agent",
        "-agent == 1",
        "*agent, 1",
        "agent in 'x' in {**{}}",
        "...",
        "1j == auv",
    ],
)
def test_nothing_else_is_possible(text: str) -> None:
    with pytest.raises(ConfigurationError):
        holds(text)


@pytest.mark.parametrize("text", ["", "auv >", "auv = 1", "auv > 1; auv", "auv\0 > 1", "a b"])
def test_what_is_no_condition_is_reported_in_one_line(text: str) -> None:
    with pytest.raises(ConfigurationError, match="Invalid condition") as reported:
        holds(text)
    assert "\n" not in str(reported.value)


@pytest.mark.parametrize(
    "text", ["not " * 2_400 + "success", "(" * 4_000, "-" * 9_000 + "1", "1" * 20_000]
)
def test_a_monstrous_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        holds(text)


def test_what_cannot_be_compared_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="Cannot compare agent with 3"):
        holds("agent > 3")
    with pytest.raises(ConfigurationError, match="with loops"):
        holds("agent in loops")
