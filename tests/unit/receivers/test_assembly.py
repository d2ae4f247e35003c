"""Runs out of spans that arrive while the agents run: what is not there yet, what comes twice."""

from __future__ import annotations

import gc
import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.other_spans import Listener
from support.span_files import replay_spans
from support.span_orders import arriving
from tidegauge import testing
from tidegauge.foreign_spans.external_run import Node
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly, AssemblyLimits
from tidegauge.runs.current import get_recorder

TRACE = 7


class Story:
    """Spans of one trace, made in the order in which they end."""

    def __init__(self, trace_id: int = TRACE) -> None:
        self.trace_id = trace_id
        self._ids = itertools.count(1)
        self._time = itertools.count(1_000, 10)

    def open(self, parent: tuple[int, int] | None = None) -> tuple[int, int]:
        """An open span: its id and its start."""
        return next(self._ids), next(self._time)

    def end(
        self, span: tuple[int, int], parent: tuple[int, int] | None, name: str, **fields: Any
    ) -> SpanData:
        return SpanData(
            self.trace_id,
            span[0],
            None if parent is None else parent[0],
            name,
            fields.pop("scope", "theirs"),
            fields.pop("attributes", {}),
            span[1],
            next(self._time),
            **fields,
        )

    def agent(self, span: tuple[int, int], parent: Any = None, name: str = "helper", **fields: Any):
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        return self.end(span, parent, f"invoke_agent {name}", attributes=attributes, **fields)

    def chain(self, span: tuple[int, int], parent: Any, name: str = "model", **fields: Any):
        return self.end(
            span, parent, name, attributes={"openinference.span.kind": "CHAIN"}, **fields
        )

    def model(self, parent: Any, *calls: str, agent: str | None = None, **fields: Any) -> SpanData:
        said = [
            {"type": "tool_call", "id": f"{name}-{number}", "name": name, "arguments": {"q": 1}}
            for number, name in enumerate(calls)
        ]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": said}]),
        }
        if agent is not None:
            attributes["gen_ai.agent.name"] = agent
        return self.end(self.open(), parent, "chat", attributes=attributes, **fields)

    def tool(self, parent: Any, name: str, span: Any = None, result: str = "nothing") -> SpanData:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.result": result,
        }
        return self.end(span or self.open(), parent, f"execute_tool {name}", attributes=attributes)


class Live:
    """An assembly that gets every span when it has ended, a second after the last."""

    def __init__(self, seen: testing.Capture, **limits: Any) -> None:
        self.listener = Listener(seen)
        self.engine = seen.pipeline.engine
        self.assembly = Assembly(limits=AssemblyLimits(**limits))
        self.now = 0.0

    def take(self, *spans: SpanData, wait: float = 1.0) -> None:
        self.assembly.take(spans, now=self.now)
        self.now += wait
        self.assembly.expire(self.now)

    def runs(self) -> list[tuple[str, int]]:
        """(agent, steps) of every run so far."""
        return [
            (event.agent, len(self.listener.steps.get(event.run, ())))
            for event in self.listener.started
        ]


@pytest.fixture
def live():
    with testing.capture() as seen:
        yield Live(seen)


def in_process(spans: list[SpanData], *, early: bool = False) -> Any:
    with testing.capture() as seen:
        listener = Listener(seen)
        replay_spans(Grouping(get_recorder), spans, early=early)
        return listener.story()


def simple_agent(rounds: int = 4, trace_id: int = TRACE) -> list[SpanData]:
    story = Story(trace_id)
    root = story.open()
    spans = []
    for _ in range(rounds):
        chain = story.open()
        spans += [story.model(chain, "look"), story.chain(chain, root)]
        tools = story.open()
        spans += [story.tool(tools, "look"), story.chain(tools, root, "tools")]
    return [*spans, story.model(root), story.agent(root)]


