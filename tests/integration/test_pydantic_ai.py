"""A pydantic-ai agent, traced by its own instrumentation and read by our span processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

import tidegauge
from support.other_spans import Listener
from tidegauge import testing
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def scripted(script: Any, provider: TracerProvider, name: str = "helper", **fields: Any) -> Any:
    """An agent whose model says ``script(turn, info)``, traced."""

    def model(messages: list[Any], info: AgentInfo) -> ModelResponse:
        return script(sum(isinstance(message, ModelResponse) for message in messages), info)

    traced = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    agent = Agent(FunctionModel(model), name=name, capabilities=[traced], **fields)

    @agent.tool_plain
    def look(place: str) -> str:
        return f"nothing in {place}"

    @agent.tool_plain
    def read(page: int) -> dict[str, int]:
        return {"page": page}

    @agent.tool_plain(retries=5)
    def open_door(key: str) -> str:
        raise ModelRetry(f"{key} does not fit")

    return agent


def calls(*values: tuple[str, dict[str, Any]]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, arguments) for name, arguments in values])


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def wandering(turn: int, info: AgentInfo) -> ModelResponse:
    if turn == 0:
        return calls(("look", {"place": "hall"}), ("look", {"place": "attic"}))
    if turn == 1:
        return calls(("open_door", {"key": "brass"}))
    if turn == 2:
        return calls(("nosuch", {"n": 1}))
    if turn < 9:
        return calls(("look", {"place": "hall"}) if turn % 2 else ("read", {"page": 1}))
    return says("I give up")


async def test_traced_and_its_loop_seen(provider):
    processor = TidegaugeSpanProcessor(task_group="house", success=lambda span: span.status.is_ok)
    provider.add_span_processor(processor)
    with testing.capture() as seen:
        listener = Listener(seen)
        await scripted(wandering, provider).run("find the key")
        [((name, task, group, _, _), (thread, _), steps, outcomes, measured)] = listener.story()
    assert (name, task, group) == ("helper", "find the key", "house")
    assert thread is not None
    assert [step[1] for step in steps] == [
        ("look", "look"),
        ("open_door",),
        ("nosuch",),
        *[("look",), ("read",)] * 3,
    ]
    assert outcomes[0][1] == (("nothing in hall", False), ("nothing in attic", False))
    assert outcomes[1][1] == (("brass does not fit", True),)
    assert "nosuch" in outcomes[2][1][0][0]
    assert outcomes[4][1] == (('{"page":1}', False),)
    assert all(step[4] > 0 for step in steps)
    # The first "look" follows another outcome than the later ones: the loop begins after it.
    assert measured["loops"] == [(6, 2, 1, 3)]
    assert measured["success"] is True
    assert len(processor._grouping) == 0


async def test_flagged_while_it_runs_and_stopped_by_the_application(provider):
    processor = TidegaugeSpanProcessor()
    provider.add_span_processor(processor)
    flags = []

    async def until_stopped(agent: Any) -> None:
        async with agent.iter("find the key") as run:
            async for _ in run:
                flags.append(processor.decision().action)
                processor.enforce()

    with testing.capture(stop_on_loop=2) as seen:
        listener = Listener(seen)
        agent = scripted(lambda turn, info: calls(("look", {"place": "hall"})), provider)
        with pytest.raises(tidegauge.RunStopped) as stopped:
            await until_stopped(agent)
        [(_, _, steps, outcomes, measured)] = listener.story()
    assert stopped.value.reason == "loop_repeats"
    assert flags[-1] == "stop"
    assert set(flags[:-1]) == {"go_on"}
    assert len(steps) == stopped.value.step + 1
    assert len(outcomes) == stopped.value.step  # the call that went too far was not run
    assert measured["outcome"] == "stopped"


async def test_stopped_inside_a_tool(provider):
    processor = TidegaugeSpanProcessor()
    provider.add_span_processor(processor)
    agent = scripted(lambda turn, info: calls(("peek", {})), provider)
    runs = []

    @agent.tool_plain
    def peek() -> str:
        runs.append(processor.find_run())
        processor.enforce()
        return "nothing"

    with testing.capture(stop_on_loop=2) as seen:
        listener = Listener(seen)
        with pytest.raises(tidegauge.RunStopped):
            await agent.run("find the key")
        [(_, _, steps, _, measured)] = listener.story()
    assert {run.id for run in runs} == {listener.started[0].run}
    assert measured["outcome"] == "stopped"
    assert len(steps) == len(runs)


async def test_an_agent_that_is_a_tool_is_a_run_of_its_own(provider):
    provider.add_span_processor(TidegaugeSpanProcessor())
    inner = scripted(
        lambda turn, info: calls(("look", {"place": "attic"})) if turn < 2 else says("nothing"),
        provider,
        name="searcher",
    )
    outer = scripted(
        lambda turn, info: calls(("search", {"what": "key"})) if turn < 2 else says("no key"),
        provider,
        name="leader",
    )

    @outer.tool_plain
    async def search(what: str) -> str:
        return str((await inner.run(what)).output)

    with testing.capture() as seen:
        listener = Listener(seen)
        await outer.run("find the key")
        reported = [(run[0][0], run[1][1], [s[1] for s in run[2]]) for run in listener.story()]
    assert reported == [
        ("leader", None, [("search",)] * 2),
        ("searcher", "run 0", [("look",)] * 2),
        ("searcher", "run 0", [("look",)] * 2),
    ]


async def test_a_tool_that_is_the_form_of_the_answer_is_no_action(provider):
    provider.add_span_processor(TidegaugeSpanProcessor())

    class Answer(BaseModel):
        place: str

    def script(turn: int, info: AgentInfo) -> ModelResponse:
        if turn == 0:
            return calls(("look", {"place": "hall"}))
        return calls((info.output_tools[0].name, {"place": "hall"}))

    with testing.capture() as seen:
        listener = Listener(seen)
        run = await scripted(script, provider, output_type=Answer).run("find the key")
        [(_, _, steps, _, _)] = listener.story()
    assert run.output == Answer(place="hall")
    assert [step[1] for step in steps] == [("look",)]


async def test_polled_by_conversation_and_by_trace(provider):
    processor = TidegaugeSpanProcessor(agent="named", memory="on", t_max=5, model="m")
    provider.add_span_processor(processor)
    agent = scripted(lambda turn, info: calls(("peek", {})), provider)

    @agent.tool_plain
    def peek() -> str:
        run = processor.find_run()
        event = run.event
        assert (event.agent, event.memory, event.t_max, event.model) == ("named", "on", 5, "m")
        assert processor.find_run(event.trace_id) is run
        assert processor.find_run(int(event.trace_id, 16)) is run
        assert processor.find_run(conversation=event.conversation) is run
        processor.enforce("0" * 31 + "1")  # another trace
        processor.enforce(conversation="another")
        processor.enforce(conversation=event.conversation)
        return "nothing"

    with testing.capture(stop_on_steps=3), pytest.raises(tidegauge.RunStopped):
        await agent.run("find the key")
    assert processor.find_run() is None
    assert processor.decision().action == "go_on"
