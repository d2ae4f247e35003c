"""What is delivered is counted: nudges in graphs of every kind, and ends without an exception."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

import tidegauge
from support.langchain_agents import (
    Reports,
    graph_agent,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from support.scripted_openai import serving
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    nudge_hook,
    stop_hook,
    stopped_by,
)
from tidegauge.policies import Rule

TASK: dict[str, Any] = {"messages": [("user", "open the door")]}
WAYS = [via_invoke, via_ainvoke, via_stream, via_astream]
NUDGE, BLOCK, STOP = (
    Rule("loop_repeats", 1, "nudge"),
    Rule("loop_repeats", 2, "block"),
    Rule("loop_repeats", 3, "stop"),
)


@tool
def push(door: str) -> str:
    """Push a door."""
    return "it does not move"


class Pushing:
    """A model that pushes for so many turns, and what it was shown."""

    def __init__(self, rounds: int = 99) -> None:
        self.shown: list[list[BaseMessage]] = []
        self._rounds = rounds
        self.model = ScriptedChatModel(script=self._say)

    def _say(self, messages: Sequence[BaseMessage]) -> AIMessage:
        self.shown.append(list(messages))
        if turns(messages) >= self._rounds:
            return answers("no way")
        return chooses(("push", {"door": "red"}))

    def nudged(self) -> list[int]:
        """The requests (from 0) whose last message is advice."""
        return [
            number
            for number, shown in enumerate(self.shown)
            if isinstance(shown[-1], HumanMessage) and "no progress" in str(shown[-1].content)
        ]


def counted(seen: testing.Capture) -> dict[tuple[str, str], int]:
    """The interventions of the one group of runs."""
    (group,) = seen.pipeline.engine.snapshot().groups
    return dict(group.totals.interventions)


def reported(seen: testing.Capture) -> list[str]:
    """The interventions of the events."""
    return [
        event.attributes["tidegauge.intervention.action"]
        for event in seen.events
        if event.event_name.endswith("intervention")
    ]


def graph(pushing: Pushing, *, checkpointer: Any = None) -> Any:
    """Nodes and edges written by hand, which show nudges and end at a stop."""
    model = pushing.model.bind_tools([push])

    def shown(state: MessagesState) -> list[Any]:
        advice = tidegauge.get_current_run().nudge()
        return [*state["messages"], *([HumanMessage(advice)] if advice else [])]

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(shown(state))]}

    async def think_later(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(shown(state))]}

    def route(state: MessagesState) -> str:
        if tidegauge.get_current_run().decision.stop:
            return "stop"
        return tools_condition(state)  # type: ignore[arg-type]

    builder = StateGraph(MessagesState)
    builder.add_node("think", RunnableLambda(think, think_later))
    builder.add_node("tools", ToolNode([push]))
    builder.add_node("stop", stop_hook)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", route, ["stop", "tools", END])
    builder.add_edge("tools", "think")
    builder.add_edge("stop", END)
    return builder.compile(name="porter", checkpointer=checkpointer)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Our warnings, without what LangChain logs."""
    return [record.getMessage() for record in caplog.records if record.name == "tidegauge"]


def test_what_the_handler_alone_cannot_deliver_is_not_counted_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture(rules=[NUDGE, BLOCK, STOP]) as seen:
        with caplog.at_level(logging.WARNING, "tidegauge"):
            for _ in range(2):
                with pytest.raises(tidegauge.RunStopped):
                    create_agent(Pushing().model, [push]).invoke(
                        TASK, config={"callbacks": [handler]}
                    )
        assert counted(seen) == {("stop", "loop_repeats"): 2}
        assert reported(seen) == ["stop"] * 2
    block, nudge = warnings_of(caplog)
    assert "cannot block" in block
    assert "TidegaugeMiddleware" in block
    assert "did not reach the model" in nudge
    assert "TidegaugeMiddleware" in nudge
    assert "get_current_run().nudge()" in nudge


