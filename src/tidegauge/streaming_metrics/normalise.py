"""Known noise: what changes in a text without meaning anything, replaced before it is digested.

A result that carries a timestamp is new every time, and hides a loop from comparison.

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
from tidegauge.streaming_metrics.drawn_names import looks_drawn, surely_drawn

__all__ = [
    "DEFAULT_KINDS",
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
    "transfer_rates",
    "durations",
    "timestamps",
    "hex_ids",
    "process_ids",
    "ports",
    "counters",
    "object_addresses",
    "numbers",
]
"""In the order in which they are applied."""

NoiseRule: TypeAlias = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""A pattern, and the replacement of what it matches."""

DEFAULT_KINDS: Final[tuple[NoiseKind, ...]] = get_args(NoiseKind)[:-2]
"""All but ``numbers``, most of which mean something, and ``object_addresses``, a part of
``addresses``."""


class Normalise:
    r"""A normaliser: takes a text and gives it with placeholders for what means nothing.

    ===================  =============  ==========================================================
    kind                 placeholder    what is replaced
    ===================  =============  ==========================================================
    ``uuids``            ``<uuid>``     ``123e4567-e89b-12d3-a456-426614174000``; ULIDs
    ``request_ids``      ``<id>``       ``req_011CSHoEeqs5C35K``, ``call_``, ``chatcmpl-`` and
                                        their like; values of the keys ``request_id``,
                                        ``trace_id``, ``completion_id``, ``etag`` and their like
    ``addresses``        ``<address>``  ``0x7f3c2a1b4d30``, and ``at 0x7f3c`` in what an object
                                        says of itself; short constants such as ``0x80070005`` stay
    ``temporary_paths``  ``<tmp>``      the temporary folder of Linux, macOS and Windows, and
                                        names after it that look drawn by chance: ``<name>``
    ``transfer_rates``   ``<rate>``     ``1.2 MB/s``, ``35.1it/s``, the progress table of curl
    ``durations``        ``<duration>`` ``in 0.35s``, ``12 ms``, ``5 minutes``, ``took 00:00:03``,
                                        ``9 seconds ago``; values of the keys ``took``,
                                        ``duration*``, ``elapsed*``, ``latency*``,
                                        ``execution_time``, ``*_ms`` and their like
    ``timestamps``       ``<time>``     a date with a time of day (ISO 8601, e-mail and HTTP dates,
                                        the usual logs), a time with seconds, seconds and
                                        milliseconds since 1970 (of the years 2021 to 2032);
                                        dates alone stay: they mostly mean something
    ``hex_ids``          ``<id>``       16 hexadecimal digits or more, such as trace ids; not what
                                        is called a checksum or a commit
    ``process_ids``      ``<pid>``      ``pid 4711``, ``PID=4711``, ``/proc/4711``
    ``ports``            ``<port>``     ``port 40001``, ``"port": 8080``, ``localhost:40001``
    ``counters``         ``<n>``        ``attempt 3/5``, ``retry_count=2``; the line of an
                                        interactive shell, the number of a notebook's cell
    ``object_addresses`` ``<address>``  of ``addresses``, only ``at 0x7f3c``; only on request
    ``numbers``          ``<number>``   every number that stands alone; only on request
    ===================  =============  ==========================================================

    Keys are recognized in any spelling (``execution_time``, ``executionTime``,
    ``Execution-Time``, ``EXECUTION_TIME``) in JSON, Python, ``key=value`` and headers.

    Of a text longer than ``max_length``, the first and the last half of that are normalised; what
    lies between is put down by its length and digest, and so is compared exactly.

    Args:
        *kinds: what is replaced; the default is :data:`DEFAULT_KINDS`.
        max_length: characters of one text that are normalised.

    Raises:
        ConfigurationError: an unknown kind, or a ``max_length`` below 1.

    >>> normalise = Normalise()
    >>> normalise("2026-11-21 23:25:02,113 INFO 3 passed in 0.35s (/tmp/tmpk3x_9aab/log)")
    '<time> INFO 3 passed in <duration> (<tmp>/<name>/log)'
    >>> normalise('{"attempt": 3, "durationMs": 212, "error": "no route to host"}')
    '{"attempt": <n>, "durationMs": <duration>, "error": "no route to host"}'
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
    """What texts are compared without by default, live and in replays alike.

    In results, that is every kind of :data:`DEFAULT_KINDS`: there, it only matters if the same call
    has the same result but for noise. Arguments choose what the agent works on: a date, a page, an
    id or a port in them is another action. Out of them are left only

    - the address that an object prints of itself (``at 0x7f3c``), which no agent chooses;
    - names in the temporary folder that were drawn by chance, as of ``mktemp``: names that an agent
      chose, such as ``/tmp/part_2.csv``, stay;
    - by their keys, beside other arguments: counters of attempts, keys of idempotency, ids of this
      request or call, entity tags and the time at which it was sent.

    Most texts have no noise. :meth:`kinds_in` recognizes by what every pattern needs, which costs
    little, which kinds a text may have: only their patterns are searched for.

    Of a text longer than ``max_length``, the middle is compared exactly, as in :class:`Normalise`.

    >>> volatile = Volatile()
    >>> volatile.kinds_in(b"page 3 of 12"), volatile.kinds_in(b"3 passed in 0.35s")
    ([], ['durations'])
    >>> volatile("3 passed in 0.35s"), volatile.arguments("sleep 0.35s")
    ('3 passed in <duration>', 'sleep 0.35s')
    >>> volatile.arguments('{"attempt":3,"q":"cats"}'), volatile.arguments('{"attempt":3}')
    ('{"attempt":<noise>,"q":"cats"}', '{"attempt":3}')
    """

    def __init__(self, *, max_length: int = 16_384) -> None:
        super().__init__(max_length=max_length)
        self.arguments: Final = _VolatileArguments("object_addresses", max_length=max_length)

    def concerns(self, data: bytes) -> bool:
        """Whether a text, in UTF-8, may have noise in it."""
        return bool(self.kinds_in(data))

    def kinds_in(self, data: bytes) -> list[NoiseKind]:
        """The kinds that a text, in UTF-8, may have; some in vain."""
        found: list[NoiseKind] = []
        if len(data) > 4 * self.max_length:  # its middle is compared exactly
            data = data[: 2 * self.max_length] + data[-2 * self.max_length :]
        # find() takes half as long as "in" here, and an expression that begins with one character
        # a tenth of one that does not.
        plain = data.translate(_PLAIN)
        find = plain.find
        if find(b"tmp") >= 0 or find(b"temp/") >= 0 or find(b"folders/") >= 0:
            found.append("temporary_paths")
        if find(b" ago") >= 0 or find(b"just now") >= 0:
            found.append("durations")
        if find(b"--:--") >= 0:
            found.append("transfer_rates")
        has_values = find(b":") >= 0 or find(b"=") >= 0
        keyed = plain.translate(None, _IN_KEYS)
        before = keyed.find
        if has_values and (
            before(b"id:") >= 0
            or before(b"id=") >= 0
            or before(b"etag") >= 0
            or before(b"traceparent") >= 0
            or before(b"idempotencykey") >= 0
        ):
            found.append("request_ids")
        if before(b"0") < 0:
            return found
        if (
            has_values
            and (before(b":0") >= 0 or before(b"=0") >= 0)
            and _has_key_of_time(keyed, plain, data)
        ):
            found.append("durations")
        if before(b"attempt") >= 0 or before(b"retr") >= 0:
            found.append("counters")
        if (find(b"_") >= 0 or find(b"-") >= 0) and _ID_WITH_PREFIX(plain) is not None:
            found.append("request_ids")
        ids = data.translate(_HEX_AS_ZERO).find
        if ids(b"00000000-0000-") >= 0 or _ULID(plain) is not None:
            found.append("uuids")
        if ids(b"0000000000000000") >= 0:
            found.append("hex_ids")
        for search, text in ((_BEFORE_NUMBER, keyed), (_MOMENT, plain)):
            seen = search(text)
            while seen is not None:
                found += _OF_HINT[seen.lastgroup or ""]
                seen = search(text, seen.end()) if len(found) < _ALL else None
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
        find = data.find
        return (
            find(b" at 0x") >= 0
            or find(b"tmp") >= 0
            or find(b"/folders/") >= 0
            or find(b"emp\\") >= 0
            or (find(b'":') >= 0 and _KEY_OF_ARGUMENT(data.translate(_PLAIN, b"_-")) is not None)
        )

    def _replace(self, text: str) -> str:
        text = super()._replace(text)
        for pattern in _argument_folders():
            text = pattern.sub(_temporary_argument, text)
        if text[:1] in ("{", "["):
            replaced = _argument_keys().sub(_without_value, text)
            # What is the whole of the arguments says what the call is about.
            if _SAID_BESIDES.sub("", replaced):
                return replaced
        return text


def _without_value(match: re.Match[str]) -> str:
    return f"{match[1] or match[2]}<noise>"


@functools.cache
def volatile() -> Volatile:
    """The one :class:`Volatile` of the process."""
    return Volatile()


@functools.cache
def rules(kind: NoiseKind) -> tuple[NoiseRule, ...]:
    """The rules of a kind; compiled when they are asked for, not when this is imported."""
    return tuple((re.compile(one), _replacement(kind, one)) for one in _PATTERNS[kind])


@functools.cache
def _argument_folders() -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, _TEMPORARY))


@functools.cache
def _argument_keys() -> re.Pattern[str]:
    return re.compile(_KEYS_OF_ARGUMENTS)


# -- recognizing which kinds a text may have -----------------------------------------------------

_PLAIN: Final = bytes(
    ord("0") if chr(byte) in "0123456789" else ord("/") if byte == ord("\\") else byte
    for byte in bytes(range(256)).lower()
)
"""Lower case, ``0`` for each digit, and ``/`` for what separates folders of Windows."""
_HEX_AS_ZERO: Final = bytes(
    ord("0") if chr(byte) in "0123456789abcdef" else byte for byte in bytes(range(256)).lower()
)
_IN_KEYS: Final = b" _-'\"/#+>"
"""What may stand in keys, between a key and its value, and before a number."""
_MOMENT: Final = re.compile(
    rb"0(?:(?P<clock>:00)|(?P<date>000000000|t0000|[t_ ]00(?:-00-|\.00\.)00)"
    rb"|(?P<address>x[0-9a-f]{4})"
    rb"|(?P<rate> ?(?:[kmgtp]?i?b(?:ytes)?(?:/s|ps)|it/s|s/it))"
    rb"|(?P<unit> ?(?:[mnu]?s(?:ecs?)?|(?:nano|micro|milli)?seconds?|m(?:ins?|inutes?)?"
    rb"|h(?:rs?|ours?)?|d|\xc2\xb5s|\xce\xbcs)(?![a-z_]))"
    rb"|(?P<counter>(?:st|nd|rd|th)? (?:attempt|retr|tr(?:y|ies)))"
    rb"|(?P<port>0000(?<=[0-9t\]]:00000)))"
).search
_BEFORE_NUMBER: Final = re.compile(
    rb"0(?<!00)(?:(?P<duration>(?<=[pd]t0)|(?<=(?:took|time|aken|psed|pent|otal|.rtt|ttfb)[:=]0))"
    rb"|(?P<process>(?<=[pt]id0)|(?<=[pt]id[:=]0)|(?<=essid0)|(?<=eadid0)|(?<=(?:ess|ead)id[:=]0)"
    rb"|(?<=(?:proc|task)0))"
    rb"|(?P<port_key>(?<=port0)|(?<=ports0)|(?<=port[:=]0))"
    rb"|(?P<shell>(?<=sh:0)|(?<=sh:line0)|(?<=in\[0)|(?<=ut\[0)|(?<=input0)))"
).search
"""In a text without what :data:`_IN_KEYS` contains."""
_ULID: Final = re.compile(rb"0(?:(?<![a-z_0]0)|(?<=/[bfnrt]0))[0a-z]{25}").search
_OF_HINT: Final[dict[str, tuple[NoiseKind, ...]]] = {
    "clock": ("timestamps", "durations"),
    "date": ("timestamps",),
    "address": ("addresses",),
    "unit": ("durations",),
    "rate": ("transfer_rates",),
    "counter": ("counters",),
    "port": ("ports",),
    "duration": ("durations",),
    "process": ("process_ids",),
    "port_key": ("ports",),
    "shell": ("counters",),
}
_ALL: Final = 32
"""So many hints are enough: then every kind may be there."""
_ID_WITH_PREFIX: Final = re.compile(
    rb"(?:req|chatcmpl|cmpl|call|toolu|msg|resp|run|gen|fc|rs)[_-]\w{8}"
).search
_END_OF_KEY: Final = rb"[/'\"\\]{0,4} ?(?:=>|[:=])"
_UNIT_OF_KEY: Final = re.compile(
    rb"[_-](?:[mun]s(?:ecs?)?|secs?|seconds|(?:milli|micro|nano)(?:second)?s)" + _END_OF_KEY
).search
_UNIT_IN_KEY: Final = re.compile(
    rb"[MUNS](?:s(?:ecs?)?|ec(?:onds|s)?|(?:illi|icro|ano)(?:second)?s)" + _END_OF_KEY
).search


def _has_key_of_time(keyed: bytes, plain: bytes, data: bytes) -> bool:
    find = keyed.find
    return (
        find(b"duration") >= 0
        or find(b"elapsed") >= 0
        or find(b"latency") >= 0
        or find(b"uptime") >= 0
        or find(b"runtime") >= 0
        or _UNIT_OF_KEY(plain) is not None
        or _UNIT_IN_KEY(data) is not None
    )


def _first(characters: str, *, not_after: str = r"\w.") -> str:
    r"""The first character of a match, where it begins a word.

    It is consumed before one looks at what precedes it: the engine skips quickly to the first
    character of a pattern, but not past a look-behind. Texts are often JSON, where a letter may
    belong to the escape before it: ``\n12 ms``.
    """
    return rf"{characters}(?:(?<![{not_after}]{characters})|(?<=\\[bfnrt]{characters}))"


def _key(*names: str, between: str = "[ _-]?") -> str:
    """A key, or its end, in any spelling: of "execution time" also ``executionTime``,
    ``Execution-Time``, ``avgExecutionTime``, ``EXECUTION_TIME``."""
    spelled = []
    for first, *others in map(str.split, names):
        end = [f"(?:{one}|{one.title()}|{one.upper()})" for one in others]
        for word in (first, first.upper()):
            begin = rf"{word}(?:(?<![A-Za-z]{word})|(?<=\\[bfnrt]{word}))"
            spelled.append(between.join([begin, *end]))
        spelled.append(between.join([first.title(), *end]))
    return f"(?:{'|'.join(spelled)})"


_QUOTES: Final = r"""[\\"']{0,4}"""
_IS: Final = rf"{_QUOTES} ?(?:=>|[:=]) ?{_QUOTES}"
"""Between a key and its value: in JSON, in a text of JSON, in Python, in headers."""
_WORD: Final = r"(?:(?<!\w)|(?<=\\[bfnrt]))"
_DIGIT: Final = _first(r"\d")
_HEX: Final = "[0-9a-fA-F]"
_MONTH: Final = "(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)"
_WEEKDAY: Final = "(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_CLOCK: Final = r"\d?\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm]\b)?"
_ZONE: Final = r"(?: ?(?:Z|UTC|GMT|CES?T|[ECMP][SD]T|[+-]\d\d:?\d\d)\b)?"
# "9 us" is a size of shoes
_SMALL_UNIT: Final = r"(?:us| ?(?:[nm\u00b5\u03bc]s|[num]secs?|(?:nano|micro|milli)seconds?))"
_UNIT: Final = f"(?:{_SMALL_UNIT}| ?(?:s|secs?|seconds?|mins?|minutes?|hrs?|hours?))"
_ANY_UNIT: Final = rf"(?:{_UNIT}| ?(?:m|h|d|days?))(?![A-Za-z])"
_SECONDS: Final = r"\d\d?(?:\.\d{1,9})?s"
_AMOUNT: Final = r"\d{1,19}(?:[.:]\d{1,19}){0,3}(?:[eE][-+]?\d{1,3})?"
_DURATION: Final = (
    rf"(?!\d{{4}}-\d\d)[-+]?(?:P\d{{0,4}}D?T\d[\dHMS.]{{1,20}}"
    rf"|{_AMOUNT}(?:{_ANY_UNIT}(?:,? ?{_AMOUNT}{_ANY_UNIT}){{0,3}})?)"
)
_ID: Final = r"(?!(?:null|none|None|undefined)\b)[\w./+=:-]{1,128}"
_NAME: Final = r"""[^/\\\s"'`<>|:*?,;()\[\]{}]{1,255}"""
_SEPARATOR: Final = r"[\\/]{1,2}"
_UNIX_FOLDER: Final = (
    _first("/", not_after=r"\w.~-")
    + r"(?:(?:private/)?(?:var/)?tmp/|(?:private/)?var/folders/[^/\s]{1,8}/[^/\s]{1,64}/\w/)"
    + r"(?:pytest-of-[^/\s]{1,64}/pytest-\d{1,9}/)?"
)
_WINDOWS_FOLDER: Final = (
    _first("[A-Za-z]:")
    + rf"(?:{_SEPARATOR}[^\\/:*?\"<>|\r\n]{{1,64}}){{0,6}}"
    + rf"{_SEPARATOR}(?:Temp|TEMP|temp|tmp){_SEPARATOR}"
)
_TEMPORARY: Final = (
    rf"({_UNIX_FOLDER})({_NAME}(?:/{_NAME}){{0,8}})",
    rf"({_WINDOWS_FOLDER})({_NAME}(?:{_SEPARATOR}{_NAME}){{0,8}})",
    rf"()({_first('t')}mp(?:[a-z0-9_]{{8}}|\.[A-Za-z0-9]{{10}}))(?![A-Za-z0-9_])",
)
"""A temporary folder and what follows it; a drawn name where no folder stands before it."""

