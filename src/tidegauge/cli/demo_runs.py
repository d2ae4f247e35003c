"""What the stop saved in the demo, which stop would have been wrong, and all of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegauge.cli.live_runs import LiveRun
from tidegauge.policies import Rule, guard_rules
from tidegauge.streaming_metrics import Snapshot, group_entry, run_entry


@dataclass(frozen=True, slots=True)
class Saving:
    """What stopping a run saved, compared with its twin that was only observed.

    Args:
        stopped: the run that was stopped when its loop began.
        observed: the same agent on the same task, not stopped.
    """

    stopped: LiveRun
    observed: LiveRun

    @property
    def steps(self) -> int:
        """Actions that only the observed run executed."""
        return self.observed.report.steps - (self.stopped.report.intervention_step or 0)

    @property
    def tokens(self) -> float:
        """Tokens that the observed run spent more on choosing actions."""
        return (self.observed.report.tokens or 0) - (self.stopped.report.tokens or 0)

    @property
    def seconds(self) -> float:
        """Seconds that the observed run took longer."""
        return self.observed.seconds - self.stopped.seconds


class FalseAlarm(NamedTuple):
    """A run that the default rules would have stopped, although it solved its task.

    Attributes:
        run: the run.
        rules: those for its agent with which it is not stopped.
    """

    run: LiveRun
    rules: tuple[Rule, ...]


def false_alarms(runs: Sequence[LiveRun]) -> Iterator[FalseAlarm]:
    """The false alarms among the ended runs."""
    for run in runs:
        if run.report.success and run.report.intervention == "would_stop":
            highest = ((rule, _highest(run, rule)) for rule in guard_rules("stuck"))
            rules = [
                Rule(rule.signal, int(value) + 1, agent=run.agent)
                for rule, value in highest
                if value >= rule.bound
            ]
            yield FalseAlarm(run, tuple(rules))


def _highest(run: LiveRun, rule: Rule) -> float:
    """The highest value of a rule's signal in a run."""
    if rule.signal == "loop_evidence":
        return float(run.report.loop_evidence_max)
    return getattr(run.report, f"{rule.signal}_max") or 0


def demo_document(
    snapshot: Snapshot, runs: Sequence[LiveRun], saving: Saving | None, *, seed: int
) -> dict[str, Any]:
    """All numbers as plain data; runs and groups as in ``tidegauge replay --json``."""
    steps, loop_steps = total_steps(snapshot)
    return {
        "seed": seed,
        "runs": [
            {
                **run_entry(run.report),
                "task": run.task,
                "state": run.status,
                "tokens": run.report.tokens,
                "seconds": run.seconds,
            }
            for run in runs
        ],
        "groups": [group_entry(group) for group in snapshot.groups],
        "totals": {
            "steps": steps,
            "loop_steps": loop_steps,
            "loop_ratio": loop_steps / steps if steps else None,
        },
        "saved": None
        if saving is None
        else {"steps": saving.steps, "tokens": saving.tokens, "seconds": saving.seconds},
    }


def total_steps(snapshot: Snapshot) -> tuple[int, int]:
    """Steps of all runs, and the number of loop steps among them."""
    totals = [group.totals for group in snapshot.groups]
    return (
        sum(total.steps for total in totals),
        sum(sum(total.loop_steps.values()) for total in totals),
    )
