"""The promise by simulation: how many good runs cross their line, and how a broken one is seen."""

from __future__ import annotations

import math
import re
import urllib.request
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tidegauge
from support.traces import trace
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.policies import (
    Guarantee,
    PolicyFile,
    RunTrace,
    TraceSink,
    calibrate,
    write_policy,
)
from tidegauge.testing import capture

DRAWS = 1_000
CASES = [(19, 0.05), (20, 0.05), (39, 0.05), (100, 0.05), (20, 0.1), (9, 0.1), (99, 0.01), (7, 0.3)]


class Simulated:
    """Thresholds learned again and again from good runs whose scores are uniform from 0 to 1.

    A new run of that mix crosses a line with a chance of 1 - line. Over the draws that chance has
    a Beta distribution with n + 1 - k and k.
    """

    def __init__(self, runs: int, alpha: float) -> None:
        guarantee = Guarantee(alpha)
        rank = guarantee.rank(runs)
        assert rank is not None
        self.runs, self.rank = runs, rank
        self.rng = np.random.default_rng([runs, round(alpha * 1_000)])
        self.lines = np.array(
            [guarantee.threshold(self.rng.random((runs, 1)).tolist()) for _ in range(DRAWS)]
        )
        self.chance = (runs + 1 - rank) / (runs + 1)

    @property
    def variance(self) -> float:
        """Of the chance, over the draws."""
        return self.chance * (1 - self.chance) / (self.runs + 2)

    def below(self, chance: float) -> float:
        """In which share of the draws a new run's chance must be at most this."""
        n, least = self.runs, self.runs + 1 - self.rank
        share = Fraction(str(chance))
        return float(
            sum(math.comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(least, n + 1))
        )


@pytest.mark.parametrize(("runs", "alpha"), CASES)
class TestContinuousScores:
    def test_a_new_good_run_crosses_as_often_as_theory_says(self, runs: int, alpha: float) -> None:
        simulated = Simulated(runs, alpha)
        assert alpha - 1 / (runs + 1) < simulated.chance <= alpha + 1e-12
        assert simulated.chance == pytest.approx(Guarantee(alpha).share_above([[0.0]] * runs))
        exceeded = simulated.rng.random(DRAWS) > simulated.lines  # one new run for each line
        deviation = math.sqrt(simulated.chance * (1 - simulated.chance) / DRAWS)
        assert exceeded.mean() == pytest.approx(simulated.chance, abs=4 * deviation)

    def test_the_share_of_many_new_runs_has_its_mean_and_spread(
        self, runs: int, alpha: float
    ) -> None:
        simulated, many = Simulated(runs, alpha), 200
        new = simulated.rng.random((DRAWS, many))
        shares = (new > simulated.lines[:, None]).mean(axis=1)
        variance = simulated.variance * (1 - 1 / many)
        variance += simulated.chance * (1 - simulated.chance) / many
        assert shares.mean() == pytest.approx(simulated.chance, abs=4 * math.sqrt(variance / DRAWS))
        assert shares.std() == pytest.approx(math.sqrt(variance), rel=0.12)

    def test_the_chance_of_a_line_is_distributed_as_theory_says(
        self, runs: int, alpha: float
    ) -> None:
        simulated = Simulated(runs, alpha)
        chances = 1 - simulated.lines
        for least in (alpha / 2, alpha, 1.5 * alpha, 2 * alpha):
            expected = simulated.below(round(least, 6))
            deviation = math.sqrt(expected * (1 - expected) / DRAWS)
            assert (chances <= least).mean() == pytest.approx(
                expected, abs=max(4 * deviation, 1e-6)
            )

    def test_ties_only_ever_spare_runs(self, runs: int, alpha: float) -> None:
        rng = np.random.default_rng(runs)
        exceeded = 0
        for _ in range(DRAWS):
            *known, new = rng.geometric(0.3, runs + 1).tolist()  # few steps, and many alike
            line = Guarantee(alpha).threshold([[score] for score in known])
            exceeded += line is not None and new > line
        deviation = math.sqrt(alpha * (1 - alpha) / DRAWS)
        assert exceeded / DRAWS <= alpha + 3 * deviation

    def test_a_mix_that_has_drifted_breaks_it(self, runs: int, alpha: float) -> None:
        simulated = Simulated(runs, alpha)
        drifted = simulated.rng.random((DRAWS, 50)) + 0.25
        share = (drifted > simulated.lines[:, None]).mean()
        deviation = math.sqrt(simulated.variance / DRAWS)
        assert share > simulated.chance + 0.2
        assert share == pytest.approx(simulated.chance + 0.25, abs=4 * deviation + 0.01)