_OF_CURL: Final = r" {1,12}[\d.]{1,12}[kMGTP]?"
_SIZES_OF_CURL: Final = rf"\d{{1,3}}(?:{_OF_CURL} {{1,12}}\d{{1,3}}){{2}}{_OF_CURL}"
_SPEEDS_OF_CURL: Final = rf"{_OF_CURL}{_OF_CURL}(?: {{1,12}}[-\d:dh]{{2,9}}){{3}}{_OF_CURL}"
_ROW_OF_CURL: Final = r"(?:\r|\\r) {0,2}"

_DATE_TIMES: Final = (  # without their first digit
    rf"\d{{3}}([/-])\d\d\1\d\d[T_ ](?:\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?|\d\d([-.])\d\d\2\d\d)"
    rf"(?!\d){_ZONE}",
    rf"\d{{7}}T\d{{4}}(?:\d\d(?:[.,]\d{{1,9}})?)?(?!\d){_ZONE}",
    rf"\d?[ /-]{_MONTH}[ /-]\d{{2,4}}[ :,] ?{_CLOCK}{_ZONE}",
    rf"\d?/\d\d?/\d{{4}},? {_CLOCK}{_ZONE}",
    # no part of six pairs, which are an address of a network card
    rf"(?<=[0-2])(?<!{_HEX}{{2}}:\d)\d:[0-5]\d:[0-5]\d(?:[.,]\d{{1,9}})?(?![\d:]){_ZONE}",
    r"(?<=1)[6-9]\d{8}(?:\d{3}){0,3}(?:\.\d{1,9})?(?!\w)",
    r"(?<=2)0[2-4]\d[01]\d[0-3]\d[0-2]\d[0-5]\d[0-5]\d(?:\d{3})?(?!\w)",
)