def test_with_the_middleware_nothing_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    pushing = Pushing()
    with (
        testing.capture(rules=[NUDGE, BLOCK, STOP]) as seen,
        caplog.at_level(logging.WARNING, "tidegauge"),
    ):
        agent = create_agent(pushing.model, [push], middleware=[TidegaugeMiddleware()])
        agent.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
        assert sorted(action for action, _ in counted(seen)) == ["block", "nudge", "stop"]
    assert pushing.nudged() == [3]
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_graph_of_ones_own_shows_nudges(
    way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pushing, handler = Pushing(4), TidegaugeCallbackHandler()
    with (
        testing.capture(rules=[NUDGE]) as seen,
        caplog.at_level(logging.WARNING, "tidegauge"),
    ):
        await way(graph(pushing), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        # Steps 2 and 3 repeat step 1, which came after another result.
        assert pushing.nudged() == [3, 4]
        assert counted(seen) == {("nudge", "loop_repeats"): 2}
        assert reported(seen) == ["nudge"] * 2
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_graph_of_ones_own_ends_by_an_edge(way: Callable[..., Any]) -> None:
    pushing, handler = Pushing(), TidegaugeCallbackHandler(on_stop="end")
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture(rules=[STOP]) as seen:
        reports = Reports(seen)
        agent = graph(pushing, checkpointer=InMemorySaver())
        result = await way(agent, TASK, config)
        assert nothing_is_left(handler, seen)
    stop = stopped_by(result)
    assert stop is not None
    assert (stop.reason, stop.step) == ("loop_repeats", 4)
    assert [(report.outcome, report.steps) for report in reports] == [("stopped", 5)]
    kinds = [message.type for message in agent.get_state(config).values["messages"]]
    assert kinds == ["human", *["ai", "tool"] * 5, "ai"], "every call has its answer"
    assert "was stopped" in result["messages"][-2].content
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


def test_a_graph_that_does_not_end_at_a_stop_goes_on_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = TidegaugeCallbackHandler(on_stop="end")
    with testing.capture(rules=[STOP]) as seen, caplog.at_level(logging.WARNING, "tidegauge"):
        reports = Reports(seen)
        agent = create_agent(Pushing(9).model, [push])
        agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(report.outcome, report.steps) for report in reports] == [("unknown", 9)]
    (warned,) = warnings_of(caplog)
    assert "a stopped run goes on" in warned


def test_a_run_inside_a_node_is_the_current_one_and_one_around_the_graph_is_not() -> None:
    found: list[str] = []

    def look(state: MessagesState) -> dict[str, Any]:
        found.append(tidegauge.get_current_run().id)
        with tidegauge.run(run_id="inner"):
            found.append(tidegauge.get_current_run().id)
        found.append(tidegauge.get_current_run().id)
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("look", look)
    builder.add_edge(START, "look")
    compiled = builder.compile()
    with testing.capture() as seen:
        reports = Reports(seen)
        with tidegauge.run(run_id="outer"):
            compiled.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
            assert tidegauge.get_current_run().id == "outer"
        compiled.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
    inner, first, _, _, second = [report.run for report in reports]
    assert inner == "inner"
    assert found == [first, "inner", first, second, "inner", second]
    assert tidegauge.get_current_run().id == ""


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("way", WAYS)
async def test_a_supervisor_is_nudged_and_ends_gracefully(way: Callable[..., Any]) -> None:
    shown: list[BaseMessage] = []

    def lead(messages: Sequence[BaseMessage]) -> AIMessage:
        shown.append(messages[-1])
        return chooses(("transfer_to_worker", {}))

    handler = TidegaugeCallbackHandler(on_stop="end")
    with serving() as server, testing.capture(rules=[NUDGE, STOP]) as seen:
        reports = Reports(seen)
        worker = create_agent(
            server.model("worker", lambda messages: answers("nothing to do")), [], name="worker"
        )
        agent = create_supervisor(
            [worker],
            model=server.model("lead", lead),
            pre_model_hook=nudge_hook,
            post_model_hook=stop_hook,
            output_mode="last_message",
        ).compile(name="team")
        result = await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert "nudge" in reported(seen)
        assert reported(seen)[-1] == "stop"
    stop = stopped_by(result)
    assert stop is not None
    assert stop.reason == "loop_repeats"
    assert any("You make no progress" in str(message.content) for message in shown)
    team = reports[-1]
    assert (team.agent, team.outcome) == ("team", "stopped")
    assert {report.outcome for report in reports[:-1]} == {"unknown"}


@pytest.mark.parametrize("way", WAYS)
async def test_a_swarm_ends_gracefully(way: Callable[..., Any]) -> None:
    handler = TidegaugeCallbackHandler(on_stop="end")

    def handing(to: str) -> Callable[[Sequence[BaseMessage]], AIMessage]:
        return lambda messages: chooses((f"transfer_to_{to}", {}))

    with serving() as server, testing.capture(rules=[STOP]) as seen:
        reports = Reports(seen)
        agents: list[Any] = [
            create_agent(
                server.model(name, handing(other)),
                [create_handoff_tool(agent_name=other)],
                name=name,
                middleware=[TidegaugeMiddleware()],
            )
            for name, other in (("ann", "bob"), ("bob", "ann"))
        ]
        agent = create_swarm(agents, default_active_agent="ann").compile(
            name="team", checkpointer=InMemorySaver()
        )
        config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
        result = await way(agent, TASK, config)
        assert nothing_is_left(handler, seen)
    stop = stopped_by(result)
    assert stop is not None
    assert stop.reason == "loop_repeats"
    team = reports[-1]
    assert (team.agent, team.outcome) == ("team", "stopped")
    assert stop.run == team.run


def test_on_stop_of_the_handler_is_one_of_two() -> None:
    with pytest.raises(ConfigurationError, match="on_stop='quit' is unknown"):
        TidegaugeCallbackHandler(on_stop="quit")  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("rule", ["tokens", "loop_cost_tokens"])
def test_a_rule_on_tokens_says_when_the_model_reports_none(
    rule: str, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenAI's models report the usage of a stream only when they are asked to."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("push", {"door": "red"})) if turns(messages) < 6 else answers("no way")

    handler, stopped = TidegaugeCallbackHandler(), False
    with (
        serving() as server,
        testing.capture(rules=[Rule(rule, 30, "stop")]),
        caplog.at_level(logging.WARNING, "tidegauge"),
    ):
        model = server.model("gpt-4o", say, streaming=True, stream_usage=asked)
        try:
            graph_agent(model, [push]).invoke(TASK, config={"callbacks": [handler]})  # type: ignore[arg-type]
        except tidegauge.RunStopped:
            stopped = True
    assert stopped is asked
    warned = [text for text in warnings_of(caplog) if "usage" in text]
    assert len(warned) == (0 if asked else 1)
    assert all("stream_usage=True" in text for text in warned)


def test_without_a_rule_on_tokens_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving() as server,
        testing.capture(),
        caplog.at_level(logging.WARNING, "tidegauge"),
    ):
        model = server.model(
            "gpt-4o", lambda messages: answers("no"), streaming=True, stream_usage=False
        )
        create_agent(model, []).invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
    assert warnings_of(caplog) == []
