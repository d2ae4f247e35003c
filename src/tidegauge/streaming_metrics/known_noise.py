"""Known noise: what changes in a text without meaning anything, and where it is.

Texts are searched as UTF-8, in a plain form of the same length: lower case, ``0`` for each digit,
one quote, one slash, one dash, and ``:`` for what stands between a key and its value. Nearly all
noise has a digit in it, so the numbers of a text are looked at, each by what stands before and
behind it; a text without any costs little. What is found is checked in the text itself.

Time is linear in the length of the text, also where the text is made to hurt: what is read before
and behind a number is bounded.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import xxhash

from tidegauge.streaming_metrics.drawn_names import drawn_id, has_words, looks_drawn, surely_drawn

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
    "numbers",
]

_Match: TypeAlias = re.Match[bytes]
_Search: TypeAlias = Callable[..., _Match | None]


class Noise(NamedTuple):
    """A place in a text that means nothing.

    Attributes:
        start, end: where it is, in bytes.
        kind: what it is.
        replacement: what stands there instead.
        key: the name before it, in lower case, if that is how it was recognized.
    """

    start: int
    end: int
    kind: NoiseKind
    replacement: bytes
    key: str = ""


def noise_in_text(data: bytes) -> list[Noise]:
    """What means nothing in a text, in UTF-8, from the left to the right."""
    plain = data.translate(_PLAIN)
    find = plain.find
    found: list[Noise] = []
    # find() takes half as long as "in" here.
    if find(b"tmp") >= 0 or (find(b"/") >= 0 and (find(b"olders/") >= 0 or find(b"temp/") >= 0)):
        found = _temporary_names(data, looks_drawn)
    with_numbers = find(b"0") >= 0
    if find(b":") >= 0:
        found += _values_of_ids(data, plain)
        if with_numbers:
            found += _numbers_of_test_runs(data, plain)
    if with_numbers:
        _find_numbers(data, plain, found)
        if find(b"%") >= 0:
            found += _overwritten_rows(data)
    if find(b"_") >= 0:
        found += _ids_with_prefix(data, plain)
        if with_numbers and find(b"__:__") >= 0:
            found += _tables_of_curl(data)
    if find(b" ago") >= 0 or find(b"just now") >= 0:
        found += _ages(plain)
    return _apart(found) if len(found) > 1 else found


def noise_in_arguments(data: bytes) -> list[Noise]:
    """What no agent chooses in arguments, as JSON or another text, from the left to the right."""
    find = data.find
    found: list[Noise] = []
    if find(b" at 0x") >= 0:
        found += [
            Noise(one.start() + 4, one.end(), "addresses", b"<address>")
            for one in re.finditer(rb" at 0x[0-9a-fA-F]{4,16}(?![0-9a-fA-F])", data)
        ]
    if find(b"tmp") >= 0:
        found += _temporary_names(data, surely_drawn)
    if (
        find(b'":') >= 0
        and data[:1] in (b"{", b"[")
        and _search(_BEFORE_ARGUMENT)(data.lower().translate(None, b"_-"))
    ):
        found += _keys_of_arguments(data)
    return _apart(found) if len(found) > 1 else found


def without_numbers(data: bytes) -> bytes:
    """The text with ``<number>`` for every number that stands alone."""
    return _NUMBER(b"<number>", data)


_NUMBER: Final = re.compile(
    rb"\d(?:(?<![\w.]\d)|(?<=\\[bfnrt]\d))\d*+(?:[.,]\d++)*+(?:[eE][+-]?\d++)?(?!\w)"
).sub


Numbers: TypeAlias = tuple[bytes, tuple[float | bytes, ...]]
"""A digest of a text without its numbers; and these: of a word with digits in it, a digest."""

_MAX_TEXT: Final = 4_096
_MAX_NUMBERS: Final = 64


def numbers_in(data: bytes) -> Numbers | None:
    """What stands in a text where there are digits, and a digest of the rest.

    Returns:
        ``None``: no digits, more than 64 numbers, or more than 4,096 bytes.

    >>> numbers_in(b"request a7f, 43%: 1.5 MB") == numbers_in(b"request a7f, 43%: 1.5 MB")
    True
    >>> [one for one in numbers_in(b"request a7f, 43%: 1.5 MB")[1] if type(one) is float]
    [43.0, 1.5]
    """
    if len(data) > _MAX_TEXT:
        return None
    rest: list[bytes] = []
    values: list[float | bytes] = []
    end = at = 0
    # Found by the digit: a regular expression would try every letter of a text without any.
    find = data.translate(_PLAIN).find
    while (digit := find(b"0", at)) >= 0:
        at = _rest_of_number(data, digit).end()  # type: ignore[union-attr]
        start = end + len(data[end:digit].rstrip(_LETTERS))
        if start and data[start - 1] == _BACKSLASH:
            if data[start] not in _ESCAPED:  # no word begins there, whatever has digits in it
                at = _rest_of_word(data, digit).end()  # type: ignore[union-attr]
                continue
            start += 1  # an escape is no word
        if len(values) == _MAX_NUMBERS:
            return None
        rest.append(data[end:start])
        number = data[start:at]
        values.append(
            float(number.rstrip(b".")) if _is_number(number) else xxhash.xxh3_64_digest(number)
        )
        end = at
    if not values:
        return None
    rest.append(data[end:])
    return xxhash.xxh3_128_digest(b"\0".join(rest)), tuple(values)


_rest_of_number: Final = re.compile(rb"[\w.]*+").match
_rest_of_word: Final = re.compile(rb"\w*+").match
_LETTERS: Final = bytes(byte for byte in range(128) if chr(byte).isalpha() or byte == ord("_"))
_BACKSLASH: Final = ord("\\")
_ESCAPED: Final = frozenset(b"bfnrt")
_is_number: Final = re.compile(rb"\d{1,9}(?:\.\d{1,9})?\.?").fullmatch
"""Longer ones count nothing: they name a card, a phone, an account, and are kept as digests."""


def united(kinds: Sequence[str], more: Sequence[str]) -> Sequence[str]:
    """The kinds of both, each once."""
    return [*kinds, *(one for one in more if one not in kinds)] if kinds else more


def _apart(found: list[Noise]) -> list[Noise]:
    """From the left to the right, without those that begin within another."""
    found.sort(key=lambda one: (one.start, -one.end))
    apart: list[Noise] = []
    end = -1
    for one in found:
        if one.start >= end:
            apart.append(one)
            end = one.end
    return apart


# -- the plain form ------------------------------------------------------------------------------

_AS_PLAIN: Final = {"'": '"', "\\": "/", "-": "_", "=": ":", **dict.fromkeys("123456789", "0")}
_PLAIN: Final = bytes(
    ord(_AS_PLAIN.get(chr(byte), chr(byte))) for byte in bytes(range(256)).lower()
)
_ESCAPES: Final = frozenset({b"/b", b"/f", b"/n", b"/r", b"/t"})
"""Texts are often JSON, where a letter before a word may belong to an escape: ``\\n12 ms``."""


@functools.cache
def _match(pattern: str) -> _Search:
    """Compiled when it is asked for, not when this is imported."""
    return re.compile(pattern.encode()).match


@functools.cache
def _search(pattern: str) -> _Search:
    return re.compile(pattern.encode()).search


_END: Final = "(?![a-z0_])"
_ZONE: Final = rf"(?: ?(?:z|utc|gmt|ces?t|[ecmp][sd]t|[+_]00:?00){_END})?"
_AM: Final = rf"(?: ?[ap]m{_END})?"
# "9 us" is a size of shoes
_ATTACHED_UNIT: Final = (
    r"(?:\xc2\xb5s|\xce\xbcs|[mnu]?s(?:ecs?)?|(?:nano|micro|milli)?seconds?|mins?|minutes?|hrs?"
    "|hours?)"
)
_SPACED_UNIT: Final = (
    r"(?:\xc2\xb5s|\xce\xbcs|[mn]s|[mnu]?secs?|s|(?:nano|micro|milli)?seconds?|mins?|minutes?"
    "|hrs?|hours?)"
)
_RATE: Final = "(?:[kmgtp]?i?b(?:ytes)?(?:/s(?:ec)?|ps)|(?:it|runs|assertions)/s|s/it)"
_TIMES: Final = "(?= (?:attempts?|retr(?:y|ies)|tr(?:y|ies))(?![a-z]))"
_SECONDS: Final = r"00?(?:\.0{1,9})?s"
_AMOUNT: Final = r"0{1,19}(?:[.:]0{1,24}){0,3}(?:e[+_]?0{1,3})?"  # 0.0001 and 17 digits more
_ANY_UNIT: Final = rf"(?:{_ATTACHED_UNIT}| {_SPACED_UNIT}| ?(?:m|h|d|days?))(?![a-z])"

_SPAN: Final = r"0{1,4}:00(?::00(?:\.0{1,9})?|\.0{1,9})"
_TIME_OF_DAY: Final = rf"00?:00:00(?:[.,]0{{1,9}})?(?![0:]){_AM}{_ZONE}"
_HOUR: Final = f"00?:00(?![0:]){_AM}{_ZONE}"
_DATE: Final = (
    r"0000[_/]00[_/]00[t_ ](?:00:00(?::00(?:[.,]0{1,9})?)?|00[_.]00[_.]00(?:[_.]000(?=z))?)(?!0)"
    + _ZONE
)
_COMPACT: Final = rf"0{{8}}t0000(?:00(?:[.,]0{{1,9}})?)?(?!0){_ZONE}"
_OF_BAR: Final = r"0{1,4}:00(?::00)?<(?:0{1,4}:00(?::00)?|\?)"
_OF_NAMES: Final = r"0{8}_0{6}(?!0)"
_SPACED: Final = (
    f" (?:(?P<unit>{_SPACED_UNIT}){_END}|(?P<rate>{_RATE}){_END}"
    "|(?P<times>(?:attempts?|retr(?:y|ies)|tr(?:y|ies))(?![a-z])))"
)
_ATTACHED: Final = (
    rf"(?:(?P<compound>d ?00?h|h ?00?m(?: ?{_SECONDS})?|m ?{_SECONDS})"
    f"|(?P<rate>{_RATE})|(?P<unit>{_ATTACHED_UNIT})){_END}|(?P<times>(?:st|[nr]d|th)){_TIMES}"
)
_FRACTION: Final = (
    r"(?:,000){0,3}(?:\.0{1,9})?"
    f"(?:(?P<rate> ?{_RATE})|(?P<unit>{_ATTACHED_UNIT}| {_SPACED_UNIT})){_END}"
)
_UUID: Final = "[0a-f]{8}_[0a-f]{4}_[0a-f]{4}_[0a-f]{4}_[0a-f]{12}(?![0a-f])"
_ULID: Final = f"[0a-z]{{26}}{_END}"
_ISO: Final = f"[0hms.]{{2,20}}{_END}"

# -- numbers -------------------------------------------------------------------------------------

_NUMBERS: Final = (
    # where a number begins: behind a mark or a word of interest, long, or before what may be a unit
    r'0(?<!00)(?:(?<=[:"#\[/_>]0)|(?<=(?:rt|pt|id|ts|ry|er|ne|ok|in|.[:>\[]) 0)|(?=0{9})|(?=0*(?:'
    r"[:_/a-z\xc2\xce]|[.,]0| (?:m[sia]|[kgtpm][ib]|n[sa]|us|h[ro]|b[/yp]|it|at|re|tr|se|s[^a-z]"
    r"|s\Z|\xc2|\xce))))0*"
)
_IN_WORDS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz.")
_HEX_LETTERS: Final = frozenset(b"abcdef")
_IDS_GO_ON: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz_")
_MARKS: Final = frozenset(b",.:_/")
"""Behind a number, they say something only before another."""
_SPACE, _COLON, _ZERO, _BRACKET, _CLOSING = b" :0[]"


def _find_numbers(data: bytes, plain: bytes, found: list[Noise]) -> None:
    done, size = 0, len(plain)
    for number in _numbers()(plain):
        start, stop = number.span()
        if start < done:
            continue
        behind = plain[start - 2 : start] if start > 1 else plain[:start].rjust(2)
        before = behind[1]
        after = plain[stop] if stop < size else _SPACE
        one: Noise | None = None
        if before in _IN_WORDS and behind not in _ESCAPES:
            if before != _DOT:
                one = _within_word(data, plain, start, after)
        else:
            if before == _COLON or behind in _BEFORE_VALUE:
                one = _value_of_key(data, plain, start, behind)
            if before == _BRACKET and after == _CLOSING:
                one = _in_brackets(data, plain, start, stop)
            if one is None and behind in _LABELS:
                one = _labelled(data, plain, start, stop, _LABELS[behind])
            if one is None:
                read = _BY_NEXT.get(after)
                if read is not None and (after not in _MARKS or plain[stop + 1 : stop + 2] == b"0"):
                    one = read(data, plain, start, stop)
                if one is None and stop - start >= 10:
                    one = _since_1970(data, plain, start, stop)
                if one is None and after in _IDS_GO_ON:
                    one = _within_word(data, plain, start, after)
        if one is not None:
            found.append(one)
            done = one.end


@functools.cache
def _numbers() -> Callable[[bytes], Iterator[_Match]]:
    return re.compile(_NUMBERS.encode()).finditer


_DOT: Final = ord(".")


def _time(start: int, end: int) -> Noise:
    return Noise(start, end, "timestamps", b"<time>")


def _duration(start: int, end: int) -> Noise:
    return Noise(start, end, "durations", b"<duration>")


def _clock(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    """A time of day, or how long something took, as ``00:00:03``."""
    if plain.endswith((b"in ", b"took ", b"after "), 0, start):
        found = _match(_SPAN)(plain, start)
        if found is not None:
            return _duration(start, found.end())
    found = _match(_TIME_OF_DAY)(plain, start)
    if found is not None:
        # no part of six pairs, which are an address of a network card
        of_card = plain[start - 1 : start] == b":" and _of_card(plain, max(0, start - 3), start)
        if of_card or not _of_day(data, start):
            return None
        return _with_date(data, start, found.end())
    found = _match(_HOUR)(plain, start)
    if found is not None:
        one = _with_date(data, start, found.end())
        if one.start < start or _called_now(data, max(0, start - 40), start):
            return one
    found = _match(_OF_BAR)(plain, start)
    if found is None and plain.endswith(b"time: ", 0, start):
        found = _match(r"00:00\.0{1,9}")(plain, start)
    return found and _duration(start, found.end())


def _with_date(data: bytes, start: int, end: int) -> Noise:
    """``Sat, 21 Nov 2026 23:25:02``, ``Nov 21 23:25``, ``Sat Nov 21 23:25:02 UTC 2026``, and the
    ``E1121 23:25:02.1134   811 main.go:7]`` of glog."""
    if data[start - 1 : start] not in (b" ", b":"):
        return _time(start, end)
    date = _date_before(data, max(0, start - 40), start)
    if date is None:
        process = _of_glog(data, end) if _day_of_glog(data, max(0, start - 7), start) else None
        return _time(start, end) if process is None else _time(start - 5, process.end())
    year = _year(data, end)
    return _time(date.start(), end if year is None else year.end())


_date_before: Final = re.compile(
    rb"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt]))"
    rb"(?:(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )?"
    rb"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6} {1,2}\d\d?(?:,? \d{4})?"
    rb"|\d\d? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6} \d{4}"
    rb"|\d\d?[/-](?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[/-]\d{2,4}"
    rb"|\d\d?/\d\d?/\d{4}),?[ :]{1,2}\Z"
).search
_year: Final = re.compile(rb" 20\d\d\b").match
_day_of_glog: Final = re.compile(rb"(?:\A|[^A-Za-z]|(?<=\\)[bfnrt])[DIWEF]\d{4} \Z").search
_of_glog: Final = re.compile(rb" {1,8}\d{1,9}(?= [\w./-]{1,80}:\d{1,6}\])").match
_of_card: Final = re.compile(rb"(?<![0a-f])[0a-f][0a-f]:").match
_of_day: Final = re.compile(rb"[0-2]?\d:[0-5]\d:[0-5]\d").match
_called_now: Final = re.compile(
    rb"(?i:(?:current|local|server|system)(?: date and)?[ _-]?time(?: is )?|as of"
    rb"|(?:updated|generated|fetched|retrieved|checked)(?:[ _-]?at)?)[\\\"':= ]{0,5}\Z"
).search


def _date(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    """A date with a time of day that begins with the year; in names, ``20261121_232502``."""
    found = _match(_DATE)(plain, start) or (
        _match(_OF_NAMES)(plain, start) if _in_names(data, start) else None
    )
    return None if found is None else _time(start, found.end())


_in_names: Final = re.compile(rb"20\d\d[01]\d[0-3]\d[_-][0-2]\d[0-5]\d[0-5]\d").match


def _compact_date(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    found = _match(_COMPACT)(plain, start)
    return None if found is None else _time(start, found.end())


def _since_1970(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    found = _epoch(data, start)
    return None if found is None else _time(start, found.end())


_epoch: Final = re.compile(
    rb"(?:1[6-9]\d{8}(?:\d{3}){0,3}(?:\.\d{1,9})?"
    rb"|20[2-4]\d[01]\d[0-3]\d[0-2]\d[0-5]\d[0-5]\d(?:\d{3})?)(?!\w)"
).match


def _before_space(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    found = _match(_SPACED)(plain, stop)
    return None if found is None else _by_unit(data, start, stop, found)


def _before_letter(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    found = _match(_ATTACHED)(plain, stop)
    return None if found is None else _by_unit(data, start, stop, found)


def _before_fraction(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    """``0.35s``, ``1,250 ms``, ``1.2 MB/s``."""
    found = _match(_FRACTION)(plain, stop)
    return None if found is None else _by_unit(data, start, stop, found)


def _by_unit(data: bytes, start: int, stop: int, found: _Match) -> Noise | None:
    name, end = found.lastgroup, found.end()
    if stop - start > 12:
        return None
    if name == "rate":
        return Noise(start, end, "transfer_rates", b"<rate>")
    if name == "times":
        return Noise(start, stop if found[0][:1] == b" " else end, "counters", b"<n>")
    if data[end - 2 : end] == b"0s" and (
        data[start - 4 : start] == b"the " or _decade(data, start)
    ):
        return None
    if data[start - 1 : start] == b"/" or data[start - 2 : start - 1] in _SPEEDS_OF_WGET:
        first = _first_of_several(data, max(0, start - 48), start)
        return _duration(start if first is None else first.start(), end)
    return _duration(start, end)


_SPEEDS_OF_WGET: Final = frozenset((b"K", b"M", b"G", b"T"))
_first_of_several: Final = re.compile(
    rb"(?<![\d./])(?:\d{1,9}(?:\.\d{1,9})?/){1,4}\Z|(?<=% )\s{0,3}[\d.]{1,8}[KMGT][ =]\Z"
).search
"""``min/avg/max/mdev = 8.36/9.46/9.81/0.12 ms``; wget's ``100% 4.24M=0.3s``."""
_decade: Final = re.compile(rb"(?:1[5-9]|20)\d0s").match