_OF_WHICH_TIME: Final = (
    *("execution", "response", "processing", "process", "query", "wall", "cpu", "total", "build"),
    *("load", "eval", "evaluation", "inference", "request", "server", "render", "compute", "user"),
    *("sys", "system", "real", "run", "test", "compile", "search", "connect", "wait", "clock"),
)
_POSITIONS: Final = "".join(
    rf"(?<!(?i:{word}).)"
    for word in (
        "start",
        "begin",
        "end",
        "offset",
        "position",
        "from",
        "to",
        "at",
        "seek",
        "cursor",
    )
)
"""Not before the unit in a key: they say where one is, not how long something took."""
_TIME_UNITS: Final = "(?i:[mun]s(?:ecs?)?|secs?|seconds|(?:milli|micro|nano)(?:second)?s)"
_UNIT_KEY: Final = (
    rf"(?:[_-]{_POSITIONS}{_TIME_UNITS}"
    rf"|[MUNS](?<=[a-z0-9].){_POSITIONS}(?:(?<=[MUN])s(?:ecs?)?"
    r"|(?<=S)ec(?:onds|s)?|(?:(?<=M)i(?:lli|cro)|(?<=N)ano)(?:second)?s))"
)
_TIME_KEY: Final = _key(
    *("took", "rtt", "ttfb", "qtime", "time taken", "time elapsed", "time spent", "time total"),
    *(f"{which} time" for which in _OF_WHICH_TIME),
)
_CLOCK_LABEL: Final = (
    r"(?:(?:[Cc]urrent|[Ll]ocal|[Ss]erver|[Ss]ystem)(?: date and)?[ _-]?[Tt]ime(?: is)?|[Aa]s of"
    r"|(?:[Uu]pdated|[Gg]enerated|[Ff]etched|[Rr]etrieved|[Cc]hecked)(?:[ _-]?[Aa]t)?)"
)

