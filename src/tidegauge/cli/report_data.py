"""Recorded runs with everything that the report shows: lines, steps, interventions."""

from __future__ import annotations

from typing import Any, Literal

import orjson

from tidegauge.cli.replay_output import RecordedRuns, StepLines
from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep
from tidegauge.events import ABSENT, Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.policies import Policy
from tidegauge.values import MAX_TEXT, canonical_start

_MAX_LABEL = 80


class _RunData:
    """The data of one run."""

    __slots__ = ("lines", "measured", "place", "started", "state", "steps")

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.lines: list[bytes] = []
        self.steps: list[ReportedStep] = []
        self.measured: list[dict[str, Any]] = []
        self.place: object = started.place
        self.state: object = ABSENT if started.task is None else started.task


class ReportData:
    """A sink in front of :class:`RecordedRuns` that keeps the lines and steps of every run.

    Memory: the recording, and a few hundred bytes a step.

    Args:
        policy: decides what follows each step.
        loop_code: how loops are read, see :class:`RecordedRuns`.
        exact: whether texts are compared exactly, known noise included.
        detect_polls: whether calls that wait are taken for polls, as of the engine.

    Attributes:
        runs: the runs' reports and groups.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        loop_code: Literal["text", "gui"] = "text",
        exact: bool = False,
        detect_polls: bool | None = None,
    ) -> None:
        self.runs = RecordedRuns(
            policy,
            loop_code=loop_code,
            normaliser=None if exact else "volatile",
            detect_polls=detect_polls,
        )
        self._sink = StepLines(self.runs, self.runs.engine, self._measured)
        self._all: list[_RunData] = []
        self._last: dict[str, _RunData] = {}

    def run_started(self, event: RunStarted) -> None:
        self._sink.run_started(event)
        self._last[event.run] = data = _RunData(event)
        self._all.append(data)

    def step_issued(self, event: Step) -> Decision:
        run = self._last[event.run]
        decision = self._sink.step_issued(event)
        state = run.state if event.state is ABSENT else event.state
        here = run.place if run.place is not None else state
        digest = decision.signals.state_digest.hex() if decision.signals is not None else ""
        place = digest if run.place is None else f"place {run.place!r}"
        run.steps.append(
            ReportedStep(
                name="+".join(call.action for call in event.calls),
                arguments=_text([call.arguments for call in event.calls]),
                place=place,
                label=_label(here),
                line=len(run.lines),
                outcome_line=len(run.lines),
            )
        )
        self._keep_intervention(run, decision)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        run = self._last[event.run]
        decision = self._sink.step_observed(event)
        index = len(run.steps) - 1 if event.step is None else event.step
        step = run.steps[index]
        step.outcome_line = len(run.lines)
        errors = [result.error for result in event.results]
        step.failed = None if None in errors or not errors else all(errors)
        if event.blocked:
            step.interventions.append(("block", "as recorded"))
        if event.place is not None:
            run.place = event.place
        outcomes = [result.outcome for result in event.results]
        run.state = outcomes[0] if len(outcomes) == 1 else (outcomes or ABSENT)
        self._keep_intervention(run, decision)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        return self._sink.run_ended(event)

    def keep_line(self, run: str, line: bytes) -> None:
        """Keep a line of a run, also after the run was stopped."""
        data = self._last.get(run)
        if data is not None:
            data.lines.append(line)

    def reported(self) -> list[ReportedRun]:
        """Every run, in the order of their first lines."""
        self._sink.close()
        reports = self.runs.reports()
        for run, report in zip(self._all, reports, strict=True):
            for step, measured in zip(run.steps, run.measured, strict=True):
                step.measured = measured
            if report.intervention == "would_stop" and report.intervention_step is not None:
                run.steps[report.intervention_step].interventions.append(
                    ("would_stop", report.intervention_reason or "")
                )
        return [
            ReportedRun(report, run.started.task or "", run.steps, run.lines)
            for run, report in zip(self._all, reports, strict=True)
        ]

    def _measured(self, line: dict[str, Any]) -> None:
        self._last[line["run"]].measured.append(line)

    @staticmethod
    def _keep_intervention(run: _RunData, decision: Decision) -> None:
        if decision.action != "go_on":
            run.steps[-1].interventions.append((decision.action, decision.reason or ""))


def _text(arguments: list[object]) -> str:
    parts = [value if isinstance(value, str) else _json(value) for value in arguments]
    return "\n".join(part for part in parts if part not in ("", "null"))


def _label(value: object) -> str:
    """A place in a few words; for text, its beginning."""
    if value is ABSENT or value is None:
        return ""
    text = value if isinstance(value, str) else _json(value)
    words = " ".join(text[: 4 * _MAX_LABEL].split())
    return words if len(words) <= _MAX_LABEL else words[: _MAX_LABEL - 1] + "…"


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # nested deeper than orjson writes
        return canonical_start(value, MAX_TEXT).decode("utf-8", "replace")