_Reader: TypeAlias = Callable[[bytes, bytes, int, int], Noise | None]
_BY_NEXT: Final[dict[int, _Reader]] = {
    **dict.fromkeys(b":", _clock),
    **dict.fromkeys(b"_/", _date),
    **dict.fromkeys(b" ", _before_space),
    **dict.fromkeys(b".,", _before_fraction),
    **dict.fromkeys(b"smhdnukgpbir\xc2\xce", _before_letter),
    **dict.fromkeys(b"t", lambda *place: _compact_date(*place) or _before_letter(*place)),
}
"""How a number is read, by the character behind it."""

# -- numbers behind a word -----------------------------------------------------------------------

_NEXT: Final = rf"0{{1,9}}{_END}"
_SHORT: Final = r"0{1,6}\.0{2,9}"
_NEXT_LINE: Final = r"(?:\s|/n)"
_BY_SIGNAL: Final = (
    "killed|terminated|aborted|segmentation fault|bus error|illegal instruction|hangup|quit"
    "|floating point exception|trace/breakpoint trap"
)
_KINDS_OF_LABELS: Final[dict[bytes, tuple[NoiseKind, bytes, str]]] = {
    **dict.fromkeys(
        (
            *(b"attempt ", b"attempt #", b"attempt_", b"attempts ", b"attempt number "),
            *(b"retry ", b"retry #", b"retry_"),
        ),
        ("counters", b"<n>", rf"0{{1,9}}(?: ?(?:/|of) ?0{{1,9}})?{_END}"),
    ),
    **dict.fromkeys((b"pid ", b"pid #", b"/proc/", b"/task/"), ("process_ids", b"<pid>", _NEXT)),
    b"goroutine ": ("process_ids", b"<pid>", r"0{1,9}(?= \[)"),
    b"(node:": ("process_ids", b"<pid>", r"0{1,7}(?=\))"),
    b"::": ("process_ids", b"<pid>", r"0{1,7}(?=::)"),
    b"0: ": ("process_ids", b"<pid>", f"0{{2,7}}(?= {{1,4}}(?:{_BY_SIGNAL}))"),
    b"duration_ms ": ("durations", b"<duration>", rf"0{{1,9}}\.0{{1,9}}{_END}"),
    b"real ": (
        "durations",
        b"<duration>",
        f"{_SHORT}{_NEXT_LINE}user {_SHORT}{_NEXT_LINE}sys {_SHORT}",
    ),
    b"% cpu ": ("durations", b"<duration>", rf"(?:0{{1,3}}:)*{_SHORT} total"),
    **dict.fromkeys((b"port ", b"ports "), ("ports", b"<port>", rf"0{{4,5}}{_END}(?!\.0)")),
    **dict.fromkeys((b"sh: ", b"sh: line "), ("counters", b"<n>", "0{1,9}(?=:)")),
    **dict.fromkeys((b"in[", b"in [", b"out["), ("counters", b"<n>", r"0{1,6}(?=\])")),
    b"ipython_input_": ("counters", b"<n>", "0{1,6}_[0a-f]{6,16}"),
    **dict.fromkeys(
        (b"localhost:", b"0:", b"::]:", b"::0]:"), ("ports", b"<port>", f"00000(?:{_END}|(?=_>))")
    ),
}
_LABELS: Final = {
    end: tuple(label for label in _KINDS_OF_LABELS if label.endswith(end))
    for end in {label[-2:] for label in _KINDS_OF_LABELS}
}
"""By their last two characters."""
_of_shell: Final = re.compile(rb"(?<![\w.-])(?:ba|da|z|a|c|k)?sh: (?:line )?\Z").search
_of_cell: Final = re.compile(rb"(?<![A-Za-z])(?:In ?|Out)\[\Z").search
_of_host: Final = re.compile(rb"(?:localhost|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}|\[::1?\]):\Z").search


