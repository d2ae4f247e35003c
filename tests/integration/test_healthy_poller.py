"""A declared poller within its allowance: neither looping nor stale nor stuck, anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import tidegauge
from tidegauge.cli.live_runs import LiveRuns, LoopOnset, run_numbers
from tidegauge.events import ToolDeclaration
from tidegauge.exporters.page import Asked, LiveReading
from tidegauge.policies import DEFAULT_RULES, Rule
from tidegauge.streaming_metrics.loop_cost import LOOP_TOKENS
from tidegauge.streaming_metrics.loops import LOOP_STEPS, LOOPS, RUN_LOOP_REPEATS, RUNS_LOOPING
from tidegauge.streaming_metrics.stale_score import RUNS_STALE
from tidegauge.testing import Capture, capture

ALLOWANCE = 20
RULES = (*DEFAULT_RULES, Rule("stale_score", 5), Rule("recurrence", 3), Rule("novelty", 0.25))


class Seen(NamedTuple):
    """What every surface says of the runs now."""

    looping: float  # /metrics and OTLP
    stale: float
    onsets: float
    repeats: float
    most_troubled: str
    page_looping: int  # the live page
    page_stuck: int
    trouble: str
    log: list[str]
    status: str  # the terminal
    red: int
    notices: int
    events: list[str]  # OpenTelemetry
    interventions: dict[str, int]  # the rules
    lost: tuple[float, ...]  # in loops: steps and tokens in /metrics, on the page, of the run
    marked: int  # steps that the page marks as looping


class Watched:
    """One poller with its surfaces, and a run that is in no trouble beside it."""

    def __init__(self, seen: Capture) -> None:
        self.seen = seen
        pipeline = seen.pipeline
        self.notices: list[LoopOnset] = []
        self.terminal = LiveRuns(pipeline.engine, on_loop=self.notices.append)
        pipeline.observe(self.terminal)
        assert pipeline.page is not None
        self.page = LiveReading(
            pipeline.engine, pipeline.page._event_log, digest=bytes.hex, clock=self.later
        )
        self.now = 0.0

    def later(self) -> float:
        self.now += 10.0
        return self.now

    def read(self) -> Seen:
        rows: dict[Any, dict[tuple[str, ...], Any]] = {
            family.metric: dict(family.rows) for family in self.seen.pipeline.reader.families()
        }
        page = self.page.read(Asked())
        poller = next(row for row in page["runs"]["rows"] if row["run"] == "poller")
        chosen = self.page.read(Asked(run=poller["key"]))["chosen"]
        report = self.terminal.runs[0].report
        lost = (page["fleet"]["lost_steps"], page["fleet"]["lost_tokens"])
        numbers = run_numbers(self.terminal.runs[0].report)
        repeats: dict[str, float] = {labels[2]: n for labels, n in rows[RUN_LOOP_REPEATS].items()}
        return Seen(
            looping=sum(rows[RUNS_LOOPING].values()),
            stale=sum(rows[RUNS_STALE].values()),
            onsets=sum(rows[LOOPS].values()),
            repeats=repeats["poller"],
            most_troubled=next(iter(repeats)),
            page_looping=page["fleet"]["looping"],
            page_stuck=page["fleet"]["stuck"],
            trouble=poller["trouble"],
            log=[event["what"] for event in page["events"] if event["run"] == "poller"],
            status=self.terminal.runs[0].status,
            red=sum("red" in str(getattr(one, "style", "")) for one in numbers),
            notices=len(self.notices),
            events=[event.event_name or "" for event in self.seen.events],
            interventions={"/".join(key): n for key, n in poller_totals(self.seen).items()},
            lost=(
                *(sum(rows[metric].values()) for metric in (LOOP_STEPS, LOOP_TOKENS)),
                *(amount or 0 for amount in lost),
                *(amount or 0 for amount in (report.loop_steps, report.lost_tokens)),
            ),
            marked=sum(step["looped"] for step in chosen["trail"]),
        )


def poller_totals(seen: Capture) -> dict[tuple[str, str], int]:
    run = seen.pipeline.engine.get("poller")
    assert run is not None
    found: dict[tuple[str, str], int] = run.totals.interventions
    return found


@pytest.fixture
def watched() -> Iterator[Watched]:
    tools = {"state_of": ToolDeclaration(poll=ALLOWANCE)}
    with capture(rules=RULES, tools=tools, page=True) as seen:
        yield Watched(seen)


def test_until_its_allowance_is_used_up(watched: Watched) -> None:
    with tidegauge.run(run_id="poller") as run, tidegauge.run(run_id="calm") as calm:
        for step in range(30):
            calm.act("look", {"at": step})
            calm.observe(f"thing {step}")
        # The first result is new: the allowance counts from the call after it.
        for _ in range(ALLOWANCE + 1):
            run.act("state_of", {"job": 7}, tokens=10)
            run.observe("pending")
            assert watched.read() == Seen(
                looping=0,
                stale=0,
                onsets=0,
                repeats=0,
                most_troubled="calm",
                page_looping=0,
                page_stuck=0,
                trouble="fine",
                log=[],
                status="running",
                red=0,
                notices=0,
                events=[],
                interventions={},
                lost=(0, 0) * 3,
                marked=0,
            )
        report = watched.seen.pipeline.engine.get("poller").report()
        assert (report.steps, report.skipped_steps) == (ALLOWANCE + 1,) * 2
        assert (report.loop_steps, report.stale_score) == (0, None)
        # From here on it is a call like any other: the third one repeats the second.
        for _ in range(3):
            run.act("state_of", {"job": 7}, tokens=10)
            run.observe("pending", tokens=5)
        now = watched.read()
        assert now == now._replace(
            looping=1,
            onsets=2,  # of the loop, and of the same result
            repeats=1,
            most_troubled="poller",
            page_looping=1,
            trouble="looping",
            status="looping",
            red=2,
            notices=1,
            lost=(1, 15) * 3,  # what it waited before was agreed
            marked=1,
        )
        assert sorted(now.log) == sorted(
            ["loop", "result_streak", *["would_stop"] * len(now.interventions)]
        )
        assert now.events == ["tidegauge.loop.onset"]
        for _ in range(20):
            run.act("state_of", {"job": 7})
            run.observe("pending")
        now = watched.read()
        assert (now.stale, now.onsets, now.notices, len(now.events)) == (1, 2, 1, 1)
        held = {"loop_evidence", "stuck_streak", "result_streak", "stale_score", "recurrence"}
        assert set(now.interventions) >= {f"would_stop/{signal}" for signal in held}


def test_what_it_waited_for_is_no_trouble(watched: Watched) -> None:
    with tidegauge.run(run_id="poller") as run:
        for _ in range(ALLOWANCE - 1):
            run.act("state_of", {"job": 7})
            run.observe("pending")
        run.act("state_of", {"job": 7})
        run.observe("done")
        for step in range(3):
            run.act("read", {"part": step})
            run.observe(f"part {step}")
        now = watched.read()
    assert (now.looping, now.stale, now.onsets, now.trouble) == (0, 0, 0, "fine")
    assert (now.status, now.events, now.interventions) == ("running", [], {})