_PATTERNS: Final[dict[NoiseKind, tuple[str, ...]]] = {
    "uuids": (
        rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}(?!{_HEX})",
        # a ULID of the years 1970 to 3084
        _first("0", not_after=r"\w") + r"(?=[0-9A-Z]{0,24}[A-Z]|[0-9a-z]{0,24}[a-z])"
        r"(?:[0-9A-HJKMNP-TV-Z]{25}|[0-9a-hjkmnp-tv-z]{25})(?!\w)",
    ),
    "request_ids": (
        rf"{_WORD}(?:req[_-](?=[A-Za-z]{{0,64}}\d)\w{{8,64}}"
        r"|(?:chatcmpl|cmpl|call|toolu|srvtoolu|msg|resp|run|gen|fc|rs)"
        r"[_-](?=[A-Za-z]{0,64}\d)\w{16,64})",
        "(?P<key>"
        + _key(
            *("request id", "req id", "trace id", "correlation id", "completion id"),
            *("response id", "generation id", "invocation id", "call id"),
        )
        + rf"{_IS}){_ID}",
        "(?P<key>"
        + _key("span id", "e tag", "traceparent", "idempotency key", between="[_-]?")
        + rf"{_IS}"
        rf"(?:W/{_QUOTES})?+){_ID}",
    ),
    "addresses": (
        rf"(?<= at )0x{_HEX}{{4,16}}(?!{_HEX})",
        rf"0x{_HEX}{{9,16}}(?!{_HEX})",
    ),
    "temporary_paths": _TEMPORARY,
    "transfer_rates": (
        rf"(?:{_ROW_OF_CURL}{_SIZES_OF_CURL}{_SPEEDS_OF_CURL})*"
        rf"{_ROW_OF_CURL}(?=[^\r\n\\]{{0,160}}-:-)(?P<key>{_SIZES_OF_CURL}){_SPEEDS_OF_CURL}",
        rf"{_DIGIT}[\d.,]{{0,15}} ?(?:[kKMGTP]?i?[Bb](?:ytes)?(?:/s|ps)|it/s|s/it)(?!\w)",
    ),
    "durations": (
        r"(?:(?:[Aa]bout|[Ll]ess than|[Aa]lmost|[Oo]ver) )?(?:\d{1,6}|\b[Aa]n?(?: few)?) ?"
        r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?|y|years?)"
        r" ago\b|\b[Jj]ust now\b",
        rf"(?P<key>(?:in|took|after|elapsed|duration|runtime|latency){_QUOTES} ?[:= ] ?)"
        r"\d{1,4}:\d\d(?::\d\d(?:\.\d{1,9})?|\.\d{1,9})",
        rf"(?P<key>{_key('duration', 'elapsed', 'latency', 'uptime', 'runtime')}"
        rf"[\w -]{{0,24}}{_IS})" + _DURATION,
        rf"(?P<key>{_TIME_KEY}{_IS}){_DURATION}",
        rf"(?P<key>{_UNIT_KEY}{_IS}){_DURATION}",
        # no decade, as in the 80s
        rf"{_DIGIT}(?<!the \d)(?!(?:(?<=1)[5-9]|(?<=2)0)\d0s\b)"
        rf"(?:\d{{0,3}}(?:d ?\d\d?h|h ?\d\d?m(?: ?{_SECONDS})?|m ?{_SECONDS})"
        rf"|\d{{0,11}}(?:(?:,\d{{3}}){{1,3}})?(?:\.\d{{1,9}})?{_UNIT})\b",
    ),
    "timestamps": (
        rf"{_WEEKDAY},? (?:\d\d?[ -]{_MONTH}[ -]\d{{2,4}}|{_MONTH} {{1,2}}\d\d?),? {_CLOCK}"
        rf"{_ZONE}(?: \d{{4}}\b)?",
        rf"{_MONTH} {{1,2}}\d\d?(?:,? \d{{4}})?,? {_CLOCK}{_ZONE}(?: \d{{4}}\b)?",
        f"{_DIGIT}(?:{'|'.join(_DATE_TIMES)})",
        rf"(?P<key>{_CLOCK_LABEL}(?:{_IS}| )){_CLOCK}{_ZONE}",
    ),
    "hex_ids": (
        # what is called a checksum or commit stays, as does a line of sha256sum
        r"(?P<answer>(?:[Ss][Hh][Aa]-?\d{0,3}|[Mm][Dd]5|[Cc]hecksum"
        r"|[Cc]ommit(?:[ _-]?(?:hash|id|sha))?)[\\\"' :=-]{1,6}"
        rf"{_HEX}{{16,128}}(?!{_HEX}))|{_first(_HEX, not_after='0-9A-Za-z_')}"
        r"(?:(?<=\d)(?=\d*+[a-fA-F])|(?<=[a-fA-F])(?=[a-fA-F]*+\d))"
        rf"{_HEX}{{15,}}+(?![0-9A-Za-z_]|  \S| \*)",
    ),
    "process_ids": (
        rf"(?P<key>{_key('pid', 'ppid', 'tid', 'process id', 'thread id')}"
        rf"{_QUOTES} ?(?:=>|[ =:#]) ?{_QUOTES})\d{{1,7}}(?!\w)",
        r"(?P<key>/(?:proc|task)/)\d{1,7}(?!\w)",
    ),
    "ports": (
        rf"(?P<key>{_key('port')}{_IS})\d{{1,5}}(?!\w|\.\d)",
        rf"(?P<key>{_key('port', 'ports')} )\d{{4,5}}(?!\w|\.\d)",
        r"(?P<key>(?:localhost|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1?\]):)"
        r"(?:3[2-9]|[456]\d)\d{3}(?!\w)",
    ),
    "counters": (
        rf"(?P<key>{_key('attempt', 'attempts', 'retry', 'retries')}"
        rf"(?:[\w-]{{0,24}}{_IS}|(?:[ _]?(?:number|no\.?))?[ _]?#? ?))"
        r"\d{1,9}(?: ?(?:/|of) ?\d{1,9})?(?!\w)",
        rf"{_DIGIT}\d{{0,8}}(?:st|nd|rd|th)?(?= (?:attempts?|retr(?:y|ies)|tr(?:y|ies))\b)",
        r"(?P<key>sh(?:(?<![\w.-]sh)|(?<=[bd]ash)(?<![\w.-].ash)|(?<=[ackz]sh)(?<![\w.-].sh))"
        r": (?:line )?)\d{1,9}(?=:)",
        rf"(?P<key>{_first('[IO]')}(?:n|ut) ?\[)\d{{1,6}}(?=\])",
        r"(?P<key>ipython-input-)\d{1,6}-[0-9a-f]{6,16}",
    ),
    "object_addresses": (rf"(?<= at )0x{_HEX}{{4,16}}(?!{_HEX})",),
    "numbers": (rf"{_DIGIT}\d*+(?:[.,]\d++)*+(?:[eE][+-]?\d++)?(?!\w)",),
}


