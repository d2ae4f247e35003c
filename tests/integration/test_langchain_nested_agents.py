"""Agents that a tool calls: runs, however they are made, wrapped and given their config."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm
from pydantic import BaseModel

import tidegauge
from support.langchain_agents import (
    Reports,
    StepLog,
    graph_agent,
    nothing_is_left,
    via_ainvoke,
    via_astream,
    via_invoke,
    via_stream,
)
from support.looking_agents import PLACES, Bound, Script, look, looks_around, looks_for_ever, once
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.events import Call
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler, TidegaugeMiddleware

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

TASK: dict[str, Any] = {"messages": [("user", "find the key")]}
ASKED: dict[str, Any] = {"messages": [("user", "look around")]}
HELPED = [("helper", 3, 36), ("chief", 1, 12)]
"""A helper that looks into three places, for one call of the chief: 12 tokens a turn of calls."""


@tool
def ask(place: str) -> str:
    """Look into a place, if a person lets you."""
    return f"{place} is empty, says {interrupt('may I?')}"


def created(script: Script, name: str | None = "helper") -> Any:
    return create_agent(ScriptedChatModel(script=script), [look], name=name)


def reacting(script: Script, name: str | None = "helper") -> Any:
    return create_react_agent(ScriptedChatModel(script=script), [look], name=name)


def by_hand(script: Script, name: str | None = "helper") -> Any:
    return graph_agent(ScriptedChatModel(script=script), [look], name=name)


def bound_before(script: Script, name: str | None = "helper") -> Any:
    return graph_agent(Bound(script=script), [look], name=name)


def prompted(agent: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages([("user", "{question}")])
    chain = prompt | RunnableLambda(lambda value: {"messages": value.to_messages()}) | agent
    return RunnableLambda(lambda state: {"question": "look around"}) | chain


def in_a_lambda(agent: Any) -> Any:
    def now(state: Any, config: RunnableConfig) -> Any:
        return agent.invoke(state, config)

    async def later(state: Any, config: RunnableConfig) -> Any:
        return await agent.ainvoke(state, config)

    return RunnableLambda(now, later)


def in_a_graph(agent: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("work", agent)
    graph.add_edge(START, "work")
    return graph.compile()


AGENTS = [created, reacting, by_hand, bound_before]
WRAPPED = {
    "itself": lambda agent: agent,
    "with_retry": lambda agent: agent.with_retry(wait_exponential_jitter=False),
    "with_config": lambda agent: agent.with_config(tags=["inner"]),
    "with_fallbacks": lambda agent: agent.with_fallbacks([agent]),
    "a chain": prompted,
    "a lambda": in_a_lambda,
    "an unnamed graph": in_a_graph,
}

ATTEMPTS = {"with_fallbacks": 2}
"""LangChain takes the stop for a failure, and invokes the fallback, which is a run, too."""


def invoked(agent: Any, config: Any) -> None:
    agent.invoke(ASKED, config)


def streamed(agent: Any, config: Any) -> None:
    list(agent.stream(ASKED, config))


def batched(agent: Any, config: Any) -> None:
    agent.batch([ASKED], config)


async def invoked_later(agent: Any, config: Any) -> None:
    await agent.ainvoke(ASKED, config)


async def streamed_later(agent: Any, config: Any) -> None:
    [_ async for _ in agent.astream(ASKED, config)]


async def batched_later(agent: Any, config: Any) -> None:
    await agent.abatch([ASKED], config)


SYNC, ASYNC = [invoked, streamed, batched], [invoked_later, streamed_later, batched_later]


def chief(helper: Any, way: Any, *, passed: bool) -> Any:
    """An agent whose tool asks the helper, with its own config or without."""
    if way in ASYNC:

        @tool
        async def delegate(task: str, config: RunnableConfig) -> str:
            """Let another agent do it."""
            await way(helper, config if passed else None)
            return "asked"
    else:

        @tool
        def delegate(task: str, config: RunnableConfig) -> str:
            """Let another agent do it."""
            way(helper, config if passed else None)
            return "asked"

    outer = ScriptedChatModel(script=once("delegate", {"task": "look"}))
    return create_agent(outer, [delegate], name="chief")


def summary(reports: Reports) -> list[tuple[str, int, float | None]]:
    return [(report.agent, report.steps, report.tokens) for report in reports]


async def healthy(agent: Any, way: Any = invoked, handler: Any = None) -> Reports:
    """Run an agent that is not stopped."""
    handler = handler or TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        log, reports = StepLog(seen), Reports(seen)
        outer = via_ainvoke if way in ASYNC else via_invoke
        await outer(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    if reports[-1].agent == "chief":
        ((calls, _, _),) = log.steps(reports[-1].run)
        assert calls[0].action == "delegate"
    parents = {span.attributes.get("tidegauge.run.parent") for span in seen.spans} - {None}
    assert parents <= {report.run for report in reports}
    return reports


async def stopped(agent: Any, way: Any = invoked, name: str = "helper") -> tuple[str, int, Reports]:
    """Run an agent that loops. Gives reason and step of the stop, which is that of ``name``."""
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        outer = via_ainvoke if way in ASYNC else via_invoke
        with pytest.raises(tidegauge.RunStopped) as caught:
            await outer(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert caught.value.run in [report.run for report in reports if report.agent == name]
    return caught.value.reason, caught.value.step, reports


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
@pytest.mark.parametrize("made", AGENTS)
async def test_an_agent_that_a_tool_calls(made: Any, way: Any, passed: bool) -> None:
    reports = await healthy(chief(made(looks_around), way, passed=passed), way)
    assert summary(reports) == HELPED
    reason, step, reports = await stopped(chief(made(looks_for_ever), way, passed=passed), way)
    assert (reason, step) == ("loop_repeats", 3)
    assert [(r.agent, r.outcome) for r in reports] == [("helper", "stopped"), ("chief", "stopped")]


@pytest.mark.parametrize("passed", [True, False], ids=["passed", "inherited"])
@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
@pytest.mark.parametrize("made", AGENTS)
async def test_an_agent_without_a_name_has_that_of_the_tool(
    made: Any, way: Any, passed: bool
) -> None:
    healthy_one, looping = made(looks_around, name=None), made(looks_for_ever, name=None)
    reports = await healthy(chief(healthy_one, way, passed=passed), way)
    assert summary(reports) == [("delegate", 3, 36), ("chief", 1, 12)]
    reason, step, reports = await stopped(chief(looping, way, passed=passed), way, "delegate")
    assert (reason, step) == ("loop_repeats", 3)
    assert [r.agent for r in reports] == ["delegate", "chief"]


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("way", [invoked, invoked_later])
@pytest.mark.parametrize("made", AGENTS)
async def test_an_agent_without_a_name_that_is_wrapped(made: Any, way: Any, wrapped: str) -> None:
    agent = WRAPPED[wrapped](made(looks_around, name=None))
    reports = await healthy(chief(agent, way, passed=True), way)
    assert summary(reports) == [("delegate", 3, 36), ("chief", 1, 12)]


@pytest.mark.parametrize("gathers", ["one tool", "tools side by side"])
async def test_agents_without_a_name_side_by_side(gathers: str) -> None:
    together = gathers == "one tool"

    @tool
    async def delegate(task: str) -> str:
        """Let other agents do it."""
        helpers = [created(looks_around, name=None) for _ in range(3 if together else 1)]
        await asyncio.gather(*[helper.ainvoke(ASKED) for helper in helpers])
        return "asked"

    @tool
    def inner(task: str) -> str:
        """Let an agent do it that lets an agent do it."""
        created(once("look", {"place": task}), name=None).invoke(ASKED)
        return "asked"

    @tool
    def outer(task: str) -> str:
        """Let an agent do it that lets another one do it."""
        model = ScriptedChatModel(script=once("inner", {"task": task}))
        create_agent(model, [inner]).invoke(ASKED)
        return "asked"

    calls = [("delegate", {"task": f"t{number}"}) for number in range(1 if together else 3)]

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        return answers("done") if turns(messages) else chooses(*calls, ("outer", {"task": "desk"}))

    agent = create_agent(ScriptedChatModel(script=script), [delegate, outer], name="chief")
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1, stop_on_result_streak=2) as seen:
        reports = Reports(seen)
        await agent.ainvoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    found = sorted((report.agent, report.steps) for report in reports)
    assert found == [
        ("chief", 1),
        *[("delegate", 3)] * 3,
        ("inner", 1),
        ("outer", 1),
    ]


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("way", [invoked, invoked_later])
@pytest.mark.parametrize("made", AGENTS)
async def test_an_agent_that_is_wrapped(made: Any, way: Any, wrapped: str) -> None:
    wrap = WRAPPED[wrapped]
    reports = await healthy(chief(wrap(made(looks_around)), way, passed=True), way)
    assert summary(reports) == HELPED
    reason, step, reports = await stopped(chief(wrap(made(looks_for_ever)), way, passed=True), way)
    assert (reason, step) == ("loop_repeats", 3)
    helpers = ["helper"] * ATTEMPTS.get(wrapped, 1)
    assert [report.agent for report in reports] == [*helpers, "chief"]


@pytest.mark.parametrize("made", AGENTS)
async def test_an_agent_that_is_given_the_config_of_a_runtime(made: Any) -> None:
    def boss(script: Script) -> Any:
        @tool
        def delegate(task: str, runtime: ToolRuntime) -> str:
            """Let another agent do it."""
            made(script).invoke(ASKED, runtime.config)
            return "asked"

        outer = ScriptedChatModel(script=once("delegate", {"task": "look"}))
        return create_agent(outer, [delegate], name="chief")

    assert summary(await healthy(boss(looks_around))) == HELPED
    reason, step, _ = await stopped(boss(looks_for_ever))
    assert (reason, step) == ("loop_repeats", 3)


@pytest.mark.parametrize("made", AGENTS)
@pytest.mark.parametrize("later", [False, True])
async def test_agents_of_one_batch_are_a_run_each(made: Any, later: bool) -> None:
    def both(agent: Any, config: Any) -> None:
        agent.batch([ASKED, ASKED], config)

    async def both_later(agent: Any, config: Any) -> None:
        await agent.abatch([ASKED, ASKED], config)

    if later:
        ASYNC.append(both_later)
    way = both_later if later else both
    try:
        reports = await healthy(chief(made(looks_around), way, passed=True), way)
    finally:
        if later:
            ASYNC.remove(both_later)
    assert summary(reports) == [("helper", 3, 36), *HELPED]


@pytest.mark.parametrize("made", [created, reacting, by_hand])
async def test_the_spans_of_an_agent_that_is_offered_tools(made: Any) -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        agent = chief(made(once("look", {"place": "desk"})), invoked, passed=True)
        agent.invoke(TASK, {"callbacks": [handler]})
    assert seen.tree() == [
        "invoke_agent chief",
        "  chat scripted-1",
        "  execute_tool delegate",
        "    invoke_agent helper",
        "      chat scripted-1",
        "      execute_tool look",
        "      chat scripted-1",
        "  chat scripted-1",
    ]


async def test_agents_deeper_inside() -> None:
    """An agent that a hidden agent's tool calls is a run under that one."""
    handler = TidegaugeCallbackHandler()

    @tool
    def look_around(task: str, config: RunnableConfig) -> str:
        """Let a third agent do it."""
        created(looks_around, name="third").invoke(ASKED, config)
        return "asked"

    second = ScriptedChatModel(script=once("look_around", {"task": "look"}))
    agent = create_react_agent(second, [look_around], name="second")
    with testing.capture() as seen:
        reports = Reports(seen)
        chief(agent, invoked, passed=True).invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert summary(reports) == [("third", 3, 36), ("second", 1, 12), ("chief", 1, 12)]
    agents = [line for line in seen.tree() if "invoke_agent" in line]
    assert agents == [
        "invoke_agent chief",
        "    invoke_agent second",
        "        invoke_agent third",
    ]


