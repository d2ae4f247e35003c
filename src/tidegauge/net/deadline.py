"""A socket to read from until a time: however slowly the other side sends, it ends."""

from __future__ import annotations

import io
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class TimedSocket(io.RawIOBase):
    """The reading side of a socket.

    Args:
        connection: the socket; its time-out is set before every read, and left so for writing.

    Attributes:
        until: when reading ends, as ``time.monotonic()`` counts.

    Reading raises ``TimeoutError`` when the time that was allowed last is over.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self.until = 0.0

    def allow(self, seconds: float) -> None:
        """Reading may go on for so long from now."""
        self.until = time.monotonic() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what there is."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def drain(self, seconds: float) -> None:
        """Read and drop what still comes: closed unread, a socket takes back what was answered."""
        self.allow(seconds)
        piece = bytearray(65_536)
        while self.readinto(piece):
            pass
