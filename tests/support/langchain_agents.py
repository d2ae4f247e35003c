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
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler


def graph_agent(model: ScriptedChatModel, tools: Sequence[BaseTool], name: str = "agent") -> Any:
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


def nothing_is_left(handler: TidegaugeCallbackHandler, seen: testing.Capture) -> bool:
    """Whether no run is open anywhere: in the handler, in the engine, among the spans."""
    return (
        len(handler._runs) == 0
        and not seen.pipeline.engine.snapshot().active
        and seen.pipeline.recorder.spans.open_runs == 0
    )
