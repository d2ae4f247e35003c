"""Normalisers: known noise is replaced by placeholders before a text is digested.

A result that carries a timestamp is new every time, and hides a loop from comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, get_args

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.streaming_metrics.known_noise import (
    Noise,
    NoiseKind,
    noise_in_arguments,
    noise_in_text,
    without_numbers,
)

DEFAULT_KINDS: Final[tuple[NoiseKind, ...]] = get_args(NoiseKind)[:-1]
"""All but ``numbers``, most of which mean something."""


class Normalise:
    r"""A normaliser: takes a text and gives it with placeholders for what means nothing.

    ===================  =============  ==========================================================
    kind                 placeholder    what is replaced
    ===================  =============  ==========================================================
    ``uuids``            ``<uuid>``     ``123e4567-e89b-12d3-a456-426614174000``; ULIDs
    ``request_ids``      ``<id>``       ``req_011CSHoEeqs5C35K``, ``call_``, ``chatcmpl-`` and
                                        their like; other words before 20 letters and digits or
                                        more that were drawn by chance; values of the keys
                                        ``request_id``, ``trace_id``, ``completion_id``,
                                        ``etag`` and their like; in HTML, of ``csrf``, ``nonce``
    ``addresses``        ``<address>``  ``0x7f3c2a1b4d30``, and ``at 0x7f3c`` in what an object
                                        says of itself; short constants such as ``0x80070005`` stay
    ``temporary_paths``  ``<tmp>``      the temporary folder of Linux, macOS and Windows, and
                                        names after it that look drawn by chance: ``<name>``
    ``transfer_rates``   ``<rate>``     ``1.2 MB/s``, ``35.1it/s``, the progress table of curl;
                                        rows of progress that the next one overwrites
    ``durations``        ``<duration>`` ``in 0.35s``, ``12 ms``, ``5 minutes``, ``took 00:00:03``,
                                        ``9 seconds ago``; values of the keys ``took``,
                                        ``duration*``, ``elapsed*``, ``latency*``,
                                        ``execution_time``, ``*_ms``, ``retry_after`` and
                                        their like
    ``timestamps``       ``<time>``     a date with a time of day (ISO 8601, e-mail and HTTP dates,
                                        the usual logs), a time with seconds, seconds and
                                        milliseconds since 1970 (of the years 2021 to 2032);
                                        dates alone stay: they mostly mean something
    ``hex_ids``          ``<id>``       16 hexadecimal digits or more, such as trace ids; not 40
                                        that stand alone (a commit), nor what is called a
                                        checksum or a hash
    ``process_ids``      ``<pid>``      ``pid 4711``, ``PID=4711``, ``/proc/4711``; ``[4711]`` in a
                                        line with a time; in messages of shells and runtimes
    ``ports``            ``<port>``     ``port 40001``, ``"port": 8080``, ``localhost:40001``
    ``counters``         ``<n>``        ``attempt 3/5``, ``retry_count=2``; what is left of a rate
                                        limit; seeds; the line of an interactive shell, the
                                        number of a notebook's cell
    ``numbers``          ``<number>``   every number that stands alone; only on request
    ===================  =============  ==========================================================

    Keys are recognized in any spelling (``execution_time``, ``executionTime``,
    ``Execution-Time``, ``EXECUTION_TIME``) in JSON, Python, ``key=value`` and headers.

    Of a text longer than ``max_length``, the first and the last half of that are normalised; what
    lies between is put down by its length and digest, and so is compared exactly.

    Args:
        *kinds: what is replaced; the default is :data:`DEFAULT_KINDS`.
        max_length: bytes of one text, in UTF-8, that are normalised.

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

    _finds = staticmethod(noise_in_text)

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
        self.clean: Final[set[bytes]] = set()  # digests of texts that have no noise
        self.numbers: Final = "numbers" in self.kinds
        self.found: Callable[[bytes], list[Noise]] = self._finds
        if len(self.kinds) < len(DEFAULT_KINDS):
            self.found = functools.partial(_chosen, self.kinds)

    def __call__(self, text: str) -> str:
        """The text with its placeholders."""
        data = text.encode("utf-8", "surrogatepass")
        replaced = self.replaced(data)
        return text if replaced is data else replaced.decode("utf-8", "surrogatepass")

    def __repr__(self) -> str:
        kinds = "".join(f"{kind!r}, " for kind in self.kinds)
        return f"{type(self).__name__}({kinds}max_length={self.max_length})"

    def replaced(self, data: bytes, kinds: list[str] | None = None) -> bytes:
        """The same for a text in UTF-8; one without noise is returned itself.

        Args:
            data: the text.
            kinds: takes the kinds of what was replaced, each once, but not ``numbers``.
        """
        size, most = len(data), self.max_length
        if size <= most:
            found = self.found(data)
            if found:
                data = with_placeholders(data, found, kinds)
            return without_numbers(data) if self.numbers else data
        head, tail = _boundary(data, (most + 1) // 2), _boundary(data, size - most // 2)
        digest = xxhash.xxh3_128_hexdigest(data[head:tail])
        between = f"<{tail - head} bytes {digest}>".encode()
        return self.replaced(data[:head], kinds) + between + self.replaced(data[tail:], kinds)


def _chosen(kinds: Sequence[NoiseKind], data: bytes) -> list[Noise]:
    return [one for one in noise_in_text(data) if one.kind in kinds]


def with_placeholders(data: bytes, found: list[Noise], kinds: list[str] | None = None) -> bytes:
    """The text with the placeholders of its noise, whose kinds are added to ``kinds``."""
    if kinds is not None:
        kinds += sorted({one.kind for one in found}.difference(kinds))
    pieces: list[bytes] = []
    at = 0
    for start, end, _, replacement, _ in found:
        pieces += data[at:start], replacement
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def _boundary(data: bytes, at: int) -> int:
    """The first place from there on where a character begins."""
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


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

    Of a text longer than ``max_length``, the middle is compared exactly, as in :class:`Normalise`.

    >>> volatile = Volatile()
    >>> volatile("3 passed in 0.35s"), volatile.arguments("sleep 0.35s")
    ('3 passed in <duration>', 'sleep 0.35s')
    >>> volatile.arguments('{"attempt":3,"q":"cats"}'), volatile.arguments('{"attempt":3}')
    ('{"attempt":<n>,"q":"cats"}', '{"attempt":3}')
    """

    def __init__(self, *, max_length: int = 16_384) -> None:
        super().__init__(max_length=max_length)
        self.arguments: Final = VolatileArguments(max_length=max_length)


class VolatileArguments(Normalise):
    """What is left out of arguments: see :class:`Volatile`."""

    _finds = staticmethod(noise_in_arguments)


@functools.cache
def volatile() -> Volatile:
    """The one :class:`Volatile` of the process."""
    return Volatile()
