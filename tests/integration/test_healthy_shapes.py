"""Agents that make progress, in many shapes: no default rule fires, and no loop is seen."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

import tidegauge
from support.langchain_agents import Reports, nothing_is_left
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import ToolDeclaration, testing
from tidegauge.events import Decision, RunObserver, Step
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.streaming_metrics.loops import LOOPS, RUNS_LOOPING

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

RULES = tuple(Rule(rule.signal, rule.threshold, "stop") for rule in DEFAULT_RULES)
"""The default rules, which only observe, as rules that stop."""

POLLING = {name: ToolDeclaration(poll=60) for name in ("job_state", "sleep")}

TASK: dict[str, Any] = {"messages": [("user", "do it")]}

Call = tuple[str, dict[str, Any], str]
"""Name of a tool, its arguments, and what it returns; a failure begins with ``Error``."""

PLANS: dict[str, list[list[Call]]] = {
    "polling a job": [[("job_state", {"job": 7}, state)] for state in (*["running"] * 12, "done")],
    "polling with a pause": [
        [call]
        for state in (*["running"] * 8, "done")
        for call in (("sleep", {"seconds": 5}, "slept"), ("job_state", {"job": 7}, state))
    ],
    "polling two jobs": [
        [("job_state", {"job": 7}, "running"), ("job_state", {"job": 8}, state)]
        for state in (*["running"] * 8, "done")
    ],
    "a job that shows its progress": [
        [("build_log", {"build": 7}, f"{percent} %")] for percent in range(0, 101, 10)
    ],
    "retries that succeed": [
        [("fetch", {"url": "a"}, result)]
        for result in ("Error: timed out", "Error: connection reset", "page a")
    ],
    "a retry for each of many pages": [
        [("fetch", {"url": url}, result)]
        for url in "abcdef"
        for result in ("Error: timed out", f"page {url}")
    ],
    "pages by number": [[("search", {"page": n}, f"items {n}0 to {n}9")] for n in range(12)],
    "pages by cursor": [[("next_page", {"cursor": f"c{n}"}, f"c{n + 1}")] for n in range(12)],
    "pages of an open cursor": [[("next_page", {}, f"items {n}0 to {n}9")] for n in range(12)],
    "fix and test": [
        [call]
        for n in (5, 4, 2, 1, 0)
        for call in (
            ("edit", {"file": "a.py", "line": n}, "edited"),
            ("run_tests", {}, f"{n} failed"),
        )
    ],
    "errors that change": [
        [("run", {"code": f"v{n}"}, f"Error: line {n}") for n in (1,)],
        [("run", {"code": "v2"}, "Error: line 8")],
        [("run", {"code": "v3"}, "ok")],
    ],
    "refined queries": [
        *[[("search", {"query": query}, "no results")] for query in ("a b c d", "a b c", "a b")],
        [("search", {"query": "a"}, "found")],
        [("open", {"item": 1}, "the text")],
    ],
    "bisection": [
        [("test_commit", {"commit": commit}, result)]
        for commit, result in ((50, "bad"), (25, "good"), (37, "bad"), (31, "good"), (34, "good"))
    ],
    "a listing and its items": [
        [call]
        for n in range(6)
        for call in (("click", {"item": n}, f"item {n}"), ("back", {}, "the listing"))
    ],
    "reads before each write": [
        [call]
        for n in range(6)
        for call in (("read", {"file": "a"}, "v" * n), ("append", {"text": "v"}, "appended"))
    ],
    "a list of things to do": [
        [call]
        for n in range(5)
        for call in (("write_todos", {"done": n}, f"{n} done"), ("work", {"item": n}, f"did {n}"))
    ],
    "calls side by side": [
        [("look", {"place": f"{room} {n}"}, "empty") for n in range(6)]
        for room in ("hall", "attic")
    ],
    "records, one after the other": [
        [call]
        for n in range(6)
        for call in (
            ("read_record", {"id": n}, f"record {n}"),
            ("update_record", {"id": n}, "updated"),
        )
    ],
    "a walk through a maze": [
        [("go", {"to": way}, place)]
        for way, place in zip(
            "NNEESSWNE", ["b", "c", "d", "e", "f", "g", "h", "i", "j"], strict=True
        )
    ],
    "the way back": [
        [("go", {"to": way}, place)]
        for way, place in zip("EEEWWW", ["b", "c", "d", "c", "b", "a"], strict=True)
    ],
    "an answer at once": [],
    "one call": [[("look", {"place": "desk"}, "the key")]],
}


SAME_RESULTS: dict[str, list[list[Call]]] = {
    "files with the same review": [[("review", {"file": f"{n}.py"}, "ok")] for n in range(12)],
    "messages that are sent": [[("send", {"to": n}, "sent")] for n in range(12)],
}
"""The rule on streaks of one result fires: by default it only observes."""


def planned(plan: list[list[Call]], **options: Any) -> Any:
    """An agent whose model follows a plan, and whose tools return what the plan says."""
    results = iter([result for calls in plan for _, _, result in calls])

    def run(**arguments: Any) -> str:
        result = next(results)
        if result.startswith("Error"):
            raise ValueError(result)
        return result

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        done = turns(messages)
        if done == len(plan):
            return answers("done")
        return chooses(*((name, arguments) for name, arguments, _ in plan[done]))

    shapes = {name: arguments for calls in plan for name, arguments, _ in calls}
    tools = [
        StructuredTool.from_function(
            run,
            name=name,
            description="does it",
            args_schema={
                "type": "object",
                "properties": {argument: {} for argument in arguments},
            },
            handle_tool_error=True,
        )
        for name, arguments in shapes.items()
    ]
    retries = ToolRetryMiddleware(max_retries=0, on_failure="continue")
    return create_agent(ScriptedChatModel(script=script), tools, middleware=[retries], **options)


class Alarms(RunObserver):
    """Notes after every step what the alerts on loops are made of."""

    def __init__(self, seen: testing.Capture) -> None:
        self._reader = seen.pipeline.reader
        self.seen: set[tuple[str, ...]] = set()
        seen.pipeline.observe(self)

    def step_issued(self, event: Step, decision: Decision) -> None:
        for metric, rows, _ in self._reader.families():
            if metric in (RUNS_LOOPING, LOOPS):
                alarming = [labels for labels, value in rows if value and "loop" not in labels]
                self.seen.update(row for row in alarming if "result_streak" not in row)


def is_healthy(
    work: Callable[[dict[str, Any]], Any],
    rules: Sequence[Rule] = RULES,
    **handler_options: Any,
) -> Reports:
    """Run an agent under the default rules; its reports."""
    handler = TidegaugeCallbackHandler(**handler_options)
    with testing.capture(rules=rules, tools=POLLING) as seen:
        alarms, reports = Alarms(seen), Reports(seen)
        work({"callbacks": [handler]})
        assert nothing_is_left(handler, seen)
        assert {report.outcome for report in reports} == {"unknown"}
        assert alarms.seen == set()
    return reports


class Essay(TypedDict, total=False):
    draft: str
    critique: str


def test_an_agent_that_loops_is_not_healthy() -> None:
    plan: list[list[Call]] = [[("look", {"place": "desk"}, "empty")]] * 3
    with pytest.raises(AssertionError, match=r"set\(\)"):
        is_healthy(lambda config: planned(plan).invoke(TASK, config))
    with pytest.raises(tidegauge.RunStopped):
        is_healthy(lambda config: planned(plan * 3).invoke(TASK, config))


@pytest.mark.parametrize("name", PLANS)
def test_a_plan(name: str) -> None:
    plan = PLANS[name]
    reports = is_healthy(
        lambda config: planned(plan).invoke(TASK, {**config, "recursion_limit": 99})
    )
    assert [report.steps for report in reports] == [len(plan)]


@pytest.mark.parametrize("name", SAME_RESULTS)
def test_a_plan_with_the_same_results(name: str) -> None:
    plan = SAME_RESULTS[name]
    agent = planned(plan)
    reports = is_healthy(
        lambda config: agent.invoke(TASK, {**config, "recursion_limit": 99}), DEFAULT_RULES
    )
    assert [report.steps for report in reports] == [len(plan)]


def test_polling_with_decorated_tools() -> None:
    states = iter([*["running"] * 12, "done"])

    @tidegauge.tool(poll=60)
    def state_of(job: int) -> str:
        return next(states)

    def work(state: Essay) -> Essay:
        while state_of(7) != "done":
            pass
        return {"draft": "done"}

    graph = StateGraph(Essay)
    graph.add_node("wait", work)
    graph.add_edge(START, "wait")
    reports = is_healthy(lambda config: graph.compile().invoke({}, config))
    assert [report.steps for report in reports] == [13]


@pytest.mark.parametrize("steps", ["calls", "nodes"])
def test_a_writer_and_a_critic_with_drafts_that_improve(steps: str) -> None:
    def write(state: Essay) -> Essay:
        return {"draft": f"{state.get('draft', '')} A sentence."}

    def review(state: Essay) -> Essay:
        return {"critique": "good" if state["draft"].count(".") == 8 else "longer, please"}

    graph = StateGraph(Essay)
    graph.add_node("write", write)
    graph.add_node("review", review)
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges(
        "review", lambda state: END if state["critique"] == "good" else "write", ["write", END]
    )
    reports = is_healthy(lambda config: graph.compile().invoke({}, config), steps=steps)
    assert [report.steps for report in reports] == [16 if steps == "nodes" else 0]


def test_a_writer_and_a_critic_that_talk_by_messages() -> None:
    model = ScriptedChatModel(script=lambda messages: answers(f"part {turns(messages)}"))
    graph = StateGraph(MessagesState)
    for name in ("write", "review"):
        graph.add_node(name, lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_conditional_edges(
        "review", lambda state: END if turns(state["messages"]) == 12 else "write", ["write", END]
    )
    reports = is_healthy(lambda config: graph.compile().invoke(TASK, config), steps="nodes")
    assert [report.steps for report in reports] == [12]


def test_tasks_of_the_functional_api() -> None:
    @task
    def write(draft: str, hint: str) -> str:
        return f"{draft} {hint}"

    @task
    def review(draft: str) -> str:
        return "longer, please"

    @entrypoint()
    def essay(topic: str) -> str:
        draft = topic
        for _ in range(6):
            draft = write(draft, review(draft).result()).result()
        return draft

    reports = is_healthy(lambda config: essay.invoke("Cats", config), steps="nodes")
    assert [report.steps for report in reports] == [12]


class Grades(TypedDict, total=False):
    grades: Annotated[list[str], operator.add]


def test_map_and_reduce() -> None:
    graph = StateGraph(Grades)
    graph.add_node("split", lambda state: {})
    graph.add_node("grade", lambda state: {"grades": ["ok"]})
    graph.add_node("reduce", lambda state: {"grades": ["all ok"]})
    graph.add_edge(START, "split")
    graph.add_conditional_edges(
        "split", lambda state: [Send("grade", n) for n in range(10)], ["grade"]
    )
    graph.add_edge("grade", "reduce")
    reports = is_healthy(lambda config: graph.compile().invoke({}, config), steps="nodes")
    assert [report.steps for report in reports] == [3]


def reader(name: str) -> Any:
    """An agent that reads what it is asked to, once."""

    @tool
    def read(source: str) -> str:
        """Read a source."""
        return f"the text of {source}"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage) and "the text" in messages[-1].text:
            return answers(f"summary of {messages[-1].text}")
        read_before = sum("summary" in str(message.content) for message in messages)
        asked = str(messages[-1].content)
        source = asked if asked.startswith("source") else f"source {read_before}"
        return chooses(("read", {"source": source}))

    return create_agent(ScriptedChatModel(script=script), [read], name=name)


def test_research_with_sub_agents() -> None:
    agent = reader("reader")

    @tool
    def research(question: str) -> str:
        """Let another agent find something out."""
        return str(agent.invoke({"messages": [("user", question)]})["messages"][-1].content)

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        done = turns(messages)
        return (
            answers("a report")
            if done == 6
            else chooses(("research", {"question": f"source {done}"}))
        )

    boss = create_agent(ScriptedChatModel(script=script), [research], name="boss")
    reports = is_healthy(lambda config: boss.invoke(TASK, config))
    assert [report.steps for report in reports] == [*[1] * 6, 6]


class Boss(ScriptedChatModel):
    """A model that ``create_react_agent`` takes."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


