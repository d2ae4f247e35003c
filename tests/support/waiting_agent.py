"""An agent that asks a person before each step, as a program: one invocation a process.

``python -m support.waiting_agent STORE CHECKPOINTS THREAD INPUT`` makes one invocation, and writes
as JSON which runs it belongs to, and what was measured of those that ended.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from support.langchain_agents import Reports
from support.scripted_model import ScriptedChatModel
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.streaming_metrics import RunReport

__all__ = ["INPUTS", "invoke", "waiting_agent"]

Kind = Literal["tool", "middleware", "inside"]

INPUTS: dict[str, Any] = {
    "task": {"messages": [("user", "find the key")]},
    "resume": Command(resume="a person"),
    "approve": Command(resume={"decisions": [{"type": "approve"}]}),
}


@tool
def ask(place: str) -> str:
    """Look into a place, if a person lets you."""
    return f"{place} is empty, says {interrupt('may I?')}"


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


def waiting_agent(checkpointer: Any, *, rounds: int = 99, kind: Kind = "tool") -> Any:
    """It looks into one place again and again, each time with another id of the call.

    Args:
        checkpointer: stores its checkpoints.
        rounds: so often, then it answers.
        kind: what it waits in: its tool, a middleware, or a tool of an agent that a tool calls.
    """
    name = "look" if kind == "middleware" else "ask"
    tools = [look if kind == "middleware" else ask]

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        turn = sum(message.type == "tool" for message in messages)
        if turn >= rounds:
            return AIMessage("there is none")
        call = {"name": name, "args": {"place": "desk"}, "id": f"call-{len(messages)}"}
        return AIMessage("", tool_calls=[call], usage_metadata=USAGE)

    def make(**options: Any) -> Any:
        return create_agent(ScriptedChatModel(script=say), tools, **options)

    if kind == "tool":
        return make(name="seeker", checkpointer=checkpointer)
    if kind == "middleware":
        person = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        return make(name="seeker", checkpointer=checkpointer, middleware=[person])

    @tool
    def delegate(task: str) -> str:
        """Let the seeker do it."""
        return str(make(name="seeker").invoke({"messages": [("user", task)]})["messages"][-1])

    def hand_over(messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[-1].type == "tool":
            return AIMessage("done")
        call = {"name": "delegate", "args": {"task": "go"}, "id": "call-chief"}
        return AIMessage("", tool_calls=[call])

    chief = ScriptedChatModel(script=hand_over)
    return create_agent(chief, [delegate], name="chief", checkpointer=checkpointer)


USAGE: Any = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}


def invoke(
    store: Any,
    agent: Any,
    inputs: Any,
    thread: str,
    *,
    waits: float = 3_600.0,
    **settings: Any,
) -> tuple[list[RunReport], list[Any]]:
    """One invocation, as of one process. Returns the reports of the runs that ended, and spans.

    Args:
        store: saves runs that wait; ``None``, they are not saved.
        agent: the agent.
        inputs: what it is invoked with.
        thread: the thread.
        waits: seconds that the run waits for a person.
        **settings: further settings.
    """
    with testing.capture(run_store=store, **settings) as seen:
        reports = Reports(seen)
        handler = TidegaugeCallbackHandler(idle_seconds=waits)
        agent.invoke(inputs, {"callbacks": [handler], "configurable": {"thread_id": thread}})
    return reports, seen.spans


@contextlib.contextmanager
def checkpoint_saver(place: str) -> Iterator[Any]:
    """LangGraph's checkpointer: in a Postgres database, else in an SQLite file."""
    if place.startswith("postgresql:"):
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(place) as saver:
            saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(place) as saver:
            yield saver


def main() -> None:
    store, checkpoints, thread, inputs = sys.argv[1:]
    with checkpoint_saver(checkpoints) as checkpointer:
        agent = waiting_agent(checkpointer, rounds=3)
        reports, spans = invoke(store or None, agent, INPUTS[inputs], thread)
    runs = {span.attributes["tidegauge.run.id"] for span in spans if "invoke" in span.name}
    ended = [(report.run, report.steps, report.loop_ratio, report.tokens) for report in reports]
    json.dump({"runs": sorted(runs), "ended": ended}, sys.stdout)


if __name__ == "__main__":
    main()
