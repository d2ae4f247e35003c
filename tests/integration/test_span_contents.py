"""What model calls were shown and answered, on their spans: each message once, or all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES

import tidegauge
from support.agents_sdk import chat_completions, responses, scripted, traced_by
from support.genai_registry import faults
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor
from tidegauge.testing import Capture, capture

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
POSITION, COUNT = "tidegauge.messages.position", "tidegauge.messages.count"
QUESTION = {"messages": [("user", "where is the key?")]}


@tool
def look(place: int) -> str:
    """Look into a place."""
    return f"place {place} is empty"


def chats(seen: Capture) -> list[dict[str, Any]]:
    """The attributes of the model calls."""
    return [dict(span.attributes or {}) for span in seen.spans if span.name.startswith("chat")]


def read(found: dict[str, Any], name: str) -> list[str]:
    """The messages in short: role, and what each part says."""
    return [
        f"{message['role']}: {' '.join(str(said(part)) for part in message['parts'])}"
        for message in json.loads(found.get(name, "[]"))
    ]


def said(part: dict[str, Any]) -> Any:
    return part.get("content", part.get("response", part.get("arguments", part["type"])))


def looking_agent(steps: int, **given: Any) -> Any:
    def script(messages: Sequence[Any]) -> AIMessage:
        turn = turns(messages)
        return chooses(("look", {"place": turn})) if turn < steps else answers("it is gone")

    return create_agent(ScriptedChatModel(script=script), [look], name="porter", **given)


def worked(agent: Any, **settings: Any) -> Capture:
    with capture(capture_content=True, **settings) as seen:
        config = {"callbacks": [TidegaugeCallbackHandler()], "recursion_limit": 10_000}
        agent.invoke(QUESTION, config)
    assert faults(seen.spans, contents=True) == []
    return seen


def test_all_spans_of_a_run_have_every_message_once() -> None:
    seen = worked(looking_agent(2, system_prompt="You look for keys."))
    found = chats(seen)
    assert [(read(chat, INPUT), read(chat, OUTPUT)) for chat in found] == [
        (["user: where is the key?"], ["assistant: {'place': 0}"]),
        (["tool: place 0 is empty"], ["assistant: {'place': 1}"]),
        (["tool: place 1 is empty"], ["assistant: it is gone"]),
    ]
    assert [(chat[POSITION], chat[COUNT]) for chat in found] == [(0, 1), (2, 3), (4, 5)]
    instructions = [chat.get("gen_ai.system_instructions") for chat in found]
    assert instructions == ['[{"type":"text","content":"You look for keys."}]', None, None]
    definitions = [chat.get("gen_ai.tool.definitions") for chat in found]
    assert definitions == ['[{"type":"function","name":"look"}]', None, None]
    [root] = [span for span in seen.spans if span.name == "invoke_agent porter"]
    assert read(dict(root.attributes or {}), INPUT) == ["user: where is the key?"]
    assert read(dict(root.attributes or {}), OUTPUT) == ["assistant: it is gone"]


def test_a_call_and_its_result_are_joined_by_the_id() -> None:
    seen = worked(looking_agent(1))
    first, second = chats(seen)
    [call] = json.loads(first[OUTPUT])[0]["parts"]
    [result] = json.loads(second[INPUT])[0]["parts"]
    assert call["id"] == result["id"]
    assert call["name"] == "look"


def test_the_whole_history_each_time() -> None:
    found = chats(worked(looking_agent(2, system_prompt="You look."), contents="full"))
    assert [chat[POSITION] for chat in found] == [0, 0, 0]
    assert [len(read(chat, INPUT)) for chat in found] == [1, 3, 5]
    assert all("gen_ai.system_instructions" in chat for chat in found)


def test_without_contents_nothing_is_read() -> None:
    with capture() as seen:
        looking_agent(1).invoke(QUESTION, {"callbacks": [TidegaugeCallbackHandler()]})
    for chat in chats(seen):
        assert not {INPUT, OUTPUT, POSITION, COUNT} & chat.keys()


def test_bytes_are_flat_in_the_length_of_a_run() -> None:
    found = chats(worked(looking_agent(60)))
    sizes = [len(chat[INPUT]) + len(chat[OUTPUT]) for chat in found]
    assert max(sizes[10:-1]) <= max(sizes[1:10]) + 10  # a number of two digits
    assert [chat[POSITION] for chat in found] == [0, *range(2, 121, 2)]


def ask(model: Any, histories: Sequence[Sequence[Any]]) -> Capture:
    """One run that asks a model again and again, each time with another history."""

    def work(_: object) -> None:
        for history in histories:
            model.invoke(history)

    with capture(capture_content=True) as seen:
        RunnableLambda(work).invoke("x", {"callbacks": [TidegaugeCallbackHandler(agent="a")]})
    return seen


def test_a_summarised_history_is_carried_from_the_summary_on() -> None:
    model = ScriptedChatModel(script=lambda messages: answers("ok"))
    kept = [HumanMessage(f"m{n}") for n in range(4)]
    summary = HumanMessage("what was said")
    found = chats(ask(model, [kept, [summary, *kept[2:], HumanMessage("m5")]]))
    assert read(found[1], INPUT) == ["user: what was said", "user: m2", "user: m3", "user: m5"]
    assert found[1][POSITION] == 0


def test_a_trimmed_history_is_carried_from_the_new_message_on() -> None:
    model = ScriptedChatModel(script=lambda messages: answers("ok"))
    kept = [HumanMessage(f"m{n}") for n in range(4)]
    found = chats(ask(model, [kept, [*kept[2:], HumanMessage("m5")]]))
    assert (read(found[1], INPUT), found[1][POSITION], found[1][COUNT]) == (["user: m5"], 2, 3)


def test_messages_that_are_made_again_each_time_are_known() -> None:
    template = ChatPromptTemplate.from_messages([("system", "Be brief."), ("placeholder", "{m}")])
    model = ScriptedChatModel(script=lambda messages: answers(f"a{turns(messages)}"))
    history: list[Any] = []

    def work(_: object) -> None:
        for n in range(3):
            history.append(("user", f"q{n}"))
            history.append(("ai", (template | model).invoke({"m": history}).content))

    with capture(capture_content=True) as seen:
        RunnableLambda(work).invoke("x", {"callbacks": [TidegaugeCallbackHandler(agent="a")]})
    assert [read(chat, INPUT) for chat in chats(seen)] == [["user: q0"], ["user: q1"], ["user: q2"]]


def test_blocks_of_a_message() -> None:
    blocks: Any = [
        "plain",
        {"type": "text", "text": "text"},
        {"type": "thinking", "thinking": "hm", "signature": "x" * 1_000},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        {"type": "server_tool", "data": "x"},
    ]
    model = ScriptedChatModel(script=lambda messages: answers("ok"))
    seen = ask(model, [[SystemMessage([{"type": "text", "text": "Look."}]), HumanMessage(blocks)]])
    assert json.loads(chats(seen)[0][INPUT])[0]["parts"] == [
        {"type": "text", "content": "plain"},
        {"type": "text", "content": "text"},
        {"type": "reasoning", "content": "hm"},
        {"type": "uri", "modality": "image", "uri": "https://a/b.png"},
        {"type": "omitted", "modality": "image"},
        {"type": "server_tool"},
    ]
    assert faults(seen.spans, contents=True) == []


def test_contents_are_redacted_everywhere() -> None:
    def hide(text: str) -> str:
        return text.replace("key", "***").replace("place", "*****").replace("keys", "****")

    agent = looking_agent(2, system_prompt="You look for keys.")
    seen = worked(agent, redact=hide)
    spans = [dict(span.attributes or {}) for span in seen.spans]
    hidden = [name for one in spans for name, value in one.items() if "key" in str(value)]
    assert hidden == []
    shown = [str(value) for one in spans for name, value in one.items() if "tool.call" in name]
    assert shown
    assert not [value for value in shown if "place" in value]


@pytest.mark.parametrize(
    ("make", "hooked"),
    [
        *((chat_completions, False), (chat_completions, True)),
        *((responses, False), (responses, True)),
        (scripted, True),  # such a model has no spans
    ],
)
def test_the_agents_sdk(make: Callable[..., Any], hooked: bool) -> None:
    @function_tool
    def push(door: str) -> str:
        """Push a door."""
        return f"{door} does not move"

    said: list[Any] = [[("push", {"door": "red"})], [("push", {"door": "blue"})], "no way"]
    agent = Agent(name="porter", instructions="Open it.", model=make(said), tools=[push])
    processor = TidegaugeTracingProcessor()
    hooks = TidegaugeRunHooks(processor) if hooked else None
    with traced_by(processor), capture(capture_content=True) as seen:
        asyncio.run(Runner.run(agent, "open a door", hooks=hooks))
    found = chats(seen)
    assert [(read(chat, INPUT), read(chat, OUTPUT)) for chat in found] == [
        (["user: open a door"], ["assistant: {'door': 'red'}"]),
        (["tool: red does not move"], ["assistant: {'door': 'blue'}"]),
        (["tool: blue does not move"], ["assistant: no way"]),
    ]
    assert [chat[POSITION] for chat in found] == [0, 2, 4]
    if hooked or make is chat_completions:  # the scripted responses repeat no instructions
        instructions = [chat.get("gen_ai.system_instructions") for chat in found]
        assert instructions == ['[{"type":"text","content":"Open it."}]', None, None]
    assert faults(seen.spans, contents=True) == []


def test_what_a_decorated_agent_returns_is_its_answer() -> None:
    @tidegauge.agent
    def porter(task: str) -> dict[str, int]:
        return {"keys": 2}

    with capture(capture_content=True) as seen:
        porter("count the keys")
    [root] = [dict(span.attributes or {}) for span in seen.spans]
    assert read(root, INPUT) == ["user: count the keys"]
    assert read(root, OUTPUT) == ['assistant: {"keys":2}']
    assert faults(seen.spans, contents=True) == []


def test_a_state_from_which_all_messages_are_removed() -> None:
    def forget(state: Any) -> dict[str, Any]:
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("start again")]}

    from langgraph.graph import START, MessagesState, StateGraph

    model = ScriptedChatModel(script=lambda messages: answers(f"a{len(messages)}"))

    def think(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    for name, node in (("one", think), ("forget", forget), ("two", think)):
        graph.add_node(name, node)
    graph.add_edge(START, "one")
    graph.add_edge("one", "forget")
    graph.add_edge("forget", "two")
    found = chats(worked(graph.compile(name="graph")))
    assert [read(chat, INPUT) for chat in found] == [
        ["user: where is the key?"],
        ["user: start again"],
    ]
    assert [chat[POSITION] for chat in found] == [0, 0]


def test_pictures_that_a_tool_returns_are_left_out() -> None:
    @tool
    def look(place: int) -> list[dict[str, str]]:
        """Look at a place."""
        picture = {"type": "image", "base64": "A5ECRET" * 1_000, "mime_type": "image/png"}
        return [{"type": "text", "text": "a door"}, picture]

    def script(messages: Sequence[Any]) -> AIMessage:
        return answers("done") if turns(messages) else chooses(("look", {"place": 1}))

    seen = worked(create_agent(ScriptedChatModel(script=script), [look]))
    [call] = [span for span in seen.spans if span.name == "execute_tool look"]
    shown = [{"type": "text", "content": "a door"}, {"type": "omitted", "modality": "image"}]
    assert json.loads(str((call.attributes or {})["gen_ai.tool.call.result"])) == shown
    [message] = json.loads(chats(seen)[1][INPUT])
    assert message["parts"][0]["response"] == shown
    assert "A5ECRET" not in str([dict(span.attributes or {}) for span in seen.spans])


def test_a_step_compares_the_end_of_a_long_history() -> None:
    model = ScriptedChatModel(script=lambda messages: answers("ok"))
    history = [HumanMessage(f"m{n}") for n in range(100)]
    edited = [*history[:60], HumanMessage("edited"), *history[61:]]
    near = [*history[:80], HumanMessage("edited"), *history[81:]]
    more = [answers("ok"), HumanMessage("new")]
    found = chats(ask(model, [history, [*edited, *more]]))
    assert (read(found[1], INPUT), found[1][POSITION]) == (["user: new"], 101)
    found = chats(ask(model, [history, [*near, *more]]))
    assert found[1][POSITION] == 80
