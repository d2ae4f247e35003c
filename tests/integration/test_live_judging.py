"""Runs judged as they end: the events at a real collector, the scores on ``/metrics``."""

from __future__ import annotations

import os
import threading
import urllib.request
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

import tidegauge
from support.judged_runs import Judged, run_of, verdict
from support.otlp_metrics import as_prometheus, ours
from support.otlp_receiver import OtlpReceiver, grpc_receiver, http_receiver
from support.scripted_model import ScriptedChatModel
from tidegauge.diagnose.judges.judging import Judging
from tidegauge.diagnose.judges.rubric_judge import COMPETENCIES, RubricJudge
from tidegauge.instrumentation.langchain import instrument, uninstrument
from tidegauge.safety.guard import internal_errors
from tidegauge.testing import capture

RECEIVERS = {"grpc": grpc_receiver, "http/protobuf": http_receiver}
CAREFUL = [RubricJudge(COMPETENCIES["self_verification"])]


@pytest.fixture(params=list(RECEIVERS))
def receiver(request, monkeypatch):
    """A collector that the standard variables of this process lead to."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with RECEIVERS[request.param]() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        yield receiver


def shop(success: bool | None = True) -> str:
    with tidegauge.run(agent="shopper", task_group="shop", task="find the teapot") as run:
        for page in range(3):
            run.act("open", {"page": page})
            run.observe(f"page {page}: no teapot")
        run.finish(success=success)
    return run.id


def scraped(pipeline: tidegauge.pipeline.Pipeline, name: str) -> list[str]:
    assert pipeline.metrics_url is not None
    with urllib.request.urlopen(pipeline.metrics_url) as response:
        text = response.read().decode()
    return [line for line in text.splitlines() if line.startswith(name)]


def test_a_run_that_ended_is_judged_and_reported(receiver: OtlpReceiver) -> None:
    judged = Judged(verdict(2, reason="it never looked at the teapot"))
    judging = Judging(judged.model)
    pipeline = tidegauge.configure(judging=judging, metrics_port=0, otlp_metrics=True)
    run = shop()
    assert judging.wait(10)
    group = 'agent="shopper",task_group="shop"'
    for competency in COMPETENCIES:
        name = f'tidegauge_judged_score_bucket{{{group},competency="{competency}",le='
        assert scraped(pipeline, name) == [
            f'{name}"1.0"}} 0.0',
            *(f'{name}"{bound}"}} 1.0' for bound in ("2.0", "3.0", "4.0", "+Inf")),
        ]
    assert [line.split()[1] for line in scraped(pipeline, "tidegauge_dropped_judgements")] == [
        "0.0"
    ] * 3
    pipeline.shutdown()

    receiver.wait_until(lambda: len(receiver.logs) == 5 and receiver.spans)
    [root] = [span for span in receiver.spans if span.name == "invoke_agent shopper"]
    assert {event.name for event in receiver.logs} == {"gen_ai.evaluation.result"}
    assert [event.attributes["gen_ai.evaluation.name"] for event in receiver.logs] == list(
        COMPETENCIES
    )
    for event in receiver.logs:
        assert (event.trace_id, event.span_id) == (root.trace_id, root.span_id)
        competency = event.attributes.pop("gen_ai.evaluation.name")
        assert event.attributes == {
            "gen_ai.evaluation.score.value": 2.0,
            "gen_ai.evaluation.score.label": "partial",
            "gen_ai.agent.name": "shopper",
            "tidegauge.run.id": run,
            "tidegauge.task_group": "shop",
            "tidegauge.judge.name": "rubric",
            "tidegauge.judge.model": "scripted-1",
            "tidegauge.judge.rubric_version": "1.2" if competency == "objective_quality" else "1.1",
        }
    pushed = as_prometheus(ours(receiver.exports[-1]))
    assert sum(
        value for (name, _), value in pushed.items() if name == "tidegauge_judged_score_sum"
    ) == pytest.approx(10.0)
    [_, human] = judged[0]
    assert '"result":"page 2: no teapot"' in human.text  # what the judge saw, and nobody else
    sent: list[Any] = [*receiver.logs, *receiver.spans, *receiver.points]
    wire = repr([one.raw for one in sent])
    assert "teapot" not in wire


def test_reasons_are_contents_and_reported_when_those_are_asked_for(monkeypatch) -> None:
    judged = verdict(None, reason="it went straight on")
    judges = [RubricJudge(COMPETENCIES["backtracking_exploration"])]
    for settings, variable, one in (
        ({}, "", False),
        ({}, "SPAN_ONLY", False),
        ({}, "EVENT_ONLY", True),
        ({"capture_content": True}, "", True),
        ({"capture_content": False}, "SPAN_AND_EVENT", False),
    ):
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", variable)
        judging = Judging(Judged(judged).model, judges)
        with capture(judging=judging, **settings) as seen:
            shop()
            assert judging.wait(10)
            [event] = seen.events
        assert event.attributes["gen_ai.evaluation.score.label"] == "not_applicable"
        assert "gen_ai.evaluation.score.value" not in event.attributes
        explanation = event.attributes.get("gen_ai.evaluation.explanation")
        assert explanation == ("it went straight on" if one else None), (settings, variable)


def test_what_failed_is_an_event_and_a_count() -> None:
    judging = Judging(Judged("I would rather not.").model, CAREFUL)
    with capture(judging=judging, serve_metrics=True, metrics_port=0) as seen:
        shop()
        assert judging.wait(10)
        [event] = seen.events
        assert event.attributes["error.type"] == "invalid_answer"
        assert "gen_ai.evaluation.score.value" not in event.attributes
        name = "tidegauge_failed_judgements_total"
        failed = {line for line in scraped(seen.pipeline, name) if not line.endswith(" 0.0")}
        assert failed == {f'{name}{{reason="invalid_answer"}} 1.0'}
        assert len(scraped(seen.pipeline, name)) == 5  # the others are 0 from the start
        assert scraped(seen.pipeline, "tidegauge_judged_score") == []


def test_an_agent_never_waits_for_its_judges() -> None:
    go_on = threading.Event()
    judging = Judging(
        Judged(lambda: str(go_on.wait(30)) and verdict(3)).model, CAREFUL, max_waiting=1
    )
    with capture(judging=judging, serve_metrics=True, metrics_port=0) as seen:
        for _ in range(10):
            shop()
        dropped = 'tidegauge_dropped_judgements_total{reason="queue_full"}'
        [line] = scraped(seen.pipeline, dropped)
        assert float(line.split()[1]) in (8, 9)  # one may be at work already
        assert seen.events == []
        go_on.set()
        assert judging.wait(10)
        assert len(seen.events) in (1, 2)


def test_a_share_of_the_runs_is_judged_and_the_others_keep_no_transcript() -> None:
    judging = Judging(Judged(verdict(3)).model, CAREFUL, share=0.0)
    with capture(judging=judging) as seen:
        shop()
        assert judging.wait(10)
    assert seen.events == []
    assert judging.usage.answers == 0


def test_what_a_policy_did_is_in_the_record() -> None:
    judged = Judged(verdict(1))
    judging = Judging(judged.model, CAREFUL)
    with capture(judging=judging, block_on_loop=2, stop_on_loop=9):
        with tidegauge.run(agent="a", task="t") as run:
            for _ in range(5):
                if not run.act("look").block:
                    run.observe("nothing")
        assert judging.wait(10)
    assert judged[0][1].text.count('"action":"look","blocked":true') == 2


def test_runs_that_are_recorded_are_judged_too(tmp_path) -> None:
    judging = Judging(Judged(verdict(3)).model, CAREFUL)
    recording = tmp_path / "runs.jsonl"
    with capture(judging=judging, record_to=recording) as seen:
        shop()
        assert judging.wait(10)
        assert len(seen.events) == 1
    assert len(recording.read_bytes().splitlines()) == 5


def test_a_model_that_is_instrumented_is_no_run_to_be_judged() -> None:
    """Else judging a run would make another one, which would be judged."""
    model: BaseChatModel = ScriptedChatModel(script=lambda messages: AIMessage(verdict(3)))
    judging = Judging(model, CAREFUL)
    with capture(judging=judging) as seen:
        instrument()
        try:
            RunnableLambda(str, name="echo").invoke("hello")
            assert judging.wait(10)
        finally:
            uninstrument()
        assert seen.tree() == ["invoke_agent echo"]
    assert [event.attributes["error.type"] for event in seen.events] == ["no_steps"]


def test_a_fault_in_judging_is_none_of_the_agent_s(faults_are_swallowed, monkeypatch) -> None:
    judging = Judging(Judged(verdict(3)).model, CAREFUL)

    def broken(*_: object, **__: object) -> None:
        raise OSError("broken")

    with capture(judging=judging) as seen:
        monkeypatch.setattr("tidegauge.diagnose.judges.transcript.Transcript.issue", broken)
        shop()
        assert judging.wait(10)
    assert seen.tree()[0] == "invoke_agent shopper"
    assert internal_errors.counts()["judging"] == 3


def test_an_end_is_reported_before_the_collector_is_left(receiver: OtlpReceiver) -> None:
    judging = Judging(Judged(verdict(3)).model, CAREFUL)
    pipeline = tidegauge.configure(judging=judging, serve_metrics=False)
    shop()
    pipeline.shutdown()  # at once: it judges what waits, then sends what that says
    receiver.wait_until(lambda: receiver.logs)
    assert [event.name for event in receiver.logs] == ["gen_ai.evaluation.result"]
    assert not judging.submit(run_of(3))