def _labelled(
    data: bytes, plain: bytes, start: int, stop: int, labels: tuple[bytes, ...]
) -> Noise | None:
    if not plain.endswith(labels, 0, start):
        return None
    label = next(label for label in labels if plain.endswith(label, 0, start))
    kind, replacement, form = _KINDS_OF_LABELS[label]
    found = _match(form)(plain, start)
    if found is None:
        return None
    begin = start - len(label)
    if label.startswith(b"sh"):
        agreed = _of_shell(data, max(0, start - 16), start) is not None
    elif label.endswith(b"["):
        agreed = _of_cell(data, max(0, start - 6), start) is not None
    elif label == b"::":
        agreed = (
            data[begin:start] == b"==" and _begins_line(data, max(0, begin - 2), begin) is not None
        )
    elif label == b"% cpu ":
        percent = _percent(data, max(0, begin - 3), begin)
        return percent and Noise(percent.start(), found.end(), kind, replacement)
    elif label.endswith(b":") and label != b"(node:":
        # a port that the system chose, because any would do
        agreed = (
            _of_host(data, max(0, start - 18), start) is not None
            and 32_768 <= int(data[start:stop]) <= 65_535
        )
    else:
        letter = plain[begin - 1] if begin else _SPACE
        agreed = (
            letter not in _IN_WORDS
            or plain[begin - 2 : begin] in _ESCAPES
            or (letter == _P and label.startswith(b"pid"))
        )
    return Noise(start, found.end(), kind, replacement) if agreed else None


