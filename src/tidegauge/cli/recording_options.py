"""What commands that read recordings have in common: options, and reading the files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Final

import click
import orjson

from tidegauge.cli.command_settings import (
    COUNT,
    FILES,
    FLAG,
    IN_FILE,
    POLICY,
    TEXT,
    SettingType,
    number,
    setting,
)
from tidegauge.cli.input_errors import InputErrors
from tidegauge.cli.terminal import ByteProgress, total_bytes
from tidegauge.events import StepSink
from tidegauge.policies import (
    SCORES,
    Policy,
    RunTrace,
    TraceSink,
    parse_rules,
    read_policy,
    score_named,
)
from tidegauge.recordings.line_replay import Line, Replay, read_lines

__all__ = [
    "InputSettings",
    "MeasuredInputSettings",
    "TraceSettings",
    "read_recordings",
    "read_traces",
    "scores_setting",
    "t_max_setting",
]

_BUFFER_BYTES: Final = 1 << 20


def t_max_setting() -> Any:
    """The field ``t_max``."""
    return setting(
        COUNT,
        None,
        "Turns within which success counts towards AUV, for every run; overrides the recording.",
    )


def scores_setting() -> Any:
    """The field ``scores``: a file of scores."""
    return setting(IN_FILE, None, "Scores of the runs, as tidegauge judge writes them.")


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """Settings of every command that reads recordings."""

    files: tuple[str, ...] = setting(FILES, MISSING, "")
    strict: bool = setting(FLAG, False, "Stop at the first error in the input, with exit code 2.")


@dataclass(frozen=True, kw_only=True)
class StepInputSettings(InputSettings):
    """Settings of the commands that can leave out steps."""

    ignore_actions: tuple[str, ...] = setting(
        TEXT,
        (),
        "Leave out the steps of this action, such as think. Can be given several times.",
        "--ignore-action",
        metavar="NAME",
        multiple=True,
    )


@dataclass(frozen=True, kw_only=True)
class MeasuredInputSettings(StepInputSettings):
    """Settings that ``replay`` and ``report`` share."""

    t_max: int | None = t_max_setting()
    policy: str | None = setting(
        POLICY,
        None,
        "Rules that act on the runs, as in loop_repeats=3,failed_rounds=3, or the file of a policy "
        "(.toml). A run ends where one stops it. Signals: loop_repeats, result_streak, "
        "failed_rounds, steps.",
    )

    def rules(self) -> Policy:
        """The policy; without ``--policy``, it stops nothing."""
        if self.policy is None:
            return Policy()
        if self.policy.endswith(".toml"):
            return read_policy(self.policy).policy()
        return Policy(parse_rules(self.policy))


@dataclass(frozen=True, kw_only=True)
class TraceSettings(StepInputSettings):
    """Settings of ``calibrate`` and ``backtest``."""

    alpha: float = setting(
        number(float, "SHARE", 0, 1, exclusive=True),
        0.05,
        "Largest share of successful runs that may be stopped by mistake.",
    )
    scores: tuple[str, ...] = setting(
        SettingType("NAME", lambda name: score_named(name).name),
        ("stagnation",),
        f"The score to use. Can be given several times. One of {', '.join(SCORES)}.",
        "--score",
        multiple=True,
    )


def read_traces(
    settings: TraceSettings, scores: Iterable[str], rules: Policy | None = None
) -> tuple[list[RunTrace], int, InputErrors]:
    """The traces of all runs of the files, the number of skipped lines, and the errors."""
    traces: list[RunTrace] = []
    errors = InputErrors(strict=settings.strict)
    sink = TraceSink(scores, on_trace=traces.append, rules=rules)
    skipped = read_recordings(settings.files, sink, errors, ignore_actions=settings.ignore_actions)
    sink.close()
    return traces, skipped, errors


def read_recordings(
    files: Sequence[str],
    sink: StepSink,
    errors: InputErrors,
    *,
    ignore_actions: Iterable[str] = (),
    t_max: int | None = None,
    keep_line: Callable[[str, bytes], None] | None = None,
) -> int:
    """Replay all files into a sink, with progress on a terminal; gives the number of skipped lines.

    Args:
        files: the recordings; ``-`` is standard input.
        sink: takes the step events.
        errors: reports invalid lines and unreadable files.
        ignore_actions: actions whose steps are left out.
        t_max: turns within which success counts, for every run.
        keep_line: gets the run and the text of every line that was not skipped.
    """
    replay = Replay(
        sink, ignore_actions=frozenset(ignore_actions), t_max=t_max, on_fault=errors.fault
    )
    with ByteProgress(total_bytes(files)) as progress:
        for file in files:
            source = "<stdin>" if file == "-" else click.format_filename(file)
            lines = _lines(file)
            while True:
                try:
                    line = next(lines, None)
                except OSError as error:  # of reading alone: the sink may write files, too
                    errors.unreadable(source, error)
                    break
                if line is None:
                    break
                skipped = replay.skipped_lines
                replay.take(line, source)
                if keep_line is not None and replay.skipped_lines == skipped:
                    _keep(line, keep_line)
                progress.advance(line.size)
            errors.end_of_file()
    return replay.skipped_lines


def _lines(file: str) -> Iterator[Line]:
    if file == "-":
        yield from read_lines(sys.stdin.buffer)
        return
    with open(file, "rb", buffering=_BUFFER_BYTES) as stream:
        yield from read_lines(stream)


def _keep(line: Line, keep_line: Callable[[str, bytes], None]) -> None:
    if line.content is not None and line.content.strip():
        # A byte order mark belongs to the file, not to the run.
        content = line.content.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
        keep_line(orjson.loads(content)["run"], content)
