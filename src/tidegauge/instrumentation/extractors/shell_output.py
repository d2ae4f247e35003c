"""What a command or a tool of a coding agent has printed, without what its agent says about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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
