"""Normalising: texts that differ only in what means nothing become equal before they are digested.

A result that carries a timestamp is new every time, and hides a loop from exact comparison.

Every pattern is linear in the length of the text, also where the text is made to hurt: none has a
repetition without a bound inside of a repetition, and what it has consumed in vain is not
consumed again from each of its characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import xxhash

from tidegauge.errors import ConfigurationError

__all__ = [
    "DEFAULT_KINDS",
    "VOLATILE_KINDS",
    "NoiseKind",
    "Normalise",
    "Volatile",
    "rules",
    "volatile",
]

NoiseKind: TypeAlias = Literal[
    "uuids",
    "request_ids",
    "addresses",
    "temporary_paths",
    "durations",
    "timestamps",
    "hex_ids",
    "process_ids",
    "object_addresses",
    "numbers",
]
"""In the order in which they are applied."""

NoiseRule: TypeAlias = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""A pattern, and the replacement of what it matches."""

DEFAULT_KINDS: Final[tuple[NoiseKind, ...]] = get_args(NoiseKind)[:-2]
"""All but ``numbers``, most of which mean something, and ``object_addresses``, a part of
``addresses``."""

VOLATILE_KINDS: Final[tuple[NoiseKind, ...]] = tuple(k for k in DEFAULT_KINDS if k != "hex_ids")
"""Those that results of live runs are compared without. Long hexadecimal numbers stay: in recorded
runs, nearly all of them were checksums, which are the answer."""


class Normalise:
    r"""A normaliser: takes a text and gives it with placeholders for what means nothing.

    ===================  =============  ==========================================================
    kind                 placeholder    what is replaced
    ===================  =============  ==========================================================
    ``uuids``            ``<uuid>``     ``123e4567-e89b-12d3-a456-426614174000``
    ``request_ids``      ``<id>``       ``req_011CSHoEeqs5C35K``, ``call_``, ``chatcmpl-`` and
                                        their like; what follows ``request-id:``, ``trace_id=``
    ``addresses``        ``<address>``  ``0x7f3c2a1b4d30``, and ``at 0x7f3c`` in what an object
                                        says of itself; short constants such as ``0x80070005`` stay
    ``temporary_paths``  ``<tmp>``      the temporary folder of Linux, macOS and Windows, and the
                                        name after it where it looks drawn by chance: ``<name>``
    ``durations``        ``<duration>`` ``in 0.35s``, ``12 ms``, ``1m 23s``, ``took 00:00:03``
    ``timestamps``       ``<time>``     a date with a time of day (ISO 8601, e-mail and HTTP dates,
                                        the usual logs), a time with seconds, seconds and
                                        milliseconds since 1970 (of the years 2021 to 2032);
                                        dates alone stay: they mostly mean something
    ``hex_ids``          ``<id>``       16 hexadecimal digits or more, such as trace ids; also
                                        checksums and commits: leave the kind out if they matter
    ``process_ids``      ``<pid>``      ``pid 4711``, ``PID=4711``, ``process id: 4711``
    ``object_addresses`` ``<address>``  of ``addresses``, only ``at 0x7f3c``; only on request
    ``numbers``          ``<number>``   every number that stands alone; only on request
    ===================  =============  ==========================================================

    Of a text longer than ``max_length``, the first and the last half of that are normalised; what
    lies between is put down by its length and digest, and so is compared exactly.

    Args:
        *kinds: what is replaced; the default is :data:`DEFAULT_KINDS`.
        max_length: characters of one text that are normalised.

    Raises:
        ConfigurationError: an unknown kind, or a ``max_length`` below 1.

    >>> normalise = Normalise()
    >>> normalise("2026-11-21 23:25:02,113 INFO 3 passed in 0.35s (/tmp/tmpk3x_9a/log)")
    '<time> INFO 3 passed in <duration> (<tmp>/<name>/log)'
    >>> Normalise("numbers")("page 3 of 12, 23:25:02")
    'page <number> of <number>, <number>:<number>:<number>'
    """

    def __init__(self, *kinds: NoiseKind, max_length: int = 65_536) -> None:
        chosen = kinds or DEFAULT_KINDS
        unknown = set(chosen) - set(get_args(NoiseKind))
        if unknown:
            known = ", ".join(get_args(NoiseKind))
            raise ConfigurationError(f"unknown kind {sorted(unknown)[0]!r}; known: {known}")
        if max_length < 1:
            raise ConfigurationError("max_length must be at least 1")
        self.kinds: Final[tuple[NoiseKind, ...]] = tuple(
            k for k in get_args(NoiseKind) if k in chosen
        )
        self.max_length: Final = max_length
        self._rules = [rule for kind in self.kinds for rule in rules(kind)]

    def __call__(self, text: str) -> str:
        """The text with its placeholders."""
        if len(text) <= self.max_length:
            return self._replace(text)
        head = (self.max_length + 1) // 2
        tail = len(text) - self.max_length // 2
        middle = text[head:tail].encode("utf-8", "surrogatepass")
        digest = xxhash.xxh3_128_hexdigest(middle)
        between = f"<{tail - head} characters {digest}>"
        return self._replace(text[:head]) + between + self._replace(text[tail:])

    def __repr__(self) -> str:
        kinds = "".join(f"{kind!r}, " for kind in self.kinds)
        return f"Normalise({kinds}max_length={self.max_length})"

    def _replace(self, text: str) -> str:
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text


