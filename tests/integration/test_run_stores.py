"""A run that waits for a person continues in another process, if a store is configured."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from langgraph.checkpoint.memory import InMemorySaver

import tidegauge
from support.interruptions import moments
from support.judged_runs import Judged, verdict
from support.langchain_agents import Reports, waiting
from support.postgres import Postgres, postgres
from support.processes import PATIENCE, import_error, without_otel
from support.requirements import needs_fork
from support.small_disk import small_disk
from support.waiting_agent import INPUTS, invoke, waiting_agent
from tidegauge import ConfigurationError, catalog, testing
from tidegauge.diagnose.judges.judging import Judging
from tidegauge.diagnose.judges.rubric_judge import COMPETENCIES, RubricJudge
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
from tidegauge.pipeline import EngineSink, Pipeline, Settings, stored_runs
from tidegauge.policies import Policy
from tidegauge.run_stores import RunStore, open_run_store
from tidegauge.run_stores.sql_stores import PostgresRunStore
from tidegauge.runs.current import set_recorder
from tidegauge.runs.waiting_runs import WaitingRuns
from tidegauge.safety.guard import internal_errors

NEVER = 1e12


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What ``configure(run_store=...)`` takes."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    running: Postgres = request.getfixturevalue("server")
    return running.create()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy."""
    monkeypatch.setattr(stored_runs, "_TAKE_SECONDS", 30.0)


@pytest.fixture
def store(place: str) -> Iterator[RunStore]:
    opened = open_run_store(place)
    yield opened
    opened.close()


def in_one_process(kind: Any, rounds: int) -> list[Any]:
    agent = waiting_agent(InMemorySaver(), rounds=rounds, kind=kind)
    with testing.capture() as seen:
        reports = Reports(seen)
        inputs = INPUTS["task"]
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        for _ in range(rounds + 1):
            agent.invoke(inputs, config)
            inputs = answer_for(kind)
    return [(report.agent, report.steps, report.numbers) for report in reports]


def answer_for(kind: str) -> Any:
    return INPUTS["approve" if kind == "middleware" else "resume"]


@pytest.mark.parametrize("kind", ["tool", "middleware", "inside"])
def test_each_invocation_in_another_process_is_one_run(place: str, kind: Any) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=6, kind=kind)
    reports, spans = invoke(place, agent, INPUTS["task"], "one")
    assert not reports, "it waits in the store"
    for _ in range(6):
        assert not reports
        reports, more = invoke(place, agent, answer_for(kind), "one")
        spans += more
    found = [(report.agent, report.steps, report.numbers) for report in reports]
    expected = in_one_process(kind, 6)
    for (agent_name, steps, numbers), (other, more_steps, others) in zip(
        found, expected, strict=True
    ):
        assert (agent_name, steps) == (other, more_steps)
        without_time = {name for name in numbers if "seconds" not in name} - {"loop_since"}
        assert {name: numbers[name] for name in without_time} == {
            name: others[name] for name in without_time
        }
    outer = reports[-1]
    roots = [span for span in spans if span.name == f"invoke_agent {outer.agent}"]
    assert {span.attributes["tidegauge.run.id"] for span in roots} == {outer.run}
    before = [span.context.span_id for span in roots[:-1]]
    assert [link.context.span_id for span in roots for link in span.links] == before
    if kind != "inside":
        tools = [span for span in spans if span.name.startswith("execute_tool")]
        ended: list[Any] = [span.attributes["tidegauge.step.index"] for span in tools]
        assert sorted(set(ended)) == list(range(6)), "a call that is run again is its first step"
    with contextlib.closing(open_run_store(place)) as opened:
        assert not opened.take_expired(1e13), "nothing is left"


async def test_asynchronous_invocations_continue_a_run(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=3)
    inputs, steps = INPUTS["task"], []
    for _ in range(4):
        with testing.capture(run_store=place) as seen:
            reports = Reports(seen)
            handler = TidegaugeCallbackHandler()
            config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
            async for _ in agent.astream(inputs, config):
                pass
        inputs = INPUTS["resume"]
        steps += [report.steps for report in reports]
    assert steps == [3]


def test_runs_of_many_threads_at_once_are_kept_apart(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=2)
    inputs, reports = INPUTS["task"], []
    for _ in range(3):
        with testing.capture(run_store=place) as seen, ThreadPoolExecutor(6) as executor:
            reports = Reports(seen)

            def work(thread: int, inputs: Any = inputs) -> None:
                handler = TidegaugeCallbackHandler()
                config = {"callbacks": [handler], "configurable": {"thread_id": str(thread)}}
                agent.invoke(inputs, config)

            list(executor.map(work, range(12)))
        inputs = INPUTS["resume"]
    assert [report.steps for report in reports] == [2] * 12
    assert len({report.run for report in reports}) == 12


