"""What a fleet needs, computed from what was measured.

    python examples/fleet/capacity.py
    python examples/fleet/capacity.py --runs 5000 --steps-per-minute 12 --steps-per-run 200

Prints a Markdown table with a column per number of active runs. The measured constants are from
one machine: measure on yours, and set them here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tidegauge import catalog
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.exporters.reading import MAX_RUNS as MAX_RUN_SERIES
from tidegauge.exporters.reading import cumulative, read_families
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.buckets import Buckets

# What agents do. Each of these is an option of the command.
RUNS: Final = (1_000, 100_000, 10_000_000)  # active at a time
STEPS_PER_MINUTE: Final = 6.0  # of one run
STEPS_PER_RUN: Final = 50  # until it ends
GROUPS: Final = 10  # pairs of agent and task group
ACTIONS: Final = 5  # of each group, that loop at times
RETENTION_HOURS: Final = 24.0  # of the topic
REPLICAS: Final = 3  # of every topic
TOPICS: Final = 4  # with so many partitions each: of spans, changelog, summaries, decisions
LOAD: Final = 0.5  # the part of its capacity that a process should use

# What was measured: spans of the GenAI conventions, digests instead of contents.
SPANS_PER_STEP: Final = 2  # a model call and a tool call; a run's own span is one more
GATEWAY_SPANS: Final = 18_000  # a second and process: python -m benchmarks fleet
WORKER_SPANS: Final = 9_900  # a second and process: the same, from a topic that was filled
MESSAGE_BYTES: Final = 920  # of a step in the topic, not compressed: the same, 8 spans a message
STATE_BYTES: Final = 220  # of a step of an open run: runs of 50 steps, one every 10 seconds
CHANGELOG_BYTES: Final = 3_200  # of a step: the same runs, with messages, snapshots and deletions
SUMMARY_BYTES: Final = 1_500  # of a run, rounded up: the record in the topic of summaries
DECISION_BYTES: Final = 600  # of a run, rounded up: two records in the topic of decisions
RESTORED_STEPS: Final = 23_000  # a second: 3,500 from messages, by the ratio of instructions
MEMORY_BYTES: Final = 2_500  # of a step of an open run, up to its 1,000th: tracemalloc
RUN_BYTES: Final = 60_000  # of an open run without its steps, with what the live page keeps of it
PROCESS_BYTES: Final = 100e6  # of a worker with no run at all

# What the commands and Kafka set.
MAX_RUNS: Final = 10_000  # of a partition: --max-runs
LEAST_PROCESSES: Final = 2  # one may fail
PARTITIONS_PER_WORKER: Final = 4  # so that workers can be four times as many, or fewer
LEAST_PARTITIONS: Final = 8


class Load(NamedTuple):
    """What agents do.

    Args:
        runs: active at a time.
        steps_per_minute: of one of them.
        steps_per_run: when it ends.
        groups: pairs of agent and task group.
        actions: of each group, that loop at times.
    """

    runs: int
    steps_per_minute: float = STEPS_PER_MINUTE
    steps_per_run: int = STEPS_PER_RUN
    groups: int = GROUPS
    actions: int = ACTIONS

    @property
    def steps(self) -> float:
        """Steps a second, of all runs."""
        return self.runs * self.steps_per_minute / 60

    @property
    def ended_runs(self) -> float:
        """Runs that end in a second."""
        return self.steps / self.steps_per_run

    @property
    def spans(self) -> float:
        """Spans a second: of all steps, and of the runs that end."""
        return self.steps * SPANS_PER_STEP + self.ended_runs

    @property
    def open_steps(self) -> float:
        """Steps of the active runs: on average, each is halfway."""
        return self.runs * self.steps_per_run / 2


def gateways(load: Load) -> int:
    """How many gateways the load needs."""
    return max(LEAST_PROCESSES, math.ceil(load.spans / (GATEWAY_SPANS * LOAD)))


def workers(load: Load) -> int:
    """How many workers the load needs."""
    return max(LEAST_PROCESSES, math.ceil(load.spans / (WORKER_SPANS * LOAD)))


def partitions(load: Load) -> int:
    """A power of two: enough for more workers, and for the runs that one partition holds.

    >>> partitions(Load(10)), partitions(Load(100_000))
    (8, 32)
    """
    needed = max(
        LEAST_PARTITIONS,
        workers(load) * PARTITIONS_PER_WORKER,
        load.runs / (MAX_RUNS * LOAD),
    )
    return 1 << math.ceil(math.log2(needed))


def replicas(load: Load) -> int:
    """Replicas of partitions on all brokers together; dead letters have one partition."""
    return (partitions(load) * TOPICS + 1) * REPLICAS


def cores(load: Load) -> int:
    """CPU cores of gateways and workers: one for each, as they are measured at full speed."""
    return gateways(load) + workers(load)


def worker_memory(load: Load) -> float:
    """Bytes of one worker, when another one has failed and its runs are on the rest."""
    of_runs = load.runs * RUN_BYTES + load.open_steps * MEMORY_BYTES
    return PROCESS_BYTES + of_runs / (workers(load) - 1)


def state(load: Load) -> float:
    """Bytes on the disks of all workers together."""
    return load.open_steps * STATE_BYTES


def restore_seconds(load: Load) -> float:
    """Seconds until one worker has restored all runs of a failed one."""
    return load.open_steps / workers(load) / RESTORED_STEPS


def produced(load: Load) -> float:
    """Bytes a second that gateways and workers write, each once."""
    of_steps = load.steps * (MESSAGE_BYTES + CHANGELOG_BYTES)
    return of_steps + load.ended_runs * (SUMMARY_BYTES + DECISION_BYTES)


def topic_size(load: Load) -> float:
    """Bytes of the topic on all brokers together."""
    return load.steps * MESSAGE_BYTES * REPLICAS * RETENTION_HOURS * 3_600


def series_of_an_engine(groups: int, actions: int, active: int) -> int:
    """How many series one process exposes, counted on an engine that has measured this load.

    Args:
        groups: pairs of agent and task group, each with a run that has ended.
        actions: of each, that looped.
        active: active runs.
    """
    engine = Engine(t_max=30, repetition=False)  # as workers do
    for number in range(groups):
        _run(engine, f"ended-{number}", f"agent-{number}", actions)
        engine.run_ended(RunEnded(run=f"ended-{number}", success=True))
    for number in range(active):
        _run(engine, f"active-{number}", f"agent-{number % groups}", actions)
    return sum(
        len(cumulative(value)) + 2 if isinstance(value, Buckets) else 1  # its sum and its count
        for family in read_families(engine, place_label=str)
        for _, value in family.rows
    )


def _run(engine: Engine, run: str, agent: str, actions: int) -> None:
    """A run that reports places, and loops in each of its actions."""
    start = RunStarted(run=run, agent=agent, task_group="fleet", place="hall", exits=("cellar",))
    engine.run_started(start)
    for action in range(actions):
        for _ in range(3):
            engine.step_issued(Step(run, (Call(f"action {action}"),), state=f"state {action}"))
            result = CallResult("result" + "s" * action)  # without numbers: workers have digests
            engine.step_observed(Outcome(run, (result,), place="hall", progress=0.5, seconds=1.0))


def health_series(metrics: Iterable[catalog.MetricDefinition]) -> int:
    """Series of a process that belong to no agent."""
    own = (catalog.INTERNAL_ERRORS, catalog.EVICTED_RUNS, catalog.DROPPED_EVENTS, *metrics)
    return sum(max(1, len(metric.values)) for metric in own)


def series(load: Load) -> int:
    """Series of the whole fleet: after a while, every worker has seen every group."""
    held = min(load.runs // workers(load), MAX_RUN_SERIES)
    of_agents = series_of_an_engine(load.groups, load.actions, held)
    return workers(load) * (of_agents + health_series(catalog.WORKER)) + gateways(
        load
    ) * health_series(catalog.RECEIVER)


def size(amount: float) -> str:
    """Bytes, with two or three digits.

    >>> size(1_250), size(0.4e9)
    ('1.2 kB', '400 MB')
    """
    units = iter(("B", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while amount >= 999.5:
        amount, unit = amount / 1_000, next(units)
    return f"{amount:.2g} {unit}" if amount < 99.5 else f"{amount:.0f} {unit}"


def count(number: float) -> str:
    """A number for people.

    >>> count(20_400), count(0.21)
    ('20,400', '0.21')
    """
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


ROWS: Final[Sequence[tuple[str, Callable[[Load], str]]]] = (
    ("steps a second", lambda load: count(load.steps)),
    ("spans a second", lambda load: count(load.spans)),
    ("gateways", lambda load: count(gateways(load))),
    ("workers", lambda load: count(workers(load))),
    ("CPU cores of gateways and workers", lambda load: count(cores(load))),
    ("partitions of the topic", lambda load: count(partitions(load))),
    ("replicas of partitions, all topics", lambda load: count(replicas(load))),
    ("memory of a worker, one of them dead", lambda load: size(worker_memory(load))),
    ("state on the disks of all workers", lambda load: size(state(load))),
    ("until a dead worker's runs are restored", lambda load: f"{count(restore_seconds(load))} s"),
    ("written to changelogs a second", lambda load: size(load.steps * CHANGELOG_BYTES)),
    ("taken by all brokers a second", lambda load: size(produced(load) * REPLICAS)),
    ("the topic on all brokers", lambda load: size(topic_size(load))),
    ("series in Prometheus", lambda load: count(series(load))),
)


def table(loads: Iterable[Load]) -> str:
    """The Markdown table, a column for each."""
    loads = list(loads)
    lines = [
        ["runs at a time", *(count(load.runs) for load in loads)],
        ["---", *("---:" for _ in loads)],
        *([title, *(figure(load) for load in loads)] for title, figure in ROWS),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What a fleet needs.")
    parser.add_argument("--runs", type=int, nargs="+", default=RUNS, help="active at a time")
    parser.add_argument("--steps-per-minute", type=float, default=STEPS_PER_MINUTE)
    parser.add_argument("--steps-per-run", type=int, default=STEPS_PER_RUN)
    parser.add_argument("--groups", type=int, default=GROUPS, help="agents times task groups")
    parser.add_argument("--actions", type=int, default=ACTIONS, help="actions of a group that loop")
    options = vars(parser.parse_args())
    print(table(Load(runs, **options) for runs in options.pop("runs")))


if __name__ == "__main__":
    main()