def test_steps_are_reported_while_the_agent_runs(live) -> None:
    *spans, root = simple_agent()
    for number, span in enumerate(spans, start=1):
        live.take(span)
        done = max(1, (number + 2) // 4)  # later ones when the node around the model has ended
        if number < 17:
            assert live.runs() == [("", done)]
    assert live.listener.ended == []
    [run] = live.engine.snapshot().active
    assert run.loop_repeats == 2  # no span says what the first was chosen on
    live.take(root)
    assert [event.outcome for event in live.listener.ended] == ["unknown"]
    assert len(live.assembly) == 0


def without_names(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in measured.items() if name not in ("agent", "group")}


def test_ends_that_there_is_no_time_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.capture() as seen:
        assembly = Assembly()
        for trace_id in range(1, 8):
            agent = shown(trace_id, f"scope {trace_id}", 1_000, resource={}, conversation=None)
            assembly.take(agent[:2], now=float(trace_id))
        assembly.expire(10.0)
        assert assembly.open_runs == 7
        moments = itertools.count(1)
        monkeypatch.setattr(time, "monotonic", lambda: next(moments))
        assert assembly.close(until=3.0) == 4
        assert len(seen.pipeline.engine.snapshot().active) == 4


def test_reported_one_by_one_the_numbers_are_those_of_the_process(live) -> None:
    spans = simple_agent()
    for span in spans:
        live.take(span)
    [(_, _, steps, outcomes, measured)] = live.listener.story()
    [(_, _, expected_steps, expected_outcomes, expected)] = in_process(spans)
    assert (steps, outcomes) == (expected_steps, expected_outcomes)
    assert without_names(measured) == without_names(expected)


SERVICE = {"service.name": "agents", "host.name": "vm"}
THERE = {"resource": SERVICE, "conversation": "c1", "arguments": {"q": 1}, "id": "call_0"}


def shown(trace_id: int, scope: str, start: int, **changed: Any) -> list[SpanData]:
    """An agent with one call that it makes twice, as one instrumentation shows it."""
    one = {**THERE, **changed}
    call = {
        "type": "tool_call",
        "id": one["id"],
        "name": one.get("name", "look"),
        "arguments": one["arguments"],
    }
    output = json.dumps([{"role": "assistant", "parts": [call]}])
    model = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": output}
    if one["conversation"]:
        model["gen_ai.conversation.id"] = one["conversation"]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    given = {"resource": one["resource"]}
    return [
        SpanData(trace_id, 2, 1, "chat", scope, model, start, start + 10, **given),
        SpanData(trace_id, 3, 1, "chat", scope, model, start + 30, start + 40, **given),
        SpanData(trace_id, 1, None, "agent", scope, agent, start - 1, start + 50, **given),
    ]


def in_one_server(*traces: list[SpanData]) -> list[int]:
    """The steps of each run."""
    spans = sorted([span for spans in traces for span in spans], key=lambda span: span.end)
    with testing.capture() as seen:
        live = Live(seen)
        for span in spans:
            live.take(span)
        live.assembly.close()
        return [steps for _, steps in live.runs()]


def test_two_instrumentations_show_one_run_in_a_trace_each() -> None:
    assert in_one_server(shown(1, "left", 1_000), shown(2, "right", 1_001)) == [2]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"conversation": None}, id="no conversation"),
        pytest.param({"conversation": "c2"}, id="another conversation"),
        pytest.param({"resource": {**SERVICE, "service.name": "others"}}, id="another service"),
        pytest.param({"resource": {"host.name": "vm"}}, id="a service without a name"),
        pytest.param({"resource": {**SERVICE, "host.name": "vm2"}}, id="another host"),
        pytest.param({"id": "call_1"}, id="another id"),
        pytest.param({"arguments": {"q": 2}}, id="another call"),
        pytest.param({"name": "read"}, id="another tool"),
    ],
)
def test_without_proof_that_it_is_one_call_each_trace_stands_alone(changed: Any) -> None:
    assert in_one_server(shown(1, "left", 1_000), shown(2, "right", 1_001, **changed)) == [2, 2]


def test_a_call_of_another_time_is_another_one() -> None:
    assert in_one_server(shown(1, "left", 1_000), shown(2, "right", 1_100)) == [2, 2]
    there = {"resource": {**SERVICE, "host.name": "vm2"}}
    assert in_one_server(shown(1, "left", 1_000), shown(2, "right", 1_100, **there)) == [2, 2]


def test_of_two_runs_that_it_may_be_in_it_is_in_none() -> None:
    both = shown(1, "left", 1_000), shown(2, "left", 1_002)
    assert in_one_server(*both, shown(3, "right", 1_004)) == [2, 2, 2]


def test_a_call_that_has_its_result_is_not_made_again_in_another_trace() -> None:
    first = shown(1, "left", 1_000)
    done = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_0",
        "gen_ai.tool.call.result": "nothing",
    }
    tool = SpanData(1, 9, 1, "execute_tool look", "left", done, 1_010, 1_012, resource=SERVICE)
    assert in_one_server([*first, tool], shown(2, "right", 1_001)) == [2]
    assert in_one_server([*first, tool], shown(2, "right", 1_009)) == [2, 2]


