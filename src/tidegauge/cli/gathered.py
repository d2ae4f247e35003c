"""Recorded runs with everything that the report shows of them: lines, steps, interventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from tidegauge._canonical import MAX_TEXT
from tidegauge.cli.recorded import RecordedRuns
from tidegauge.cli.step_lines import StepLines
from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep
from tidegauge.events import ABSENT, Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.instrumentation.replay import Line, Replay
from tidegauge.policies import Policy
from tidegauge.streaming_metrics.fingerprint import canonical_start

__all__ = ["GatheredRuns", "LineTaker"]

_MAX_LABEL = 80


class _Gathered:
    """What is gathered of one run."""

    __slots__ = ("lines", "measured", "place", "started", "state", "steps")

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.lines: list[bytes] = []
        self.steps: list[ReportedStep] = []
        self.measured: list[dict[str, Any]] = []
        self.place: object = started.place
        self.state: object = ABSENT if started.task is None else started.task


class GatheredRuns:
    """A sink in front of :class:`RecordedRuns` that keeps what goes through it.

    Memory: the recording, and a few hundred bytes a step.

    Args:
        policy: decides.

    Attributes:
        runs: the runs' reports and groups.
        line: the line that is being taken.
    """

    def __init__(self, policy: Policy) -> None:
        self.runs = RecordedRuns(policy)
        self.line: bytes = b""
        self._sink = StepLines(self.runs, self.runs.engine, self._measured)
        self._all: list[_Gathered] = []
        self._last: dict[str, _Gathered] = {}

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._sink.run_started(event)
        self._last[event.run] = gathered = _Gathered(event)
        self._all.append(gathered)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
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
                label=_shown(here),
                line=len(run.lines),
                outcome_line=len(run.lines),
            )
        )
        self._heed(run, decision)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
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
        self._heed(run, decision)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        return self._sink.run_ended(event)

    def keep_line(self, run: str, line: bytes) -> None:
        """A line was taken, or is of a run that had been stopped: it is one of the run's lines."""
        gathered = self._last.get(run)
        if gathered is not None:
            gathered.lines.append(line)

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
    def _heed(run: _Gathered, decision: Decision) -> None:
        if decision.action != "go_on":
            run.steps[-1].interventions.append((decision.action, decision.reason or ""))


class LineTaker:
    """A replay that also says which lines each run was recorded in.

    Args:
        replay: takes the lines.
        keep: told the run and the line, of every line that was not skipped.
    """

    def __init__(self, replay: Replay, keep: Callable[[str, bytes], None]) -> None:
        self._replay = replay
        self._keep = keep

    def take(self, line: Line, source: str) -> None:
        """Take one line of the file ``source``."""
        skipped = self._replay.skipped_lines
        self._replay.take(line, source)
        content = line.content
        if self._replay.skipped_lines == skipped and content is not None and content.strip():
            # A byte order mark is the file's, not the run's.
            content = content.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
            self._keep(orjson.loads(content)["run"], content)


def _text(arguments: list[object]) -> str:
    parts = [value if isinstance(value, str) else _json(value) for value in arguments]
    return "\n".join(part for part in parts if part not in ("", "null"))


def _shown(value: object) -> str:
    """A place in a few words: of a text, its beginning."""
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
