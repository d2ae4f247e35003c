"""What the live page receives, and how its files are served."""

from __future__ import annotations

import contextlib
import email.message
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import tidegauge
from tidegauge.events import (
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    ToolDeclaration,
)
from tidegauge.exporters.page import Asked, LiveReading, Page, app
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine, EventLog
from tidegauge.testing import capture


class Stepped:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """An engine, and what is read of it."""

    def __init__(self, **settings: Any) -> None:
        self.event_log, self.clock = EventLog(), Stepped()
        self.engine = Engine(event_log=self.event_log, **settings)
        self.live = LiveReading(
            self.engine,
            self.event_log,
            digest=lambda digest: "~" + digest.hex(),
            clock=self.clock,
            cpu_clock=self.clock,
        )

    def steps(self, run: str, *what: object, error: bool | None = None, **fields: Any) -> None:
        for one in what:
            self.engine.step_issued(Step(run, (Call("look", one),), **fields))
            self.engine.step_observed(Outcome(run, (CallResult(one, error),)))

    def start(self, run: str, **fields: Any) -> None:
        self.engine.run_started(RunStarted(run=run, agent=f"agent of {run}", **fields))

    def read(self, **asked: Any) -> dict[str, Any]:
        self.clock.now += 10.0
        return self.live.read(Asked(**asked))


def test_nothing_measured_is_none() -> None:
    page = Watched().read()
    assert page["fleet"] == {
        "running": 0,
        "looping": 0,
        "stuck": 0,
        "ended": 0,
        "judged": 0,
        "success_rate": None,
        "steps": 0,
        "loop_ratio": None,
        "lost_steps": None,
        "lost_tokens": None,
        "dollars": None,
        "lost_dollars": None,
        "all_priced": True,
        "interventions": None,
        "agents": [],
        "groups": [],
    }
    assert (page["runs"]["rows"], page["chosen"], page["events"]) == ([], None, [])


def test_the_numbers_are_those_of_the_metrics() -> None:
    watched = Watched()
    for run in ("loops", "ended"):
        watched.start(run)
        watched.steps(run, "x", *"ababab", tokens=5)
    watched.engine.run_ended(RunEnded(run="ended", success=True))
    watched.start("failed")
    watched.engine.run_ended(RunEnded(run="failed", success=False))
    watched.engine.intervened("loops", "nudge", "loop_repeats", 3)
    snapshot = watched.engine.snapshot()
    totals = [group.totals for group in snapshot.groups]
    steps = sum(total.steps for total in totals)
    looped = sum(sum(total.loop_steps.values()) for total in totals)
    assert watched.read()["fleet"] == {
        "running": 1,
        "looping": sum(run.looping for run in snapshot.active),
        "stuck": 0,
        "ended": 2,
        "judged": 2,
        "success_rate": 0.5,
        "steps": steps,
        "loop_ratio": looped / steps,
        "lost_steps": looped,
        "lost_tokens": sum(total.loop_tokens for total in totals),
        "dollars": None,
        "lost_dollars": None,
        "all_priced": False,
        "interventions": {"nudge": 1},
        "agents": ["agent of loops"],
        "groups": [],
    }
    assert looped > 0


def test_troubled_runs_come_first_and_the_others_keep_their_places() -> None:
    watched = Watched()
    for run in ("calm", "fails", "loops first", "calm too", "loops last"):
        watched.start(run)
    watched.steps("calm too", 1)
    watched.steps("calm", 2)
    watched.steps("loops first", *"xababab")
    watched.steps("fails", 1, 2, 3, error=True)
    watched.steps("loops last", *"xababab")
    page = watched.read()
    order = [(row["run"], row["trouble"]) for row in page["runs"]["rows"]]
    assert order == [
        ("loops last", "looping"),
        ("loops first", "looping"),
        ("fails", "stuck"),
        ("calm", "fine"),
        ("calm too", "fine"),
    ]
    assert [row["run"] for row in page["looping"]] == ["loops last", "loops first"]
    assert (page["fleet"]["looping"], page["fleet"]["stuck"]) == (2, 1)


