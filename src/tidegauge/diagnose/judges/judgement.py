"""Judgements of one competency of one run: as lines of JSON in a file, and as metrics."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

import orjson

from tidegauge.catalog import DROPPED_JUDGEMENTS, FAILED_JUDGEMENTS, JUDGED_SCORE, MetricDefinition
from tidegauge.diagnose.judges.rubric_judge import Judge
from tidegauge.diagnose.judges.transcript import Transcript, writable
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.private_files import private
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.limits import OTHER, BoundedNames


class JudgementKey(NamedTuple):
    """Identifies a question; a run is judged once per question."""

    run: str
    competency: str
    judge: str
    rubric_version: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The score of one competency of one run, or the reason why there is none.

    Attributes:
        score: 1 to 4; ``None``: not applicable or not judged.
        applicable: whether the competency applies to the run; ``None``: not judged.
        steps: the steps on which it is based.
        rubric_version: version of the question.
        left_out_steps: (first, last) of each range of steps that the judge did not see.
        shortened_steps: number of steps that the judge saw with shortened contents.
        error: why it was not judged: kind, colon, detail; ``None``: it was judged.
    """

    run: str
    competency: str
    score: int | None = None
    applicable: bool | None = None
    reason: str = ""
    steps: tuple[int, ...] = ()
    judge: str = "rubric"
    rubric_version: str = ""
    model: str = ""
    left_out_steps: tuple[tuple[int, int], ...] = ()
    shortened_steps: int = 0
    error: str | None = None

    @property
    def key(self) -> JudgementKey:
        """The question that it answers."""
        return JudgementKey(self.run, self.competency, self.judge, self.rubric_version, self.model)

    @property
    def error_kind(self) -> str | None:
        """The kind of the error."""
        return None if self.error is None else self.error.partition(":")[0]

    def line(self) -> bytes:
        """As a line of JSON, with its newline."""
        fields = {
            name: writable(value) if isinstance(value, str) else value
            for name, value in asdict(self).items()
        }
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def key_of(run: str, judge: Judge, model: str) -> JudgementKey:
    """The question of this judge about this run to this model."""
    return JudgementKey(run, judge.competency, judge.name, judge.rubric_version, model)


def read_judgements(lines: Iterable[bytes]) -> Iterator[Judgement]:
    """The judgements in the lines. Invalid lines (such as one cut short) are skipped.

    >>> line = Judgement(run="r1", competency="self_verification", score=3).line()
    >>> [judgement.score for judgement in read_judgements([line, line[:20]])]
    [3]
    """
    for line in lines:
        try:
            data: dict[str, Any] = orjson.loads(line)
            known = {name: data[name] for name in _NAMES if name in data}
            if not isinstance(known["run"], str) or not isinstance(known["competency"], str):
                continue
            known["steps"] = tuple(known.get("steps") or ())
            known["left_out_steps"] = tuple(tuple(one) for one in known.get("left_out_steps") or ())
        except (ValueError, KeyError, TypeError):
            continue
        yield Judgement(**known)


_NAMES = tuple(field.name for field in fields(Judgement))


class JudgementFile:
    """A file of judgements: reads the existing ones and appends new ones.

    Each line is written immediately, so that a killed process loses none. A question is asked
    again only if it failed.

    Raises:
        OSError: the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._known: dict[JudgementKey, Judgement] = {}
        if self.path.is_file():
            with self.path.open("rb") as lines:
                self._known = {found.key: found for found in read_judgements(lines)}
        self._file: BinaryIO = open(self.path, "ab", opener=private)  # noqa: SIM115 -- close() does
        if self._file.tell() and not self._ends_whole():
            self._file.write(b"\n")  # the last line was cut short: lose no other

    def __contains__(self, key: object) -> bool:
        known = self._known.get(key) if isinstance(key, JudgementKey) else None
        return known is not None and known.error is None

    def __iter__(self) -> Iterator[Judgement]:
        """The last judgement of each question."""
        return iter(list(self._known.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, judgement: Judgement) -> None:
        """Write a judgement, unless it is already known."""
        with self._lock:
            if self._known.get(judgement.key) == judgement:
                return
            self._known[judgement.key] = judgement
            self._file.write(judgement.line())
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


_BOUNDS: Final = (1.0, 2.0, 3.0, 4.0)
_MAX_KINDS: Final = 20
_KNOWN_KINDS: Final = ("time_out", "rate_limited", "model_error", "refused", "invalid_answer")


class JudgedScores:
    """Counts scores by agent, task group and competency, failures and dropped runs.

    Args:
        dropped: returns the number of runs that were not judged, by reason.
        max_groups: limit of (agent, task group) pairs; further ones are ``other``.
    """

    def __init__(self, dropped: Callable[[], Mapping[str, int]], *, max_groups: int = 200) -> None:
        self._dropped = dropped
        self._max_groups = max_groups
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._groups = BoundedNames(limit=self._max_groups, other=(OTHER, OTHER))
        self._kinds = BoundedNames(limit=_MAX_KINDS, other=OTHER)
        self._lock = threading.RLock()  # re-entrant for readers
        self._scores: dict[tuple[str, ...], Buckets] = {}
        self._failed: dict[tuple[str, ...], float] = {
            (self._kinds.admit(kind),): 0.0 for kind in _KNOWN_KINDS
        }

    def count(self, transcript: Transcript, judgement: Judgement) -> None:
        """Count a judgement."""
        started = transcript.started
        group = self._groups.admit((started.agent, started.task_group))
        with here.critical, self._lock:
            if judgement.error_kind is not None:
                failed = (self._kinds.admit(judgement.error_kind),)
                self._failed[failed] = self._failed.get(failed, 0.0) + 1
            elif judgement.score is not None:
                key = (*group, judgement.competency)
                buckets = self._scores.get(key)
                if buckets is None:
                    buckets = self._scores[key] = Buckets(_BOUNDS)
                buckets.observe(judgement.score)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float | Buckets]]:
        """The counts, as metrics."""
        dropped: dict[tuple[str, ...], float] = {
            (reason,): float(runs) for reason, runs in self._dropped().items()
        }
        with here.critical, self._lock:
            failed = dict(self._failed)
            scores = {key: _copy(buckets) for key, buckets in self._scores.items()}
        return {JUDGED_SCORE: scores, FAILED_JUDGEMENTS: failed, DROPPED_JUDGEMENTS: dropped}


def _copy(buckets: Buckets) -> Buckets:
    copied = Buckets(_BOUNDS)
    copied.add(buckets)
    return copied
