"""What the commands and tools of a coding agent print: the output alone, and the tests that passed.

:func:`printed` removes what the agent itself says about a command; :func:`share_passed` reads the
summaries of test runners.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidegauge.instrumentation.extractors.contents import TEXT_LIMIT, body_of

_HEAD_CHARACTERS: Final = 4_000
_CODEX_HEAD: Final = re.compile(r"(?:[A-Z][^\n]{0,200}\n){0,8}?Output:\n")
_OUTPUT: Final = re.compile(r"^(?:Output|Stdout): ?", re.MULTILINE)
_TRAILER: Final = re.compile(
    r"^(?:Error|Stderr|Exit Code|Signal|Background PIDs|Process Group PGID): ", re.MULTILINE
)
_LISTING_HEAD: Final = re.compile(
    r"(?:Listed \d+ item\(s\)\.\s+)?(?:---\n)?"
    r"(?:Directory listing for|Here's the files and directories) [^\n]*:\n"
)
_FOLDER_MARK: Final = re.compile(r"^\[DIR\] ", re.MULTILINE)
_SIZE: Final = re.compile(r" \(\d{1,15} bytes\)$", re.MULTILINE)
_REMARK: Final = re.compile(r"^\([^\n]{1,200}\)$", re.MULTILINE)  # such as (3 entries)


def printed(outcome: object) -> object:
    r"""The text that a command has printed, or the entries of a listing; else the unwrapped result.

    >>> printed("Process exited with code 0\nOutput:\napp.py")
    'app.py'
    >>> printed("<untrusted_context>\nOutput: app.py\nExit Code: 1\n</untrusted_context>")
    'app.py\n'
    >>> printed({"stdout": "app.py", "stderr": ""}), printed('{"returncode": 0, "output": "a"}')
    ('app.py', 'a')
    >>> printed("Directory listing for /shop:\n[DIR] lib\napp.py (65 bytes)")
    'lib\napp.py'
    """
    if isinstance(outcome, str) and len(outcome) > TEXT_LIMIT:  # the end says how it went
        outcome = outcome[: TEXT_LIMIT // 2] + "\n" + outcome[-TEXT_LIMIT // 2 :]
    body = body_of(outcome)
    if isinstance(body, Mapping):
        return _output_in(body)
    if not isinstance(body, str):
        return body
    head = _CODEX_HEAD.match(body)
    if head is not None:
        return body[head.end() :]
    wrapped = body.startswith("<untrusted_context>\n")
    if wrapped:
        body = body.removeprefix("<untrusted_context>\n").rstrip()
        body = body.removesuffix("</untrusted_context>")
    if wrapped or body.startswith(("Command: ", "Output: ", "Stdout: ")):
        return _without_frame(body)
    if body.startswith("<path>"):
        _, found, entries = body.partition("<entries>\n")
        return _REMARK.sub("", entries.partition("</entries>")[0]) if found else body
    head = _LISTING_HEAD.match(body)  # a tool says around the entries what it has listed
    if head is None:
        return body
    rest = _SIZE.sub("", _FOLDER_MARK.sub("", body[head.end() :]))
    return _REMARK.sub("", rest)


def _output_in(body: Mapping[object, object]) -> object:
    """The output in an object that a shell gives back."""
    output = body.get("output")
    if isinstance(output, str):
        return output
    parts = [body.get("stdout"), body.get("stderr")]
    texts = [part for part in parts if isinstance(part, str) and part]
    return "\n".join(texts) if texts or "stdout" in body else body


def _without_frame(text: str) -> str:
    """The output of a command of Gemini CLI or Qwen Code: between two labels."""
    begins = _OUTPUT.search(text, 0, _HEAD_CHARACTERS)
    if begins is None:
        return text
    text = text[begins.end() :]
    tail = max(0, len(text) - _HEAD_CHARACTERS)
    ends = _TRAILER.search(text, tail)
    return text if ends is None else text[: ends.start()]


class _Counts(NamedTuple):
    passed: int
    failed: int


_COLOR: Final = re.compile(r"\x1b\[[\d;]{0,20}m")
_COUNT: Final = re.compile(r"(\d{1,9}) (passed|failed|errors?|failures?|examples?|todo|skipped)\b")
_PYTEST: Final = re.compile(
    r"^=*[ ]?(\d{1,9} [a-z]+(?:, \d{1,9} [a-z]+){0,9}) in \d[\d.]{0,15}s\b", re.MULTILINE
)
_UNITTEST: Final = re.compile(
    r"^Ran (\d{1,9}) tests? in [^\n]{0,40}\n\s{0,9}(OK|FAILED)(?: \(([^)\n]{0,200})\))?",
    re.MULTILINE,
)
_JEST: Final = re.compile(
    r"^[ ]{0,9}Tests:?[ ]{1,9}((?:\d{1,9} [a-z]+(?:, | \| )?){1,6})", re.MULTILINE
)
_MOCHA: Final = re.compile(r"^[ ]{1,9}(\d{1,9}) passing\b", re.MULTILINE)
_MOCHA_FAILED: Final = re.compile(r"^[ ]{1,9}(\d{1,9}) failing\b", re.MULTILINE)
_TAP: Final = re.compile(r"^[#ℹ] (pass|fail) (\d{1,9})$", re.MULTILINE)  # noqa: RUF001
_CARGO: Final = re.compile(r"^test result: \w+\. (\d{1,9}) passed; (\d{1,9}) failed", re.MULTILINE)
_NEXTEST: Final = re.compile(
    r"^\s{0,20}Summary \[[^]\n]{0,40}\] [^\n:]{1,80}: ([^\n]{1,200})$", re.MULTILINE
)
_GO_TEST: Final = re.compile(r"^--- (PASS|FAIL): ", re.MULTILINE)
_GO_PACKAGE: Final = re.compile(r"^(ok|FAIL)[ ]{0,9}\t\S", re.MULTILINE)
_RSPEC: Final = re.compile(r"^(\d{1,9}) examples?, (\d{1,9}) failures?", re.MULTILINE)
_NUMBER: Final = re.compile(r"=(\d{1,9})")
_FAILED: Final = frozenset({"failed", "error", "errors", "failure", "failures"})


def share_passed(text: str) -> float | None:
    r"""Passed of passed and failed tests; ``None``, the text does not say it, or none was run.

    Those of pytest, unittest, Jest, Vitest, Mocha, ``node --test``, ``go test``, ``cargo test``,
    cargo-nextest and RSpec are read. Skipped tests do not count; errors count as failed. If there
    are several summaries of one runner, those of ``cargo test`` and ``go test`` are added (one
    for each package), and of the others, the last counts. ``go test`` without ``-v`` does not
    print tests that pass: then packages are counted.

    >>> share_passed("== 1 failed, 2 passed, 4 skipped, 1 error in 0.2s =="), share_passed("ok")
    (0.5, None)
    >>> share_passed("ok  \texample/a\t0.1s\nFAIL\texample/b\t0.2s\n")
    0.5
    """
    text = _COLOR.sub("", text).replace("\r\n", "\n")
    for read in _READERS:
        counts = read(text)
        if counts is not None:
            total = counts.passed + counts.failed
            return counts.passed / total if total else None
    return None


def _words(found: list[str]) -> _Counts | None:
    """The counts in the last of some summaries such as ``1 failed, 2 passed``."""
    if not found:
        return None
    counted = [(int(number), word) for number, word in _COUNT.findall(found[-1])]
    passed = sum(number for number, word in counted if word == "passed")
    return _Counts(passed, sum(number for number, word in counted if word in _FAILED))


def _pytest(text: str) -> _Counts | None:
    return _words(_PYTEST.findall(text))


def _unittest(text: str) -> _Counts | None:
    found = _UNITTEST.findall(text)
    if not found:
        return None
    ran, _, details = found[-1]
    given = {part.split("=")[0].strip(): part for part in details.split(",")}
    numbers = {
        name: int(match[1]) for name, part in given.items() if (match := _NUMBER.search(part))
    }
    failed = numbers.get("failures", 0) + numbers.get("errors", 0)
    return _Counts(max(0, int(ran) - failed - numbers.get("skipped", 0)), failed)


def _jest(text: str) -> _Counts | None:
    return _words(_JEST.findall(text))


def _mocha(text: str) -> _Counts | None:
    passed, failed = _MOCHA.findall(text), _MOCHA_FAILED.findall(text)
    if not passed:
        return None
    return _Counts(int(passed[-1]), int(failed[-1]) if failed else 0)


def _tap(text: str) -> _Counts | None:
    found = {word: int(number) for word, number in _TAP.findall(text)}
    return _Counts(found["pass"], found["fail"]) if len(found) == 2 else None


def _cargo(text: str) -> _Counts | None:
    found = _CARGO.findall(text)
    if not found:
        return None
    return _Counts(sum(int(one[0]) for one in found), sum(int(one[1]) for one in found))


def _nextest(text: str) -> _Counts | None:
    return _words(_NEXTEST.findall(text))


def _go(text: str) -> _Counts | None:
    tests = _GO_TEST.findall(text)
    if "PASS" in tests:
        return _Counts(tests.count("PASS"), tests.count("FAIL"))
    packages = _GO_PACKAGE.findall(text)
    return _Counts(packages.count("ok"), packages.count("FAIL")) if packages else None


def _rspec(text: str) -> _Counts | None:
    found = _RSPEC.findall(text)
    if not found:
        return None
    examples, failed = map(int, found[-1])
    return _Counts(max(0, examples - failed), failed)


_READERS: Final[tuple[Callable[[str], _Counts | None], ...]] = (
    *(_pytest, _unittest, _cargo, _nextest, _go, _jest, _mocha, _tap, _rspec),
)
