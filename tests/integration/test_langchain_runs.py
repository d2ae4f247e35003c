"""What the callback handler makes of LangChain agents that are not stopped."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

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
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

TASK: dict[str, Any] = {"messages": [HumanMessage("find the key", id="task")]}


@tool
def look(place: str) -> str:
    """Look into a place."""
    return f"{place} is empty"


@tool
async def look_later(place: str) -> str:
    """Look into a place."""
    await asyncio.sleep(0)
    return f"{place} is empty"


def script(*said: AIMessage) -> Callable[[Sequence[BaseMessage]], AIMessage]:
    """Say these messages, one a turn."""
    return lambda messages: said[turns(messages)].model_copy(update={"id": f"m{turns(messages)}"})


def searching(tool_name: str = "look") -> ScriptedChatModel:
    return ScriptedChatModel(
        script=script(
            chooses((tool_name, {"place": "desk"})),
            chooses((tool_name, {"place": "shelf"}), (tool_name, {"place": "box"})),
            answers("there is none"),
        )
    )


def contents(messages: Sequence[BaseMessage]) -> list[tuple[str, Any, Any]]:
    return [(m.type, m.content, getattr(m, "tool_calls", None)) for m in messages]


@pytest.mark.parametrize(
    ("way", "used"),
    [
        (via_invoke, look),
        (via_stream, look),
        (via_ainvoke, look),
        (via_ainvoke, look_later),
        (via_astream, look_later),
    ],
)
async def test_the_agent_does_what_it_did_without_the_handler(
    way: Callable[..., Any], used: Any
) -> None:
    handler = TidegaugeCallbackHandler()
    agent = create_agent(searching(used.name), [used], name="seeker")
    with testing.capture(stop_on_loop=1, stop_on_failed_rounds=1) as seen:
        bare = await way(agent, TASK, {})
        reports = Reports(seen)
        result = await way(agent, TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert contents(result["messages"]) == contents(bare["messages"])
    assert [(r.steps, r.outcome, r.tokens) for r in reports] == [(2, "unknown", 24.0)]
    name = f"  execute_tool {used.name}"
    chat = "  chat scripted-1"
    assert seen.tree() == ["invoke_agent seeker", chat, name, chat, name, name, chat]


def test_spans_carry_what_is_known_and_no_contents() -> None:
    with testing.capture() as seen:
        agent = create_agent(searching(), [look], name="seeker")
        agent.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler(task_group="keys")]})
    spans = {span.name: span for span in reversed(seen.spans)}
    root, chat = spans["invoke_agent seeker"], spans["chat scripted-1"]
    used = spans["execute_tool look"]
    assert root.attributes["tidegauge.task_group"] == "keys"
    assert root.attributes["tidegauge.steps"] == 2
    assert chat.kind.name == "CLIENT"
    assert chat.attributes["gen_ai.provider.name"] == "gcp.gemini"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 10
    assert chat.attributes["gen_ai.usage.output_tokens"] == 2
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert str(used.attributes["gen_ai.tool.call.id"]).startswith("call-")
    assert used.attributes["tidegauge.step.index"] == 0
    text = " ".join(str(dict(span.attributes or {})) for span in seen.spans)
    assert not any(content in text for content in ("desk", "is empty", "find the key"))


def test_parallel_calls_are_one_step_whatever_their_order() -> None:
    order = iter([("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")])
    both = threading.Barrier(2, timeout=10)

    @tool
    def ask(who: str) -> str:
        """Ask somebody."""
        both.wait()  # they do run at once
        return f"{who} knows nothing"

    def fan_out(messages: Sequence[BaseMessage]) -> AIMessage:
        return chooses(*[("ask", {"who": who}) for who in next(order)])

    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=1) as seen:
        agent = create_agent(ScriptedChatModel(script=fan_out), [ask])
        with pytest.raises(tidegauge.RunStopped) as caught:
            agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        (group,) = seen.pipeline.engine.snapshot().groups
    assert caught.value.step == 2
    assert group.totals.steps == 3
    assert list(group.totals.loop_steps) == ["ask+ask"]
    assert sum(span.name == "execute_tool ask" for span in seen.spans) == 4


def test_a_round_of_one_success_is_no_failed_round() -> None:
    @tool
    def open_(door: str) -> str:
        """Open a door."""
        if door != "red":
            raise RuntimeError("locked")
        return "open"

    model = ScriptedChatModel(
        script=script(
            *[chooses(("open_", {"door": "red"}), ("open_", {"door": str(n)})) for n in range(3)],
            answers("done"),
        )
    )
    agent = graph_agent(model, [open_])
    with testing.capture(stop_on_failed_rounds=1) as seen:
        reports = Reports(seen)
        agent.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
    assert [(report.steps, report.failed_rounds_max) for report in reports] == [(3, 0)]


def test_labels_come_from_the_handler_and_metadata_override_them() -> None:
    handler = TidegaugeCallbackHandler(
        agent="seeker", task_group="keys", t_max=30, model="scripted-1", memory="off"
    )
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(searching(), [look], name="named")
        agent.invoke(TASK, config={"callbacks": [handler]})
        metadata = {
            "tidegauge_agent": "finder",
            "tidegauge_task": "other",
            "tidegauge_task_group": "doors",
            "tidegauge_t_max": 5,
            "tidegauge_memory": "on",
        }
        agent.invoke(TASK, config={"callbacks": [handler], "metadata": metadata})
        agent.invoke(TASK, config={"callbacks": [TidegaugeCallbackHandler()]})
        create_agent(searching(), [look]).invoke(
            TASK, config={"callbacks": [TidegaugeCallbackHandler()], "run_name": "by name"}
        )
        RunnableLambda(str, name="plain").invoke(
            "text", config={"callbacks": [TidegaugeCallbackHandler()]}
        )
    reported = [(r.agent, r.task_group, r.t_max, r.model, r.memory) for r in reports]
    assert reported == [
        ("seeker", "keys", 30, "scripted-1", "off"),
        ("finder", "doors", 5, "scripted-1", "on"),
        ("named", "", None, None, None),
        ("by name", "", None, None, None),
        ("plain", "", None, None, None),
    ]


@pytest.mark.parametrize("setting", [{"t_max": 0}, {"idle_seconds": 0}, {"idle_seconds": -1}])
def test_a_setting_that_cannot_work_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(tidegauge.ConfigurationError, match=next(iter(setting))):
        TidegaugeCallbackHandler(**setting)


def test_success_is_read_from_the_output() -> None:
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(searching(), [look])
        for expected in ("none", "some"):
            handler = TidegaugeCallbackHandler(
                t_max=10,
                success=lambda output, expected=expected: (  # type: ignore[misc]
                    expected in output["messages"][-1].content
                ),
            )
            agent.invoke(TASK, config={"callbacks": [handler]})
        list(agent.stream(TASK, config={"callbacks": [handler]}))
    assert [report.outcome for report in reports] == ["success", "failure", "failure"]


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_success_callable_that_fails_hurts_nobody() -> None:
    from tidegauge.safety.guard import internal_errors

    handler = TidegaugeCallbackHandler(success=lambda output: output["no such key"])
    with testing.capture() as seen:
        reports = Reports(seen)
        create_agent(searching(), [look]).invoke(TASK, config={"callbacks": [handler]})
    assert [report.outcome for report in reports] == ["unknown"]
    assert internal_errors.counts() == {"langchain.success": 1}


def test_an_error_of_the_agent_is_its_own_and_the_runs_outcome() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        raise OSError("no light")

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        with pytest.raises(OSError, match="no light"):
            create_agent(searching(), [look]).invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.outcome, r.failed_rounds_max) for r in reports] == [("error", 1)]
    status = {span.name: span.status.status_code.name for span in seen.spans}
    assert status == {
        "invoke_agent LangGraph": "ERROR",
        "chat scripted-1": "UNSET",
        "execute_tool look": "ERROR",
    }


def test_a_graph_interrupted_on_no_thread_is_neither_solved_nor_failed() -> None:
    @tool
    def look(place: str) -> str:
        """Look into a place."""
        return str(interrupt(f"may I look into {place}?"))

    model = ScriptedChatModel(script=script(chooses(("look", {"place": "desk"})), answers("done")))
    handler = TidegaugeCallbackHandler(success=bool)
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(model, [look])
        assert "__interrupt__" in agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert [(r.outcome, r.steps, r.failed_rounds_max) for r in reports] == [("unknown", 1, None)]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


@pytest.mark.parametrize("way", ["stream", "astream", "cancel"])
async def test_a_run_that_is_given_up_leaves_nothing(way: str) -> None:
    @tool
    async def wait(place: str) -> str:
        """Wait somewhere."""
        started.set()
        await asyncio.sleep(60)
        return ""

    started = asyncio.Event()
    handler = TidegaugeCallbackHandler(success=bool)
    config: Any = {"callbacks": [handler]}
    with testing.capture() as seen:
        reports = Reports(seen)
        if way == "stream":
            stream = create_agent(searching(), [look]).stream(TASK, config=config)
            next(stream)
            stream.close()
        elif way == "astream":
            later = create_agent(searching(), [look]).astream(TASK, config=config)
            await anext(later)
            await later.aclose()
        else:
            agent = create_agent(searching("wait"), [wait])
            task = asyncio.create_task(agent.ainvoke(TASK, config=config))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert nothing_is_left(handler, seen)
    assert [report.outcome for report in reports] == ["unknown"]
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


def test_a_call_retried_by_middleware_is_one_step_with_its_last_outcome() -> None:
    attempts = []

    @tool
    def look(place: str) -> str:
        """Look into a place."""
        attempts.append(place)
        if attempts.count(place) < 3:
            raise OSError("no light")
        return f"{place} is empty"

    handler = TidegaugeCallbackHandler()
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    with testing.capture(stop_on_failed_rounds=1) as seen:
        reports = Reports(seen)
        agent = create_agent(searching(), [look], middleware=[retry])
        agent.invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert len(attempts) == 9
    assert [(r.steps, r.failed_rounds_max, r.outcome) for r in reports] == [(2, 0, "unknown")]
    assert sum(span.name == "execute_tool look" for span in seen.spans) == 9


def test_calls_that_never_run_are_observed_by_their_answers() -> None:
    model = ScriptedChatModel(script=lambda messages: chooses(("fly", {"to": "the moon"})))
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        with pytest.raises(tidegauge.RunStopped) as caught:
            create_agent(model, [look]).invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert caught.value.step == 3
    assert caught.value.metrics["failed_rounds"] == 3


def test_a_call_that_is_answered_without_being_run_has_a_span() -> None:
    """Of an unknown tool, or one that a person refused: it failed, and took no time."""
    fly = ("fly", {"to": "the moon"})
    model = ScriptedChatModel(
        script=script(chooses(fly, ("look", {"place": "desk"})), answers("no way"))
    )
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        create_agent(model, [look]).invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert seen.tree() == [
        "invoke_agent LangGraph",
        "  chat scripted-1",
        "  execute_tool look",
        "  execute_tool fly",
        "  chat scripted-1",
    ]
    (span,) = [span for span in seen.spans if span.name == "execute_tool fly"]
    assert span.attributes["error.type"] == "tool_error"
    assert span.attributes["tidegauge.step.index"] == 0
    assert str(span.attributes["gen_ai.tool.call.id"]).startswith("call-")


def test_an_answer_of_a_given_form_is_no_step() -> None:
    class Place(BaseModel):
        """A place."""

        name: str

    model = ScriptedChatModel(script=lambda messages: chooses(("Place", {"name": "desk"})))
    guess = model.with_structured_output(Place)
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = RunnableLambda(guess.invoke, name="guess")
        result = agent.invoke("where?", config={"callbacks": [TidegaugeCallbackHandler()]})
    assert result == Place(name="desk")
    assert [report.steps for report in reports] == [0]
    assert seen.tree() == ["invoke_agent guess", "  chat scripted-1"]


def test_tools_called_by_hand_are_the_calls_that_were_chosen() -> None:
    model = searching()

    def loop(text: str) -> str:
        messages: list[BaseMessage] = [HumanMessage(text)]
        while True:
            said = model.invoke(messages)
            messages.append(said)
            if not said.tool_calls:
                return str(said.content)
            for call in reversed(said.tool_calls):
                result = look.invoke(call["args"])
                messages.append(ToolMessage(result, tool_call_id=call["id"]))

    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        result = RunnableLambda(loop).invoke("find the key", config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    assert result == "there is none"
    assert [(report.steps, report.failed_rounds_max) for report in reports] == [(2, 0)]
    indices = [s.attributes["tidegauge.step.index"] for s in seen.spans if "tool" in s.name]
    assert indices == [0, 1, 1]


def delegating(named: str, inner: ScriptedChatModel) -> Any:
    """An agent whose one tool asks another agent."""

    @tool
    def delegate(task: str) -> str:
        """Let somebody else do it."""
        helper = create_agent(inner, [look], name=named)
        return str(helper.invoke({"messages": [("user", task)]})["messages"][-1].content)

    model = ScriptedChatModel(
        script=script(chooses(("delegate", {"task": "look around"})), answers("done"))
    )
    return create_agent(model, [delegate], name="chief")


def test_an_agent_inside_a_tool_is_a_run_of_its_own() -> None:
    handler = TidegaugeCallbackHandler(task_group="keys", success=lambda output: True)
    with testing.capture() as seen:
        reports = Reports(seen)
        delegating("helper", searching()).invoke(TASK, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    inner, outer = reports
    assert (inner.agent, inner.steps, inner.tokens, inner.outcome) == ("helper", 2, 24, "unknown")
    assert (outer.agent, outer.steps, outer.tokens, outer.outcome) == ("chief", 1, 12, "success")
    assert inner.task_group == "keys"
    chat, used = "chat scripted-1", "execute_tool look"
    assert seen.tree() == [
        "invoke_agent chief",
        f"  {chat}",
        "  execute_tool delegate",
        "    invoke_agent helper",
        *[f"      {name}" for name in (chat, used, chat, used, used, chat)],
        f"  {chat}",
    ]
    parents = [span.attributes.get("tidegauge.run.parent") for span in seen.spans]
    assert outer.run in parents


@pytest.mark.parametrize("way", [via_invoke, via_ainvoke, via_stream])
async def test_the_stop_of_an_agent_inside_a_tool_surfaces(way: Callable[..., Any]) -> None:
    looping = ScriptedChatModel(script=lambda messages: chooses(("look", {"place": "desk"})))
    handler = TidegaugeCallbackHandler()
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as caught:
            await way(delegating("helper", looping), TASK, {"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
    inner, outer = reports
    assert caught.value.run == inner.run
    assert (inner.agent, inner.outcome) == ("helper", "stopped")
    assert (outer.agent, outer.outcome) == ("chief", "stopped")
    assert {span.status.status_code.name for span in seen.spans} == {"UNSET"}


def many(number: int) -> ScriptedChatModel:
    """Loops when its task is an odd number; else looks into as many places."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        task = next(int(str(m.content)) for m in messages if m.type == "human")
        turn = turns(messages)
        if task % 2:
            return chooses(("look", {"place": "desk"}))
        done = turn >= task
        return answers("done") if done else chooses(("look", {"place": f"{task}.{turn}"}))

    return ScriptedChatModel(script=say)


