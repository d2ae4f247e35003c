"""The output of the demo: live tables on a terminal, plain lines elsewhere, and a summary."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegauge.cli.demo_alerts import Alerts
from tidegauge.cli.live_runs import (
    RUN_NUMBERS,
    STATUS_STYLES,
    LiveRun,
    LiveRuns,
    run_numbers,
    section_table,
)
from tidegauge.cli.terminal import open_console, percent, print_line
from tidegauge.pipeline import Pipeline
from tidegauge.policies import Rule, guard_rules
from tidegauge.streaming_metrics import Snapshot, group_entry, run_entry
from tidegauge.streaming_metrics.auv import AUV, auv_bounds
from tidegauge.streaming_metrics.snapshot import GroupSnapshot


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
        """Further tokens that the observed run spent on choosing actions."""
        return (self.observed.report.tokens or 0) - (self.stopped.report.tokens or 0)

    @property
    def seconds(self) -> float:
        """Seconds that the observed run took longer."""
        return self.observed.seconds - self.stopped.seconds


class FalseAlarm(NamedTuple):
    """A run that the default rules would have stopped, although it solved its task.

    Attributes:
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


_NEWS_SECONDS: Final = 0.1
_REFRESHES_PER_SECOND: Final = 8
_MAX_NEWS: Final = 8
_TABLE_LINES: Final = 24
_PLAIN_WIDTH: Final = 120
_COSTS: Final = ("tokens", "seconds")
_ROOM_FOR_COSTS: Final = 98  # columns of a terminal
_BAR_WIDTH: Final = 20


class DemoView:
    """The output of the demo.

    Args:
        planned: the agent and the task of every run that will start.
        compared: the agent that is stopped, and its twin that is not.

    Attributes:
        alerts: shown as they arrive; ``None``, there are none.
    """

    alerts: Alerts | None = None

    def __init__(
        self,
        pipeline: Pipeline,
        planned: Sequence[tuple[str, str]],
        *,
        compared: tuple[str, str],
    ) -> None:
        self.live = LiveRuns(pipeline.engine)
        pipeline.observe(self.live)
        self._pipeline = pipeline
        self._planned = planned
        self._compared = compared
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._console = open_console()
        if not self._console.is_terminal:
            self._console = open_console(_PLAIN_WIDTH)

    def follow(self, working: Sequence[Future[None]]) -> None:
        """Show runs and alerts until all are done: a live table, or plain lines."""
        terminal = self._console.is_terminal
        shown = self._live_table() if terminal else contextlib.nullcontext()
        with shown:
            all_done = False
            while not all_done:
                all_done = not wait(working, timeout=_NEWS_SECONDS).not_done
                if not terminal:
                    self._print_news()
                self._print_alerts()

    def follow_alerts(self) -> None:
        """Show alerts, until Ctrl-C."""
        nothing = threading.Event()
        while not nothing.wait(_NEWS_SECONDS):
            self._print_alerts()

    def summary(self, *, served_at: str | None) -> None:
        """Print the final tables and a summary."""
        self._console.print(self._tables(), "")
        snapshot = self._pipeline.engine.snapshot()
        alarms = list(false_alarms(self.live.runs))
        for line in _summary_lines(snapshot, self._saving(), alarms, served_at=served_at):
            self._console.print(line, soft_wrap=not self._console.is_terminal)

    def document(self, seed: int) -> dict[str, Any]:
        """All numbers, for ``--json``."""
        snapshot = self._pipeline.engine.snapshot()
        return demo_document(snapshot, self.live.runs, self._saving(), seed=seed)

    def _saving(self) -> Saving | None:
        ended = {run.agent: run for run in self.live.runs if run.report.outcome != "unknown"}
        stopped, observed = (ended.get(agent) for agent in self._compared)
        if stopped is None or observed is None or stopped.stop is None:
            return None
        return Saving(stopped, observed)

    def _tables(self) -> Group:
        groups = self._pipeline.engine.snapshot().groups
        return Group(
            _runs_table(self._planned, self.live.runs, width=self._console.width),
            "",
            _agents_table(list(dict.fromkeys(agent for agent, _ in self._planned)), groups),
        )

    def _live_table(self) -> Live:
        return Live(
            get_renderable=self._frame,
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )

    def _frame(self) -> Group:
        self._news.extend(self.live.news())
        room = max(self._console.height - _TABLE_LINES, 0)
        news = list(self._news)[-room:] if room else []
        return Group(self._tables(), "", *[Text(line, style="dim", no_wrap=True) for line in news])

    def _print_news(self) -> None:
        for line in self.live.news():
            print_line(line)

    def _print_alerts(self) -> None:
        for line in self.alerts.news() if self.alerts is not None else ():
            self._console.print(line, soft_wrap=True)  # in a terminal, above the table


