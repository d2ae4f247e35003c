"""Guards of other projects, by hand; tests/frameworks compares them with the originals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegauge.events import ABSENT, Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.policies import RunTrace, TraceSink
from tidegauge.policies.foreign_guards import FOREIGN_GUARDS, GuardedCall, loopbrake_score

A, B = GuardedCall("read", "a", "1", False), GuardedCall("read", "b", "2", False)
FAILED = GuardedCall("read", "a", "no", True)


def fires(name: str, calls: list[GuardedCall]) -> int | None:
    """The first call, from 1, at which it stops the run."""
    numbers = FOREIGN_GUARDS[name].read(calls)
    assert len(numbers) == len(calls)
    return next((place for place, number in enumerate(numbers, 1) if number), None)


@pytest.mark.parametrize(
    ("name", "calls", "at"),
    [
        ("identical_3", [A, A, B, A, A, A, A], 6),
        ("identical_5", [A] * 4 + [B] + [A] * 5, 10),
        ("identical_5", [A, B] * 10, None),
        ("openhands", [A] * 4, 4),
        ("openhands", [A, A, A, A._replace(result="other"), A], None),
        ("openhands", [FAILED._replace(result=str(n)) for n in range(5)], 4),
        ("openhands", [A._replace(result=str(n)) for n in range(9)], None),
        ("openhands", [A, B] * 3, 6),
        ("openhands", [A, B, FAILED] * 5, None),
        ("gemini_cli", [A] * 5, 5),
        ("gemini_cli", [B, *[A, B] * 5], 10),  # also from the first one on
        ("gemini_cli", [A, B, FAILED._replace(arguments="c")] * 5, 15),
        ("gemini_cli", [GuardedCall(str(n % 6), "") for n in range(60)], None),
        ("loopbrake_fixed", [A, B, A, B, A], 5),
        ("loopbrake_fixed", [GuardedCall(str(n), "") for n in range(30)], 21),
    ],
)
def test_where_it_stops(name: str, calls: list[GuardedCall], at: int | None) -> None:
    assert fires(name, calls) == at


def test_scores_of_loopbrake() -> None:
    calls = [
        GuardedCall("run", "test one", "collected 3\nfailed"),
        GuardedCall("run", "test two", "collected 12\nsyntax error"),
        GuardedCall("run", "test two", "collected 4\nsyntax error"),
    ]
    assert loopbrake_score(calls, "fuzzy") == pytest.approx([0, 2 / 4, 0.9 * 2 / 4 + 1])
    assert loopbrake_score(calls, "stale") == pytest.approx([0, 1 / 2, 0.45 + 1])
    assert loopbrake_score(calls, "errors") == pytest.approx([0, 0, 1])
    assert loopbrake_score(calls, "max") == pytest.approx([0, 1 / 2, 0.45 + 1])
    assert loopbrake_score(calls, "mean", 0) == pytest.approx([0, 1 / 3, 1])
    assert loopbrake_score(calls, "loop", 1) == pytest.approx([0, 1 / 4, 1 / 4 + 1])
    assert FOREIGN_GUARDS["loopbrake_exact"].read(calls) == [1, 1, 2]


@pytest.mark.parametrize("name", FOREIGN_GUARDS)
def test_a_number_does_not_depend_on_what_comes_after(name: str) -> None:
    calls = [A, B, A, A, A, A, A, FAILED, FAILED, FAILED, FAILED, B, A, B, A, B, A]
    guard = FOREIGN_GUARDS[name]
    whole = list(guard.read(calls))
    for end in range(len(calls) + 1):
        assert list(guard.read(calls[:end])) == whole[:end]


def traced(guards: list[str], steps: Iterator[tuple[str, object, object]]) -> RunTrace:
    traces: list[RunTrace] = []
    sink = TraceSink(["steps"], on_trace=traces.append, guards=guards)
    sink.run_started(RunStarted(run="r"))
    for action, arguments, outcome in steps:
        sink.step_issued(Step("r", (Call(action, arguments),), tokens=10))
        if outcome != "never":
            sink.step_observed(Outcome("r", (CallResult(outcome, False),)))
    sink.run_ended(RunEnded(run="r", success=True))
    [trace] = traces
    return trace


def test_a_trace_has_the_moment_of_each() -> None:
    trace = traced(
        ["identical_3", "openhands"], iter([("look", {"at": 1}, "nothing")] * 4 + [("a", 1, 2)])
    )
    [below, above] = trace.rises["identical_3"]
    # before the third call runs: two steps were taken, and three were chosen
    assert (below.value, above) == (0, (1, 2, 30, above.seconds))
    above = trace.crossing("openhands", 0)
    assert above is not None
    assert (above.steps, above.tokens) == (4, 40)
    assert trace.crossing("identical_3", 1) is None


def test_a_call_without_a_result_is_no_part_of_what_is_decided_with_results() -> None:
    steps = [("look", None, "nothing")] * 3 + [("look", None, "never")]
    trace = traced(["identical_3", "openhands"], iter(steps))
    assert trace.crossing("identical_3", 0) is not None
    assert trace.crossing("openhands", 0) is None
    assert trace.crossing("openhands", -1) is not None


def test_a_result_that_is_absent_is_not_an_empty_one() -> None:
    steps = [("look", None, "")] * 2 + [("look", None, ABSENT)] * 2
    assert traced(["openhands"], iter(steps)).crossing("openhands", 0) is None


def test_of_digests_there_is_only_what_compares_whole_contents() -> None:
    names = ["openhands", "loopbrake_exact", "loopbrake_fuzzy"]
    trace = traced(names, iter([("look", "sha:12", "sha:34")] * 4))
    assert trace.crossing("openhands", 0) is not None
    assert trace.highest("loopbrake_exact") == 4
    assert trace.rises["loopbrake_fuzzy"] == []