def inputs(number: int) -> list[dict[str, Any]]:
    return [{"messages": [("user", str(task))]} for task in range(number)]


@pytest.mark.parametrize("way", ["batch", "gather"])
async def test_runs_at_once_do_not_mix(way: str) -> None:
    handler = TidegaugeCallbackHandler()
    number = 8
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        agent = create_agent(many(number), [look], name="seeker")
        config: Any = {"callbacks": [handler], "max_concurrency": 4}
        if way == "batch":
            result = agent.batch(inputs(number), config=config, return_exceptions=True)  # type: ignore[arg-type]
        else:
            result = await asyncio.gather(
                *[agent.ainvoke(one, config=config) for one in inputs(number)],
                return_exceptions=True,
            )
        assert nothing_is_left(handler, seen)
    stopped = [isinstance(one, tidegauge.RunStopped) for one in result]
    assert stopped == [bool(task % 2) for task in range(number)]
    steps = sorted((report.outcome, report.steps) for report in reports)
    assert steps == [("stopped", 4)] * 4 + [("unknown", task) for task in range(0, number, 2)]
    traces = {span.context.trace_id for span in seen.spans}
    assert len(traces) == number


def test_a_handler_given_twice_counts_once() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        reports = Reports(seen)
        agent = create_agent(searching(), [look]).with_config(callbacks=[handler])
        agent.invoke(TASK, config={"callbacks": [handler]})
        agent.invoke(TASK, config={"callbacks": [handler, handler]})
        assert nothing_is_left(handler, seen)
    assert [(report.steps, report.tokens) for report in reports] == [(2, 24.0)] * 2
    assert len(seen.spans) == 14