def _summary_lines(
    snapshot: Snapshot,
    saving: Saving | None,
    alarms: Sequence[FalseAlarm],
    *,
    served_at: str | None,
) -> Iterator[Text]:
    """The lines under the tables."""
    steps, loop_steps = total_steps(snapshot)
    if steps:
        ratio = percent(loop_steps / steps)
        yield Text(f"Loop ratio {ratio}: {loop_steps} of {steps} steps were repeats.")
    if saving is not None:
        stopped, observed = saving.stopped, saving.observed
        yield Text(
            f"{stopped.agent} was stopped at step {stopped.report.intervention_step}: "
            f"{stopped.stop}."
        )
        saved = f"{saving.steps} steps, {saving.tokens:,.0f} tokens, {saving.seconds:.1f} s"
        yield Text.assemble(
            f"{observed.agent}, only observed, took {observed.report.steps} steps: ",
            (f"the stop saved {saved}", "bold green"),
            ".",
        )
    for run, rules in alarms:
        signal = (run.report.intervention_reason or "").replace("_", " ")
        higher = ", ".join(
            f'Rule("{one.signal}", {one.threshold}, agent="{one.agent}")' for one in rules
        )
        yield Text.assemble(
            f"{run.agent} would have been stopped at step {run.report.intervention_step} by "
            f"{signal}: ",
            ("a false alarm", "bold yellow"),
            f", because it solved its task after {run.report.steps} steps. "
            "To avoid it, give this agent its own thresholds:",
        )
        yield Text(f"  tidegauge.configure(rules=[*DEFAULT_RULES, {higher}])")
        yield Text("or calibrate them on runs that succeeded: tidegauge calibrate")
    yield Text()
    yield Text("Next steps", style="bold")
    if served_at is not None:
        yield Text(f"  {served_at:<35}  these numbers, for Prometheus")
    else:
        yield Text("  tidegauge demo --serve               keep serving the page and /metrics")
    yield Text("  tidegauge demo --record demo.jsonl   then: tidegauge replay demo.jsonl")
    yield Text("  tidegauge.configure(stop_on_loop=1)  the same stop in your own agents")


def _runs_table(
    planned: Sequence[tuple[str, str]], runs: Iterable[LiveRun], *, width: int
) -> Table:
    """A row for each planned run, with its current measurements."""
    costs = width >= _ROOM_FOR_COSTS
    numbers = (*RUN_NUMBERS, *_COSTS) if costs else RUN_NUMBERS
    table = section_table("runs")
    table.add_column("agent", no_wrap=True)
    table.add_column("task", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    started = {(run.agent, run.task): run for run in runs}
    for agent, task in planned:
        run = started.get((agent, task))
        if run is None:
            table.add_row(agent, task, *[""] * len(numbers), "waiting", style="dim")
            continue
        report, status = run.report, run.status
        table.add_row(
            agent,
            task,
            *run_numbers(report),
            *(_spent(run) if costs else ()),
            Text(status, style=STATUS_STYLES.get(status, "")),
        )
    return table


def _agents_table(agents: Sequence[str], groups: Iterable[GroupSnapshot]) -> Table:
    """A row for each agent: its success so far, and the bounds that it can still reach."""
    table = section_table("agents")
    table.add_column("agent", no_wrap=True)
    for name in ("runs", "solved", "loop\nratio", "AUV\nso far", "will end\nwithin"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(Text("0%" + "100%".rjust(_BAR_WIDTH - 2), style="dim"), no_wrap=True)
    by_agent: Mapping[str, GroupSnapshot] = {group.key.agent: group for group in groups}
    for agent in agents:
        group = by_agent.get(agent)
        if group is None:
            table.add_row(agent, *[""] * 6, style="dim")
            continue
        finished, bounds, loop_steps = group.finished, auv_bounds(group), group.totals.loop_steps
        ratio = sum(loop_steps.values()) / group.totals.steps if group.totals.steps else 0.0
        table.add_row(
            agent,
            f"{finished.runs} of {group.runs_started}",
            str(finished.finished.get("success", 0)),
            Text(percent(ratio), style="red" if ratio else ""),
            "" if finished.of(AUV).value is None else percent(finished.of(AUV).value),
            "" if bounds is None else f"{bounds[0]:.0%} to {bounds[1]:.0%}",
            Text() if bounds is None else _bar(*bounds),
        )
    return table


def _spent(run: LiveRun) -> tuple[str, str]:
    tokens = run.report.tokens
    return "" if tokens is None else f"{tokens:,.0f}", f"{run.seconds:.1f}"


def _bar(lower: float, upper: float) -> Text:
    """A bar with the certain part, the part that is still open, and the lost part."""
    certain, possible = round(lower * _BAR_WIDTH), round(upper * _BAR_WIDTH)
    return Text.assemble(
        ("━" * certain, "green"),
        ("─" * (possible - certain), "cyan"),
        (" " * (_BAR_WIDTH - possible), ""),
    )