class Volatile(Normalise):
    """What live runs are compared by: results without what is volatile, arguments nearly exactly.

    An id, a time or a path in the arguments chooses what the agent works on, so two calls that
    differ in one are two actions. Only the address that an object prints of itself, which no agent
    chooses, is left out there. Checksums in results stay: they are what was asked for.

    Most texts have nothing volatile. :meth:`kinds_in` recognizes by what every pattern needs, which
    costs little, which kinds a text may have: only their patterns are searched for.

    Of a text longer than ``max_length``, the middle is compared exactly, as in :class:`Normalise`.

    >>> volatile = Volatile()
    >>> volatile.kinds_in(b"page 3 of 12"), volatile.kinds_in(b"3 passed in 0.35s")
    ([], ['durations'])
    >>> volatile("3 passed in 0.35s"), volatile.arguments("sleep 0.35s")
    ('3 passed in <duration>', 'sleep 0.35s')
    """

    def __init__(self, *, max_length: int = 16_384) -> None:
        super().__init__(*VOLATILE_KINDS, max_length=max_length)
        self.arguments: Final = _VolatileArguments("object_addresses", max_length=max_length)

    def concerns(self, data: bytes) -> bool:
        """Whether a text, in UTF-8, may have something volatile in it."""
        return bool(self.kinds_in(data))

    def kinds_in(self, data: bytes) -> list[NoiseKind]:
        """The kinds that a text, in UTF-8, may have; not in order, and some in vain."""
        found: list[NoiseKind] = []
        # find() takes half as long as "in" here, and an expression that begins with one character
        # a tenth of one that does not.
        find = data.find
        if find(b"mp/") >= 0 or find(b"mp\\") >= 0 or find(b"MP\\") >= 0 or find(b"folders/") >= 0:
            found.append("temporary_paths")
        labelled = (find(b":") >= 0 or find(b"=") >= 0) and _LABELLED_ID(data) is not None
        plain = data.translate(_DIGITS_AS_ZERO)
        if plain.find(b"0") < 0:
            return [*found, "request_ids"] if labelled else found
        with_prefix = (find(b"_") >= 0 or find(b"-") >= 0) and _ID_WITH_PREFIX(plain) is not None
        if labelled or with_prefix:
            found.append("request_ids")
        if data.translate(_HEX_AS_ZERO).find(b"00000000-0000-") >= 0:
            found.append("uuids")
        if plain.find(b"pid") >= 0 or plain.find(b"process") >= 0:
            found.append("process_ids")
        moment = _MOMENT(plain)
        while moment is not None:
            found += _OF_MOMENT[moment.lastgroup or ""]
            moment = _MOMENT(plain, moment.end()) if len(found) < _ALL else None
        if find(b"_") >= 0 and _KEY_OF_TIME(plain) is not None:
            found.append("durations")
        return found

    def _replace(self, text: str) -> str:
        kinds = self.kinds_in(text.encode("utf-8", "surrogatepass"))
        for kind in self.kinds:
            if kind in kinds or len(kinds) >= _ALL:
                for pattern, replacement in rules(kind):
                    text = pattern.sub(replacement, text)
        return text


class _VolatileArguments(Normalise):
    def concerns(self, data: bytes) -> bool:
        return b" at 0x" in data


@functools.cache
def volatile() -> Volatile:
    """The one :class:`Volatile` of the process."""
    return Volatile()


_DIGITS_AS_ZERO: Final = bytes(
    ord("0") if chr(byte) in "0123456789" else byte for byte in bytes(range(256)).lower()
)
_HEX_AS_ZERO: Final = bytes(
    ord("0") if chr(byte) in "0123456789abcdef" else byte for byte in bytes(range(256)).lower()
)
_MOMENT: Final = re.compile(
    rb"0(?:(?P<clock>:00)|(?P<date>000000000|t0000|[t_ ]00(?:-00-|\.00\.)00)"
    rb"|(?P<address>x[0-9a-f]{4})"
    rb"|(?P<unit> ?(?:[mnu]?s(?:ecs?)?|(?:nano|micro|milli)?seconds?|m(?:ins?|inutes?)?"
    rb"|\xc2\xb5s|\xce\xbcs)\b))"
).search
_OF_MOMENT: Final[dict[str, tuple[NoiseKind, ...]]] = {
    "clock": ("timestamps", "durations"),
    "date": ("timestamps",),
    "address": ("addresses",),
    "unit": ("durations",),
}
_ALL: Final = 32
"""So many hints are enough: then every kind may be there."""
_KEY_OF_TIME: Final = re.compile(rb"_(?:[mnu]?s|secs?|seconds?)\b").search
_LABELLED_ID: Final = re.compile(rb"(?i:(?:equest|race|orrelation)[-_ ]?id)").search
_ID_WITH_PREFIX: Final = re.compile(rb"(?:req|chatcmpl|call|toolu|msg|resp|run)[_-]\w{8}").search


@functools.cache
def rules(kind: NoiseKind) -> tuple[NoiseRule, ...]:
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

_PATTERNS: Final[dict[NoiseKind, tuple[str, ...]]] = {
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
    "process_ids": (
        r"((?<!\w)(?:[Pp][Ii][Dd]|[Pp]rocess[ _-]?[Ii][Dd])['\"]{0,2} ?[ =:#] ?)\d{1,7}(?!\w)",
    ),
    "object_addresses": (rf"(?<= at )0x{_HEX}{{4,16}}(?!{_HEX})",),
    "numbers": (rf"{_DIGIT}\d*+(?:[.,]\d++)*+(?:[eE][+-]?\d++)?(?!\w)",),
}

_PLACEHOLDERS: Final[dict[NoiseKind, str]] = {
    "uuids": "<uuid>",
    "request_ids": r"\1<id>",
    "addresses": "<address>",
    "durations": r"\1<duration>",
    "timestamps": "<time>",
    "hex_ids": "<id>",
    "process_ids": r"\1<pid>",
    "object_addresses": "<address>",
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
