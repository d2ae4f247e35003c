"""Judgements: what came of judging one competency of one run, as lines of JSON."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import orjson

from tidegauge._private_files import private
from tidegauge.diagnose.judges.judge import Judge
from tidegauge.diagnose.judges.text import writable

__all__ = ["Judgement", "JudgementFile", "JudgementKey", "key_of", "read_judgements"]


class JudgementKey(NamedTuple):
    """What makes two judgements the same question, asked again."""

    run: str
    competency: str
    judge: str
    rubric_version: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of judging one competency of one run: a score, or why there is none.

    Attributes:
        run: id of the run.
        competency: what was judged.
        score: 1 to 4; ``None``, not applicable or not judged.
        applicable: whether the competency is applicable to the run; ``None``, not judged.
        reason: the judge's reason.
        steps: the steps that it rests on.
        judge: name of the judge.
        rubric_version: of what it went by.
        model: name of the model that was asked.
        left_out_steps: (first, last) of each stretch of steps that the judge was not shown.
        shortened_steps: how many of the shown steps have a content that was cut.
        error: why it was not judged: a word, a colon, and the rest; ``None``, it was.
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
        """What it is the answer to."""
        return JudgementKey(self.run, self.competency, self.judge, self.rubric_version, self.model)

    @property
    def error_kind(self) -> str | None:
        """The word that the error begins with."""
        return None if self.error is None else self.error.partition(":")[0]

    def line(self) -> bytes:
        """As a line of JSON, with its end."""
        told = {
            name: writable(value) if isinstance(value, str) else value
            for name, value in asdict(self).items()
        }
        return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def key_of(run: str, judge: Judge, model: str) -> JudgementKey:
    """What is asked when this judge judges this run by this model."""
    return JudgementKey(run, judge.competency, judge.name, judge.rubric_version, model)


def read_judgements(lines: Iterable[bytes]) -> Iterator[Judgement]:
    """The judgements among the lines. What is none (a line cut short, say) is passed over.

    >>> line = Judgement(run="r1", competency="self_verification", score=3).line()
    >>> [judgement.score for judgement in read_judgements([line, line[:20]])]
    [3]
    """
    for line in lines:
        try:
            data: dict[str, Any] = orjson.loads(line)
            told = {name: data[name] for name in _NAMES if name in data}
            if not isinstance(told["run"], str) or not isinstance(told["competency"], str):
                continue
            told["steps"] = tuple(told.get("steps") or ())
            told["left_out_steps"] = tuple(tuple(one) for one in told.get("left_out_steps") or ())
        except (ValueError, KeyError, TypeError):
            continue
        yield Judgement(**told)


_NAMES = tuple(field.name for field in fields(Judgement))


class JudgementFile:
    """A file of judgements that is added to, and known from before.

    Each line is written at once, so that a process that is killed loses none. A run is judged
    again under the same question only where that failed.

    Args:
        path: the file; it need not be there.

    Raises:
        OSError: it cannot be read, or not be written.
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
            self._file.write(b"\n")  # the last line was cut short: it costs itself alone

    def __contains__(self, key: object) -> bool:
        known = self._known.get(key) if isinstance(key, JudgementKey) else None
        return known is not None and known.error is None

    def __iter__(self) -> Iterator[Judgement]:
        """The judgements: of those of one question, the last."""
        return iter(list(self._known.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, judgement: Judgement) -> None:
        """Write a judgement, unless it says what is known already."""
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
