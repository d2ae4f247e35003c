"""Forwards requests unchanged to another OTLP endpoint, from a separate thread.

Requests wait in a queue with a limit, so receivers never block. A request that does not fit, or is
not accepted in time, is dropped and counted.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from typing import Final

from tidegauge.receivers.decoding import Encoding
from tidegauge.receivers.senders import Forwarding, RejectedError, RetryError, new_sender
from tidegauge.safety.guard import guarded

_FIRST_BACKOFF: Final = 0.5
_LONGEST_BACKOFF: Final = 8.0


class Forwarder:
    """Forwards requests from its construction until :meth:`close`.

    Attributes:
        forwarded: number of forwarded spans.
        dropped: number of dropped spans by reason.

    Raises:
        ConfigurationError: the URL is invalid, or the certificates cannot be used.
    """

    def __init__(self, settings: Forwarding) -> None:
        self._settings = settings
        self._sender = new_sender(settings)
        self._changed = threading.Condition()
        self._requests: deque[tuple[bytes, Encoding, int]] = deque()
        self._bytes = 0
        self._closing = False
        self._until = float("inf")  # when closing is over
        self.forwarded = 0
        self.dropped: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._work, name="tidegauge-forward", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._requests)

    def offer(self, body: bytes, encoding: Encoding, spans: int) -> None:
        """Queue a request; never blocks."""
        with self._changed:
            if self._closing:
                self.dropped["shutdown"] += spans
            elif self._bytes + len(body) > self._settings.queued_bytes:
                self.dropped["queue_full"] += spans
            else:
                self._requests.append((body, encoding, spans))
                self._bytes += len(body)
                self._changed.notify()

    def begin_close(self, until: float) -> None:
        """Accept no more requests, and forward the waiting ones.

        Args:
            until: a moment of the monotonic clock, after which they are dropped.
        """
        with self._changed:
            self._closing = True
            self._until = until
            self._changed.notify()

    def end_close(self) -> list[str]:
        """Wait until that is done; what was dropped, in words."""
        self._thread.join(max(self._until - time.monotonic(), 0.0))
        with self._changed:
            left = list(self._requests)
            self._requests.clear()
            for _, _, spans in left:
                self.dropped["shutdown"] += spans
            lost = self.dropped["shutdown"]
        return [f"{lost:,} spans were not forwarded"] if lost else []

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    break
                body, encoding, spans = self._requests[0]
            dropped = self._forward(body, encoding)
            with self._changed:
                if self._requests:  # close() may have dropped it
                    self._requests.popleft()
                    self._bytes -= len(body)
                    if dropped is None:
                        self.forwarded += spans
                    else:
                        self.dropped[dropped] += spans
        self._sender.close()

    @guarded("otlp.forward", default="refused")
    def _forward(self, body: bytes, encoding: Encoding) -> str | None:
        """Send one request, with retries; returns why it was dropped, if it was."""
        deadline = time.monotonic() + self._settings.give_up_after
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._sender.send(body, encoding)
            except RejectedError:
                return "refused"
            except RetryError as error:
                jitter = random.uniform(0.8, 1.2)  # noqa: S311 -- not a secret
                wait = backoff * jitter if error.after is None else error.after
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
            else:
                return None
            if time.monotonic() + wait > deadline:
                return "unreachable"
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait)
                if self._closing and time.monotonic() + wait > self._until:
                    return "shutdown"