def test_a_run_inside_a_run_by_hand_is_its_child() -> None:
    with testing.capture() as seen, tidegauge.run(agent="outer") as outer:
        create_agent(searching(), [look], name="inner").invoke(
            TASK, config={"callbacks": [TidegaugeCallbackHandler()]}
        )
    (root,) = [span for span in seen.spans if span.name == "invoke_agent inner"]
    assert root.attributes["tidegauge.run.parent"] == outer.id
    assert seen.tree()[:2] == ["invoke_agent outer", "  invoke_agent inner"]


def test_without_a_chain_around_it_a_model_or_a_tool_is_no_run() -> None:
    handler = TidegaugeCallbackHandler()
    with testing.capture() as seen:
        searching().invoke("hello", config={"callbacks": [handler]})
        look.invoke({"place": "desk"}, config={"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert not seen.pipeline.engine.snapshot().groups
    assert not seen.spans


class Large:
    """A value of the user's, in the state of a graph."""


class Holding(TypedDict):
    """A state that holds one."""

    large: Large | None
    steps: int


def test_a_value_of_the_state_lives_no_longer_than_without_a_handler() -> None:
    """Also where the collector of cycles does not run."""
    alive = weakref.WeakSet[Large]()
    most = []

    def work(state: Holding) -> dict[str, Any]:
        most.append(len(alive))
        large = Large()
        alive.add(large)
        return {"large": large, "steps": state["steps"] + 1}

    graph = StateGraph(Holding)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["steps"] < 20 else END)
    config: Any = {"callbacks": [TidegaugeCallbackHandler(agent="holds")], "recursion_limit": 99}
    gc.collect()
    gc.disable()
    try:
        graph.compile().invoke({"large": None, "steps": 0}, config)
        assert (max(most), len(alive)) == (1, 0)
    finally:
        gc.enable()
