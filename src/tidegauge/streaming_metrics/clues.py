"""Clues: what the texts of a step say of how the run goes, as small numbers.

An engineer who reads a run over an agent's shoulder looks at a few things: whether a command only
looks, edits, tests or undoes; which files it names; whether the result is an error, the same error,
the same failing tests; what is left of the plan. They are read here from the beginning (and end) of
the texts, so that only numbers and checksums enter a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from tidegauge.events import ABSENT, Call, CallResult
from tidegauge.streaming_metrics.fingerprint import arguments_start
from tidegauge.values import canonical_start

MAX_WORDS: Final = 200
"""How many distinct words of a text are read."""

_MAX_BYTES: Final = 4_096
_TAIL_BYTES: Final = 1_024
_MAX_PATHS: Final = 12
_MAX_FOUND: Final = 20


class CallClues(NamedTuple):
    """What the calls of a round say.

    Attributes:
        looks: whether all of them only look.
        edits: whether one changes a file.
        tests: whether one runs tests.
        undoes: whether one takes something back.
        ends: whether one hands in a result.
        paths: checksums of the files and pages that they name.
        open_tasks: tasks of the plan that are not done; ``None``, they write no plan.
        doubts: words of doubt.
        hopes: words of success.
        size: bytes of the arguments that were read.
    """

    looks: bool = False
    edits: bool = False
    tests: bool = False
    undoes: bool = False
    ends: bool = False
    paths: tuple[int, ...] = ()
    open_tasks: int | None = None
    doubts: int = 0
    hopes: int = 0
    size: int = 0


class ResultClues(NamedTuple):
    """What the results of a round say.

    Attributes:
        errors: words of errors.
        successes: words of success.
        error: checksum of the first line with an error, without its numbers; ``None``, none.
        failing: checksum of the names of the tests that fail; ``None``, none.
        returned: the return code; ``None``, none.
        size: bytes that were read.
        words: checksums of the words.
    """

    errors: int = 0
    successes: int = 0
    error: int | None = None
    failing: int | None = None
    returned: int | None = None
    size: int = 0
    words: frozenset[int] = frozenset()


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


SHELLS: Final = _set(
    """
    bash sh shell terminal execute_bash run_command run_shell_command exec exec_command
    local_shell cmd command run execute powershell
    """
)
"""Tools that run commands, in lower case."""

_LOOKS: Final = _set(
    """
    ls cat head tail grep rg ag find pwd less more tree wc stat file which type echo diff
    env open view read scroll get list search lookup look inspect think thought glob fetch
    goto go du df ps whoami date man help cd sort uniq awk cut screenshot extract show
    describe query examine observe wait switch select_from
    """
)
_EDITS: Final = _set(
    """
    edit write create insert str_replace apply patch apply_patch replace append tee mv cp rm
    mkdir touch update delete cancel book put take fill type_text save
    """
)
_ENDS: Final = _set(
    """
    submit finish done exit complete completion answer return stop end quit
    """
)
_UNDOES: Final = _set(
    """
    undo undo_edit revert rollback back go_back reset
    """
)

_SEGMENT: Final = re.compile(rb"&&|\|\||[;|\n]|\\n")
_HEAD: Final = re.compile(rb"[\s({\"']*(?:sudo\s+|time\s+|\w+=\S*\s+)*([\w./-]+)")
_COMMAND: Final = re.compile(rb'"(?:command|cmd|code|script)"\s*:\s*\[?"((?:[^"\\]|\\.)*)')
_WRITES: Final = re.compile(
    rb"(?<![0-9&<>-])>{1,2}\s*(?!/dev/null|&)[\w./~$\"']|sed\s+-i|<<\s*['\"]?\w"
)
_TESTS: Final = re.compile(
    rb"pytest|unittest|\btox\b|ctest|\bjest\b|mocha|phpunit|(?:npm|yarn|pnpm|cargo|go|mvn|gradle|make|"
    rb"dotnet|bun|deno)(?:\s+run)?\s+(?:test|check)|runtests|run_tests|test\.sh|tests?\.py"
)
_UNDO: Final = re.compile(rb"git\s+(?:checkout|restore|reset|stash|revert)\b|--undo\b")
_PATH: Final = re.compile(
    rb"https?://[^\s\"'<>)]+|(?<![\w.~/-])(?:[\w.~-]{0,64}/)+[\w.-]+"
    rb"|(?<![\w.-])[\w-]{1,64}\.[a-z]{1,4}\b"
)
_PLAN: Final = re.compile(rb"todo|plan|task_list|tasklist", re.I)
_OPEN: Final = re.compile(rb'"(?:pending|in_progress|todo|open|not_started)"|\[ \]')
_CLOSED: Final = re.compile(rb'"(?:completed|done|cancelled)"|\[[xX]\]')
_DOUBT: Final = re.compile(
    rb"\b(?:sorry|apolog\w+|unfortunately|stuck|unable|cannot|can't|couldn't|hmm|not sure|unsure|"
    rb"mistake|incorrect|wrong|instead|another|different|still|again|however|maybe|perhaps|"
    rb"doesn't|didn't|retry)\b",
    re.I,
)
_HOPE: Final = re.compile(
    rb"\b(?:done|complet\w+|success\w*|verified|works?|finally|found|solved|correct(?:ly)?|final)\b",
    re.I,
)
_ERROR: Final = re.compile(
    rb"error|exception|traceback|fail(?:ed|ure)?\b|cannot|can't|unable|not found|no such|denied|"
    rb"invalid|timed? ?out|nothing happens|unknown|unrecogni[sz]ed|illegal|not permitted|"
    rb"could not|blocked|captcha|no results|refused|undefined",
    re.I,
)
_SUCCESS: Final = re.compile(
    rb"\b(?:success\w*|passed|ok|completed?|saved|created|correct|finished|confirmed|0 failed)\b",
    re.I,
)
_FAILING: Final = re.compile(
    rb"(?:^|\n)(?:FAILED|FAIL:?|ERROR:?|--- FAIL:|not ok)\s+(\S+)|(?<!\S)(\S{1,200}) \.\.\. FAIL",
    re.I,
)
_RETURNED: Final = re.compile(
    rb"(?:return\s?code|exit(?:ed with)?\s(?:code|status))[>:=\s]*(-?\d{1,4})", re.I
)
_NUMBERS: Final = re.compile(rb"\d+|0x[0-9a-f]+")
_WORD: Final = re.compile(rb"[a-z_\x80-\xff][a-z0-9_\x80-\xff]{1,23}")
_DIGEST: Final = b"sha:"


def clues_of_calls(calls: Sequence[Call]) -> CallClues:
    """What the calls of a round say.

    >>> clues_of_calls([Call("bash", "cat a.py | head")]).looks
    True
    >>> clues_of_calls([Call("bash", "sed -i s/a/b/ src/a.py && pytest")])[:3]
    (False, True, True)
    """
    found = [_of_call(call) for call in calls]
    if len(found) == 1:
        return found[0]
    if not found:
        return CallClues()
    plans = [one.open_tasks for one in found if one.open_tasks is not None]
    return CallClues(
        all(one.looks for one in found),
        any(one.edits for one in found),
        any(one.tests for one in found),
        any(one.undoes for one in found),
        any(one.ends for one in found),
        tuple(dict.fromkeys([path for one in found for path in one.paths]))[:_MAX_PATHS],
        plans[-1] if plans else None,
        sum([one.doubts for one in found]),
        sum([one.hopes for one in found]),
        sum([one.size for one in found]),
    )


def _of_call(call: Call) -> CallClues:
    name = f"{call.action}".lower()
    data = arguments_start(call.arguments, _MAX_BYTES)
    if data.startswith(_DIGEST):
        data = b""
    heads = _heads(name, data)
    looks = bool(heads) and all(head in _LOOKS for head in heads)
    writes = name in SHELLS and _WRITES.search(data) is not None
    plan = None
    if _PLAN.search(name.encode("utf-8", "surrogatepass")):
        left, closed = len(_OPEN.findall(data)), len(_CLOSED.findall(data))
        plan = left if left or closed else None
    paths = [crc32(path) for path in _PATH.findall(data)]
    return CallClues(
        looks and not writes,
        writes or any(head in _EDITS for head in heads),
        _TESTS.search(data) is not None or "test" in name,
        _UNDO.search(data) is not None or any(head in _UNDOES for head in heads),
        any(head in _ENDS for head in heads),
        tuple(dict.fromkeys(paths))[:_MAX_PATHS],
        plan,
        min(len(_DOUBT.findall(data)), _MAX_FOUND),
        min(len(_HOPE.findall(data)), _MAX_FOUND),
        len(data),
    )


def _heads(name: str, data: bytes) -> list[str]:
    """The first words of the commands of a shell; of another tool, its name, and its first word."""
    command = _COMMAND.search(data)
    text = data if command is None else command.group(1)
    if name in SHELLS:
        parts = _SEGMENT.split(text)
    elif command is not None and len(text) < 40:
        parts = [text]  # an editor: its commands are view, create, ...
    else:
        return (
            [name, name.replace(" ", "_").split("_")[0]]
            if name in _ALL
            else [name.replace(" ", "_").split("_")[0]]
        )
    found = []
    for part in parts[:20]:
        head = _HEAD.match(part)
        if head is not None:
            found.append(head.group(1).decode("ascii", "replace").lower())
    return found


_ALL: Final = _LOOKS | _EDITS | _ENDS | _UNDOES


def clues_of_results(results: Iterable[CallResult]) -> ResultClues:
    """What the results of a round say.

    >>> clues = clues_of_results([CallResult("<returncode>1</returncode> a.py: not found")])
    >>> clues.returned, clues.errors, clues.error is None
    (1, 1, False)
    """
    data = b"\n".join([_ends(one.outcome) for one in results if one.outcome is not ABSENT])
    if data.startswith(_DIGEST):
        return ResultClues()
    error = _ERROR.search(data)
    line = None
    if error is not None:
        start = data.rfind(b"\n", 0, error.start()) + 1
        end = data.find(b"\n", error.start())
        line = crc32(_NUMBERS.sub(b"0", data[start : end if end >= 0 else len(data)][:200]))
    failing = {one or other for one, other in _FAILING.findall(data)}
    returned = _RETURNED.search(data)
    return ResultClues(
        min(len(_ERROR.findall(data)), _MAX_FOUND),
        min(len(_SUCCESS.findall(data)), _MAX_FOUND),
        line,
        crc32(b"\n".join(sorted(failing))) if failing else None,
        None if returned is None else int(returned.group(1)),
        len(data),
        text_words(data),
    )


def _ends(value: object) -> bytes:
    """The beginning of a value's text; of a text, also its end."""
    if type(value) is str and len(value) > _MAX_BYTES:
        head, tail = value[:_MAX_BYTES], value[-_TAIL_BYTES:]
        return (head + "\n" + tail).encode("utf-8", "surrogatepass")
    return canonical_start(value, _MAX_BYTES + _TAIL_BYTES)


def text_words(data: bytes) -> frozenset[int]:
    """Checksums of the first distinct words of a text.

    >>> text_words(b"Red SHOES, red") == text_words(b"shoes red")
    True
    """
    found = dict.fromkeys(_WORD.findall(data.lower()))
    return frozenset([crc32(word) for word in list(found)[:MAX_WORDS]])
