"""Word clouds of actions and texts, and the map of actions.

A cloud has each phrase with the runs that contain it; on the map, similar actions are close (t-SNE,
van der Maaten and Hinton 2008).

The page lays out the clouds and counts their words over the selected runs. Verbs, nouns and pairs
of them (the word clouds of AgentDiagnose) come from the tagger HanTa (Wartena 2019), a hidden
Markov model of words, their parts and their order. Its model is in its package, so nothing is
loaded from the network. The model is a pickle, which could run code; here it is read as plain data:
all but containers, texts and numbers is refused.
"""

from __future__ import annotations

import gzip
import pickle
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from importlib.resources import files
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
from HanTa.HanoverTagger import HanoverTagger
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer, TfidfVectorizer
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from tidegauge.diagnose.recorded_run import ReportedRun

_MODEL: Final = "morphmodel_en.pgz"
_TOKEN: Final = re.compile(r"(?u)[^\W\d_][\w'-]*|[.!?;:,]|\n")
_SENTENCE_ENDS: Final = frozenset(".!?;:\n")
_MAX_LETTERS: Final = 20  # the tagger takes long for long words
_MAX_WORDS: Final = 40_000  # of all texts together: a few seconds
_FEWEST_WORDS: Final = 30  # of each text
_REACH: Final = 5  # words from a verb to its noun


class Phrases(NamedTuple):
    """What a text has, each once, in basic forms."""

    verbs: frozenset[str]
    nouns: frozenset[str]
    pairs: frozenset[str]