_P: Final = ord("p")
_begins_line: Final = re.compile(rb"(?:\A|\n|\\n|\")\Z").search
_percent: Final = re.compile(rb"\d{1,3}\Z").search


def _in_brackets(data: bytes, plain: bytes, start: int, stop: int) -> Noise | None:
    """The process that wrote a line of a log, or that a shell runs as ``[1] 4711``."""
    if plain[stop + 1 : stop + 2] in _BEFORE_PROCESS and _begins_line(
        data, max(0, start - 3), start - 1
    ):
        job = _job(data, stop)
        if job is not None and (job["state"] or _begun(data, max(0, start - 8), start - 1)):
            return Noise(*job.span(1), "process_ids", b"<pid>")
    if 2 < stop - start < 8 and (
        plain.endswith(b"process [", 0, start)
        or (
            plain.find(b"00:00:00", max(0, start - 150), start) >= 0
            and _of_log(data, max(0, start - 150), start) is not None
        )
    ):
        return Noise(start, stop, "process_ids", b"<pid>")
    return None


_BEFORE_PROCESS: Final = frozenset((b" ", b"+", b"_"))
_job: Final = re.compile(
    rb"\](?: |[+-] {1,2}| {2}[+-] )(\d{2,7})(?P<state> {1,9}(?i:done|exit|running|terminated|killed"
    rb"|stopped|suspended|segmentation|abort|hangup|interrupt))?(?=\s|\\[nr]|\"|\Z)"
).match
_begun: Final = re.compile(rb"&[ \t]?(?:\r?\n|(?:\\r)?\\n)\Z").search
_of_log: Final = re.compile(
    rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[A-Z]{3,4}|[+-]\d\d:?\d\d))?"
    rb"(?:\]? \[| [\w.-]{1,64} [\w./-]{1,64}\[)\Z"
).search