def test_a_declared_poller_that_waits_is_no_trouble() -> None:
    watched = Watched(declarations={"look": ToolDeclaration(poll=20)})
    watched.start("waits")
    watched.steps("waits", *["not yet"] * 9)
    page = watched.read()
    row = page["runs"]["rows"][0]
    assert (row["trouble"], row["streak"], row["loop"]) == ("fine", None, None)
    assert (page["fleet"]["looping"], page["fleet"]["stuck"], page["looping"]) == (0, 0, [])
    watched.steps("waits", *["not yet"] * 20)  # its patience is used up
    assert watched.read()["fleet"]["looping"] == 1


def test_a_window_of_the_rows_and_a_search() -> None:
    watched = Watched()
    for number in range(300):
        watched.start(f"run {number}", model="Small" if number == 7 else None)
    page = watched.read(first=100, rows=3)["runs"]
    assert (page["total"], page["first"]) == (300, 100)
    assert [row["run"] for row in page["rows"]] == ["run 100", "run 101", "run 102"]
    assert len(watched.read(rows=10_000)["runs"]["rows"]) == 100
    assert watched.read(first=999)["runs"]["rows"] == []
    assert [row["run"] for row in watched.read(find="RUN 29")["runs"]["rows"]][:2] == [
        "run 29",
        "run 290",
    ]
    assert watched.read(find="small")["runs"]["total"] == 1


def test_the_chosen_run_has_its_steps_also_when_it_has_ended() -> None:
    watched = Watched()
    watched.start("r", t_max=10**30)
    watched.steps("r", *"ab", tokens=7)
    key = watched.read()["runs"]["rows"][0]["key"]
    live = watched.read(run=key)["chosen"]
    assert [step["tool"] for step in live["trail"]] == ["look", "look"]
    step = live["trail"][1]
    assert step["action"].startswith("~")
    assert (len(step["action"]), step["tokens"], step["arguments"]) == (8, 7, None)
    assert (live["finished"], live["outcome"], live["t_max"]) == (False, None, 2**53)
    watched.engine.run_ended(RunEnded(run="r", success=True))
    ended = watched.read(run=key)["chosen"]
    assert ended["trail"] == live["trail"]
    assert (ended["finished"], ended["outcome"]) == (True, "success")
    assert watched.read(run=key + 1)["chosen"] is None


def test_the_fleet_is_gone_through_no_more_than_a_twentieth_of_the_time() -> None:
    watched = Watched()
    held = watched.engine.held
    calls = []

    def slow() -> Any:
        calls.append(watched.clock.now)
        watched.clock.now += 1.0
        return held()

    watched.engine.held = slow  # type: ignore[method-assign]
    watched.live.read(Asked())
    page = watched.live.read(Asked())
    assert page["pause"] == 20.0
    watched.clock.now += 19.0
    watched.live.read(Asked())
    assert len(calls) == 1
    watched.clock.now += 2.0
    watched.live.read(Asked())
    assert len(calls) == 2


@contextlib.contextmanager
def served(**where: Any) -> Iterator[MetricsServer]:
    event_log = EventLog()
    engine = Engine(event_log=event_log)
    engine.run_started(RunStarted(run="r", agent="a"))
    page = Page(event_log, digest=bytes.hex)
    page.start(Reader(engine))
    server = MetricsServer(port=0, page=page, **where)
    server.start(Reader(engine))
    try:
        yield server
    finally:
        server.close()