def _replacement(kind: NoiseKind, pattern: str) -> str | Callable[[re.Match[str]], str]:
    if kind == "temporary_paths":
        return _temporary
    placeholder = _PLACEHOLDERS[kind]
    if "(?P<answer>" in pattern:
        return lambda match: match["answer"] or placeholder
    return rf"\g<key>{placeholder}" if "(?P<key>" in pattern else placeholder


_PLACEHOLDERS: Final[dict[NoiseKind, str]] = {
    "uuids": "<uuid>",
    "request_ids": "<id>",
    "addresses": "<address>",
    "transfer_rates": "<rate>",
    "durations": "<duration>",
    "timestamps": "<time>",
    "hex_ids": "<id>",
    "process_ids": "<pid>",
    "ports": "<port>",
    "counters": "<n>",
    "object_addresses": "<address>",
    "numbers": "<number>",
}


def _temporary(match: re.Match[str]) -> str:
    folder, path = match.groups()
    path = _names_replaced(path, looks_drawn)
    return f"<tmp>/{path}" if folder else path


_NAMES_OF_ARGUMENTS: Final = (
    *("attempt", "attempts", "attempt number", "attempt no", "attempt count", "retry", "retries"),
    *("retry count", "retry number", "retry attempt", "try number", "idempotency key"),
    *("traceparent", "tool call id", "correlation id", "x correlation id", "x request id"),
    *("client request id", "etag", "if match", "if none match", "progress token", "sent at"),
    *("requested at", "client time", "client timestamp", "current time", "now"),
)
_DRAWN_IDS: Final = ("request id", "call id", "invocation id")
"""Noise only if they look drawn by chance: people number requests, too."""
_KEYS_OF_ARGUMENTS: Final = (
    (
        r'(?<!\\)("(?i:{any})":)(?:-?\d{1,20}(?:\.\d{1,20})?|"[^"\\]{0,200}")'
        r'|(?<!\\)("(?i:{drawn})":)"(?=[^"]{0,200}\d)[\w.-]{16,200}"'
    )
    .replace("{any}", "|".join(one.replace(" ", "[_-]?") for one in _NAMES_OF_ARGUMENTS))
    .replace("{drawn}", "|".join(one.replace(" ", "[_-]?") for one in _DRAWN_IDS))
)
_KEY_OF_ARGUMENT: Final = re.compile(
    b'":(?:'
    + b"|".join(
        b'(?<="' + name.replace(" ", "").encode() + b'":)'
        for name in (*_NAMES_OF_ARGUMENTS, *_DRAWN_IDS)
    )
    + b")"
).search
_SAID_BESIDES: Final = re.compile(r'"[^"\\]{1,64}":<noise>|[{}\[\],]')


def _temporary_argument(match: re.Match[str]) -> str:
    folder, path = match.groups()
    return folder + _names_replaced(path, surely_drawn)


def _names_replaced(path: str, drawn: Callable[[str], bool]) -> str:
    return "".join("<name>" if drawn(part) else part for part in _SEPARATORS.split(path))


_SEPARATORS: Final = re.compile(r"([\\/]{1,2})")