def test_a_model_that_is_asked_when_the_agent_is_found() -> None:
    """A model without tools is asked in the tool; then another one makes the graph an agent."""
    asked, found = threading.Event(), threading.Event()

    def plain(messages: Sequence[BaseMessage]) -> AIMessage:
        asked.set()
        assert found.wait(10)
        return answers("a plan")

    def chooses_once(messages: Sequence[BaseMessage]) -> AIMessage:
        found.set()
        return answers("none")

    def choose(state: MessagesState) -> dict[str, Any]:
        assert asked.wait(10)
        return {"messages": [chooser.invoke("choose")]}

    planner = ScriptedChatModel(script=plain)
    chooser = ScriptedChatModel(script=chooses_once).bind_tools([look])
    graph = StateGraph(MessagesState)
    graph.add_node("plan", lambda state: {"messages": [planner.invoke("plan")]})
    graph.add_node("choose", choose)
    graph.add_edge(START, "plan")
    graph.add_edge(START, "choose")
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        helper = graph.compile(name="helper")
        chief(helper, invoked, passed=True).invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [report.agent for report in reports] == ["helper", "chief"]
    chats = [span for span in seen.spans if span.name.startswith("chat")]
    assert [span.attributes.get("gen_ai.usage.output_tokens") for span in chats] == [2] * 4