def test_what_is_kept_is_emitted_before_a_second_is_over() -> None:
    with testing.capture() as seen:
        live = Live(seen)
        live.assembly.take(simple_agent()[:2], now=10.0)
        assert live.assembly.due == 10.5
        live.assembly.expire(10.49)
        assert live.runs() == []
        live.assembly.expire(10.5)
        assert live.runs() == [("", 1)]
        assert live.assembly.due is None


@given(data=st.data())
def test_interleaved_traces_in_any_order_and_batches(data) -> None:
    traces = [simple_agent(2, trace_id) for trace_id in (1, 2, 3)]
    mixed = data.draw(st.permutations([span for spans in traces for span in spans]))
    size = data.draw(st.integers(1, len(mixed)))
    batches = [mixed[start : start + size] for start in range(0, len(mixed), size)]
    story, assembly = arriving(batches, every=0.4 / len(batches))
    [expected] = in_process(traces[0])
    assert story == [expected] * 3
    assert (assembly.duplicates, assembly.late) == (0, 0)


def test_each_span_is_kept_for_as_long_as_another_may_overtake_it(live, monkeypatch) -> None:
    story = Story()
    root = story.open()
    first, between, last = story.model(root, "look"), story.tool(root, "look"), story.model(root)
    received: list[int] = []
    emit = live.assembly._emit_known
    monkeypatch.setattr(
        live.assembly,
        "_emit_known",
        lambda trace, span: (received.append(span.span_id), emit(trace, span)),  # type: ignore[func-returns-value]
    )
    live.assembly.take([first], now=0.0)
    live.assembly.take([last], now=0.4)
    live.assembly.expire(0.5)
    assert received == [first.span_id]
    live.assembly.take([between], now=0.6)
    live.assembly.expire(1.1)
    assert received == [first.span_id, between.span_id, last.span_id]


def test_what_arrives_twice_counts_once_and_late_is_reported(live) -> None:
    spans = simple_agent()
    live.take(*spans[:4])
    live.take(*spans[:4])
    assert live.assembly.duplicates == 4
    assert live.runs() == [("", 1)]
    live.take(*spans[4:])
    live.take(*spans[6:8])
    assert live.assembly.late == 2
    assert live.runs() == [("", 4)]


def test_a_span_that_is_too_late_for_its_place_still_counts(live) -> None:
    spans = simple_agent()
    late = spans.pop(4)  # a model call whose chain is long over
    for span in spans[:-1]:
        live.take(span)
    live.take(late)
    live.take(spans[-1])
    assert [steps for _, steps in live.runs()] == [4 + 1]  # its tool was a step of its own


def test_the_name_of_the_agent_is_what_its_calls_say_or_its_service(live) -> None:
    named, unnamed = Story(1), Story(2)
    live.take(named.model(named.open(), "look", agent="helper"))
    live.take(unnamed.model(unnamed.open(), "look", resource={"service.name": "shop"}))
    assert [agent for agent, _ in live.runs()] == ["helper", "shop"]


def test_a_model_call_without_a_step_opens_no_run_before_it_is_known_what_is_around_it(
    live,
) -> None:
    story = Story()
    request = story.open()
    live.take(story.model(request))
    live.take(story.end(request, None, "GET /", attributes={"http.method": "GET"}))
    assert live.runs() == []
    root = story.open()
    live.take(story.model(root))
    assert live.runs() == []
    live.take(story.model(root, "look"))
    live.take(story.agent(root))
    assert live.runs() == [("", 1)]
    [[(_, _, _, _, tokens)]] = live.listener.steps.values()
    assert tokens == 5  # the answer before it, without a call, is a turn with its own


