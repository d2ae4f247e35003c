"""Files: what a coding agent reads and edits, and the paths in what it is shown.

Paths are found in listings, searches, trees and diffs line by line, in text of bounded length and
in time proportional to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidegauge.events import Call, CallResult, Identity, Reach
from tidegauge.instrumentation.extractors.contents import (
    SEARCHES,
    Arguments,
    applies,
    arguments_of,
    body_of,
    first_text,
    leaves,
    search_place,
    searches,
    text_of,
    tool_names,
)
from tidegauge.instrumentation.extractors.shell import FileUse, file_use, is_command
from tidegauge.runs.extraction import MAX_ITEMS, Observation

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


_FILE_ARGUMENTS: Final = (
    "path",
    "file",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "file_name",
    "absolute_path",
    "target_file",
    "notebook_path",
)
_FOLDER_ARGUMENTS: Final = ("directory", "dir", "dir_path", "folder", "directory_path")
_COMMAND_ARGUMENTS: Final = ("command", "cmd", "commands")
_EDITS: Final = frozenset(
    {"content", "new_string", "newString", "new_str", "replacement", "file_text", "edits"}
)
_PATH_KEYS: Final = frozenset({"path", "file", "file_path", "filename", "name", "files", "paths"})
_FILE_LINE: Final = re.compile(r"\[File: (/\S{1,400}) \(")
_MISSING: Final = ("No such file or directory", "cannot access")
_DEFINED: Final = re.compile(
    r"\b(?:def|class|function|func|fn|struct|interface|enum|trait)[ \t]{1,9}(\w{1,200})"
)
_WORD: Final = re.compile(r"\b[A-Za-z_]\w{2,199}\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """Reads a coding agent's calls: the place is a file, a folder, or a search.

    - A call with a path, or a shell command that reads or writes a file (``cat``, ``sed``, ``>``
      and the like), stands at that file.
    - A call that lists a folder stands at the folder; its exits are the entries (plain, ``ls -l``,
      ``tree``, JSON).
    - A search (a ``pattern`` or ``query``, or ``grep``, ``find``, ``git diff`` and the like) is
      a place itself when it found anything; its exits are the paths that it shows, as
      ``path:line:``, alone on a line, in a diff or in JSON. The same search is the same place.

    A shell's folder is not followed from one call to the next: give ``working_directory``, and
    what ``cd`` does counts for the rest of its line. Entities (for the recall lag) are the paths
    shown, and those in a call's arguments.

    Args:
        tools: names of the tools to read; ``None``, all whose arguments have one of the names
            below, or that are named like the shell commands known here.
        path_arguments: names of the arguments that hold a file or folder.
        folder_arguments: names of those that always hold a folder.
        command_arguments: names of those that hold a shell command. Arguments that are text alone
            are taken for one as well.
        working_directory: where relative paths start; paths below it are written relative to it.
        identifiers: whether the names of functions and classes that a result defines, and the
            words of a call's arguments, are entities too.
        reach: how the agent moves between files.

    >>> files = Files(working_directory="/repo")
    >>> found = CallResult("src/app.py:3:import cart\\ntests/test_cart.py:1:import cart")
    >>> files.observe(Call("bash", {"command": "grep -rn cart ."}), found).exits
    ('src/app.py', 'tests/test_cart.py')
    >>> files.observe(Call("read_file", {"path": "/repo/src/app.py"}), CallResult("...")).place
    'src/app.py'
    """

    tools: Collection[str] | None = None
    path_arguments: Collection[str] = _FILE_ARGUMENTS
    folder_arguments: Collection[str] = _FOLDER_ARGUMENTS
    command_arguments: Collection[str] = _COMMAND_ARGUMENTS
    working_directory: str = ""
    identifiers: bool = False
    reach: Reach | None = "anywhere"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tool_names(self.tools))

    def uses(self, call: Call) -> Iterable[Identity]:
        """The file or folder of the call; with ``identifiers``, its words."""
        return self.used(call, arguments_of(call)) if applies(self.tools, call) else ()

    def used(self, call: Call, arguments: Arguments) -> tuple[Identity, ...]:
        """What a call uses whose arguments were read."""
        use = self._use(call, arguments)
        path = None
        if use is not None and use.kind != "search":
            path = normalised_path(use.path or ".", self.working_directory)
        found: tuple[Identity, ...] = () if path is None else (path,)
        if self.identifiers:
            found += _first(_WORD.findall(text_of(arguments)))
        return found

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        """Where the call stands, and the paths that it shows."""
        if result.error or not applies(self.tools, call):
            return None
        return self.shown(call, arguments_of(call), body_of(result.outcome))

    def shown(self, call: Call, arguments: Arguments, body: object) -> Observation | None:
        """What a call shows whose arguments and result were read."""
        use: FileUse | None = None
        if isinstance(body, str):
            opened = _FILE_LINE.match(body)  # an editor says so, as SWE-agent's does
            use = FileUse("read", opened.group(1)) if opened else None
        use = use or self._use(call, arguments)
        if use is None:
            return None
        shown: tuple[str, ...] | None = None
        place: Identity | None
        if use.kind == "search":
            found = (posixpath.join(use.path, path) for path in _found(body))
            shown = self._paths(found)
            place = search_place(call, arguments) if shown else None
        else:
            place = None
            if not _is_missing(body):
                place = normalised_path(use.path or ".", self.working_directory)
            lists = use.kind == "list" or _is_listing(use.path, body)
            if lists and not _lists_itself(use.path, body):
                shown = self._paths(_entries(body, use.path))
        if place is None:
            return None
        if shown is None and not self.identifiers:
            return Observation(place)
        exits = None if shown is None else tuple([path for path in shown if path != place])
        defined = _DEFINED.findall(text_of(body)) if self.identifiers else ()
        return Observation(place, exits, mentions=_first([*(exits or ()), *defined]))

    def _use(self, call: Call, arguments: Arguments) -> FileUse | None:
        """What the call does with files."""
        if isinstance(arguments, str):
            line = f"{call.action} {arguments}" if is_command(call.action) else arguments
            use = file_use(line)
            prose = use is not None and use.kind == "read" and not is_file(use.path)
            return None if prose else use
        asks = not SEARCHES.isdisjoint(arguments) and _EDITS.isdisjoint(arguments)
        if asks and searches(arguments):
            return FileUse("search", "")
        path = first_text(arguments, self.path_arguments)
        if path is not None:
            return FileUse("read", path)
        folder = first_text(arguments, self.folder_arguments)
        if folder is not None:
            return FileUse("list", folder)
        command = first_text(arguments, self.command_arguments)
        if command is not None:
            return file_use(command)
        return file_use(call.action) if not arguments else None

    def _paths(self, found: Iterable[str]) -> tuple[str, ...]:
        paths = (normalised_path(path, self.working_directory) for path in found)
        return _first(path for path in paths if path is not None and path != ".")


def _entries(body: object, folder: str) -> Iterator[str]:
    """The entries of a listing: of text, or of a JSON value's texts."""
    if isinstance(body, str):
        return listed_paths(body, folder)
    texts = (leaf.text for leaf in leaves(body) if leaf.key in _PATH_KEYS or not leaf.key)
    return (entry_path(folder, text) for text in texts)


