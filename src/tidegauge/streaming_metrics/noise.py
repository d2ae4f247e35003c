"""What changes in a text without meaning anything, as patterns.

Every pattern is linear in the length of the text, also where the text is made to hurt: none has a
repetition without a bound inside of a repetition, and what it has consumed in vain is not
consumed again from each of its characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

__all__ = ["Kind", "Rule", "rules"]

Kind: TypeAlias = Literal[
    "uuids",
    "request_ids",
    "addresses",
    "temporary_paths",
    "durations",
    "timestamps",
    "hex_ids",
    "numbers",
]
"""In the order in which they are applied."""

Rule: TypeAlias = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""A pattern, and what stands for what it matches."""


@functools.cache
def rules(kind: Kind) -> tuple[Rule, ...]:
    """The rules of a kind; compiled when they are asked for, not when this is imported."""
    replacement = _PLACEHOLDERS.get(kind, _temporary)
    return tuple((re.compile(pattern), replacement) for pattern in _PATTERNS[kind])


def _first(characters: str, *, not_after: str = r"\w.") -> str:
    r"""The first character of a match, where it begins a word.

    It is consumed before one looks at what precedes it: the engine skips quickly to the first
    character of a pattern, but not past a look-behind. Texts are often JSON, where a letter may
    belong to the escape before it: ``\n12 ms``.
    """
    return rf"{characters}(?:(?<![{not_after}]{characters})|(?<=\\[bfnrt]{characters}))"


_WORD: Final = r"(?:(?<!\w)|(?<=\\[bfnrt]))"
_DIGIT: Final = _first(r"\d")
_HEX: Final = "[0-9a-fA-F]"
_MONTH: Final = "(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)"
_WEEKDAY: Final = "(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_CLOCK: Final = r"\d?\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm]\b)?"
_ZONE: Final = r"(?: ?(?:Z|UTC|GMT|CES?T|[ECMP][SD]T|[+-]\d\d:?\d\d)\b)?"
_QUOTES: Final = r"""[\\"']{0,4}"""
# "9 us" is a size of shoes
_SMALL_UNIT: Final = r"(?:us| ?(?:[nm\u00b5\u03bc]s|[num]secs?|(?:nano|micro|milli)seconds?))"
_UNIT: Final = f"(?:{_SMALL_UNIT}| ?(?:s|secs?|seconds?|mins?|minutes?))"
_SECONDS: Final = r"\d\d?(?:\.\d{1,9})?s"
_NAME: Final = r"""([^/\\\s"'`<>|:*?,;()\[\]{}]{1,255})"""
_SEPARATOR: Final = r"[\\/]{1,2}"

_DATE_TIMES: Final = (  # without their first digit
    rf"\d{{3}}([/-])\d\d\1\d\d[T_ ](?:\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?|\d\d([-.])\d\d\2\d\d)"
    rf"(?!\d){_ZONE}",
    rf"\d{{7}}T\d{{4}}(?:\d\d(?:[.,]\d{{1,9}})?)?(?!\d){_ZONE}",
    rf"\d?[ /-]{_MONTH}[ /-]\d{{2,4}}[ :,] ?{_CLOCK}{_ZONE}",
    rf"\d?/\d\d?/\d{{4}},? {_CLOCK}{_ZONE}",
    # no part of six pairs, which are an address of a network card
    rf"(?<=[0-2])(?<!{_HEX}{{2}}:\d)\d:[0-5]\d:[0-5]\d(?:[.,]\d{{1,9}})?(?![\d:]){_ZONE}",
    r"(?<=1)[6-9]\d{8}(?:\d{3}){0,3}(?:\.\d{1,9})?(?!\w)",
)