async def test_an_agent_in_a_node_is_named_by_its_metadata() -> None:
    def team(helper: Any) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("work", helper)
        graph.add_edge(START, "work")
        return graph.compile(name="team")

    assert [r.agent for r in await healthy(team(reacting(looks_around)))] == ["team"]
    named = reacting(looks_around).with_config(metadata={"tidegauge_agent": "helper"})
    assert [(r.agent, r.steps) for r in await healthy(team(named))] == [("helper", 3), ("team", 1)]


async def test_an_agent_whose_tool_fails() -> None:
    handler = TidegaugeCallbackHandler()

    def fails(messages: Sequence[BaseMessage]) -> AIMessage:
        if turns(messages):
            raise OSError("no connection")
        return chooses(("look", {"place": "desk"}))

    with testing.capture() as seen:
        reports = Reports(seen)
        with pytest.raises(OSError, match="no connection"):
            chief(reacting(fails), invoked, passed=True).invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps, r.outcome) for r in reports] == [
        ("helper", 1, "error"),
        ("chief", 1, "error"),
    ]


class Found(BaseModel):
    """What was found."""

    place: str


def asks_once() -> Any:
    return ScriptedChatModel(script=lambda messages: answers("none"))


def a_graph(node: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    return graph.compile(name="helper")


def structured(state: Any) -> dict[str, Any]:
    class Answering(ScriptedChatModel):
        def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
            return self.bind(tools=[{"name": "Found"}], **kwargs)

    model = Answering(script=lambda messages: chooses(("Found", {"place": "desk"})))
    model.with_structured_output(Found).invoke("where?")
    return {"messages": []}


def calls_the_tool(state: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(look.invoke({"place": "desk"}))]}


