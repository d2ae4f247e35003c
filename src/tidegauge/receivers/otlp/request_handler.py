"""Handles the requests of both listeners: authorize, decompress, decode, queue, count."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidegauge._net.token import BearerToken
from tidegauge._span_faults import span_faults
from tidegauge.catalog import MetricDefinition
from tidegauge.instrumentation.spans.span import SpanData
from tidegauge.receivers.otlp.decoding import (
    READ_LIMITS,
    Decoded,
    Encoding,
    MalformedRequestError,
    ReadLimits,
    Signal,
    decode_logs_protobuf,
    decode_protobuf,
)
from tidegauge.receivers.otlp.forwarding import Forwarder
from tidegauge.receivers.otlp.json_decoding import decode_json, decode_logs_json

__all__ = [
    "RETRY_SECONDS",
    "BusyError",
    "RequestHandler",
    "SpanConsumer",
    "TooLargeError",
    "decompress",
]

RETRY_SECONDS: Final = 1
"""Seconds after which a sender should try again, if there was no room."""

_PIECE: Final = 65_536
_MAX_MEMBERS: Final = 1_024

_DECODERS: Final[Mapping[tuple[Signal, Encoding], Callable[[bytes, ReadLimits], Decoded]]] = {
    ("traces", "protobuf"): decode_protobuf,
    ("traces", "json"): decode_json,
    ("logs", "protobuf"): decode_logs_protobuf,
    ("logs", "json"): decode_logs_json,
}


class BusyError(Exception):
    """There is no room now; the sender should try again."""


class TooLargeError(Exception):
    """A request beyond the size limit, before or after decompression."""


class SpanConsumer(Protocol):
    """Takes received spans, and processes them in the background."""

    @property
    def alive(self) -> bool:
        """Whether it accepts spans."""

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Queue these spans, all or none; ``False``: there was no room in time."""

    def close(self, timeout: float | None = None) -> list[str]:
        """Accept no more spans, and process the rest in time; what was lost, in words."""

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as metrics of the catalogue."""


class RequestHandler:
    """Handles requests in any number of threads; blocks only as long as ``spans`` waits for room.

    Args:
        spans: takes the spans.
        limits: how much of a request is read.
        token: bearer token that senders must send; ``None``: they need none.
        forwarder: forwards the accepted requests.

    Attributes:
        received: number of accepted spans.
        rejected: number of rejected spans and events by reason; a malformed or unauthorized request
            counts as one.
    """

    def __init__(
        self,
        spans: SpanConsumer,
        *,
        limits: ReadLimits = READ_LIMITS,
        token: str | None = None,
        forwarder: Forwarder | None = None,
    ) -> None:
        span_faults.reading()
        self._spans = spans
        self._limits = limits
        self.token = BearerToken(token)
        self._forwarder = forwarder
        self._lock = threading.Lock()
        self.received = 0
        self.rejected: Counter[str] = Counter()

    def decompress(self, body: bytes, most: int, until: float) -> bytes:
        """The decompressed body; counts a rejected one. See :func:`decompress`."""
        try:
            return decompress(body, most, until)
        except TooLargeError:
            self.count_rejected("too_large")
            raise
        except MalformedRequestError:
            self.count_rejected("malformed")
            raise

    def handle(self, body: bytes, encoding: Encoding, signal: Signal = "traces") -> Decoded:
        """Decode a request, and queue its spans or events; MalformedRequestError or BusyError."""
        try:
            decoded = _DECODERS[signal, encoding](body, self._limits)
        except MalformedRequestError:
            self.count_rejected("malformed")
            raise
        if not self._spans.offer(decoded.spans, len(body)):
            self.count_rejected("busy", len(decoded.spans))
            raise BusyError
        if signal == "traces":
            if self._forwarder is not None and decoded.spans:
                self._forwarder.offer(body, encoding, len(decoded.spans))
            with self._lock:
                self.received += len(decoded.spans)
        for reason, count in decoded.rejected.items():
            self.count_rejected(reason, count)
        return decoded

    def count_rejected(self, reason: str, spans: int = 1) -> None:
        """Count rejected spans."""
        with self._lock:
            self.rejected[reason] += spans


def decompress(body: bytes, most: int, until: float = math.inf) -> bytes:
    """Decompress gzip or deflate, within limits.

    It reads a piece at a time, because zlib copies the input behind the end of a gzip member: that
    is the rest of the whole body otherwise, once for each of millions of members.

    Args:
        body: the compressed body.
        most: limit of the decompressed bytes.
        until: the deadline, as of ``time.monotonic()``.

    Raises:
        TooLargeError: it has more than ``most`` decompressed bytes.
        MalformedRequestError: it is not gzip or deflate, is incomplete, or has more than 1,024 gzip
            members (with members of 64 kB, as bgzip writes them, that is 64 MB).
        TimeoutError: the deadline has passed.

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
            stream = zlib.decompressobj(wbits=47)  # detects gzip and zlib
            while not stream.eof:
                if time.monotonic() > until:
                    raise TimeoutError("decompression took too long")
                piece = body[start : start + _PIECE]
                if not piece:
                    raise MalformedRequestError("the compressed body is incomplete")
                start += len(piece)
                found.append(stream.decompress(piece, room + 1))
                room -= len(found[-1])
                if room < 0:
                    raise TooLargeError
            start -= len(stream.unused_data)
    except zlib.error as error:
        raise MalformedRequestError(f"the body cannot be decompressed: {error}") from error
    return b"".join(found)
