"""What the stop saved in the demo, and all of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.cli.live_runs import LiveRun
from tidegauge.streaming_metrics import Snapshot, group_entry, run_entry

__all__ = ["Saving", "demo_document", "total_steps"]


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
