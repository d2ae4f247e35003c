"""A trace says where a run would have exceeded any threshold: live runs are stopped there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import drawn_runs
from support.examples import examples
from tidegauge.events import Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import SCORES, Policy, Rule, RunTrace, Threshold, TraceSink
from tidegauge.policies.trace import RULES
from tidegauge.recordings import ContentEncoder, RunLines
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.fingerprint import Normaliser


def traced(
    events: list[drawn_runs.Event], *scores: str, rules: Policy | None = None
) -> dict[str, RunTrace]:
    traces: list[RunTrace] = []
    sink = TraceSink(scores, on_trace=traces.append, rules=rules)
    for event in events:
        drawn_runs.feed(sink, event)
    sink.close()
    return {trace.run: trace for trace in traces}


class Stopped(NamedTuple):
    """Where a live run was stopped: what it had taken and spent by then."""

    steps: int
    tokens: float | None
    seconds: float | None


def stopped_live(events: list[drawn_runs.Event], policy: Policy) -> dict[str, Stopped]:
    """The same events live, under a policy that stops; who is stopped does no more."""
    engine = Engine(clock=None, repetition=policy.thresholds.reads_words)
    sink = EngineSink(engine, policy)
    stopped: dict[str, Stopped] = {}
    for event in events:
        if event.run in stopped:
            continue
        decision = drawn_runs.feed(sink, event)
        if decision is None or not hasattr(decision, "stop") or not decision.stop:
            continue
        assert decision.signals.run == event.run
        run = engine.get(event.run)
        assert run is not None
        timed = run.totals.step_seconds
        stopped[event.run] = Stopped(
            # a call that was about to be run is not
            run.steps - isinstance(event, Step),
            decision.signals.tokens,
            timed.total if sum(timed.counts) else None,
        )
    return stopped


@examples(2)
@given(drawn_runs.runs(), st.sampled_from(sorted(SCORES)), st.data())
def test_a_live_run_is_stopped_where_its_trace_crosses_the_line(events, score, data):
    traces = traced(events, score)
    reached = [rise.value for trace in traces.values() for rise in trace.rises[score]]
    threshold = data.draw(
        st.sampled_from([-0.5, 0.0, *reached, *(value - 0.25 for value in reached)])
    )
    crossings = {run: trace.crossing(score, threshold) for run, trace in traces.items()}
    assert stopped_live(events, Policy((), thresholds=[Threshold(score, threshold, "stop")])) == {
        run: crossing[1:] for run, crossing in crossings.items() if crossing is not None
    }


rules = st.builds(
    Rule,
    st.sampled_from(["loop_repeats", "result_streak", "failed_rounds", "recurrence", "steps"]),
    st.integers(1, 4),
    st.sampled_from(["observe", "nudge", "stop"]),
    agent=st.sampled_from([None, "a"]),
    tool=st.sampled_from([None, None, "search", "wait"]),
)


@examples(2)
@given(drawn_runs.runs(), st.lists(rules, max_size=3, unique_by=lambda rule: rule.signal))
def test_a_live_run_is_stopped_where_the_first_of_its_rules_holds(events, reported):
    traces = traced(events, rules=Policy(reported))
    stopping = Policy([replace(rule, action="stop") for rule in reported])
    assert stopped_live(events, stopping) == {
        run: trace.rises[RULES][0][1:] for run, trace in traces.items() if trace.rises[RULES]
    }


@given(drawn_runs.runs(late=False), st.data())
def test_what_would_have_been_saved_is_what_an_observing_policy_counts(events, data):
    traces = traced(events, "stagnation")
    reached = [rise.value for one in traces.values() for rise in one.rises["stagnation"]]
    threshold = data.draw(st.sampled_from([0.0, *reached]))
    engine = Engine(clock=None, repetition=True)
    sink = EngineSink(engine, Policy((), thresholds=[Threshold("stagnation", threshold)]))
    for event in events:
        drawn_runs.feed(sink, event)
    totals = [group.totals for group in engine.snapshot().groups]
    exceeded = [
        (trace, crossing)
        for trace in traces.values()
        if (crossing := trace.crossing("stagnation", threshold)) is not None
    ]
    assert sum(one.saved_steps for one in totals) == sum(
        trace.steps - crossing.steps for trace, crossing in exceeded
    )
    assert sum(one.saved_tokens for one in totals) == pytest.approx(
        sum((trace.tokens or 0) - (crossing.tokens or 0) for trace, crossing in exceeded)
    )
    assert sum(one.saved_seconds for one in totals) == pytest.approx(
        sum((trace.seconds or 0) - (crossing.seconds or 0) for trace, crossing in exceeded)
    )
    assert sum(one.interventions.get(("would_stop", "stagnation"), 0) for one in totals) == len(
        exceeded
    )


@given(drawn_runs.runs())
def test_a_trace_says_how_the_run_ended_and_what_it_took(events):
    traces = traced(events, "steps", "tokens")
    for run, trace in traces.items():
        own = [event for event in events if event.run == run]
        assert trace.steps == sum(isinstance(event, Step) for event in own)
        assert (trace.success, trace.finished) == (own[-1].success, True)
        assert (trace.agent, trace.task_group) == (own[0].agent, own[0].task_group)
        for rises in trace.rises.values():
            values = [rise.value for rise in rises]
            assert values == sorted(set(values))
        assert trace.highest("tokens") == (
            trace.tokens if trace.tokens is not None else -float("inf")
        )


@given(drawn_runs.runs())
def test_scores_that_are_followed_together_are_those_followed_alone(events):
    together = traced(events, *SCORES)
    for score in ("stagnation", "loop_repeats"):
        alone = traced(events, score)
        assert {run: trace.rises[score] for run, trace in together.items()} == {
            run: trace.rises[score] for run, trace in alone.items()
        }


class Recording(list[bytes]):
    """The lines of a live run's recording."""

    def add(self, line: bytes, once: Iterator[bytes] | None = None) -> None:
        self.extend((line,) if once is None else once)

    def __init__(
        self,
        events: list[drawn_runs.Event],
        *,
        plain: bool,
        normaliser: Normaliser | None = None,
    ) -> None:
        super().__init__()
        engine = Engine(clock=None, repetition=True, normaliser=normaliser)
        contents = ContentEncoder(bytes.hex, plain=plain, normaliser=normaliser)
        lines = RunLines(self, contents, clock=lambda: 0.0)
        sink = EngineSink(engine, Policy(), recording=lines)
        engine._on_finished = sink.run_finished
        for event in events:
            drawn_runs.feed(sink, event)

    def traces(self, *scores: str) -> dict[str, RunTrace]:
        found: list[RunTrace] = []
        sink = TraceSink(scores, on_trace=found.append, exact=True)  # as the live run compared
        replay = Replay(sink)
        for line in read_lines(io.BytesIO(b"\n".join(self) + b"\n")):
            replay.take(line, "recording")
        sink.close()
        assert replay.skipped_lines == 0
        return {trace.run: trace for trace in found}


