"""Paths of files in what listings, searches, trees and diffs print.

All of it goes line by line over text of bounded length, and takes time in proportion to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

_MAX_PATH: Final = 400
_NAME: Final = r"[\w.@+~#%()\[\]{}=,$-]"
_PATH: Final = re.compile(rf"(?:[A-Za-z]:/|/)?{_NAME}+(?:/{_NAME}+)*/?")
_SUFFIX: Final = re.compile(r"\.[A-Za-z]\w{0,9}$")
_HIT: Final = re.compile(r"((?:[A-Za-z]:)?[^\s:]{1,400})[:(]\d")  # path:line: or path(line)
_HIT_WITHOUT_LINE: Final = re.compile(r"((?:[A-Za-z]:)?[^\s:]{1,400}):")
_DIFF: Final = re.compile(
    r"(?:\+\+\+ b/|--- a/|rename (?:from|to) |\*\*\* \w+ File: |File: )(\S{1,400})"
)
_LONG: Final = re.compile(r"[bcdlps-][rwxsStT-]{9}[.+@]?\s")  # ls -l
_BRANCHES: Final = ("├── ", "└── ", "|-- ", "`-- ", "+-- ")
_CLASSES: Final = "*=@|"  # what ls -F puts behind names
_COLUMNS: Final = re.compile(r"\t[\t ]*|  +")


def normalised_path(path: str, root: str = "") -> str | None:
    """The path in its normal form; ``None`` if it is not a file's.

    Args:
        path: relative to ``root``, or absolute.
        root: folder below which paths are written relative to it; others stay absolute.

    >>> normalised_path("./lib/../app.py"), normalised_path("/repo/src/", root="/repo")
    ('app.py', 'src')
    >>> normalised_path("/repo", root="/repo"), normalised_path("https://a.example")
    ('.', None)
    """
    path = path.strip().strip("'\"`")
    if not path or len(path) > _MAX_PATH or "\n" in path or "\0" in path:
        return None
    path = path.removeprefix("file://")
    if "://" in path:
        return None
    if ("\\" in path and "/" not in path) or path[1:3] == ":\\":
        path = path.replace("\\", "/")
    if not path.startswith(("/", "~")) and path[1:2] != ":":
        path = posixpath.join(root, path)
    path = posixpath.normpath(path)
    if root:
        root = posixpath.normpath(root)
        if path == root:
            return "."
        path = path.removeprefix(root.rstrip("/") + "/")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def looks_listed(text: str) -> bool:
    """Whether the text is a tree, or every line of it entries of a listing.

    >>> looks_listed("app.py\\nlib/\\n"), looks_listed("import app\\n\\nrun()"), looks_listed("")
    (True, False, False)
    """
    if any(branch in text for branch in _BRANCHES):
        return True
    lines = [line.strip() for line in text.splitlines() if not line.isspace()]
    return any(lines) and all(
        line.startswith("total ")
        or _LONG.match(line)
        or all(_PATH.fullmatch(_bare(name)) for name in _COLUMNS.split(line))
        for line in filter(None, lines)
    )


def listed_paths(text: str, folder: str = "") -> Iterator[str]:
    """The entries of a folder's listing: plain, in columns, long, by folders, or a tree.

    Args:
        text: the listing.
        folder: what is listed, to which its entries are joined; lines such as ``src:`` change it.

    >>> list(listed_paths("total 8\\n-rw-r--r-- 1 me me 65 Jul 17 01:31 a.py\\n"))
    ['a.py']
    >>> list(listed_paths(".\\n├── src\\n│   └── a.py\\n└── README.md\\n\\n1 directory, 2 files"))
    ['src', 'src/a.py', 'README.md']
    """
    above: list[str] = []  # of a tree's entry
    tree = any(branch in text for branch in _BRANCHES)
    for line in text.splitlines():
        if tree:
            depth, name = _tree_entry(line)
            if name:
                del above[depth:]
                above.append(name)
                yield posixpath.join(folder, *above[-_MAX_PATH:])
            continue
        entry = line.strip()
        if entry.endswith(":") and _PATH.fullmatch(entry[:-1]):
            folder = entry[:-1]
            continue
        if _LONG.match(entry):
            names = [entry.split(None, 8)[-1].partition(" -> ")[0]]
        else:
            names = [name for name in _COLUMNS.split(entry) if _PATH.fullmatch(_bare(name))]
            names = [name for name in names if not name.isdigit()]  # a count, by wc
        for name in map(_bare, names):
            if name not in ("", ".", "..", "./", "../"):
                yield entry_path(folder, name)


def entry_path(folder: str, name: str) -> str:
    """The path of a folder's entry, which some listings give as a whole already."""
    return name if name.startswith(folder.rstrip("/") + "/") else posixpath.join(folder, name)


def searched_paths(text: str) -> Iterator[str]:
    """The paths that a search or a diff prints: ``path:line:``, ``path:``, or alone on a line.

    >>> list(searched_paths("src/a.py:12:def main():\\nFound 2\\nsrc/b.py\\n+++ b/lib/c.py"))
    ['src/a.py', 'src/b.py', 'lib/c.py']
    """
    for full in text.splitlines():
        line = full[: 3 * _MAX_PATH].strip()
        diff = _DIFF.match(line)
        if diff:
            yield diff.group(1)
            continue
        plain = line.replace("\\", "/") if "/" not in line else line
        hit = _HIT.match(plain) or _HIT_WITHOUT_LINE.match(plain)
        path = hit.group(1) if hit else plain
        if len(path) <= _MAX_PATH and _PATH.fullmatch(path) and is_file(path):
            yield path


def _bare(name: str) -> str:
    return name.strip().rstrip(_CLASSES)


def is_file(path: str) -> bool:
    """Whether it would be taken for a path outside of any listing."""
    return "/" in path.strip("/") or _SUFFIX.search(path) is not None


def _tree_entry(line: str) -> tuple[int, str]:
    """Depth and name of a tree's entry; no name, the line is none."""
    for branch in _BRANCHES:
        before, found, name = line.partition(branch)
        if found and not before.strip("│| \xa0"):
            return len(before) // 4, _bare(name.partition(" -> ")[0])
    return 0, ""
