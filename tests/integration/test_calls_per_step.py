"""Many calls in one turn, few of them distinct: seen as the turn is issued, before any runs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

import tidegauge
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.cli.replay import RecordedRuns
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware
from tidegauge.policies import Policy, Rule
from tidegauge.recordings.line_replay import Replay, read_lines

CALLS, FILES = 200, 8


class Reader:
    """An agent that reads few files in many calls of one turn, then does as it is answered."""

    def __init__(self) -> None:
        self.ran = 0

        @tool
        def read(path: str) -> str:
            """Read a file."""
            self.ran += 1
            return f"text of {path}"

        draw = random.Random(3)
        many = [("read", {"path": f"f{draw.randrange(FILES)}.py"}) for _ in range(CALLS)]

        def script(messages: Any) -> Any:
            return chooses(*many) if turns(messages) == 0 else answers("done")

        self.graph = create_agent(
            ScriptedChatModel(script=script),
            [read],
            name="coder",
            middleware=[TidegaugeMiddleware()],
        )

    def work(self) -> list[Any]:
        state = self.graph.invoke(
            {"messages": [HumanMessage("go")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
        return list(state["messages"])


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            Rule("duplicate_calls", 50, "block"),
            f"{CALLS} calls in one step, {FILES} of them distinct",
        ),
        (Rule("calls_per_step", 100, "block"), f"{CALLS} calls in one step"),
    ],
    ids=lambda one: one.signal if isinstance(one, Rule) else "",
)
def test_a_turn_of_too_many_calls_is_answered_and_not_run(rule: Rule, said: str) -> None:
    with testing.capture(rules=[rule]):
        agent = Reader()
        messages = agent.work()
    results = [one for one in messages if isinstance(one, ToolMessage)]
    assert agent.ran == 0
    assert len(results) == CALLS
    assert said in str(results[0].content)


def test_a_run_is_stopped_before_the_calls_of_such_a_turn() -> None:
    with testing.capture(rules=[Rule("duplicate_calls", 50, "stop")]) as seen:
        agent = Reader()
        agent.work()
        (group,) = seen.pipeline.engine.snapshot().groups
    assert agent.ran == 0
    assert group.totals.interventions == {("stop", "duplicate_calls"): 1}
    assert group.finished.finished == {"stopped": 1}


def test_the_metrics_count_them_and_distinct_calls_are_none() -> None:
    pipeline = tidegauge.configure(serve_metrics=False)
    try:
        Reader().work()
        with tidegauge.run(agent="coder") as run:
            run.act_round([("search", {"q": "a", "n": 1}), ("search", {"n": 1, "q": "a"})])
            run.observe_round([("x", False), ("x", False)])
            run.act_round([("search", {"q": "a"}), ("search", {"q": "b"})])
            text = write_text(pipeline.reader.families()).decode()
    finally:
        pipeline.shutdown()
    duplicates = CALLS - FILES + 1  # the order of arguments does not matter
    assert f'tidegauge_duplicate_calls_total{{agent="coder",task_group=""}} {duplicates}.0' in text
    assert 'tidegauge_highest_calls_per_step{agent="coder",task_group=""} 2.0' in text


def test_a_replay_gives_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    pipeline = tidegauge.configure(serve_metrics=False, record_to=path)
    try:
        with tidegauge.run(agent="coder") as run:
            for calls in ([1, 1, 2], [3], [3, 3, 3, 3]):
                run.act_round([("read", {"n": n}) for n in calls])
                run.observe_round([(str(n), False) for n in calls])
            live = pipeline.engine.snapshot()
    finally:
        pipeline.shutdown()
    replayed = RecordedRuns(Policy())
    replay = Replay(replayed)
    with path.open("rb") as stream:
        for line in read_lines(stream):
            replay.take(line, path.name)
    assert live.groups[0].totals.duplicate_calls == 4
    (report,) = replayed.reports()
    assert (live.groups[0].active[0].calls_per_step_max, report.calls_per_step_max) == (4, 4)
    assert replayed.engine.snapshot().groups[0].totals.duplicate_calls == 4