def without_digits(text: str) -> str:
    return "".join("#" if letter.isdigit() else letter for letter in text)


@given(drawn_runs.runs())
def test_a_recording_of_digests_has_the_traces_of_one_of_contents(events):
    contents, digests = (
        Recording(events, plain=plain, normaliser=without_digits) for plain in (True, False)
    )
    found, expected = digests.traces(*SCORES), contents.traces(*SCORES)
    assert {run: trace.rises for run, trace in found.items()} == {
        run: trace.rises for run, trace in expected.items()
    }


REPORTED_ONCE = ("tokens", "loop_cost_tokens", "loop_cost_seconds")
"""Of a recorded step they are known in one moment, whichever of the two they came in."""


@given(drawn_runs.runs(), st.booleans())
def test_a_recording_has_the_traces_of_the_live_runs(events, plain):
    scores = [score for score in SCORES if score not in REPORTED_ONCE]
    if not plain:
        scores.remove("near_streak")  # read from texts
    live = traced(events, *scores)
    recorded = Recording(events, plain=plain).traces(*scores)

    def moments(traces: dict[str, RunTrace]) -> dict[str, dict[str, list[tuple[float, int]]]]:
        return {
            run: {name: [rise[:2] for rise in rises] for name, rises in trace.rises.items()}
            for run, trace in traces.items()
        }

    assert moments(recorded) == moments(live)
    assert [trace.onset for trace in recorded.values()] == [live[run].onset for run in recorded]