def ask(
    url: str | None, path: str = "", method: str = "GET", **headers: str
) -> tuple[int, email.message.Message, str]:
    request = urllib.request.Request(f"{url}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def test_the_page_its_files_and_the_metrics_are_served() -> None:
    with served() as server:
        assert server.page_url == server.url.removesuffix("metrics")
        status, headers, text = ask(server.page_url)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert text.startswith("<!doctype html>")
        for name in (*app._OURS, *app._SHARED):
            assert ask(server.page_url, f"page/{name}")[0] == 200, name
        assert "tidegauge_runs_active" in ask(server.url)[2]
        assert ask(server.page_url, "page/nothing")[0] == 404
        assert ask(server.page_url, "page/../app.py")[0] == 404
        live = json.loads(ask(server.page_url, "page/live?rows=5")[2])
        assert live["fleet"]["running"] == 1


def test_every_file_that_the_page_refers_to_is_one_of_those_served() -> None:
    named = set()
    for name in (*app._OURS, *app._SHARED):
        found = app.file(name)
        assert found is not None
        named |= set(re.findall(r'(?:page/|from "\./)([\w.-]+\.\w+)', found[1].decode()))
    assert named == {*app._OURS, *app._SHARED} - {"index.html"}


@pytest.mark.parametrize("path", ["", "page/page.js", "page/live", "page/nothing"])
def test_the_headers_leave_nothing_open(path: str) -> None:
    with served() as server:
        headers = ask(server.page_url, path)[1]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_there_is_nothing_to_do_but_to_look(method: str) -> None:
    with served() as server:
        status, headers, _ = ask(server.page_url, "page/live", method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "query", ["rows=x", "first=-1", "run=1e3", "after=99999999999999999999", "find=" + "a" * 5_000]
)
def test_what_cannot_be_meant_is_refused(query: str) -> None:
    with served() as server:
        assert ask(server.page_url, f"page/live?{query}")[0] == 400


@pytest.mark.parametrize(
    ("listening", "given", "answered"),
    [
        ("127.0.0.1", "127.0.0.1:9464", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "[::1]:9464", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "localhost.evil.example:9464", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "[::1", False),
        ("localhost", "evil.example", False),
        ("0.0.0.0", "observer.example", True),
    ],
)
def test_a_name_that_is_made_to_point_here_is_not_answered(
    listening: str, given: str, answered: bool
) -> None:
    with served(host=listening) as server:
        url = str(server.page_url).replace("0.0.0.0", "127.0.0.1")
        for path in ("", "page/live", "page/page.js", "metrics"):
            assert ask(url, path, Host=given)[0] == (200 if answered else 421)


def test_a_fault_while_reading_is_ours(
    faults_are_swallowed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveReading, "read", lambda self, asked: 1 / 0)
    with served() as server:
        assert ask(server.page_url, "page/live")[0] == 500
        assert ask(server.url)[0] == 200
    assert internal_errors.counts()["page"] == 1


def test_it_is_served_unless_it_is_turned_off() -> None:
    with capture(serve_metrics=True, metrics_port=0) as seen:
        assert seen.pipeline.page_url == str(seen.pipeline.metrics_url).removesuffix("metrics")
        assert "<!doctype html>" in ask(seen.pipeline.page_url)[2]
    with capture(serve_metrics=True, metrics_port=0, page=False) as seen:
        assert seen.pipeline.page_url is None
        root = str(seen.pipeline.metrics_url).removesuffix("metrics")
        assert "tidegauge_internal_errors_total" in ask(root)[2]
        with tidegauge.run() as run:
            state = seen.pipeline.engine.get(run.id)
            assert state is not None
            assert state.history is None


def test_a_server_of_ones_own_may_serve_it() -> None:
    with capture() as seen:  # serves nothing
        assert (seen.pipeline.page, seen.pipeline.page_url) == (None, None)
    with capture(page=True) as seen, tidegauge.run(agent="a"):
        assert seen.pipeline.page_url is None
        server = MetricsServer(port=0, page=seen.pipeline.page)
        server.start(seen.pipeline.reader)
        try:
            document = json.loads(ask(server.page_url, "page/live")[2])
        finally:
            server.close()
        assert document["runs"]["rows"][0]["agent"] == "a"


def test_digests_on_the_page_are_those_of_the_spans() -> None:
    with capture(serve_metrics=True, metrics_port=0, digest_key=b"k") as seen:
        with tidegauge.run() as run:
            run.act("look", {"at": "s3cret"})
            run.observe("s3cret too")
            text = ask(seen.pipeline.page_url, "page/live?run=1")[2]
        shown = json.loads(text)["chosen"]["trail"][0]["action"]
        spans = [span for span in seen.spans if span.name == "execute_tool look"]
        assert spans[0].attributes is not None
        assert str(spans[0].attributes["tidegauge.action.digest"]).startswith(shown)
    assert "s3cret" not in text


def test_a_stuck_run_says_since_when() -> None:
    watched = Watched()
    for run in ("same", "fails", "wanders"):
        watched.start(run)
    watched.steps("same", "a")
    before = time.time()
    for number in range(5):
        watched.engine.step_issued(Step("same", (Call("look", number),)))
        watched.engine.step_observed(Outcome("same", (CallResult("nothing"),)))
        watched.steps("fails", f"thing {number}", error=True)
    for place in ("hall", "attic") * 8:
        watched.engine.step_issued(Step("wanders", (Call("go", {"to": place}),), state=str(place)))
        watched.engine.step_observed(Outcome("wanders", (CallResult(f"at {place}"),), place=place))
    watched.engine.step_issued(Step("wanders", (Call("leave", 1),)))
    answer = watched.read(sort="since")
    rows = {row["run"]: row for row in answer["runs"]["rows"]}
    assert {run: row["trouble"] for run, row in rows.items()} == dict.fromkeys(rows, "stuck")
    # the third equal result, and the third failure; the step after the last one that was not stale
    assert {run: row["since"]["step"] for run, row in rows.items()} == {
        "same": 3,
        "fails": 2,
        "wanders": 3,
    }
    assert all(before - 1 <= row["since"]["time"] <= time.time() for row in rows.values())
    times = [row["since"]["time"] for row in answer["runs"]["rows"]]
    assert times == sorted(times), "stuck for longest first"
    chosen = watched.read(run=rows["same"]["key"])["chosen"]
    assert chosen["since"] == rows["same"]["since"]
    watched.steps("same", "something new")
    now = next(r for r in watched.read()["runs"]["rows"] if r["run"] == "same")
    assert (now["trouble"], now["since"]) == ("fine", None)


def test_the_fleet_has_its_cost_in_dollars_where_models_have_a_price() -> None:
    watched = Watched()
    watched.live = LiveReading(
        watched.engine,
        watched.event_log,
        digest=bytes.hex,
        prices={"m": 1_000.0},
        clock=watched.clock,
        cpu_clock=watched.clock,
    )

    def loop(run: str, model: str | None) -> None:
        watched.start(run, model=model)
        watched.steps(run, "a", "a", "a", tokens=100)

    assert watched.read()["fleet"]["dollars"] is None
    loop("priced", "m")
    watched.engine.run_ended(RunEnded(run="priced"))
    loop("still", "m")
    fleet = watched.read()["fleet"]
    assert (fleet["dollars"], fleet["lost_dollars"]) == pytest.approx((0.6, 0.2))
    assert fleet["lost_tokens"] == 200
    assert fleet["all_priced"]
    loop("other", "unknown")
    loop("none", None)
    fleet = watched.read()["fleet"]
    assert (fleet["dollars"], fleet["lost_dollars"]) == pytest.approx((0.6, 0.2))
    assert not fleet["all_priced"]


def test_what_to_do_is_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGAUGE_RUNBOOKS", raising=False)

    def shown(**settings: Any) -> str | None:
        with capture(page=True, **settings) as seen, tidegauge.run(agent="a") as run:
            for _ in range(4):
                run.act("look")
                run.observe("nothing")
            assert seen.pipeline.page is not None
            live = seen.pipeline.page._live
            assert live is not None
            [row] = live.read(Asked())["runs"]["rows"]
            advice = live.read(Asked(run=row["key"]))["chosen"]["advice"]
            assert advice["runbook"] == "loop-onset"
            link: str | None = advice["address"]
            return link

    assert shown() is None, "no link to where nothing is served"
    monkeypatch.setenv("TIDEGAUGE_RUNBOOKS", "https://wiki.example/")
    assert shown() == "https://wiki.example/loop-onset.md"
    assert shown(runbooks="https://here.example/r") == "https://here.example/r/loop-onset.md"
