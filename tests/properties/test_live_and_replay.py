"""A live run and the replay of its recording give identical numbers, whatever happens in it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.cli.replay import RecordedRuns
from tidegauge.events import (
    ABSENT,
    Answer,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
)
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Rule
from tidegauge.recordings import ContentEncoder, RunLines
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine, RunReport
from tidegauge.streaming_metrics.normalise import volatile

NOT_REPLAYED = {
    # what a policy did is not in a recording, and neither are the spans
    *("intervention", "intervention_step", "intervention_reason"),
    *("saved_steps", "saved_tokens", "saved_seconds", "trace_id"),
    "place",  # a digest there
    "loop_since",  # the time of the process, where events have none
}
OF_TEXTS = {"near_streak", "near_streak_max"}
"""What is read from texts, and absent where only digests are known."""
LADDER = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 3, "block"),
    Rule("loop_repeats", 5, "stop"),
    Rule("steps", 30, "stop"),
    Rule("turn_loop_repeats", 4, "stop"),
    Rule("answer_streak", 9, "stop"),
]
DECLARATIONS = {
    "wait": ToolDeclaration(poll=2),
    "watch": ToolDeclaration(poll=timedelta(seconds=3)),
    "list": ToolDeclaration(key=lambda arguments: arguments["q"]),  # fails on most
    "write": ToolDeclaration(mutates=True),
}


def without_digits(text: str) -> str:
    return "".join("#" if letter.isdigit() else letter for letter in text)


class Recording:
    """A live sink, what it measured, and the lines that were written."""

    def __init__(self, *, plain: bool, policy: Policy | None = None, **engine: Any) -> None:
        self.lines: list[bytes] = []
        self.reports: list[RunReport] = []
        self.normaliser = engine.get("normaliser")
        self.engine = Engine(on_finished=self._finished, **engine)
        contents = ContentEncoder(bytes.hex, plain=plain, normaliser=engine.get("normaliser"))
        lines = RunLines(self, contents, declarations=engine.get("declarations"))
        self.sink = EngineSink(self.engine, policy or Policy(), recording=lines)

    def add(self, line: bytes, once: Iterator[bytes] | None = None) -> None:
        self.lines.extend((line,) if once is None else once)

    def _finished(self, report: RunReport) -> None:
        self.reports.append(report)
        self.sink.run_finished(report)

    def replayed(self) -> list[RunReport]:
        # A function of the user's was applied before: what it left is compared exactly.
        runs = RecordedRuns(
            Policy(), normaliser="volatile" if self.normaliser is volatile() else None
        )
        faults: list[object] = []
        replay = Replay(runs, on_fault=faults.append)
        for line in read_lines(io.BytesIO(b"\n".join(self.lines) + b"\n")):
            replay.take(line, "recording")
        assert faults == []
        return runs.reports()


def numbers(report: RunReport) -> Mapping[str, object]:
    return {key: value for key, value in report.as_dict().items() if key not in NOT_REPLAYED}


def written(value: Any) -> Any:
    """A text, or several, as JSON has them."""
    if isinstance(value, tuple):
        return tuple(written(one) for one in value)
    return str(value).replace("\udc80", "\\udc80")


def by_run(reports: list[RunReport]) -> list[Mapping[str, object]]:
    return [numbers(report) for report in sorted(reports, key=lambda report: report.run)]


amounts = st.sampled_from([None, None, 0.5, 3, -1.0, float("nan"), float("inf"), 2.0**60])
contents = st.sampled_from(
    [
        *("took 3 ms", "took 4 ms", "took 3 ms, 4 of 9", '{"took": 3, "pid": 4}'),
        *("a", "b", "12", "13", "", "null", None, 1, 1.0, 12, True, [1, "x"], {"q": 1, "a": [2]}),
        *('{"q": 1, "a": [2]}', "\udc80", float("nan"), 10**30, b"raw", {3: {"\udc80": 1}}, {1, 2}),
    ]
)
calls = st.builds(
    Call,
    st.sampled_from(["look", "wait", "watch", "list", "write", "odd \udc80"]),
    st.sampled_from([None, {"q": 1}, {"q": 1, "n": 7}, '{"q": 1}', "12", "13", {"\udc80": 1}]),
    st.sampled_from(
        [None] * 5 + [ToolDeclaration(poll=True), ToolDeclaration(key=lambda _: "same")]
    ),
)
places = st.sampled_from(["a/1", "a/2", "b/1", ("x", 1), ("x", 1.0), ("x", True), 5, None])
exits = st.none() | st.lists(places.filter(bool), max_size=3).map(tuple)
entities = st.lists(st.sampled_from(["key", "door", (1, 2), (1.0, 2)]), max_size=2).map(tuple)
tasks = st.lists(
    st.builds(Task, st.sampled_from("stu"), st.sampled_from([(), (("s",),), (("s",), ("t",))])),
    max_size=2,
).map(tuple)
errors = st.sampled_from([None, True, False])
moments = st.sampled_from([None, None, None, 1_000.0, 1_002.5, 1_001.0])


@st.composite
def steps(draw):
    """A step of a script, of which a run takes the same few again and again."""
    reported = tuple(draw(st.lists(calls, min_size=1, max_size=3)))
    result = st.builds(CallResult, contents | st.just(ABSENT), errors)
    results = tuple(draw(st.lists(result, min_size=len(reported), max_size=len(reported))))
    where = draw(st.booleans())
    step = Step(
        "",
        reported,
        draw(st.just(ABSENT) | contents),
        draw(amounts),
        draw(amounts),
        draw(entities),
        draw(entities),
        draw(moments),
        blockable=draw(st.booleans()),
    )
    outcome = Outcome(
        "",
        results,
        None,
        draw(places) if where else None,
        draw(exits) if where else None,
        draw(tasks) if where else (),
        draw(st.sampled_from([(), (), ("s",)])),
        draw(st.sampled_from([None, 0.25, 1, -3, 7, float("nan")])),
        draw(amounts),
        draw(amounts),
        draw(moments),
    )
    return step, outcome


ANSWERS = (
    Answer("", "Thank you!", "welcome", 3, 10),
    Answer("", " Thank\nyou! ", "welcome", 3, 2.5),
    Answer("", "Thank you!", "welcome", 4),
    Answer("", [{"type": "text", "text": "took 3 ms"}], tokens=float("nan")),
    Answer("", "", {"q": 1}, 1, time=1_000.0),
)


@st.composite
def scripts(draw):
    """What happens: (run, which step to issue) or (run, how many steps back to observe)."""
    kinds = draw(st.lists(steps(), min_size=1, max_size=4))
    run = st.sampled_from(["r", "s", "run \udc80"])
    issue = st.tuples(run, st.just("issue"), st.integers(0, len(kinds) - 1))
    both = st.tuples(run, st.just("both"), st.integers(0, len(kinds) - 1))
    observe = st.tuples(run, st.just("observe"), st.integers(1, 3))
    end = st.tuples(run, st.just("end"), st.integers(0, 4))
    say = st.tuples(run, st.just("say"), st.integers(0, len(ANSWERS) - 1))
    kinds_of_events = (issue, both, both, both, observe, observe, say, end)
    events = draw(st.lists(st.one_of(kinds_of_events), max_size=40))
    times = draw(st.sampled_from([1, 1, 3]))
    starts = {
        name: draw(
            st.builds(
                RunStarted,
                run=st.just(name),
                agent=st.just("a"),
                task=st.sampled_from([None, "a", "12"]),
                memory=st.sampled_from([None, "on"]),
                t_max=st.sampled_from([None, 9]),
                place=st.none() | places,
                exits=exits,
                tasks=tasks,
                goal=st.sampled_from([None, "t"]),
                reach=st.sampled_from(["adjacent", "anywhere"]),
            )
        )
        for name in ("r", "s", "run \udc80")
    }
    return starts, kinds, events * times


def happens(script: Any, sink: EngineSink) -> None:
    starts, kinds, events = script
    last: dict[str, int] = {}
    for run, what, number in events:
        if what == "end":
            success, outcome = [
                (True, None),
                (False, None),
                (None, None),
                (None, "error"),
                (None, "stopped"),
            ][number]
            sink.run_ended(RunEnded(run=run, success=success, outcome=outcome))
            last.pop(run, None)
            continue
        if run not in last:
            sink.run_started(starts[run])
            last[run] = -1
        if what == "say":
            decision = sink.answered(ANSWERS[number]._replace(run=run))
            if decision.stop:
                sink.run_ended(RunEnded(run=run, outcome="stopped", reason=decision.reason))
                last.pop(run)
            continue
        if what == "observe":
            if last[run] >= 0:
                step, outcome = kinds[number % len(kinds)]
                sink.step_observed(outcome._replace(run=run, step=max(last[run] + 1 - number, 0)))
            continue
        step, outcome = kinds[number]
        decision = sink.step_issued(step._replace(run=run))
        last[run] += 1
        if what == "both" and not decision.block and not decision.stop:
            decision = sink.step_observed(outcome._replace(run=run))
        if decision.stop:
            sink.run_ended(RunEnded(run=run, outcome="stopped", reason=decision.reason))
            last.pop(run)


LOOK = Call("look", None)
TOO_FEW_RESULTS = (
    {"r": RunStarted(run="r", agent="a")},
    [
        (Step("", (LOOK,)), Outcome("", (CallResult("a"),))),
        (
            Step("", (LOOK,) * 3),
            Outcome("", (CallResult("a"), CallResult(ABSENT), CallResult(ABSENT))),
        ),
        (Step("", (LOOK,)), Outcome("", (CallResult("a"),))),
    ],
    [("r", "issue", 1), ("r", "both", 1), ("r", "observe", 2)],
)
"""One result for three calls, beside the same result with two that are absent."""


@pytest.mark.usefixtures("faults_are_swallowed")  # a tool's key fails
@pytest.mark.parametrize("plain", [False, True], ids=["digests", "contents"])
@example(script=TOO_FEW_RESULTS, policy=(), normaliser=None, declarations={})
@given(
    script=scripts(),
    policy=st.sampled_from([(), LADDER]),
    normaliser=st.sampled_from([None, volatile(), without_digits]),
    declarations=st.sampled_from([{}, DECLARATIONS]),
)
def test_a_replay_has_the_numbers_of_the_live_run(
    plain: bool, script: Any, policy: Any, normaliser: Any, declarations: Any
) -> None:
    live = Recording(
        plain=plain, policy=Policy(policy), normaliser=normaliser, declarations=declarations
    )
    happens(script, live.sink)
    for run in live.engine.snapshot().active:
        live.sink.run_ended(RunEnded(run=run.run))
    absent = {} if plain else dict.fromkeys(OF_TEXTS)
    assert by_run(live.replayed()) == [
        {
            **numbers,
            **absent,
            "run": written(numbers["run"]),
            "loop_tools": written(numbers["loop_tools"]),
        }
        for numbers in by_run(live.reports)
    ]