_PATTERNS: Final[dict[Kind, tuple[str, ...]]] = {
    "uuids": (rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}(?!{_HEX})",),
    "request_ids": (
        rf"(){_WORD}(?:req[_-](?=[A-Za-z]{{0,64}}\d)\w{{8,64}}"
        r"|(?:chatcmpl|call|toolu|msg|resp|run)[_-](?=[A-Za-z]{0,64}\d)\w{16,64})",
        rf"([RTCrtc](?:equest|race|orrelation)[-_ ]?[Ii][Dd]{_QUOTES} ?[:=] ?{_QUOTES})"
        r"[\w./+=-]{4,128}",
    ),
    "addresses": (
        rf"(?<= at )0x{_HEX}{{4,16}}(?!{_HEX})",
        rf"0x{_HEX}{{9,16}}(?!{_HEX})",
    ),
    "temporary_paths": (
        _first("/", not_after=r"\w.~-")
        + r"(?:(?:private/)?(?:var/)?tmp/|(?:private/)?var/folders/[^/\s]{1,8}/[^/\s]{1,64}/\w/)"
        + rf"(?:pytest-of-[^/\s]{{1,64}}/pytest-\d{{1,9}}/)?{_NAME}",
        _first("[A-Za-z]:")
        + rf"(?:{_SEPARATOR}[^\\/:*?\"<>|\r\n]{{1,64}}){{0,6}}"
        + rf"{_SEPARATOR}(?:Temp|TEMP|temp|tmp){_SEPARATOR}{_NAME}",
    ),
    "durations": (
        rf"((?:in|took|after|elapsed|duration|runtime|latency){_QUOTES} ?[:= ] ?)"
        r"(?:\d{1,4}:\d\d(?::\d\d(?:\.\d{1,9})?|\.\d{1,9})|\d{1,9} ?"
        r"(?:s|secs?|seconds?|mins?|minutes?)\b)",
        rf"((?:elapsed|duration|latency|runtime|took|time)_(?:[mnu]?s|secs?|seconds?){_QUOTES}"
        r" ?[:=] ?)\d{1,15}(?:\.\d{1,12})?",
        rf"(){_DIGIT}(?:\d{{0,3}}(?:h ?\d\d?m(?: ?{_SECONDS})?|m ?{_SECONDS})"
        rf"|\d{{0,11}}(?:\.\d{{1,9}}{_UNIT}|{_SMALL_UNIT}))\b",
    ),
    "timestamps": (
        rf"{_WEEKDAY},? (?:\d\d?[ -]{_MONTH}[ -]\d{{2,4}}|{_MONTH} {{1,2}}\d\d?),? {_CLOCK}"
        rf"{_ZONE}(?: \d{{4}}\b)?",
        rf"{_MONTH} {{1,2}}\d\d?(?:,? \d{{4}})?,? {_CLOCK}{_ZONE}(?: \d{{4}}\b)?",
        f"{_DIGIT}(?:{'|'.join(_DATE_TIMES)})",
    ),
    "hex_ids": (
        rf"{_first(_HEX, not_after='0-9A-Za-z_')}"
        r"(?:(?<=\d)(?=\d*+[a-fA-F])|(?<=[a-fA-F])(?=[a-fA-F]*+\d))"
        rf"{_HEX}{{15,}}+(?![0-9A-Za-z_])",
    ),
    "numbers": (rf"{_DIGIT}\d*+(?:[.,]\d++)*+(?:[eE][+-]?\d++)?(?!\w)",),
}

_PLACEHOLDERS: Final[dict[Kind, str]] = {
    "uuids": "<uuid>",
    "request_ids": r"\1<id>",
    "addresses": "<address>",
    "durations": r"\1<duration>",
    "timestamps": "<time>",
    "hex_ids": "<id>",
    "numbers": "<number>",
}


def _temporary(match: re.Match[str]) -> str:
    name = match[1]
    return "<tmp>/" + ("<name>" if _looks_drawn(name) else name)


def _looks_drawn(name: str) -> bool:
    """Whether a name in a temporary folder looks drawn by chance, as ``tmpk3x_9a`` does."""
    if name.startswith(("tmp", ".tmp")) or sum(map(str.isdigit, name)) >= 3:
        return True
    ending = re.split("[-_.]", name)[-1]
    mixed = not (ending.islower() or ending.isupper() or ending.istitle())
    return 6 <= len(ending) < len(name) and mixed