def test_a_loop_over_processes_is_stopped(place: str) -> None:
    agent = waiting_agent(InMemorySaver())
    invoke(place, agent, INPUTS["task"], "one", stop_on_loop=3)
    for _ in range(3):
        invoke(place, agent, INPUTS["resume"], "one", stop_on_loop=3)
    with pytest.raises(tidegauge.RunStopped) as caught:
        invoke(place, agent, INPUTS["resume"], "one", stop_on_loop=3)
    assert caught.value.step == 4


@pytest.mark.slow
def test_real_processes_continue_one_run(place: str, tmp_path: Path) -> None:
    def process(inputs: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "support.waiting_agent"]
        sqlite = not place.startswith("postgresql:")  # else one database has both
        checkpoints = str(tmp_path / "checkpoints.sqlite") if sqlite else place
        arguments = [place, checkpoints, "one", inputs]
        done = subprocess.run(
            [*command, *arguments],
            env=without_otel(PYTHONPATH=os.pathsep.join(sys.path)),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    found = [process(inputs) for inputs in ("task", *["resume"] * 3)]
    (run,) = {run for one in found for run in one["runs"]}
    assert [one["ended"] for one in found] == [[], [], [], [[run, 3, 1 / 3, 36]]]


def test_of_several_processes_one_resumes_the_run(store: RunStore) -> None:
    for number in range(20):
        store.save(f"{number}", "place", b"state", NEVER)
    taken: list[bytes | None] = []

    def take() -> None:
        taken.extend([store.take(f"{number}", "elsewhere") for number in range(20)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken.count(b"state") == 20
    assert len(taken) == 80


def test_a_store_finds_by_key_then_by_place(store: RunStore) -> None:
    for key, place in (("2", "a"), ("4", "a"), ("2b", "b")):
        store.save(key, place, key.encode(), NEVER)
    assert store.take("1", "b") is None, "from before"
    assert store.take("5", "a") is None, "one of two"
    assert store.take("5", "b") == b"2b"
    assert store.take("5", "b") is None
    assert store.take("4", "elsewhere") == b"4"
    store.save("2", "a", b"another", NEVER)
    assert store.take("2", "a") == b"another"


def test_a_checkpoint_is_resumed_once_whatever_else_waits_at_its_place(store: RunStore) -> None:
    for key in ("1", "2"):
        store.save(key, "place", key.encode(), NEVER)
    assert store.take("2", "place") == b"2"
    assert store.take("2", "place") is None
    assert store.take("3", "place") == b"1"
    store.save("0", "place", b"0", NEVER)
    assert store.take("3", "place") is None
    assert store.take("1", "place") is None
    store.save("2", "place", b"again", NEVER)
    assert store.take("2", "place") == b"again", "it has waited there twice"
    store.save("5", "place", b"5", 7.0)
    assert store.take("5", "place") == b"5"
    assert store.take_expired(1e13) == [b"0"]
    assert store.take("5", "place") is None, "nothing is kept of what has expired"


def test_of_two_runs_that_wait_at_one_checkpoint_the_first_ends(store: RunStore) -> None:
    for state in (b"1", b"2"):
        store.save("key", "place", state, NEVER)
    assert store.take_expired(1.0) == [b"1"]
    assert store.take("later", "place") == b"2"
    assert not store.take_expired(1e13)


def test_a_store_gives_what_has_expired_once(store: RunStore) -> None:
    for number in range(15):
        store.save(f"{number:2}", "place", b"%d" % number, float(number))
    first = store.take_expired(12.0)
    assert first == [b"%d" % number for number in range(10)]
    assert store.take_expired(12.0) == [b"10", b"11"]
    assert not store.take_expired(12.0)
    assert store.take("13", "place") == b"13"


def test_threads_and_agents_of_one_name_are_not_confused(place: str) -> None:
    agents = [waiting_agent(InMemorySaver(), rounds=1) for _ in range(2)]
    for agent in agents:
        for thread in ("one", "two"):
            invoke(place, agent, INPUTS["task"], thread)
    runs = [
        invoke(place, agent, INPUTS["resume"], thread)[0]
        for thread in ("two", "one")
        for agent in agents
    ]
    assert [[report.steps for report in one] for one in runs] == [[1]] * 4
    assert len({report.run for one in runs for report in one}) == 4


def test_a_state_that_was_changed_while_the_run_waits_is_still_its_thread(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1, kind="middleware")
    invoke(place, agent, INPUTS["task"], "one")
    config: Any = {"configurable": {"thread_id": "one"}}
    (last,) = agent.get_state(config).values["messages"][-1:]
    agent.update_state(config, {"messages": [last.model_copy(update={"content": "edited"})]})
    reports, _ = invoke(place, agent, INPUTS["approve"], "one")
    assert [report.steps for report in reports] == [1]


def test_what_nothing_resumes_is_ended_by_the_next_process_that_saves(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1, kind="inside")
    invoke(place, agent, INPUTS["task"], "one", waits=1.0)
    time.sleep(1.1)
    reports, _ = invoke(place, agent, INPUTS["task"], "two")
    assert [(report.agent, report.steps, report.outcome) for report in reports] == [
        ("seeker", 1, "unknown"),
        ("chief", 1, "unknown"),
    ]


def test_what_is_resumed_too_late_ends_and_a_new_run_is_linked_to_it(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1)
    _, before = invoke(place, agent, INPUTS["task"], "one", waits=1.0)
    time.sleep(1.1)
    reports, spans = invoke(place, agent, INPUTS["resume"], "one")
    assert [report.steps for report in reports] == [1, 0]
    links = [link.context.span_id for span in spans for link in span.links]
    assert links == [before[-1].context.span_id]


class FailingStore:
    """A store that fails or hangs, where it is asked to."""

    def __init__(self, inner: RunStore) -> None:
        self.inner = inner
        self.fails: set[str] = set()
        self.hangs = threading.Event()
        self.hangs.set()
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.fails:
            raise ConnectionError("no connection")
        assert self.hangs.wait(PATIENCE)

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        self._ask("save")
        self.inner.save(key, place, state, expires)

    def take(self, key: str, place: str) -> bytes | None:
        self._ask("take")
        return self.inner.take(key, place)

    def take_expired(self, now: float) -> list[bytes]:
        return self.inner.take_expired(now)

    def close(self) -> None:
        pass


def failures(seen: testing.Capture) -> float:
    return seen.pipeline.more_metrics()[catalog.RUN_STORE_FAILURES][()]  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may be slow: on a busy machine, it does not answer within a second."""
    monkeypatch.setattr(stored_runs, "_TAKE_SECONDS", PATIENCE)


@pytest.fixture
def failing(store: RunStore) -> FailingStore:
    return FailingStore(store)


def test_a_run_that_cannot_be_saved_waits_in_its_process(failing: FailingStore) -> None:
    failing.fails = {"save"}
    agent = waiting_agent(InMemorySaver(), rounds=1)
    with testing.capture(run_store=failing) as seen:
        reports = Reports(seen)
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        agent.invoke(INPUTS["task"], config)
        until = time.monotonic() + PATIENCE
        while not failures(seen) and time.monotonic() < until:
            time.sleep(0.01)
        assert waiting(seen) == 1
        agent.invoke(INPUTS["resume"], config)
        assert waiting(seen) == 0
        assert failures(seen) == 1
    assert [(report.steps, report.tokens) for report in reports] == [(1, 12)]
    assert internal_errors.counts() == {}


def test_a_flush_waits_until_runs_are_saved(failing: FailingStore) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1)
    with testing.capture(run_store=failing) as seen:
        assert seen.pipeline.force_flush(PATIENCE)
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        failing.hangs.clear()
        agent.invoke(INPUTS["task"], config)
        assert not seen.pipeline.force_flush(0.01)
        failing.hangs.set()
        assert seen.pipeline.force_flush(PATIENCE)
        assert waiting(seen) == 0


class Slow(FailingStore):
    """A store that another process takes the state from while it is being saved."""

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        self.inner.save(key, place, state, expires)
        assert self.inner.take(key, place) == state
        self._ask("save")


def test_a_run_that_is_being_saved_is_not_continued_twice(store: RunStore) -> None:
    slow, agent = Slow(store), waiting_agent(InMemorySaver(), rounds=1)
    with testing.capture(run_store=slow) as seen:
        reports = Reports(seen)
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        slow.hangs.clear()
        agent.invoke(INPUTS["task"], config)
        until = time.monotonic() + PATIENCE
        while not slow.asked and time.monotonic() < until:
            time.sleep(0.01)
        released = threading.Timer(0.3, slow.hangs.set)
        released.start()
        agent.invoke(INPUTS["resume"], config)
        released.join()
        assert seen.pipeline.more_metrics()[catalog.UNKNOWN_RESUMES] == {(): 1}
        assert failures(seen) == 0
    assert [report.steps for report in reports] == [0], "the other process continues the run"


def test_without_its_store_an_agent_continues_in_a_new_run(failing: FailingStore) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=3)
    _, before = invoke(failing, agent, INPUTS["task"], "one")
    failing.fails, failing.asked = {"take", "save"}, []
    with testing.capture(run_store=failing) as seen:
        reports = Reports(seen)
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        for _ in range(3):
            agent.invoke(INPUTS["resume"], config)
        assert failures(seen) >= 1
    assert [report.steps for report in reports] == [2], "its first call is a step of the other run"
    assert failing.asked.count("take") == 1, "then it is left alone for a while"
    resumed = {span.attributes.get("tidegauge.checkpoint.resumed") for span in seen.spans}
    assert before[-1].attributes["tidegauge.checkpoint"] in resumed
    assert internal_errors.counts() == {}


def test_a_store_that_hangs_holds_the_agent_up_once_and_loses_no_run(
    failing: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_runs, "_TAKE_SECONDS", 0.2)
    agent = waiting_agent(InMemorySaver(), rounds=2)
    invoke(failing, agent, INPUTS["task"], "one")
    failing.hangs.clear()
    began = time.monotonic()
    with testing.capture(run_store=failing) as seen:
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        agent.invoke(INPUTS["resume"], config)
        assert time.monotonic() - began < PATIENCE / 2
        (report,) = seen.pipeline.engine.snapshot().active
        assert report.steps == 1
        failing.hangs.set()
        assert failures(seen) == 1
    assert internal_errors.counts() == {}
    until = time.monotonic() + PATIENCE
    while failing.asked.count("save") < 3 and time.monotonic() < until:
        time.sleep(0.01)  # what was taken too late is put back
    assert failing.asked.count("save") == 3


@pytest.mark.parametrize("state", [b"", b"{}", b"[", b'{"version":99}', b'{"version":1}', b"null"])
def test_a_state_of_another_form_is_a_new_run(
    failing: FailingStore, state: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1)
    invoke(failing, agent, INPUTS["task"], "one")
    failing.take = lambda key, place: state  # type: ignore[method-assign]
    with caplog.at_level("WARNING", "tidegauge"):
        reports, _ = invoke(failing, agent, INPUTS["resume"], "one")
    assert [report.steps for report in reports] == [0]
    assert "the run store failed: a state cannot be read" in caplog.text
    assert internal_errors.counts() == {}


def test_a_store_has_no_contents(place: str, store: RunStore) -> None:
    agent = waiting_agent(InMemorySaver(), kind="inside")
    invoke(place, agent, INPUTS["task"], "one")
    invoke(place, agent, INPUTS["resume"], "one")
    (state,) = store.take_expired(1e13)
    assert b"desk" not in state
    assert b"find the key" not in state
    assert b"is empty" not in state
    assert len(orjson.loads(state)["runs"]) == 2


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_full_disk_stops_no_agent_and_a_removed_file_is_made_again(tmp_path: Path) -> None:
    path, agent = tmp_path / "runs.sqlite", waiting_agent(InMemorySaver(), rounds=1)
    with small_disk(tmp_path / "small", 4096) as disk:
        reports, _ = invoke(str(disk / "runs.sqlite"), agent, INPUTS["task"], "one")
        assert [report.steps for report in reports] == [1], "it could not be saved"
    store = open_run_store(str(path))
    path.unlink()
    store.save("1", "place", b"state", NEVER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.take("1", "place") == b"state"


def test_only_its_owner_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    store = open_run_store(str(path))
    with contextlib.closing(sqlite3.connect(path)) as reader:
        reader.execute("SELECT * FROM tidegauge_runs").fetchall()
        store.save("1", "place", b"state", NEVER)
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert files == dict.fromkeys(["runs.sqlite", "runs.sqlite-wal", "runs.sqlite-shm"], 0o600)


def test_a_recording_of_each_process_has_its_part(place: str, tmp_path: Path) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=2)
    lines = []
    for number, inputs in enumerate(("task", "resume", "resume")):
        file = tmp_path / f"{number}.jsonl"
        with testing.capture(run_store=place, record_to=file):
            config: Any = {
                "callbacks": [TidegaugeCallbackHandler()],
                "configurable": {"thread_id": "one"},
            }
            agent.invoke(INPUTS[inputs], config)
        lines.append([json.loads(line) for line in file.read_text().splitlines()])
    assert [[line["type"] for line in part] for part in lines] == [
        ["start", "step", "end"],
        ["start", "step", "end"],
        ["start", "end"],
    ]
    assert len({line["run"] for part in lines for line in part}) == 1
    assert [part[-1]["reason"] for part in lines[:2]] == ["moved", "moved"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_is_judged_if_no_other_process_has_continued_it(place: str, elsewhere: bool) -> None:
    judged = Judged(verdict(3))
    judging = Judging(judged.model, [RubricJudge(COMPETENCIES["backtracking_exploration"])])
    agent = waiting_agent(InMemorySaver(), rounds=3)
    with testing.capture(run_store=place, judging=judging) as seen:
        reports = Reports(seen)

        def request(inputs: str) -> None:
            handler = TidegaugeCallbackHandler()
            config: Any = {"callbacks": [handler], "configurable": {"thread_id": "one"}}
            agent.invoke(INPUTS[inputs], config)
            until = time.monotonic() + PATIENCE
            while waiting(seen) and time.monotonic() < until:
                time.sleep(0.01)

        request("task")
        other = Pipeline(Settings(run_store=place, serve_metrics=False))
        if elsewhere:
            set_recorder(other.recorder)
        request("resume")
        other.shutdown()
        set_recorder(seen.pipeline.recorder)
        request("resume")
        request("resume")
        assert judging.wait(PATIENCE)
    assert [report.steps for report in reports] == [3]
    assert len(judged) == (not elsewhere)


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    for file in (tmp_path / "missing" / "runs.sqlite", tmp_path):
        with pytest.raises(ConfigurationError, match=r"^run_store cannot be .*; use "):
            tidegauge.configure(run_store=file, serve_metrics=False)
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to be read as the header of one")
    text.chmod(0o600)
    with pytest.raises(ConfigurationError, match="file is not a database"):
        tidegauge.configure(run_store=str(text), serve_metrics=False)


@pytest.mark.parametrize("url", ["postgresql://[", "postgresql://host/name?colour=red"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^run_store is no URL of a database; use ") as no:
        tidegauge.configure(run_store=url, serve_metrics=False)
    assert url not in str(no.value)


def test_without_psycopg_it_says_what_to_install() -> None:
    code = "import tidegauge; tidegauge.configure(run_store='postgresql://host/name')"
    assert import_error("psycopg", code) == (
        "MissingExtraError psycopg is not installed: pip install '.[postgres]' in a clone"
    )


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_database_that_is_down_stops_no_agent(tmp_path: Path) -> None:
    url = f"postgresql://nobody@{str(tmp_path).replace('/', '%2F')}/name"
    agent = waiting_agent(InMemorySaver(), rounds=1)
    with testing.capture(run_store=url) as seen:
        reports = Reports(seen)
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        agent.invoke(INPUTS["task"], config)
        agent.invoke(INPUTS["resume"], config)
    assert [report.steps for report in reports] == [1]


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_saves_and_resumes_what_it_runs(place: str) -> None:
    agent = waiting_agent(InMemorySaver(), rounds=1)
    with testing.capture(run_store=place) as seen:
        config: Any = {
            "callbacks": [TidegaugeCallbackHandler()],
            "configurable": {"thread_id": "one"},
        }
        agent.invoke(INPUTS["task"], config)
        until = time.monotonic() + PATIENCE
        while waiting(seen) and time.monotonic() < until:
            time.sleep(0.01)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                reports = Reports(seen)
                agent.invoke(INPUTS["resume"], config)
                agent.invoke(INPUTS["task"], {**config, "configurable": {"thread_id": "two"}})
                seen.pipeline.shutdown()
                code = 0 if [report.steps for report in reports] == [1] else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with contextlib.closing(open_run_store(place)) as opened:
        assert len(opened.take_expired(1e13)) == 1, "of the child's thread"


@pytest.mark.system
def test_processes_that_begin_at_once_make_one_table(server: Postgres) -> None:
    url = server.create()
    threads = [
        threading.Thread(target=PostgresRunStore(url).save, args=(f"{n}", "place", b"s", NEVER))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PostgresRunStore(url).take_expired(1e13) == [b"s"] * 8


def test_an_interrupted_run_leaves_a_thread_that_saves(store: RunStore) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with testing.capture() as seen:
        for moment in moments(raising=True):
            sink = EngineSink(seen.pipeline.engine, Policy())
            stored = stored_runs.StoredRuns(store, sink, WaitingRuns(), idle_seconds=9.0)
            run = SimpleNamespace(checkpoint="one", key="one")  # resumed: nothing is saved
            with contextlib.suppress(KeyboardInterrupt):
                moment.during(partial(stored.save, run, dict), interrupt)
            stored.save(run, dict)
            assert stored.flush(time.monotonic() + PATIENCE)
