"""Agents for tests, besides those of ``langchain.agents.create_agent``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from support.scripted_model import ScriptedChatModel
from tidegauge import testing
from tidegauge.events import Decision, Outcome, RunObserver, Step
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.streaming_metrics import RunReport


def graph_agent(
    model: ScriptedChatModel, tools: Sequence[BaseTool], name: str | None = "agent"
) -> Any:
    """A graph written by hand, whose tool node turns every error into a message."""
    bound = model.bind_tools(tools)

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    async def think_later(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", RunnableLambda(think, think_later))
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile(name=name)


async def via_invoke(agent: Any, task: Any, config: Any) -> Any:
    """One of the ways to call an agent; gives its last state."""
    return agent.invoke(task, config=config)


async def via_ainvoke(agent: Any, task: Any, config: Any) -> Any:
    """As :func:`via_invoke`."""
    return await agent.ainvoke(task, config=config)


async def via_stream(agent: Any, task: Any, config: Any) -> Any:
    """As :func:`via_invoke`."""
    return list(agent.stream(task, config=config, stream_mode="values"))[-1]


async def via_astream(agent: Any, task: Any, config: Any) -> Any:
    """As :func:`via_invoke`."""
    return [c async for c in agent.astream(task, config=config, stream_mode="values")][-1]


class Reports(list[RunReport]):
    """The reports of the runs that ended, as the engine gave them."""

    def __init__(self, seen: testing.Capture) -> None:
        super().__init__()
        before = seen.pipeline.engine._on_finished

        def finished(report: RunReport) -> None:
            self.append(report)
            before(report)

        seen.pipeline.engine._on_finished = finished


class StepLog(RunObserver):
    """Everything that the engine takes, run by run."""

    def __init__(self, seen: testing.Capture) -> None:
        self._steps: dict[str, list[Step]] = {}
        self._outcomes: dict[str, dict[int, Outcome]] = {}
        seen.pipeline.observe(self)

    def steps(self, run: str) -> list[tuple[Any, float | None, Any]]:
        """Calls, tokens and results of its steps; results are ``None`` when none were observed."""
        outcomes = self._outcomes.get(run, {})
        return [
            (step.calls, step.tokens, outcomes[index].results if index in outcomes else None)
            for index, step in enumerate(self.issued(run))
        ]

    def issued(self, run: str) -> list[Step]:
        """Its steps as they were issued."""
        return self._steps.get(run, [])

    def observed(self, run: str) -> list[Outcome]:
        """The results of its steps, in the order of the steps."""
        return [outcome for _, outcome in sorted(self._outcomes.get(run, {}).items())]

    def step_issued(self, event: Step, decision: Decision) -> None:
        self._steps.setdefault(event.run, []).append(event)

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        outcomes = self._outcomes.setdefault(event.run, {})
        assert event.step is not None
        assert event.step not in outcomes, "a step is observed once"
        outcomes[event.step] = event


def waiting(seen: testing.Capture) -> int:
    """How many runs wait for a person."""
    return len(seen.pipeline.recorder.waiting)


def nothing_is_left(handler: TidegaugeCallbackHandler, seen: testing.Capture) -> bool:
    """Whether no run is open anywhere: in the handler, in the engine, among the spans."""
    return (
        len(handler._runs) == 0
        and waiting(seen) == 0
        and not seen.pipeline.engine.snapshot().active
        and seen.pipeline.recorder.spans.open_runs == 0
    )
