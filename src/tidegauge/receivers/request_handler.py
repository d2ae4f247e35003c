"""Handles the requests of both listeners: authorize, decompress, decode, queue, count."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from tidegauge._span_counts import span_faults
from tidegauge.catalog import MetricDefinition
from tidegauge.foreign_spans.span import SpanData
from tidegauge.net.head import BearerToken
from tidegauge.receivers.decoding import (
    READ_LIMITS,
    Decoded,
    Encoding,
    MalformedRequestError,
    OverloadedRequestError,
    ReadLimits,
    Signal,
    decode_logs_protobuf,
    decode_protobuf,
)
from tidegauge.receivers.forwarding import Forwarder
from tidegauge.receivers.json_decoding import decode_json, decode_logs_json

RETRY_SECONDS: Final = 1
"""Seconds after which a sender should try again, if there was no room."""

_PIECE: Final = 65_536
_UNPACKED: Final = 1_048_576
_MAX_RECEIVING: Final = 64 * 1024 * 1024
_MAX_WAIT: Final = 1.0
_MAX_MEMBERS: Final = 1_024

_DECODERS: Final[Mapping[tuple[Signal, Encoding], Callable[[bytes, ReadLimits], Decoded]]] = {
    ("traces", "protobuf"): decode_protobuf,
    ("traces", "json"): decode_json,
    ("logs", "protobuf"): decode_logs_protobuf,
    ("logs", "json"): decode_logs_json,
}


class BusyError(Exception):
    """There is no room now; the sender should try again.

    Args:
        spans: how many spans were rejected; a request that was not read counts as one.
    """

    def __init__(self, spans: int = 1) -> None:
        super().__init__(spans)
        self.spans = spans


class TooLargeError(Exception):
    """A request beyond the size limit, before or after decompression, or with too many elements."""


class RequestMemory:
    """What the requests of all connections hold while they are received, in bytes.

    Each has a :class:`RequestShare`. A request that is alone may hold any amount; otherwise it
    waits for a second, and is rejected.

    Args:
        most: limit of all together.
        max_wait: seconds to wait for room.

    Attributes:
        held: bytes that they hold now.
        wanted: how many of them wait for room.
    """

    def __init__(self, most: int = _MAX_RECEIVING, max_wait: float = _MAX_WAIT) -> None:
        self.most = most
        self.max_wait = max_wait
        self.held = 0
        self.wanted = 0
        self.freed = threading.Condition()


class RequestShare:
    """What one request holds, until the end of the ``with`` statement."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._held = 0

    def __enter__(self) -> RequestShare:
        return self

    def __exit__(self, *_: object) -> None:
        self.give(self._held)

    def take(self, size: int) -> None:
        """Hold so many more bytes; BusyError if others hold too many."""
        memory = self._memory

        def has_room() -> bool:
            return memory.held == self._held or memory.held + size <= memory.most

        with memory.freed:
            memory.wanted += 1
            try:
                if not memory.freed.wait_for(has_room, memory.max_wait):
                    raise BusyError
            finally:
                memory.wanted -= 1
            memory.held += size
            self._held += size

    def give(self, size: int) -> None:
        """Hold so many fewer bytes."""
        with self._memory.freed:
            self._memory.held -= size
            self._held -= size
            self._memory.freed.notify_all()


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
        token: bearer token that senders must send; ``None``: they need none.

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
        self._parsing = threading.Lock()
        self.memory = RequestMemory()
        self.received = 0
        self.rejected: Counter[str] = Counter()

    @contextlib.contextmanager
    def receiving(self) -> Iterator[RequestShare]:
        """A request is received; counts it if it is rejected."""
        try:
            with RequestShare(self.memory) as share:
                yield share
        except TooLargeError:
            self.count_rejected("too_large")
            raise
        except MalformedRequestError:
            self.count_rejected("malformed")
            raise
        except BusyError as error:
            self.count_rejected("busy", error.spans)
            raise

    def handle(
        self, body: bytes, encoding: Encoding, signal: Signal, share: RequestShare, until: float
    ) -> Decoded:
        """Decode a request, and queue its spans or events.

        Raises:
            TooLargeError: it has too many elements for its size.
            MalformedRequestError: it is not such a request.
            BusyError: there was no room in time.
        """
        decoded = self._decoded(body, encoding, signal, share, until)
        if not self._spans.offer(decoded.spans, decoded.size):
            raise BusyError(len(decoded.spans))
        if signal == "traces":
            if self._forwarder is not None and decoded.spans:
                self._forwarder.offer(body, encoding, len(decoded.spans))
            with self._lock:
                self.received += len(decoded.spans)
        for reason, count in decoded.rejected.items():
            self.count_rejected(reason, count)
        return decoded

    def _decoded(
        self, body: bytes, encoding: Encoding, signal: Signal, share: RequestShare, until: float
    ) -> Decoded:
        """One request at a time: a parser lets no other thread run, and makes far more of a request
        than is kept of it."""
        wait = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        if not self._parsing.acquire(timeout=wait):
            raise BusyError
        try:
            decoded = _DECODERS[signal, encoding](body, self._limits)
            share.take(decoded.size)
        except OverloadedRequestError as error:
            raise TooLargeError(str(error)) from error
        finally:
            self._parsing.release()
        return decoded

    def count_rejected(self, reason: str, spans: int = 1) -> None:
        """Count rejected spans."""
        with self._lock:
            self.rejected[reason] += spans


def decompress(
    body: bytes, most: int, until: float = math.inf, share: RequestShare | None = None
) -> bytes:
    """Decompress gzip or deflate, within limits.

    It reads a piece at a time, because zlib copies the input behind the end of a gzip member: that
    is the rest of the whole body otherwise, once for each of millions of members.

    Args:
        body: the compressed body.
        most: limit of the decompressed bytes.
        until: the deadline, as of ``time.monotonic()``.
        share: holds what is decompressed.

    Raises:
        TooLargeError: it has more than ``most`` decompressed bytes.
        MalformedRequestError: it is not gzip or deflate, is incomplete, or has more than 1,024 gzip
            members (with members of 64 kB, as bgzip writes them, that is 64 MB).
        TimeoutError: the deadline has passed.
        BusyError: other requests hold too much.

    >>> import gzip
    >>> decompress(gzip.compress(b"spa") + gzip.compress(b"ns"), 5)
    b'spans'
    """
    share = share or RequestShare(RequestMemory())
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
                piece = stream.unconsumed_tail
                if not piece:
                    piece = body[start : start + _PIECE]
                    start += len(piece)
                unpacked = stream.decompress(piece, min(room, _UNPACKED) + 1)
                if not (piece or unpacked):
                    raise MalformedRequestError("the compressed body is incomplete")
                found.append(unpacked)
                room -= len(unpacked)
                if room < 0:
                    raise TooLargeError(f"more than {most} bytes")
                share.take(2 * len(unpacked))  # the pieces, and all of them joined
            start -= len(stream.unused_data)
    except zlib.error as error:
        raise MalformedRequestError(f"the body cannot be decompressed: {error}") from error
    joined = b"".join(found)
    share.give(len(joined))
    return joined
