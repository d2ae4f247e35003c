"""One run in trouble among many: every view shows it, and all agree on what trouble is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

import tidegauge
from tidegauge import sampling, testing
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.exporters.page.runs import main_trouble_of
from tidegauge.exporters.reading import MAX_RUNS, Reader
from tidegauge.pipeline import engine_sink
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.failed_rounds import RUN_FAILED_ROUNDS
from tidegauge.streaming_metrics.loops import LOOPS, RUN_LOOP_REPEATS
from tidegauge.streaming_metrics.run_counts import RUN_STEPS
from tidegauge.streaming_metrics.stale_score import RUN_STALE_SCORE
from tidegauge.streaming_metrics.trouble import TROUBLES, Trouble

Act = Callable[[str, object, str, bool], None]


def looping(act: Act) -> None:
    for _ in range(4):
        act("look", "hall", "nothing", False)


def failing(act: Act) -> None:
    for number in range(4):
        act("open", number, f"{number} does not fit", True)


def stuck(act: Act) -> None:
    for number in range(4):
        act("open", number, "denied", True)


def stale(act: Act) -> None:
    """It revisits what it knows, and repeats no sequence of steps."""
    for page in (1, 2, 3, 1, 3, 2, 1, 2, 3, 2, 1, 3, 1, 2, 3, 1, 3, 2, 3, 1):
        act("read", page, f"page {page}", False)


KINDS: dict[Trouble, Callable[[Act], None]] = {
    "loop": looping,
    "result_streak": stuck,
    "failed_rounds": failing,
    "stale": stale,
}
SHOWN = {"loop": RUN_LOOP_REPEATS, "failed_rounds": RUN_FAILED_ROUNDS, "stale": RUN_STALE_SCORE}


def healthy(act: Act) -> None:
    for number in range(40):  # longer than any run in trouble
        act("read", number, f"page {number}", False)


def run_in(engine: Engine, name: str, work: Callable[[Act], None], agent: str = "a") -> None:
    engine.run_started(RunStarted(run=name, agent=agent))

    def act(action: str, arguments: object, result: str, failed: bool) -> None:
        engine.step_issued(Step(name, (Call(action, arguments),)))
        engine.step_observed(Outcome(name, (CallResult(result, failed),)))

    work(act)


def shown(engine: Engine, metric: Any = RUN_STEPS) -> dict[str, Any]:
    """The runs with a series of their own, and its value."""
    rows = {family.metric: family.rows for family in Reader(engine).families()}
    return {labels[2]: value for labels, value in rows.get(metric, [])}


@pytest.mark.parametrize("kind", TROUBLES)
@pytest.mark.parametrize("others", [MAX_RUNS + 10, 500])
def test_one_run_in_trouble_among_healthy_ones_has_its_series(kind: Trouble, others: int) -> None:
    engine = Engine()
    run_in(engine, "aaa", KINDS[kind])  # the oldest, the shortest and the first of its name
    for number in range(others):
        run_in(engine, f"b{number}", healthy)
    assert "aaa" in shown(engine)
    assert len(shown(engine)) == MAX_RUNS
    if kind in SHOWN:
        assert shown(engine, SHOWN[kind])["aaa"] == max(shown(engine, SHOWN[kind]).values()) > 0


@pytest.mark.parametrize("kind", TROUBLES)
@pytest.mark.parametrize("most", TROUBLES)
def test_one_run_in_trouble_among_others_in_another_has_its_series(
    kind: Trouble, most: Trouble
) -> None:
    def worse(act: Act) -> None:
        KINDS[most](act)
        KINDS[most](act)

    engine = Engine()
    run_in(engine, "aaa", KINDS[kind])
    run_in(engine, "bbb", worse, "other")
    measured = engine.get("bbb")
    assert measured is not None
    # A run in the same trouble gives way to a worse one of its own group alone.
    agent = "other" if kind in measured.report().troubles else "a"
    for number in range(3 * MAX_RUNS):
        run_in(engine, f"b{number}", worse, agent)
    assert "aaa" in shown(engine)
    assert len(shown(engine)) == MAX_RUNS


def test_what_is_left_goes_to_the_longest_runs() -> None:
    engine = Engine()
    for steps in range(50):

        def work(act: Act, steps: int = steps) -> None:
            for number in range(steps):
                act("read", number, f"page {number}", False)

        run_in(engine, f"b{steps}", work)
    assert sorted(shown(engine).values()) == list(range(30, 50))


@pytest.mark.parametrize("kind", TROUBLES)
def test_page_and_span_name_the_same_trouble(kind: Trouble) -> None:
    with testing.capture() as seen:
        with tidegauge.run(run_id="r") as run:
            KINDS[kind](lambda *step: act_in(run, *step))
            measured = seen.pipeline.engine.get("r")
            assert measured is not None
            assert main_trouble_of(measured) == kind
            assert measured.report().troubles[0] == kind
        attributes = seen.spans[-1].attributes or {}
    past = attributes["tidegauge.troubles"]
    assert isinstance(past, tuple)
    assert kind in past


def act_in(run: tidegauge.Run, action: str, arguments: object, result: str, failed: bool) -> None:
    run.act(action, arguments)
    run.observe(result, error=failed)


def test_every_list_of_troubles_has_them_all() -> None:
    assert (*LOOPS.values, "stale") == TROUBLES == get_args(Trouble)
    assert (*engine_sink._ENDS, *TROUBLES, "cost") == sampling._REASONS
    assert all(trouble in str(engine_sink.RunTroubles.__doc__) for trouble in sampling._REASONS)
