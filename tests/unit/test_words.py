"""Words to avoid in code, docs, examples, dashboards and tests, and what to write instead."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]

TREES: Final = {
    "src": ["src"],
    "tests": ["tests"],
    "docs": ["docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"],
    "examples": ["examples"],
    "dashboards": ["dashboards"],
    "benchmarks": ["benchmarks"],
    "build": ["Makefile", "pyproject.toml", ".ci", ".github", "conftest.py"],
}
TEXT: Final = re.compile(
    r".*\.(conf|css|html|js|json|md|mjs|py|service|sh|svg|toml|tsx?|txt|ya?ml)"
    r"|Containerfile|Makefile|run"
)
NOT_OURS: Final = frozenset({"node_modules", "build", "__pycache__", "test_words.py"})

INSTEAD: Final = {
    "told": "reported, given or known; name a variable by its content",
    "tell": "say, report or show; for 'tell apart', distinguish",
    "tells": "says, reports or shows; for 'tells apart', distinguishes",
    "is to be": "must be, or is",
    "are to be": "must be, or are",
    "whoever": "everyone who, or the component by its name",
    "nobody": "no user or no process, or the component by its name",
    "somebody": "a user or a process, or the component by its name",
    "gone on with": "continued",
    "of its own": "separate, or its own",
    "made to last": "committed",
    "anew": "again",
    "reckon": "compute",
    "reckons": "computes",
    "reckoned": "computed",
    "comes of": "is the result of, or becomes of",
    "hears of": "learns of, or receives",
    "turned away": "rejected",
    "rung": "action",
    "rungs": "actions",
    "ladder": "escalation",
    "telltale": "marker attribute",
    "telltales": "marker attributes",
    "excused": "exempt",
    "good run": "successful run",
    "good runs": "successful runs",
    "one outcome": "the same result; a run has an outcome, a step has a result",
    "same outcome": "the same result; a run has an outcome, a step has a result",
    "no X of mine": "the value, what is wrong with it, and what to use",
}

IN_TESTS: Final = frozenset({"told", "tell", "tells", "whoever", "gone on with"})
"""The words that do not occur in tests either."""


class Allowed(NamedTuple):
    """A place where a word may stand.

    Args:
        file: from the root of the repository.
        phrase: the text around the word; every occurrence of it in the file is allowed.
        reason: why nothing else can be written there.
    """

    file: str
    phrase: str
    reason: str


ALLOWED: Final[tuple[Allowed, ...]] = (
    Allowed(
        "src/tidegauge/diagnose/judges/rubric_judge.py",
        "to tell when it is done",
        "a person tells; and a rubric keeps its words, so that its scores stay comparable",
    ),
    Allowed(
        "src/tidegauge/diagnose/judges/judgement.py", "_file.tell()", "a method of Python's files"
    ),
)


class Found(NamedTuple):
    """A word, and the part of the text that it takes up."""

    word: str
    start: int
    end: int


def pattern(words: str) -> re.Pattern[str]:
    """Whole words, also as parts of an identifier, and over the ends of lines and of comments."""
    between = r"(?:[\s_#*/>|-]|&#160;)+"
    inside = between.join(r"[a-z]+" if word == "X" else word for word in words.split())
    return re.compile(rf"(?<![a-z]){inside}(?![a-z])", re.IGNORECASE)


PATTERNS: Final = {words: pattern(words) for words in INSTEAD}


def find(text: str, among: Collection[str] = tuple(INSTEAD)) -> Iterator[Found]:
    """Some words in a text, whose length stays: ``toldBy`` is read as ``told By``."""
    text = text.replace("\\n", "  ")  # in a string, where the n belongs to no word
    for words in among:
        for match in PATTERNS[words].finditer(text):
            yield Found(words, *match.span())
    for match in re.finditer(r"[A-Za-z]*[a-z][A-Z][A-Za-z]*", text):
        for words in joined(match[0]):
            if words in among:
                yield Found(words, *match.span())


@functools.cache
def joined(name: str) -> list[str]:
    """The words that a name such as ``toldBy`` joins."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [
        words
        for words, sought in PATTERNS.items()
        if sought.search(parts) and not sought.search(name)
    ]


def files(tree: str) -> Iterator[Path]:
    for name in TREES[tree]:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if TEXT.fullmatch(file.name) and file.is_file() and not NOT_OURS & {*file.parts}:
                yield file


def allowed_parts(text: str, phrase: str) -> list[tuple[int, int]]:
    spaced = r"\s+".join(re.escape(word) for word in phrase.split())
    return [match.span() for match in re.finditer(spaced, text)]


@functools.cache
def check(tree: str) -> tuple[list[str], set[Allowed]]:
    """One line for each word that is not allowed, and the exceptions that were needed."""
    lines, needed = [], set()
    for file in files(tree):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        exceptions = {
            each: allowed_parts(text, each.phrase) for each in ALLOWED if each.file == name
        }
        among = IN_TESTS if tree == "tests" else INSTEAD
        for word, start, end in sorted(find(text, among), key=lambda found: found.start):
            by = {
                each
                for each, parts in exceptions.items()
                if any(first <= start and end <= last for first, last in parts)
            }
            needed |= by
            if not by:
                line = text.count("\n", 0, start) + 1
                lines.append(f"{name}:{line}: {word!r}; write: {INSTEAD[word]}")
    return lines, needed


@pytest.mark.parametrize("tree", TREES)
def test_words_are_plain(tree: str) -> None:
    lines, _ = check(tree)
    assert not lines, f"{len(lines)} in {tree}:\n" + "\n".join(lines)


@pytest.mark.parametrize("tree", TREES)
def test_every_exception_is_needed(tree: str) -> None:
    _, needed = check(tree)
    roots = tuple(TREES[tree])
    left = [each for each in ALLOWED if each.file.startswith(roots) and each not in needed]
    assert not left, "remove these from ALLOWED"


def test_every_exception_is_in_a_tree_and_has_a_reason() -> None:
    roots = tuple(root for tree in TREES.values() for root in tree)
    for each in ALLOWED:
        assert each.file.startswith(roots), each
        assert each.reason, each


def test_an_exception_covers_its_phrase_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text("A person\ntells it.\nThe metric tells it.\n")
    one = Allowed("page.md", "A person tells", "a person speaks")
    other = Allowed("page.md", "A child tells", "is not there")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    monkeypatch.setitem(TREES, "page", ["page.md"])
    monkeypatch.setattr(f"{__name__}.ALLOWED", (one, other))
    lines, needed = check("page")
    assert [line.partition(";")[0] for line in lines] == ["page.md:3: 'tells'"]
    assert needed == {one}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The model is Told.", "told"),
        ("self._told = 1", "told"),
        ("told_at = MAX_RUNS", "told"),
        ("MAX_TOLD", "told"),
        ("runsTold", "told"),
        ("toldBy(run)", "told"),
        ('"said\\ntold"', "told"),
        ("Nobody answers", "nobody"),
        ("# which is to\n    # be seen", "is to be"),
        ("in a file of its\nown", "of its own"),
        ("what&#160;it&#160;is&#160;told", "told"),
        ("404: no run of mine", "no X of mine"),
        ("three steps with the same\n    outcome", "same outcome"),
        ("calibrate anew", "anew"),
        ("a collector of somebody else", "somebody"),
    ],
)
def test_finds(text: str, word: str) -> None:
    assert [found.word for found in find(text)] == [word]


@pytest.mark.parametrize("text", ["untold", "stellar", "its own", "to be", "telling", "mine"])
def test_finds_nothing_in(text: str) -> None:
    assert list(find(text)) == []
