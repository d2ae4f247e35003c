"""What both listeners do with a request: check who sends it, read it, queue it, count it."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from tidegauge._net.token import BearerToken
from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.otlp.decoded import (
    Decoded,
    MalformedRequestError,
)
from tidegauge.instrumentation.otlp.from_json import decode_json
from tidegauge.instrumentation.otlp.from_protobuf import decode_protobuf
from tidegauge.instrumentation.otlp.limits import READ_LIMITS, ReadLimits
from tidegauge.instrumentation.spans.span import SpanData

__all__ = [
    "RETRY_SECONDS",
    "BusyError",
    "Encoding",
    "Forwards",
    "Reception",
    "ReceptionCounts",
    "TakesSpans",
    "TooLargeError",
    "decompress",
]

Encoding: TypeAlias = Literal["protobuf", "json"]

RETRY_SECONDS: Final = 1
"""After how many seconds a sender is to try again, when there was no room."""

_PIECE: Final = 65_536
_MAX_MEMBERS: Final = 1_024

_DECODERS: Final[Mapping[Encoding, Callable[[bytes, ReadLimits], Decoded]]] = {
    "protobuf": decode_protobuf,
    "json": decode_json,
}


class BusyError(Exception):
    """There is no room now: the sender is to try again."""


class TooLargeError(Exception):
    """A request larger than is taken, before or after it was decompressed."""


class Forwards(Protocol):
    """Where requests are passed on to."""

    def offer(self, body: bytes, encoding: Encoding, spans: int) -> None:
        """Pass a request on, later; never waits."""


class TakesSpans(Protocol):
    """Where the spans go."""

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Take these spans, all or none; ``False``, there was no room for them in time."""


@dataclass(slots=True)
class ReceptionCounts:
    """Counts of spans.

    Args:
        received: spans that were taken.
        refused: spans that were not, by reason; of a request that could not be read, or was not
            let in, one.
    """

    received: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Reception:
    """Takes requests from any number of threads; waits no longer than the intake does for room.

    Args:
        intake: takes the spans.
        limits: how much of a request is read.
        token: what senders are to show; left out, everybody is let in.
        forwards: where requests that were taken are passed on to.

    Raises:
        ConfigurationError: the token is empty.
    """

    def __init__(
        self,
        intake: TakesSpans,
        *,
        limits: ReadLimits = READ_LIMITS,
        token: str | None = None,
        forwards: Forwards | None = None,
    ) -> None:
        span_faults.reading()
        self._intake = intake
        self._limits = limits
        self._token = BearerToken(token)
        self._forwards = forwards
        self._lock = threading.Lock()
        self._counts = ReceptionCounts()

    @property
    def counts(self) -> ReceptionCounts:
        """What was taken and what was not, so far."""
        with self._lock:
            return ReceptionCounts(self._counts.received, dict(self._counts.refused))

    def authorizes(self, authorization: str | None) -> bool:
        """Whether this ``Authorization`` is valid; counts the requests where it is not."""
        if self._token.authorizes(authorization):
            return True
        self.refuse("unauthorized")
        return False

    def unpack(self, body: bytes, most: int, until: float) -> bytes:
        """What was compressed, counting what cannot be taken; see :func:`decompress`."""
        try:
            return decompress(body, most, until)
        except TooLargeError:
            self.refuse("too_large")
            raise
        except MalformedRequestError:
            self.refuse("malformed")
            raise

    def take(self, body: bytes, encoding: Encoding) -> Decoded:
        """Read a trace request, and queue its spans.

        Returns:
            What was taken of it, and what was not.

        Raises:
            MalformedRequestError: it is no trace request.
            BusyError: there is no room for its spans now.
        """
        try:
            decoded = _DECODERS[encoding](body, self._limits)
        except MalformedRequestError:
            self.refuse("malformed")
            raise
        if not self._intake.offer(decoded.spans, len(body)):
            self.refuse("busy", len(decoded.spans))
            raise BusyError
        if self._forwards is not None and decoded.spans:
            self._forwards.offer(body, encoding, len(decoded.spans))
        with self._lock:
            self._counts.received += len(decoded.spans)
        for reason, count in decoded.refused.items():
            self.refuse(reason, count)
        return decoded

    def refuse(self, reason: str, spans: int = 1) -> None:
        """Count spans that are not taken."""
        with self._lock:
            self._counts.refused[reason] = self._counts.refused.get(reason, 0) + spans


def decompress(body: bytes, most: int, until: float = math.inf) -> bytes:
    """What was compressed by gzip or deflate, as long as it is not too much.

    It is read a piece at a time: what zlib leaves of a piece behind the end of a gzip member is
    copied, and would be the rest of the body otherwise, once for each of millions of members.

    Args:
        body: what was compressed.
        most: bytes that may be in it.
        until: when to give up, as ``time.monotonic()`` counts.

    Raises:
        TooLargeError: there is more than ``most`` bytes in it.
        MalformedRequestError: it was compressed by neither, is not whole, or has more than 1,024
            gzip members (block gzip's, of 64 kB, hold 64 MB in so many).
        TimeoutError: it took too long.

    >>> import gzip
    >>> decompress(gzip.compress(b"spa") + gzip.compress(b"ns"), 5)
    b'spans'
    """
    found: list[bytes] = []
    room, start, members = most, 0, 0
    try:
        while start < len(body):
            members += 1
            if members > _MAX_MEMBERS:
                raise MalformedRequestError(f"more than {_MAX_MEMBERS} gzip members")
            stream = zlib.decompressobj(wbits=47)  # tells gzip and zlib apart by itself
            while not stream.eof:
                if time.monotonic() > until:
                    raise TimeoutError("it took too long to decompress")
                piece = body[start : start + _PIECE]
                if not piece:
                    raise MalformedRequestError("what was compressed is not whole")
                start += len(piece)
                found.append(stream.decompress(piece, room + 1))
                room -= len(found[-1])
                if room < 0:
                    raise TooLargeError
            start -= len(stream.unused_data)
    except zlib.error as error:
        raise MalformedRequestError(f"it cannot be decompressed: {error}") from error
    return b"".join(found)
