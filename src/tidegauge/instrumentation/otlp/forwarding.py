"""Passing requests on to another OTLP endpoint, as they came, from a thread of its own.

Nobody waits for it: requests queue up to a limit, and what does not fit, or is not taken in time,
is dropped and counted.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
import urllib.parse
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tidegauge._guard import guarded
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.otlp.grpc_sender import GrpcSender
from tidegauge.instrumentation.otlp.http_sender import HttpSender
from tidegauge.instrumentation.otlp.reception import Encoding
from tidegauge.instrumentation.otlp.sending import Forwarding, RefusedError, RetryError, Sender

__all__ = ["Forwarder", "ForwardingCounts"]

_FIRST_BACKOFF: Final = 0.5
_LONGEST_BACKOFF: Final = 8.0


@dataclass(slots=True)
class ForwardingCounts:
    """Counts of spans.

    Args:
        forwarded: that were taken.
        dropped: that were not, by reason.
    """

    forwarded: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


class Forwarder:
    """Passes requests on, from its making on until :meth:`close`.

    Args:
        forwarding: where to.

    Raises:
        ConfigurationError: the address is none, or its certificates cannot be used.
        MissingExtraError: gRPC is to be spoken, and grpcio is not installed.
    """

    def __init__(self, forwarding: Forwarding) -> None:
        self._told = forwarding
        self._sender = _sender(forwarding)
        self._changed = threading.Condition()
        self._requests: deque[tuple[bytes, Encoding, int]] = deque()
        self._bytes = 0
        self._closing = False
        self._until = float("inf")  # when closing is over
        self._counts = ForwardingCounts()
        self._thread = threading.Thread(target=self._work, name="tidegauge-forward", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._requests)

    @property
    def counts(self) -> ForwardingCounts:
        """What was passed on and what was not, so far."""
        with self._changed:
            return ForwardingCounts(self._counts.forwarded, dict(self._counts.dropped))

    def offer(self, body: bytes, encoding: Encoding, spans: int) -> None:
        """Pass a request on, later; never waits."""
        with self._changed:
            if self._closing:
                self._drop("shutdown", spans)
            elif self._bytes + len(body) > self._told.queued_bytes:
                self._drop("queue_full", spans)
            else:
                self._requests.append((body, encoding, spans))
                self._bytes += len(body)
                self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Pass on what waits, for so many seconds; drop the rest.

        Returns:
            Whether nothing was dropped for it.
        """
        with self._changed:
            self._closing = True
            self._until = time.monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            left = list(self._requests)
            self._requests.clear()
            for _, _, spans in left:
                self._drop("shutdown", spans)
            return not self._counts.dropped.get("shutdown")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    break
                body, encoding, spans = self._requests[0]
            dropped = self._pass_on(body, encoding)
            with self._changed:
                if self._requests:  # closing may have given it up
                    self._requests.popleft()
                    self._bytes -= len(body)
                    if dropped is None:
                        self._counts.forwarded += spans
                    else:
                        self._drop(dropped, spans)
        self._sender.close()

    @guarded("otlp.forward", default="refused")
    def _pass_on(self, body: bytes, encoding: Encoding) -> str | None:
        """Send one request until it is taken or given up; why it was dropped."""
        give_up = time.monotonic() + self._told.give_up_after
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._sender.send(body, encoding)
            except RefusedError:
                return "refused"
            except RetryError as error:
                jitter = random.uniform(0.8, 1.2)  # noqa: S311 -- nobody gains by guessing it
                wait = backoff * jitter if error.after is None else error.after
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
            else:
                return None
            if time.monotonic() + wait > give_up:
                return "unreachable"
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait)
                if self._closing and time.monotonic() + wait > self._until:
                    return "shutdown"

    def _drop(self, reason: str, spans: int) -> None:
        self._counts.dropped[reason] = self._counts.dropped.get(reason, 0) + spans


def _sender(told: Forwarding) -> Sender:
    try:
        parts = urllib.parse.urlsplit(told.url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"forward_to {told.url!r}: {error}") from error
    if not parts.hostname or parts.scheme not in ("http", "https", "grpc", "grpcs"):
        raise ConfigurationError(
            f"forward_to {told.url!r} is to be http://HOST:PORT, or grpc://HOST:PORT "
            "(https, grpcs for TLS)"
        )
    secure = parts.scheme.endswith("s")
    try:
        if told.ca is not None:  # gRPC would not tell what is wrong with it
            ssl.create_default_context(cafile=told.ca)
        if parts.scheme.startswith("grpc"):
            return GrpcSender(f"{parts.hostname}:{port or 4317}", secure, told)
        return HttpSender(parts.hostname, port or 4318, parts.path.rstrip("/"), secure, told)
    except OSError as error:
        raise ConfigurationError(f"forward_ca {told.ca!r}: {error.strerror or error}") from error
