"""Word clouds of actions and texts: each phrase with the runs that contain it.

The page lays out the clouds and counts their words over the selected runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence, Set
from typing import Any, Final

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from tidegauge.diagnose.recorded_run import ReportedRun
from tidegauge.diagnose.report.verbs_and_nouns import verbs_and_nouns

THINKING: Final = frozenset({"think", "thought", "reason", "reflect", "plan"})
"""Actions that only contain the agent's thoughts."""

MAX_PHRASES: Final = 150
"""Limit of phrases in a cloud: those in most runs."""

_SMALL_WORDS: Final = ENGLISH_STOP_WORDS - {
    *("call", "describe", "fill", "find", "get", "give", "go", "keep", "made", "move", "put"),
    *("see", "show", "take"),
}
"""Stop words, without the verbs that describe what agents do."""

_MAX_CHARACTERS: Final = 20_000  # of one run
_WORD: Final = r"(?u)\b[^\W\d_][\w'-]+\b"
_MAX_OBJECT: Final = 24
_LONGEST: Final = 4  # words of a phrase
_FIRST_TEXT: Final = {"{": re.compile(r':\s*"([^"\\]+)'), "[": re.compile(r'[\[,]\s*"([^"\\]+)')}
_LEADING: Final = re.compile(r"[\w./-]*[^\W\d_][\w./-]*")


def word_clouds(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """The clouds: ``name``, ``of`` (the source), ``phrases`` of (text, indexes of runs).

    Actions are counted by name, and by name and object: the first word of their arguments, because
    the command of a shell is more informative than the name of the shell. The texts are those
    of thinking actions, or the observations if there are none. Of thoughts there are also their
    verbs, nouns and pairs of both.
    """
    clouds = [{"name": "Actions", "of": "actions", "phrases": _actions(runs)}]
    texts = [_joined(step.arguments for step in run.steps if step.name in THINKING) for run in runs]
    source = "reasoning"
    if not any(texts):
        texts = [_joined(step.label for step in run.steps) for run in runs]
        source = "observations"
    found = [
        (f"{n} word{'s' if n > 1 else ''}", _phrases(texts, n)) for n in range(1, _LONGEST + 1)
    ]
    if source == "reasoning":
        of_texts = verbs_and_nouns(texts)
        found += [
            ("Verbs", _commonest([text.verbs for text in of_texts])),
            ("Nouns", _commonest([text.nouns for text in of_texts])),
            ("Verb and noun", _commonest([text.pairs for text in of_texts])),
        ]
    clouds += [
        {"name": name, "of": source, "phrases": phrases} for name, phrases in found if phrases
    ]
    return clouds


def _actions(runs: Sequence[ReportedRun]) -> list[tuple[str, list[int]]]:
    of_runs: list[set[str]] = []
    for run in runs:
        found: set[str] = set()
        for step in run.steps:
            found.add(step.name)
            object_of = _object(step.arguments) if step.name not in THINKING else ""
            if object_of:
                found.add(f"{step.name}: {object_of}")
        of_runs.append(found)
    return _commonest(of_runs)


def _commonest(of_runs: Sequence[Set[str]]) -> list[tuple[str, list[int]]]:
    """The phrases that most runs have, each with these runs."""
    found: dict[str, list[int]] = defaultdict(list)
    for index, phrases in enumerate(of_runs):
        for phrase in phrases:
            found[phrase].append(index)
    commonest = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return commonest[:MAX_PHRASES]


def _object(arguments: str) -> str:
    """The object of an action: the first word of its text, or of the first text in its values."""
    listed = _FIRST_TEXT.get(arguments[:1])
    if listed is not None:
        first = listed.search(arguments)
        arguments = first[1] if first else ""
    word = _LEADING.match(arguments)
    text = word[0][:_MAX_OBJECT].lower() if word else ""
    return text if len(text) > 1 and text not in _SMALL_WORDS else ""


def _phrases(texts: Sequence[str], words: int) -> list[tuple[str, list[int]]]:
    """The phrases of this length in most texts, each in at least two."""
    counter = CountVectorizer(
        ngram_range=(words, words),
        token_pattern=_WORD,
        # Phrases keep their stop words.
        stop_words=list(_SMALL_WORDS) if words == 1 else None,
        binary=True,
    )
    try:
        table = counter.fit_transform(texts).tocsc()
    except ValueError:  # only stop words
        return []
    names = counter.get_feature_names_out()
    counts = table.getnnz(axis=0)
    order = sorted(range(len(names)), key=lambda column: (-int(counts[column]), names[column]))
    informative = (
        column
        for column in order
        if words == 1 or not _SMALL_WORDS.issuperset(names[column].split())
    )
    chosen = [column for column, _ in zip(informative, range(MAX_PHRASES), strict=False)]
    return [
        (str(names[column]), sorted(map(int, table[:, [column]].nonzero()[0])))
        for column in chosen
        if counts[column] > 1 or len(texts) == 1
    ]


def _joined(parts: Any) -> str:
    return "\n".join(parts)[:_MAX_CHARACTERS]