@pytest.mark.parametrize("messages", [True, False])
def test_a_supervisor_that_visits_one_agent_again_and_again(messages: bool) -> None:
    def script(shown: Sequence[BaseMessage]) -> AIMessage:
        visits = sum("summary" in str(message.content) for message in shown)
        return answers("a report") if visits == 6 else chooses(("transfer_to_reader", {}))

    team = create_supervisor(
        [reader("reader")],
        model=Boss(script=script),
        add_handoff_messages=messages,
    ).compile(name="team")
    reports = is_healthy(lambda config: team.invoke(TASK, {**config, "recursion_limit": 99}))
    assert [report.steps for report in reports] == [*[1] * 6, 12]


def test_a_swarm_in_which_each_agent_does_its_part() -> None:
    @tool
    def note(line: str) -> str:
        """Write a line down."""
        return f"wrote {line}"

    def member(name: str, other: str) -> Any:
        def script(messages: Sequence[BaseMessage]) -> AIMessage:
            done = turns(messages)
            if done == 12:
                return answers("done")
            if messages[-1].type == "tool" and "wrote" in str(messages[-1].content):
                return chooses((f"transfer_to_{other}", {}))
            return chooses(("note", {"line": f"line {done}"}))

        tools = [note, create_handoff_tool(agent_name=other)]
        return create_agent(ScriptedChatModel(script=script), tools, name=name)

    swarm = create_swarm(
        [member("anna", "bert"), member("bert", "anna")], default_active_agent="anna"
    )
    reports = is_healthy(lambda config: swarm.compile(name="swarm").invoke(TASK, config))
    assert reports[-1].agent == "swarm"