NO_AGENTS: dict[str, Callable[[], Any]] = {
    "a sequence": lambda: (RunnableLambda(lambda state: "where?") | asks_once()).with_config(
        run_name="helper"
    ),
    "a lambda": lambda: RunnableLambda(lambda state: look.invoke({"place": "desk"}), name="helper"),
    "a sequence that chooses": lambda: (
        RunnableLambda(lambda state: "where?")
        | ScriptedChatModel(script=looks_for_ever).bind_tools([look])
    ).with_config(run_name="helper"),
    "a graph with a model": lambda: a_graph(lambda s: {"messages": [asks_once().invoke("?")]}),
    "a graph with structured output": lambda: a_graph(structured),
    "a graph that calls a tool": lambda: a_graph(calls_the_tool),
}


@pytest.mark.parametrize("name", NO_AGENTS)
async def test_what_is_no_other_agent_is_part_of_the_tool(name: str) -> None:
    ((agent, steps, _),) = summary(await healthy(chief(NO_AGENTS[name](), invoked, passed=True)))
    assert (agent, steps) == ("chief", 1)


async def test_an_agent_of_the_same_name_is_another_agent() -> None:
    inner = reacting(looks_around, name="chief")
    reports = await healthy(chief(inner, invoked, passed=True))
    assert [(agent, steps) for agent, steps, _ in summary(reports)] == [("chief", 3), ("chief", 1)]


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream, via_astream])
async def test_an_agent_that_waits_for_a_person_continues(way: Any) -> None:
    script = once("ask", {"place": "desk"})
    helper = create_react_agent(ScriptedChatModel(script=script), [ask], name="helper")

    @tool
    def delegate(task: str, config: RunnableConfig) -> str:
        """Let another agent do it."""
        helper.invoke(ASKED, config)
        return "asked"

    outer = ScriptedChatModel(script=once("delegate", {"task": "look"}))
    agent = create_agent(outer, [delegate], name="chief", checkpointer=InMemorySaver())
    handler = TidegaugeCallbackHandler()
    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
    with testing.capture() as seen:
        reports = Reports(seen)
        await way(agent, TASK, config)
        assert not reports
        await way(agent, Command(resume="me"), config)
        assert nothing_is_left(handler, seen)
    assert summary(reports) == [("helper", 1, 12), ("chief", 1, 12)]