def _is_missing(body: object) -> bool:
    """Whether a shell says in a line or two that there is no such file, and calls it no error."""
    return isinstance(body, str) and len(body) < 400 and any(word in body for word in _MISSING)


def _found(body: object) -> Iterator[str]:
    """The paths that a search shows."""
    for leaf in leaves(body):
        if leaf.key in _PATH_KEYS:
            yield leaf.text
        else:
            yield from searched_paths(leaf.text)


def _is_listing(path: str, body: object) -> bool:
    """Whether a call with a path listed a folder: names of files mostly have a suffix."""
    if isinstance(body, list):
        return all(isinstance(entry, str | Mapping) for entry in body)
    name = posixpath.basename(path.rstrip("/"))
    if not isinstance(body, str) or (posixpath.splitext(name)[1] and name not in (".", "..")):
        return False
    return looks_listed(body)


def _lists_itself(path: str, body: object) -> bool:
    """Whether a listing has one entry, which is the path: then that is a file."""
    if not path or not isinstance(body, str):
        return False
    lines = body.strip().splitlines()
    return len(lines) == 1 and lines[0].split()[-1:] == [path]


def _first(names: Iterable[str]) -> tuple[str, ...]:
    """The first of them, each once."""
    return tuple(dict.fromkeys(islice(names, MAX_ITEMS)))