def test_an_agent_in_a_tool_is_a_run_of_its_own_though_its_span_comes_last(live) -> None:
    story = Story()
    root, tool, inner = story.open(), story.open(), story.open()
    spans = [
        story.model(root, "ask"),
        story.model(inner, "look"),  # in the tool that is waited for, or in an agent in it
        story.tool(inner, "look"),
        story.model(inner),
        story.agent(inner, tool, "expert"),
        story.tool(root, "ask", tool),
        story.model(root),
        story.agent(root),
    ]
    for span in spans[:4]:
        live.take(span)
    assert live.runs() == [("", 1)]  # the outer one; who the others are is not known
    live.take(spans[4])
    assert live.runs() == [("", 1)]  # nor what the agent is in
    live.take(spans[5])
    assert live.runs() == [("", 1), ("expert", 1)]
    for span in spans[6:]:
        live.take(span)
    [outer, expert] = live.listener.story()
    [expected_outer, expected_expert] = in_process(spans, early=True)
    assert expert == expected_expert
    assert outer[2:4] == expected_outer[2:4]
    assert without_names(outer[4]) == without_names(expected_outer[4])


def test_an_agent_in_a_tool_whose_calls_say_its_name_is_seen_at_once(live) -> None:
    story = Story()
    root, tool, inner = story.open(), story.open(), story.open()
    live.take(story.model(root, "ask", agent="boss"))
    live.take(story.model(inner, "look", agent="expert"))
    assert live.runs() == [("boss", 1), ("expert", 1)]
    live.take(story.tool(inner, "look"))
    live.take(story.model(inner, "look", agent="expert"))
    live.take(story.agent(inner, tool, "expert"))
    assert live.runs() == [("boss", 1), ("expert", 2)]
    assert [event.run for event in live.listener.ended] == [live.listener.started[1].run]
    assert live.listener.started[1].parent == live.listener.started[0].run
    live.take(story.tool(root, "ask", tool))
    live.take(story.agent(root, None, "boss"))
    assert live.runs() == [("boss", 1), ("expert", 2)]


def test_an_agent_that_is_named_after_a_tool_of_it_has_ended_is_one_run(live) -> None:
    """As Mastra's: tools run while the model answers, in a span of a step."""
    story = Story()
    root, *steps = (story.open() for _ in range(3))
    tool = story.tool(steps[0], "look")
    model = story.model(steps[0], agent="helper")
    live.take(tool)
    live.take(model)
    live.take(story.end(steps[0], root, "step", attributes={"gen_ai.operation.name": "step"}))
    live.take(story.model(steps[1], agent="helper"))
    live.take(story.end(steps[1], root, "step", attributes={"gen_ai.operation.name": "step"}))
    live.take(story.agent(root))
    assert [steps for _, steps in live.runs()] == [1]
    assert [event.agent_name for event in live.listener.ended] == ["helper"]


def test_a_model_called_in_a_tool_gives_its_tokens_and_no_step(live) -> None:
    story = Story()
    root, tool = story.open(), story.open()
    live.take(story.model(root, "summarise"))
    live.take(story.model(tool, "odd"))
    assert live.runs() == [("", 1)]
    live.take(story.tool(root, "summarise", tool))
    live.take(story.agent(root))
    assert live.runs() == [("", 1)]
    [[(step, results, tokens)]] = live.listener.outcomes.values()
    assert (step, results, tokens) == (0, (("nothing", False),), 5)


def test_a_chain_around_a_run_takes_its_place_as_the_root(live) -> None:
    story = Story()
    workflow, node = story.open(), story.open()
    live.take(story.model(node, "look"))
    live.take(story.tool(node, "look"))
    live.take(story.chain(node, workflow, "node"))
    assert live.listener.ended == []
    live.take(story.model(workflow, "look"))
    live.take(story.chain(workflow, None, "workflow"))
    assert live.runs() == [("", 2)]
    assert len(live.listener.ended) == 1


def test_chains_around_a_run_that_come_together_before_what_is_around_them(live) -> None:
    story = Story()
    graph, workflow, node = story.open(), story.open(), story.open()
    live.take(story.model(node, "look"))
    live.take(
        story.model(node, "look"),
        story.chain(node, workflow, "node"),
        story.chain(workflow, graph, "workflow"),
    )
    assert live.listener.ended == []
    live.take(story.model(graph, "look"))
    live.take(story.chain(graph, None, "graph"))
    assert live.runs() == [("", 3)]
    assert len(live.listener.ended) == 1


def test_a_chain_around_a_run_that_never_arrives(live) -> None:
    story = Story()
    elsewhere, node = story.open(), story.open()
    live.take(story.model(node, "look"))
    live.take(story.chain(node, elsewhere, "node", failed=True))
    live.take(wait=50.0)
    assert live.listener.ended == []
    live.take(wait=20.0)
    assert [event.outcome for event in live.listener.ended] == ["error"]


