"""What a shell command does with files: as far as a quick look shows."""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

ShellUse: TypeAlias = Literal["read", "list", "search"]

_MAX_COMMAND: Final = 2_000
_SEPARATORS: Final = frozenset("();<>|&\n")
_READ: Final = frozenset(
    {"awk", "bat", "cat", "create", "edit", "emacs", "head", "insert", "less", "more", "nano"}
    | {"nl", "open", "sed", "stat", "str_replace", "strings", "tail", "touch", "undo_edit", "vi"}
    | {"view", "vim", "wc", "xxd"}
)
_LIST: Final = frozenset({"dir", "ls", "tree"})
_SEARCH: Final = frozenset(
    {"ack", "ag", "egrep", "fd", "fgrep", "find", "find_file", "git", "grep", "locate", "rg"}
    | {"search_dir", "search_file"}
)
_GREP: Final = frozenset({"ack", "ag", "egrep", "fgrep", "grep", "rg", "search_file"})
_SCRIPTED: Final = frozenset({"awk", "sed"})  # their first operand is a script
_GIT_PATHS: Final = frozenset({"diff", "grep", "ls-files", "show"})
_KNOWN: Final = re.compile(rf"\b(?:{'|'.join(sorted(_READ | _LIST | _SEARCH))})\b|>")
_GLOB: Final = re.compile(r"(?:(?<=/)|^)[^/]*[*?\[]")
_NUMBER: Final = re.compile(r"[\d,:+$-]+p?")
_CHANGES: Final = frozenset({"cp", "create", "edit", "mkdir", "mv", "patch", "rm", "tee", "touch"})
_IN_PLACE: Final = frozenset({"perl", "sed"})
_ASSIGNED: Final = re.compile(r"\w{1,100}=")
_RUNNERS: Final = frozenset({"npx", "bunx", "env", "exec", "nice", "time", "timeout", "xvfb-run"})
_RUNNERS_WITH_WORD: Final = frozenset({"bundle", "hatch", "pdm", "pipenv", "poetry", "uv"})
_TESTS: Final = re.compile(
    r"(?:pytest|py\.test|tox|nox|jest|vitest|mocha|rspec|ctest)\b"
    r"|(?:go|swift|dotnet|deno|bun) test\b|cargo (?:test|t|nextest)\b|npm t\b"
    r"|(?:npm|pnpm|yarn|make|just|rake)(?: run)?(?: -\S{1,40}){0,5} \S{0,40}(?:test|check|spec)"
    r"|node .{0,200}--test\b"
    r"|python[\d.]{0,9}(?: -[bBEIsSu]){0,5} (?:-m (?:pytest|unittest|nose)"
    r"|\S{0,200}test\S{0,200}\.py|\S{0,200}manage\.py test\b)"
)
_MAY_TEST: Final = re.compile(r"test|jest|spec|tox|nox|mocha|check|cargo t\b|npm t\b")
_MAY_CHANGE: Final = re.compile(rf"\b(?:{'|'.join(sorted(_CHANGES | _IN_PLACE))}|apply)\b|>")
_MAX_RUNNER_WORDS: Final = 12


def is_command(name: str) -> bool:
    """Whether that is the name of a command that is known here."""
    return name == "cd" or name in _READ or name in _LIST or name in _SEARCH


class FileUse(NamedTuple):
    """What a command does, and with which file or folder (``""``: the one it is run in).

    The path of a search is the folder it is run in, which is where its results start from.
    """

    kind: ShellUse
    path: str


def file_use(command: str) -> FileUse | None:
    """The last thing that a command line does with files; ``None``, nothing that is known here.

    Only its first 2,000 characters are read. A ``cd`` counts for what comes
    after it on the line.

    >>> file_use("cd src && head -n 20 app/main.py | grep import")
    FileUse(kind='read', path='src/app/main.py')
    >>> file_use("ls -la tests"), file_use("grep -rn needle ."), file_use("make test")
    (FileUse(kind='list', path='tests'), FileUse(kind='search', path=''), None)
    """
    command = command[:_MAX_COMMAND]
    folder, found = "", None
    if _KNOWN.search(command) is None:
        return None
    for words in _commands(command):
        name = posixpath.basename(words[0])
        operands = _operands(words)
        if name == "cd":
            folder = posixpath.join(folder, operands[0] if operands else "~")
            continue
        use = _use(name, operands, recursive=any(_is_recursive(word) for word in words))
        if use is not None:
            found = FileUse(use.kind, posixpath.join(folder, use.path) if use.path else folder)
    return found


