"""Verbs, nouns and pairs of them in English texts (AgentDiagnose shows them as word clouds).

The tagger is HanTa (Wartena 2019): a hidden Markov model of words, their parts and their order. Its
model is in its package, so nothing is loaded from the network. The model is a pickle, which could
run code; here it is read as plain data: all but containers, texts and numbers is refused.
"""

from __future__ import annotations

import gzip
import pickle
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, BinaryIO, Final, NamedTuple

from HanTa.HanoverTagger import HanoverTagger

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
