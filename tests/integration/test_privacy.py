"""Nothing but digests leaves the process: whatever it sends, shows or logs is searched."""

from __future__ import annotations

import gc
import logging
import urllib.request
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

import tidegauge
from support.scripted_model import ScriptedChatModel, chooses
from tidegauge.events import RunStarted
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.policies import Rule
from tidegauge.runs.extraction import Observation, extractor
from tidegauge.streaming_metrics import PassAtK
from tidegauge.streaming_metrics.saved_run import save_run
from tidegauge.testing import Capture, capture

SECRET = "s3cret"
LADDER = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 3, "block"),
    Rule("loop_repeats", 5, "stop"),
]
ROOMS = extractor(
    lambda call, result: Observation(
        place=f"{SECRET}-here",
        exits=(f"{SECRET}-attic", f"{SECRET}-cellar"),
        tasks=(tidegauge.events.Task(f"{SECRET}-task"),),
        mentions=(f"{SECRET}-entity",),
    )
)


def everything_sent(seen: Capture) -> str:
    assert seen.pipeline.metrics_url is not None
    with urllib.request.urlopen(seen.pipeline.metrics_url) as answer:
        metrics = answer.read().decode()
    with urllib.request.urlopen(f"{seen.pipeline.page_url}page/live?run=1") as answer:
        page = answer.read().decode()
    spans = [span.to_json() for span in seen.spans]
    events = [f"{one.event_name} {one.body} {one.attributes}" for one in seen.events]
    return "\n".join([metrics, page, *spans, *events])


def plain_agent() -> None:
    with tidegauge.run(agent="browser", task=f"{SECRET}-goal", task_group="shop") as run:
        while True:
            decision = run.act("look", {"at": f"{SECRET}-argument"})
            if not decision.block:
                run.observe(f"{SECRET}-result", error=ValueError(f"{SECRET}-error"))


def langchain_agent() -> None:
    @tool
    def look(at: str) -> str:
        """Look at something."""
        return f"{SECRET}-result"

    script = lambda messages: chooses(("look", {"at": f"{SECRET}-argument"}))  # noqa: E731
    agent = create_agent(ScriptedChatModel(script=script), [look])
    handler = TidegaugeCallbackHandler(agent="browser", task_group="shop")
    inputs: Any = {"messages": [("user", f"{SECRET}-goal")]}
    agent.invoke(inputs, config={"callbacks": [handler]})


@pytest.mark.parametrize("agent", [plain_agent, langchain_agent])
def test_only_digests_leave_though_the_policy_steps_in(agent, caplog) -> None:
    caplog.set_level(logging.DEBUG, "tidegauge")
    with capture(rules=LADDER, extractors=[ROOMS], serve_metrics=True, metrics_port=0) as seen:
        with pytest.raises(tidegauge.RunStopped) as stopped:
            agent()
        sent = everything_sent(seen)
    assert "execute_tool look" in sent
    assert "tidegauge.intervention" in sent
    assert 'action="stop"' in sent
    assert '"trail":[{"step":0,"tool":"look"' in sent
    assert SECRET not in sent
    assert SECRET not in caplog.text
    # The agent itself gets the name: that stays in the process.
    assert stopped.value.state["unexplored"] == (f"{SECRET}-attic", f"{SECRET}-cellar")
    assert SECRET not in str(stopped.value)


def test_a_short_content_cannot_be_guessed_from_its_digest() -> None:
    def digests(**settings: Any) -> set[Any]:
        with capture(**settings) as seen, tidegauge.run() as run:
            run.act("answer", "yes")
            run.observe("ok")
        return {span.attributes.get("tidegauge.action.digest") for span in seen.spans} - {None}

    ours = digests()
    assert ours != digests()  # another key for every pipeline
    assert digests(digest_key=b"team") == digests(digest_key=b"team") != digests(digest_key=b"b")


def keepers(task: str) -> list[RunStarted]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, RunStarted) and each.task == task]


@pytest.mark.slow
def test_the_words_of_a_task_are_forgotten_while_the_run_goes_on() -> None:
    task = f"{SECRET}-goal of this test"
    with capture() as seen, tidegauge.run(agent="browser", task=task, task_group="shop") as run:
        run.act("look", {"at": "here"})
        assert keepers(task) == []
        active = seen.pipeline.engine.get(run.id)
        assert active is not None
        assert SECRET not in repr(save_run(active))


def test_the_words_of_a_task_that_spans_are_to_show_are_kept_for_them() -> None:
    task = f"{SECRET}-goal of that test"
    with capture(capture_content=True), tidegauge.run(agent="browser", task=task) as run:
        run.act("look", {"at": "here"})
        assert len(keepers(task)) == 1


def test_a_task_is_distinguished_from_others_by_its_digest() -> None:
    with capture() as seen:
        for task, success in (("a", True), ("a", False), ("b", False)):
            with tidegauge.run(agent="browser", task=task) as run:
                run.act("look")
                run.finish(success=success)
        [group] = seen.pipeline.engine.snapshot().groups
        assert (group.finished.of(PassAtK).at(1), group.finished.of(PassAtK).at(2)) == (0.25, 1.0)