def test_an_agent_that_was_called_from_another_process_ends_with_its_span(live) -> None:
    story = Story()
    elsewhere, root = story.open(), story.open()
    live.take(story.model(root, "look"))
    live.take(story.chain(root, elsewhere, "agent", remote=True))
    assert len(live.listener.ended) == 1


@pytest.mark.parametrize("traced", [True, False])
def test_the_time_of_a_call_is_that_of_its_span_and_not_of_when_spans_arrive(live, traced) -> None:
    story = Story()
    root = story.open()
    answer = [{"type": "tool_call_response", "id": "look-0", "response": "nothing"}]
    asked = {"gen_ai.input.messages": json.dumps([{"role": "tool", "parts": answer}])}
    chosen = story.model(root, "look")
    looked = [story.tool(root, "look")] if traced else []
    last = story.model(root)
    last = last._replace(attributes={**last.attributes, **asked})
    live.take(chosen, *looked, last, story.agent(root))
    [group] = live.engine.snapshot().groups
    assert group.totals.steps == 1
    assert sum(group.totals.step_seconds.counts) == traced


def test_a_run_whose_root_never_ends_expires_as_unknown() -> None:
    with testing.capture() as seen:
        live = Live(seen, idle_seconds=30.0)
        live.take(*simple_agent()[:6])
        live.take(wait=40.0)
        assert [(event.outcome, event.reason) for event in live.listener.ended] == [
            ("unknown", "idle")
        ]
        assert live.engine.snapshot().evicted_runs == 1
        assert len(live.assembly) == live.assembly.open_runs == 0


def test_everything_is_bounded() -> None:
    with testing.capture() as seen:
        live = Live(seen, traces=50, runs=20, spans=300, idle_seconds=30.0)
        for trace_id in range(1, 200):
            live.take(*simple_agent(2, trace_id)[:-1], wait=0.01)
        assert len(live.assembly) <= 50
        assert live.assembly._remembered <= 300
        live.take()
        assert live.assembly.open_runs <= 20
        live.take(wait=100.0)
        assert len(live.assembly) == live.assembly.open_runs == 0
        assert len(live.assembly._spans) == 0
        assert live.assembly._remembered == 0


def test_calls_wait_for_what_is_around_them_up_to_a_size() -> None:
    with testing.capture() as seen:
        live = Live(seen, pending_bytes=100)
        story = Story()
        request = story.open()
        live.take(story.model(request, size=60))
        assert live.runs() == []
        live.take(story.model(request, size=60))
        assert live.runs() == [("", 0)]  # nothing waits: the unknown span is taken for the root
        other = Story(TRACE + 1)
        live.take(other.model(other.open(), size=60))
        assert len(live.runs()) == 1  # there is room again


@pytest.mark.slow
def test_a_run_that_has_ended_is_freed_without_the_collector(live) -> None:
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, Node) for each in gc.get_objects())
        live.take(*simple_agent())
        assert len(live.listener.ended) == 1
        assert sum(isinstance(each, Node) for each in gc.get_objects()) == before
    finally:
        gc.enable()


@given(data=st.data())
def test_spans_that_make_no_sense_break_nothing(data) -> None:
    ids = st.integers(1, 4)
    kinds = st.sampled_from(["AGENT", "CHAIN", "LLM", "TOOL", None])
    spans = data.draw(
        st.lists(
            st.builds(
                lambda trace, span, parent, kind, start, end, remote: SpanData(
                    trace,
                    span,
                    parent,
                    "look",
                    "theirs",
                    {"openinference.span.kind": kind, "tool.name": "look"} if kind else {},
                    start,
                    end,
                    remote=remote,
                ),
                st.integers(1, 2),
                ids,
                st.none() | ids,
                kinds,
                st.integers(0, 9),
                st.integers(0, 9),
                st.booleans(),
            ),
            max_size=12,
        )
    )
    cut = data.draw(st.integers(0, 12))
    arriving([spans[:cut], spans[cut:]], every=data.draw(st.sampled_from([0.1, 1.0])))
    with testing.capture():
        assembly = Assembly(limits=AssemblyLimits(traces=1))
        for now, some in enumerate((spans[:cut], spans[cut:])):
            assembly.take([span._replace(size=7) for span in some], now=0.3 * now)
        assembly.close()
        assert (assembly.arrived_bytes, assembly._pending_bytes) == (0, 0)
