"""Which answers chant: made texts, and the answers in recorded runs.

``python -m benchmarks chanting FOLDER`` writes the tables of ``docs/metrics/chanting.md`` from the
``*.events.jsonl`` of a folder. A model's answer there is the text of a step's arguments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.chanting_texts import BEGINNING, CHANTS, ORDINARY
from tidegauge.chanting import CHANTING, Chanting, chanting_in
from tidegauge.events import RunEnded, Step
from tidegauge.recordings.line_replay import read_lines
from tidegauge.recordings.step_events import OpenStep, RecordedStep, parse_line

__all__ = ["found_after", "recorded_answers", "tables", "tokens_in"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "metrics" / "chanting.md"
_TOKENS: Final = re.compile(r" ?[^\W\d_]{1,5}|[0-9]{1,3}| ?[^\w\s]|\s{1,8}|.", re.DOTALL)


def tokens_in(text: str) -> list[str]:
    """The text in tokens of at most five letters, three digits or one sign: models make fewer.

    >>> tokens_in("I will read 1234 files.")
    ['I', ' will', ' read', ' ', '123', '4', ' files', '.']
    """
    return _TOKENS.findall(text)


def found_after(text: str) -> int | None:
    """After how many of its tokens a chant is found, in an answer that begins ordinarily."""
    chanting = Chanting()
    chanting.add(BEGINNING)
    for count, token in enumerate(tokens_in(text), 1):
        chanting.add(token)
        if chanting.highest >= CHANTING:
            return count
    return None


class Answers(NamedTuple):
    """The answers of recorded runs that ended in the same way.

    Attributes:
        runs: how many runs have any.
        shares: the highest share in each answer.
    """

    runs: set[str]
    shares: list[float]


def recorded_answers(folder: Path) -> dict[str, Answers]:
    """The answers in a folder of recordings, of successful runs, failed ones, and the rest."""
    found = {name: Answers(set(), []) for name in ("success", "failure", "unknown")}
    for path in sorted(folder.glob("*.events.jsonl")):
        answers: dict[str, list[str]] = {}
        ends: dict[str, bool | None] = {}
        with path.open("rb") as stream:
            for line in read_lines(stream):
                event = parse_line(line.content or b"{}")
                if isinstance(event, RunEnded):
                    ends[event.run] = event.success
                elif isinstance(event, RecordedStep | OpenStep):
                    answers.setdefault(event.issued.run, []).extend(_texts(event.issued))
        for run, texts in answers.items():
            success = ends.get(run)
            name = "unknown" if success is None else "success" if success else "failure"
            found[name].runs.add(run)
            found[name].shares.extend(map(chanting_in, texts))
    return found


def _texts(step: Step) -> Iterator[str]:
    waiting: list[Any] = [call.arguments for call in step.calls]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def tables(folder: Path) -> str:
    """The tables of the page."""
    lines = ["| answers of recorded runs | runs | answers | chant | highest share of the others |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, (runs, shares) in recorded_answers(folder).items():
        chants = sum(share >= CHANTING for share in shares)
        others = max((share for share in shares if share < CHANTING), default=0.0)
        lines.append(f"| {name} | {len(runs):,} | {len(shares):,} | {chants} | {others:.2f} |")
    after = sorted(found_after(text) or sys.maxsize for text in CHANTS.values())
    highest = sorted(chanting_in(BEGINNING + text) for text in ORDINARY.values())
    lines += ["", "| made texts | texts | chant | |", "| --- | --- | --- | --- |"]
    lines.append(
        f"| that chant | {len(after)} | {sum(one < sys.maxsize for one in after)} | found after "
        f"{after[len(after) // 2]} tokens (median), at most {after[-1]} |"
    )
    lines.append(
        f"| that do not | {len(highest)} | {sum(one >= CHANTING for one in highest)} | highest "
        f"share {highest[-1]:.2f} |"
    )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the tables of the page from a folder of recordings."""
    if len(arguments) != 1:
        print("use: python -m benchmarks chanting FOLDER", file=sys.stderr)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index("| answers of recorded runs"), page.index("\nOrdinary texts")
    PAGE.write_text(page[:begin] + tables(Path(arguments[0])) + page[end:], encoding="utf-8")
    return 0