# -- values of keys ------------------------------------------------------------------------------

_BEFORE_VALUE: Final = frozenset((b": ", b"> ", b':"', b' "', b'/"', b'>"', b'""', b":>"))
_BETWEEN: Final = b" \"'\\>"
_VALUES: Final[dict[NoiseKind, tuple[bytes, str]]] = {
    "durations": (
        b"<duration>",
        rf"(?!0000_00){_AMOUNT}(?:{_ANY_UNIT}(?:,? ?{_AMOUNT}{_ANY_UNIT}){{0,3}}"
        r"|\.\.0{1,9}\.0{1,9})?",
    ),
    "process_ids": (b"<pid>", rf"0{{1,7}}{_END}"),
    "ports": (b"<port>", rf"0{{1,5}}{_END}(?!\.0)"),
    "counters": (b"<n>", rf"0{{1,9}}(?: ?(?:/|of) ?0{{1,9}})?{_END}"),
}


def _value_of_key(data: bytes, plain: bytes, start: int, behind: bytes) -> Noise | None:
    if behind == b'":':  # as in most JSON
        from_ = start - 66 if start > 66 else 0
        key = data[plain.rfind(b'"', from_, start - 2) + 1 : start - 2]
    else:
        before = data[max(0, start - 72) : start].rstrip(_BETWEEN)
        if before[-1:] not in (b":", b"="):
            return None
        before = before[:-1].rstrip(b" \\")
        quote = before[-1:]
        if quote in (b'"', b"'"):
            key = before.rstrip(b"\"'\\")
            key = key[key.rfind(quote) + 1 :]
        else:
            key = b" ".join(before.rsplit(None, 2)[-2:])
    kind = _kind_of_key(key)
    if kind is None:
        return None
    replacement, form = _VALUES[kind]
    value = _match(form)(plain, start)
    return value and Noise(start, value.end(), kind, replacement, _name_of_key(key))


_words: Final = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+").findall
_end_of_key: Final = re.compile(rb"(?:\w[\w.-]* )?\w[\w.-]*\Z").search
_escaped: Final = re.compile(rb"\\[bfnrt]").split

_DURATIONS: Final = frozenset(
    b"took duration dur elapsed latency uptime runtime rtt ttfb qtime".split()
)
_OF_WHICH_TIME: Final = frozenset(
    b"execution response processing process query wall cpu total build load eval evaluation "
    b"inference request render compute user sys real run test compile search connect "
    b"wait clock elapsed actual".split()
)
_OF_TIME: Final = frozenset((b"taken", b"elapsed", b"spent", b"total"))
_UNITS: Final = frozenset(
    b"ms msec msecs us usec usecs ns nsec nsecs sec secs seconds millis milliseconds micros "
    b"microseconds nanos nanoseconds".split()
)
_POSITIONS: Final = frozenset(
    b"start begin end offset position from to at seek cursor timestamp".split()
)
"""Before the unit in a key that says where one is, not how long something took."""
_COUNTERS: Final = frozenset((b"attempt", b"attempts", b"retry", b"retries"))
_BEFORE_RETRY: Final = frozenset((b"after", b"in", b"delay", b"wait", b"backoff", b"interval"))
_LEFT: Final = frozenset((b"remaining", b"used"))
"""Of a limit on requests: every request counts."""


@functools.lru_cache(2_048)
def _kind_of_key(key: bytes) -> NoiseKind | None:
    """What a number means behind a key, in any spelling; ``None``: something."""
    words = _words_of_key(key)
    if not words:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else b""
    if (
        not _DURATIONS.isdisjoint(words)
        or (last == b"time" and before in _OF_WHICH_TIME)
        or (before == b"time" and last in _OF_TIME)
        or (last in _UNITS and before and before not in _POSITIONS)
        or (last.endswith(b"time") and last[:-4] in _OF_WHICH_TIME)
    ):
        return "durations"
    if not _COUNTERS.isdisjoint(words):
        return "durations" if last in _BEFORE_RETRY else "counters"
    if not _LEFT.isdisjoint(words) and b"ratelimit" in b"".join(words):
        return "counters"
    if last in (b"pid", b"ppid", b"tid") or (last == b"id" and before in (b"process", b"thread")):
        return "process_ids"
    return "ports" if last == b"port" else None


