"""What the demo says at its end: what the stop saved, the totals, and where to look next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.cli.demo_watch import WatchedRun
from tidegauge.cli.document import group_entry
from tidegauge.exporters.jsonl import run_entry
from tidegauge.streaming_metrics import Snapshot

__all__ = ["Saving", "demo_document", "summary_lines"]


@dataclass(frozen=True, slots=True)
class Saving:
    """What stopping a run saved, against its twin that was only observed.

    Args:
        stopped: the run that was stopped when its loop began.
        observed: the same agent on the same task, not stopped.
    """

    stopped: WatchedRun
    observed: WatchedRun

    @property
    def steps(self) -> int:
        """Actions that were run in the one and not in the other."""
        return self.observed.report.steps - (self.stopped.report.intervention_step or 0)

    @property
    def tokens(self) -> float:
        """Tokens spent on choosing actions, in the one and not in the other."""
        return (self.observed.report.tokens or 0) - (self.stopped.report.tokens or 0)

    @property
    def seconds(self) -> float:
        """How much longer the other took."""
        return self.observed.seconds - self.stopped.seconds


def summary_lines(
    snapshot: Snapshot, saving: Saving | None, *, served_at: str | None
) -> Iterator[str]:
    """The lines under the tables, in rich markup.

    Args:
        snapshot: of the engine, at the end.
        saving: what the stop saved; ``None`` when one of the two runs did not get that far.
        served_at: where ``/metrics`` goes on being served; ``None``, it does not.
    """
    steps, loop_steps = _steps(snapshot)
    if steps:
        yield f"Loop ratio {loop_steps / steps:.4f}: {loop_steps} of {steps} steps were repeats."
    if saving is not None:
        stopped, observed = saving.stopped, saving.observed
        yield (
            f"{stopped.agent} was stopped at step {stopped.report.intervention_step}: "
            f"{stopped.stop}."
        )
        yield (
            f"{observed.agent}, only observed, took {observed.report.steps} steps: "
            f"[bold green]the stop saved {saving.steps} steps, {saving.tokens:,.0f} tokens, "
            f"{saving.seconds:.1f} s[/]."
        )
    yield ""
    yield "[bold]Look next[/]"
    if served_at is not None:
        yield f"  {served_at:<42}  these numbers, for Prometheus"
    else:
        yield "  tidegauge demo --serve                      keeps the page and /metrics up"
    yield "  tidegauge demo --record demo.jsonl          then: tidegauge replay demo.jsonl"
    yield "  tidegauge.configure(stop_on_loop=1)         the same stop, in your own agents"


def demo_document(
    snapshot: Snapshot, runs: Sequence[WatchedRun], saving: Saving | None, *, seed: int
) -> dict[str, Any]:
    """All of it as plain data; runs and groups as in ``tidegauge replay --json``."""
    steps, loop_steps = _steps(snapshot)
    return {
        "seed": seed,
        "runs": [
            {
                **run_entry(run.report),
                "task": run.task,
                "state": run.status,
                "tokens": run.report.tokens,
                "seconds": run.seconds,
                "loop_cost": {
                    "steps": run.report.loop_cost_steps,
                    "tokens": run.report.loop_cost_tokens,
                    "seconds": run.report.loop_cost_seconds,
                },
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


def _steps(snapshot: Snapshot) -> tuple[int, int]:
    """Steps of all runs, and how many of them looped."""
    totals = [group.totals for group in snapshot.groups]
    return (
        sum(total.steps for total in totals),
        sum(sum(total.loop_steps.values()) for total in totals),
    )
