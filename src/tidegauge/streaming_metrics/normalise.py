"""Normalising: texts that differ only in what means nothing become equal before they are digested.

A result that carries a timestamp is new every time, and hides a loop from exact comparison.
"""

from __future__ import annotations

from typing import Final, get_args

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.streaming_metrics.noise import Kind, rules

__all__ = ["DEFAULT_KINDS", "Normalise"]

DEFAULT_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)[:-1]
"""All but ``numbers``: most numbers mean something."""


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
    ``numbers``          ``<number>``   every number that stands alone; only on request
    ===================  =============  ==========================================================

    Of a text longer than ``max_length``, the first and the last half of that are normalised; what
    lies between is put down by its length and digest, and so is compared exactly.

    Args:
        *kinds: what is replaced; left out, :data:`DEFAULT_KINDS`.
        max_length: characters of one text that are normalised.

    Raises:
        ConfigurationError: an unknown kind, or a ``max_length`` below 1.

    >>> normalise = Normalise()
    >>> normalise("2026-11-21 23:25:02,113 INFO 3 passed in 0.35s (/tmp/tmpk3x_9a/log)")
    '<time> INFO 3 passed in <duration> (<tmp>/<name>/log)'
    >>> Normalise("numbers")("page 3 of 12, 23:25:02")
    'page <number> of <number>, <number>:<number>:<number>'
    """

    def __init__(self, *kinds: Kind, max_length: int = 65_536) -> None:
        chosen = kinds or DEFAULT_KINDS
        unknown = set(chosen) - set(get_args(Kind))
        if unknown:
            known = ", ".join(get_args(Kind))
            raise ConfigurationError(f"unknown kind {sorted(unknown)[0]!r}; known: {known}")
        if max_length < 1:
            raise ConfigurationError("max_length is to be at least 1")
        self.kinds: Final[tuple[Kind, ...]] = tuple(k for k in get_args(Kind) if k in chosen)
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