def test_an_agent_that_waits_is_continued_in_another_process(tmp_path: Path) -> None:
    script = once("ask", {"place": "desk"})
    helper = create_react_agent(ScriptedChatModel(script=script), [ask], name="helper")
    agent = chief(helper, invoked, passed=True)
    agent.checkpointer = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "one"}}
    store = str(tmp_path / "runs.sqlite")
    with testing.capture(run_store=store):
        agent.invoke(TASK, {**config, "callbacks": [TidegaugeCallbackHandler()]})
    handler = TidegaugeCallbackHandler()
    with testing.capture(run_store=store) as seen:
        reports = Reports(seen)
        agent.invoke(Command(resume="me"), {**config, "callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.steps) for r in reports] == [("helper", 1), ("chief", 1)]


def test_the_middleware_guides_an_agent_from_its_first_turn() -> None:
    """It ends the agent by a message: nothing is raised, also not in the agent around it."""
    model = ScriptedChatModel(script=looks_for_ever)
    helper = create_agent(model, [look], name="helper", middleware=[TidegaugeMiddleware()])
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        chief(helper, invoked, passed=True).invoke(TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.agent, r.outcome) for r in reports] == [("helper", "stopped"), ("chief", "unknown")]


def test_the_success_of_an_agent_by_its_own_name() -> None:
    handler = TidegaugeCallbackHandler(success={"helper": lambda state: True})
    with testing.capture() as seen:
        reports = Reports(seen)
        chief(by_hand(looks_around), invoked, passed=True).invoke(TASK, {"callbacks": [handler]})
    assert [(r.agent, r.success) for r in reports] == [("helper", True), ("chief", None)]


@pytest.mark.parametrize("passed", [True, False])
async def test_a_supervisor_that_a_tool_calls_is_one_run(passed: bool) -> None:
    """Its hand-offs are its steps, as they are where it is outermost."""

    def boss(messages: Sequence[BaseMessage]) -> AIMessage:
        found = any(message.content == "none" for message in messages)
        return answers("done") if found else chooses(("transfer_to_seeker", {}))

    seeker = create_react_agent(ScriptedChatModel(script=seeks), [look], name="seeker")
    graph = create_supervisor([seeker], model=Bound(script=boss))
    reports = await healthy(chief(graph.compile(name="team"), invoked, passed=passed))
    assert [report.agent for report in reports] == ["team", "chief"]
    assert reports[0].steps == 2


def seeks(messages: Sequence[BaseMessage]) -> AIMessage:
    looked = messages[-1].type == "tool" and "empty" in str(messages[-1].content)
    return answers("none") if looked else chooses(("look", {"place": "desk"}))


async def test_a_swarm_that_a_tool_calls_is_one_run() -> None:
    def anna(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(("transfer_to_bert", {}))

    to_bert = create_handoff_tool(agent_name="bert")
    members: list[Any] = [
        create_react_agent(Bound(script=anna), [to_bert], name="anna"),
        create_react_agent(Bound(script=seeks), [look], name="bert"),
    ]
    swarm = create_swarm(members, default_active_agent="anna").compile(name="swarm")
    reports = await healthy(chief(swarm, invoked, passed=True))
    assert [(r.agent, r.steps) for r in reports] == [("swarm", 2), ("chief", 1)]


@pytest.mark.parametrize("made", AGENTS)
async def test_a_compiled_sub_agent_of_a_deep_agent(made: Any) -> None:
    helper: Any = {"name": "helper", "description": "looks", "runnable": made(looks_around)}
    asked = {"description": "look around", "subagent_type": "helper"}
    deep = create_deep_agent(
        ScriptedChatModel(script=once("task", asked)), subagents=[helper], name="deep"
    )
    assert summary(await healthy(deep)) == [("helper", 3, 36), ("deep", 1, 12)]


async def test_nodes_as_steps() -> None:
    """An agent in a node is a run under that node's step."""
    graph = StateGraph(MessagesState)
    helper = reacting(looks_around)
    graph.add_node("work", lambda state, config: helper.invoke(ASKED, config))
    graph.add_edge(START, "work")
    handler = TidegaugeCallbackHandler(steps="nodes")
    reports = await healthy(graph.compile(name="team"), handler=handler)
    assert summary(reports)[0] == ("helper", 3, 36)
    assert [(r.agent, r.steps) for r in reports] == [("helper", 3), ("team", 1)]


def test_a_call_is_the_helpers_alone() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        log, reports = StepLog(seen), Reports(seen)
        chief(bound_before(looks_around), invoked, passed=True).invoke(
            TASK, {"callbacks": [handler]}
        )
    helper, outer = reports
    calls = [calls for calls, *_ in log.steps(helper.run)]
    assert calls == [(Call("look", {"place": place}),) for place in PLACES]
    assert [calls for calls, *_ in log.steps(outer.run)] == [(Call("delegate", {"task": "look"}),)]
