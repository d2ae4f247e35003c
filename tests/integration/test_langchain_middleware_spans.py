"""The middleware under others' instrumentations: our span processor reports the run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

import tidegauge
from support.other_spans import instrumented
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeMiddleware, stopped_by
from tidegauge.policies import Rule

TASK: dict[str, Any] = {"messages": [("user", "open the door")]}
NUDGED, STOPPED = 2, 4  # steps; the loop is from the second one on
RULES = [
    Rule("loop_repeats", 1, "nudge"),
    Rule("loop_repeats", 2, "block"),
    Rule("loop_repeats", 3, "stop"),
]
OTHERS = ["openinference", "openllmetry", "otel-genai"]


class Looping:
    """An agent that pushes on; what its model was shown and its tool was given."""

    def __init__(self, middleware: TidegaugeMiddleware) -> None:
        self.shown: list[Sequence[BaseMessage]] = []
        self.pushed: list[str] = []

        @tool
        def push(door: str) -> str:
            """Push a door."""
            self.pushed.append(door)
            return "it does not move"

        model = ScriptedChatModel(script=self._say)
        self.agent = create_agent(model, [push], name="porter", middleware=[middleware])

    def _say(self, messages: Sequence[BaseMessage]) -> AIMessage:
        self.shown.append(messages)
        if turns(messages) > 10:
            return answers("no way")
        return chooses(("push", {"door": "red"}))

    def nudged(self) -> list[int]:
        reported = [str(shown[-1].content) for shown in self.shown]
        return [
            turn for turn, text in enumerate(reported) if text.startswith("You make no progress")
        ]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("other", OTHERS)
async def test_an_agent_that_others_trace_is_nudged_and_stopped(
    other: str, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with testing.capture(rules=RULES) as seen, instrumented(monkeypatch, other) as processor:
        porter = Looping(TidegaugeMiddleware(spans=processor))
        with caplog.at_level(logging.WARNING, "tidegauge"):
            if way == "invoke":
                result = porter.agent.invoke(TASK)
            else:
                result = await porter.agent.ainvoke(TASK)
        (group,) = seen.pipeline.engine.snapshot().groups
    stop = stopped_by(result)
    assert stop is not None
    assert (stop.reason, stop.step) == ("loop_repeats", STOPPED)
    assert porter.nudged() == [NUDGED + 1, NUDGED + 2], "given again when it has grown by as much"
    assert len(porter.pushed) == STOPPED, "a span reports a call too late to block it"
    assert group.finished.finished == {"stopped": 1}
    assert "finds no run" not in caplog.text


@pytest.mark.parametrize("other", OTHERS)
def test_a_stop_can_be_raised(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.capture(rules=RULES) as seen, instrumented(monkeypatch, other) as processor:
        porter = Looping(TidegaugeMiddleware(spans=processor, on_stop="raise"))
        with pytest.raises(tidegauge.RunStopped):
            porter.agent.invoke(TASK)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert len(porter.pushed) == STOPPED
    assert group.finished.finished == {"stopped": 1}


def test_what_the_first_turn_decides_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [Rule("tokens", 1, "stop")]
    with testing.capture(rules=rules), instrumented(monkeypatch, "openinference") as processor:
        porter = Looping(TidegaugeMiddleware(spans=processor))
        assert stopped_by(porter.agent.invoke(TASK)) is not None
    assert porter.pushed == []