def test_lines_of_groups_hold_group_by_group() -> None:
    """Through `calibrate`: a group of long runs has no worse a promise than one of short ones."""
    rng = np.random.default_rng(5)
    exceeded = {"short": 0, "long": 0}
    for _ in range(300):
        runs = [
            trace(f"{group} {n}", True, {"steps": [(score, 1)]}, task_group=group)
            for group, scale in (("short", 1.0), ("long", 30.0))
            for n, score in enumerate(rng.exponential(scale, 20).tolist())
        ]
        news = {"short": rng.exponential(1.0), "long": rng.exponential(30.0)}
        for group in calibrate(runs[1:-1], score="steps", guarantee=Guarantee(0.05)):
            assert group.threshold is not None
            assert group.runs == 19
            exceeded[group.threshold.task_group] += (
                news[group.threshold.task_group] > group.threshold.threshold
            )
    deviation = math.sqrt(0.05 * 0.95 / 300)
    for count in exceeded.values():
        assert count / 300 == pytest.approx(0.05, abs=4 * deviation)


class Agent:
    """Asks on until it has found something; now and then it repeats itself."""

    def __init__(self, seed: int, *, drift: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._drift = drift

    def steps(self) -> Iterator[tuple[str, str]]:
        for step in range(int(self._rng.integers(3, 9)) + self._drift):
            again = self._rng.random() < 0.2
            yield (
                "what was asked before" if again else f"question {step} about {step + 1}",
                f"answer {int(self._rng.integers(4))}",
            )

    def traced(self, runs: int) -> list[RunTrace]:
        """So many good runs as traces, as a recording of them has."""
        traces: list[RunTrace] = []
        sink = TraceSink(["stagnation"], on_trace=traces.append)
        for run in (f"recorded {n}" for n in range(runs)):
            sink.run_started(RunStarted(run=run, agent="asker", task_group="mix"))
            for question, answer in self.steps():
                sink.step_issued(Step(run, (Call("ask", question),)))
                sink.step_observed(Outcome(run, (CallResult(answer, False),)))
            sink.run_ended(RunEnded(run=run, success=True))
        return traces

    def live(self, runs: int) -> None:
        """So many good runs of the configured process."""
        for _ in range(runs):
            with tidegauge.run(agent="asker", task_group="mix") as run:
                for question, answer in self.steps():
                    run.act("ask", question)
                    run.observe(answer, error=False)
                run.finish(success=True)


def scraped(url: str) -> dict[str, float]:
    """What /metrics says of the policy's one threshold."""
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    labels = r'agent="asker",task_group="mix",score="stagnation"'
    found = re.findall(
        rf'^tidegauge_policy_(\w+){{{labels}(?:,outcome="(\w+)")?}} (\S+)$', text, re.M
    )
    return {f"{name} {outcome}".strip(): float(value) for name, outcome, value in found}


def test_metrics_show_that_the_promise_holds_and_when_it_is_broken(tmp_path: Path) -> None:
    alpha, runs = 0.1, 150
    [group] = calibrate(
        Agent(1).traced(99),
        score="stagnation",
        guarantee=Guarantee(alpha),
        calibrated=1_795_338_000,
    )
    assert group.threshold is not None
    path = tmp_path / "policy.toml"
    path.write_text(
        write_policy(PolicyFile(thresholds=(group.threshold,), calibrated=1_795_338_000))
    )
    with capture(policy=path, serve_metrics=True, metrics_port=0) as seen:
        url = seen.pipeline.metrics_url
        assert url is not None
        page = scraped(url)
        assert page == {"alpha": alpha, "calibrated_timestamp_seconds": 1_795_338_000}
        Agent(2).live(runs)
        same = scraped(url)
        Agent(3, drift=3).live(runs)
        drifted = scraped(url)
    assert same["runs_total success"] == runs
    share = same["crossed_runs_total success"] / runs
    # the line's own chance varies, and so does the share that is seen of it
    deviation = math.sqrt(alpha * (1 - alpha) * (1 / 101 + 1 / runs))
    assert 0 < share < alpha + 3 * deviation
    assert drifted["runs_total success"] == 2 * runs
    exceeded = drifted["crossed_runs_total success"] - same["crossed_runs_total success"]
    assert exceeded / runs > alpha + 6 * deviation
