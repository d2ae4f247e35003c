"""What commands that read recordings share: options, input and output files, errors in them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeAlias

import click
import orjson

from tidegauge.cli.command_settings import (
    COUNT,
    DETECT_POLLS_HELP,
    FILES,
    FLAG,
    GUARD,
    GUARD_HELP,
    GUARD_SHARE,
    GUARD_SHARE_HELP,
    IN_FILE,
    POLICY,
    SWITCH,
    TEXT,
    SettingType,
    number,
    setting,
)
from tidegauge.cli.terminal import ByteProgress, print_line, total_bytes
from tidegauge.coding_agents.agents import SESSIONS, find_sessions, guess_agent
from tidegauge.coding_agents.session_transcript import SessionError
from tidegauge.errors import ConfigurationError
from tidegauge.events import RunObserver, StepSink
from tidegauge.fleet.fleet_messages import json_object
from tidegauge.policies import (
    SCORES,
    Guarantee,
    Policy,
    RunTrace,
    Score,
    TraceSink,
    parse_rules,
    read_policy,
    read_score,
    score_named,
    score_of,
    with_guard,
)
from tidegauge.policies.calibration import GuaranteeKind
from tidegauge.recordings.line_replay import MAX_LINE_BYTES, Fault, Line, Replay, read_lines
from tidegauge.safety.private_files import private
from tidegauge.streaming_metrics.auv import TIDE_T_MAX

_PRINTED_PER_FILE: Final = 20


class FatalInputError(click.ClickException):
    """An error under ``--strict``: printed like any other, and the command ends with code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line of the error."""
        (sys.stderr if file is None else file).write(f"{self.message}\n")


class InputErrors:
    """Prints the first 20 errors of each file, one line each, then how many more there were."""

    def __init__(self, *, strict: bool) -> None:
        self._unreadable = False
        self._strict = strict
        self._source = ""
        self._count = 0

    def fault(self, fault: Fault) -> None:
        """A line is not valid."""
        self._source = fault.source
        self._count += 1
        if self._strict:
            raise FatalInputError(str(fault))
        if self._count <= _PRINTED_PER_FILE:
            print_line(str(fault), err=True)

    def unreadable(self, source: str, error: OSError) -> None:
        """A file cannot be read."""
        message = f"{source}: {error.strerror or error}"
        if self._strict:
            raise FatalInputError(message)
        self._unreadable = True
        print_line(message, err=True)

    def end_of_file(self) -> None:
        """A file ends: print how many errors were not printed."""
        more = self._count - _PRINTED_PER_FILE
        self._count = 0
        if more > 0:
            print_line(f"{self._source}: {more} more lines with errors", err=True)

    def exit_if_nothing_read(self, runs: int) -> None:
        """End the command with exit code 1 if there are no runs because of unreadable files."""
        if not runs:
            self.exit_if_unreadable()

    def exit_if_unreadable(self) -> None:
        """End the command with exit code 1 if a file could not be read."""
        if self._unreadable:
            raise click.exceptions.Exit(1)


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """A file that only its owner can read; errors of writing name the file, too."""
    try:
        with open(path, "wb", opener=private) as out:
            yield out
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text to its path below the folder, which is created, and print the path."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print_line(str(path))


def refuse_overwriting(out: Path | None, files: Sequence[str], option: str) -> None:
    """Raise an error if the output is one of the input files."""
    if out is None or not os.path.exists(out):
        return
    for file in files:
        if os.path.exists(file) and os.path.samefile(out, file):
            raise ConfigurationError(f"{option}: {out} is also an input; choose another file")


_BUFFER_BYTES: Final = 1 << 20


TMax: TypeAlias = int | Mapping[str, int] | None
"""Turns within which success counts, of all runs or by task group."""


def _t_max(value: Any) -> TMax:
    if value == "tide":
        return TIDE_T_MAX
    found: int = COUNT.convert(value, None, None)
    return found


def t_max_setting() -> Any:
    """The field ``t_max``."""
    groups = ", ".join(f"{group} {t_max}" for group, t_max in TIDE_T_MAX.items())
    return setting(
        SettingType("N|tide", _t_max),
        None,
        "Turns within which success counts towards AUV, for every run; overrides the recording. "
        f"tide: those of TIDE's task groups ({groups}).",
    )


def scores_setting() -> Any:
    """The field ``scores``: a file of scores."""
    return setting(IN_FILE, None, "Scores of the runs, as tidegauge judge writes them.")


def _score(value: Any) -> Score:
    """A score by its name, or a learned one by its file."""
    if isinstance(value, Score):
        return value
    return score_of(read_score(value)) if str(value).endswith(".json") else score_named(str(value))


def _agent(value: Any) -> str:
    if value not in (*SESSIONS, "auto"):
        raise ValueError(f"{value!r} is not known; use {', '.join(SESSIONS)} or auto")
    return str(value)


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """Settings of every command that reads recordings."""

    files: tuple[str, ...] = setting(FILES, MISSING, "")
    strict: bool = setting(FLAG, False, "Stop at the first error in the input, with exit code 2.")
    sessions_of: str | None = setting(
        SettingType("AGENT", _agent),
        None,
        "The files are sessions of this coding agent, or in this format, or folders with them: "
        f"{', '.join(SESSIONS)}; auto finds out from their content.",
        "--from",
    )


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
    exact: bool = setting(
        FLAG,
        False,
        "Compare arguments and results exactly, as live runs with normalise='exact' do; off, "
        "without known noise: times, durations, ids, temporary names.",
    )
    detect_polls: bool | None = setting(SWITCH, None, DETECT_POLLS_HELP)


@dataclass(frozen=True, kw_only=True)
class MeasuredInputSettings(StepInputSettings):
    """Settings that ``replay`` and ``report`` share."""

    t_max: TMax = t_max_setting()
    loop_code: Any = setting(
        click.Choice(["text", "gui"]),
        "text",
        "How loops are read: as in TIDE's released code for texts, or in its code for graphical "
        "interfaces, which looks for the next cycle after the rounds that were repeated.",
    )
    policy: str | None = setting(
        POLICY,
        None,
        "Rules that act on the runs, as in loop_repeats=3,failed_rounds=3, or the file of a policy "
        "(.toml). A run ends where one stops it. Signals are loop_repeats, stuck_streak, steps and "
        "others: see docs/interventions.md.",
    )

    guard: Any = setting(GUARD, None, GUARD_HELP)
    guard_share: float = setting(GUARD_SHARE, 1.0, GUARD_SHARE_HELP)

    def rules(self) -> Policy:
        """The policy; without ``--policy`` and ``--guard``, it stops nothing."""
        guarded = self.guard is not None
        preset = with_guard((), self.guard or "watch", self.guard_share)
        if self.policy is None:
            return Policy(preset)
        if self.policy.endswith(".toml"):
            found = read_policy(self.policy)
            rules = with_guard(found.rules, self.guard, self.guard_share) if guarded else None
            return found.policy() if rules is None else found._replace(rules=rules).policy()
        given = parse_rules(self.policy)
        return Policy(with_guard(given, self.guard, self.guard_share) if guarded else given)


@dataclass(frozen=True, kw_only=True)
class TraceSettings(StepInputSettings):
    """Settings of ``calibrate`` and ``backtest``."""

    alpha: float = setting(
        number(float, "SHARE", 0, 1, exclusive=True),
        0.05,
        "Largest share of successful runs that may be stopped by mistake.",
    )
    guarantee: GuaranteeKind = setting(
        click.Choice(["marginal", "pac"]),
        "marginal",
        "What alpha bounds: marginal, the mean over many calibrations; pac, the share of this one, "
        "with the confidence.",
    )
    confidence: float = setting(
        number(float, "SHARE", 0, 1, exclusive=True), 0.9, "Confidence of --guarantee pac."
    )
    by_task: bool = setting(
        FLAG,
        False,
        "Runs of one task may be alike: count each task once, however many attempts it has.",
    )
    scores: tuple[Score, ...] = setting(
        SettingType("NAME", _score),
        ("stagnation",),
        "The score to use. Can be given several times. The file of a learned score (.json), or one "
        f"of {', '.join(SCORES)}.",
        "--score",
        multiple=True,
    )

    def bound(self, *, shared_by: int = 1) -> Guarantee:
        """The bound on the threshold of each score, if so many scores share alpha."""
        return Guarantee(self.alpha / shared_by, self.guarantee, self.confidence)


def read_traces(
    settings: TraceSettings,
    scores: Iterable[str | Score],
    rules: Policy | None = None,
    guards: Iterable[str] = (),
) -> tuple[list[RunTrace], int, InputErrors]:
    """The traces of all runs of the files, the number of skipped lines, and the errors.

    Without the runs of tasks that one of the scores was learned from: there it would be too good.
    """
    scores = tuple(scores)
    traces: list[RunTrace] = []
    errors = InputErrors(strict=settings.strict)
    sink = TraceSink(
        scores,
        on_trace=traces.append,
        rules=rules,
        guards=guards,
        exact=settings.exact,
        detect_polls=settings.detect_polls,
    )
    skipped = read_recordings(settings, sink, errors)
    sink.close()
    kept = [trace for trace in traces if not _is_learned_from(trace, scores)]
    if len(kept) < len(traces):
        print_line(
            f"left out: {len(traces) - len(kept)} runs of tasks that the score was learned from",
            err=True,
        )
    return kept, skipped, errors


def _is_learned_from(trace: RunTrace, scores: Iterable[str | Score]) -> bool:
    return any(
        score.learned.learned_from(trace.run, trace.task)
        for score in scores
        if isinstance(score, Score) and score.learned is not None
    )


def read_recordings(
    settings: InputSettings,
    sink: StepSink,
    errors: InputErrors,
    *observers: RunObserver,
    keep_line: Callable[[str, bytes], None] | None = None,
) -> int:
    """Replay all files into a sink, with progress on a terminal; gives the number of skipped lines.

    Args:
        keep_line: gets the run and the text of every line that was not skipped.
    """
    files, agent = settings.files, settings.sessions_of
    replay = Replay(
        sink,
        ignore_actions=frozenset(getattr(settings, "ignore_actions", ())),
        t_max=getattr(settings, "t_max", None),  # not every command has these two
        observers=observers,
        on_fault=errors.fault,
    )
    sources = _recordings(files) if agent is None else _sessions(files, agent)

    def take(line: Line | Fault, source: str) -> None:
        if isinstance(line, Fault):
            replay.skip(line)
            return
        skipped = replay.skipped_lines
        replay.take(line, source)
        if keep_line is not None and replay.skipped_lines == skipped:
            _keep(line, keep_line)

    _read(files, sources, take, errors)
    return replay.skipped_lines


def read_objects(
    files: Sequence[str], take: Callable[[dict[str, Any]], None], errors: InputErrors
) -> None:
    """Read files of JSON objects, one a line, with progress on a terminal.

    Args:
        take: gets each object; a ``ValueError`` says why it is not valid.
    """

    def read(line: Line | Fault, source: str) -> None:
        if isinstance(line, Fault):
            errors.fault(line)
            return
        try:
            if line.content is None:
                raise ValueError(f"the line has {line.size} bytes; use at most {MAX_LINE_BYTES}")
            if line.content.strip():
                take(json_object(line.content))
        except ValueError as error:
            errors.fault(Fault(source, line.number, str(error)))

    _read(files, _recordings(files), read, errors)


def _read(
    files: Sequence[str],
    sources: Iterator[_Source],
    take: Callable[[Line | Fault, str], None],
    errors: InputErrors,
) -> None:
    with ByteProgress(total_bytes(files)) as progress:
        for source, lines in sources:
            while True:
                try:
                    line = next(lines, None)
                except OSError as error:  # of reading alone: the sink may write files, too
                    errors.unreadable(source, error)
                    break
                if line is None:
                    break
                take(line, source)
                if isinstance(line, Line):
                    progress.advance(line.size)
            errors.end_of_file()


_Source: TypeAlias = tuple[str, Iterator[Line | Fault]]
"""The name of a file, and its lines."""


def _recordings(files: Sequence[str]) -> Iterator[_Source]:
    for file in files:
        yield "<stdin>" if file == "-" else click.format_filename(file), _lines(file)


def _lines(file: str) -> Iterator[Line]:
    if file == "-":
        yield from read_lines(sys.stdin.buffer)
        return
    with open(file, "rb", buffering=_BUFFER_BYTES) as stream:
        yield from read_lines(stream)


def _sessions(files: Sequence[str], agent: str) -> Iterator[_Source]:
    """The sessions of coding agents in files and folders; says what ``auto`` took them for."""
    found: Counter[str] = Counter()
    for file in files:
        if file == "-":
            raise ConfigurationError("--from reads no standard input; use files or folders")
        sessions = find_sessions(Path(file), agent)
        if not sessions:
            whose = "" if agent == "auto" else f" of {agent}"
            print_line(f"{click.format_filename(file)}: no sessions{whose} in it", err=True)
        for session in sessions:
            yield click.format_filename(session), _session_lines(session, agent, found)
    if agent == "auto" and found:
        counts = [f"{count} of {name}" for name, count in found.items()]
        print_line(f"sessions: {', '.join(counts)}", err=True)


def _session_lines(session: Path, agent: str, found: Counter[str]) -> Iterator[Line | Fault]:
    source = click.format_filename(session)
    known = guess_agent(session) if agent == "auto" else agent
    if known is None:
        yield Fault(source, 1, "it is no session or format that is known")
        return
    found[known] += 1
    try:
        for part in SESSIONS[known].read(session):
            if part.error is not None:
                yield Fault(source, part.number, part.error)
            for number, line in enumerate(part.lines):
                try:
                    content = orjson.dumps(line)
                except orjson.JSONEncodeError as error:  # too many levels
                    yield Fault(source, part.number, str(error))
                    continue
                yield Line(part.number, content, 0 if number else part.size)
    except SessionError as error:
        yield Fault(source, 1, str(error))


def _keep(line: Line, keep_line: Callable[[str, bytes], None]) -> None:
    if line.content is not None and line.content.strip():
        # A byte order mark belongs to the file, not to the run.
        content = line.content.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
        keep_line(orjson.loads(content)["run"], content)
