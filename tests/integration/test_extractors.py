"""Extractors in a run: the same numbers as of a run that reports its places by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

import tidegauge
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import testing
from tidegauge.events import Task
from tidegauge.instrumentation.extractors import (
    Documents,
    Extractor,
    Files,
    Observation,
    TodoList,
    WebPages,
    extractor,
)
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics.snapshot import RunReport
from tidegauge.worlds.document_world import SCRIPTS, Desk, DocumentWorld, play

SHOP = "https://shop.example/"
SITE = {
    "": ["cart", "deals"],
    "cart": ["", "pay"],
    "deals": ["", "deals/1", "deals/2"],
    "deals/1": ["deals", "cart"],
}
WALK = ["", "deals", "deals/1", "deals", "deals/1", "cart", "", "cart", "cart", "cart"]

FOLDER = {"src": ["app.py", "cart.py"], "src/app.py": [], "src/cart.py": []}
READS = ["src", "src/app.py", "src/app.py", "src", "src/cart.py", "src/cart.py"]

ARCHIVE = r"\b(?:station|gauge|keeper|workshop)/[a-z0-9-]+"

NUMBERS = (
    "steps",
    "place",
    "frontier",
    "pending",
    "exploration_required",
    "exploration_errors",
    "exploitation_required",
    "exploitation_errors",
    "stale_score_max",
    "oldest_lead_age",
    "displaced_leads",
    "distinct_places",
    "backtracks",
    "progress",
    "progress_auv",
    "recall_lag",
)


def measured(story: Callable[[tidegauge.Run], None], *, reach: Any = None, **settings: Any) -> Any:
    """The numbers of the run in which the story happens."""
    reports: list[RunReport] = []
    with testing.capture(**settings) as seen:
        seen.pipeline.engine._on_finished = reports.append
        with tidegauge.run(**({} if reach is None else {"reach": reach})) as run:
            story(run)
    return {name: getattr(reports[0], name) for name in NUMBERS}


def test_web_pages_are_measured_as_if_reported_by_hand():
    def html(page: str) -> str:
        links = "".join(f'<a href="{SHOP}{link}#x">{link}</a>' for link in SITE[page])
        return f"<h1>{page}</h1>{links}<a href='https://elsewhere.example/'>elsewhere</a>"

    def by_hand(run: tidegauge.Run) -> None:
        for page in WALK:
            run.act("open_page", {"url": SHOP + page})
            run.observe(html(page), place=SHOP + page, exits=[SHOP + link for link in SITE[page]])

    def by_extractor(run: tidegauge.Run) -> None:
        for page in WALK:
            run.act("open_page", {"url": SHOP + page})
            run.observe(html(page))

    expected = measured(by_hand)
    found = measured(by_extractor, extractors=[WebPages()])
    del expected["recall_lag"], found["recall_lag"]  # entities were not reported by hand
    assert found == expected
    assert (found["exploration_errors"], found["frontier"]) == (2, 2)


def test_files_are_reached_from_anywhere_through_the_decorators():
    def by_hand(run: tidegauge.Run) -> None:
        for path in READS:
            exits = [f"{path}/{name}" for name in FOLDER[path]]
            run.act("read", {"path": path})
            run.observe("\n".join(FOLDER[path]), place=path, exits=exits or None)

    @tidegauge.tool
    def read(path: str) -> str:
        return "\n".join(FOLDER[path])

    def decorated(run: tidegauge.Run) -> None:
        for path in READS:
            read(path)

    expected = measured(by_hand, reach="anywhere")
    found = measured(decorated, extractors=[Files()])
    # app.py again, a step after it was read of; cart.py three steps after, then one
    assert found.pop("recall_lag") == pytest.approx((1 + 3 + 1) / 3)
    del expected["recall_lag"]
    assert found == expected
    assert (found["exploration_errors"], found["frontier"]) == (2, 0)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_archive_of_documents_is_measured_as_if_reported_by_hand(script):
    world = DocumentWorld(seed=1)
    steps = play(SCRIPTS[script](world.tasks[2], random.Random(1)), Desk(world, world.tasks[2]))

    def by_hand(run: tidegauge.Run) -> None:
        for call, outcome, failed in steps:
            place: Any = None
            arguments: Any = call.arguments
            if not failed and call.action == "read_document":
                place = arguments["document_id"]
                exits = list(world.documents[place].links.values())
            elif not failed and call.action == "search":
                place = ("search", arguments["query"])
                exits = [line.partition(" | ")[0] for line in outcome.splitlines()]
            elif call.action == "list_documents":
                place, exits = ("list_documents",), list(world.documents)
            run.act(call.action, call.arguments)
            if place is None:
                run.observe(outcome, error=failed)
            else:
                run.observe(outcome, error=failed, place=place, exits=exits)

    def by_extractor(run: tidegauge.Run) -> None:
        for call, outcome, failed in steps:
            run.act(call.action, call.arguments)
            run.observe(outcome, error=failed)

    expected = measured(by_hand, reach="anywhere")
    found = measured(by_extractor, extractors=[Documents(pattern=ARCHIVE)])
    del expected["recall_lag"], found["recall_lag"]
    assert found == expected
    assert found["frontier"] is not None
    assert found["distinct_places"] > 1


def todos(*entries: tuple[str, str]) -> list[dict[str, str]]:
    return [{"content": content, "status": status} for content, status in entries]


PLANS = [
    todos(("look", "in_progress"), ("write", "pending")),
    todos(("look", "completed"), ("write", "in_progress")),
    todos(("look", "completed"), ("write", "in_progress"), ("check", "pending")),
]


def test_a_to_do_list_of_langgraph_is_measured_as_if_reported_by_hand():
    @tool
    def read_file(path: str) -> str:
        """Read a file."""
        return f"what {path} says"

    turn = [
        chooses(("write_todos", {"todos": PLANS[0]})),
        chooses(("read_file", {"path": "a.py"})),
        chooses(("write_todos", {"todos": PLANS[1]}), ("read_file", {"path": "b.py"})),
        chooses(("write_todos", {"todos": PLANS[2]})),
        answers("not finished"),
    ]
    model = ScriptedChatModel(script=lambda messages: turn[turns(messages)])
    agent = create_agent(model, [read_file], middleware=[TodoListMiddleware()])
    reports: list[RunReport] = []
    extractors = [TodoList(progress=True), Files()]
    with testing.capture(extractors=extractors) as seen:
        seen.pipeline.engine._on_finished = reports.append
        config: Any = {"callbacks": [TidegaugeCallbackHandler()]}
        state = agent.invoke({"messages": [HumanMessage("mend it")]}, config=config)
    assert state["todos"] == PLANS[2]

    def by_hand(run: tidegauge.Run) -> None:
        tasks = [Task("look"), Task("write")]
        run.act("write_todos", {"todos": PLANS[0]})
        run.observe("Updated", tasks=tasks, progress=0.0)
        run.act("read_file", {"path": "a.py"})
        run.observe("what a.py says", place="a.py")
        run.act_round([("write_todos", {"todos": PLANS[1]}), ("read_file", {"path": "b.py"})])
        results = [("Updated", False), ("what b.py says", False)]
        run.observe_round(results, place="b.py", achieved=["look"], progress=0.5)
        run.act("write_todos", {"todos": PLANS[2]})
        run.observe("Updated", tasks=[*tasks, Task("check")], achieved=["look"], progress=1 / 3)

    found = {name: getattr(reports[0], name) for name in NUMBERS}
    expected = measured(by_hand, reach="anywhere")
    del expected["recall_lag"], found["recall_lag"]
    assert found == expected
    assert (found["pending"], found["place"]) == (2, "b.py")


def test_what_the_reporter_reports_wins():
    def story(run: tidegauge.Run) -> None:
        run.act("go", "hall")
        run.observe("", place="attic", exits=["roof"])

    rooms = extractor(lambda call, result: Observation(call.arguments, ("a", "b", "c")))
    found = measured(story, extractors=[rooms])
    assert (found["place"], found["frontier"]) == ("attic", 1)


def test_a_faulty_extractor_costs_the_agent_nothing(faults_are_swallowed):
    def wrong(*_: Any) -> Any:
        raise RuntimeError("wrong")

    def story(run: tidegauge.Run) -> None:
        for _ in range(3):
            run.act("go", "hall")
            run.observe("")

    found = measured(story, extractors=[extractor(wrong, uses=wrong)])
    assert (found["steps"], found["place"], found["frontier"]) == (3, None, None)
    assert internal_errors.counts() == {"extractor": 6}


def replayed(path: Path, *extractors: Extractor) -> list[RunReport]:
    """The reports of the first recorded runs, reported call by call under these extractors."""
    reports: list[RunReport] = []
    run: tidegauge.Run | None = None
    with testing.capture(extractors=extractors) as seen, path.open(encoding="utf-8") as lines:
        seen.pipeline.engine._on_finished = reports.append
        for line in islice(lines, 1_500):
            event = json.loads(line)
            if event["type"] == "start":
                run = tidegauge.run(task=event["task"]).__enter__()
            elif event["type"] == "step" and "calls" not in event:
                run.act(event["action"], event.get("args"))
                run.observe(event["outcome"], error=event["error"])
            elif event["type"] == "end":
                run.__exit__(None, None, None)
                run = None
        if run is not None:  # it goes on past the last line read
            run.__exit__(None, None, None)
    return reports


@pytest.mark.parametrize(
    ("data", "extractors", "placed", "explored"),
    [  # share of runs that stood somewhere, and of those in which something was left unexplored
        ("react_webshop", [Documents(pattern=r"\bB0[0-9A-Z]{8}\b")], (0.98, 1.0), (0.8, 1.0)),
        ("sweagent", [Files()], (0.8, 1.0), (0.2, 1.0)),
        ("intercode_bash", [Files()], (0.1, 0.8), (0.3, 1.0)),
        ("react_webshop", [Files(), WebPages(), Documents(), TodoList()], (0.0, 0.0), (0, 0)),
        ("adapt_alfworld", [Files(), WebPages(), Documents(), TodoList()], (0.0, 0.0), (0, 0)),
        ("taubench_airline", [Files(), WebPages(), Documents(), TodoList()], (0.0, 0.0), (0, 0)),
    ],
)
def test_places_are_found_in_recorded_runs_that_have_any(
    recorded_runs, data, extractors, placed, explored
):
    reports = replayed(recorded_runs / f"{data}.events.jsonl", *extractors)
    somewhere = [report for report in reports if report.place is not None]
    share = len(somewhere) / len(reports)
    assert placed[0] <= share <= placed[1]
    left = sum(bool(report.frontier) for report in somewhere) / max(len(somewhere), 1)
    assert explored[0] <= left <= explored[1]