def verbs_and_nouns(texts: Sequence[str]) -> list[Phrases]:
    """The verbs, nouns and verb-noun pairs of each text.

    A noun belongs to a verb if it is the first after it, at most five words away, with no other
    verb, no preposition and no punctuation in between; of several nouns in a row it is the last
    ("the log file"). Of long texts, only the beginning is read: 40,000 words of all texts, evenly.

    >>> [found] = verbs_and_nouns(["I need to open the log file. Then I will check the drawers."])
    >>> sorted(found.pairs)
    ['check drawer', 'open file']
    >>> sorted(found.nouns)
    ['drawer', 'file', 'log']
    """
    words = max(_FEWEST_WORDS, _MAX_WORDS // max(1, sum(map(bool, texts))))
    return [_phrases(_sentences(text, words)) for text in texts]


def _sentences(text: str, words: int) -> Iterator[tuple[str, ...]]:
    sentence: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _SENTENCE_ENDS:
            yield tuple(sentence)
            sentence = []
        elif len(token) <= _MAX_LETTERS:
            sentence.append(token)
            words -= 1
            if not words:
                break
    yield tuple(sentence)


def _phrases(sentences: Iterable[tuple[str, ...]]) -> Phrases:
    verbs: set[str] = set()
    nouns: set[str] = set()
    pairs: set[str] = set()
    for sentence in sentences:
        tagged = _tagged(sentence) if sentence else ()
        verb, since = "", 0
        for at, (base, kind) in enumerate(tagged):
            since += 1
            if kind == "verb":
                verbs.add(base)
                verb, since = base, 0
            elif kind == "noun":
                nouns.add(base)
                is_last = at + 1 == len(tagged) or tagged[at + 1][1] != "noun"
                if verb and is_last and since <= _REACH:
                    pairs.add(f"{verb} {base}")
                verb = "" if is_last else verb
            elif kind == "break":
                verb = ""
    return Phrases(frozenset(verbs), frozenset(nouns), frozenset(pairs))


@lru_cache(maxsize=20_000)
def _tagged(sentence: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The basic form and the kind of each word. Agents repeat themselves: sentences are cached."""
    return tuple((base, _kind(tag)) for _, base, tag in _tagger().tag_sent(sentence))


def _kind(tag: str) -> str:
    """The kind of a word, from its tag in the BNC's set; a break is what ends a pair."""
    if tag.startswith("VV"):
        return "verb"
    if tag.startswith("NN"):
        return "noun"
    return "break" if tag.startswith(("PU", "PR")) else ""


@lru_cache(maxsize=1)
def _tagger() -> Any:
    with files("HanTa").joinpath(_MODEL).open("rb") as packed, gzip.open(packed) as file:
        tagger = HanoverTagger("", model=read_plain(file))
    tagger.strict = False  # as it is for a model that it reads itself
    return tagger


def read_plain(file: BinaryIO | gzip.GzipFile) -> Any:
    """Read a pickle that contains nothing but containers, texts and numbers.

    Raises:
        UnpicklingError: it contains something else.
    """
    return _PlainData(file).load()


class _PlainData(pickle.Unpickler):
    """Knows only the numbers of numpy 2, as Python's floats: so any version of numpy will do."""

    def find_class(self, module: str, name: str) -> Any:
        found = {"numpy._core.multiarray.scalar": _number, "numpy.dtype": _Double}
        try:
            return found[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is no plain data") from None


class _Double:
    """The type of a number."""

    def __init__(self, kind: str, *_: object) -> None:
        if kind != "f8":
            raise pickle.UnpicklingError(f"{kind} is not the type of the model's numbers")

    def __setstate__(self, state: Any) -> None:
        if state[1] != "<":
            raise pickle.UnpicklingError("the numbers of the model have another order of bytes")


def _number(_: _Double, content: bytes) -> float:
    [number] = struct.unpack("<d", content)
    return float(number)


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
        (f"{n} word{'s' if n > 1 else ''}", _common_phrases(texts, n))
        for n in range(1, _LONGEST + 1)
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


def _common_phrases(texts: Sequence[str], words: int) -> list[tuple[str, list[int]]]:
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


Embedder: TypeAlias = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""Returns a vector for each text."""

MAX_POINTS: Final = 2_000
"""Limit of actions placed by t-SNE; each further one counts at the most similar of these."""

_WORD_OF_ACTION: Final = re.compile(r"\w[\w-]*")
_MOST_OF_ARGUMENTS: Final = 200
_DIMENSIONS: Final = 50
_BLOCK: Final = 1_000
_ROUNDS: Final = 500
_FEWEST: Final = 5  # fewer are not worth a map


def _words(text: str) -> list[str]:
    return _WORD_OF_ACTION.findall(text.lower()) or [text]


def tf_idf(texts: Sequence[str]) -> NDArray[np.floating[Any]]:
    """The default embedder: TF-IDF of words, reduced to at most 50 dimensions."""
    table = TfidfVectorizer(analyzer=_words, sublinear_tf=True, max_features=20_000).fit_transform(
        texts
    )
    dimensions = min(_DIMENSIONS, min(table.shape) - 1)
    if dimensions < 2:
        return np.asarray(table.toarray())
    reduced = TruncatedSVD(dimensions, random_state=0).fit_transform(table)
    return np.asarray(reduced)


def action_map(
    runs: Sequence[ReportedRun], embed: Embedder = tf_idf, *, max_points: int = MAX_POINTS
) -> dict[str, Any] | None:
    """Points with ``x``, ``y`` (0 to 1), ``text``, ``name``, ``steps`` and ``runs`` (by index).

    An action is a name with its arguments; thoughts are left out. Of more actions than
    ``max_points``, half of the points are those taken most often, the other half is drawn evenly
    from the rest, in the order of their first use; each of those that remain is counted at the
    point that its embedding is nearest to. ``None`` when there are too few to be a map.
    """
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        for step in run.steps:
            if step.name not in THINKING:
                taken[step.name, step.arguments[:_MOST_OF_ARGUMENTS]].append(index)
    actions = list(taken)
    if len(actions) < _FEWEST:
        return None
    rows = np.asarray(embed([f"{name} {arguments}" for name, arguments in actions]), dtype=float)
    rows = normalize(rows)
    chosen = _chosen([len(taken[action]) for action in actions], max_points)
    nearest = _nearest(rows, chosen)
    spots = _spread(rows[chosen])
    members: dict[int, list[int]] = defaultdict(list)
    for action, point in enumerate(nearest):
        members[int(point)] += taken[actions[action]]
    return {
        "actions": len(actions),
        "points": [
            {
                "x": round(float(spots[point, 0]), 4),
                "y": round(float(spots[point, 1]), 4),
                "name": actions[action][0],
                "text": actions[action][1],
                "steps": len(members[point]),
                "runs": sorted(set(members[point])),
            }
            for point, action in enumerate(chosen)
        ],
    }


def _chosen(counts: Sequence[int], max_points: int) -> list[int]:
    if len(counts) <= max_points:
        return list(range(len(counts)))
    by_count = sorted(range(len(counts)), key=lambda action: -counts[action])
    half = max_points // 2
    rest = sorted(by_count[half:])
    every = np.linspace(0, len(rest) - 1, max_points - half).astype(int)
    return sorted(by_count[:half] + [rest[place] for place in every])


def _nearest(rows: NDArray[Any], chosen: Sequence[int]) -> NDArray[Any]:
    """For each action the point that it is counted at; a point's own action is at itself."""
    points = rows[chosen]
    found = np.concatenate(
        [
            np.argmax(rows[start : start + _BLOCK] @ points.T, axis=1)
            for start in range(0, len(rows), _BLOCK)
        ]
    )
    found[chosen] = np.arange(len(chosen))
    return found


def _spread(points: NDArray[Any]) -> NDArray[Any]:
    """The points in the plane, each coordinate from 0 to 1."""
    perplexity = min(30.0, (len(points) - 1) / 3)
    # Equal rows would start at one spot and stay there.
    points = points + np.random.default_rng(0).normal(scale=1e-4, size=points.shape)
    start = "pca" if min(points.shape) >= 2 else "random"
    # Nothing moves any more that an eye would see; half as long as by default.
    layout = TSNE(perplexity=perplexity, init=start, random_state=0, max_iter=_ROUNDS, angle=0.6)
    found = layout.fit_transform(points)
    low, high = found.min(axis=0), found.max(axis=0)
    return np.asarray((found - low) / np.where(high > low, high - low, 1.0))
