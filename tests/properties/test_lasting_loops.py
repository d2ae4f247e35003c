"""Lasting loops are counted exactly, at every prefix, and add up over processes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from properties import batch
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters.reading import read_families
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.loops import LASTING_LOOPS, LASTING_LOOPS_ACTIVE
from tidegauge.streaming_metrics.records import IssuedStep


def counted(engine: Engine) -> tuple[Any, Any]:
    """Counter and gauge."""
    rows = {family.metric: dict(family.rows) for family in read_families(engine)}
    return rows[LASTING_LOOPS]["a", ""], rows[LASTING_LOOPS_ACTIVE]["a", ""]


@given(st.lists(st.lists(st.sampled_from("aab"), max_size=25), max_size=3))
def test_they_equal_the_definition_in_one_process_and_in_several(runs: list[list[str]]) -> None:
    together, alone = Engine(clock=None), [Engine(clock=None) for _ in runs]
    lasting = 0
    for number, (actions, own) in enumerate(zip(runs, alone, strict=True)):
        steps: list[IssuedStep] = []
        for engine in (together, own):
            engine.run_started(RunStarted(run=str(number), agent="a"))
        found: dict[str, Any] = batch.loops(steps)
        for action in actions:
            steps.append(IssuedStep(len(steps), b"s", action=action.encode()))
            found = batch.loops(steps)
            expected = sum(repeats >= 2 for _, _, repeats, _ in found["loops"])
            for engine, before in ((together, lasting), (own, 0)):
                engine.step_issued(Step(run=str(number), calls=(Call(action),), state="s"))
                engine.step_observed(Outcome(run=str(number), results=(CallResult("r"),)))
                assert counted(engine) == (before + expected, found["repeats"] >= 2)
        lasting += sum(repeats >= 2 for _, _, repeats, _ in found["loops"])
        for engine in (together, own):
            engine.run_ended(RunEnded(run=str(number)))
    assert lasting == sum(counted(engine)[0] for engine in alone)
