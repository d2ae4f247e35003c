"""Names of temporary files and folders: whether one was drawn by chance or chosen.

Python draws 8 of 37 characters, ``mktemp``, C and Node 6, 8 or 10 of 62, Go and Java a number; all
may have a prefix and a suffix. What people and models choose has words in it.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

_PARTS: Final = re.compile(r"[^-_.]+").findall
_LETTERS: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+").findall
_CLASSES: Final = re.compile("[a-z]+|[A-Z]+|[0-9]+").findall
_TEMPFILE: Final = re.compile(
    r"\.?tmp(?:([a-z0-9_]{8})|\.([A-Za-z0-9]{6,10})|([A-Za-z0-9]{6}))\b"
).match
_WORD_AND_NUMBER: Final = re.compile(r"(?:_?[a-z]{3,})+_?\d{1,4}").fullmatch
_LONG_NUMBER: Final = re.compile(r"\d{6}").search
_NUMBER_OF_GO: Final = re.compile(r"(?<!\d)(?:\d{9,10}|\d{17,20})(?!\d)").search
_CHANGING: Final = re.compile("[0-9][A-Za-z]|[a-z][A-Z]").search
_LENGTHS: Final = (6, 8, 10)
_COMMON_PAIRS: Final = frozenset(
    pairs[0] + second
    for pairs in [
        *("abcdgilmnprstuy", "baeilosu", "caehiklortu", "daeios", "eacdefglmnpqrstvx", "faefilou"),
        *("gaeirs", "haeiot", "iabcdefglmnoprstvz", "kei", "ladeilostuy", "maeimops"),
        *("nacdefginostuv", "obcdglmnoprstuvw", "paehiloprtuy", "qu", "racdegimnorstuy"),
        *("sacehiopstu", "tacehioprstuy", "uabcelmnprst", "vaei", "wai", "xt", "yp", "ze"),
    ]
    for second in pairs[1:]
)
"""The 200 most frequent pairs of letters in English words: nine in ten of all."""


def looks_drawn(name: str) -> bool:
    """Whether a name looks drawn by chance.

    Of names with a drawn part behind ``-``, ``_`` or ``.``, or without a prefix, it finds 99 in
    100; it also takes one in six chosen names for drawn.

    >>> [looks_drawn(one) for one in ("tmpk3x_9aab", "build-AbXyKl", "go-build1234567890")]
    [True, True, True]
    >>> [looks_drawn(one) for one in ("data.csv", "report_2.txt", "test_x0")]
    [False, False, False]
    """
    if name.startswith(("tmp", ".tmp", "ipykernel_")):
        return True
    if any(len(part) in _LENGTHS and not _is_chosen(part) for part in _PARTS(name)):
        return True
    stem = name.partition(".")[0]
    return (
        _LONG_NUMBER(name) is not None
        or (stem[-9:-8] in ("-", "_") and not _is_chosen(stem[-8:]))
        or (_CHANGING(stem[-9:]) is not None and not _is_chosen(stem[-6:]))
    )


def surely_drawn(name: str) -> bool:
    """Whether a name was drawn by chance, so that no agent chose it, and it counts nothing.

    Of names without a prefix, it finds 93 in 100 of Python's and 99 of ``mktemp``; it takes one in
    250 chosen names for drawn.

    >>> [surely_drawn(one) for one in ("tmpk3x_9aab", "tmp.fQ0ZpX2b1c", "x-9fQ0Zp", "tmp_file_12")]
    [True, True, True, False]
    """
    found = _TEMPFILE(name)
    if found is not None:
        drawn = found[found.lastindex or 0]
        return not _is_chosen(drawn, share=2) and _WORD_AND_NUMBER(drawn) is None
    return _NUMBER_OF_GO(name) is not None or any(
        len(part) in _LENGTHS and len(_CLASSES(part)) > 3 and not _is_chosen(part, share=2)
        for part in _PARTS(name)
    )


def drawn_id(part: str) -> bool:
    """Whether letters and digits, at least 20, were drawn from all of them, as ids are.

    It finds 98 in 100; what people and programs name in camel case has words in it.

    >>> drawn_id("8Ch4pDW46sqKsJhkHgShE3zv"), drawn_id("parseHTTP2RequestHeaders")
    (True, False)
    """
    mixed = not (part.islower() or part.isupper())
    return mixed and len(_CLASSES(part)) * 3 > len(part) and not has_words(part)


def has_words(part: str) -> bool:
    """Whether half of it are words of three letters or more.

    >>> has_words("getUserById2"), has_words("011CSHoEeqs5C35K2UUqR7Fy")
    (True, False)
    """
    of_words = sum(len(word) for word in _LETTERS(part) if len(word) >= 3 and _is_word(word))
    return of_words * 2 >= len(part)


def _is_chosen(part: str, *, share: float = 1.5) -> bool:
    """Whether two thirds of it are words, or what ``share`` is the inverse of."""
    of_words = sum(len(word) for word in _LETTERS(part) if len(word) >= 4 and _is_word(word))
    return of_words * share >= len(part)


def _is_word(letters: str) -> bool:
    pairs = itertools.pairwise(letters.lower())
    rare = sum(first + second not in _COMMON_PAIRS for first, second in pairs)
    return rare <= (len(letters) - 1) // 4
