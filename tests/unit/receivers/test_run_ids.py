"""What runs out of spans are called: by their spans, wherever these arrive."""

from __future__ import annotations

import itertools
import json

import pytest

from support.other_spans import Listener
from support.span_files import replay_spans
from tidegauge import testing
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers import arrived_spans
from tidegauge.receivers.assembly import Assembly, AssemblyLimits
from tidegauge.runs.current import get_recorder

TRACE = 7
NAME = f"{TRACE:032x}"
CLOCK = itertools.count(1_000, 10)


def span(number: int, parent: int | None, name: str, given: dict, *, trace: int = TRACE, **more):
    return SpanData(trace, number, parent, name, "theirs", given, next(CLOCK), next(CLOCK), **more)


def model(number: int, parent: int, call: str, agent: str | None = None, **more) -> SpanData:
    part = {"type": "tool_call", "id": f"{number}", "name": call, "arguments": {"q": number}}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}]),
    }
    named = {} if agent is None else {"gen_ai.agent.name": agent}
    return span(number, parent, "chat", {**attributes, **named}, **more)


def agent(number: int, parent: int | None, name: str, **more) -> SpanData:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(number, parent, f"invoke_agent {name}", attributes, **more)


def chain(number: int, parent: int | None, name: str, **more) -> SpanData:
    return span(number, parent, name, {"openinference.span.kind": "CHAIN"}, **more)


class Names:
    """An assembly that gets each span a second after the one before."""

    def __init__(self, seen: testing.Capture) -> None:
        self.listener = Listener(seen)
        self.assembly = Assembly(limits=AssemblyLimits(idle_seconds=100.0))
        self.now = 0.0

    def take(self, *spans: SpanData, wait: float = 1.0) -> list[str]:
        """The runs that have begun so far."""
        for each in [[span] for span in spans] or [[]]:
            self.assembly.take(each, now=self.now)
            self.now += wait
            self.assembly.expire(self.now)
        return [event.run for event in self.listener.started]


@pytest.fixture
def names():
    with testing.capture() as seen:
        yield Names(seen)


def test_a_run_is_called_by_its_trace_from_its_first_step_on(names) -> None:
    assert names.take(model(2, 1, "look")) == [NAME]
    assert names.take(agent(1, None, "helper")) == [NAME]
    assert names.listener.started[0].trace_id == NAME


def test_a_run_inside_is_called_by_its_root_too(names) -> None:
    found = names.take(model(2, 1, "ask", "boss"), model(4, 3, "look", "expert"))
    assert found == [NAME, f"{NAME}-{3:016x}"]


def test_of_several_in_a_trace_the_first_has_its_name(names) -> None:
    found = names.take(
        model(2, 1, "look"),
        agent(1, 9, "one", remote=True),
        model(4, 3, "look"),
        agent(3, 9, "two", remote=True),
        model(6, 5, "look", trace=8),
    )
    assert found == [NAME, f"{NAME}-{3:016x}", f"{8:032x}"]


def test_what_goes_on_after_its_end_is_called_by_its_root(names) -> None:
    names.take(model(2, 1, "look"))
    names.take(wait=200.0)
    assert len(names.listener.ended) == 1
    assert names.take(model(3, 1, "look")) == [NAME, f"{NAME}-{1:016x}"]


def test_no_two_open_runs_have_one_name(names) -> None:
    found = names.take(model(2, 1, "ask", "boss"), model(4, 3, "look", "expert"))
    spans = names.assembly._spans
    root = spans.node(TRACE, 3)
    assert spans._run_id(root, None) == f"{found[1]}-2"


def test_it_is_remembered_of_so_many_traces_only(names, monkeypatch) -> None:
    monkeypatch.setattr(arrived_spans, "_MAX_NAMED", 3)
    for trace in range(1, 9):
        names.take(model(2, 1, "look", trace=trace))
    assert list(names.assembly._spans._named) == [6, 7, 8]


def test_a_run_inside_never_has_the_name_of_its_trace(names, monkeypatch) -> None:
    monkeypatch.setattr(arrived_spans, "_MAX_NAMED", 0)  # nobody remembers whose it is
    found = names.take(model(2, 1, "ask", "boss"), model(4, 3, "look", "expert"))
    assert found == [NAME, f"{NAME}-{3:016x}"]


def test_in_the_process_of_the_agent_nobody_has_to_know_it() -> None:
    with testing.capture() as seen:
        listener = Listener(seen)
        call = model(2, 1, "look")
        root = agent(1, None, "helper")._replace(start=call.start - 1)
        replay_spans(Grouping(get_recorder), [call, root])
        [event] = listener.started
    assert event.trace_id == NAME
    assert NAME not in event.run