def _words_of_key(key: bytes) -> list[bytes]:
    end = _end_of_key(_escaped(key.rstrip(b"\\"))[-1])
    return [] if end is None else [word.lower() for word in _words(end[0])]


def _name_of_key(key: bytes) -> str:
    return b"_".join(_words_of_key(key)[-3:]).decode()


# -- ids and addresses ---------------------------------------------------------------------------


def _within_word(data: bytes, plain: bytes, start: int, after: int) -> Noise | None:
    """A number that stands in an id or an address, or in a duration such as ``PT5S``."""
    if after == _X:
        one = _address(data, plain, start)
        if one is not None:
            return one
    if after in _HEX_LETTERS or after == _DASH or plain[start - 1] in _HEX_LETTERS:
        found = _uuid(plain, start)
        if found is not None:
            return Noise(*found.span(), "uuids", b"<uuid>")
        if _match("[0a-f]{8}")(plain, start) or _search(r"[a-f]{9}\Z")(plain, start - 9, start):
            one = _hex_id(data, start)
            if one is not None:
                return one
    if data[start] == _ZERO and _match(_ULID)(plain, start) is not None:
        return _ulid(data, plain, start)
    if after == _COLON and plain[start - 2 : start] == b"0t":
        one = _clock(data, plain, start, start)
        day = _day_of_iso(data, max(0, start - 11), start)
        return one and (one if day is None else _time(day.start(), one.end))
    if plain.endswith((b":pt", b'"pt', b" pt"), 0, start):
        found = _match(_ISO)(plain, start)
        return found and _duration(start - 2, found.end())
    return None


_X, _DASH = b"x_"
_day_of_iso: Final = re.compile(rb"\d{4}-(?:W\d\d-\d|\d{3})T\Z").search


def _uuid(plain: bytes, start: int) -> _Match | None:
    """The UUID around its first number; no number need be in its first part."""
    if plain.find(b"_", max(0, start - 12), start + 9) < 0:
        return None
    found = _search(_UUID)(plain, max(0, start - 35), start + 37)
    return found if found is not None and found.start() <= start < found.end() else None


def _address(data: bytes, plain: bytes, start: int) -> Noise | None:
    """``0x7f3c2a1b4d30``, or a shorter one of an object that prints itself."""
    found = _match("0x[0a-f]{4,16}(?![0a-f])")(plain, start)
    if found is None or data[start] != _ZERO:
        return None
    long = found.end() - start > 10 or data[start - 4 : start] == b" at "
    return Noise(start, found.end(), "addresses", b"<address>") if long else None


def _ulid(data: bytes, plain: bytes, start: int) -> Noise | None:
    before = plain[start - 1] if start else _SPACE
    begins = before not in _IN_WORDS
    if not begins and plain[start - 2 : start] not in _ESCAPES:
        return None
    return Noise(start, start + 26, "uuids", b"<id>") if _of_ulid(data, start) else None


_of_ulid: Final = re.compile(
    rb"(?=\d{0,25}[A-Za-z])(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-hjkmnp-tv-z]{26})"
).match


def _hex_id(data: bytes, start: int) -> Noise | None:
    """16 hexadecimal digits or more, from the first that is a number on; no answer."""
    before = data[max(0, start - 16) : start]
    rest = before.rstrip(b"abcdefABCDEF")
    begin = start - (len(before) - len(rest))
    if rest[-1:].isalnum() and rest[-2:] not in _ESCAPES_OF_JSON:
        return None
    whole = _hex_digits(data, begin)
    if (
        whole is None
        or _of_account(whole[0]) is not None
        or (len(whole[0]) == _OF_GIT and rest[-1:] not in (b"_", b"-"))
        or _called_answer(data, max(0, begin - 24), begin)
    ):
        return None
    return Noise(*whole.span(), "hex_ids", b"<id>")


_ESCAPES_OF_JSON: Final = frozenset((rb"\b", rb"\f", rb"\n", rb"\r", rb"\t"))
_OF_GIT: Final = 40
"""Digits of the name of a commit: it is a state."""
_of_account: Final = re.compile(rb"(?:[A-F]{2})?\d++").fullmatch
_hex_digits: Final = re.compile(rb"[0-9a-fA-F]{16,}+(?![0-9A-Za-z_]|  \S| \*)").match
_called_answer: Final = re.compile(
    rb"(?i:sha-?\d{0,3}|md5|hash|digest|checksum|revision|commit(?:[ _-]?(?:id|sha))?)"
    rb"[\\\"' :=_-]{1,6}\Z"
).search

_IDS: Final = (
    *("request", "req", "trace", "correlation", "completion", "response", "generation"),
    *("invocation", "call", "host"),
)
_IS: Final = '(?:["/]{0,4} ?:>? ?["/]{0,4}|>)'
_ID_KEY: Final = (
    "id(?:empotency_?key|(?<=[tqenl _]id)(?:"
    + "|".join(f"(?<={one}id)|(?<={one}[_ ]id)" for one in _IDS)
    + f"|(?<=span_id)|(?<=spanid)|(?<=amz_id)_0|(?<=amz_cf_id))){_IS}"
)
_ETAG_KEY: Final = rf'etag(?:(?<![a-z]etag)|(?<=/[bfnrt]etag)){_IS}(?:w/["/]{{0,4}})?+'
_ONCE_KEY: Final = (
    '(?:[cx]srf|nonce)[a-z_]{0,24}(?:["/]{0,4} ?:>? ?["/]{0,4}'
    '|["/]{1,4} (?:value|content):["/]{0,4})'
)
_PREFIXES: Final = ("req", "cmpl", "call", "toolu", "msg", "resp", "run", "gen", "fc", "rs")
_PREFIXED: Final = (
    "_(?:(?=[a-z0]{20})|(?<=[qlugpncs]_)(?:"  # what they end with
    f"{'|'.join(f'(?<={one}_)' for one in _PREFIXES)})(?=[a-z0_]{{8}}))"
)
_value_of_id: Final = re.compile(rb"(?!(?:null|none|None|undefined)\b)[\w./+=:-]{1,128}").match
_value_used_once: Final = re.compile(
    rb"(?=[\w/+-]{0,128}\d)(?=[\d/+-]{0,128}[A-Za-z])[\w./+=-]{8,256}"
).match
_prefixed_id: Final = re.compile(
    rb"(?:(?<!\w)|(?<=\\[bfnrt]))(?:req[_-](?=[A-Za-z]{0,64}\d)(?P<short>\w{8,64})"
    rb"|(?:chatcmpl|cmpl|call|toolu|srvtoolu|msg|resp|run|gen|fc|rs)"
    rb"[_-](?=[A-Za-z]{0,64}\d)(?P<long>\w{16,64}))"
).search
_any_prefix: Final = re.compile(
    rb"(?:(?<![\w./+=-])|(?<=\\[bfnrt]))[A-Za-z][A-Za-z0-9]{0,15}(?:[_-][A-Za-z0-9]{1,16}){0,2}\Z"
).search
_of_any_prefix: Final = re.compile(rb"[A-Za-z0-9]{20,64}(?![\w/+=-])").match
_NO_IDS: Final = frozenset(b"cursor page token next prev after before offset key sha hash".split())
"""What follows these says where one is, or what something contains."""


