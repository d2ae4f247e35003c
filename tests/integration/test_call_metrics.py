"""The conventions' metrics of real agents: only where tidegauge is the instrumentation."""

from __future__ import annotations

from collections import Counter

import pytest
from agents import Agent, Runner, function_tool
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

import tidegauge
from support.agents_sdk import chat_completions, traced_by
from support.other_spans import instrumented
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.openai_agents import TidegaugeTracingProcessor

TASK = {"messages": [HumanMessage("find the key")]}


@tool
def look(place: str) -> str:
    """Look into a place."""
    if place == "box":
        raise ValueError("it is locked")
    return f"{place} is empty"


def agent(name="searcher"):
    said = [chooses(("look", {"place": "desk"})), answers("there is none")]
    model = ScriptedChatModel(script=lambda messages: said[turns(messages)])
    return create_agent(model, [look], name=name)


def recorded(reader):
    """Metric and attributes -> how often; tokens -> their sum."""
    found = Counter()
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    tokens = metric.name == "gen_ai.client.token.usage"
                    key = (metric.name, *sorted(point.attributes.items()))
                    found[key] = point.sum if tokens else point.count
    return dict(found)


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture(params=[ALWAYS_ON, ALWAYS_OFF], ids=["sampled", "not sampled"])
def seen(request, reader):
    with testing.capture(
        meter_provider=MeterProvider([reader], shutdown_on_exit=False),
        tracer_provider=TracerProvider(sampler=request.param, shutdown_on_exit=False),
    ) as seen:
        yield seen


def test_decorated_functions(seen, reader):
    @tidegauge.tool
    def find(what):
        if what == "key":
            raise LookupError
        return "found"

    with tidegauge.run(agent="plain"):
        find("door")
        find("door")
        with pytest.raises(LookupError):
            find("key")
    call = (("gen_ai.agent.name", "plain"), ("gen_ai.tool.name", "find"))
    kind = ("gen_ai.tool.type", "function")
    assert recorded(reader) == {
        ("gen_ai.execute_tool.duration", *call, kind): 2,
        ("gen_ai.execute_tool.duration", ("error.type", "builtins.LookupError"), *call, kind): 1,
        ("gen_ai.invoke_agent.duration", ("gen_ai.agent.name", "plain")): 1,
    }


def test_langchain(seen, reader):
    agent().invoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]})
    found = recorded(reader)
    by_name = Counter()
    for (name, *_), number in found.items():
        by_name[name] += number
    assert by_name == {
        "gen_ai.client.operation.duration": 2,
        "gen_ai.client.token.usage": 2 * (10 + 2),
        "gen_ai.execute_tool.duration": 1,
        "gen_ai.invoke_agent.duration": 1,
    }
    assert found["gen_ai.invoke_agent.duration", ("gen_ai.agent.name", "searcher")] == 1
    chats = [dict(attributes) for name, *attributes in found if name.startswith("gen_ai.client")]
    assert {one["gen_ai.operation.name"] for one in chats} == {"chat"}
    kinds = {one["gen_ai.token.type"] for one in chats if "gen_ai.token.type" in one}
    assert kinds == {"input", "output"}


def test_a_call_that_was_not_run_took_no_time(seen, reader):
    said = [chooses(("fly", {"to": "the moon"})), answers("there is none")]
    model = ScriptedChatModel(script=lambda messages: said[turns(messages)])
    create_agent(model, [look]).invoke(TASK, {"callbacks": [TidegaugeCallbackHandler()]})
    assert "gen_ai.execute_tool.duration" not in {name for name, *_ in recorded(reader)}


async def test_the_openai_agents_sdk(seen, reader):
    @function_tool
    def read(page: int) -> str:
        return "nothing"

    model = chat_completions([[("read", {"page": 1})], "there is none"])
    with traced_by(TidegaugeTracingProcessor()):
        await Runner.run(Agent("reader", model=model, tools=[read]), "read it")
    by_name = Counter()
    for (name, *_), number in recorded(reader).items():
        by_name[name] += number
    assert by_name["gen_ai.client.operation.duration"] == 2
    assert by_name["gen_ai.execute_tool.duration"] == by_name["gen_ai.invoke_agent.duration"] == 1
    assert by_name["gen_ai.client.token.usage"] > 0


def test_somebody_else_s_spans_give_none(reader, monkeypatch):
    provider = MeterProvider([reader], shutdown_on_exit=False)
    with (
        testing.capture(meter_provider=provider) as seen,
        instrumented(monkeypatch, "openinference"),
    ):
        agent().invoke(TASK)
        [group] = seen.pipeline.engine.snapshot().groups
        assert group.totals.steps == 1
        assert recorded(reader) == {}
