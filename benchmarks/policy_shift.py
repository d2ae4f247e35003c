"""How often the alert on a policy's shift is false, and how soon it sees another agent.

``python -m benchmarks policy_shift FOLDER`` prints the tables of ``docs/stop-rules-measured.md``,
which ``tests/integration/test_recorded_shift.py`` checks. Scores are those of ``stagnation``;
thresholds have alpha 0.05.

False alarms: some successful runs of an agent are drawn, and compared with the others, from which
its threshold is learned. No run is on both sides, and nothing has changed, so each alarm is false.

Power: a threshold is learned on all successful runs of one agent, and observes runs of another,
drawn with replacement in random order, until it alarms or a thousand have finished.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tidegauge.policies import Guarantee, RunTrace, TraceSink
from tidegauge.policies.shift import LEAST_RUNS, SHIFTED, ShiftCheck, spread
from tidegauge.recordings.line_replay import Replay, read_lines

__all__ = [
    "AgentRuns",
    "Watched",
    "agents_of",
    "false_alarms",
    "false_alarms_table",
    "power_table",
    "watched",
]

ALPHA: Final = 0.05
DRAWS: Final = 2_000
STREAMS: Final = 20
MOST_RUNS: Final = 1_000
_SCORE: Final = "stagnation"
_TESTED: Final = LEAST_RUNS + 5
"""Successful runs that are drawn for a block: some of them are above the threshold."""

_LEAST_KNOWN: Final = 20
_LEAST_GOOD: Final = 20
_SOON: Final = (200, 500, 1_000)


class AgentRuns(NamedTuple):
    """The runs of one agent in one task group: whether each succeeded, and its score."""

    task_group: str
    agent: str
    runs: list[tuple[bool, float]]

    @property
    def good(self) -> list[float]:
        """The scores of successful runs."""
        return [score for success, score in self.runs if success]


class Watched(NamedTuple):
    """An agent under the threshold of another.

    Attributes:
        same_tasks: whether both have the same task group.
        above: share of its successful runs above the threshold.
        shift: finished runs until the alert on a shift, stream by stream; ``None``, never.
        false_stops: finished runs until more successful runs are above the threshold than alpha
            allows, as TidegaugeFalseStopsAboveBound sees it if all runs are of one day.
    """

    same_tasks: bool
    above: float
    shift: list[int | None]
    false_stops: list[int | None]


def agents_of(folder: Path) -> list[AgentRuns]:
    """The agents with enough successful runs, of all recordings of a folder."""
    traces: list[RunTrace] = []
    sink = TraceSink([_SCORE], on_trace=traces.append)
    for path in sorted(folder.glob("*.events.jsonl")):
        replay = Replay(sink)
        with path.open("rb") as stream:
            for line in read_lines(stream):
                replay.take(line, path.name)
    sink.close()
    found: dict[tuple[str, str], AgentRuns] = {}
    for trace in traces:
        if trace.success is not None:
            key = trace.task_group, trace.agent
            own = found.setdefault(key, AgentRuns(*key, []))
            own.runs.append((trace.success, trace.highest(_SCORE)))
    return [agent for agent in found.values() if len(agent.good) >= _LEAST_GOOD]


def false_alarms(agent: AgentRuns, draws: int = DRAWS) -> tuple[int, int]:
    """How many of so many blocks alarm, and how many there were; 0 of 0, too few runs."""
    good = np.array(agent.good)
    if len(good) < _TESTED + _LEAST_KNOWN:
        return 0, 0
    rng = np.random.default_rng(0)
    alarms = blocks = 0
    for _ in range(draws):
        drawn = rng.permutation(good)
        check = _check(drawn[_TESTED:].tolist())
        for score in drawn[:_TESTED].tolist():
            check.update(score)
        if check.p_value is not None:
            blocks += 1
            alarms += check.p_value < SHIFTED
    return alarms, blocks


def watched(learned_on: AgentRuns, other: AgentRuns, streams: int = STREAMS) -> Watched:
    """How soon the alerts see that runs are of another agent."""
    threshold = _threshold(learned_on.good)
    rng = np.random.default_rng(0)
    shift: list[int | None] = []
    false_stops: list[int | None] = []
    for _ in range(streams):
        drawn = [other.runs[index] for index in rng.integers(len(other.runs), size=MOST_RUNS)]
        shift.append(_until_shift(_check(learned_on.good), drawn))
        false_stops.append(_until_false_stops(threshold, drawn))
    above = sum(score > threshold for score in other.good) / len(other.good)
    return Watched(learned_on.task_group == other.task_group, above, shift, false_stops)


def _threshold(good: Sequence[float]) -> float:
    found = Guarantee(ALPHA).threshold([[score] for score in good])
    assert found is not None
    return found


def _check(good: Sequence[float]) -> ShiftCheck:
    threshold = _threshold(good)
    return ShiftCheck(spread(good, threshold), threshold)


def _until_shift(check: ShiftCheck, runs: Iterable[tuple[bool, float]]) -> int | None:
    for number, (success, score) in enumerate(runs, 1):
        if success:  # above the threshold, it is not compared, whether it was stopped or not
            check.update(score)
            if check.p_value is not None and check.p_value < SHIFTED:
                return number
    return None


def _until_false_stops(threshold: float, runs: Iterable[tuple[bool, float]]) -> int | None:
    good = above = 0
    for number, (success, score) in enumerate(runs, 1):
        good += success
        above += success and score > threshold
        excess = above / good - ALPHA if good else 0.0
        if good >= _LEAST_GOOD and excess > 2 * (ALPHA * (1 - ALPHA) / good) ** 0.5:
            return number
    return None


def false_alarms_table(agents: Iterable[AgentRuns]) -> str:
    """The share of blocks that alarm, agent by agent, as Markdown."""
    rows = ["| task group | agent | successful runs | false alarms |", "| --- | --- | --- | --- |"]
    for agent in agents:
        alarms, blocks = false_alarms(agent)
        if blocks:
            cells = agent.task_group, agent.agent, len(agent.good), f"{alarms / blocks:.1%}"
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows) + "\n"


def power_table(pairs: Sequence[Watched]) -> str:
    """How many streams alarm within so many finished runs, by how wrong the bound is."""
    soon = " / ".join(map(str, _SOON))
    rows = [
        "| other agents | successful runs above the threshold | pairs "
        f"| TidegaugePolicyShift within {soon} | TidegaugeFalseStopsAboveBound within {soon} |",
        "| --- | --- | --- | --- | --- |",
    ]
    kinds = ((0.0, 0.05, "at most 5%"), (0.05, 0.15, "5% to 15%"), (0.15, 1.0, "more than 15%"))
    for same in (True, False):
        for low, high, words in kinds:
            own = [
                pair
                for pair in pairs
                if pair.same_tasks == same and (low < pair.above <= high or low == pair.above == 0)
            ]
            if own:
                cells = " | ".join(
                    " / ".join(f"{_within(own, which, most):.0%}" for most in _SOON)
                    for which in ("shift", "false_stops")
                )
                tasks = "same tasks" if same else "other tasks"
                rows.append(f"| {tasks} | {words} | {len(own)} | {cells} |")
    return "\n".join(rows) + "\n"


def _within(pairs: Iterable[Watched], which: str, most: int) -> float:
    return statistics.mean(
        until is not None and until <= most for pair in pairs for until in getattr(pair, which)
    )


def main(arguments: list[str]) -> int:
    """Print both tables."""
    if len(arguments) != 1:
        print("usage: python -m benchmarks policy_shift FOLDER", file=sys.stderr)
        return 2
    agents = agents_of(Path(arguments[0]))
    print(false_alarms_table(agents))
    print(power_table([watched(*pair) for pair in permutations(agents, 2)]))
    return 0
