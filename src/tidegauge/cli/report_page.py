"""The page of ``report``, written with the contents of the recordings or without."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from typing import Any, Final

import click
import orjson

from tidegauge._version import __version__
from tidegauge.cli.recording_options import (
    InputErrors,
    MeasuredInputSettings,
    read_recordings,
)
from tidegauge.cli.replay import StepLines, document, measured_as
from tidegauge.cli.terminal import StageProgress
from tidegauge.diagnose.competency_scores import CompetencyScore, read_scores
from tidegauge.diagnose.recorded_run import ReportedRun, ReportedStep
from tidegauge.diagnose.report.page_data import STAGES, contents, page
from tidegauge.diagnose.report.word_clouds import Embedder, tf_idf
from tidegauge.events import ABSENT, Decision, Outcome, RunObserver, RunStarted, Step
from tidegauge.recordings.encoding import ContentEncoder
from tidegauge.safety.private_files import private
from tidegauge.streaming_metrics.normalise import volatile
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


class ReportData(RunObserver):
    """Keeps the lines and steps of every run of a replay.

    Memory: the recording, and a few hundred bytes a step.

    Attributes:
        runs: the runs' reports and groups; the sink of the replay.
        lines: the other observer that the replay needs, before this one.
    """

    def __init__(self, settings: MeasuredInputSettings) -> None:
        self.runs = measured_as(settings)
        self.lines = StepLines(
            self.runs.engine, lambda line: self._last[line["run"]].measured.append(line)
        )
        self._all: list[_RunData] = []
        self._last: dict[str, _RunData] = {}

    def run_started(self, event: RunStarted) -> None:
        self._last[event.run] = data = _RunData(event)
        self._all.append(data)

    def step_issued(self, event: Step, decision: Decision) -> None:
        run = self._last[event.run]
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

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        run = self._last[event.run]
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

    def keep_line(self, run: str, line: bytes) -> None:
        """Keep a line of a run, also after the run was stopped."""
        data = self._last.get(run)
        if data is not None:
            data.lines.append(line)

    def reported(self) -> list[ReportedRun]:
        """Every run, in the order of their first lines."""
        self.lines.close()
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


_NUMBERS_AND_NAMES: Final = frozenset(
    {
        *("type", "run", "time", "agent", "task_group", "model", "t_max", "memory"),
        *("operations", "height", "reach", "action", "error", "progress", "tokens", "entropy"),
        *("seconds", "blocked", "poll", "poll_seconds", "mutates", "late_outcome", "similarity"),
        "success",
    }
)
"""The keys of a recorded line that stay unchanged."""


def write_report(
    files: Sequence[str],
    out: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    with_contents: bool = True,
    embed: Embedder = tf_idf,
    errors: InputErrors | None = None,
    settings: MeasuredInputSettings | None = None,
) -> int:
    """Write the page of some recordings; returns the number of runs.

    Args:
        files: the recordings, read as one.
        with_contents: whether the page shows contents, or digests of them.
        embed: gives a row of numbers for each action's text; the map of actions is drawn from it.
        settings: how the files are read; by default, as by ``tidegauge report`` without options.

    Raises:
        OSError: the page cannot be written, or the scores cannot be read.
        ConfigurationError: the scores are not valid.
    """
    judged: list[CompetencyScore] = []
    if scores is not None:
        with open(scores, "rb") as lines:
            judged = read_scores(lines, os.fspath(scores))
    errors = errors or InputErrors(strict=False)
    settings = settings or MeasuredInputSettings(files=tuple(files))
    report = ReportData(settings)
    skipped = read_recordings(
        settings, report.runs, errors, report.lines, report, keep_line=report.keep_line
    )
    runs = report.reported()
    numbers = document(report.runs, skipped_lines=skipped)
    groups = report.runs.groups().items()
    with ExitStack() as stack:
        progress = stack.enter_context(StageProgress(len(STAGES) + 1))
        data = contents(
            runs,
            {
                key: (group, entry)
                for (key, group), entry in zip(groups, numbers["groups"], strict=True)
            },
            memory_index=numbers["memory_index"],
            scores=judged,
            with_contents=with_contents,
            embed=embed,
            begin=progress.begin,
        )
        data["version"] = __version__
        data["sources"] = [click.format_filename(file, shorten=True) for file in files]
        data["skipped_lines"] = numbers["skipped_lines"]
        progress.begin("the page")
        text = page(data, _lines(runs) if with_contents else _redacted_lines(runs))
        with open(out, "w", encoding="utf-8", opener=private) as file:
            file.write(text)
    return len(runs)


def _lines(runs: Sequence[ReportedRun]) -> Iterator[bytes]:
    return (line for run in runs for line in run.lines)


def _redacted_lines(runs: Sequence[ReportedRun]) -> Iterator[bytes]:
    # With a key that is thrown away, equal contents have equal digests, and none can be guessed.
    key = os.urandom(32)
    digests = ContentEncoder(
        lambda digest: blake2b(digest, digest_size=16, key=key).hexdigest(),
        plain=False,
        normaliser=volatile(),
    )
    return (redacted_line(line, digests) for line in _lines(runs))


def redacted_line(line: bytes, digests: ContentEncoder) -> bytes:
    """The line with digests instead of contents; a replay gives the same numbers.

    Keys that step events don't have are left out, because they may hold anything.

    >>> digests = ContentEncoder(lambda digest: digest.hex()[:6], plain=False)
    >>> redacted_line(b'{"type":"step","run":"r1","action":"say","args":"a secret"}', digests)
    b'{"type":"step","run":"r1","action":"say","args":"sha:56daf0"}'
    """
    return orjson.dumps(_redacted(orjson.loads(line), digests))


def _redacted(event: Mapping[str, Any], digests: ContentEncoder) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in event.items():
        if value is None or key in _NUMBERS_AND_NAMES:
            if key in _NUMBERS_AND_NAMES or key in ("outcome", "args"):
                kept[key] = value
        elif key == "args":
            kept[key] = digests.arguments(value)
        elif key in ("state", "task") or (key == "outcome" and event.get("type") != "end"):
            kept[key] = digests.content(value)
        elif key == "calls":
            kept[key] = [_redacted(call, digests) for call in value]
        elif key == "place":
            kept[key] = digests.place(_identity(value))
        elif key == "exits":
            kept[key] = [digests.place(_identity(place)) for place in value]
        elif key == "goal":
            kept[key] = digests.identity(_identity(value))
        elif key in ("mentions", "uses", "achieved"):
            kept[key] = [digests.identity(_identity(entity)) for entity in value]
        elif key == "tasks":
            kept[key] = [
                {
                    "id": digests.identity(_identity(task["id"])),
                    "requires": [
                        [digests.identity(_identity(needed)) for needed in together]
                        for together in task.get("requires") or ()
                    ],
                }
                for task in value
            ]
    return kept


def _identity(value: Any) -> Any:
    return tuple(_identity(part) for part in value) if isinstance(value, list) else value
