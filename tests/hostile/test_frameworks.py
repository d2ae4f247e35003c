"""The frameworks at hostile moments: LangChain, the Agents SDK, scrapes, a receiver."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile.agents_at_work import AGENTS, UsersTimeout, look, nothing, open_runs, steps_of
from hostile.harness import Forked, check, switching_threads
from hostile.values import HostileError, LyingError, cyclic_error, error_group
from tidegauge import testing
from tidegauge.safety.guard import internal_errors

ERRORS: dict[str, Callable[[], BaseException]] = {
    "hostile": HostileError,
    "lying": LyingError,
    "cyclic": cyclic_error,
    "group": error_group,
}


def _create_agent(run_tool: Callable[[], object], rounds: int, middleware: bool) -> Any:
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    from support.scripted_model import ScriptedChatModel, answers, chooses, turns
    from tidegauge.instrumentation.langchain import TidegaugeMiddleware

    @tool(response_format="content_and_artifact")
    def take(place: str) -> Any:
        """Take what is there."""
        return "taken", run_tool()

    def script(messages: Any) -> Any:
        turn = turns(messages)
        return chooses(("take", {"place": f"room {turn}"})) if turn < rounds else answers("done")

    added = [TidegaugeMiddleware()] if middleware else []
    return create_agent(ScriptedChatModel(script=script), [take], middleware=added)


def _invoke(agent: Any, how: str) -> Any:
    from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

    task = {"messages": [("user", "find it")]}
    config = {"callbacks": [TidegaugeCallbackHandler()]}
    if how == "sync":
        return agent.invoke(task, config)
    loop = asyncio.new_event_loop()  # asyncio.run() would write out the error of its task
    try:
        return loop.run_until_complete(agent.ainvoke(task, config))
    finally:
        loop.close()


def langchain_errors(error: str, how: str) -> None:
    """An error of a tool leaves ``invoke`` as it is."""
    raised = ERRORS[error]()

    def fail() -> None:
        raise raised

    with testing.capture() as seen:
        try:
            _invoke(_create_agent(fail, 3, True), how)
        except BaseException as found:
            same = found is raised
        else:
            raise AssertionError("the user's error was lost")
        assert same, "another error arrived"
        assert steps_of(seen) == 1
        assert open_runs(seen) == 0


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_langchains_tools(error: str, how: str) -> None:
    check(langchain_errors, error, how)


def _at_every_millisecond(deed: Callable[[], object]) -> None:
    """A millisecond after the last time has ended."""

    def handler(*_: Any) -> None:
        deed()
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)


def langchain_moments(moment: str, how: str) -> None:
    with testing.capture() as seen:
        agent = _create_agent(lambda: None, 5, True)
        _invoke(agent, how)
        before = steps_of(seen)
        assert before == 5
        if moment == "collector":
            gc.set_threshold(1)
        elif moment == "snapshots":
            _at_every_millisecond(seen.pipeline.engine.snapshot)
        elif moment == "tools":
            _at_every_millisecond(lambda: look("the handler"))
        for _ in range(10):
            _invoke(agent, how)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        gc.set_threshold(700)
        assert steps_of(seen) - before >= 50
        assert open_runs(seen) == 0
        assert not internal_errors.counts()


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("moment", ["collector", "snapshots", "tools"])
def test_an_agent_of_langchain(moment: str, how: str) -> None:
    check(langchain_moments, moment, how, deadline=30)


def langchain_timeouts() -> None:
    """What a handler raises leaves ``invoke``, and later invocations are as ever."""
    generator = random.Random(3)

    def handler(*_: Any) -> None:
        raise UsersTimeout

    with testing.capture() as seen:
        agent = _create_agent(lambda: None, 50, False)
        signal.signal(signal.SIGALRM, handler)
        arrived = 0
        for _ in range(30):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, generator.uniform(0.001, 0.02))
                    _invoke(agent, "sync")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except UsersTimeout:
                arrived += 1
        before = steps_of(seen)
        _invoke(_create_agent(lambda: None, 5, False), "sync")
        assert steps_of(seen) - before == 5
    assert arrived > 10


def test_timeouts_leave_langchain() -> None:
    check(langchain_timeouts, deadline=40)


def forks_in_a_tool() -> None:
    with testing.capture() as seen:

        def child() -> None:
            assert steps_of(seen) == 0
            _invoke(_create_agent(lambda: None, 3, True), "sync")
            assert steps_of(seen) == 3

        agent = _create_agent(lambda: Forked(child).join(10), 3, True)
        _invoke(agent, "sync")
        assert steps_of(seen) == 3
        assert open_runs(seen) == 0


def test_a_tool_of_langchain_forks() -> None:
    check(forks_in_a_tool, deadline=40)


def agents_sdk(moment: str) -> None:
    from agents import Agent, Runner, function_tool

    from support.agents_sdk import scripted, traced_by
    from tidegauge.instrumentation.openai_agents import TidegaugeRunHooks, TidegaugeTracingProcessor

    @function_tool
    def take(place: str) -> str:
        """Take what is there."""
        if moment == "fork":
            Forked(child).join(10)
        return "taken"

    def child() -> None:
        assert steps_of(seen) == 0
        assert AGENTS["sync"]("in the child", 2, nothing) == steps_of(seen)

    with testing.capture() as seen:
        processor = TidegaugeTracingProcessor()
        with traced_by(processor):
            if moment == "collector":
                gc.set_threshold(1)
            for _ in range(3):
                turns = [[("take", {"place": f"room {turn}"})] for turn in range(4)]
                agent = Agent(name="taker", tools=[take], model=scripted([*turns, "done"]))
                hooks = TidegaugeRunHooks(processor)
                result = asyncio.run(Runner.run(agent, "find it", hooks=hooks))
                assert result.final_output == "done"
            gc.set_threshold(700)
        assert steps_of(seen) == 12
        assert open_runs(seen) == 0


@pytest.mark.parametrize("moment", ["collector", "fork"])
def test_an_agent_of_the_agents_sdk(moment: str) -> None:
    check(agents_sdk, moment, deadline=30)


def scraped(attempt: str) -> None:
    """``/metrics`` and the live page are asked without a pause, by threads and from handlers."""
    with testing.capture(serve_metrics=True, metrics_port=0, page=True) as seen:
        urls = [seen.pipeline.metrics_url, seen.pipeline.page_url]
        done = threading.Event()
        answers: list[int] = []
        faults: list[BaseException] = []

        def ask() -> None:
            try:
                while not done.is_set():
                    for url in urls:
                        answers.append(urllib.request.urlopen(url, timeout=10).status)  # type: ignore[arg-type]
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        with switching_threads(1e-5):
            for thread in threads:
                thread.start()
            gc.set_threshold(5)
            made = sum(AGENTS["sync"]("find it", 20, nothing) for _ in range(3))
            gc.set_threshold(700)
            time.sleep(0.2)
            done.set()
            for thread in threads:
                thread.join(15)
        assert not any(thread.is_alive() for thread in threads), "a scrape hangs"
        assert not faults, faults
        assert set(answers) == {200}
        text = urllib.request.urlopen(urls[0], timeout=10).read().decode()  # type: ignore[arg-type]
        counted = sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("tidegauge_steps_total")
        )
        assert counted == made


def test_scrapes_of_a_busy_agent() -> None:
    check(scraped, "0", deadline=40)


def server(folder: str) -> None:
    """A real receiver takes hostile requests, and goes on with ordinary ones."""
    from support.serve import serving

    bodies = [
        b"",
        b"\xff" * 1_000,
        os.urandom(100_000),
        b"\x0a" + b"\xff" * 9 + b"\x01",  # a length of 2^63
        b"\x0a\x80\x80\x80\x08" * 1_000,
        b"{" * 100_000,
        b"[" * 1_000_000,
        b'{"resourceSpans": [' + b'{"a":' * 50_000,
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [null, 7, "x", []]}]}]}',
        b'{"resourceSpans": "\\ud800"}',
    ]
    with serving(Path(folder)) as running:
        for kind in ("application/x-protobuf", "application/json", "text/plain"):
            for body in bodies:
                status = running.post(body, kind=kind).status
                assert status in (200, 400, 413, 415), (kind, body[:20], status)
                for encoding in ("gzip", "deflate"):
                    status = running.post(body, kind=kind, Content_Encoding=encoding).status
                    assert status in (200, 400, 413, 415), (kind, encoding, body[:20], status)
        running.post(_bomb(), Content_Encoding="gzip")
        assert running.get("/healthz").status == 200
        assert running.process.poll() is None
        assert running.resident_bytes < 400 << 20


def _bomb() -> bytes:
    import gzip

    return gzip.compress(bytes(500 << 20), 9)


@pytest.mark.slow
def test_a_receiver_of_hostile_requests(tmp_path: Path) -> None:
    check(server, str(tmp_path), deadline=90)