def changes_files(command: str) -> bool:
    """Whether a command line writes, moves or removes files, as far as a quick look shows.

    >>> changes_files("echo x >> log.txt"), changes_files("sed -i s/a/b/ a.py"), changes_files("ls")
    (True, True, False)
    """
    command = command[:_MAX_COMMAND]
    if _MAY_CHANGE.search(command) is None:
        return False
    for words in _commands(command):
        name = posixpath.basename(words[0])
        if name in _CHANGES or words[:2] == ["git", "apply"]:
            return True
        if name in _IN_PLACE and any(word.startswith("-") and "i" in word for word in words[1:]):
            return True
    return False


def runs_tests(command: str) -> bool:
    """Whether a command line runs tests.

    >>> runs_tests("cd app && CI=1 uv run pytest -q | tail -3"), runs_tests("cat pytest.ini")
    (True, False)
    """
    command = command[:_MAX_COMMAND]
    return _MAY_TEST.search(command) is not None and any(
        _TESTS.match(" ".join(_without_runner(words))) for words in _commands(command)
    )


def _without_runner(words: Sequence[str]) -> Sequence[str]:
    """A command without what runs it: ``timeout 60``, ``uv run``, ``CI=1``."""
    for _ in range(_MAX_RUNNER_WORDS):
        name = posixpath.basename(words[0])
        if _ASSIGNED.match(words[0]) or name in _RUNNERS:
            words = words[1:]
        elif name in _RUNNERS_WITH_WORD and words[1:2] in (["run"], ["exec"]):
            words = words[2:]
        elif words[0][:1] == "-" or words[0][:1].isdigit():  # an option of the runner
            words = words[1:]
        else:
            return [name, *words[1:]]
        if not words:
            return [""]
    return words


def _use(name: str, operands: Sequence[str], *, recursive: bool) -> FileUse | None:
    if name in _LIST:
        return FileUse("list", _GLOB.split(operands[0])[0] if operands else "")
    if name in _READ:
        files = [each for each in operands[name in _SCRIPTED :] if not _NUMBER.fullmatch(each)]
        return FileUse("read", files[0]) if files else None
    if name == "git" and (not operands or operands[0] not in _GIT_PATHS):
        return None
    if name not in _SEARCH:
        return None
    paths = operands[1:] if name in _GREP else ()
    if len(paths) == 1 and not recursive and posixpath.splitext(paths[0])[1]:
        return FileUse("read", paths[0])  # a search in one file is a look at it
    return FileUse("search", "")


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each command on the line, but for those that another one feeds by a pipe.

    A file that output is sent to gives a separate command ``edit``. What a here-document holds
    is not a command.
    """
    words: list[str] = []
    fed = here_document = False
    redirect = ""
    for word in [*_words(line), ";"]:
        separates = bool(word) and _SEPARATORS.issuperset(word)
        if separates and ("<" in word or ">" in word):
            redirect = word
            here_document |= word == "<<"
            if words and words[-1].isdigit():  # the 2 of 2>errors
                words.pop()
        elif separates:
            if words and not fed:
                yield words
            words, fed = [], word == "|"
            if here_document and "\n" in word:
                return
        elif not redirect:
            words.append(word)
        else:
            if redirect in (">", ">>") and not word.startswith("/dev/"):
                yield ["edit", word]
            redirect = ""


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    with contextlib.suppress(ValueError):  # a quote is not closed: what came before it counts
        words.extend(lexer)
    return words


def _operands(words: Sequence[str]) -> list[str]:
    """What follows the name and is no option, nor a number that belongs to one."""
    return [
        word
        for before, word in pairwise(words)
        if not word.startswith("-") and not (before.startswith("-") and word.isdigit())
    ]


def _is_recursive(word: str) -> bool:
    return word == "--recursive" or (word[:1] == "-" and word[1:2] != "-" and "r" in word.lower())
