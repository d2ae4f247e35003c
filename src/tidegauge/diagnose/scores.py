"""What judges said of runs: one JSON object a line, ``run``, ``competency``, ``score``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from tidegauge.errors import ConfigurationError

__all__ = ["Score", "read_scores"]


class Score(NamedTuple):
    """One competency of one run.

    Attributes:
        run: id of the run.
        competency: its name, such as ``self_verification``.
        score: 1 to 4; ``None``, not applicable or not judged.
        reason: why, in the judge's words.
        steps: the steps that it rests on.
    """

    run: str
    competency: str
    score: float | None = None
    reason: str = ""
    steps: tuple[int, ...] = ()


def read_scores(lines: Iterable[bytes], source: str = "scores") -> list[Score]:
    """The scores of a file, in its order; of a run judged again, the last one counts.

    Raises:
        ConfigurationError: a line is none of a score; the message says which and why.

    >>> read_scores([b'{"run": "r1", "competency": "objective_quality", "score": 3}'])
    [Score(run='r1', competency='objective_quality', score=3, reason='', steps=())]
    """
    scores: dict[tuple[str, str], Score] = {}
    for number, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        score = _score(line, f"{source}:{number}")
        scores[score.run, score.competency] = score
    return list(scores.values())


def _score(line: bytes, where: str) -> Score:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"{where}: no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{where}: no JSON object")
    run, competency, score = data.get("run"), data.get("competency"), data.get("score")
    if not isinstance(run, str) or not isinstance(competency, str):
        raise ConfigurationError(f"{where}: run and competency are to be strings")
    if score is not None and type(score) not in (int, float):
        raise ConfigurationError(f"{where}: score is to be a number or null")
    steps = data.get("steps")
    return Score(
        run=run,
        competency=competency,
        score=score,
        reason=data["reason"] if isinstance(data.get("reason"), str) else "",
        steps=tuple(step for step in steps if type(step) is int) if isinstance(steps, list) else (),
    )
