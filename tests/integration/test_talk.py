"""Agents that only talk, on real LangGraph: seen, stopped, and not mistaken for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import tidegauge
from support.langchain_agents import Reports
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.policies import Rule

USAGE = {"input_tokens": 8_000, "output_tokens": 2, "total_tokens": 8_002}


def forever(*texts: str) -> Iterator[AIMessage]:
    while True:
        for text in texts:
            yield AIMessage(text, usage_metadata=USAGE)


def asking(model: GenericFakeChatModel) -> Any:
    return lambda state: {"messages": [model.invoke(state["messages"])]}


def chat(*texts: str, limit: int = 30) -> None:
    """Two nodes ask a model in turn, and nobody calls a tool."""
    model = GenericFakeChatModel(messages=forever(*texts))
    graph = StateGraph(MessagesState)
    graph.add_node("writer", asking(model))
    graph.add_node("critic", asking(model))
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "critic")
    graph.add_edge("critic", "writer")
    graph.compile(name="chat").invoke(
        {"messages": [("user", "write")]},
        {"callbacks": [TidegaugeCallbackHandler()], "recursion_limit": limit},
    )


@pytest.mark.parametrize(
    "texts", [("Thank you!", "You are welcome."), ("",), ("I will now begin.",)]
)
def test_agents_that_only_talk_are_seen_and_counted(texts):
    with testing.capture() as seen:
        reports = Reports(seen)
        with pytest.raises(GraphRecursionError):
            chat(*texts)
    (report,) = reports
    assert report.steps == 0
    assert report.answers == 29  # the last one was not answered any more
    assert report.intervention == "would_stop"
    assert report.intervention_reason == "turn_loop_evidence"
    assert report.past_troubles == ("loop",)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"stop_on_loop": 3}, "turn_loop_repeats"),
        ({"guard": "stuck"}, "turn_loop_evidence"),
        ({"rules": [Rule("tokens", 50_000, "stop")]}, "tokens"),
        ({"rules": [Rule("turns_without_calls", 5, "stop")]}, "turns_without_calls"),
    ],
)
def test_a_run_whose_model_only_talks_is_stopped(settings, reason):
    with testing.capture(**settings) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped) as stopped:
            chat("Thank you!", "You are welcome.")
    assert (stopped.value.reason, stopped.value.step) == (reason, 0)
    (report,) = reports
    assert report.outcome == "stopped"
    assert report.answers <= 9


def test_an_answer_that_ends_a_run_is_no_turn_and_stops_nothing():
    model = GenericFakeChatModel(messages=forever("done"))
    graph = StateGraph(MessagesState)
    graph.add_node("writer", asking(model))
    graph.add_edge(START, "writer")
    graph.add_edge("writer", END)
    with testing.capture(rules=[Rule("tokens", 100, "stop")]) as seen:
        reports = Reports(seen)
        found = graph.compile().invoke(
            {"messages": [("user", "write")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    assert found["messages"][-1].content == "done"
    assert [report.answers for report in reports] == [0]
    assert [report.outcome for report in reports] == ["unknown"]


def test_one_word_for_many_documents_is_no_loop():
    model = GenericFakeChatModel(messages=forever("relevant"))

    def grade(state: MessagesState) -> dict[str, Any]:
        for n in range(40):
            model.invoke([("system", "grade"), ("user", f"document {n}")])
        return {"messages": [AIMessage("40 are relevant")]}

    graph = StateGraph(MessagesState)
    graph.add_node("grade", grade)
    graph.add_edge(START, "grade")
    graph.add_edge("grade", END)
    with testing.capture(guard="stuck") as seen:
        reports = Reports(seen)
        graph.compile().invoke(
            {"messages": [("user", "grade")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    (report,) = reports
    assert (report.answers, report.intervention, report.past_troubles) == (39, None, ())


def test_votes_on_one_prompt_are_no_loop():
    model = GenericFakeChatModel(messages=forever("42"))

    def vote(state: MessagesState) -> dict[str, Any]:
        for _ in range(11):
            model.invoke(state["messages"])
        return {"messages": [AIMessage("42")]}

    graph = StateGraph(MessagesState)
    graph.add_node("vote", vote)
    graph.add_edge(START, "vote")
    graph.add_edge("vote", END)
    with testing.capture(guard="stuck") as seen:
        reports = Reports(seen)
        graph.compile().invoke(
            {"messages": [("user", "6 * 7?")]}, {"callbacks": [TidegaugeCallbackHandler()]}
        )
    (report,) = reports
    assert (report.answer_streak_max, report.intervention, report.past_troubles) == (10, None, ())


def talk_on() -> None:
    with tidegauge.run(agent="talker") as run:
        for n in range(20):
            run.answer("I will now begin.", shown="Go on.", messages=2 * n)


def test_a_loop_of_ones_own_reports_what_is_said():
    with testing.capture(stop_on_loop=2) as seen:
        reports = Reports(seen)
        with pytest.raises(tidegauge.RunStopped):
            talk_on()
    (report,) = reports
    assert report.answers == 3


@pytest.mark.parametrize("again", [False, True], ids=["one process", "another each time"])
@pytest.mark.parametrize(
    "settings",
    [{"stop_on_loop": 3}, {"rules": [Rule("tokens", 50_000, "stop")]}],
    ids=["loop", "tokens"],
)
def test_a_stop_holds_in_a_run_that_waited_for_a_person(tmp_path, settings, again):
    """Its model only answers, and a person says yes each time; the run is stored meanwhile."""
    model = GenericFakeChatModel(messages=forever("ok"))
    graph = StateGraph(MessagesState)
    graph.add_node("bot", asking(model))
    graph.add_node("person", lambda state: {"messages": [("user", interrupt("go on?"))]})
    graph.add_edge(START, "bot")
    graph.add_edge("bot", "person")
    graph.add_edge("person", "bot")
    chatting = graph.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "one"}}
    asked = 0
    settings = {**settings, "run_store": tmp_path / "runs.sqlite", "serve_metrics": False}

    def talk_to_it() -> None:
        nonlocal asked
        for asked in range(12):
            if again or not asked:
                tidegauge.configure(**settings)
            handler = TidegaugeCallbackHandler()
            given: Any = Command(resume="yes") if asked else {"messages": [("user", "hi")]}
            chatting.invoke(given, {**config, "callbacks": [handler]})

    try:
        with pytest.raises(tidegauge.RunStopped):
            talk_to_it()
    finally:
        tidegauge.configure(serve_metrics=False).shutdown()
    assert asked in (5, 7)  # four repeats of one answer; seven answers of 8,002 tokens