def _values_of_ids(data: bytes, plain: bytes) -> list[Noise]:
    keys = _all(_ID_KEY)(plain)
    if plain.find(b"etag") >= 0:
        keys += _all(_ETAG_KEY)(plain)
    found = []
    for begin, end in keys:
        value = _value_of_id(data, end)
        if value is not None:
            name = _name_of_key(data[max(0, begin - 24) : end].rstrip(b" \"'\\:=>/W"))
            if not name.endswith(("hostid", "host_id")) or value.end() - end >= _LENGTH_OF_S3:
                found.append(Noise(end, value.end(), "request_ids", b"<id>", name))
    if plain.find(b"<") >= 0 and (plain.find(b"nonce") >= 0 or plain.find(b"srf") >= 0):
        for _, end in _all(_ONCE_KEY)(plain):
            value = _value_used_once(data, end)
            if value is not None:
                found.append(Noise(end, value.end(), "request_ids", b"<id>"))
    return found


_LENGTH_OF_S3: Final = 40
"""The id of a host that says no more than that of a request; shorter ones name a host."""


def _ids_with_prefix(data: bytes, plain: bytes) -> list[Noise]:
    found = [_id_with_prefix(data, begin) for begin, _ in _all(_PREFIXED)(plain)]
    return [one for one in found if one is not None]


def _id_with_prefix(data: bytes, begin: int) -> Noise | None:
    """An id around the mark behind its prefix."""
    known = _prefixed_id(data, max(0, begin - 9), begin + 66)
    if (
        known is not None
        and known.start() < begin
        and not has_words(known[known.lastgroup or 0].decode())
    ):
        return Noise(*known.span(), "request_ids", b"<id>")
    value = _of_any_prefix(data, begin + 1)
    if value is None or not drawn_id(value[0].decode()):
        return None
    prefix = _any_prefix(data, max(0, begin - 52), begin)
    if prefix is None or not _NO_IDS.isdisjoint(_words_of_key(prefix[0])):
        return None
    return Noise(prefix.start(), value.end(), "request_ids", b"<id>")


@functools.cache
def _all(pattern: str) -> Callable[[bytes], list[tuple[int, int]]]:
    finditer = re.compile(pattern.encode()).finditer
    return lambda data: [one.span() for one in finditer(data)]


# -- ages, rows of progress, and runs of tests ---------------------------------------------------

_AGE: Final = (
    "(?:(?<![a-z0_.])|(?<=/[bfnrt]))(?:(?:(?:about|less than|almost|over) )?(?:an?|a few|0{1,6}) ?"
    "(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?|y|years?) ago"
    "|just now)(?![a-z])"
)
_COLUMN: Final = r" {1,12}[\d.]{1,12}[kMGTP]?"
_SIZES: Final = rf"\d{{1,3}}(?:{_COLUMN} {{1,12}}\d{{1,3}}){{2}}{_COLUMN}"
_SPEEDS: Final = rf"{_COLUMN}{_COLUMN}(?: {{1,12}}[-\d:dh]{{2,9}}){{3}}{_COLUMN}"
_ROW: Final = r"(?:\r|\\r) {0,2}"
_OF_CURL: Final = (
    rf"(?:{_ROW}{_SIZES}{_SPEEDS})*{_ROW}(?=[^\r\n\\]{{0,160}}-:-)(?P<sizes>{_SIZES}){_SPEEDS}"
)


def _ages(plain: bytes) -> list[Noise]:
    return [_duration(*span) for span in _all(_AGE)(plain)]


def _tables_of_curl(data: bytes) -> list[Noise]:
    """The sizes of the last row stay; the rows before it depend on the speed alone."""
    return [
        Noise(*one.span(), "transfer_rates", one["sizes"] + b"<rate>")
        for one in re.finditer(_OF_CURL.encode(), data)
    ]


def _overwritten_rows(data: bytes) -> list[Noise]:
    """Rows of progress that the next one overwrites: how many there are depends on the speed."""
    found: list[Noise] = []
    for overwrites, ends in ((b"\r", b"\n"), (rb"\r", rb"\n")):
        rows = data.split(overwrites)
        end = 0
        for row, following in itertools.pairwise(rows):
            at = row.rfind(ends)
            start = end if at < 0 else end + at + len(ends)
            end += len(row) + len(overwrites)
            if _percentage(data, start, end) and _percentage(following.partition(ends)[0]):
                if found and found[-1].end == start:
                    start = found.pop().start
                found.append(Noise(start, end, "transfer_rates", b""))
    return found


_percentage: Final = re.compile(rb"\d%").search
_SEED: Final = r'(?<=seed)["/]{0,4}[: ] ?["/]{0,4}0{3,20}(?![a-z0_.]| of )'
_THREAD: Final = r'(?<=" \()0{1,9}(?=\) panicked at)'