def test_a_person_who_approves_each_step() -> None:
    @tool
    def pay(invoice: int) -> str:
        """Pay an invoice."""
        return f"{interrupt(invoice)}: paid {invoice}"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        done = turns(messages)
        return answers("all paid") if done == 6 else chooses(("pay", {"invoice": done}))

    agent = create_agent(ScriptedChatModel(script=script), [pay], checkpointer=InMemorySaver())

    def work(config: dict[str, Any]) -> None:
        config = {**config, "configurable": {"thread_id": "one"}}
        agent.invoke(TASK, config)
        for _ in range(6):
            agent.invoke(Command(resume="yes"), config)

    assert [report.steps for report in is_healthy(work)] == [6]


def test_one_question_after_the_other_on_a_thread() -> None:
    @tool
    def weather(city: str) -> str:
        """The weather."""
        return "sunny"

    def script(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return answers("sunny")
        return chooses(("weather", {"city": "Rome"}))

    agent = create_agent(ScriptedChatModel(script=script), [weather], checkpointer=InMemorySaver())

    def work(config: dict[str, Any]) -> None:
        config = {**config, "configurable": {"thread_id": "one"}}
        for _ in range(8):
            agent.invoke(TASK, config)

    assert [report.steps for report in is_healthy(work)] == [1] * 8


def test_a_batch_of_equal_tasks() -> None:
    agents = [planned([[("look", {"place": "desk"}, "the key")]]) for _ in range(8)]

    def work(config: dict[str, Any]) -> None:
        for agent in agents:
            agent.batch([TASK], config)

    assert [report.steps for report in is_healthy(work)] == [1] * 8
