"""An agent that catches every stop and goes on: what was refused is counted, and is no step.

Every adapter is given the same agent. It asks for the same call again and again. ``ran`` counts the
calls that were run; those that were asked for and not run were refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as Sdk
from agents import Runner, function_tool
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, Tracer

import tidegauge
from support.agents_sdk import scripted, traced_by
from support.scripted_model import ScriptedChatModel, chooses
from tidegauge import RunStopped, testing
from tidegauge.cli.main import main
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.exporters.reading import Reader
from tidegauge.instrumentation.langchain import (
    TidegaugeCallbackHandler,
    TidegaugeMiddleware,
    stop_hook,
)
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor

ASKED = 30
STOP: dict[str, Any] = {"stop_on_loop": 2}


class Agent:
    """Counts what it asks for, and what ran."""

    def __init__(self) -> None:
        self.asked = self.ran = self.stops = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def asking(self, calls: int = 1) -> Iterator[None]:
        with self._lock:
            self.asked += calls
        try:
            yield
        except RunStopped:
            with self._lock:
                self.stops += 1

    def push(self, door: str = "red") -> str:
        with self._lock:
            self.ran += 1
        return "it does not move"


def by_hand(agent: Agent) -> None:
    with tidegauge.run(agent="a") as run:
        for _ in range(ASKED):
            with agent.asking():
                run.act("push", {"door": "red"})
                run.observe(agent.push())


def rounds_by_hand(agent: Agent) -> None:
    with tidegauge.run(agent="a") as run:
        for _ in range(ASKED):
            with agent.asking(2):
                run.act_round([("push", {"door": "red"}), ("push", {"door": "blue"})])
                run.observe_round([(agent.push(), False), (agent.push(), False)])


def async_by_hand(agent: Agent) -> None:
    async def work() -> None:
        async with tidegauge.run(agent="a") as run:
            for _ in range(ASKED):
                with agent.asking():
                    run.act("push", {"door": "red"})
                    run.observe(agent.push())

    asyncio.run(work())


def decorated(agent: Agent) -> None:
    push = tidegauge.tool(name="push")(agent.push)
    with tidegauge.run(agent="a"):
        for _ in range(ASKED):
            with agent.asking():
                push("red")


def decorated_async(agent: Agent) -> None:
    @tidegauge.tool
    async def push(door: str) -> str:
        return agent.push(door)

    @tidegauge.agent(name="a")
    async def work() -> None:
        for _ in range(ASKED):
            with agent.asking():
                await push("red")

    asyncio.run(work())


def decorated_generator(agent: Agent) -> None:
    @tidegauge.tool
    def push(door: str) -> Iterator[str]:
        yield agent.push(door)

    with tidegauge.run(agent="a"):
        for _ in range(ASKED):
            with agent.asking():
                list(push("red"))


def tools_of_langchain(agent: Agent) -> None:
    push = langchain_tool("push", description="Push a door.")(agent.push)

    def work(_: object, config: RunnableConfig) -> None:
        for _ in range(ASKED):
            with agent.asking():
                push.invoke({"door": "red"}, config)

    handler = TidegaugeCallbackHandler(agent="a")
    RunnableLambda(work).invoke(None, {"callbacks": [handler]})


def decorated_in_langchain(agent: Agent) -> None:
    push = tidegauge.tool(name="push")(agent.push)

    def work(_: object) -> None:
        for _ in range(ASKED):
            with agent.asking():
                push("red")

    handler = TidegaugeCallbackHandler(agent="a")
    RunnableLambda(work).invoke(None, {"callbacks": [handler]})


def agents_of_langgraph(agent: Agent) -> None:
    """Another agent is called again and again, which is a step each time."""

    def answer(_: object) -> str:
        return agent.push()

    inner = RunnableLambda(answer).with_config(metadata={"tidegauge_agent": "inner"})

    def work(_: object, config: RunnableConfig) -> None:
        for _ in range(ASKED):
            with agent.asking():
                inner.invoke("same", config)

    handler = TidegaugeCallbackHandler(agent="a")
    RunnableLambda(work).invoke(None, {"callbacks": [handler]})


def tasks_of_langgraph(agent: Agent) -> None:
    @task
    def push(door: str) -> str:
        return agent.push(door)

    @entrypoint()
    def work(_: object) -> str:
        for _ in range(ASKED):
            with agent.asking():
                push("red").result()
        return "done"

    handler = TidegaugeCallbackHandler(agent="a", steps="nodes")
    work.invoke({}, {"callbacks": [handler]})


def models_of_langchain(agent: Agent) -> None:
    """A loop that asks the model, and goes on without it once that is refused."""
    push = langchain_tool("push", description="Push a door.")(agent.push)
    chosen = chooses(("push", {"door": "red"}))

    def work(_: object, config: RunnableConfig) -> None:
        model = ScriptedChatModel(script=lambda _: chooses(("push", {"door": "red"})))
        for _ in range(ASKED):
            with agent.asking():
                choice = chosen if agent.stops else model.invoke("open the door", config)
                push.invoke(choice.tool_calls[0], config)

    handler = TidegaugeCallbackHandler(agent="a")
    RunnableLambda(work).invoke(None, {"callbacks": [handler]})


def middleware_of_langchain(agent: Agent) -> None:
    def choose(_: object) -> Any:
        agent.asked += 1
        return chooses(("push", {"door": "red"}))

    push = langchain_tool("push", description="Push a door.")(agent.push)
    model = ScriptedChatModel(script=choose)
    graph = create_agent(model, [push], name="a", middleware=[TidegaugeMiddleware()])
    graph.invoke({"messages": ["open"]}, {"callbacks": [TidegaugeCallbackHandler()]})
    agent.stops = 1


def hooks_of_langgraph(agent: Agent) -> None:
    """A graph ends by our node."""

    def choose(state: MessagesState) -> MessagesState:
        agent.asked += 1
        return {"messages": [model.invoke(state["messages"])]}

    model = ScriptedChatModel(script=lambda _: chooses(("push", {"door": "red"})))
    push = langchain_tool("push", description="Push a door.")(agent.push)
    graph = StateGraph(MessagesState)
    graph.add_node("choose", choose)
    graph.add_node("stop", stop_hook)
    graph.add_node("tools", ToolNode([push]))
    graph.add_edge(START, "choose")
    graph.add_conditional_edges(
        "choose", lambda _: "stop" if tidegauge.get_current_run().decision.stop else "tools"
    )
    graph.add_edge("tools", "choose")
    handler = TidegaugeCallbackHandler(agent="a", on_stop="end")
    graph.compile().invoke({"messages": [("user", "open")]}, {"callbacks": [handler]})
    agent.stops = 1


def hooks_of_the_agents_sdk(agent: Agent) -> None:
    def push(door: str) -> str:
        """Push a door."""
        return agent.push(door)

    processor = TidegaugeTracingProcessor()
    turn = [("push", {"door": "red"})]
    with traced_by(processor), agent.asking(0):
        one = Sdk(name="a", tools=[function_tool(push)], model=scripted([turn] * ASKED))
        hooks = TidegaugeRunHooks(processor)
        asyncio.run(Runner.run(one, "open", hooks=hooks, max_turns=ASKED + 1))
    agent.asked = agent.ran + 1


def spans_of_tools(agent: Agent) -> None:
    """The spans of another instrumentation; inside the tool, the processor is asked."""
    processor = TidegaugeSpanProcessor()
    tracer = theirs(processor)
    with tracer.start_as_current_span("agent", attributes=AGENT):
        for number in range(ASKED):
            with agent.asking():
                tracer.start_span("chat", attributes=chat(number)).end()
                with in_tool(tracer, number) as span:
                    processor.enforce()
                    span.set_attribute("gen_ai.tool.call.result", agent.push())


def spans_of_tools_without_models(agent: Agent) -> None:
    processor = TidegaugeSpanProcessor()
    tracer = theirs(processor)
    with tracer.start_as_current_span("agent", attributes=AGENT):
        for number in range(ASKED):
            with agent.asking(), in_tool(tracer, number) as span:
                processor.enforce()
                span.set_attribute("gen_ai.tool.call.result", agent.push())


def spans_of_turns(agent: Agent) -> None:
    """The processor is asked between the model and its tools."""
    processor = TidegaugeSpanProcessor()
    tracer = theirs(processor)
    with tracer.start_as_current_span("agent", attributes=AGENT):
        for number in range(ASKED):
            with agent.asking():
                tracer.start_span("chat", attributes=chat(number)).end()
                processor.enforce()
                with in_tool(tracer, number) as span:
                    span.set_attribute("gen_ai.tool.call.result", agent.push())


AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}


def theirs(processor: TidegaugeSpanProcessor) -> Tracer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider.get_tracer("theirs")


def chat(number: int) -> dict[str, str]:
    chosen = {"type": "tool_call", "id": f"c{number}", "name": "push", "arguments": {"door": "red"}}
    said = [{"role": "assistant", "parts": [chosen]}]
    return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(said)}


@contextlib.contextmanager
def in_tool(tracer: Tracer, number: int) -> Iterator[Span]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "push",
        "gen_ai.tool.call.id": f"c{number}",
        "gen_ai.tool.call.arguments": '{"door": "red"}',
    }
    with tracer.start_as_current_span("execute_tool push", attributes=attributes) as span:
        yield span


SWALLOWING = [
    *(by_hand, rounds_by_hand, async_by_hand, decorated, decorated_async, decorated_generator),
    *(tools_of_langchain, decorated_in_langchain, agents_of_langgraph, models_of_langchain),
    tasks_of_langgraph,
    *(spans_of_tools, spans_of_tools_without_models, spans_of_turns),
]
ENDING = [middleware_of_langchain, hooks_of_langgraph, hooks_of_the_agents_sdk]


def group_of(seen: testing.Capture) -> Any:
    (group,) = [one for one in seen.pipeline.engine.snapshot().groups if one.key.agent == "a"]
    return group


def acted(group: Any) -> dict[tuple[str, str], int]:
    found = group.totals.interventions.items()
    return {key: count for key, count in found if key[0] != "would_stop"}


@pytest.mark.parametrize("work", [*SWALLOWING, *ENDING])
def test_what_is_refused_after_a_stop_is_counted_and_no_step(work: Callable[[Agent], None]) -> None:
    agent = Agent()
    with testing.capture(**STOP) as seen:
        work(agent)
        group = group_of(seen)
        metrics = write_text(Reader(seen.pipeline.engine).families()).decode()
    calls = 2 if work is rounds_by_hand else 1
    assert agent.stops
    assert 0 < agent.ran < ASKED
    assert group.totals.refused_calls == agent.asked - agent.ran
    # The call at which the run is stopped is a step, if it was stopped before that ran.
    assert group.totals.steps - agent.ran / calls in (0, 1)
    assert acted(group) == {("stop", "loop_repeats"): 1}
    assert f'refused_calls_total{{agent="a",task_group=""}} {agent.asked - agent.ran}.0' in metrics


@pytest.mark.parametrize("work", SWALLOWING)
def test_where_nothing_is_stopped_all_are_steps(work: Callable[[Agent], None]) -> None:
    agent = Agent()
    with testing.capture(**STOP, observe_only=True) as seen:
        work(agent)
        group = group_of(seen)
    assert (agent.stops, agent.ran, agent.asked) == (0, agent.asked, agent.asked)
    assert (group.totals.steps, group.totals.refused_calls) == (ASKED, 0)


def test_blocked_calls_are_refused_and_steps() -> None:
    agent = Agent()
    push = tidegauge.tool(name="push", on_block=lambda decision: "blocked")(agent.push)
    with testing.capture(block_on_loop=1, stop_on_loop=4) as seen:
        with tidegauge.run(agent="a"):
            for _ in range(ASKED):
                with agent.asking():
                    push("red")
        group = group_of(seen)
    assert acted(group) == {("block", "loop_repeats"): 3, ("stop", "loop_repeats"): 1}
    assert group.totals.steps == agent.ran + 3 + 1
    assert group.totals.refused_calls == agent.asked - agent.ran


def test_a_recording_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent()
    with testing.capture(**STOP, record_to=tmp_path / "runs.jsonl") as seen:
        by_hand(agent)
        live = group_of(seen).totals.refused_calls
    with pytest.raises(SystemExit, match="0"):
        main(["replay", "--json", str(tmp_path / "runs.jsonl")])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["refused_calls"], run["steps"]) == (live, agent.ran + 1)
    assert live == ASKED - agent.ran > 0


def test_the_stop_of_an_agent_inside_a_tool_refuses_that_agent_alone() -> None:
    """It passes through the tool's span, which names the run that was stopped."""
    with testing.capture(**STOP) as seen:
        processor = TidegaugeSpanProcessor()
        tracer = theirs(processor)
        with tracer.start_as_current_span("agent", attributes=AGENT):
            for number in range(2):
                tracer.start_span("chat", attributes=chat(number)).end()
                with (
                    contextlib.suppress(RunStopped),
                    in_tool(tracer, number),
                ):
                    raise RunStopped("inner", step=3, reason="loop_repeats", message="a loop")
        group = group_of(seen)
    assert (group.totals.steps, group.totals.refused_calls) == (2, 0)