def _numbers_of_test_runs(data: bytes, plain: bytes) -> list[Noise]:
    """The seed of a random order; the thread of Rust that panicked."""
    found = []
    if plain.find(b"panicked at") >= 0:
        found += [Noise(*span, "process_ids", b"<pid>") for span in _all(_THREAD)(plain)]
    if plain.find(b"seed") >= 0:
        found += [
            Noise(plain.index(b"0", start), end, "counters", b"<n>")
            for start, end in _all(_SEED)(plain)
        ]
    return found


# -- temporary names -----------------------------------------------------------------------------

_PART: Final = r"""[^/\\\s"'`<>|:*?,;()\[\]{}]{1,255}"""
_SEPARATOR: Final = r"[\\/]{1,2}"
_TEMPORARY: Final = (
    r"/(?:(?<![\w.~-]/)|(?<=\\[bfnrt]/))"
    r"(?:(?:private/)?(?:var/)?tmp/|(?:private/)?var/folders/[^/\s]{1,8}/[^/\s]{1,64}/\w/)"
    rf"(?:pytest-of-[^/\s]{{1,64}}/pytest-\d{{1,9}}/)?(?P<unix>{_PART}(?:/{_PART}){{0,8}})",
    r"[A-Za-z]:(?:(?<![\w.][A-Za-z]:)|(?<=\\[bfnrt][A-Za-z]:))"
    rf"(?:{_SEPARATOR}[^\\/:*?\"<>|\r\n]{{1,64}}){{0,6}}{_SEPARATOR}(?:Temp|TEMP|temp|tmp)"
    rf"{_SEPARATOR}(?P<windows>{_PART}(?:{_SEPARATOR}{_PART}){{0,8}})",
    r"t(?:(?<![\w.]t)|(?<=\\[bfnrt]t))mp(?:[a-z0-9_]{8}|\.[A-Za-z0-9]{10})(?![A-Za-z0-9_])",
)


@functools.cache
def _temporary() -> tuple[re.Pattern[bytes], ...]:
    return tuple(re.compile(one.encode()) for one in _TEMPORARY)


def _temporary_names(data: bytes, drawn: Callable[[str], bool]) -> list[Noise]:
    """Drawn names in temporary folders or alone; unless ``drawn`` is strict, also the folders."""
    found = []
    unix, windows, alone = _temporary()
    for pattern in (unix, windows):
        for one in pattern.finditer(data):
            if drawn is looks_drawn:
                found.append(Noise(one.start(), one.start(1), "temporary_paths", b"<tmp>/"))
            at = one.start(1)
            for part in _PARTS_OF_PATH(one[1]):
                if part and drawn(part.decode("utf-8", "replace")):
                    found.append(Noise(at, at + len(part), "temporary_paths", b"<name>"))
                at += len(part)
    found += [
        Noise(*one.span(), "temporary_paths", b"<name>")
        for one in alone.finditer(data)
        if drawn(one[0].decode())
    ]
    return found


_PARTS_OF_PATH: Final = re.compile(rb"([\\/]{1,2})").split


# -- arguments -----------------------------------------------------------------------------------

_NAMES_OF_ARGUMENTS: Final[dict[str, tuple[NoiseKind, bytes]]] = {
    **dict.fromkeys(
        (
            *("attempt", "attempts", "attempt number", "attempt no", "attempt count", "retry"),
            *("retries", "retry count", "retry number", "retry attempt", "try number"),
        ),
        ("counters", b"<n>"),
    ),
    **dict.fromkeys(
        (
            *("idempotency key", "traceparent", "tool call id", "correlation id"),
            *("x correlation id", "x request id", "client request id", "etag", "if match"),
            *("if none match", "progress token"),
        ),
        ("request_ids", b"<id>"),
    ),
    **dict.fromkeys(
        ("sent at", "requested at", "client time", "client timestamp", "current time", "now"),
        ("timestamps", b"<time>"),
    ),
}
_DRAWN_IDS: Final[dict[str, tuple[NoiseKind, bytes]]] = dict.fromkeys(
    ("request id", "call id", "invocation id"), ("request_ids", b"<id>")
)
"""Noise only if they look drawn by chance: people number requests, too."""
_KIND_OF_ARGUMENT: Final = {
    name.replace(" ", ""): kind for name, kind in (_NAMES_OF_ARGUMENTS | _DRAWN_IDS).items()
}
_ENDS: Final = sorted({name[-2:] for name in _KIND_OF_ARGUMENT})
_BEFORE_ARGUMENT: Final = (
    f'":(?<=(?:{"|".join(_ENDS)})":)'
    f"""(?:{"|".join(f'(?<="{name}":)' for name in _KIND_OF_ARGUMENT)})"""
)
_VALUE_OF_ARGUMENT: Final = r'(?:-?\d{1,20}(?:\.\d{1,20})?(?![\w.])|"[^"\\]{0,200}")'


@functools.cache
def _of_arguments() -> re.Pattern[bytes]:
    anything, drawn = (
        "|".join(name.replace(" ", "[_-]?") for name in names)
        for names in (_NAMES_OF_ARGUMENTS, _DRAWN_IDS)
    )
    return re.compile(
        rf'(?<!\\)"(?P<key>(?i:{anything}))":{_VALUE_OF_ARGUMENT}'
        rf'|(?<!\\)"(?P<drawn>(?i:{drawn}))":"(?=[^"]{{0,200}}\d)[\w.-]{{16,200}}"'.encode()
    )


def _keys_of_arguments(data: bytes) -> list[Noise]:
    """Values in JSON that no agent chooses, unless they are all that is there."""
    found, besides, at = [], b"", 0
    for one in _of_arguments().finditer(data):
        name = (one["key"] or one["drawn"]).decode()
        kind, replacement = _KIND_OF_ARGUMENT[re.sub("[_-]", "", name.lower())]
        start = one.end(one.lastgroup or "key") + 2
        found.append(Noise(start, one.end(), kind, replacement, name.lower()))
        besides += data[at : one.start()]
        at = one.end()
    return found if (besides + data[at:]).strip(b"{}[], ") else []
