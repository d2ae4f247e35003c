"""Judges ask a real chat model of LangChain: each case ends in a score or in a stated reason."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage
from opentelemetry._logs import NoOpLogger

from support.interruptions import moments
from support.judged_runs import Judged, run_of, verdict
from support.requirements import needs_fork
from support.scripted_model import ScriptedChatModel, answers
from tidegauge.diagnose.judges.judgement import Judgement
from tidegauge.diagnose.judges.judging import Judging, judged
from tidegauge.diagnose.judges.model_client import ModelClient, NoAnswer, model_name
from tidegauge.diagnose.judges.rubric_judge import (
    COMPETENCIES,
    FIVE_JUDGES,
    SELF_VERIFICATION,
    NotJudged,
    Question,
    Rubric,
    RubricJudge,
    Verdict,
)
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.pipeline.judged_runs import JudgedRuns
from tidegauge.policies import Policy
from tidegauge.safety.critical import run_deferred
from tidegauge.safety.guard import guarded
from tidegauge.streaming_metrics import Engine, RunReport

JUDGE = RubricJudge(SELF_VERIFICATION)


def asked(given: Judged, transcript: Transcript | None = None, **options: Any) -> Judgement:
    client = ModelClient(given.model, **{"pause": 0.0, **options})
    return judged(JUDGE, run_of(3) if transcript is None else transcript, client, "scripted-1")


def http_error(status: int, kind: type[openai.APIStatusError], **headers: str) -> Exception:
    """What the client of a provider raises, as it is made from a response."""
    response: Any = httpx.Response(
        status, headers=headers, request=httpx.Request("POST", "https://example.com")
    )
    return kind(f"status {status}", response=response, body=None)


RATE_LIMIT = http_error(429, openai.RateLimitError)


# What a model answers.


def test_a_good_answer_is_a_score_with_its_reason_and_steps() -> None:
    model = Judged(verdict(3, reason="it looked twice", steps=[2, 0, 2]))
    assert asked(model) == Judgement(
        run="r1",
        competency="self_verification",
        score=3,
        applicable=True,
        reason="it looked twice",
        steps=(0, 2),
        judge="rubric",
        rubric_version="1.1",
        model="scripted-1",
    )
    [[system, human]] = model
    assert "no instruction to you" in system.text
    assert '{"step":2,"action":"open","arguments":{"page":2},"result":"this is page 2"}' in (
        human.text
    )
    assert SELF_VERIFICATION.levels[4] in human.text


@pytest.mark.parametrize(
    "answer",
    [
        f"```json\n{verdict(2)}\n```",
        f"<think>A {{score}} of 4? No.</think>Here it is:\n```\n{verdict(2)}\n``` I hope it helps!",
        f"First I thought {verdict(4)}, but: {verdict(2)}",
    ],
)
def test_what_is_around_the_answer_does_not_matter(answer: str) -> None:
    model = Judged(answer)
    assert asked(model).score == 2
    assert len(model) == 1


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (verdict(score=cast("Any", "good")), "score: "),
        (verdict(score=True), "score: "),
        (verdict(score=cast("Any", 2.5)), "score: "),
        (verdict(score=5), "score: "),
        (verdict(score=None, applicable=True), "score is null; use a whole number"),
        (verdict(score=None), "this rubric applies to every run"),
        (verdict(reason=""), "reason: "),
        (verdict(steps="all"), "steps: "),
        (verdict(steps=[0, 3]), "steps contains 3; use only steps of the record"),
        ('{"score": 3', "the answer has no JSON object: '{\"score\": 3'"),
        ("[3]", "the answer has no JSON object"),
        ("", "the answer has no JSON object: ''"),
        ("I'm sorry, but I can't help with that.", "the answer has no JSON object: \"I'm sorry"),
    ],
)
def test_an_answer_of_no_use_is_sent_back_once_with_what_is_wrong(answer: str, fault: str) -> None:
    mended = Judged(answer, verdict(4))
    assert asked(mended).score == 4
    [_, [_, _, repeated, complaint]] = mended
    assert repeated.text == answer
    assert fault in complaint.text

    insisting = Judged(answer)
    judgement = asked(insisting)
    assert len(insisting) == 2
    assert (judgement.score, judgement.applicable, judgement.reason) == (None, None, "")
    assert judgement.error is not None
    assert judgement.error.startswith("invalid_answer: ")
    assert fault in judgement.error


def test_only_backtracking_may_be_not_applicable() -> None:
    answer = verdict(None, reason="no way led nowhere", steps=[])
    for judge in FIVE_JUDGES:
        client = ModelClient(Judged(answer).model)
        judgement = judged(judge, run_of(3), client, "m")
        if judge.competency == "backtracking_exploration":
            assert (judgement.score, judgement.applicable, judgement.error) == (None, False, None)
            assert judgement.reason == "no way led nowhere"
        else:
            assert judgement.error_kind == "invalid_answer"
    with pytest.raises(ValueError, match="score is not null"):
        FIVE_JUDGES[0].read(verdict(3, applicable=False), run_of(3))


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", additional_kwargs={"refusal": "I won't."}),
        AIMessage("", response_metadata={"finish_reason": "content_filter"}),
        AIMessage("", response_metadata={"finish_reason": "SAFETY"}),
        AIMessage("", response_metadata={"stop_reason": "refusal"}),
    ],
)
def test_a_provider_that_refuses_is_not_asked_again(message: AIMessage) -> None:
    calls = []
    model = ScriptedChatModel(script=lambda messages: calls.append(1) or message)  # type: ignore[func-returns-value]
    judgement = judged(JUDGE, run_of(3), ModelClient(model), "m")
    assert judgement.error_kind == "refused"
    assert len(calls) == 1


def test_an_answer_in_blocks_is_read() -> None:
    blocks: list[Any] = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": verdict(1)},
    ]
    model = ScriptedChatModel(script=lambda messages: AIMessage(blocks))
    assert judged(JUDGE, run_of(3), ModelClient(model), "m").score == 1


# When no answer comes.


def test_a_model_that_is_busy_is_asked_again_after_a_pause() -> None:
    model = Judged(RATE_LIMIT, RATE_LIMIT, verdict(3))
    started = time.monotonic()
    assert asked(model, pause=0.02).score == 3
    assert len(model) == 3
    assert time.monotonic() - started >= 0.02 + 0.04


def test_the_pause_that_a_provider_asks_for_is_made() -> None:
    model = Judged(
        http_error(429, openai.RateLimitError, **{"retry-after": "0.2"}),
        http_error(429, openai.RateLimitError, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        verdict(3),
    )
    started = time.monotonic()
    assert asked(model).score == 3
    assert 0.2 <= time.monotonic() - started < 10


REQUEST: Any = httpx.Request("POST", "https://example.com")


@pytest.mark.parametrize(
    ("fault", "asked_times", "kind"),
    [
        (RATE_LIMIT, 3, "rate_limited"),
        (http_error(503, openai.InternalServerError), 3, "model_error"),
        (http_error(401, openai.AuthenticationError), 1, "model_error"),
        (http_error(400, openai.BadRequestError), 1, "model_error"),
        (openai.APIConnectionError(request=REQUEST), 3, "model_error"),
        (openai.APITimeoutError(request=REQUEST), 3, "time_out"),
        (TimeoutError(), 3, "time_out"),
        (ConnectionResetError("gone"), 3, "model_error"),
        (TypeError("no such argument"), 1, "model_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_what_may_pass_is_tried_again(fault: Exception, asked_times: int, kind: str) -> None:
    model = Judged(fault)
    judgement = asked(model, attempts=3)
    assert len(model) == asked_times
    assert judgement.error_kind == kind
    assert type(fault).__name__ in (judgement.error or "")


def test_a_model_that_hangs_is_left_after_its_time() -> None:
    awake = threading.Event()
    try:
        model = Judged(lambda: str(awake.wait(30)))
        judgement = asked(model, timeout=0.05, attempts=2)
        assert judgement.error == "time_out: TimeoutError: no answer within 0.05 s"
        assert len(model) == 2
    finally:
        awake.set()


def test_calls_that_hang_do_not_pile_up() -> None:
    awake = threading.Event()
    model = Judged(lambda: str(awake.wait(30)) and verdict(3))
    client = ModelClient(model.model, timeout=0.001, attempts=50, pause=0.0)
    with pytest.raises(NoAnswer, match="32 earlier calls have not returned"):
        client.answer([])
    assert len(model) == 32
    awake.set()
    deadline = time.monotonic() + 10
    while True:  # once they have come back, it is asked again
        try:
            client.answer([])
            break
        except NoAnswer:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_rate_is_kept_over_all_threads() -> None:
    at: list[float] = []
    model = Judged(lambda: at.append(time.monotonic()) or verdict(3))  # type: ignore[func-returns-value]
    client = ModelClient(model.model, requests_per_minute=1_200)
    threads = [threading.Thread(target=client.answer, args=([],)) for _ in range(5)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(at) - began >= 4 * 0.05


# What is asked about.


def test_a_run_without_steps_is_not_asked_about() -> None:
    model = Judged(verdict(3))
    client = ModelClient(model.model)
    empty = run_of(0, task=None)
    errors = {judge.competency: judged(judge, empty, client, "m").error for judge in FIVE_JUDGES}
    task = errors.pop("objective_quality")
    assert set(errors.values()) == {"no_steps: the run has no steps"}
    assert task == "no_task: the run's task is unknown"
    assert model == []


def test_the_task_of_a_run_without_steps_is_judged_all_the_same() -> None:
    model = Judged(verdict(4, steps=[7]))
    judge = RubricJudge(COMPETENCIES["objective_quality"])
    judgement = judged(judge, run_of(0), ModelClient(model.model), "m")
    assert (judgement.score, judgement.steps) == (4, ())
    assert "Record:" not in model[0][1].text


def test_digests_are_not_sent() -> None:
    transcript = Transcript(RunStarted(run="r1", task="sha:00ff"))
    transcript.issue(Step("r1", (Call("open", "sha:01"),), state="sha:02"))
    transcript.observe(Outcome("r1", (CallResult("sha:03"),)))
    model = Judged(verdict(3))
    kinds = {
        judged(judge, transcript, ModelClient(model.model), "m").error_kind for judge in FIVE_JUDGES
    }
    assert kinds == {"no_contents", "no_task"}
    assert model == []


def test_a_run_of_10_000_steps_is_cut_and_says_so() -> None:
    model = Judged(verdict(3, steps=[0, 9_999]))
    judgement = asked(model, run_of(10_000))
    assert judgement.score == 3
    [(first, last)] = judgement.left_out_steps
    assert 100 < first < last < 9_900
    text = model[0][1].text
    assert f'{{"left_out":"steps {first} to {last} are not shown"}}' in text
    assert "Steps taken: 10000" in text
    assert len(text) < 120_000
    named = Judged(verdict(3, steps=[first]))
    assert "use only steps of the record" in str(asked(named, run_of(10_000)).error)


# Judges of one's own.


class Brief:
    """A run is to be short: judged without a model."""

    name = "brief"
    competency = "brevity"
    rubric_version = "1"

    def ask(self, transcript: Transcript) -> Question | Verdict | NotJudged:
        if transcript.steps_taken > 5:
            return NotJudged("too_long: who would read that")
        return Verdict(4, "it was brief", (0,))

    def read(self, answer: str, transcript: Transcript) -> Verdict:
        raise AssertionError(answer)


def test_a_judge_may_do_without_a_model() -> None:
    model = Judged(verdict(3))
    client = ModelClient(model.model)
    assert judged(Brief(), run_of(2), client, "m").score == 4
    assert judged(Brief(), run_of(6), client, "m").error == "too_long: who would read that"
    assert model == []


def test_a_fault_of_a_judge_costs_its_judgement_only() -> None:
    class Broken(Brief):
        def ask(self, transcript: Transcript) -> Question | Verdict | NotJudged:
            raise KeyError("oops")

    judgement = judged(Broken(), run_of(2), ModelClient(Judged(verdict(3)).model), "m")
    assert judgement.error == "judge_error: KeyError: 'oops'"


@pytest.mark.parametrize("score", [0, 5, 2.5, "good", float("nan")])
def test_a_judge_that_gives_another_score_gives_none(score) -> None:
    class Generous(Brief):
        def ask(self, transcript: Transcript) -> Question | Verdict | NotJudged:
            return Verdict(score, "so good")

    judgement = judged(Generous(), run_of(2), ModelClient(Judged(verdict(3)).model), "m")
    assert judgement.score is None
    assert judgement.error == f"judge_error: the score is {score!r}; use 1 to 4 or None"


def test_a_rubric_of_ones_own() -> None:
    levels = {1: "rude", 2: "curt", 3: "civil", 4: "kind"}
    judge = RubricJudge(Rubric("politeness", "7", "Was it polite?", levels))
    model = Judged(verdict(2))
    judgement = judged(judge, run_of(2), ModelClient(model.model), "m")
    assert (judgement.competency, judgement.rubric_version) == ("politeness", "1.7")
    assert "Score 2: curt" in model[0][1].text
    with pytest.raises(ConfigurationError, match="use 1, 2, 3, 4"):
        Rubric("politeness", "7", "Was it polite?", {1: "rude"})


# In the background.


def collect(judging: Judging) -> list[Judgement]:
    found: list[Judgement] = []
    judging.listen(lambda transcript, judgement: found.append(judgement))
    return found


def test_all_five_are_judged_and_their_cost_is_counted() -> None:
    judging = Judging(Judged(verdict(3)).model)
    found = collect(judging)
    assert judging.submit(run_of(3))
    assert judging.wait(10)
    assert [one.competency for one in found] == list(COMPETENCIES)
    usage = judging.usage
    assert (usage.answers, usage.unreported) == (5, 0)
    assert (usage.input_tokens, usage.output_tokens) == (500, 100)
    judging.close()


def test_answers_that_report_no_tokens_are_counted() -> None:
    judging = Judging(ScriptedChatModel(script=lambda messages: AIMessage(verdict(3))), [JUDGE])
    judging.submit(run_of(3))
    assert judging.wait(10)
    assert (judging.usage.answers, judging.usage.unreported, judging.usage.input_tokens) == (
        1,
        1,
        0,
    )


def test_so_many_runs_are_judged_at_a_time() -> None:
    together = threading.Barrier(3)
    model = Judged(lambda: str(together.wait(10)) and verdict(3))
    judging = Judging(model.model, [JUDGE], concurrency=3)
    found = collect(judging)
    for name in "abc":
        judging.submit(run_of(3, run=name))
    assert judging.wait(10)
    assert {one.run for one in found} == {"a", "b", "c"}
    assert {one.error for one in found} == {None}


def test_one_too_many_is_dropped_and_counted_unless_the_caller_waits() -> None:
    go_on = threading.Event()
    judging = Judging(
        Judged(lambda: str(go_on.wait(10)) and verdict(3)).model, [JUDGE], max_waiting=1
    )
    found = collect(judging)
    assert judging.submit(run_of(3, run="at work"))
    deadline = time.monotonic() + 10
    while judging._waiting:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert judging.submit(run_of(3, run="waits"))
    assert not judging.submit(run_of(3, run="dropped"))
    assert judging.dropped == {"queue_full": 1, "closed": 0}
    threading.Timer(0.02, go_on.set).start()
    assert judging.submit(run_of(3, run="patient"), wait=True)
    assert judging.wait(10)
    assert [one.run for one in found] == ["at work", "waits", "patient"]


def test_an_end_waits_no_longer_than_it_says() -> None:
    go_on = threading.Event()
    try:
        judging = Judging(Judged(lambda: str(go_on.wait(30))).model, [JUDGE])
        for name in "abc":
            judging.submit(run_of(3, run=name))
        started = time.monotonic()
        judging.close(0.05)
        assert time.monotonic() - started < 10
        assert judging.dropped == {"queue_full": 0, "closed": 3}
        assert not judging.submit(run_of(3))
        assert judging.dropped["closed"] == 4
    finally:
        go_on.set()


def test_an_end_does_not_wait_for_a_pause() -> None:
    model = Judged(RATE_LIMIT)
    judging = Judging(model.model, [JUDGE], pause=30.0)
    found = collect(judging)
    judging.submit(run_of(3))
    deadline = time.monotonic() + 10
    while not model:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    judging.close(0)
    assert judging.wait(10)
    assert [one.error_kind for one in found] == ["rate_limited"]


def test_a_share_of_the_runs_is_judged_the_same_ones_everywhere() -> None:
    half = Judging(Judged(verdict(3)).model, share=0.5)
    chosen = [half.wants(RunStarted(run=f"run-{n}")) for n in range(1_000)]
    assert 400 < sum(chosen) < 600
    again = Judging(Judged(verdict(3)).model, share=0.5)
    assert chosen == [again.wants(RunStarted(run=f"run-{n}")) for n in range(1_000)]


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_judges_for_itself() -> None:
    judging = Judging(Judged(verdict(3)).model, [JUDGE])
    found = collect(judging)
    judging.submit(run_of(3, run="before"))
    assert judging.wait(10)
    child = os.fork()
    if not child:
        judging.submit(run_of(3, run="after"))
        reported = judging.wait(10) and [one.run for one in found] == ["before", "after"]
        os._exit(0 if reported else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda model: Judging(model, []),
        lambda model: Judging(model, [JUDGE, JUDGE]),
        lambda model: Judging(model, share=1.5),
        lambda model: Judging(model, concurrency=0),
        lambda model: Judging(model, max_waiting=0),
        lambda model: Judging(model, timeout=0),
        lambda model: Judging(model, attempts=0),
        lambda model: Judging(model, requests_per_minute=0),
    ],
)
def test_what_cannot_be_is_reported_at_once(make: Callable[[ScriptedChatModel], Judging]) -> None:
    with pytest.raises(ConfigurationError):
        make(Judged(verdict(3)).model)


def test_a_model_is_known_by_its_name() -> None:
    assert model_name(ScriptedChatModel(script=lambda messages: answers(""))) == "scripted-1"
    nameless = ScriptedChatModel(script=lambda messages: answers(""), model_name="")
    assert model_name(nameless) == "ScriptedChatModel"


# What interrupts an agent that ends a run.


def interrupt() -> None:
    raise KeyboardInterrupt


def ends_of(judging: Judging, *runs: str) -> list[Callable[[], object]]:
    """What ends each of these runs, as the engine reports it."""
    judged = JudgedRuns(judging, NoOpLogger(""), contents=False, max_groups=9)

    def finished(report: RunReport) -> None:
        sink.run_finished(report)

    sink = EngineSink(Engine(on_finished=finished), Policy())
    sink.observe(judged)
    for run in runs:
        sink.run_started(RunStarted(run=run))
    return [partial(sink.run_ended, RunEnded(run=run)) for run in runs]


def test_a_handler_may_end_another_run_at_any_moment() -> None:
    for moment in moments():
        judging = Judging(Judged(verdict(3)).model, [Brief()], concurrency=2)
        found = collect(judging)
        one, two = ends_of(judging, "one", "two")
        moment.during(one, guarded("test", default=None)(two))
        run_deferred()
        assert judging.wait(10)
        assert {one.run for one in found} == ({"one", "two"} if moment.came else {"one"})
        judging.close(0)


def test_what_a_handler_raises_leaves_judges_that_work() -> None:
    for moment in moments(raising=True):
        judging = Judging(Judged(verdict(3)).model, [Brief()])
        found = collect(judging)
        with contextlib.suppress(KeyboardInterrupt):
            moment.during(partial(judging.submit, run_of(3, run="one")), interrupt)
        assert judging.submit(run_of(3, run="two"))
        assert judging.wait(10)
        assert "two" in {one.run for one in found}
        judging.close(0)


def test_an_agent_never_waits_for_who_waits_for_its_judges() -> None:
    """Not even for the moment in which they look."""
    judging = Judging(Judged(verdict(3)).model, [Brief()])
    with judging._changed:
        thread = threading.Thread(target=judging.submit, args=(run_of(3),), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert judging.wait(10)
    judging.close(0)


def test_a_thread_that_cannot_be_started_is_started_with_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    judging = Judging(Judged(verdict(3)).model, [Brief()])
    found = collect(judging)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        assert judging.submit(run_of(3, run="one"))
    assert judging.submit(run_of(3, run="two"))
    assert judging.wait(10)
    assert [one.run for one in found] == ["one", "two"]
    judging.close(0)
